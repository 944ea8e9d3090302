"""The first reading of all records: which incidents there are, who watched when, and what is damaged.

Law: one pass in the order of the files, and what it keeps does not grow with the number of records. A record that is
not understood changes nothing.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from itertools import pairwise
from pathlib import Path

from xidwatch.core.model import Severity, Status
from xidwatch.records import Damage, RecordError, dumps, journal, samples
from xidwatch.records.journal import Entry
from xidwatch.report import facts
from xidwatch.report.lacks import Lack, Lacks, PastLacks
from xidwatch.report.observations import Observations
from xidwatch.report.story import KernelCount, Note, Observation

KEPT_LACKS = 20  # incidents whose beginning is remembered in full; older ones only when they are asked for
DAMAGE_PER_FILE = 20
MOST_NOTES = 20
OWN_WORDS_SECONDS = 15.0  # a run may make remarks before `started`: it waits so long at most for what is on record of earlier ones
_STAMP = re.compile(r"^(\d{8}T\d{6}Z)-")


@dataclass(slots=True)
class Lost:
    """Records of one source that one run lost."""

    number: int
    first: float
    last: float


@dataclass(slots=True)
class Run:
    """One life of the daemon, from `started` to `stopped` or to its last record. `version` empty: its start is not on record."""

    boot_id: str
    began: float
    version: str = ""
    stopped: float | None = None
    why: str = ""
    last: float = 0.0  # its last record
    began_us: int = 0  # the same two on the monotonic clock
    last_us: int = 0
    remarks: dict[str, float] = field(default_factory=dict)  # text -> when
    switched_off: tuple[str, ...] = ()  # probes, by the settings
    lost: dict[str, Lost] = field(default_factory=dict)  # by source
    followed: bool = False  # another run has started since

    @property
    def until(self) -> float | None:
        """When it ended, or was last heard of; None: it may still run."""
        if self.stopped is not None:
            return self.stopped
        return self.last if self.followed else None


@dataclass(slots=True)
class Known:
    """An incident as far as it is on record. `until`: a later one began then, though this one was never closed."""

    id: str
    boot_id: str
    began: float
    severity: Severity = Severity.INFO
    trigger: str = ""
    ended: float | None = None
    until: float | None = None
    journalled: bool = True
    lacks: Lacks | None = field(default_factory=dict)  # what was missing when it began

    @property
    def state(self) -> str:
        """open, closed or unknown."""
        if self.ended is not None:
            return "closed"
        return "open" if self.journalled and self.until is None else "unknown"


@dataclass(slots=True)
class Ledger:
    """The result. Records, kernel events, notes and past lacks are counted from `since` on; all else is of all records."""

    since: float | None = None
    incidents: dict[str, Known] = field(default_factory=dict)
    runs: list[Run] = field(default_factory=list)
    boots: dict[str, float] = field(default_factory=dict)  # boot id -> its last record
    records: int = 0
    first: float | None = None  # of those counted
    last: float | None = None  # of all
    lacks: Lacks = field(default_factory=dict)  # missing at the end
    past_lacks: tuple[Lack, ...] = ()
    notes: deque[Note] = field(default_factory=lambda: deque(maxlen=MOST_NOTES))  # by people, the latest
    notes_written: int = 0
    damage: list[Damage] = field(default_factory=list)
    alone: tuple[Observation, ...] = ()  # conditions that were TRUE and belong to no incident, in the order in which they became so
    replayed: str = ""  # the fixture of which all this is a replay
    kernel: dict[tuple[str, int | None], tuple[int, float]] = field(default_factory=dict)

    @property
    def kernel_counts(self) -> tuple[KernelCount, ...]:
        """Most first."""
        counts = (KernelCount(kind, xid, count, last) for (kind, xid), (count, last) in self.kernel.items())
        return tuple(sorted(counts, key=lambda each: (-each.count, each.kind, each.xid or 0)))

    def in_order(self) -> list[Known]:
        """Every incident, the oldest first."""
        return sorted(self.incidents.values(), key=lambda known: (known.began, known.id))


def read(state_dir: Path, wanted: str = "", since: float | None = None) -> Ledger:
    """`wanted`: the beginning of an incident's id that will be asked for. `since`: seconds since the epoch, None: all.

    Raises RecordError where there are no records at all, or where they may not be read.
    """
    reading = _Reading(wanted, since)
    try:
        days = journal.days(state_dir)
        sample_files = samples.files(state_dir / samples.FOLDER)
        folders = dumps.folders(state_dir)
    except OSError as error:
        hint = "records are for root only: try sudo" if isinstance(error, PermissionError) else "is this a state directory of xidwatch?"
        raise RecordError(state_dir, error.strerror or str(error), hint) from error
    if not (days or sample_files or folders):
        hint = "`xidwatch run` makes some, `xidwatch run --once` in a second; --state-dir names another place"
        raise RecordError(state_dir, "no records", hint)
    for path in days:
        problems: list[Damage] = []
        for entry in journal.read_day(path, problems):
            reading.take(entry)
        reading.ledger.damage += few(problems)
    reading.ledger.damage += _set_aside(state_dir)
    for folder in folders:
        reading.folder(folder.name)
    ledger = reading.finish()
    _mark_superseded(ledger.in_order())
    return ledger


def few(problems: list[Damage]) -> list[Damage]:
    """Of a file of rubbish, the first places and how many more."""
    kept = problems[:DAMAGE_PER_FILE]
    more = len(problems) - len(kept)
    return [*kept, Damage(kept[-1].path, 0, f"{more} more places that could not be read")] if more else kept


def _set_aside(state_dir: Path) -> Iterator[Damage]:
    """Torn last lines that a later run has cut off and kept."""
    for folder in (journal.FOLDER, samples.FOLDER):
        for path in sorted((state_dir / folder).glob("*.torn")):
            yield Damage(str(path), 0, "a last line that was cut off while it was written, set aside by a later run")


def _mark_superseded(incidents: list[Known]) -> None:
    for known, later in pairwise(incidents):
        if known.ended is None:
            known.until = later.began


class _Reading:
    """The ledger while entries go by; it never leaves `read`."""

    def __init__(self, wanted: str, since: float | None) -> None:
        self.ledger = Ledger(since)
        self._wanted = wanted
        self._past_lacks = PastLacks(since)
        self._alone = Observations(None)
        self._whose: list[Entry] = []  # remarks behind which only `started`, or another record, tells which run made them
        self._handlers: dict[str, Callable[[Entry], None]] = {
            "transition": self._transition,
            "opened": self._opened,
            "closed": self._closed,
            "checkpoint": self._checkpoint,
            "kernel": self._kernel,
            "gap": self._gap,
            "missing": lambda entry: self._past_lacks.take(self.ledger.lacks, entry),
            "note": self._note,
            "started": self._started,
            "stopped": self._stopped,
        }

    def take(self, entry: Entry) -> None:
        ledger = self.ledger
        self._alone.take(entry)
        ledger.last = entry.wall if ledger.last is None else max(ledger.last, entry.wall)
        ledger.boots[entry.boot_id] = max(ledger.boots.get(entry.boot_id, entry.wall), entry.wall)
        if self._counts(entry):
            ledger.records += 1
            ledger.first = entry.wall if ledger.first is None else min(ledger.first, entry.wall)
        if is_remark(entry):
            self._whose.append(entry)
            return
        if entry.kind != "started":
            self._attribute(self._whose)
            self._live(entry)
        handler = self._handlers.get(entry.kind)
        if handler is not None:
            handler(entry)

    def finish(self) -> Ledger:
        """All entries have gone by."""
        self._attribute(self._whose)
        self.ledger.past_lacks = self._past_lacks.all()
        self.ledger.alone = self._alone.all()
        return self.ledger

    def _counts(self, entry: Entry) -> bool:
        return self.ledger.since is None or entry.wall >= self.ledger.since

    def _attribute(self, remarks: list[Entry]) -> None:
        """They were made by the latest run."""
        for entry in remarks:
            self._live(entry)
            self.ledger.runs[-1].remarks.setdefault(facts.text(entry.body, "text"), entry.wall)
        self._whose = []

    def _live(self, entry: Entry) -> None:
        """The latest run lived at least until then; without one the records begin in the middle of a run."""
        if not self.ledger.runs:
            self.ledger.runs.append(_run(entry))
        run = self.ledger.runs[-1]
        run.last, run.last_us = entry.wall, entry.mono_us or run.last_us

    def folder(self, name: str) -> None:
        """An evidence folder: where the journal does not know its incident, the name still tells when it began."""
        match = _STAMP.match(name)
        if name in self.ledger.incidents or not match:
            return
        began = datetime.strptime(match[1], "%Y%m%dT%H%M%SZ").replace(tzinfo=UTC).timestamp()
        self.ledger.incidents[name] = Known(name, "", began, journalled=False, lacks=None)

    def _known(self, name: str, entry: Entry, began: float | None = None) -> Known:
        incidents = self.ledger.incidents
        if name not in incidents:
            incidents[name] = Known(name, entry.boot_id, entry.wall if began is None else began, lacks=dict(self.ledger.lacks))
            self._forget_old_lacks()
        return incidents[name]

    def _forget_old_lacks(self) -> None:
        for name in list(self.ledger.incidents)[:-KEPT_LACKS][-1:]:
            if not (self._wanted and name.startswith(self._wanted)):
                self.ledger.incidents[name].lacks = None

    def _transition(self, entry: Entry) -> None:
        # The edge that opens an incident is written before `opened`: if only the edge made it to the disk, it still is one.
        if entry.incident and facts.status(entry.body, "after") is Status.TRUE:
            self._worse(self._known(entry.incident, entry), entry)

    def _opened(self, entry: Entry) -> None:
        name = facts.text(entry.body, "incident") or entry.incident
        if name:
            known = self._known(name, entry)
            known.trigger = facts.text(entry.body, "trigger")
            self._worse(known, entry)

    def _closed(self, entry: Entry) -> None:
        name = facts.text(entry.body, "incident") or entry.incident
        if name:
            self._known(name, entry, facts.time(entry.body, "began")).ended = entry.wall

    def _checkpoint(self, entry: Entry) -> None:
        held = entry.body.get("incident")
        name = facts.text(held, "id") if isinstance(held, dict) else ""
        if isinstance(held, dict) and name:
            known = self._known(name, entry, facts.time(held, "began"))
            known.trigger = known.trigger or facts.text(held, "trigger")
            known.severity = worst(known.severity, facts.severity(held))

    @staticmethod
    def _worse(known: Known, entry: Entry) -> None:
        known.severity = worst(known.severity, facts.severity(entry.body))

    def _kernel(self, entry: Entry) -> None:
        if entry.body.get("injected") or not self._counts(entry):
            return
        key = (facts.text(entry.body, "kind"), facts.number(entry.body, "xid"))
        count, last = self.ledger.kernel.get(key, (0, entry.wall))
        self.ledger.kernel[key] = (count + (facts.number(entry.body, "repeated") or 1), max(last, entry.wall))

    def _gap(self, entry: Entry) -> None:
        number = facts.number(entry.body, "lost") or 0
        lost = self.ledger.runs[-1].lost.setdefault(facts.text(entry.body, "source"), Lost(0, entry.wall, entry.wall))
        lost.number, lost.last = lost.number + number, entry.wall

    def _note(self, entry: Entry) -> None:
        text = facts.text(entry.body, "text")
        if text and self._counts(entry):
            self.ledger.notes.append(Note(entry.wall, text))
            self.ledger.notes_written += 1

    def _started(self, entry: Entry) -> None:
        """Remarks just before it are its own: an earlier run's last words are followed by `stopped`, or by nothing for a while."""
        own = [remark for remark in self._whose if _just_before(remark, entry)]
        others = [remark for remark in self._whose if remark not in own]
        self._attribute(others)
        before = self.ledger.runs[-1] if self.ledger.runs else None
        if before is not None:
            before.followed = True
            self._past_lacks.started(self.ledger.lacks, before.last)
        run = _run(entry)
        run.version = facts.text(entry.body, "version") or "?"
        run.switched_off = _switched_off(entry)
        self.ledger.replayed = facts.text(entry.body, "replayed") or self.ledger.replayed
        self.ledger.runs.append(run)
        for remark in own:
            run.remarks.setdefault(facts.text(remark.body, "text"), remark.wall)
        self._whose = []

    def _stopped(self, entry: Entry) -> None:
        self.ledger.runs[-1].stopped = entry.wall
        self.ledger.runs[-1].why = facts.text(entry.body, "why")


def _run(entry: Entry) -> Run:
    microseconds = entry.mono_us or 0
    return Run(entry.boot_id, entry.wall, last=entry.wall, began_us=microseconds, last_us=microseconds)


def _just_before(remark: Entry, started: Entry) -> bool:
    """Told by the clock that cannot be set, where both are known; of one and the same instant is before, too."""
    if remark.boot_id != started.boot_id:
        return False
    if remark.mono_us is not None and started.mono_us is not None:
        return 0 <= started.mono_us - remark.mono_us <= OWN_WORDS_SECONDS * 1_000_000
    return 0 <= started.wall - remark.wall <= OWN_WORDS_SECONDS


def _switched_off(entry: Entry) -> tuple[str, ...]:
    """The probes that a run's settings leave out."""
    settings = entry.body.get("settings")
    probes = settings.get("probes") if isinstance(settings, dict) else None
    if not isinstance(probes, dict):
        return ()
    return tuple(name for name, probe in probes.items() if isinstance(probe, dict) and probe.get("enabled") is False)


def is_remark(entry: Entry) -> bool:
    """What cannot be seen, said by the program itself; a note without one is a person's."""
    return entry.kind == "note" and bool(facts.text(entry.body, "remark"))


def worst(one: Severity, other: Severity) -> Severity:
    """The graver of two."""
    return one if one.rank >= other.rank else other
