r"""Large logs: only the lines that may mean something are looked at, and what belongs to them.

A log of a gigabyte holds a thousand events. Whoever finds the needles (a regular expression, an engine made for it) gives their
offsets; the reader numbers the lines in between without reading them, and takes around each needle as many lines as the record
has; while an event waits for further lines of its record, each line is read. So is each of the first PASTE_BYTES: what somebody has
copied is small, and may have been broken in the middle of a needle. Which lines are read, and so what is found, does not depend on
how the bytes were cut or who found the needles.

Law: pure. A needle found once too often costs time and changes nothing; one that is not found is an event that is not seen.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from xidwatch.core import logfields, logtext
from xidwatch.core.logblocks import CONTEXT_BYTES, Block, Count
from xidwatch.core.logevents import Decoder, Found
from xidwatch.core.logtext import Assembler
from xidwatch.core.xids import XidRule

PASTE_BYTES = 128 * 1024  # from the beginning of a log, of which every line is read


class Reader:
    """Blocks in, events out; one for each log."""

    def __init__(self, xids: Mapping[int, XidRule], count: Count = bytes.count) -> None:
        self._count = count
        self._assembler = Assembler()
        self._decoder = Decoder(xids)
        self._data = b""
        self._at = 0  # offset in it, always of a line's beginning
        self._number = 1  # of that line
        self._unread = 0  # bytes passed over since the last line that was read
        self._fed = 0  # bytes of whole lines
        self._is_whole = True  # what was fed so far ends with a line

    def feed(self, block: Block, offsets: Sequence[int]) -> list[Found]:
        """Events that are over. `offsets`: ascending, at least one inside each needle's line."""
        found: list[Found] = []
        self._is_whole = block.is_whole
        begins, self._fed = self._fed, self._fed + block.fresh_bytes
        if begins < PASTE_BYTES:
            offsets = _with_all_lines(offsets, block, block.fresh + PASTE_BYTES - begins)
        if not offsets and not self._assembler.is_open:
            self._number += block.lines(self._count)
            self._unread += block.fresh_bytes
            return found
        self._data, self._at = block.data, block.fresh
        floor = max(0, block.fresh - self._unread)  # lines above it have been read
        for offset in offsets:
            if offset < self._at:
                continue  # in a line that has been read
            floor = max(floor, self._read_on(offset, found))
            start = self._data.rfind(b"\n", 0, offset) + 1
            if start > self._at or self._at > floor:
                self._go(self._beginning(start, floor))
            while self._at <= offset:
                start = self._at
                self._line(found)
            if self._decoder.is_steady:
                self._skip_copies(start)
            floor = self._at
        floor = max(floor, self._read_on(len(self._data), found))
        self._unread = len(self._data) - floor
        self._go(len(self._data))
        return found

    @property
    def lines(self) -> int:
        """How many there were so far."""
        return self._number - 1 if self._is_whole else self._number

    def finish(self) -> list[Found]:
        """Nothing more comes, for now or at all."""
        found: list[Found] = []
        self._give(self._assembler.finish(), found)
        return found + self._decoder.finish()

    def _read_on(self, offset: int, found: list[Found]) -> int:
        """Go on to the end of a record that is open, but not into the line of the next needle. Gives the end of what was read."""
        read = self._at if self._assembler.is_open else 0
        while self._assembler.is_open and self._at < len(self._data):
            end = self._data.find(b"\n", self._at)
            if offset < end or (end < 0 and offset < len(self._data)):
                break
            at, number = self._at, self._number
            self._line(found)
            if self._assembler.open_since == number and not self._decoder.holds:
                # another one begins, and nothing so far says that it matters
                self._assembler.drop()
                self._at, self._number = at, number
                break
            read = self._at
        return read

    def _line(self, found: list[Found]) -> None:
        end = self._data.find(b"\n", self._at)
        raw = self._data[self._at : end if end >= 0 else len(self._data)]
        self._give(self._assembler.feed(self._number, raw), found)
        self._at = end + 1 if end >= 0 else len(self._data)
        self._number += end >= 0

    def _skip_copies(self, start: int) -> None:
        """A flood may be ten thousand times the same bytes: they are counted, not read."""
        line = self._data[start : self._at]
        if not self._assembler.is_again(self._number - 1, self._decoder.last) or not line.endswith(b"\n"):
            return
        times = 0
        while self._data.startswith(line, self._at):
            self._at += len(line)
            times += 1
        self._number += times
        self._assembler.skip(times)
        self._decoder.skipped(times, self._number - 2)  # the last copy is open: it may go on

    def _give(self, records: Iterable[logtext.Record], found: list[Found]) -> None:
        for record in records:
            found += self._decoder.feed(record)

    def _go(self, to: int) -> None:
        """Number the lines in between without reading them."""
        if to >= self._at:
            self._number += self._count(self._data, b"\n", self._at, to)
        else:
            self._number -= self._count(self._data, b"\n", to, self._at)
        self._at = to

    def _beginning(self, start: int, floor: int) -> int:
        """Of the record that the line at `start` belongs to: further up when nothing in the line begins one."""
        raw = self._raw(start)
        if logtext.begins(raw):
            return start
        many = logtext.is_field(raw)
        at = start
        for _ in range(logfields.MOST_LINES if many else logtext.MOST_LINES):
            if at <= floor or start - at > CONTEXT_BYTES // 2:
                break
            above = self._data.rfind(b"\n", 0, at - 1) + 1
            raw = self._raw(above)
            if not raw.strip() or above < floor:
                break
            at = above
            if logtext.begins(raw):
                return at
        return at if many else start

    def _raw(self, start: int) -> bytes:
        end = self._data.find(b"\n", start)
        return self._data[start : end if end >= 0 else len(self._data)]


def _with_all_lines(offsets: Sequence[int], block: Block, end: int) -> list[int]:
    """The beginnings of all lines that begin before `end`, and the offsets from there on."""
    data, at = block.data, block.fresh
    lines: list[int] = []
    while at < min(end, len(data)):
        lines.append(at)
        at = data.find(b"\n", at) + 1 or len(data)
    return [*lines, *(offset for offset in offsets if offset >= at)]
