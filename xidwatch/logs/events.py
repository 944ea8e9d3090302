"""From chunks of a log to the events in it: cutting, finding and reading."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping

from xidwatch.core.logblocks import Block, Cutter
from xidwatch.core.logevents import Found
from xidwatch.core.logscan import Reader
from xidwatch.core.xids import XidRule
from xidwatch.logs.find import Search


def events(
    chunks: Iterable[bytes | Block | None],
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


def _steps(chunks: Iterable[bytes | Block | None]) -> Iterator[tuple[Block | None, bool]]:
    """Blocks, none where what is known is to be given out, and whether a log ends there."""
    cutter, searched = Cutter(), None
    for chunk in chunks:
        if chunk is None:
            yield cutter.cut(b"", last=True), True
            cutter, searched = Cutter(), None
        elif not isinstance(chunk, bytes):  # it comes in lines, and what is before it has come in lines
            searched = chunk
            yield chunk, False
        elif chunk:
            cutter, searched = Cutter(searched.tail()) if searched else cutter, None
            if block := cutter.cut(chunk):
                yield block, False
        else:
            yield None, False
    yield cutter.cut(b"", last=True), True
