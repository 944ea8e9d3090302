"""From journal records to the entries of a timeline, in the order in which things happened.

Law: pure. A record becomes at most one entry, in words that say no more than the record does. Within a boot the
monotonic clock orders, since the other one may have been set in between; boots follow each other by their last record.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from itertools import groupby

from xidwatch.core.model import Severity, Status
from xidwatch.records.journal import Entry
from xidwatch.report import facts
from xidwatch.report.ledger import Run, is_remark
from xidwatch.report.story import Event

HELD_BACK = frozenset({"STOPPING", "HELD", "LATCHED"})
MOST_BEFORE = 500  # entries kept: the last ones before it began,
MOST_HEAD = 4000  # the first ones since,
MOST_TAIL = 500  # and the latest
QUOTED = "kernel: "  # so begins the reason of an edge that a kernel line brought
PRECURSOR_SECONDS = 10.0  # as long as edges share a dump, they belong together

Order = tuple[int, int]  # boot, microseconds in it


def event(entry: Entry) -> Event | None:
    """None for records that are no happening: checkpoints, inventories, lacks, remarks, runs (see `of_runs`)."""
    maker = _MAKERS.get(entry.kind)
    return maker(entry) if maker else None


def _event(entry: Entry, source: str, kind: str, text: str, severity: Severity = Severity.INFO) -> Event:
    return Event(entry.id, entry.wall, entry.boot_id, source, kind, severity, text)


def _transition(entry: Entry) -> Event | None:
    body = entry.body
    subject, after = facts.subject(facts.text(body, "subject")), facts.status(body, "after")
    if subject is None or after is None:
        return None
    severity = facts.severity(body) if after is Status.TRUE else Severity.INFO
    plain = _event(entry, "watch", facts.text(body, "type"), facts.text(body, "reason"), severity)
    return replace(
        plain,
        subject=subject,
        pci=str(subject.pci) if subject.pci else None,
        before=facts.status(body, "before"),
        status=after,
        not_before=facts.time(body, "not_before"),
        incident=entry.incident,
    )


def _kernel(entry: Entry) -> Event:
    body = entry.body
    plain = _event(entry, "kernel", facts.text(body, "kind"), facts.text(body, "text"), facts.severity(body))
    return replace(
        plain,
        pci=facts.address(facts.text(body, "pci")),
        injected=body.get("injected") is True,
        repeated=facts.number(body, "repeated") or 1,
        refers_to=f"{facts.number(body, 'seq')}",
    )


def _action(entry: Entry) -> Event:
    about = (facts.text(entry.body, key) for key in ("unit", "step", "target"))
    plain = _event(entry, "action", facts.text(entry.body, "kind"), " ".join(filter(None, about)))
    return replace(plain, refers_to=facts.text(entry.body, "for"))


def _outcome(entry: Entry) -> Event:
    body = entry.body
    result, took, detail = facts.text(body, "result"), facts.number(body, "took_ms"), facts.text(body, "detail")
    text = result + (f" in {took} ms" if took is not None else "") + (f": {detail}" if detail else "")
    severity = Severity.INFO if result == "ok" else Severity.WARNING
    return replace(_event(entry, "outcome", "outcome", text, severity), refers_to=facts.text(body, "for"))


def _gap(entry: Entry) -> Event:
    lost, source = facts.number(entry.body, "lost"), facts.text(entry.body, "source")
    return _event(entry, "gap", source, f"{lost} records of {source} were not kept", Severity.WARNING)


def _opened(entry: Entry) -> Event:
    return _event(entry, "incident", "opened", f"incident {entry.incident or facts.text(entry.body, 'incident')} opened")


def _closed(entry: Entry) -> Event:
    return _event(entry, "incident", "closed", f"incident {entry.incident or facts.text(entry.body, 'incident')} closed: all good again")


def _uevent(entry: Entry) -> Event:
    action, subsystem, name = (facts.text(entry.body, key) for key in ("action", "subsystem", "name"))
    return replace(
        _event(entry, "uevent", action, f"{subsystem} {name}: {action}" if name else f"{subsystem}: {action}"), pci=facts.address(name)
    )


def _note(entry: Entry) -> Event | None:
    return None if is_remark(entry) else _event(entry, "person", "note", facts.text(entry.body, "text"))


def _gate(entry: Entry) -> Event | None:
    """Another reason for the same state is told with the engine, not here."""
    unit, before, state, why = (facts.text(entry.body, key) for key in ("unit", "before", "state", "why"))
    if before == state:
        return None
    text = f"{unit} {f'{before} -> ' if before else ''}{state}{f': {why}' if why else ''}"
    return _event(entry, "gate", state, text, Severity.WARNING if state in HELD_BACK else Severity.INFO)


def _maintenance(entry: Entry) -> Event:
    until, reason, by = (facts.text(entry.body, key) for key in ("until", "reason", "by"))
    text = f"maintenance until {until}, by {by}: {reason}" if until else f"maintenance is over{f', by {by}' if by else ''}"
    return _event(entry, "gate", "maintenance", text)


def _settings(entry: Entry) -> Event:
    return _event(entry, "run", "settings", "configuration read anew")


_MAKERS: Mapping[str, Callable[[Entry], Event | None]] = {
    "transition": _transition,
    "kernel": _kernel,
    "action": _action,
    "outcome": _outcome,
    "gap": _gap,
    "opened": _opened,
    "closed": _closed,
    "uevent": _uevent,
    "note": _note,
    "settings": _settings,
    "gate": _gate,
    "maintenance": _maintenance,
}


def of_runs(runs: Iterable[Run]) -> list[tuple[int, Event]]:
    """Starts, ends, restarts of the host, and ends without a word at the last that is known of them; each with its monotonic time."""
    events: list[tuple[int, Event]] = []
    before: Run | None = None
    for run in runs:
        if before is not None and before.stopped is None:
            text = "the run ended without a word (killed, crashed, or the host went down); this is the last that is on record of it"
            events.append((before.last_us, Event("", before.last, before.boot_id, "run", "unclean-end", Severity.WARNING, text)))
        if before is not None and before.boot_id != run.boot_id:
            text = f"the host was restarted (boot {run.boot_id[:8]}): what was seen before says nothing about now"
            events.append((run.began_us, Event("", run.began, run.boot_id, "run", "boot", Severity.INFO, text)))
        if run.version:
            started = Event("", run.began, run.boot_id, "run", "started", Severity.INFO, f"xidwatch {run.version} started")
            events.append((run.began_us, started))
        if run.stopped is not None:
            text = f"xidwatch stopped ({run.why})" if run.why else "xidwatch stopped"
            events.append((run.last_us, Event("", run.stopped, run.boot_id, "run", "stopped", Severity.INFO, text)))
        before = run
    return events


class Timeline:
    """Collects the entries of one window, bounded: what is left out is counted.

    `ranks`: the boots in their order. Entries arrive in the order of the files.
    """

    def __init__(self, ranks: Mapping[str, int], began: float) -> None:
        self._ranks = ranks
        self._began = began
        self._before: deque[tuple[Order, Event]] = deque(maxlen=MOST_BEFORE)
        self._head: list[tuple[Order, Event]] = []
        self._tail: deque[tuple[Order, Event]] = deque(maxlen=MOST_TAIL)
        self._reached: dict[str, int] = {}
        self._seen_seq: set[tuple[str, str]] = set()
        self._taken = 0

    def take(self, entry: Entry) -> None:
        """One record; what is no happening is passed over."""
        found = event(entry)
        if found is not None:
            self.add(self._mark_repeat(found), entry.mono_us)

    def add(self, found: Event, microseconds: int | None) -> None:
        """One entry and its monotonic time; without one it stays behind its predecessor."""
        if microseconds is None:
            microseconds = self._reached.get(found.boot_id, 0)
        self._reached[found.boot_id] = microseconds
        placed = ((self._ranks.get(found.boot_id, -1), microseconds), found)
        self._taken += 1
        if found.wall < self._began:
            self._before.append(placed)
        elif len(self._head) < MOST_HEAD:
            self._head.append(placed)
        else:
            self._tail.append(placed)

    def finish(self) -> tuple[tuple[Event, ...], int]:
        """In order, and how many were left out."""
        kept = [*self._before, *self._head, *self._tail]
        kept.sort(key=lambda pair: pair[0])
        instants = groupby(kept, key=lambda pair: (pair[0], pair[1].wall))
        events = [found for _, together in instants for found in causes_first([found for _, found in together])]
        return tuple(events), self._taken - len(kept)

    def _mark_repeat(self, found: Event) -> Event:
        """Repeats are recorded at the next tick, under the number of the record that was written when it first came."""
        if found.source != "kernel":
            return found
        key = (found.boot_id, found.refers_to)
        if key in self._seen_seq:
            again = "once more" if found.repeated == 1 else f"{found.repeated} times more"
            return replace(found, text=f"{again} since: {found.text}")
        self._seen_seq.add(key)
        return found


def causes_first(instant: list[Event]) -> list[Event]:
    """Entries of one instant, each kernel record above what followed from it; else they keep their order.

    In the journal a kernel line's edges come before its record, so that a record on disk means that it was dealt with.
    """
    waiting = [found for found in instant if found.source == "kernel"]
    ordered: list[Event] = []
    for found in instant:
        cause = _cause(found, waiting, first=not ordered)
        if cause is not None:
            waiting.remove(cause)
            ordered.append(cause)
        if found.source != "kernel":
            ordered.append(found)
    return ordered


def _cause(found: Event, waiting: list[Event], *, first: bool) -> Event | None:
    """The kernel record to be shown now: that of a line which an edge quotes, and in any case one above all else."""
    if found.source == "kernel":
        return found if found in waiting else None
    if found.text.startswith(QUOTED):
        text = found.text.removeprefix(QUOTED)
        quoted = next((each for each in waiting if each.text == text), None)
        if quoted is not None:
            return quoted
    return waiting[0] if waiting and first else None


def mark_first_bad(events: tuple[Event, ...], incident: str, horizon: float) -> tuple[Event, ...]:
    """The first entry that is bad: a kernel event from `horizon` on, or an edge of this incident."""
    for index, found in enumerate(events):
        told = found.source == "kernel" and not found.injected and found.severity.rank >= Severity.WARNING.rank and found.wall >= horizon
        if told or (found.is_bad_edge and found.incident == incident):
            return (*events[:index], replace(found, first_bad=True), *events[index + 1 :])
    return events
