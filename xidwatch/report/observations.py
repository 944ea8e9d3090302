"""Conditions while the records go by: how each was seen first, and how it stood last. Pure."""

from __future__ import annotations

from dataclasses import replace

from xidwatch.core.model import Status, Subject
from xidwatch.records.journal import Entry
from xidwatch.records.recovery import RESTARTED
from xidwatch.report import facts
from xidwatch.report.story import Observation


class Observations:
    """The conditions of one incident, or (None) those that became TRUE and belong to none."""

    def __init__(self, incident: str | None) -> None:
        self._incident = incident
        self._boot_id = ""
        self._seen: dict[tuple[Subject, str], Observation] = {}

    def take(self, entry: Entry) -> None:
        """A transition moves a condition; after another boot nothing that was seen before stands."""
        if entry.boot_id != self._boot_id:
            self._restarted(entry)
        if entry.kind != "transition":
            return
        subject, status = facts.subject(facts.text(entry.body, "subject")), facts.status(entry.body, "after")
        if subject is None or status is None:
            return
        key = (subject, facts.text(entry.body, "type"))
        known = self._seen.get(key)
        if known is not None:
            again = status is Status.TRUE and known.status is not Status.TRUE
            times, reason = known.times + (1 if again else 0), facts.text(entry.body, "reason")
            self._seen[key] = replace(known, status=status, since=entry.wall, why_now=reason, times=times)
        elif status is Status.TRUE and entry.incident == self._incident:
            self._seen[key] = _first(entry, *key)

    def all(self) -> tuple[Observation, ...]:
        """In the order in which they became TRUE."""
        return tuple(sorted(self._seen.values(), key=lambda seen: seen.began))

    def _restarted(self, entry: Entry) -> None:
        """An incident goes on, and all of it is seen anew; what belongs to none and was over stays over."""
        self._boot_id = entry.boot_id
        for key, known in self._seen.items():
            if self._incident is not None or known.status is Status.TRUE:
                self._seen[key] = replace(known, status=Status.UNKNOWN, since=entry.wall, why_now=RESTARTED)


def _first(edge: Entry, subject: Subject, type_: str) -> Observation:
    reason = facts.text(edge.body, "reason")
    not_before = facts.time(edge.body, "not_before")
    severity = facts.severity(edge.body)
    return Observation(subject, type_, severity, edge.wall, not_before, reason, edge.id, Status.TRUE, edge.wall, reason)
