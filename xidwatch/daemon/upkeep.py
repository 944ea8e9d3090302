"""Maintenance in this run: an operator's word that the host is being worked on, its end, and what has changed meanwhile.

    -> {"do": "maintenance-on", "for": "30m", "reason": "driver upgrade", "user": "alice"}
    <- {"ok": true, "text": "maintenance until 2026-09-17T03:10:08.412Z: ..."}
    -> {"do": "maintenance-off", "user": "alice"}

It ends by itself at the first tick after its time, by the monotonic clock. What it means to edges and engines is the watch's.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from xidwatch.clock import Clock, iso
from xidwatch.core import comparison
from xidwatch.core.comparison import Here
from xidwatch.core.gate_model import Maintenance
from xidwatch.core.messages import MaintenanceSet
from xidwatch.core.rules import seconds
from xidwatch.daemon.inventory import Inventory
from xidwatch.daemon.scribe import NOTICE, WARNING, Scribe

LONGEST_SECONDS = 24 * 3600.0
MOST_CHARACTERS = 64  # of a user's name
PATIENT_TICKS = 10  # then what has been answered is compared, and who has not answered is left out
BY_ITSELF = "its time is over"
REFUSED = "not asked: the host is in maintenance until {until} ({reason})"

Known = tuple[Maintenance | None, Here]  # as the watch has it, and the facts about all that is there


class Upkeep:
    """`known()` gives what the daemon knows at this moment; `take` is its way to tell the watch."""

    def __init__(
        self, clock: Clock, scribe: Scribe, inventory: Inventory, known: Callable[[], Known], take: Callable[[MaintenanceSet], None]
    ) -> None:
        self._clock = clock
        self._scribe = scribe
        self._inventory = inventory
        self._known = known
        self._take = take
        self._before: Here | None = None  # as it was when it began; kept until it has been compared
        self._end_mono: float | None = None  # nobody can set that clock: a step of the other neither ends it nor makes it last
        self._ticks_since = 0

    def refusal(self) -> str:
        """Why the driver is not asked; empty while it may be."""
        on, _ = self._known()
        return REFUSED.format(until=iso(on.until), reason=on.reason) if on else ""

    def answer(self, request: Mapping[str, Any], uid: int) -> Mapping[str, object]:
        """What a person asks through the control socket. Raises ValueError with why not."""
        user = str(request.get("user", ""))[:MOST_CHARACTERS]
        by = f"{user} (uid {uid})" if user else f"uid {uid}"
        if request.get("do") == "maintenance-on":
            return self._begin(str(request.get("for", "")), str(request.get("reason", "")).strip(), by)
        on, _ = self._known()
        if on is None:
            raise ValueError("the host is not in maintenance")
        self._end(f"ended by {by}", by)
        return {"ok": True, "text": "maintenance is over: the driver is asked again at the next tick, what has changed is said then"}

    def _begin(self, duration: str, reason: str, by: str) -> Mapping[str, object]:
        length = seconds(duration)
        if not 0 < length <= LONGEST_SECONDS:
            raise ValueError(f"for more than nothing, and at most {LONGEST_SECONDS / 3600:g} hours")
        if not reason:
            raise ValueError("a reason is needed, for whoever reads the journal later")
        before, here = self._known()
        now = self._clock.now()
        given = Maintenance(before.began if before else now, now.wall + length, reason, by)
        if before is None or self._before is None:
            self._before = here
        self._end_mono = now.mono + length
        text = f"maintenance until {iso(given.until)}, by {by}: {reason}"
        self._scribe.log(WARNING, text, event="maintenance")
        self._take(MaintenanceSet(now, given, by))
        return {"ok": True, "text": f"{text}. Nothing is acted on, everything is recorded; `xidwatch maintenance off` ends it"}

    def tick(self) -> None:
        """Its end, and the comparison once everybody has answered again."""
        on, here = self._known()
        if on is not None:
            if self._before is None or (here.is_listed and not self._before.is_listed):  # of an earlier run, or not known
                self._before = here
            now = self._clock.now()
            if self._end_mono is None:  # of what an earlier run was told only the wall clock's time is on record
                self._end_mono = now.mono + min(on.until - now.wall, LONGEST_SECONDS)
            if now.mono >= self._end_mono:
                self._end(BY_ITSELF, "xidwatch")
            return
        if self._before is None:
            return
        self._ticks_since += 1
        is_comparable = here.is_listed or not self._before.is_listed
        if (self._inventory.is_current and is_comparable) or self._ticks_since >= PATIENT_TICKS:
            self._compare(self._before, here)
            self._before = None

    def _end(self, why: str, by: str) -> None:
        self._scribe.log(NOTICE, f"maintenance is over: {why}", event="maintenance")
        self._take(MaintenanceSet(self._clock.now(), None, by))
        self._inventory.want()
        self._end_mono = None
        self._ticks_since = 0

    def _compare(self, before: Here, after: Here) -> None:
        changed = comparison.since(before, after)
        is_whole = self._inventory.is_current and before.is_listed and after.is_listed
        unheard = "" if is_whole else " Not everybody has answered since; what they would tell is not compared."
        text = f"after maintenance: {'; '.join(changed) or 'nobody and nothing in the inventory has changed'}.{unheard}"
        self._scribe.record("note", {"text": text, "changes": list(changed)})
        self._scribe.log(NOTICE, text, event="maintenance")
