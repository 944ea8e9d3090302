"""The last two minutes of every GPU's power in memory, ready for a dump when the driver no longer answers.

A GPU that is lost keeps what was last known of it: only newer samples push out older ones, never time.
"""

from __future__ import annotations

from collections.abc import Mapping

from xidwatch.core.power import Stretch
from xidwatch.records.power_trace import Columns, Packed

MOST_SAMPLES = 6000  # a GPU: 120 s at 50 Hz, longer where the sensor is polled
MOST_GPUS = 64  # more than a host has: who names others makes them up
MOST_TOGETHER = 16 * MOST_SAMPLES  # 1.3 MB; with more GPUs each has less
SLACK = 500  # samples beyond, so that the oldest are not moved out one by one


class PowerRing:
    """By PCI address. `add` takes what the workers send, in any order and as often as they like."""

    def __init__(self) -> None:
        self._gpus: dict[str, Columns] = {}

    def add(self, stretch: Stretch) -> None:
        """One stretch; of a GPU beyond MOST_GPUS it is dropped, so that nothing true gives way to it."""
        name = stretch.subject.name
        if name not in self._gpus and len(self._gpus) >= MOST_GPUS:
            return
        columns = self._gpus.setdefault(name, Columns())
        columns.add(stretch)
        most = min(MOST_SAMPLES, MOST_TOGETHER // len(self._gpus))
        if len(columns) > most + SLACK:
            columns.forget(len(columns) - most)

    def packed(self) -> Mapping[str, Packed]:
        """All there is, by address; cheap enough for the loop, to be made into text elsewhere."""
        return {name: columns.pack() for name, columns in sorted(self._gpus.items())}
