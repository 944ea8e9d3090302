"""`xidwatch note TEXT`: a person's remark into the journal, so that the report can show it beside what happened."""

from __future__ import annotations

import argparse
import sys
from typing import Any

from xidwatch.cli.telling import EX_UNAVAILABLE, Untold, as_typed, tell
from xidwatch.places import find_run_dir

EXIT_CODES = "Exit status: 0 the daemon has taken it; 64 no text, or too long a one; 69 no daemon to tell, or it may not be told."
EX_USAGE = 64
MOST_CHARACTERS = 4000


def add(commands: Any) -> None:
    """The command's options."""
    command = commands.add_parser(
        "note",
        help="write a remark into the journal (what was swapped, what was heard)",
        description="Tells the running daemon a remark, for its journal; the report shows it in its place.",
        epilog=EXIT_CODES,
    )
    command.add_argument("text", nargs="+", metavar="TEXT", help="the remark")
    command.set_defaults(run=lambda arguments: send(arguments, "note"))


def send(arguments: argparse.Namespace, what: str) -> int:
    """0 when the daemon took it, 69 when it did not, or there is none."""
    text = as_typed(arguments.text)
    if not text or len(text) > MOST_CHARACTERS:
        print(f"xidwatch: a text of 1 to {MOST_CHARACTERS} characters is needed, for whoever reads the journal later", file=sys.stderr)
        return EX_USAGE
    try:
        reply = tell(find_run_dir(arguments.state_dir), {"do": what, "text": text}, arguments.state_dir)
    except Untold as why:
        print(f"xidwatch: {why}", file=sys.stderr)
        return EX_UNAVAILABLE
    print(f"xidwatch: {reply.get('text', '')}", file=sys.stderr)
    return 0 if reply.get("ok") else EX_UNAVAILABLE
