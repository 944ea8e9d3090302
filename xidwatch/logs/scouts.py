"""A large file, searched by several processes at a time.

Each takes every so-many-th stretch of the file, the lines that begin in it, and says piece by piece how many they are and where in them
needles stand. Whoever reads the log in order gets to see only what something was found in. Threads would share one interpreter, which
costs half as much again; `multiprocessing` takes as long to import as a tenth of a gigabyte takes to search.

Nothing depends on them: what one cannot do, because the file has become shorter, a read failed or somebody ended it, is read and searched
in order by who asked for it, and there it is met again. They end when nobody listens any more, however that came about.
"""

from __future__ import annotations

import os
import signal
import sys
from array import array
from collections.abc import Callable, Iterator, Sequence
from itertools import cycle
from typing import IO

from xidwatch.core.logblocks import CONTEXT_BYTES, LONGEST_LINE, Count, Finder
from xidwatch.logs.find import Search
from xidwatch.logs.texts import what_else

PIECE_BYTES = 256 * 1024  # stays in a core's cache
STRETCH_BYTES = 4 * 1024 * 1024
SHORT_BYTES = 4096
LEAST_STRETCHES = 4  # of less than that, a search is over before they have begun
MOST_SCOUTS = 4  # of a host that has other things to do

Read = Callable[[int, int], bytes]
"""Bytes of the file from an offset up to another; fewer, or none, when they are not to be had any more."""


class Piece:
    """Whole lines of a file that have been searched. They are read only for who asks for them; see `logblocks.Block`."""

    __slots__ = ("_data", "_fresh", "_lines", "_needles", "_read", "begin", "end")

    def __init__(self, read: Read, begin: int, end: int, lines: int, needles: Sequence[int]) -> None:
        """Offsets in the file; those of needles count from `begin`."""
        self._read, self.begin, self.end, self._lines, self._needles = read, begin, end, lines, needles
        self._data: bytes | None = None
        self._fresh = 0

    @property
    def data(self) -> bytes:
        """Read once. What is not to be had any more is missing from its end."""
        if self._data is None:
            above = max(0, self.begin - CONTEXT_BYTES)
            data = self._read(above, self.end)
            whole = data.find(b"\n", 0, self.begin - above) + 1 if above else 0
            self._data = data[whole:]
            self._fresh = min(len(self._data), self.begin - above - whole)
        return self._data

    @property
    def fresh(self) -> int:
        """Of its first line in `data`."""
        return self._fresh if self.data else 0

    @property
    def fresh_bytes(self) -> int:
        """As they were searched."""
        return self.end - self.begin

    @property
    def is_whole(self) -> bool:
        """Always: the last line of a file that does not end is nobody's share."""
        return True

    def found(self, _find: Finder) -> list[int]:
        """What it came with, of what is still to be had."""
        fresh, whole = (self.fresh, len(self.data)) if self._needles else (0, 0)
        return [fresh + offset for offset in self._needles if fresh + offset < whole]

    def lines(self, _count: Count) -> int:
        """As they were counted."""
        return self._lines

    def tail(self) -> bytes:
        """Read anew."""
        return Piece(self._read, self.end, self.end, 0, ()).data


class Scouts:
    """At work from the beginning; none at all for what is small, or where there is but one processor or no further process."""

    def __init__(self, fd: int, begin: int, end: int, search: Search) -> None:
        """Of a regular file, from the beginning of a line on."""
        self._stretches = range(begin, end - STRETCH_BYTES + 1, STRETCH_BYTES)
        self._pids: list[int] = []
        self._answers: list[IO[bytes]] = []
        share = min(MOST_SCOUTS, len(os.sched_getaffinity(0)))
        if len(self._stretches) < LEAST_STRETCHES or share < 2:
            return
        try:
            for first in range(share):
                self._start(fd, self._stretches[first::share], search)
        except OSError:
            self.close()

    def pieces(self, read: Read) -> Iterator[Piece]:
        """In order, up to the end of the last whole stretch or, when something is wrong, to an earlier one."""
        for _, answers in zip(self._stretches, cycle(self._answers), strict=False):
            told = _told(answers)
            if told is None:
                return
            numbers = iter(told)
            for begin, end, lines, needles in zip(numbers, numbers, numbers, numbers, strict=True):
                yield Piece(read, begin, end, lines, [next(numbers) for _ in range(needles)])

    def close(self) -> None:
        """They end."""
        for answers in self._answers:
            answers.close()
        for pid in self._pids:
            os.waitpid(pid, 0)
        self._answers, self._pids = [], []

    def _start(self, fd: int, begins: range, search: Search) -> None:
        """Raises OSError."""
        answers, tells = os.pipe()
        try:
            pid = os.fork()
        except OSError:
            os.close(answers)
            os.close(tells)
            raise
        if pid == 0:
            try:
                signal.signal(signal.SIGINT, signal.SIG_IGN)  # whoever listens gets it too, and leaves
                os.close(answers)
                for others in self._answers:
                    others.close()
                for begin in begins:
                    _tell(tells, _stretch(fd, begin, begin + STRETCH_BYTES, search))
            finally:
                os._exit(0)  # without a word, and without what the other one has left to do at its exit
        os.close(tells)
        self._pids.append(pid)
        self._answers.append(os.fdopen(answers, "rb"))


def _told(answers: IO[bytes]) -> array[int] | None:
    """None when no more comes, or not all of it."""
    size = int.from_bytes(answers.read(8), sys.byteorder)
    data = answers.read(8 * size)
    return array("Q", data) if 0 < len(data) == 8 * size else None


def _tell(fd: int, numbers: array[int]) -> None:
    data = array("Q", [len(numbers)]).tobytes() + numbers.tobytes()
    while data:
        data = data[os.write(fd, data) :]


def _stretch(fd: int, begin: int, end: int, search: Search) -> array[int]:
    """Of each piece: where it begins and ends, its lines, how many needles there are, and these. Raises whatever is wrong."""
    answer = array("Q")
    at = _line_from(fd, begin)
    while at < end:
        chunk, size = _lines_from(fd, at, end)
        if what_else(chunk, first=False):
            raise ValueError("no text")
        needles = search.find(chunk, 0, size)
        answer.extend((at, at + size, search.count(chunk, b"\n", 0, size), len(needles), *needles))
        at += size
        del chunk  # so that the next one takes its place: two of them would be given back to the system each time, and faulted in again
    return answer


def _line_from(fd: int, at: int) -> int:
    """Where the first line begins that does not begin before that. Raises OSError, ValueError."""
    for size in (SHORT_BYTES, LONGEST_LINE):
        found = os.pread(fd, size, at - 1).find(b"\n")
        if found >= 0:
            return at + found
    raise ValueError("a line that does not end")


def _lines_from(fd: int, at: int, end: int) -> tuple[bytes, int]:
    """A chunk that begins with lines, none of which begins at `end` or behind, and how many bytes these are. Raises OSError, ValueError."""
    for size in (PIECE_BYTES, LONGEST_LINE):
        chunk = os.pread(fd, size, at)
        last = chunk.find(b"\n", max(0, end - at - 1)) + 1
        if whole := last or chunk.rfind(b"\n") + 1:
            return chunk, whole
    raise ValueError("a line that does not end")
