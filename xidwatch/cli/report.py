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
from xidwatch.report import json, ledger, load, text
from xidwatch.report.load import UnknownIncident
from xidwatch.report.terminal import show

EX_NOINPUT = 66
MOST_NAMED = 20
_DATE_ONLY = re.compile(r"^\d{4}-\d\d-\d\d$")
_ZONE = re.compile(r"(?:Z|[+-]\d\d:?\d\d)$")


def add(commands: Any) -> None:
    """The command's options."""
    command = commands.add_parser(
        "report",
        help="what happened in the latest incident, and what could not be seen",
        description="Exit status: 0 over, or none on record; 1 open; 2 open and critical; 3 its end is not on record; 66 no records.",
    )
    command.add_argument("incident", nargs="?", default="", metavar="INCIDENT", help="its id, or the beginning of it (default: the latest)")
    command.add_argument("--format", choices=("text", "json"), default="text")
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
    """As the incident stands: 0 over or none, 1 open, 2 open and critical, 3 unknown; 66 when there is nothing to report from."""
    state_dir: Path = arguments.state_dir.absolute()
    try:
        book = ledger.read(state_dir, arguments.incident)
        chosen = load.choose(book, arguments.incident, arguments.since)
        told = load.story(state_dir, book, chosen, arguments.since)
    except RecordError as error:
        print(f"xidwatch: {error}", file=sys.stderr)
        return EX_NOINPUT
    except UnknownIncident as error:
        print(f"xidwatch: {error}. On record, the latest first:", file=sys.stderr)
        print("\n".join(f"  {name}" for name in error.known[: -MOST_NAMED - 1 : -1]) or "  none", file=sys.stderr)
        return EX_NOINPUT
    if arguments.format == "json":
        several = load.stories(state_dir, book, arguments.since) if not arguments.incident else []
        print(json.dumps(json.document(told, several)))
    else:
        show(text.report(told), sys.stdout, colour=sys.stdout.isatty() and not os.environ.get("NO_COLOR"))
    return load.exit_code(told)
