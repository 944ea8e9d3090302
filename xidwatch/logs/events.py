"""From chunks of a log to the events in it: cutting, finding and reading, one after the other or side by side."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from queue import SimpleQueue

from xidwatch.core.logevents import Found
from xidwatch.core.logscan import Block, Cutter, Finder, Reader
from xidwatch.core.xids import XidRule
from xidwatch.logs.find import Search

AHEAD = 3  # blocks that are searched while an earlier one is read
_Step = tuple[Block | None, bool]  # a block; none: give out what is known; whether a log ends here
_Searched = tuple[Block | None, Sequence[int], bool]  # the same with the block's offsets


def events(chunks: Iterable[bytes | None], search: Search, xids: Mapping[int, XidRule], *, ahead: bool = False) -> Iterator[list[Found]]:
    """Events as soon as they are over; an empty list while there are none, so that the caller may look at the time.

    Chunks as `source` and `follow` give them. `ahead`: search in another thread, where the finder lets one run.
    """
    steps = _steps(chunks)
    reader = Reader(xids, search.count)
    for block, offsets, ends in _beside(steps, search.find) if ahead else _searched(steps, search.find):
        found = reader.feed(block, offsets) if block else []
        if ends or block is None:
            found += reader.finish()
        if ends:
            reader = Reader(xids, search.count)
        yield found


def _steps(chunks: Iterable[bytes | None]) -> Iterator[_Step]:
    cutter = Cutter()
    for chunk in chunks:
        if chunk:
            if block := cutter.cut(chunk):
                yield block, False
        elif chunk is None:
            yield cutter.cut(b"", last=True), True
            cutter = Cutter()
        else:
            yield None, False
    yield cutter.cut(b"", last=True), True


def _searched(steps: Iterable[_Step], find: Finder) -> Iterator[_Searched]:
    for block, ends in steps:
        yield block, block.found(find) if block else (), ends


def _beside(steps: Iterable[_Step], find: Finder) -> Iterator[_Searched]:
    """The same, while the blocks behind are read and searched. The thread ends with the iterator."""
    wanted: SimpleQueue[Block | None] = SimpleQueue()
    answers: SimpleQueue[Sequence[int] | BaseException] = SimpleQueue()
    thread = threading.Thread(target=_answer, args=(find, wanted, answers), daemon=True)
    thread.start()
    waiting: deque[_Step] = deque()
    try:
        for block, ends in steps:
            waiting.append((block, ends))
            if block:
                wanted.put(block)
            while len(waiting) > (AHEAD if block and not ends else 0):
                yield _answered(waiting.popleft(), answers)
    finally:
        wanted.put(None)
        thread.join()


def _answer(find: Finder, wanted: SimpleQueue[Block | None], answers: SimpleQueue[Sequence[int] | BaseException]) -> None:
    while block := wanted.get():
        try:
            answers.put(block.found(find))
        except BaseException as error:  # noqa: BLE001  told where somebody can be told
            answers.put(error)


def _answered(step: _Step, answers: SimpleQueue[Sequence[int] | BaseException]) -> _Searched:
    block, ends = step
    answer = answers.get() if block else ()
    if isinstance(answer, BaseException):
        raise answer
    return block, answer, ends
