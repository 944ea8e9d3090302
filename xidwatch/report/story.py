"""What a report tells, as values: read from the records, not yet in words.

Law: immutable values. Times are seconds since the epoch; whoever prints them chooses the form.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from xidwatch.core.model import Severity, Status, Subject
from xidwatch.records import Damage
from xidwatch.records.dumps import Part


@dataclass(frozen=True, slots=True)
class Event:
    """One entry of the timeline. `source`: kernel, watch, incident, action, outcome, gate, gap, uevent, person or run.

    `kind` is the kernel event's, the condition's type, the action's, or a word that says what it is.
    """

    id: str
    wall: float
    boot_id: str
    source: str
    kind: str
    severity: Severity
    text: str
    subject: Subject | None = None
    pci: str | None = None
    before: Status | None = None
    status: Status | None = None
    not_before: float | None = None  # of a sampled edge: it happened after this and not later than `wall`
    incident: str | None = None  # of an edge: which one it belongs to
    injected: bool = False  # written into the kernel log by a process
    repeated: int = 1
    refers_to: str = ""  # the id of the record it follows from
    first_bad: bool = False

    @property
    def is_bad_edge(self) -> bool:
        """A condition became TRUE."""
        return self.status is Status.TRUE


@dataclass(frozen=True, slots=True)
class Observation:
    """A condition that was TRUE: how it was seen first, and how it stood last."""

    subject: Subject
    type: str
    severity: Severity
    began: float
    not_before: float | None
    reason: str
    evidence: str  # id of the transition
    status: Status
    since: float
    why_now: str  # the reason of its latest status
    times: int = 1  # how often it became TRUE

    @property
    def from_kernel(self) -> bool:
        """Told by the kernel log, so known to the millisecond; else it was found by looking."""
        return self.not_before is None and self.reason.startswith("kernel:")


@dataclass(frozen=True, slots=True)
class Unseen:
    """Something that could not be seen. Without `began` it was so all along, without `ended` it still is."""

    what: str
    why: str
    began: float | None = None
    ended: float | None = None
    times: int = 1


@dataclass(frozen=True, slots=True)
class Shown:
    """One row of readings of one subject, as recorded; a missing value is empty."""

    subject: Subject
    wall: float
    values: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Readings:
    """The last values before it began, and the latest ones up to its end (or up to now).

    `parting`: of GPUs that said nothing any more when their next row was due, the peak power that had been counted for it: drawn after
    the row in `before`, up to the last answer. `answered`: PCI subjects that gave good answers after it had begun, in the same boot.
    """

    before: tuple[Shown, ...] = ()
    parting: tuple[Shown, ...] = ()
    latest: tuple[Shown, ...] = ()
    answered: frozenset[Subject] = frozenset()


@dataclass(frozen=True, slots=True)
class Dump:
    """The evidence folder. `state` as in its manifest; `trouble` says why it could not be read."""

    folder: str
    state: str
    parts: tuple[Part, ...] = ()
    drill: bool = False
    trouble: str = ""


@dataclass(frozen=True, slots=True)
class EngineStep:
    """`what`: gate, stop or start. `word`: the state that the gate went to (from `before`), or what became of the stop or start."""

    wall: float
    what: str
    word: str
    why: str
    before: str = ""


@dataclass(frozen=True, slots=True)
class Engine:
    """What was done to one engine, and how its gate stands at the last record of it; `state` "" where no record says so."""

    unit: str
    state: str
    since: float
    why: str
    steps: tuple[EngineStep, ...]
    left_out: int = 0


@dataclass(frozen=True, slots=True)
class Case:
    """One incident. `state`: open, closed, or unknown where its end is not on record (`end_unknown` says why)."""

    id: str
    boot_id: str
    began: float
    not_before: float | None
    ended: float | None
    state: str
    severity: Severity
    end_unknown: str
    hardware: bool | None
    events: tuple[Event, ...]
    events_left_out: int
    observations: tuple[Observation, ...]
    bystanders: tuple[Subject, ...]
    readings: Readings
    dumps: tuple[Dump, ...]
    engines: tuple[Engine, ...] = ()

    @property
    def first_event(self) -> Event | None:
        """The first bad entry."""
        return next((event for event in self.events if event.first_bad), None)

    @property
    def victims(self) -> tuple[Subject, ...]:
        """PCI subjects of which something bad became TRUE, in that order."""
        return tuple(dict.fromkeys(seen.subject for seen in self.observations if seen.subject.pci is not None))


@dataclass(frozen=True, slots=True)
class Note:
    """What a person wrote into the journal."""

    wall: float
    text: str


@dataclass(frozen=True, slots=True)
class KernelCount:
    """So many kernel events of one kind; `xid` for Xid lines."""

    kind: str
    xid: int | None
    count: int
    last: float


@dataclass(frozen=True, slots=True)
class Coverage:
    """What the records are made of, from `since` on where that is given; but `last` is the last of all.

    `ticks` only where they were counted; `ends_cleanly` None: no run is on record.
    """

    first: float | None
    last: float | None
    records: int
    boots: int
    runs: int
    ends_cleanly: bool | None
    ticks: int | None = None
    kernel_counts: tuple[KernelCount, ...] = ()
    since: float | None = None

    @property
    def nothing_since(self) -> float | None:
        """That time, where nothing at all is on record from it on, though something is before."""
        return self.since if not self.records and not self.ticks and self.last is not None else None


@dataclass(frozen=True, slots=True)
class Story:
    """All that one report tells; `case` None when no incident is on record. `others`: ids of further incidents, oldest first.

    `alone`: conditions that were TRUE without being part of any incident; with a case, those that were so up to a day before it or
    in it. `notes`: only without a case, whose timeline has them; the latest, oldest first. `replayed`: the fixture that was replayed;
    then nothing of this is about the host that the records are on.
    """

    state_dir: str
    coverage: Coverage
    case: Case | None
    unseen: tuple[Unseen, ...]
    damage: tuple[Damage, ...]
    others: tuple[str, ...] = ()
    alone: tuple[Observation, ...] = ()
    replayed: str = ""
    notes: tuple[Note, ...] = ()
    notes_left_out: int = 0
