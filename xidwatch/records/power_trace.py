"""Power over time as it is kept and handed on: columns of plain numbers, and the same as CSV.

    time,gpu,watts,source
    2026-09-17T02:10:07.974058Z,0000:11:00.0,698.773,buffer
    2026-09-17T02:10:07.998775Z,0000:11:00.0,557.394,buffer
    2026-09-17T02:10:07.998775Z,0000:11:00.0,,gap
    2026-09-17T02:10:12.014014Z,0000:11:00.0,215.186,buffer

`source` says what a sample was taken from (core.power). `gap`: from that time to the row after it nothing is known.
`clock_set_back`: the same, and the row after it has the earlier stamp. One GPU after the other, each in the order in which
its samples came.
"""

from __future__ import annotations

import base64
import sys
from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from itertools import groupby, islice

from xidwatch.core.power import Stretch, TraceSource

SOURCES = tuple(TraceSource)  # by their number in `marks`: a new one goes to the end of the list
BREAK = 0x80  # in `marks`: what came between this sample and the one before is not known
ROWS_A_CHUNK = 500
US = 1_000_000
SLACK_US = US  # the driver stamps its samples, we stamp polls: what is taken later may be stamped a little earlier
HEADER = "time,gpu,watts,source"

Packed = Mapping[str, str]


@dataclass(slots=True)
class Columns:
    """The samples of one GPU, 13 bytes each: stamps (us of the wall clock), draws (mW), marks (number of the source, BREAK)."""

    stamps_us: array[int] = field(default_factory=lambda: array("q"))
    milliwatts: array[int] = field(default_factory=lambda: array("I"))
    marks: array[int] = field(default_factory=lambda: array("B"))

    def __len__(self) -> int:
        return len(self.stamps_us)

    def add(self, stretch: Stretch) -> None:
        """Behind the others. What is here already is left out; where something lies between, the break is marked.

        A stretch that ends well before the newest sample here was measured after the clock had been set back.
        """
        newest = self.stamps_us[-1] if self.stamps_us else 0
        set_back = stretch.stamps_us[-1] < newest - SLACK_US
        known = 0 if set_back else bisect_right(stretch.stamps_us, newest)
        if known == len(stretch.stamps_us):
            return
        follows = not set_back and (known > 0 or stretch.after_us == newest)
        mark = SOURCES.index(stretch.source)
        self.stamps_us.extend(stretch.stamps_us[known:])
        self.milliwatts.extend(stretch.milliwatts[known:])
        self.marks.append(mark if follows else mark | BREAK)
        self.marks.extend([mark] * (len(stretch.stamps_us) - known - 1))

    def forget(self, count: int) -> None:
        """The oldest so many."""
        for column in (self.stamps_us, self.milliwatts, self.marks):
            del column[:count]

    def pack(self) -> Packed:
        """Small, and fit for JSON."""
        return {"stamps_us": _packed(self.stamps_us), "milliwatts": _packed(self.milliwatts), "marks": _packed(self.marks)}

    @classmethod
    def unpack(cls, packed: Packed) -> Columns:
        """The inverse. Raises ValueError, KeyError for what is not."""
        return cls(*(_unpacked(code, packed[name]) for code, name in (("q", "stamps_us"), ("I", "milliwatts"), ("B", "marks"))))

    def rows(self, gpu: str) -> Iterator[str]:
        """As CSV, without the header. Tens of thousands of rows, and a dump waits: what the rows of a second share is made once."""
        for first, last in self._runs():
            second, mark = self.stamps_us[first] // US, self.marks[first]
            if mark & BREAK and first > 0:
                before_us = self.stamps_us[first - 1]
                yield f"{iso_us(before_us)},{gpu},,{'gap' if self.stamps_us[first] > before_us else 'clock_set_back'}"
            row = f"{_second(second)}.%06dZ,{gpu},%.3f,{SOURCES[mark & ~BREAK]}"
            microseconds = map((-second * US).__add__, self.stamps_us[first:last])
            watts = map((0.001).__mul__, self.milliwatts[first:last])
            yield from map(row.__mod__, zip(microseconds, watts, strict=True))

    def _runs(self) -> Iterator[tuple[int, int]]:
        """First sample, and the one behind the last, of each run within one second that has one source and no break in it."""
        first = 0
        for mark, alike in groupby(self.marks):
            end = first + sum(1 for _ in alike)
            while first < end:
                next_second_us = (self.stamps_us[first] // US + 1) * US
                last = first + 1 if mark & BREAK else bisect_left(self.stamps_us, next_second_us, first, end)
                yield first, last
                first = last


def csv_text(traces: Mapping[str, Packed]) -> Iterator[str]:
    """The whole part of a dump, chunks of lines without the last one's end: GPU address to its packed columns."""
    yield HEADER
    for gpu, packed in traces.items():
        rows = Columns.unpack(packed).rows(gpu)
        while chunk := list(islice(rows, ROWS_A_CHUNK)):
            yield "\n".join(chunk)


def iso_us(stamp_us: int) -> str:
    """ISO 8601 UTC with microseconds: `2026-09-17T02:10:07.974058Z`."""
    return f"{_second(stamp_us // US)}.{stamp_us % US:06d}Z"


def _second(seconds: int) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat().removesuffix("+00:00")


def _packed(column: array[int]) -> str:
    return base64.b64encode(_little_endian(column).tobytes()).decode()


def _unpacked(code: str, text: str) -> array[int]:
    column = array(code)
    column.frombytes(base64.b64decode(text, validate=True))
    return _little_endian(column)


def _little_endian(column: array[int]) -> array[int]:
    if sys.byteorder == "little":
        return column
    swapped = column[:]
    swapped.byteswap()
    return swapped
