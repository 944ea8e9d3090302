"""How the program's words look in JSON: one spelling, shared by every record that holds them.

    {"subject":"port:0000:0f:00.0","type":"ConfigSpaceAllOnes","status":"TRUE","since":"2026-09-17T02:10:08.412Z",
     "since_mono_us":3611004211,"reason":"dword0 ffffffff twice"}
    {"gpu:0000:11:00.0": {"power_mean_watts": 231.4, "temperature_celsius": {"missing": "DEVICE_LOST"}}}

A time for people is ISO 8601 UTC; beside it stands the monotonic one in whole microseconds, which alone orders.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated

import msgspec

from xidwatch.clock import from_iso, iso
from xidwatch.core.model import Condition, Incident, Missing, Moment, Readings, Severity, Status, Subject, Value

PlainReadings = dict[str, dict[str, object]]

# What a number in a record may be: beyond it lies damage, and some encoder or clock that it would stop.
Natural = Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1)]
Microseconds = Annotated[int, msgspec.Meta(ge=0, le=2**53)]  # 285 years; above it a float no longer tells one from the next
LATEST = 253370764800.0  # 9999-01-01T00:00:00Z: whoever looks a little ahead can still print what he finds


def mono_us(moment: Moment) -> int:
    """The monotonic clock in whole microseconds."""
    return round(moment.mono * 1e6)


def wall_time(text: str) -> float:
    """Seconds since the epoch, such as `iso` can print again. Raises ValueError, also for a time that no host's clock shows."""
    wall = from_iso(text)
    if not 0.0 <= wall < LATEST:  # clock_settime(2) sets no time before 1970
        raise ValueError(f"a time out of range: {text!r}")
    return wall


def moment(time: str, microseconds: int | None) -> Moment:
    """Back from a record. One that has no monotonic time counts as the start of its boot. Raises ValueError."""
    return Moment(wall_time(time), (microseconds or 0) / 1e6)


def plain_value(value: Value) -> object:
    """A value, or `{"missing": reason}`."""
    return {"missing": str(value)} if isinstance(value, Missing) else value


def plain_readings(readings: Readings) -> PlainReadings:
    """Readings as a record holds them."""
    return {str(subject): {name: plain_value(value) for name, value in facts.items()} for subject, facts in readings.items()}


def to_readings(plain: Mapping[str, Mapping[str, object]]) -> dict[Subject, dict[str, Value]]:
    """The inverse; what is neither value nor known reason is MALFORMED, an entry that names no subject is left out."""
    return {
        Subject.parse(subject): {name: to_value(value) for name, value in facts.items()}
        for subject, facts in plain.items()
        if subject.partition(":")[0]
    }


def to_value(plain: object) -> Value:
    """The inverse of `plain_value`."""
    if isinstance(plain, int | float | str) and not isinstance(plain, bool):
        return plain
    reason = plain.get("missing") if isinstance(plain, Mapping) else None
    return Missing(reason) if isinstance(reason, str) and reason in set(Missing) else Missing.MALFORMED


class ConditionRecord(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A condition in a checkpoint."""

    subject: str
    type: str
    status: Status
    since: str
    since_mono_us: Microseconds
    reason: str
    missing: Missing | None = None

    @classmethod
    def of(cls, condition: Condition) -> ConditionRecord:
        """As a record holds it."""
        return cls(
            subject=str(condition.subject),
            type=condition.type,
            status=condition.status,
            since=iso(condition.since.wall),
            since_mono_us=mono_us(condition.since),
            reason=condition.reason,
            missing=condition.missing,
        )

    def condition(self) -> Condition:
        """Back. Raises ValueError."""
        since = moment(self.since, self.since_mono_us)
        return Condition(Subject.parse(self.subject), self.type, self.status, since, self.reason, self.missing)


class IncidentRecord(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """An open incident in a checkpoint."""

    id: str
    began: str
    began_mono_us: Microseconds
    trigger: str
    severity: Severity
    members: tuple[tuple[str, str], ...] = ()
    last_dump: str | None = None
    last_dump_mono_us: Microseconds | None = None
    dumps: Natural = 0

    @classmethod
    def of(cls, incident: Incident) -> IncidentRecord:
        """As a record holds it."""
        last = incident.last_dump
        return cls(
            id=incident.id,
            began=iso(incident.began.wall),
            began_mono_us=mono_us(incident.began),
            trigger=incident.trigger,
            severity=incident.severity,
            members=tuple(sorted((str(subject), type_) for subject, type_ in incident.members)),
            last_dump=iso(last.wall) if last else None,
            last_dump_mono_us=mono_us(last) if last else None,
            dumps=incident.dumps,
        )

    def incident(self) -> Incident:
        """Back. Raises ValueError."""
        return Incident(
            id=self.id,
            began=moment(self.began, self.began_mono_us),
            trigger=self.trigger,
            severity=self.severity,
            members=frozenset((Subject.parse(subject), type_) for subject, type_ in self.members),
            last_dump=moment(self.last_dump, self.last_dump_mono_us) if self.last_dump else None,
            dumps=self.dumps,
        )
