"""From the journal back to the state: what a daemon that starts has to know about the one before it.

Law: `fold` is pure. It never makes a thing look better than it was seen: after another boot everything that was TRUE
or FALSE is UNKNOWN, an open incident stays open, and the position in the kernel log is forgotten.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from itertools import groupby
from pathlib import Path
from typing import Annotated

import msgspec

from xidwatch.clock import iso
from xidwatch.core.gate_model import Gate, GateState, Maintenance
from xidwatch.core.model import ActionKind, Condition, Incident, Missing, Moment, Severity, Status, Subject
from xidwatch.core.recovery_model import NOTHING_DONE, Attempt
from xidwatch.records import Damage, journal, note
from xidwatch.records.baseline import Baseline
from xidwatch.records.gates import GateRecord, MaintenanceRecord
from xidwatch.records.journal import Entry
from xidwatch.records.recoveries import AttemptRecord
from xidwatch.records.values import ConditionRecord, IncidentRecord, Natural, wall_time

RESTARTED = "host restarted; not looked at yet"
TO_COME = (
    "is of a day to come: the clock was set back, what was recorded since may not be known, and no hardware is recovered by itself. "
    "Set the clock, or move the files of days to come away"
)
KEPT_DUMPS = 20
KEPT_ATTEMPTS = 40
KEPT_BEFORE_CHECKPOINT = 4096  # records; as many as the loop may have on their way (`frames.WINDOW`)
MOST_DAYS = 31  # files read back when no checkpoint is found
_NUMBER = re.compile(r"-([0-9]{1,15})$")
_NextId = Annotated[int, msgspec.Meta(ge=1, le=10**15)]  # the largest that `_NUMBER` leads to

Key = tuple[Subject, str]


@dataclass(frozen=True, slots=True)
class Recovered:
    """What the journal says. `stopped`: the last run took its leave; None when no run is on record.

    `kmsg_seq`: the highest kernel record known to be written down in this boot. `dumps`: wall times of the latest dumps.
    """

    conditions: Mapping[Key, Condition]
    incident: Incident | None
    kmsg_seq: int | None
    next_id: int
    last_boot_id: str | None
    stopped: bool | None
    dumps: tuple[float, ...] = ()
    gates: tuple[Gate, ...] = ()  # as last recorded, of any boot
    maintenance: Maintenance | None = None
    attempts: tuple[Attempt, ...] = ()  # at recovery, of any boot


# ---------------------------------------------------------------------------------------------------- as a message


class RecoveredRecord(msgspec.Struct, frozen=True, kw_only=True):
    """`Recovered` as the recorder tells it to the loop, with what else it found on the disk."""

    conditions: tuple[ConditionRecord, ...]
    incident: IncidentRecord | None
    kmsg_seq: int | None
    next_id: int
    last_boot_id: str | None
    stopped: bool | None
    dumps: tuple[str, ...] = ()
    gates: tuple[GateRecord, ...] = ()
    maintenance: MaintenanceRecord | None = None
    attempts: tuple[AttemptRecord, ...] = ()
    baseline: Baseline | None = None
    damage: tuple[Damage, ...] = ()
    took_ms: int = 0

    @classmethod
    def of(cls, found: Recovered, baseline: Baseline | None, damage: Iterable[Damage], took_ms: int) -> RecoveredRecord:
        """As a message."""
        return cls(
            conditions=tuple(ConditionRecord.of(condition) for condition in found.conditions.values()),
            incident=IncidentRecord.of(found.incident) if found.incident else None,
            kmsg_seq=found.kmsg_seq,
            next_id=found.next_id,
            last_boot_id=found.last_boot_id,
            stopped=found.stopped,
            dumps=tuple(iso(wall) for wall in found.dumps),
            gates=tuple(GateRecord.of(gate) for gate in found.gates),
            maintenance=MaintenanceRecord.of(found.maintenance) if found.maintenance else None,
            attempts=tuple(AttemptRecord.of(each) for each in found.attempts),
            baseline=baseline,
            damage=tuple(damage),
            took_ms=took_ms,
        )

    def recovered(self) -> Recovered:
        """Back. Raises ValueError."""
        conditions = [record.condition() for record in self.conditions]
        return Recovered(
            conditions={(condition.subject, condition.type): condition for condition in conditions},
            incident=self.incident.incident() if self.incident else None,
            kmsg_seq=self.kmsg_seq,
            next_id=self.next_id,
            last_boot_id=self.last_boot_id,
            stopped=self.stopped,
            dumps=tuple(wall_time(text) for text in self.dumps),
            gates=tuple(record.gate() for record in self.gates),
            maintenance=self.maintenance.maintenance() if self.maintenance else None,
            attempts=tuple(record.attempt() for record in self.attempts),
        )


# ------------------------------------------------------------------------------------------------------- reading back


def tail(state_dir: Path, boot_id: str, problems: list[Damage]) -> list[Entry]:
    """The journal from the newest file that holds a checkpoint, and one file more, in the order in which it happened."""
    read: list[list[Entry]] = []
    enough = MOST_DAYS
    for path in reversed(journal.days(state_dir)):
        read.insert(0, _worth_keeping(journal.read_day(path, problems)))
        if any(entry.kind == "checkpoint" for entry in read[0]):
            enough = min(enough, len(read) + 1)
        if len(read) >= enough:
            break
    return in_order(read, boot_id)


def passed_over(state_dir: Path, today: str) -> list[Damage]:
    """What `tail` may not get to see: since the clock was set back, records go into the file of a day long before the newest one."""
    to_come = [path for path in journal.days(state_dir) if path.stem > today]
    return [Damage(str(path), 0, TO_COME) for path in to_come[1:2]]


def _worth_keeping(entries: Iterable[Entry]) -> list[Entry]:
    """A day may hold a storm: before its last checkpoint only the latest are kept, to recognise what is sent again."""
    kept: list[Entry] = []
    for entry in entries:
        if entry.kind == "checkpoint":
            del kept[:-KEPT_BEFORE_CHECKPOINT]
        kept.append(entry)
    return kept


def in_order(days: list[list[Entry]], boot_id: str) -> list[Entry]:
    """Files merged as it happened: a wall clock that was set may have put later records into an earlier day's file.

    Within a file the order stands. Boots follow each other by their last wall time, the running one last; within a boot
    files are merged by the monotonic clock.
    """
    last_wall: dict[str, float] = defaultdict(float)
    for entry in (entry for day in days for entry in day):
        last_wall[entry.boot_id] = max(last_wall[entry.boot_id], entry.wall)
    last_wall[boot_id] = float("inf")
    keyed: list[tuple[float, int, Entry]] = []
    for day in days:
        for boot, entries in groupby(day, key=lambda entry: entry.boot_id):
            reached = 0
            for entry in entries:
                reached = max(reached, entry.mono_us or 0)
                keyed.append((last_wall[boot], reached, entry))
    return [entry for _, _, entry in sorted(keyed, key=lambda item: item[:2])]


def fold(entries: Iterable[Entry], boot_id: str, problems: list[Damage] | None = None) -> Recovered:
    """The last checkpoint and what follows it. A record whose body is not understood goes to `problems` and changes nothing."""
    state = _Fold()
    for entry in entries:
        trouble = state.take(entry)
        if trouble:
            note(problems, Path(entry.path), entry.line, f"{entry.kind} {entry.id} not understood: {trouble}")
    if state.boot_id is not None and state.boot_id != boot_id:
        state.host_restarted()
    return state.result()


class _Transition(msgspec.Struct, frozen=True):
    subject: str
    type: str
    after: Status
    reason: str = ""
    severity: Severity = Severity.INFO
    missing: Missing | None = None


class _Opened(msgspec.Struct, frozen=True):
    incident: str
    trigger: str
    severity: Severity


class _Closed(msgspec.Struct, frozen=True):
    incident: str


class _Action(msgspec.Struct, frozen=True):
    kind: str
    step: str = ""
    target: str = ""


class _Outcome(msgspec.Struct, frozen=True):
    action: str = msgspec.field(name="for", default="")
    result: str = ""
    detail: str = ""


class _Kernel(msgspec.Struct, frozen=True):
    seq: Natural


class _Checkpoint(msgspec.Struct, frozen=True):
    conditions: tuple[ConditionRecord, ...]
    incident: IncidentRecord | None
    kmsg_seq: Natural | None
    next_id: _NextId
    dumps: tuple[str, ...] = ()
    gates: tuple[GateRecord, ...] = ()
    maintenance: MaintenanceRecord | None = None
    attempts: tuple[AttemptRecord, ...] = ()


class _Fold:
    """The state while entries go by; mutable, and it never leaves `fold`."""

    def __init__(self) -> None:
        self.boot_id: str | None = None
        self._conditions: dict[Key, Condition] = {}
        self._incident: Incident | None = None
        self._kmsg_seq: int | None = None
        self._next_id = 1
        self._stopped: bool | None = None
        self._dumps: tuple[float, ...] = ()
        self._gates: dict[str, Gate] = {}
        self._maintenance: Maintenance | None = None
        self._attempts: tuple[Attempt, ...] = ()
        self._last = Moment(0.0, 0.0)
        self._handlers: dict[str, Callable[[Entry], None]] = {
            "transition": self._transition,
            "opened": self._opened,
            "closed": self._closed,
            "action": self._action,
            "outcome": self._outcome,
            "kernel": self._kernel,
            "gate": self._gate,
            "maintenance": self._maintain,
            "checkpoint": self._checkpoint,
        }

    def take(self, entry: Entry) -> str:
        """What is wrong with its body; "" when nothing is."""
        if entry.boot_id and entry.boot_id != self.boot_id:
            if self.boot_id is not None:
                self.host_restarted()
            self.boot_id = entry.boot_id
        number = _NUMBER.search(entry.id)
        if number:
            self._next_id = max(self._next_id, int(number[1]) + 1)
        if self._stopped is None or entry.kind in ("started", "stopped"):
            self._stopped = entry.kind == "stopped"
        try:
            self._last = entry.at
            self._handlers.get(entry.kind, _of_no_consequence)(entry)
        except (msgspec.MsgspecError, ValueError, OverflowError) as error:  # altered, or of a newer version: no guesses
            return str(error)
        return ""

    def host_restarted(self) -> None:
        """What was seen before says nothing about now. The new boot's clock starts at 0, and so does all that is still open."""
        since = Moment(self._last.wall, 0.0)
        self._conditions = {key: _not_looked_at(condition, since) for key, condition in self._conditions.items()}
        if self._incident is not None:
            self._incident = replace(self._incident, began=Moment(self._incident.began.wall, 0.0), last_dump=None)
        self._kmsg_seq = None

    def result(self) -> Recovered:
        return Recovered(
            self._conditions,
            self._incident,
            self._kmsg_seq,
            self._next_id,
            self.boot_id,
            self._stopped,
            self._dumps,
            tuple(self._gates.values()),
            self._maintenance,
            self._attempts,
        )

    def _transition(self, entry: Entry) -> None:
        edge = msgspec.convert(entry.body, _Transition)
        key = (Subject.parse(edge.subject), edge.type)
        self._conditions[key] = Condition(*key, edge.after, entry.at, edge.reason, edge.missing)
        if entry.incident is not None and edge.after is Status.TRUE:
            self._join(entry.incident, entry, edge.severity, key)

    def _join(self, name: str, entry: Entry, severity: Severity, key: Key) -> None:
        """The edge that opens an incident is written before `opened`: if only the edge made it to the disk, it still is one."""
        incident = self._incident
        if incident is None or incident.id != name:
            incident = Incident(name, entry.at, entry.id, severity, frozenset())
        worst = max(incident.severity, severity, key=lambda each: each.rank)
        self._incident = replace(incident, members=incident.members | {key}, severity=worst)

    def _opened(self, entry: Entry) -> None:
        body = msgspec.convert(entry.body, _Opened)
        if self._incident is None or self._incident.id != body.incident:
            self._incident = Incident(body.incident, entry.at, body.trigger, body.severity, frozenset())

    def _closed(self, entry: Entry) -> None:
        body = msgspec.convert(entry.body, _Closed)
        if self._incident is not None and self._incident.id == body.incident:
            self._incident = None

    def _action(self, entry: Entry) -> None:
        body = msgspec.convert(entry.body, _Action)
        if body.kind == ActionKind.RECOVER:
            attempt = Attempt(body.step, entry.id, entry.at, entry.boot_id, entry.incident, body.target)
            self._attempts = (*(each for each in self._attempts if each.action != entry.id), attempt)[-KEPT_ATTEMPTS:]
        if body.kind != ActionKind.TAKE_DUMP:
            return
        self._dumps = (*self._dumps, entry.wall)[-KEPT_DUMPS:]
        if self._incident is not None and self._incident.id == entry.incident:
            self._incident = replace(self._incident, last_dump=entry.at, dumps=self._incident.dumps + 1)

    def _outcome(self, entry: Entry) -> None:
        """What was refused was not done. Without an outcome it counts as done, for nobody knows."""
        if not self._attempts:
            return
        body = msgspec.convert(entry.body, _Outcome)
        known = (replace(each, result=body.result, detail=body.detail) if each.action == body.action else each for each in self._attempts)
        self._attempts = tuple(each for each in known if each.result not in NOTHING_DONE)

    def _kernel(self, entry: Entry) -> None:
        seq = msgspec.convert(entry.body, _Kernel).seq
        self._kmsg_seq = max(seq, self._kmsg_seq if self._kmsg_seq is not None else seq)

    def _gate(self, entry: Entry) -> None:
        gate = msgspec.convert(entry.body, GateRecord).gate()
        was_reset = entry.body.get("before") == GateState.LATCHED
        self._gates[gate.unit] = gate if was_reset else self._latched(gate)

    def _latched(self, gate: Gate) -> Gate:
        """A run that could not read the journal knew of no latch; only an operator leaves it, and his word stands in a record."""
        known = self._gates.get(gate.unit)
        return known if known is not None and known.state is GateState.LATCHED and gate.state is not GateState.LATCHED else gate

    def _maintain(self, entry: Entry) -> None:
        self._maintenance = msgspec.convert(entry.body, MaintenanceRecord).maintenance()

    def _checkpoint(self, entry: Entry) -> None:
        body = msgspec.convert(entry.body, _Checkpoint)
        conditions = [record.condition() for record in body.conditions]
        incident = body.incident.incident() if body.incident else None
        dumps = tuple(wall_time(text) for text in body.dumps)
        gates = {record.unit: self._latched(record.gate()) for record in body.gates}
        maintenance = body.maintenance.maintenance() if body.maintenance else None
        attempts = tuple(record.attempt() for record in body.attempts)
        self._conditions = {(condition.subject, condition.type): condition for condition in conditions}
        self._incident = incident
        self._next_id = max(self._next_id, body.next_id)
        self._dumps = dumps or self._dumps
        self._gates = gates
        self._maintenance = maintenance
        told = {each.action for each in attempts}  # a version that knows of none must not make it forgotten
        self._attempts = (*(each for each in self._attempts if each.action not in told), *attempts)[-KEPT_ATTEMPTS:]
        if body.kmsg_seq is not None:
            self._kmsg_seq = max(body.kmsg_seq, self._kmsg_seq if self._kmsg_seq is not None else body.kmsg_seq)


def _of_no_consequence(_: Entry) -> None:
    """Most kinds say nothing about the state."""


def _not_looked_at(condition: Condition, since: Moment) -> Condition:
    if condition.status is Status.NOT_APPLICABLE:
        return replace(condition, since=since)
    return replace(condition, status=Status.UNKNOWN, since=since, reason=RESTARTED, missing=Missing.NOT_ASKED)
