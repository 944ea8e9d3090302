"""PCI events as they are announced: written down, and looked into at once.

    unbind, remove, remove (a GPU and its sound) ──► three records, one look now, one more half a second later

A storm (a hundred virtual functions being made) is bounded: so many records, and one look, in every half second. The last
announcement is always followed by a look, for the removal comes behind the unbinding that announced it.
"""

from __future__ import annotations

from collections.abc import Callable

from xidwatch.core.messages import Announced, DriverRenewed, Gap, Input
from xidwatch.daemon.loop import Loop
from xidwatch.daemon.scribe import Scribe
from xidwatch.daemon.uevents import Announcer, Uevent, Uevents

TURN_SECONDS = 0.5
MOST_RECORDS = 64  # in a turn


class Announcements:
    """`on_input` gets what they mean for the watch; `on_change` is called when the inventory may have changed."""

    def __init__(
        self,
        loop: Loop,
        scribe: Scribe,
        on_input: Callable[[Input], None],
        on_change: Callable[[], None],
        source: Callable[[], Announcer] | None = None,
    ) -> None:
        self._loop = loop
        self._scribe = scribe
        self._on_input = on_input
        self._on_change = on_change
        self._listen = source or Uevents
        self._source: Announcer | None = None
        self._turn_open = False
        self._records = 0
        self._unrecorded = 0
        self._wants_look = False
        self._last_record = ""

    def open(self) -> str:
        """Listen from now on. Returns why not, or nothing."""
        try:
            self._source = self._listen()
        except (ImportError, OSError) as error:
            return f"PCI announcements cannot be heard ({error}); a removed device is noticed at the next tick"
        self._loop.watch(self._source, self._heard)
        return ""

    def _heard(self) -> None:
        if self._source is None:
            return
        events, lost = self._source.read()
        for event in [*events, *([Uevent("lost", "pci", "", {})] if lost else [])]:  # anything may have been among them
            self._record(event)
            self._wants_look = self._wants_look or event.is_of_interest
            if event.is_driver_load:
                self._on_input(DriverRenewed(self._loop.clock.now(), "the nvidia module was loaded"))
        if lost or any(event.subsystem == "pci" for event in events):
            self._on_change()
        if not self._turn_open:
            self._begin_turn()

    def _record(self, event: Uevent) -> None:
        if self._records >= MOST_RECORDS:
            self._unrecorded += 1
            return
        self._records += 1
        self._last_record = self._scribe.new_id("r")
        self._scribe.record("uevent", {"action": event.action, "subsystem": event.subsystem, "name": event.name}, self._last_record)

    def _begin_turn(self) -> None:
        """Look now, if there is something to look for; what is announced until the turn is over waits for the next."""
        self._turn_open = True
        self._loop.after(TURN_SECONDS, self._end_turn)
        wanted, self._wants_look = self._wants_look, False
        if wanted:
            self._on_input(Announced(self._loop.clock.now(), self._last_record))

    def _end_turn(self) -> None:
        if self._unrecorded:
            self._scribe.note(Gap(self._scribe.new_id("g"), self._loop.clock.now(), "uevents", self._unrecorded))
        self._records = self._unrecorded = 0
        self._turn_open = False
        if self._wants_look:
            self._begin_turn()
