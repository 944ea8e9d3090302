"""Orders that opened a gate past the daemon: found in its run directory, journalled once, cleared away when they are over.

The command writes them where it needs nobody (`records.order`); a daemon that was not there hears of them when it is back. It never
writes an order itself: what it has journalled it remembers by digest, and marks beside the order for its successor.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from contextlib import suppress

from xidwatch.clock import Clock
from xidwatch.daemon.rundir import RunDir
from xidwatch.daemon.scribe import WARNING, Scribe
from xidwatch.records import RecordError, order
from xidwatch.records.order import Order


class Orders:
    """`look` at every tick, and when somebody says that there is one. `in_force`: by unit, as of the last look."""

    def __init__(self, rundir: RunDir, clock: Clock, scribe: Scribe) -> None:
        self._rundir = rundir
        self._clock = clock
        self._scribe = scribe
        self._journalled: dict[str, str] = {}  # by unit, the digest of its order
        self.in_force: dict[str, Order] = {}

    def look(self, configured: Collection[str] = ()) -> None:
        """Journal what is new, forget what is over; of too many, those of `configured` units come first.

        A run directory on a disk is not looked at: the loop waits for none.
        """
        if not self._rundir.in_memory:
            return
        now_ms = int(self._clock.now().mono * 1000)
        in_force = {}
        for found in self._found(configured):
            holds = found.holds(now_ms, self._clock.boot_id)
            if holds:
                in_force[found.unit] = found
            if not self._is_journalled(found):
                self._journal(found, holds=holds)
            elif not holds:
                self._clear(found)
        self.in_force = in_force

    def _found(self, configured: Collection[str]) -> Iterator[Order]:
        try:
            units = list(order.units(self._rundir.path, configured))
        except OSError:
            return
        for unit in units:
            try:
                found = order.read(self._rundir.path, unit)
            except RecordError as error:
                self._scribe.say(f"order:{unit}", f"an order to open a gate that does not count: {error}")
                continue
            if found is not None:
                yield found

    def _is_journalled(self, found: Order) -> bool:
        """By this daemon, or by one before it."""
        if self._journalled.get(found.unit) != found.digest and order.is_marked(self._rundir.path, found):
            self._journalled[found.unit] = found.digest
        return self._journalled.get(found.unit) == found.digest

    def _journal(self, found: Order, *, holds: bool) -> None:
        """Marked only behind its record, so that it is told twice rather than not at all."""
        text = words(found, holds=holds)
        self._scribe.record("note", {"text": text, "unit": found.unit, "user": found.by, "until": found.until})
        self._scribe.log(WARNING, text, event="order", unit=found.unit)
        self._journalled[found.unit] = found.digest
        with suppress(OSError):
            order.mark(self._rundir.path, found)

    def _clear(self, found: Order) -> None:
        with suppress(OSError, RecordError):
            if order.read(self._rundir.path, found.unit) == found:  # one that was given since is for the next look
                order.remove(self._rundir.path, found.unit)
                self._journalled.pop(found.unit, None)


def words(found: Order, *, holds: bool) -> str:
    """For the journal."""
    who = f"by order of {found.by}, given at {found.at}: {found.reason}"
    if holds:
        return f"the gate of {found.unit} is open until {found.until}, whatever is known of the hardware, {who}"
    if found.withdrawn:
        return f"the gate of {found.unit} was open until {found.withdrawn}, when the order was taken back; open {who}"
    return f"the gate of {found.unit} was open until {found.until} {who}"
