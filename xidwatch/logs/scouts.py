"""A large file, searched by several processes at a time.

Each takes every so-many-th stretch of the file, puts it into memory that it shares with who started it, and says of its chunks where
their whole lines are, how many they are and where in them needles stand. Whoever reads the log in order looks only at what has been found.
Threads would share one interpreter, which costs half as much again; `multiprocessing` takes as long to import as a tenth of a gigabyte
takes to search.

Nothing depends on them: what one cannot do, because the file has become shorter, a read failed or somebody ended it, is read and searched
in order by who asked for it, and there it is met again. They end when nobody listens any more, however that came about.
"""

from __future__ import annotations

import contextlib
import mmap
import os
import signal
import struct
from array import array
from collections.abc import Iterator
from dataclasses import dataclass

from xidwatch.core.logscan import Searched
from xidwatch.logs.find import Search

CHUNK_BYTES = 256 * 1024  # stays in a core's cache
STRETCH = 4  # chunks that are told of at once: whoever is told wakes for it
LEAST_STRETCHES = 16  # of less than that, a search is over before they have begun
AHEAD = 2  # stretches that one may be
MOST_SCOUTS = 4  # of a host that has other things to do
MOST_OFFSETS = 16 * 1024  # of a chunk; one that has more is searched by who reads it
_ANSWER = struct.Struct("=4I")  # of a chunk: where its whole lines begin and end, how many they are, how many offsets follow it
_SLOT_BYTES = CHUNK_BYTES + MOST_OFFSETS * array("I").itemsize


@dataclass(frozen=True, slots=True)
class _Scout:
    """One of them, as who listens to it sees it."""

    pid: int
    slots: list[memoryview]
    room: int  # a byte for each stretch that may be filled
    answers: int


def searched(fd: int, at: int, bytes_: int, search: Search) -> Iterator[Searched | bytes]:
    """Chunks of a regular file from an offset on, in order: of so many bytes or, at the end and when something is wrong, of fewer.

    Each is good until the next one is asked for. Bytes are a chunk that is still to be searched.
    """
    stretches, share = bytes_ // (STRETCH * CHUNK_BYTES), min(MOST_SCOUTS, len(os.sched_getaffinity(0)))
    if stretches < LEAST_STRETCHES or share < 2:
        return
    scouts: list[_Scout] = []
    try:
        with contextlib.suppress(OSError):  # no memory, no further process
            scouts.extend(_started(fd, at, range(first, stretches, share), search) for first in range(share))
        for number in range(stretches if len(scouts) == share else 0):
            turn, which = divmod(number, share)
            answers = os.read(scouts[which].answers, STRETCH * _ANSWER.size)
            if not answers:
                return
            for slot, answer in zip(_slots_of(scouts[which].slots, turn), _ANSWER.iter_unpack(answers), strict=True):
                yield _read(slot, *answer)
            with contextlib.suppress(BrokenPipeError):  # it has done all of its share
                os.write(scouts[which].room, b"+")
    finally:
        for scout in scouts:
            os.close(scout.room)
            os.close(scout.answers)
        for scout in scouts:
            os.waitpid(scout.pid, 0)


def _slots_of(slots: list[memoryview], turn: int) -> list[memoryview]:
    """Of a stretch, by how many the scout has had before."""
    first = turn % AHEAD * STRETCH
    return slots[first : first + STRETCH]


def _read(slot: memoryview, start: int, end: int, lines: int, needles: int) -> Searched | bytes:
    if needles > MOST_OFFSETS:
        return bytes(slot[:CHUNK_BYTES])
    return Searched(slot[:CHUNK_BYTES], start, end, slot[CHUNK_BYTES:].cast("I")[:needles].tolist(), lines)


def _started(fd: int, at: int, numbers: range, search: Search) -> _Scout:
    """Raises OSError."""
    memory = memoryview(mmap.mmap(-1, AHEAD * STRETCH * _SLOT_BYTES))
    slots = [memory[begin : begin + _SLOT_BYTES] for begin in range(0, len(memory), _SLOT_BYTES)]
    (room, gives_room), (answers, gives_answers) = os.pipe(), os.pipe()
    os.write(gives_room, b"+" * AHEAD)
    try:
        pid = os.fork()
    except OSError:
        for each in (room, gives_room, answers, gives_answers):
            os.close(each)
        raise
    if pid:
        os.close(room)
        os.close(gives_answers)
        return _Scout(pid, slots, gives_room, answers)
    try:
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # whoever listens gets it too, and leaves
        os.close(gives_room)
        os.close(answers)
        for turn, number in enumerate(numbers):
            if not os.read(room, 1):
                break
            os.write(gives_answers, _stretch(fd, at + number * STRETCH * CHUNK_BYTES, _slots_of(slots, turn), search))
    finally:
        os._exit(0)  # without a word, and without what the other one has left to do at its exit


def _stretch(fd: int, at: int, slots: list[memoryview], search: Search) -> bytes:
    """Put it where it is looked for; gives an answer for each chunk. Raises whatever is wrong."""
    answers = b""
    for slot in slots:
        chunk = os.pread(fd, CHUNK_BYTES, at)
        end = chunk.rfind(b"\n") + 1
        start = chunk.find(b"\n", 0, end) + 1
        offsets = search.find(chunk, start, end)
        slot[:CHUNK_BYTES] = chunk  # refuses a shorter one
        if len(offsets) <= MOST_OFFSETS:
            slot[CHUNK_BYTES:].cast("I")[: len(offsets)] = array("I", offsets)
        answers += _ANSWER.pack(start, end, search.count(chunk, b"\n", start, end), len(offsets))
        at += CHUNK_BYTES
        del chunk  # so that the next one takes its place: two of them would be given back to the system each time, and faulted in again
    return answers
