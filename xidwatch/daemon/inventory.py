"""Keeping the inventory: asked for at the start, after an announcement, and whenever a probe comes (back) to life."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from xidwatch.core import remarks
from xidwatch.core.model import Missing, Subject, Value
from xidwatch.core.ticks import Answer
from xidwatch.daemon.loop import Loop
from xidwatch.daemon.memory import Memory
from xidwatch.daemon.scribe import Scribe
from xidwatch.daemon.workers import Ask, Workers
from xidwatch.records.values import plain_readings

SECONDS = 5.0  # no more: a sample waits behind it
REMARKS = {"pci": remarks.about_pci, "hwmon": remarks.about_hwmon}


class Inventory:
    """`memory.inventory` holds the latest of everything; a device that no longer answers keeps what it was known by."""

    def __init__(self, loop: Loop, workers: Workers, memory: Memory, scribe: Scribe) -> None:
        self._loop = loop
        self._workers = workers
        self._memory = memory
        self._scribe = scribe
        self._wanted = set(workers.specs)
        self._open: set[str] = set()
        self.on_complete: Callable[[], None] = lambda: None
        self.on_change: Callable[[], None] = lambda: None

    def want(self, *probes: str) -> None:
        """Something may have changed: ask these (all of them, without names) after the next tick."""
        self._wanted |= set(probes) & set(self._workers.specs) if probes else set(self._workers.specs)

    @property
    def is_current(self) -> bool:
        """Everybody who was to be asked has answered since."""
        return not self._wanted and not self._open

    def renew(self, answers: Mapping[str, Answer], *, released: bool) -> None:
        """After a tick: ask those whose inventory is wanted and that have just answered."""
        for probe, answer in answers.items():
            holds_driver = self._workers.specs[probe].holds_driver
            if answer.ended != "done":
                self._wanted.add(probe)
            elif probe in self._wanted and not (released and holds_driver):
                self._wanted.discard(probe)
                self._open.add(probe)
                self._workers.ask(probe, "inventory", self._loop.clock.now().mono + SECONDS, self._ended)
        self._tell_if_complete()

    def _ended(self, ask: Ask) -> None:
        self._open.discard(ask.probe)
        if ask.ended != "done":
            self._wanted.add(ask.probe)
        self._take(ask.readings)
        about = REMARKS.get(ask.probe)
        if about is not None and ask.ended == "done":
            for key, text in about(self._memory.inventory).items():
                self._scribe.say(key, text)
        self._tell_if_complete()

    def _tell_if_complete(self) -> None:
        if not self._open:
            self.on_complete()

    def _take(self, found: Mapping[Subject, Mapping[str, Value]]) -> None:
        known = dict(self._memory.inventory)
        for subject, values in found.items():
            before = known.get(subject, {})
            known[subject] = {**before, **{name: _better(before.get(name), value) for name, value in values.items()}}
        if known != self._memory.inventory:
            self._memory.inventory = known
            self._scribe.record("inventory", plain_readings(known))
            self.on_change()


def _better(before: Value | None, now: Value) -> Value:
    """A fact once known is not forgotten because the device cannot say it any more."""
    return before if isinstance(now, Missing) and before is not None else now
