"""Power over time, as values: stretches of samples and what each was taken from.

Law: values and what may be said of them. Stamps are microseconds of the wall clock, draws are milliwatts: whole numbers, as the
driver gives them. What lies between two samples is not known, and nothing is ever put there.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from enum import StrEnum

from xidwatch.core.model import Subject


class TraceSource(StrEnum):
    """What a sample was taken from. The order is that of worth: only the first misses no burst."""

    BUFFER = "buffer"  # the driver's own samples, 20 ms apart on an H200
    POLL_INSTANT = "poll_instant"  # the sensor's latest reading when it was asked; what was between two polls is unknown
    POLL_AVERAGE = "poll_average"  # GetPowerUsage when it was asked: a mean of the last second on most boards, no instant


@dataclass(frozen=True, slots=True)
class Stretch:
    """Samples of one GPU that follow each other directly: none is missing between them. Never empty; stamps rise.

    `after_us`: stamp of the sample directly before the first, 0 where nobody knows what came before. Its last sample was the
    newest there was when it was taken: earlier than one known already, it shows that the clock was set back.
    """

    subject: Subject
    source: TraceSource
    stamps_us: tuple[int, ...]
    milliwatts: tuple[int, ...]
    after_us: int = 0

    def pieces(self, most: int) -> Iterator[Stretch]:
        """The same in pieces of at most so many samples, each of which says what it follows."""
        for first in range(0, len(self.stamps_us), most):
            part = slice(first, first + most)
            piece = replace(self, stamps_us=self.stamps_us[part], milliwatts=self.milliwatts[part])
            yield piece if first == 0 else replace(piece, after_us=self.stamps_us[first - 1])
