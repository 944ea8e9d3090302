"""From chunks of a log to the events in it: cutting, finding and reading, one after the other or side by side."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from queue import SimpleQueue
from threading import Lock, Thread

from xidwatch.core.logevents import Found
from xidwatch.core.logscan import Block, Cutter, Finder, Reader
from xidwatch.core.xids import XidRule
from xidwatch.logs.find import Search

WORKERS = 2  # threads that read, search and count, each a block of its own, which so stays in one core's cache
AHEAD = 4  # blocks that are searched, or have been, while an earlier one is read
_Step = tuple[Block | None, bool]  # a block; none: give out what is known; whether a log ends here
_Searched = tuple[Block | None, Sequence[int], bool]  # the same with the block's offsets


def events(
    chunks: Iterable[bytes | None],
    search: Search,
    xids: Mapping[int, XidRule],
    *,
    ahead: bool = False,
    ended: Callable[[int], None] = lambda _lines: None,
) -> Iterator[list[Found]]:
    """Events as soon as they are over; an empty list while there are none, so that the caller may look at the time.

    Chunks as `source` and `follow` give them. `ahead`: read and search in other threads, where the finder lets them run. `ended`: told
    at the end of each log of how many lines it was.
    """
    steps = _steps(chunks)
    reader = Reader(xids, search.count)
    for block, offsets, ends in _Ahead(steps, search).searched() if ahead else _searched(steps, search.find):
        found = reader.feed(block, offsets) if block else []
        if ends or block is None:
            found += reader.finish()
        if ends:
            ended(reader.lines)
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


@dataclass(slots=True)
class _Order:
    """A step that has been taken, and what has come of it once `done` is free."""

    step: _Step
    done: Lock = field(default_factory=Lock)
    offsets: Sequence[int] = ()
    error: BaseException | None = None


class _Ahead:
    """The same, while the blocks behind are read and searched. The threads end with the iterator."""

    def __init__(self, steps: Iterator[_Step], search: Search) -> None:
        self._steps, self._search = steps, search
        self._taking = Lock()  # one block at a time is read, and so they are in order
        self._room: SimpleQueue[bool] = SimpleQueue()  # False: no more is wanted
        self._orders: SimpleQueue[_Order | None] = SimpleQueue()  # None: it was the last
        self._over = False

    def searched(self) -> Iterator[_Searched]:
        """In the order of the log. Raises what reading or searching raised, in its place."""
        for _ in range(AHEAD):
            self._room.put(True)
        threads = [Thread(target=self._work, daemon=True) for _ in range(WORKERS)]
        for thread in threads:
            thread.start()
        try:
            while order := self._orders.get():
                with order.done:
                    pass
                if order.error:
                    raise order.error
                block, ends = order.step
                yield block, order.offsets, ends
                self._room.put(True)
        finally:
            self._over = True
            for _ in threads:
                self._room.put(False)
            for thread in threads:
                thread.join()

    def _work(self) -> None:
        while self._room.get() and (order := self._next()):
            try:
                if block := order.step[0]:
                    order.offsets = block.found(self._search.find)
                    block.lines(self._search.count)
            except BaseException as error:  # noqa: BLE001  told where somebody can be told
                order.error = error
            order.done.release()

    def _next(self) -> _Order | None:
        """What is to be done now, with `done` taken."""
        with self._taking:
            if self._over:
                return None
            order = _Order((None, False))
            order.done.acquire()
            try:
                order.step = next(self._steps)
            except StopIteration:
                self._over = True
                self._orders.put(None)
                return None
            except BaseException as error:  # noqa: BLE001  the same
                self._over, order.error = True, error
                order.done.release()
            self._orders.put(order)
            return None if order.error else order
