"""Lines of a report: a style and a text, at most 100 columns. How a style looks is the terminal's business."""

from __future__ import annotations

import textwrap
from dataclasses import dataclass
from typing import Literal

WIDTH = 100
Style = Literal["", "heading", "bad", "warn", "dim"]


@dataclass(frozen=True, slots=True)
class Line:
    """One line for people."""

    text: str
    style: Style = ""


def heading(text: str) -> list[Line]:
    """With an empty line above it."""
    return [Line(""), Line(text, "heading")]


def paragraph(text: str, style: Style = "", *, indent: str = "  ", hanging: str = "  ", most: int = 0) -> list[Line]:
    """Wrapped to the width; with `most`, shortened to so many lines."""
    wrapped = textwrap.wrap(text, WIDTH, initial_indent=indent, subsequent_indent=hanging, break_on_hyphens=False) or [indent.rstrip()]
    if most and len(wrapped) > most:
        wrapped = [*wrapped[: most - 1], textwrap.shorten(wrapped[most - 1].strip() + " ...", WIDTH - len(hanging) - 4, placeholder="")]
        wrapped[-1] = f"{hanging}{wrapped[-1].removesuffix(' ...')} ..."
    return [Line(line, style) for line in wrapped]
