r"""Lines of a log file, put together again into the records that the kernel printed.

    [   10.604174] NVRM: The NVIDIA GPU 0000:b3:00.0          one record, printed with line breaks inside: its further lines
                   NVRM: (PCI ID: 10de:26b5) installed        are indented
    [   12.345678] NVRM: Xid (PCI:0000:0f:00): 79, GPU has    one line, wrapped by a terminal, an editor or a hand
    fallen off the bus.
    MESSAGE=NVRM: Xid (PCI:0000:0f:00): 79, ...               one line of many that together are a record (`logfields`)
    -- Boot 9f34d86891015b3ac0c862de0e6dd494 --               what follows is another boot's

Law: pure and total, whatever the bytes are. A line that begins a record by its head never goes on with another; one without a head
goes on with the record before it only where that is unfinished or the line is indented, and never across an empty line. So a
record is known when the next one begins: `is_open` says that its end has not been seen.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

from xidwatch.core import logfields, logline
from xidwatch.core.logfields import Collector

MOST_LINES = 16  # of one record of text
MOST_BYTES = 1024 * 1024  # of one line
TERMINAL_WIDTH = 80


class Record(NamedTuple):
    """One record of the kernel's, or of whoever claims to be it."""

    number: int  # of its first line, from 1
    text: str  # line breaks inside it are the printer's own
    time: str | None  # as found
    usec: int | None
    kernel: bool  # assumed where nothing says otherwise
    boot: str | None  # the id, or an ordinal where the log says only that another one begins


@dataclass(slots=True)
class _Open:
    """A record whose end has not been seen."""

    number: int
    line: logline.Line
    indent: int
    pieces: list[str]  # each with what joins it to the one before
    last: str  # the last line, as it stood there

    def add(self, line: str) -> None:
        """A further line: the printer's own, or the rest of one that somebody has broken, between two words or inside one."""
        text = line.strip()
        broken_inside = len(self.last) == TERMINAL_WIDTH and " " not in (line[:1], self.last[-1:])
        self.pieces.append(f"\n{text}" if text.startswith(_OWN) else text if broken_inside else f" {text}")
        self.last = line


_BOOT = re.compile(r"^-- (?:Boot (?P<id>[0-9a-f]{32}|[0-9a-f-]{36})|Reboot) --$")
_COLOUR = re.compile(
    r"\x1b\[[0-9;?]{0,16}[A-Za-z]|\x1b\][^\x07\x1b]{0,200}(?:\x07|\x1b\\)|\x1b[()][A-Z0-9]|\^\[\[[0-9;]{0,16}[mK]|#033\[[0-9;]{0,16}[mK]"
)
_BOLD = re.compile(r"\*\*(\w{1,20}:?)\*\*")
_ENTITY = re.compile(r"&(?:lt|gt|quot|amp|nbsp|#\d{1,3});")
_ENTITIES = {"&lt;": "<", "&gt;": ">", "&quot;": '"', "&amp;": "&", "&nbsp;": " ", "&#39;": "'", "&#34;": '"', "&#60;": "<", "&#62;": ">"}
# Lines that never go on with another: separators, fences, prompts.
_APART = re.compile(r"^\s*(?:[_=*~-]{4,}|`{3}|\S{0,60}[$#] |</?\w|\*\*\* )")
# `speaker: ` or `[drm] `: a line of its own wherever it stands.
_SPEAKS = re.compile(r"^(?:\[[\w:*\s]{1,40}\]|[A-Za-z][\w./-]{0,40}(?: [\w.:/-]{1,40})?:)(?: |$)")
_UNFINISHED = re.compile(r"[,:;(\-]\s*$")
_GOES_ON = re.compile(r"[a-z0-9(<'\"|)]")
# How the kernel's own further lines begin that are events by themselves.
_OWN = ("NVRM: ", "nvidia-", "[Hardware Error]", "pcieport ")


def text_of(raw: bytes) -> str:
    """Bytes as text: no colours, no marks of a web page, no NULs, no carriage return."""
    line = raw.decode("utf-8", "replace").rstrip("\r")
    if "\0" in line:
        line = line.replace("\0", "")
    if "\x1b" in line or "#033" in line or "^[[" in line:
        line = _COLOUR.sub("", line)
    if "**" in line:
        line = _BOLD.sub(r"\1", line)
    if "#012" in line:  # rsyslog: a record with line breaks inside, in one line
        line = line.replace("#012", "\n")
    if "\t" in line or "\xa0" in line:  # of a table, of a web page
        line = line.replace("\t", " ").replace("\xa0", " ")
    if "&" in line:
        line = _ENTITY.sub(lambda entity: _ENTITIES.get(entity[0], " "), line)
    return line


class Assembler:
    """Takes lines in order, gives records in order. Lines may be left out between records."""

    def __init__(self) -> None:
        self._open: _Open | None = None
        self._fields: Collector | None = None
        self._boot: str | None = None
        self._boots = 0

    @property
    def is_open(self) -> bool:
        """Whether the next line may belong to what has been read."""
        return self._open is not None or self._fields is not None

    @property
    def open_since(self) -> int:
        """The number of the first line of what is open, 0 when nothing is."""
        return self._open.number if self._open else self._fields.number if self._fields else 0

    def is_last(self, number: int, text: str) -> bool:
        """Whether what is open is this one line, and says this."""
        return self._open is not None and self._open.number == number and self._open.pieces == [text]

    def skip(self, lines: int) -> None:
        """So many copies of the line that is open have been passed over: it is the last of them now."""
        if self._open is not None:
            self._open.number += lines

    def drop(self) -> None:
        """Forget what is open: nothing in it matters."""
        self._open = self._fields = None

    def feed(self, number: int, raw: bytes) -> list[Record]:
        """Records that are complete now. `raw` has no line break."""
        line = text_of(raw[:MOST_BYTES])
        done: list[Record] = []
        if self._fields is not None:
            belongs = self._fields.take(raw, line)
            if not belongs or self._fields.complete:
                done = self.finish()
            if belongs:
                return done
        return done + self._line(number, line)

    def finish(self) -> list[Record]:
        """What is still open is complete."""
        done: list[Record] = []
        if self._open is not None:
            ended, self._open = self._open, None
            text = ended.pieces[0] if len(ended.pieces) == 1 else "".join(ended.pieces)
            line, kernel = ended.line, ended.line.kernel is not False
            done += (Record(ended.number, each, line.time, line.usec, kernel, self._boot) for each in logline.said(text))
        if self._fields is not None:
            collected, self._fields = self._fields, None
            done += self._named(collected.number, collected.records())
        return done

    def _line(self, number: int, line: str) -> list[Record]:
        if usual := logline.usual(line):
            return self._begin(number, line, usual)
        if not line or line.isspace():
            return self.finish()
        if line.startswith("-- ") and (match := _BOOT.match(line.rstrip())):
            done = self.finish()
            self._boots += 1
            self._boot = match["id"] or str(self._boots)
            return done
        if (fields := self._records(line)) is not None:
            return self.finish() + self._named(number, fields)
        if begun := Collector.begun_by(number, line):
            done = self.finish()
            self._fields = begun
            return done
        return self._text(number, line)

    def _text(self, number: int, line: str) -> list[Record]:
        read = logline.read(line)
        if read.text.startswith("{") and (fields := logfields.records(read.text, read.kernel)) is not None:
            return self.finish() + self._named(number, fields)
        indent = len(line) - len(line.lstrip())
        if not read.headed and self._open is not None and _goes_on(self._open, line, indent):
            self._open.add(line)
            return []
        return self._begin(number, line, read)

    def _begin(self, number: int, line: str, read: logline.Line) -> list[Record]:
        done = self.finish()
        self._open = _Open(number, read, len(line) - len(line.lstrip()), [read.text], line)
        return done

    def _records(self, line: str) -> list[logfields.Fields] | None:
        start = line.lstrip(" \t\x1e,[").removeprefix("data: ")
        return logfields.records(line) if start.startswith("{") and len(start) > 2 else None

    def _named(self, number: int, fields: Iterable[logfields.Fields]) -> list[Record]:
        return [Record(number, each.text, each.time, each.usec, each.kernel is not False, each.boot or self._boot) for each in fields]


def begins(raw: bytes) -> bool:
    """Whether a line begins something by its looks alone, so that nothing before it needs to be read to understand it."""
    line = text_of(raw[:MOST_BYTES])
    return line.startswith(("-- ", "__CURSOR=")) or line.rstrip().endswith("{") or logline.read(line).headed or _is_object(line)


def is_field(raw: bytes) -> bool:
    """Whether a line is one of several that name the fields of one record."""
    return _FIELD_LINE.match(raw) is not None


_FIELD_LINE = re.compile(rb'\s{0,16}(?:MESSAGE(?:=|$)|"(?:MESSAGE|msg|message)"\s{0,4}:)')


def _is_object(line: str) -> bool:
    return line.lstrip(" \t\x1e,[").startswith("{")


def _goes_on(before: _Open, line: str, indent: int) -> bool:
    """Whether a line without a head belongs to the record before it."""
    text = line.strip()
    if len(before.pieces) >= MOST_LINES or _APART.match(line):
        return False
    if indent > before.indent:
        return before.line.headed or not text.startswith(_OWN)
    is_full = len(before.last) == TERMINAL_WIDTH
    if text.startswith(_OWN) or (_SPEAKS.match(text) and not (is_full and before.line.headed)):
        return False
    last = before.last.rstrip()
    if is_full or _UNFINISHED.search(last):
        return True
    return not last.endswith((".", "!")) and _GOES_ON.match(text) is not None
