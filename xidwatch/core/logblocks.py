"""Pieces of a log: whole lines, with some of what stands before them.

Law: pure. What is found in a log does not depend on where it was cut.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

CONTEXT_BYTES = 16 * 1024  # of what has been passed over: the beginning of a record may stand above its needle
LONGEST_LINE = 1024 * 1024  # bytes; a longer one is cut

Count = Callable[[bytes, bytes, int, int], int]  # as `bytes.count`: nearly all that is done with most of a log
Finder = Callable[[bytes, int, int], Sequence[int]]
"""Offsets between two others in ascending order, at least one in each line there that holds a needle."""


class Block(Protocol):
    """A piece of a log that ends with a line, and before it some of what was there already.

    It is put together only for whoever reads in it: in most blocks there is nothing to read.
    """

    @property
    def data(self) -> bytes:
        """All of it."""

    @property
    def fresh(self) -> int:
        """The offset in `data` of what is new."""

    @property
    def fresh_bytes(self) -> int:
        """How much is new."""

    @property
    def is_whole(self) -> bool:
        """It ends with a line's end; only the last one of a log may not."""

    def found(self, find: Finder) -> Sequence[int]:
        """Offsets in `data` of what is found in what is new."""

    def lines(self, count: Count) -> int:
        """How many lines end in what is new."""

    def tail(self) -> bytes:
        """The last whole lines, as context of the next block; none of a line that has been cut."""


class _Cut:
    """Of a chunk, in three pieces: the context, the line that began in an earlier chunk, and whole lines of this one."""

    __slots__ = ("_chunk", "_context", "_data", "_end", "_first", "_start")

    def __init__(self, context: bytes, first: bytes, chunk: bytes, start: int, end: int) -> None:
        self._context, self._first, self._chunk, self._start, self._end = context, first, chunk, start, end
        self._data: bytes | None = None

    @property
    def data(self) -> bytes:
        if self._data is None:
            self._data = b"".join((self._context, self._first, memoryview(self._chunk)[self._start : self._end]))
        return self._data

    @property
    def fresh(self) -> int:
        return len(self._context)

    @property
    def fresh_bytes(self) -> int:
        return len(self._first) + self._end - self._start

    @property
    def is_whole(self) -> bool:
        return self._chunk.endswith(b"\n", self._start, self._end) if self._end > self._start else self._first.endswith(b"\n")

    def found(self, find: Finder) -> list[int]:
        fresh, moved = len(self._context), len(self._context) + len(self._first) - self._start
        return [
            *(fresh + offset for offset in find(self._first, 0, len(self._first))),
            *(moved + offset for offset in find(self._chunk, self._start, self._end)),
        ]

    def lines(self, count: Count) -> int:
        return count(self._first, b"\n", 0, len(self._first)) + count(self._chunk, b"\n", self._start, self._end)

    def tail(self) -> bytes:
        data, end = (self._chunk, self._end) if self._end - self._start > CONTEXT_BYTES else (self.data, len(self.data))
        if not data.endswith(b"\n", 0, end):
            return b""
        return data[data.find(b"\n", end - CONTEXT_BYTES) + 1 if end > CONTEXT_BYTES else 0 : end]


class Cutter:
    """Makes blocks of chunks that end anywhere."""

    def __init__(self, context: bytes = b"") -> None:
        """`context`: the last lines of what has been read already."""
        self._context = context
        self._half = b""

    def cut(self, chunk: bytes, *, last: bool = False) -> Block | None:
        """None while not one line has ended. `last`: what is left counts as a line."""
        end = len(chunk) if last else chunk.rfind(b"\n") + 1
        if not end and not last:
            self._half += chunk
            if len(self._half) <= LONGEST_LINE:
                return None
            chunk, self._half, end = self._half, b"", len(self._half)
        start = chunk.find(b"\n", 0, end) + 1 or end
        block = _Cut(self._context, self._half + chunk[:start], chunk, start, end)
        self._half = chunk[end:]
        self._context = block.tail()
        return block if block.fresh_bytes else None
