"""`xidwatch decode [FILE...]`: what kernel logs of any make say, one row for each event. Touches nothing but the files it is given."""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Iterator, Mapping
from json import dumps as _encoded
from json.encoder import encode_basestring_ascii as _quoted
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:  # imported where they are needed: every other command would wait for them
    from rich.console import Console
    from rich.progress import Progress

    from xidwatch.core.logevents import Found
    from xidwatch.core.xids import XidRule
    from xidwatch.logs.follow import Followed
    from xidwatch.logs.source import Source

EX_UNREADABLE = 1
EX_USAGE = 64
EX_NOINPUT = 66
EX_IOERR = 74
EX_CONFIG = 78
BAR_AFTER_SECONDS = 1.0
BAR_EVERY_SECONDS = 0.1
SEVERITIES = ("info", "warning", "error", "critical")
CLASSES = ("application", "driver", "hardware", "link", "memory", "thermal", "fabric", "informational", "echo")
KINDS = (
    *("xid", "sxid", "aer", "dpc", "pciehp", "gsp", "uvm_fatal", "nvrm_init_fail", "nvme", "mce", "edac", "ghes", "lockup", "rcu"),
    *("hung_task", "power_state"),
)
LOOK = {"info": "dim", "warning": "yellow", "error": "red", "critical": "bold red"}
HEADING = f"{'LINE':>8}  {'TIME':<24}  {'SEVERITY':<8}  {'KIND':<14}  {'DEVICE':<12}  TEXT"
DESCRIPTION = """\
Reads kernel logs and prints every event in them: Xid, SXid, PCIe, GSP, NVMe, memory, lock-ups.
Takes dmesg and journalctl in all their forms, syslog, /dev/kmsg, container logs, nvidia-bug-report.log,
plain or compressed (gzip, xz, bzip2, zstd), and what people paste into an issue.

  xidwatch decode /var/log/kern.log*
  journalctl -k -b -1 | xidwatch decode --min-severity error
  xidwatch decode nvidia-bug-report.log.gz --json | jq .xid
"""
EPILOG = f"""\
classes: {", ".join(CLASSES)}
kinds:   {", ".join(KINDS[:10])},
         {", ".join(KINDS[10:])}

A line that the kernel did not write is marked injected: it says nothing about the hardware.

Exit status:
  0   everything was read, whatever it says
  1   something could not be read: a damaged or cut off file, or one that is not text
  64  wrong usage
  66  a file is not there, or may not be opened
  74  standard output could not be written to
  78  a rule is refused
"""


def add(commands: Any) -> None:
    """The command's options."""
    command = commands.add_parser(
        "decode",
        help="what a kernel log says, from a file, a pipe or /dev/kmsg",
        description=DESCRIPTION,
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    command.add_argument("files", nargs="*", metavar="FILE", help="kernel logs; - or none: standard input")
    command.add_argument("--json", action="store_true", help="one JSON object for each event, as soon as it is over")
    command.add_argument(
        "--follow", "-f", action="store_true", help="go on with what is added to the file, through rotation; /dev/kmsg too"
    )
    chosen = "only events of this class or kind; may be given several times"
    command.add_argument("--class", dest="classes", action="append", metavar="C", choices=CLASSES + KINDS, help=chosen)
    command.add_argument("--min-severity", choices=SEVERITIES, default="info", help="only events that are at least so bad")
    command.add_argument("--no-fast", action="store_true", help="do without hyperscan even where it is installed")
    command.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """See EPILOG. Raises BrokenPipeError and KeyboardInterrupt; what was known by then has been printed."""
    if sys.stdout is None:  # closed by whoever started this
        _say("what was found could not be written: there is no standard output")
        return EX_IOERR
    files = arguments.files or ["-"]
    if arguments.follow and (len(files) > 1 or files == ["-"]):
        _say("decode --follow takes one file (`xidwatch decode --help` tells more)")
        return EX_USAGE
    output = _Json(len(files) > 1) if arguments.json else _Table(len(files) > 1)
    decoding = _Decoding(output, arguments)
    if files == ["-"] and sys.stdin is not None and sys.stdin.isatty():
        _say("reading from the terminal, up to Ctrl-D (`xidwatch decode --help` tells what else there is)")
    try:
        return max(decoding.file(path, follow=arguments.follow) for path in files)
    except _BadRulesError as error:
        _say(str(error))
        return EX_CONFIG
    except _Unwritable as error:
        _say(f"what was found could not be written: {error}")
        return EX_IOERR


class _BadRulesError(Exception):
    """What is wrong with them, a line each."""


class _Unwritable(Exception):
    """Standard output takes no more, for a reason other than that nobody reads it."""


class _Filter:
    """What is printed."""

    def __init__(self, min_severity: str, classes: list[str] | None, xids: Mapping[int, XidRule]) -> None:
        self._severities = frozenset(SEVERITIES[SEVERITIES.index(min_severity) :])
        self._classes = frozenset(classes or ())
        self._xids = xids

    def passes(self, found: Found) -> bool:
        event = found.event
        if event.severity not in self._severities:
            return False
        if not self._classes or event.kind in self._classes:
            return True
        from xidwatch.core.logevents import class_of

        return class_of(event, self._xids) in self._classes


class _Decoding:
    """One file after the other."""

    def __init__(self, output: _Json | _Table, arguments: argparse.Namespace) -> None:
        from xidwatch.core.logneedles import NEEDLES
        from xidwatch.logs.find import search

        self._output = output
        self._arguments = arguments
        self._search = search(NEEDLES, fast=not arguments.no_fast)
        self._xids: Mapping[int, XidRule] | None = None
        self._is_for_people = isinstance(output, _Table)
        self._lines = self._found = self._shown = 0  # of the file that is being read

    def file(self, path: str, *, follow: bool) -> int:
        """The exit status for this one. Raises _BadRulesError, _Unwritable."""
        from xidwatch.logs.follow import Followed
        from xidwatch.logs.source import Source

        try:
            source: Source | Followed = Followed(path) if follow else Source(path)
        except OSError as error:
            _say(f"{path}: {(error.strerror or str(error)).lower()}")
            return EX_NOINPUT
        bar = _Bar(source)
        try:
            if isinstance(source, Source):
                source.begin(self._search)  # while everything else is imported
            self._decode(source, bar)
        finally:
            bar.hide()
            source.close()
        if not self._shown:
            self._say_nothing_was_found(source.name)
        return EX_UNREADABLE if source.troubles and not follow else 0

    def _decode(self, source: Source | Followed, bar: _Bar) -> None:
        xids = self._rules()
        wanted = _Filter(self._arguments.min_severity, self._arguments.classes, xids)
        told = 0
        self._lines = self._found = self._shown = 0
        for found in self._events(source, xids):
            for trouble in source.troubles[told:]:
                bar.hide()
                _say(f"{source.name}: {trouble}")
            told = len(source.troubles)
            shown = [each for each in found if wanted.passes(each)]
            self._found += len(found)
            self._shown += len(shown)
            if shown:
                bar.hide()
                self._show(source.name, shown)
            bar.show()

    def _rules(self) -> Mapping[int, XidRule]:
        """What Xids mean, read once. Raises _BadRulesError."""
        from xidwatch.rulefiles import ConfigError, load_xids, overrides_dir, rules_dir

        if self._xids is None:
            given = self._arguments.rules_dir
            try:
                self._xids = load_xids(rules_dir(given), overrides_dir(given))
            except ConfigError as error:
                raise _BadRulesError("\n".join(error.problems)) from error
        return self._xids

    def _say_nothing_was_found(self, name: str) -> None:
        """A program that reads JSON is told by an empty output alone; people are told in words."""
        if not self._is_for_people and not sys.stderr.isatty():
            return
        left_out = f" that you asked for, {self._found} others" if self._found else ""
        _say(f"{name}: no events{left_out} in {self._lines:,} {'line' if self._lines == 1 else 'lines'}")

    def _ended(self, lines: int) -> None:
        self._lines += lines

    def _show(self, name: str, shown: list[Found]) -> None:
        try:
            self._output.show(name, shown)
        except BrokenPipeError:
            raise
        except OSError as error:
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # what is still in the buffer would fail again at exit
            raise _Unwritable((error.strerror or str(error)).lower()) from error

    def _events(self, source: Source | Followed, xids: Mapping[int, XidRule]) -> Iterator[list[Found]]:
        from xidwatch.logs.events import events

        yield from events(source.chunks(), self._search, xids, ended=self._ended)
        yield []  # troubles of the last chunk


class _Json:
    """One object a line; keys that say nothing are left out, but those that every event has."""

    def __init__(self, several: bool) -> None:
        self._several = several

    def show(self, name: str, shown: list[Found]) -> None:
        """Print them at once: somebody may be waiting for the first."""
        file = f'"file": {_quoted(name)}, ' if self._several else ""
        print("\n".join([as_line(each, file) for each in shown]), flush=True)


def as_line(found: Found, before: str = "") -> str:
    """`as_object` as JSON, in half the time of an encoder that has to look at each value, for logs of which every line is an event.

    `before`: members that come first.
    """
    event = found.event
    time = "null" if found.time is None else _quoted(found.time)
    xid = "null" if event.xid is None else event.xid
    pci = "null" if event.pci is None else f'"{event.pci}"'
    pid = "null" if event.pid is None else event.pid
    process = "null" if event.process is None else _quoted(event.process)
    more = "".join([f', "{name}": {_encoded(value)}' for name, value in _more(found)])
    return (
        f'{{{before}"line": {found.number}, "time": {time}, "kind": "{event.kind}", "xid": {xid}, "pci": {pci}, "pid": {pid}, '
        f'"process": {process}, "severity": "{event.severity}", "text": {_quoted(event.text)}{more}}}'
    )


def as_object(found: Found) -> dict[str, object]:
    """An event as programs get it."""
    event = found.event
    plain: dict[str, object] = {
        "line": found.number,
        "time": found.time,
        "kind": event.kind,
        "xid": event.xid,
        "pci": str(event.pci) if event.pci else None,
        "pid": event.pid,
        "process": event.process,
        "severity": str(event.severity),
        "text": event.text,
    }
    return plain | dict(_more(found))


def _more(found: Found) -> list[tuple[str, object]]:
    """What only some events have."""
    event = found.event
    more: list[tuple[str, object]] = []
    if event.recovery is not None:
        more.append(("recovery", event.recovery))
    if event.caused_by is not None:
        more.append(("caused_by", event.caused_by))
    if event.mig_gi is not None:
        more.append(("mig_gi", event.mig_gi))
    if event.mig_ci is not None:
        more.append(("mig_ci", event.mig_ci))
    if event.cpu is not None:
        more.append(("cpu", event.cpu))
    if event.injected:
        more.append(("injected", True))
    if found.repeated > 1:
        more += (("repeated", found.repeated), ("last_line", found.last_number), ("last_time", found.last_time))
    if found.boot:
        more.append(("boot", found.boot))
    return more


class _Table:
    """Rows for people: in colour on a terminal, as they are elsewhere."""

    def __init__(self, several: bool) -> None:
        self._several = several
        self._console: Console | None = None
        self._begun: str | None = None
        if sys.stdout.isatty() and not os.environ.get("NO_COLOR"):
            from rich.console import Console

            self._console = Console(soft_wrap=True, highlight=False, markup=False, emoji=False)

    def show(self, name: str, shown: list[Found]) -> None:
        """A heading before the first one, and the file's name where there are several."""
        if self._begun != name:
            self._line("" if self._begun else None)
            self._line(name if self._several else None, "bold")
            self._line(HEADING, "bold")
            self._begun = name
        for each in shown:
            self._line(as_row(each), LOOK[each.event.severity])
        sys.stdout.flush()

    def _line(self, text: str | None, style: str = "") -> None:
        if text is None:
            return
        if self._console is None:
            encoding = sys.stdout.encoding or "utf-8"
            print(text.encode(encoding, "backslashreplace").decode(encoding))
            return
        from rich.text import Text

        self._console.print(Text(text, style=style))


def as_row(found: Found) -> str:
    """An event as people get it."""
    from xidwatch.report.words import clean

    event = found.event
    what = event.kind if event.xid is None else f"{event.kind} {event.xid}"
    injected = "[injected: not written by the kernel] " if event.injected else ""
    last = f" at {found.last_time}" if found.last_time else ""
    times = f"({found.repeated} times, the last in line {found.last_number}{last})" if found.repeated > 1 else ""
    return (
        f"{found.number:>8}  {clean(found.time or '-'):<24}  {event.severity:<8}  {what:<14}  {event.pci or '-'!s:<12}  "
        f"{injected}{clean(event.text)}{'  ' * bool(times)}{clean(times)}"
    )


class _Bar:
    """How far it is, on a terminal, for what takes longer than a moment. Out of the way while something else is printed."""

    def __init__(self, source: Source | Followed) -> None:
        self._source = source
        self._total = getattr(source, "total_bytes", None)
        self._due = time.monotonic() + BAR_AFTER_SECONDS if self._total and sys.stderr.isatty() else float("inf")
        self._bar: Progress | None = None

    def show(self) -> None:
        """Called often, does something rarely."""
        now = time.monotonic()
        if now < self._due:
            return
        self._due = now + BAR_EVERY_SECONDS
        done = getattr(self._source, "done_bytes", 0)
        if self._bar is None:
            from rich.console import Console
            from rich.progress import Progress

            self._bar = Progress(console=Console(stderr=True), transient=True, auto_refresh=False)
            self._bar.add_task(Path(self._source.name).name, total=self._total)
            self._bar.start()
        self._bar.update(self._bar.task_ids[0], completed=done, refresh=True)

    def hide(self) -> None:
        """Take it off the terminal."""
        if self._bar is not None:
            self._bar.stop()
            self._bar = None


def _say(text: str) -> None:
    print("\n".join(f"xidwatch: {line}" for line in text.splitlines()), file=sys.stderr)
