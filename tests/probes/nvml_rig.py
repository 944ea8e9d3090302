"""The NVML probe on the fake library in Python, with clocks that move when told to, and all that it says kept."""

from __future__ import annotations

from dataclasses import dataclass, field
from math import inf

import pytest

from tests.fakes.nvml import FakeGpu, FakeNvml
from xidwatch.core.model import Missing, Subject, Value
from xidwatch.core.power import Stretch
from xidwatch.probes.base import Ask, ProbeFailed
from xidwatch.probes.nvml import NvmlProbe

EPOCH = 1_796_057_856.0  # seconds, when the fake clocks start
GPUS = [f"gpu:0000:{bus}:00.0" for bus in ("11", "12", "13", "14")]


class Heard:
    """An Emit that keeps everything, in order."""

    def __init__(self) -> None:
        self.touched: list[str] = []
        self.facts: dict[str, dict[str, Value]] = {}
        self.order: list[str] = []  # subjects touched and quantities told

    def at(self, subject: Subject) -> None:
        self.touched.append(str(subject))
        self.order.append(str(subject))

    def reading(self, subject: Subject, quantity: str, value: Value) -> None:
        of_subject = self.facts.setdefault(str(subject), {})
        assert quantity not in of_subject, f"{subject} {quantity} reported twice"
        of_subject[quantity] = value
        self.order.append(quantity)

    def missing(self, subject: str) -> dict[str, Missing]:
        """What was not there and why, but for the mean power of a first sample and a buffer nobody filled."""
        empty = {"power_mean_watts": Missing.NOT_ASKED, "power_peak_watts": Missing.ABSENT}
        return {name: value for name, value in self.facts[subject].items() if isinstance(value, Missing) and value is not empty.get(name)}


@dataclass
class Rig:
    """The probe on a fake library, with clocks that move when told to."""

    library: FakeNvml
    mono: float = 1000.0
    wall: float = EPOCH
    traces: list[Stretch] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.probe = NvmlProbe(self.library, monotonic=lambda: self.mono, wall=lambda: self.wall)
        self.probe.trace_into(self)

    def trace(self, stretch: Stretch) -> None:
        self.traces.append(stretch)

    @property
    def gpus(self) -> list[FakeGpu]:
        return self.library.gpus

    def ask(self, what: str = "sample", *, skip: frozenset[str] = frozenset(), deadline: float = inf) -> Heard:
        heard = Heard()
        getattr(self.probe, what)(Ask(deadline=deadline, skip=skip), heard)
        return heard

    def fails(self, what: str = "sample") -> ProbeFailed:
        with pytest.raises(ProbeFailed) as caught:
            self.ask(what)
        return caught.value

    def between(self, times: int | None = None) -> None:
        """As the worker calls it: as long as there is something to do now, or so many times; at least once."""
        for _ in range(times or 100):
            self.probe.between()
            if times is None and self.probe.between_seconds != 0:
                return

    def passes(self, seconds: float) -> list[float]:
        """Time goes by and nobody asks: the worker waits as long as it is told to; the times (monotonic) at which it was called."""
        called, until = [], self.mono + seconds
        while (wait := self.probe.between_seconds) is not None and self.mono + wait < until:
            self.later(wait)
            called.append(self.mono)
            self.probe.between()
        self.later(until - self.mono)
        return called

    def later(self, seconds: float) -> None:
        self.mono += seconds
        self.wall += seconds

    def draw(self, gpu: FakeGpu, *milliwatts: int) -> None:
        """The driver adds one entry every 20 ms to the sample buffer; the last is stamped now."""
        now_us = int(self.wall * 1e6)
        stamps = range(now_us - 20_000 * (len(milliwatts) - 1), now_us + 1, 20_000)
        gpu.buffer += zip(stamps, milliwatts, strict=True)

    def calls_after(self, what: str = "sample") -> list[str]:
        """The functions that one more request calls."""
        before = len(self.library.calls)
        self.ask(what)
        return [name for name, _ in self.library.calls[before:]]
