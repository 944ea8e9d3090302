"""From chunks of a log to the events in it: cutting, finding and reading, one after the other or side by side."""

from __future__ import annotations

import queue
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence

from xidwatch.core.logevents import Found
from xidwatch.core.logscan import Block, Cutter, Reader
from xidwatch.core.xids import XidRule
from xidwatch.logs.find import Finder

AHEAD = 3  # blocks that are searched while an earlier one is read
_Step = tuple[Block | None, Sequence[int], bool]  # a block with its offsets; none: give out what is known; whether a log ends here


def events(chunks: Iterable[bytes | None], find: Finder, xids: Mapping[int, XidRule], *, ahead: bool = False) -> Iterator[list[Found]]:
    """Events as soon as they are over; an empty list while there are none, so that the caller may look at the time.

    Chunks as `source` and `follow` give them. `ahead`: search in another thread, where the finder lets one run.
    """
    steps = _steps(chunks, find)
    reader = Reader(xids)
    for block, offsets, ends in _in_another_thread(steps) if ahead else steps:
        found = reader.feed(block, offsets) if block else []
        if ends or block is None:
            found += reader.finish()
        if ends:
            reader = Reader(xids)
        yield found


def _steps(chunks: Iterable[bytes | None], find: Finder) -> Iterator[_Step]:
    cutter = Cutter()
    for chunk in chunks:
        if chunk:
            if block := cutter.cut(chunk):
                yield block, find(block.data, block.fresh), False
        elif chunk is None:
            yield _last(cutter, find)
            cutter = Cutter()
        else:
            yield None, (), False
    yield _last(cutter, find)


def _last(cutter: Cutter, find: Finder) -> _Step:
    block = cutter.cut(b"", last=True)
    return block, find(block.data, block.fresh) if block else (), True


def _in_another_thread(steps: Iterator[_Step]) -> Iterator[_Step]:
    """The same steps. The thread ends with its input, or soon after nobody wants any more."""
    found: queue.Queue[_Step | BaseException | None] = queue.Queue(AHEAD)
    unwanted = threading.Event()
    thread = threading.Thread(target=_put_all, args=(steps, found, unwanted), daemon=True)
    thread.start()
    try:
        while (step := found.get()) is not None:
            if isinstance(step, BaseException):
                raise step
            yield step
    finally:
        unwanted.set()
        while thread.is_alive():
            _empty(found)
            thread.join(0.01)


def _put_all(steps: Iterator[_Step], found: queue.Queue[_Step | BaseException | None], unwanted: threading.Event) -> None:
    try:
        for step in steps:
            found.put(step)
            if unwanted.is_set():
                return
        found.put(None)
    except BaseException as error:  # noqa: BLE001  told where somebody can be told
        found.put(error)


def _empty(found: queue.Queue[_Step | BaseException | None]) -> None:
    while not found.empty():
        found.get_nowait()
