"""`xidwatch bundle [INCIDENT] -o FILE`: one incident as a masked archive, to be sent to a vendor, or replayed where it is unpacked.

    $ xidwatch bundle latest -o incident.tar.gz
    $ tar xf incident.tar.gz && xidwatch replay 20260917T021008Z-gpu-lost-11 --state-dir night

Reads records, beside a running service or after a crash, and no hardware. What it says is for people, on standard error.
"""

from __future__ import annotations

import argparse
import os
import pwd
import sys
from pathlib import Path
from typing import Any

from xidwatch.core.masking import Masker
from xidwatch.records import RecordError, files
from xidwatch.report import ledger, load
from xidwatch.report.ledger import Known
from xidwatch.report.load import UnknownIncident

EX_USAGE = 64
EX_NOINPUT = 66
EX_CANTCREAT = 73
LATEST = "latest"
MOST_NAMED = 20
FIRST_PERSON, LAST_PERSON = 1000, 60000  # user ids of people


def add(commands: Any) -> None:
    """The command's options."""
    command = commands.add_parser(
        "bundle",
        help="a masked archive of an incident, to be sent away or replayed",
        description="Makes a masked archive of one incident: host and user names, UUIDs, serials, addresses, command lines and notes are "
        "replaced, the same thing by the same mask everywhere. Where it is unpacked it is a fixture for `xidwatch replay`. "
        "Look into it before you send it.",
    )
    command.add_argument(
        "incident", nargs="?", default="", metavar="INCIDENT", help="its id, the beginning of it, or `latest` (default: the only one)"
    )
    command.add_argument("-o", "--output", type=Path, metavar="FILE", help="what to write, *.tar.gz or *.tar.zst; readable by you alone")
    command.add_argument("--force", action="store_true", help="replace FILE if it is there")
    command.add_argument("--list", "--dry-run", dest="list", action="store_true", help="show what would go in, write nothing")
    command.add_argument(
        "--mask", action="append", default=[], metavar="WORD", help="also mask this word wherever it stands; may be given again"
    )
    command.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """0 when it was written; 64 usage, 66 no such incident, 73 without a place to write."""
    from xidwatch.bundle import archive, gather  # other commands must not pay for the replay it is written for

    output: Path | None = arguments.output
    if trouble := None if arguments.list else _obstacle(output, force=arguments.force):
        return _refuse(*trouble)
    try:
        known = _chosen(arguments.state_dir.absolute(), arguments.incident)
        found = gather.gather(arguments.state_dir.absolute(), known)
    except RecordError as error:
        return _refuse(EX_NOINPUT, str(error))
    except UnknownIncident as error:
        return _refuse(EX_NOINPUT, f"{error}. On record, the latest first:", *(error.known[: -MOST_NAMED - 1 : -1] or ["none"]))
    masker = Masker([os.uname().nodename], _people(), arguments.mask)
    told = archive.contents(found, masker)
    for lack in dict.fromkeys(found.left_out):
        print(f"xidwatch: not in it: {masker.mask(lack)}", file=sys.stderr)
    if arguments.list or output is None:
        for name, text in told.items():
            print(f"{len(text.encode()):>10}  {known.id}/{name}")
        return 0
    try:
        files.replace(output.absolute(), archive.pack(known.id, told, archive.suffix_of(output.name) or "", known.began))
    except archive.NoZstandard:
        return _refuse(EX_CANTCREAT, "this Python has no Zstandard: install xidwatch[zstd], or write a .tar.gz")
    except OSError as error:
        return _refuse(EX_CANTCREAT, f"{output}: {(error.strerror or str(error)).lower()}")
    print(f"xidwatch: {known.id} is in {output}. Masked: {_counts(masker)}. Look into it before you send it.", file=sys.stderr)
    return 0


def _obstacle(output: Path | None, *, force: bool) -> tuple[int, str] | None:
    """Why nothing can be written there: exit code and words."""
    from xidwatch.bundle import archive

    if output is None:
        return EX_USAGE, "where to? expected -o FILE.tar.gz, or --list"
    if archive.suffix_of(output.name) is None:
        return EX_USAGE, f"{output}: expected a name that ends in {' or '.join(archive.SUFFIXES)}"
    if os.path.lexists(output) and not (force and output.is_file() and not output.is_symlink()):
        return EX_CANTCREAT, f"{output}: is there already; --force replaces a file"
    return None


def _chosen(state_dir: Path, wanted: str) -> Known:
    """Raises RecordError, and UnknownIncident where none is meant, or more than one could be."""
    book = ledger.read(state_dir, "" if wanted == LATEST else wanted)
    every = [known.id for known in book.in_order()]
    if not wanted and len(every) > 1:
        raise UnknownIncident(wanted, every, every)
    known = load.choose(book, "" if wanted == LATEST else wanted)
    if known is None:
        raise UnknownIncident(wanted or LATEST, [], [])
    return known


def _people() -> list[str]:
    """Who has an account here: their names may stand in any record."""
    return [user.pw_name for user in pwd.getpwall() if FIRST_PERSON <= user.pw_uid < LAST_PERSON]


def _counts(masker: Masker) -> str:
    return ", ".join(f"{count} {kind}" for kind, count in sorted(masker.used.items())) or "nothing was found to mask"


def _refuse(code: int, *reasons: str) -> int:
    for reason in reasons:
        print(f"xidwatch: {reason}", file=sys.stderr)
    return code
