"""From chunks of a log to the events in it: cutting, finding and reading."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping

from xidwatch.core.logevents import Found
from xidwatch.core.logscan import Block, Cutter, Reader, Searched
from xidwatch.core.xids import XidRule
from xidwatch.logs.find import Search


def events(
    chunks: Iterable[bytes | Searched | None],
    search: Search,
    xids: Mapping[int, XidRule],
    *,
    ended: Callable[[int], None] = lambda _lines: None,
) -> Iterator[list[Found]]:
    """Events as soon as they are over; an empty list while there are none, so that the caller may look at the time.

    Chunks as `source` and `follow` give them. `ended`: told at the end of each log of how many lines it was.
    """
    reader = Reader(xids, search.count)
    for block, ends in _steps(chunks):
        found = reader.feed(block, block.found(search.find)) if block else []
        if ends or block is None:
            found += reader.finish()
        if ends:
            ended(reader.lines)
            reader = Reader(xids, search.count)
        yield found


def _steps(chunks: Iterable[bytes | Searched | None]) -> Iterator[tuple[Block | None, bool]]:
    """Blocks, none where what is known is to be given out, and whether a log ends there."""
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
