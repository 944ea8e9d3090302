"""`xidwatch report [INCIDENT]`: what happened, in which order, and what could not be seen. Reads records only."""

from __future__ import annotations

import argparse
import os
import re
import sys
import time
from pathlib import Path
from typing import Any

from xidwatch.clock import from_iso
from xidwatch.core.rules import seconds
from xidwatch.records import RecordError
from xidwatch.report import json, ledger, load, terminal, text
from xidwatch.report.lines import Line
from xidwatch.report.load import UnknownIncident

EX_NOINPUT = 66
EX_IOERR = 74
MOST_NAMED = 20
EXIT_CODES = """\
Exit status, as the incident stands:
  0   it is over, or none is on record
  1   it is open
  2   it is open and critical
  3   its end is not on record
  66  no such record: no incident of that id, or no records at all
  74  the report could not be written to standard output
"""
_DATE_ONLY = re.compile(r"^\d{4}-\d\d-\d\d$")
_ZONE = re.compile(r"(?:Z|[+-]\d\d:?\d\d)$")


def add(commands: Any) -> None:
    """The command's options."""
    command = commands.add_parser(
        "report",
        help="what happened in the latest incident, and what could not be seen",
        description="What happened, in which order, and what could not be seen. Reads records only; all times are UTC.",
        epilog=EXIT_CODES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    command.add_argument("incident", nargs="?", default="", metavar="INCIDENT", help="its id, or the beginning of it (default: the latest)")
    forms = "text, for people (default), or json, for programs: the same facts, and all latest incidents where none is named"
    command.add_argument("--format", choices=("text", "json"), default="text", help=forms)
    since = "only incidents that were not over by then: 2026-09-17, 2026-09-17T02:00 (UTC), or 24h for ago"
    command.add_argument("--since", type=when, metavar="WHEN", help=since)
    command.set_defaults(run=run)


def when(given: str) -> float:
    """A point in time, in seconds since the epoch: a duration ago, or an ISO 8601 time, UTC unless it says otherwise."""
    try:
        return time.time() - seconds(given)
    except ValueError:
        pass
    zoned = f"{given}T00:00:00Z" if _DATE_ONLY.match(given) else given if _ZONE.search(given) else f"{given}Z"
    try:
        return from_iso(zoned.replace(" ", "T"))
    except (ValueError, OverflowError) as error:
        raise argparse.ArgumentTypeError(f"{given!r} is no time: expected 2026-09-17, 2026-09-17T02:00 or 24h") from error


def run(arguments: argparse.Namespace) -> int:
    """See `EXIT_CODES`. Raises BrokenPipeError."""
    state_dir: Path = arguments.state_dir.absolute()
    try:
        book = ledger.read(state_dir, arguments.incident, arguments.since)
        told = load.story(state_dir, book, load.choose(book, arguments.incident))
    except RecordError as error:
        print(f"xidwatch: {error}", file=sys.stderr)
        return EX_NOINPUT
    except UnknownIncident as error:
        print(f"xidwatch: {error}. On record, the latest first:", file=sys.stderr)
        print("\n".join(f"  {name}" for name in error.known[: -MOST_NAMED - 1 : -1]) or "  none", file=sys.stderr)
        return EX_NOINPUT
    if arguments.format == "json":
        several = load.stories(state_dir, book) if not arguments.incident else []
        page = [Line(json.dumps(json.document(told, several)))]
    else:
        page = text.report(told, terminal.width(os.environ.get("COLUMNS", "")))
    colour = arguments.format == "text" and not os.environ.get("NO_COLOR")
    return load.exit_code(told) if _shown(page, colour=colour) else EX_IOERR


def _shown(page: list[Line], *, colour: bool) -> bool:
    """Whether all of it was written; a reader that has seen enough and left is the caller's business."""
    if sys.stdout is None:  # closed: then there is nothing to write to
        print("xidwatch: the report could not be written: standard output is closed", file=sys.stderr)
        return False
    try:
        terminal.show(page, sys.stdout, colour=colour and sys.stdout.isatty())
        sys.stdout.flush()
    except BrokenPipeError:
        raise
    except OSError as error:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # what is still in the buffer would fail again at exit
        print(f"xidwatch: the report could not be written: {(error.strerror or str(error)).lower()}", file=sys.stderr)
        return False
    return True
