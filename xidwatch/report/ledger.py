"""The first reading of all records: which incidents there are, who watched when, and what is damaged.

Law: one pass in the order of the files, and what it keeps does not grow with the number of records. A record that is
not understood changes nothing.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from itertools import pairwise
from pathlib import Path

from xidwatch.core.model import Severity, Status
from xidwatch.records import Damage, RecordError, dumps, journal, samples
from xidwatch.records.journal import Entry
from xidwatch.report import facts
from xidwatch.report.story import KernelCount

KEPT_LACKS = 20  # incidents whose beginning is remembered in full; older ones only when they are asked for
DAMAGE_PER_FILE = 20
OWN_WORDS_SECONDS = 2.0  # what is remarked this shortly before `started` was said by the run that starts
_STAMP = re.compile(r"^(\d{8}T\d{6}Z)-")

Lacks = dict[str, tuple[str, float]]  # column -> reason, since


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
    """The result."""

    incidents: dict[str, Known] = field(default_factory=dict)
    runs: list[Run] = field(default_factory=list)
    boots: dict[str, float] = field(default_factory=dict)  # boot id -> its last record
    records: int = 0
    first: float | None = None
    last: float | None = None
    lacks: Lacks = field(default_factory=dict)  # missing at the end
    gaps: Counter[str] = field(default_factory=Counter)  # source -> records lost
    damage: list[Damage] = field(default_factory=list)
    kernel: dict[tuple[str, int | None], tuple[int, float]] = field(default_factory=dict)

    @property
    def kernel_counts(self) -> tuple[KernelCount, ...]:
        """Most first."""
        counts = (KernelCount(kind, xid, count, last) for (kind, xid), (count, last) in self.kernel.items())
        return tuple(sorted(counts, key=lambda each: (-each.count, each.kind, each.xid or 0)))

    def in_order(self) -> list[Known]:
        """Every incident, the oldest first."""
        return sorted(self.incidents.values(), key=lambda known: (known.began, known.id))


def read(state_dir: Path, wanted: str = "") -> Ledger:
    """`wanted`: the beginning of an incident's id that will be asked for.

    Raises RecordError where there are no records at all, or where they may not be read.
    """
    reading = _Reading(wanted)
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
    _mark_superseded(reading.ledger.in_order())
    return reading.ledger


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

    def __init__(self, wanted: str) -> None:
        self.ledger = Ledger()
        self._wanted = wanted
        self._kernel_seen: tuple[str, int] = ("", -1)
        self._handlers: dict[str, Callable[[Entry], None]] = {
            "transition": self._transition,
            "opened": self._opened,
            "closed": self._closed,
            "checkpoint": self._checkpoint,
            "kernel": self._kernel,
            "gap": self._gap,
            "missing": self._missing,
            "note": self._note,
            "started": self._started,
            "stopped": self._stopped,
        }

    def take(self, entry: Entry) -> None:
        ledger = self.ledger
        ledger.records += 1
        ledger.first = entry.wall if ledger.first is None else min(ledger.first, entry.wall)
        ledger.last = entry.wall if ledger.last is None else max(ledger.last, entry.wall)
        ledger.boots[entry.boot_id] = max(ledger.boots.get(entry.boot_id, entry.wall), entry.wall)
        if not ledger.runs and entry.kind != "started":
            ledger.runs.append(_run(entry))
        if entry.kind != "started" and not is_remark(entry):
            ledger.runs[-1].last = entry.wall
            ledger.runs[-1].last_us = entry.mono_us or ledger.runs[-1].last_us
        handler = self._handlers.get(entry.kind)
        if handler is not None:
            handler(entry)

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
        if entry.body.get("injected"):
            return
        key = (facts.text(entry.body, "kind"), facts.number(entry.body, "xid"))
        count, last = self.ledger.kernel.get(key, (0, entry.wall))
        self.ledger.kernel[key] = (count + (facts.number(entry.body, "repeated") or 1), max(last, entry.wall))

    def _gap(self, entry: Entry) -> None:
        self.ledger.gaps[facts.text(entry.body, "source")] += facts.number(entry.body, "lost") or 0

    def _missing(self, entry: Entry) -> None:
        update_lacks(self.ledger.lacks, entry)

    def _note(self, entry: Entry) -> None:
        if is_remark(entry):
            self.ledger.runs[-1].remarks.setdefault(facts.text(entry.body, "text"), entry.wall)

    def _started(self, entry: Entry) -> None:
        run = _run(entry)
        run.version = facts.text(entry.body, "version") or "?"
        if self.ledger.runs:
            before = self.ledger.runs[-1]
            own = {text: wall for text, wall in before.remarks.items() if 0 <= entry.wall - wall <= OWN_WORDS_SECONDS}
            run.remarks = own
            before.remarks = {text: wall for text, wall in before.remarks.items() if text not in own}
            if before.last > before.began or before.version or before.remarks:
                self.ledger.runs.append(run)
            else:  # nothing but the new run's own first words stood before
                self.ledger.runs[-1] = run
        else:
            self.ledger.runs.append(run)
        self.ledger.lacks.clear()

    def _stopped(self, entry: Entry) -> None:
        self.ledger.runs[-1].stopped = entry.wall
        self.ledger.runs[-1].why = facts.text(entry.body, "why")


def _run(entry: Entry) -> Run:
    microseconds = entry.mono_us or 0
    return Run(entry.boot_id, entry.wall, last=entry.wall, began_us=microseconds, last_us=microseconds)


def is_remark(entry: Entry) -> bool:
    """What cannot be seen, said by the program itself; a note without one is a person's."""
    return entry.kind == "note" and bool(facts.text(entry.body, "remark"))


def worst(one: Severity, other: Severity) -> Severity:
    """The graver of two."""
    return one if one.rank >= other.rank else other


def columns(entry: Entry) -> list[str]:
    """The columns a `missing` record is about: a list of them, or in one-column form subject and quantity."""
    named = facts.texts(entry.body, "columns")
    single = facts.text(entry.body, "subject")
    return named or ([f"{single}:{facts.text(entry.body, 'quantity')}"] if single else [])


def update_lacks(lacks: Lacks, entry: Entry) -> list[tuple[str, str, float]]:
    """Take over a `missing` record; returns what was missing until now and no longer is (column, reason, since)."""
    reason = facts.text(entry.body, "reason")
    over: list[tuple[str, str, float]] = []
    for column in columns(entry):
        before = lacks.pop(column, None)
        if before is not None:
            over.append((column, *before))
        if reason:
            lacks[column] = (reason, entry.wall)
    return over
