"""Lines on a terminal, in colour. Elsewhere (a pipe, a file) they are printed as they are, and rich is not even loaded."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TextIO

from xidwatch.report.lines import NARROWEST, WIDEST, WIDTH, Line

LOOK = {"": "", "heading": "bold", "bad": "bold red", "warn": "yellow", "dim": "dim"}


def width(columns: str) -> int:
    """As the variable COLUMNS asks for, within reason; the usual width where it says nothing."""
    asked = int(columns[:9]) if columns.isdecimal() else 0
    return min(max(asked, NARROWEST), WIDEST) if asked else WIDTH


def show(lines: Iterable[Line], out: TextIO, *, colour: bool) -> None:
    """Print them. A sign that the terminal's encoding lacks is printed as its escape."""
    if not colour:
        encoding = out.encoding or "utf-8"
        for line in lines:
            print(line.text.encode(encoding, "backslashreplace").decode(encoding), file=out)
        return
    from rich.console import Console  # noqa: PLC0415  a report into a pipe need not wait for it
    from rich.text import Text  # noqa: PLC0415

    console = Console(file=out, soft_wrap=True, highlight=False, markup=False, emoji=False)
    for line in lines:
        console.print(Text(line.text, style=LOOK[line.style]))
