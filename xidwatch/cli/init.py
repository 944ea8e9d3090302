"""`xidwatch init`: what is here, for the operator to compare with what is in the machine; then a configuration and an accepted baseline.

With a daemon running, what it knows is shown and its baseline is accepted through it: nothing is asked of the hardware a second time,
and the records have one writer. Without one, expendable workers look once, with deadlines, and the records are written here.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from xidwatch.cli.telling import user
from xidwatch.clock import SystemClock
from xidwatch.config import DEFAULT_CONFIG, Config, ConfigError, Rules, both, load_config, load_rules, overrides_dir, rules_dir, template
from xidwatch.core import suspects
from xidwatch.core.suspects import EngineSuspect
from xidwatch.records import files, offer
from xidwatch.records.baseline import NAME, Baseline, encode
from xidwatch.records.offer import Offered
from xidwatch.report import found

FAILED = 2
EX_UNAVAILABLE = 69
EX_CANTCREAT = 73
EX_CONFIG = 78
EXIT_CODES = """\
Exit status:
  0   all that was asked for is written
  2   the baseline is not accepted; the reasons are on standard error (without a terminal it takes --yes)
  69  a daemon runs and does not answer, or may not be told anything
  73  nothing was written: it is there already (see --force), or there is no place
  78  the configuration that is there is refused
"""
PARTS = ("config", "baseline")
ANEW = {"config": "writes it anew with its settings, without your comments", "baseline": "begins anew with what is here"}


@dataclass(frozen=True, slots=True)
class Source:
    """Where the facts come from. `accept(offered)` makes the baseline; raises OSError, or ValueError with why not.

    `learns`: where it may not be accepted, `accept` writes it as provisional; else somebody else does.
    """

    offered: Offered
    accepted: str  # when and by whom a baseline has been accepted; empty for never
    remarks: tuple[str, ...]
    accept: Callable[[Offered], str]
    learns: bool = False
    close: Callable[[], None] = lambda: None


class Refused(Exception):
    """The command ends here, with an exit status and words."""

    def __init__(self, code: int, text: str) -> None:
        super().__init__(text)
        self.code = code


def add(commands: Any) -> None:
    """The command's options."""
    command = commands.add_parser(
        "init",
        help="write a configuration, and accept what is here as what should be here",
        description="Shows what is here, writes a commented configuration, and accepts the baseline if all is well.",
        epilog=EXIT_CODES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    command.add_argument("--dry-run", action="store_true", help="print what would be written, and write nothing")
    command.add_argument(
        "--force", action="store_true", help="also over what is there, of which a copy is kept: begin anew with what is here"
    )
    command.add_argument("--only", choices=PARTS, help="only this one; the other stays as it is")
    command.add_argument("--yes", action="store_true", help="do not ask whether that is all")
    command.add_argument("--json", action="store_true", help="what was found, instead of the table")
    command.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """See EXIT_CODES."""
    try:
        return _run(arguments)
    except Refused as refused:
        _say(str(refused))
        return refused.code


def _run(arguments: argparse.Namespace) -> int:
    config, rules = settings(arguments)
    source = open_source(arguments, config, rules, anew=arguments.force, write=not arguments.dry_run)
    try:
        engines = _engines(arguments, source.offered)
        text = template.text(config, source.offered.rails, engines)
        _show(arguments, source, engines, text)
        parts = _parts(arguments, source)
        if arguments.dry_run:
            return _dry_run(arguments, source, text, parts)
        if "baseline" in parts and not source.offered.obstacles:
            _ask_whether_that_is_all(arguments, source.offered)
        if "config" in parts:
            _write_config(_config_path(arguments), text)
        return _accept(arguments, source) if "baseline" in parts else 0
    finally:
        source.close()


# ------------------------------------------------------------------------------------------------------------ what is here


def settings(arguments: argparse.Namespace) -> tuple[Config, Rules]:
    """What is configured already stays so; a file that is yet to be written is no mistake. Raises Refused."""
    path = arguments.config if arguments.config is not None and arguments.config.exists() else None
    places = (rules_dir(arguments.rules_dir).absolute(), overrides_dir(arguments.rules_dir).absolute())
    try:
        return both(lambda: load_config(path) if path or arguments.config is None else Config(), lambda: load_rules(*places))
    except ConfigError as error:
        cure = "Mend it, or move it away, so that its settings are not lost unseen"
        raise Refused(EX_CONFIG, "\nxidwatch: ".join([*error.problems, cure])) from error


def open_source(arguments: argparse.Namespace, config: Config, rules: Rules, *, anew: bool, write: bool) -> Source:
    """A running daemon, else the hardware itself. Raises Refused."""
    from xidwatch.cli.init_source import from_daemon, from_hardware  # here: other commands must not pay for the daemon's modules

    try:
        source = from_daemon(arguments.state_dir, anew=anew, user=user())
        if source is None:
            source = from_hardware(arguments.state_dir.absolute(), config, rules, anew=anew, write=write, user=user())
    except PermissionError as error:
        raise Refused(EX_CANTCREAT, f"{error.filename}: permission denied. Run as root, or choose a --state-dir of your own") from error
    except (OSError, ValueError) as error:
        raise Refused(EX_UNAVAILABLE, _why(error)) from error
    return source


def _engines(arguments: argparse.Namespace, offered: Offered) -> tuple[EngineSuspect, ...]:
    from xidwatch.cli.init_source import search_engines

    pids = [int(pid) for on_it in offered.holders.values() for pid in on_it.split() if pid.isdecimal()]
    return suspects.engines(search_engines(arguments.state_dir, pids), offered.holders)


# -------------------------------------------------------------------------------------------------------------- to be seen


def _show(arguments: argparse.Namespace, source: Source, engines: tuple[EngineSuspect, ...], text: str) -> None:
    """For programs, of a dry run, also both files as they would be."""
    offered = source.offered
    if arguments.json:
        plain = {**offer.to_plain(offered), "accepted": source.accepted, "engines": [_plain(each) for each in engines]}
        if arguments.dry_run:
            plain |= {"baseline": json.loads(encode(_as_accepted(source))), "config": text}
        print(json.dumps(plain, indent=1))
    else:
        print("\n".join(found.table(offered, engines)))
    for said in (*source.remarks, *offered.remarks):
        _say(said)
    for said in offered.obstacles:
        _say(f"stands against accepting this: {said}")


def _plain(engine: EngineSuspect) -> Mapping[str, object]:
    return {"unit": engine.unit, "server": engine.server, "port": engine.port, "gpus": engine.gpus, "why": engine.why}


def _dry_run(arguments: argparse.Namespace, source: Source, text: str, parts: tuple[str, ...]) -> int:
    """What would be written, and no more; the exit status is that of the real thing."""
    refused = "baseline" in parts and bool(source.offered.obstacles)
    if not arguments.json and "config" in parts:
        print(f"\n# --- {_config_path(arguments)}\n{text}", end="")
    if not arguments.json and "baseline" in parts and not refused:
        print(f"\n# --- {arguments.state_dir / NAME}\n{_summary(_as_accepted(source))}")
    if refused:
        instead = "the one there is would stay as it is" if _stays(source) else "it would be written as provisional, which proves nothing"
        _say(f"the baseline would not be accepted: {instead}")
    _say("nothing was written")
    return FAILED if refused else 0


def _as_accepted(source: Source) -> Baseline:
    return offer.as_accepted(source.offered, SystemClock().now(), os.getuid(), user())


def _summary(written: Baseline) -> str:
    """Of a file for programs what a person has to know; who they are stands in the table."""
    by = f", by the word of {written.accepted.by}" if written.accepted else ""
    left = f"\n# not managed, and so never missed: {', '.join(sorted(written.not_managed))}" if written.not_managed else ""
    all_of_it = "# the whole file: xidwatch init --dry-run --json, under `baseline`"
    return f"# {offer.count(written.members)} as in the table above are what should be here{by}{left}\n{all_of_it}"


def _ask_whether_that_is_all(arguments: argparse.Namespace, offered: Offered) -> None:
    """A person is asked; a script says --yes, or nobody has looked. Raises Refused."""
    number = found.count(offered)
    gpus = f"{number} GPU{'' if number == 1 else 's'}"
    text = f"{gpus}. Is that all that should be here, each with the lanes and the power limit it should have?"
    if arguments.yes:
        return
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        raise Refused(FAILED, f"{gpus}, and nobody is there to be asked whether that is all. Nothing was written; look, and say --yes")
    print(f"xidwatch: {text} [y/N] ", end="", file=sys.stderr, flush=True)
    if not sys.stdin.readline().strip().lower().startswith("y"):
        raise Refused(FAILED, "nothing was written. Look at the seat and the power of what is not there, then run this again")


# ------------------------------------------------------------------------------------------------------------- to be written


def _config_path(arguments: argparse.Namespace) -> Path:
    return Path(arguments.config or DEFAULT_CONFIG)


def _parts(arguments: argparse.Namespace, source: Source) -> tuple[str, ...]:
    """What is to be written; what is there already stays, unless that is forced."""
    there = {
        "config": f"{_config_path(arguments)} is there already" if _config_path(arguments).exists() else "",
        "baseline": f"a baseline was accepted on {source.accepted}" if source.accepted else "",
    }
    wanted = (arguments.only,) if arguments.only else PARTS
    parts = tuple(part for part in wanted if arguments.force or not there[part])
    for part in wanted:
        if part not in parts:
            _say(f"{there[part]}: it stays as it is. --only {part} --force {ANEW[part]}, and keeps a copy")
    if not parts:
        raise Refused(EX_CANTCREAT, "nothing was written")
    return parts


def _write_config(path: Path, text: str) -> None:
    try:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o755)
        keep_copy(path)
        files.replace(path, text.encode(), mode=0o644)
    except OSError as error:
        raise Refused(EX_CANTCREAT, f"{path}: {_why(error)}. Run as root, or choose another --config") from error
    _say(f"{path} is written")


def keep_copy(path: Path) -> None:
    """What is there, beside itself, under the time of now. Raises OSError."""
    if not path.exists():
        return
    stem = f"{path.name}.{time.strftime('%Y%m%dT%H%M%SZ', time.gmtime())}"
    names = (path.with_name(f"{stem}{'' if number == 0 else f'.{number}'}") for number in range(1000))
    copy = next(name for name in names if not name.exists())
    files.replace(copy, path.read_bytes(), mode=path.stat().st_mode & 0o777)
    _say(f"what was there is kept as {copy}")


def _stays(source: Source) -> bool:
    """Whether a baseline that may not be accepted leaves the one that is there alone."""
    return bool(source.accepted) or not source.learns


def _accept(arguments: argparse.Namespace, source: Source) -> int:
    path = arguments.state_dir / NAME
    if source.offered.obstacles and _stays(source):
        _say("the baseline is not accepted; the one there is stays as it is")
        return FAILED
    try:
        keep_copy(path)
        text = source.accept(source.offered)
    except ValueError as error:
        _say(_why(error))
        return FAILED
    except OSError as error:
        raise Refused(EX_CANTCREAT, f"{path}: {_why(error)}") from error
    _say(text)
    return FAILED if source.offered.obstacles else 0


def _why(error: Exception) -> str:
    return error.strerror.lower() if isinstance(error, OSError) and error.strerror else str(error)


def _say(text: str) -> None:
    print(f"xidwatch: {text}", file=sys.stderr)
