"""What is on disk: the writer and the reader of each format side by side.

Law: these modules know formats and files; they decide nothing and ask no hardware. Writers are used by one process
only (the recorder, a dump worker), because any call here may block for ever on a dying disk. Readers take whatever a
crash, a full disk or a newer version left behind: content never raises, it is reported as `Damage`.
"""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple


class RecordError(Exception):
    """A record that is needed as a whole cannot be had. `hint` tells a person what to do about it."""

    def __init__(self, path: Path, text: str, hint: str) -> None:
        super().__init__(f"{path}: {text} ({hint})")
        self.path = path
        self.text = text
        self.hint = hint


class Damage(NamedTuple):
    """A place in a file that could not be read. `line` counts from 1; 0 means the file as a whole."""

    path: str
    line: int
    text: str


def note(problems: list[Damage] | None, path: Path, line: int, text: str) -> None:
    """Add a `Damage` to the caller's list, where the caller keeps one."""
    if problems is not None:
        problems.append(Damage(str(path), line, text))
