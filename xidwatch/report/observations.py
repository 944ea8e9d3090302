"""The conditions of one incident: how each was seen first, and how it stood last. Pure."""

from __future__ import annotations

from dataclasses import replace

from xidwatch.core.model import Status, Subject
from xidwatch.records.journal import Entry
from xidwatch.records.recovery import RESTARTED
from xidwatch.report import timeline
from xidwatch.report.story import Event, Observation


class Observations:
    """The conditions of one incident while its transitions go by."""

    def __init__(self, incident: str) -> None:
        self._incident = incident
        self._boot_id = ""
        self._seen: dict[tuple[Subject, str], Observation] = {}

    def take(self, entry: Entry) -> None:
        """A transition moves a condition; after another boot nothing that was seen before stands."""
        if entry.boot_id != self._boot_id:
            self._restarted(entry)
        found = timeline.event(entry) if entry.kind == "transition" else None
        if found is None or found.subject is None or found.status is None:
            return
        key = (found.subject, found.kind)
        known = self._seen.get(key)
        if known is None and found.is_bad_edge and entry.incident == self._incident:
            self._seen[key] = _first(found)
        elif known is not None:
            again = found.is_bad_edge and known.status is not Status.TRUE
            times = known.times + (1 if again else 0)
            self._seen[key] = replace(known, status=found.status, since=found.wall, why_now=found.text, times=times)

    def all(self) -> tuple[Observation, ...]:
        """In the order in which they became TRUE."""
        return tuple(sorted(self._seen.values(), key=lambda seen: seen.began))

    def _restarted(self, entry: Entry) -> None:
        self._boot_id = entry.boot_id
        for key, known in self._seen.items():
            self._seen[key] = replace(known, status=Status.UNKNOWN, since=entry.wall, why_now=RESTARTED)


def _first(edge: Event) -> Observation:
    assert edge.subject is not None
    return Observation(
        edge.subject, edge.kind, edge.severity, edge.wall, edge.not_before, edge.text, edge.id, Status.TRUE, edge.wall, edge.text
    )
