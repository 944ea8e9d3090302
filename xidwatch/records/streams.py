"""The streams of the recorder: what goes to one kind of file, in its own order, waiting for no other kind.

Law: a stream that cannot be written keeps its own frames and nobody else's. A row of samples whose file is blocked
never holds up an edge of the journal.
"""

from __future__ import annotations

import errno
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from xidwatch.records.files import Changed, LineFiles
from xidwatch.records.frames import Frame, StreamName, Trouble

STATE_DIRECTORY = "state directory"
ATTEMPTS = 3  # in a row, while somebody else deletes what is being written


def _nothing() -> None:
    """There is nothing that it would have to forget."""


@dataclass(frozen=True, slots=True)
class Settled:
    """So many of a stream's first frames are settled, and why it went no further. `refused`: told once, and settled."""

    count: int
    trouble: Trouble | None
    refused: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Stream:
    """`put` writes one frame; `prepare` makes sure of the directory; `distrust` doubts all that was found on the disk."""

    name: StreamName
    put: Callable[[Frame], None]
    prepare: Callable[[], None]
    distrust: Callable[[], None]
    remarks: list[str]
    lines: LineFiles = field(default_factory=LineFiles)  # what `put` writes to, where it is lines
    forget: Callable[[], None] = _nothing  # of what `put` knows about those files

    def write(self, frames: Sequence[Frame]) -> Settled:
        """Write frames in order, then make them durable together. Never raises OSError."""
        for _ in range(ATTEMPTS):
            try:
                self.prepare()
            except OSError as error:
                return Settled(0, explain(STATE_DIRECTORY, error))
            try:
                return self._attempt(frames)
            except Changed as error:
                self.remarks.append(f"{error.filename} {error.strerror}")
                self.let_go()
                self.distrust()
        text = f"deleted or changed {ATTEMPTS} times while it was written: nothing of it can be called durable"
        return Settled(0, Trouble(what=self.name, errno=errno.ESTALE, text=text))

    def let_go(self) -> None:
        """The files are looked at again before anything is written."""
        self.lines.release()
        self.forget()

    def _attempt(self, frames: Sequence[Frame]) -> Settled:
        refused: list[str] = []
        count, trouble = self._put_all(frames, refused)
        try:
            self.lines.sync()
        except Changed:
            raise
        except OSError as error:
            count, trouble = 0, explain(self.name, error)
        if trouble:
            self.let_go()
        return Settled(count, trouble, tuple(refused) if count else ())

    def _put_all(self, frames: Sequence[Frame], refused: list[str]) -> tuple[int, Trouble | None]:
        for index, frame in enumerate(frames):
            try:
                self.put(frame)
            except Changed:
                raise
            except OSError as error:
                return index, explain(self.name, error)
            except ValueError as error:
                refused.append(str(error))
        return len(frames), None


def explain(what: str, error: OSError) -> Trouble:
    """An OSError in the words of the protocol."""
    where = f": {error.filename}" if error.filename else ""
    return Trouble(what=what, errno=error.errno or 0, text=f"{error.strerror or error}{where}")
