"""Lines of a report: a style and a text, wrapped when all has been said. How a style looks is the terminal's business."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

WIDTH = 100  # columns, as all of these; for a page that is kept, and where the terminal does not say
NARROWEST = 60
WIDEST = 120
Style = Literal["", "heading", "bad", "warn", "dim"]


@dataclass(frozen=True, slots=True)
class Line:
    """One line for people, which becomes several where it is too long: those after the first begin with `hanging`.

    `most`: of more lines than that on a page of the usual width the rest is cut. `whole`: no word is broken, as long as it may be, since
    it is a path that somebody will copy.
    """

    text: str
    style: Style = ""
    hanging: str = "  "
    most: int = 0
    whole: bool = False


def heading(text: str) -> list[Line]:
    """With an empty line above it."""
    return [Line(""), Line(text, "heading")]


def paragraph(text: str, style: Style = "", *, indent: str = "  ", hanging: str = "  ", most: int = 0) -> list[Line]:
    """Text that is likely to be wrapped."""
    return [Line(f"{indent}{text}".rstrip(), style, hanging, most)]


def wrapped(lines: Iterable[Line], width: int) -> list[Line]:
    """All of them within the width, but for what must not be broken."""
    return [Line(text, line.style) for line in lines for text in _wrap(line, width)]


def _wrap(line: Line, width: int) -> list[str]:
    if len(line.text) <= width:
        return [line.text]
    hanging = line.hanging[: width // 3]  # on a narrow page the text is worth more than its alignment
    text = line.text.lstrip()
    indent = line.text.removesuffix(text)
    wrapper = textwrap.TextWrapper(width, indent, hanging, break_on_hyphens=False, break_long_words=not line.whole)
    parts = wrapper.wrap(text)
    most = max(line.most, line.most * WIDTH // width)
    if most and len(parts) > most:
        last = textwrap.shorten(parts[most - 1].strip() + " ...", width - len(hanging) - 4, placeholder="")
        parts = [*parts[: most - 1], f"{hanging}{last.removesuffix(' ...')} ..."]
    return parts
