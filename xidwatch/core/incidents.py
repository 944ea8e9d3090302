"""When an incident opens, what a further edge adds to it, and when it is over.

Law: pure decisions over the open incident and one edge. Names, bounds and the ten-second rule live here.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import replace
from datetime import UTC, datetime

from xidwatch.core.model import Condition, Incident, Moment, Status, Subject, Transition
from xidwatch.core.rules import Rule

SHARED_DUMP_SECONDS = 10.0  # edges this close share one dump
DUMPS_PER_DAY = 20
SECONDS_PER_DAY = 86400.0


def name(rule: Rule, subject: Subject, at: Moment) -> str:
    """`20260917T021008Z-bus-lost-0f`: UTC second, what, where."""
    stamp = datetime.fromtimestamp(at.wall, UTC).strftime("%Y%m%dT%H%M%SZ")
    return f"{stamp}-{rule.label}-{_where(subject)}"


def _where(subject: Subject) -> str:
    try:
        address = subject.pci
    except ValueError:  # a name that is no address is still a name
        address = None
    if address is not None:
        return f"{address.bus:02x}" if address.domain == 0 else f"{address.domain:04x}-{address.bus:02x}"
    return re.sub(r"[^a-z0-9]+", "-", (subject.name or subject.kind).lower()).strip("-")[:40]


def opened(rule: Rule, edge: Transition) -> Incident:
    """A new incident from its first bad edge."""
    return Incident(name(rule, edge.subject, edge.at), edge.at, edge.id, rule.severity, frozenset({(edge.subject, edge.type)}))


def joined(incident: Incident, rule: Rule, edge: Transition) -> tuple[Incident, bool]:
    """A further bad edge joins; the flag says whether it asks for a further dump: more severe, and not within ten seconds.

    So does the first edge when this boot has seen no dump of the incident: the evidence of the last boot says nothing about it.
    """
    worse = rule.severity.rank > incident.severity.rank
    last = incident.last_dump
    wanted = last is None or (worse and edge.at.mono - last.mono >= SHARED_DUMP_SECONDS)
    grown = replace(
        incident,
        members=incident.members | {(edge.subject, edge.type)},
        severity=rule.severity if worse else incident.severity,
    )
    return grown, wanted


def is_over(incident: Incident, conditions: Mapping[tuple[Subject, str], Condition], opening: Iterable[str]) -> bool:
    """Every member is good again, as seen and not as hoped, and nothing else that opens incidents is TRUE.

    A member whose rule is gone, or opens no incidents any more, could never become good: it holds nothing open.
    """
    types = frozenset(opening)
    good = (Status.FALSE, Status.NOT_APPLICABLE)
    members_good = all(key in conditions and conditions[key].status in good for key in incident.members if key[1] in types)
    return members_good and not any(c.status is Status.TRUE and c.type in types for c in conditions.values())


def may_dump(recent_dumps: tuple[float, ...], at: Moment) -> bool:
    """Dumps are bounded per day, or a flapping device fills the disk. `recent_dumps` in wall time, for they outlast a boot.

    One that lies further ahead than a day was dated by a clock that has been set back since, and must not forbid dumps for years.
    """
    return sum(1 for wall in recent_dumps if abs(at.wall - wall) < SECONDS_PER_DAY) < DUMPS_PER_DAY
