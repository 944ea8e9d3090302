"""The tick: ask every probe at the planned time, wait no longer than the deadlines, hand over what came.

Times are planned from the start (`start + n * interval`), so that a slow answer never shifts the next tick. A tick that
began late ends all the same before the next begins: what had come by then is its row.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

from xidwatch.core.model import Moment, Readings
from xidwatch.core.ticks import Answer
from xidwatch.daemon.loop import Loop, Timer
from xidwatch.daemon.workers import Ask, Workers


@dataclass(slots=True)
class _Open:
    tick: int
    at: Moment
    until: float  # monotonic: the last of its deadlines
    waiting: set[str]
    answers: dict[str, Answer] = field(default_factory=dict)


class Ticker:
    """`on_tick(number, began, answers)` is called once per tick. `refusals()` names probes not to be asked now, and why."""

    def __init__(
        self,
        loop: Loop,
        workers: Workers,
        deadlines: Mapping[str, float],
        interval: float,
        refusals: Callable[[], Mapping[str, str]],
        on_tick: Callable[[int, Moment, Mapping[str, Answer]], None],
    ) -> None:
        self._loop = loop
        self._workers = workers
        self._deadlines = dict(deadlines)
        self._interval = interval
        self._refusals = refusals
        self._on_tick = on_tick
        self._timer: Timer | None = None
        self._planned = 0.0
        self._open: _Open | None = None
        self.number = 0
        self.missed = 0

    def begin(self) -> None:
        """First tick now."""
        self._planned = self._loop.clock.now().mono
        self._tick()

    def change(self, deadlines: Mapping[str, float], interval: float) -> None:
        """New settings from the next tick on: one new interval after the last, or now if that has passed, but never into an open tick."""
        earliest = self._open.until if self._open else self._loop.clock.now().mono
        last = self._planned - self._interval
        self._deadlines, self._interval = dict(deadlines), interval
        if self._timer:
            self._timer.cancel()
            self._planned = max(last + interval, earliest)
            self._timer = self._loop.at(self._planned, self._tick)

    def end(self) -> None:
        """No further tick; the one under way is dropped."""
        self._open = None
        if self._timer:
            self._timer.cancel()
            self._timer = None

    def renew(self, readings: Readings) -> None:
        """A look has brought these: what a probe said before, in a tick that still waits for another, is no longer the latest."""
        if self._open:
            self._open.answers = {name: _renewed(answer, readings) for name, answer in self._open.answers.items()}

    def _plan_next(self) -> None:
        now = self._loop.clock.now().mono
        late = int(max(0.0, now - self._planned) // self._interval)
        self.missed += late
        self._planned += (late + 1) * self._interval
        self._timer = self._loop.at(self._planned, self._tick)

    def _tick(self) -> None:
        self._plan_next()
        self._workers.tend()
        at = self._loop.clock.now()
        self.number += 1
        refused = self._refusals()
        last = math.nextafter(self._planned, 0.0)
        deadlines = {probe: min(at.mono + seconds, last) for probe, seconds in self._deadlines.items()}
        self._open = opened = _Open(self.number, at, max(deadlines.values(), default=at.mono), set(deadlines))
        for probe, deadline in deadlines.items():
            if probe in refused:
                self._take(opened, Answer(probe, "not-asked", {}, refused[probe]))
            else:
                self._workers.ask(probe, "sample", deadline, lambda ask: self._take(opened, as_answer(ask)))

    def _take(self, opened: _Open, answer: Answer) -> None:
        if opened is not self._open:
            return
        opened.answers[answer.probe] = answer
        opened.waiting.discard(answer.probe)
        if not opened.waiting:
            self._open = None
            self._on_tick(opened.tick, opened.at, opened.answers)


def _renewed(answer: Answer, readings: Readings) -> Answer:
    """The same quantities of the same subjects, as they are now."""
    latest = {
        subject: {name: readings.get(subject, {}).get(name, value) for name, value in values.items()}
        for subject, values in answer.readings.items()
    }
    return replace(answer, readings=latest)


def as_answer(ask: Ask) -> Answer:
    """An ended request in the words of the core."""
    return Answer(ask.probe, ask.ended, ask.readings, ask.why, ask.failure, ask.took_ms, ask.skip, ask.at)
