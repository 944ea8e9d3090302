"""What the kernel log has said so far, as numbers the rules can look at.

Law: counting and folding of kernel events, pure. It forgets only at `release` (a fresh driver) and at a new boot.
A batch is counted in one go and the books are copied once for it: in a flood a line costs the same as any other time.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace

from xidwatch.core.model import KernelEvent, Missing, Moment, PciAddress, Severity, Subject, Value

XID_WINDOW_SECONDS = 45
RECORDS_PER_TICK = 500  # distinct events written out between two ticks; a flood beyond is counted, not written
INJECTED_PER_TICK = 100  # the same for what processes write: a budget of its own, so that it never crowds out the kernel
MOST_HEADS = 2000  # of them, however unlike each other: past it also what has not been seen in any form is counted only
MOST_NAMED = 256  # addresses the log may name beside the GPUs that are there: what it says of a further one, it says of the driver
DRIVER = Subject("driver", "nvidia")
LOOK_KINDS = frozenset({"aer", "dpc", "pciehp", "uvm_fatal", "power_state"})

FoldKey = tuple[str, int | None, PciAddress | None, str]
Folds = Mapping[FoldKey, tuple[KernelEvent, int]]  # the latest of each distinct event since the last tick, and how often again


@dataclass(frozen=True, slots=True)
class Tally:
    """Counters over the kernel log of this boot. `unreadable` says why there is no log to count."""

    unreadable: Missing | None = None
    last_seq: int | None = None
    recent_xids: tuple[tuple[int, int], ...] = ()  # (whole monotonic second, Xid records in it), oldest first
    xids_since_tick: int = 0
    lost_since_tick: int = 0
    totals: Mapping[tuple[PciAddress, int], int] = field(default_factory=dict)  # by GPU and Xid, never injected ones
    last_xid_wall: Mapping[PciAddress, float] = field(default_factory=dict)  # seconds since the epoch
    driver_fatal: Mapping[Subject, int] = field(default_factory=dict)
    bus_lost: Mapping[Subject, int] = field(default_factory=dict)
    asked: Mapping[Subject, str] = field(default_factory=dict)  # what the last Xid 154 of each asks for, in the driver's words
    standing: frozenset[Subject] = frozenset()  # found fatal by an earlier run of this boot, whether or not the log still reaches back
    standing_lost: frozenset[Subject] = frozenset()  # the same of lost ones, until the driver answers for them
    unproven: frozenset[Subject] = frozenset()  # accused of an earlier driver, and not heard of under the new one
    folds: Folds = field(default_factory=dict)
    injected: Folds = field(default_factory=dict)
    suppressed: int = 0
    named: frozenset[PciAddress] = frozenset()  # all addresses that were taken for one of a GPU


def subject_of(event: KernelEvent) -> Subject:
    """Whom an event is about: the GPU it names, else the NVIDIA driver as a whole."""
    return Subject("gpu", str(event.pci)) if event.pci else DRIVER


def bounded(
    tally: Tally, events: Iterable[tuple[Moment, KernelEvent]], seen: Collection[Subject]
) -> tuple[Tally, list[tuple[Moment, KernelEvent]]]:
    """The events with no more addresses than a host can have: in a log gone mad each would cost conditions and series for ever.

    `seen`: who has answered for itself is named in any case. Of what is taken from an event its text keeps all.
    """
    named = set(tally.named)
    kept = []
    for at, event in events:
        if event.pci and not event.injected and event.pci not in named:
            if len(named) < MOST_NAMED or Subject("gpu", str(event.pci)) in seen:
                named.add(event.pci)
            else:
                event = replace(event, pci=None)  # noqa: PLW2901
        kept.append((at, event))
    return (tally if len(named) == len(tally.named) else replace(tally, named=frozenset(named))), kept


def asks_for_a_look(event: KernelEvent) -> bool:
    """Whether a device may have gone. A corrected error has cost nothing, and a poor link brings one every second for years."""
    return event.kind in LOOK_KINDS and event.severity is not Severity.INFO


def count(tally: Tally, events: Iterable[tuple[Moment, KernelEvent]]) -> tuple[Tally, tuple[bool, ...]]:
    """Further events, in order; the flags say which of them deserve a record of their own."""
    page = _Page(tally)
    worth = tuple(page.take(at, event) for at, event in events)
    return page.tally(), worth


class _Page:
    """A tally under way over one batch: the only mutable thing here, and it never leaves this module."""

    def __init__(self, tally: Tally) -> None:
        self._before = tally
        self._recent = dict(tally.recent_xids)
        self._xids = tally.xids_since_tick
        self._totals = dict(tally.totals)
        self._last_wall = dict(tally.last_xid_wall)
        self._driver_fatal = dict(tally.driver_fatal)
        self._bus_lost = dict(tally.bus_lost)
        self._asked = dict(tally.asked)
        self._folds = dict(tally.folds)
        self._injected = dict(tally.injected)
        self._heads = {key[:3] for key in tally.folds}
        self._suppressed = tally.suppressed

    def take(self, at: Moment, event: KernelEvent) -> bool:
        """One more event; does it deserve a record? An injected one adds to nothing that a rule looks at."""
        if event.injected:
            return self._is_new(self._injected, event, INJECTED_PER_TICK)
        if event.kind == "xid" and event.xid is not None:
            self._xid(at, event)
        if event.driver_fatal:
            _add(self._driver_fatal, subject_of(event))
        if event.bus_lost and event.pci:
            _add(self._bus_lost, subject_of(event))
        return self._is_new(self._folds, event, RECORDS_PER_TICK)

    def _xid(self, at: Moment, event: KernelEvent) -> None:
        self._xids += 1
        self._recent[int(at.mono)] = self._recent.get(int(at.mono), 0) + 1
        if event.pci and event.xid is not None:
            key = (event.pci, event.xid)
            self._totals[key] = self._totals.get(key, 0) + 1
            self._last_wall[event.pci] = at.wall
        if event.recovery:
            self._asked[subject_of(event)] = event.recovery

    def _is_new(self, folds: dict[FoldKey, tuple[KernelEvent, int]], event: KernelEvent, limit: int) -> bool:
        key: FoldKey = (event.kind, event.xid, event.pci, event.text)
        seen = folds.get(key)
        if seen is not None:
            folds[key] = (event, seen[1] + 1)  # the latest: its number in the log is how far the record of the repeats reaches
            return False
        if len(folds) >= limit and (event.injected or key[:3] in self._heads or len(folds) >= MOST_HEADS):
            self._suppressed += 1
            return False
        folds[key] = (event, 0)
        if not event.injected:
            self._heads.add(key[:3])
        return True

    def tally(self) -> Tally:
        """As it stands now."""
        return replace(
            self._before,
            recent_xids=_window(self._recent),
            xids_since_tick=self._xids,
            totals=self._totals,
            last_xid_wall=self._last_wall,
            driver_fatal=self._driver_fatal,
            bus_lost=self._bus_lost,
            asked=self._asked,
            folds=self._folds,
            injected=self._injected,
            suppressed=self._suppressed,
        )


def _add(counts: dict[Subject, int], subject: Subject) -> None:
    counts[subject] = counts.get(subject, 0) + 1


def _window(recent: Mapping[int, int]) -> tuple[tuple[int, int], ...]:
    """What can still matter: a backlog may reach hours back."""
    newest = max(recent, default=0)
    return tuple(sorted((second, xids) for second, xids in recent.items() if newest - second <= XID_WINDOW_SECONDS))


def flush(tally: Tally) -> tuple[Tally, tuple[KernelEvent, ...], int]:
    """At a tick: the repeats since the last one (as events with `repeated`), how many were not written at all, and a fresh page."""
    folded = (*tally.folds.values(), *tally.injected.values())
    repeats = tuple(replace(event, repeated=again) for event, again in folded if again)
    fresh = replace(tally, xids_since_tick=0, lost_since_tick=0, folds={}, injected={}, suppressed=0)
    return fresh, repeats, tally.suppressed


def recall(tally: Tally, events: Iterable[tuple[Moment, KernelEvent]], *, still_lost: frozenset[Subject]) -> Tally:
    """Records that an earlier run of this boot has dealt with: they accuse only whom its verdict still stands against."""
    told = [(at, _as_it_stands(event, tally.standing, still_lost)) for at, event in events]
    counted, _ = count(tally, told)
    return replace(
        counted,
        xids_since_tick=tally.xids_since_tick,
        folds=tally.folds,
        injected=tally.injected,
        suppressed=tally.suppressed,
    )


def _as_it_stands(event: KernelEvent, still_fatal: frozenset[Subject], still_lost: frozenset[Subject]) -> KernelEvent:
    subject = subject_of(event)
    fatal, lost = subject in still_fatal, subject in still_lost
    asks = event.recovery if fatal or lost else None  # else it may have been done since, which no line says
    return replace(event, driver_fatal=event.driver_fatal and fatal, bus_lost=event.bus_lost and lost, recovery=asks)


def release(tally: Tally) -> Tally:
    """A fresh driver: what the old one said about devices no longer holds, and the new one has said nothing yet."""
    nobody: frozenset[Subject] = frozenset()
    return replace(tally, driver_fatal={}, bus_lost={}, asked={}, standing=nobody, standing_lost=nobody, unproven=accused(tally))


def proven(tally: Tally, answering: frozenset[Subject]) -> Tally:
    """These GPUs have answered through the driver; the driver as a whole has when one of them did."""
    if not answering or not (tally.unproven or tally.standing_lost):
        return tally
    return replace(tally, unproven=tally.unproven - answering - {DRIVER}, standing_lost=tally.standing_lost - answering)


def kernel_readings(tally: Tally, at: Moment) -> Mapping[str, Value]:
    """The readings of subject `kernel`."""
    if tally.unreadable is not None:
        names = ("xid_lines_45s", "xid_lines_since_last_tick", "last_seq", "gap_records")
        return dict.fromkeys(names, tally.unreadable)
    return {
        "xid_lines_45s": sum(xids for second, xids in tally.recent_xids if int(at.mono) - second <= XID_WINDOW_SECONDS),
        "xid_lines_since_last_tick": tally.xids_since_tick,
        "last_seq": tally.last_seq if tally.last_seq is not None else Missing.NOT_ASKED,
        "gap_records": tally.lost_since_tick,
    }


def device_readings(tally: Tally, subject: Subject) -> Mapping[str, Value]:
    """What the log says about one GPU, or about the driver. What it has said stands, even when it can no longer be read."""
    unknown = tally.unreadable or (Missing.NOT_ASKED if subject in tally.unproven else None)
    fatal = tally.driver_fatal.get(subject, 0) or int(subject in tally.standing)
    lost = tally.bus_lost.get(subject, 0) or int(subject in tally.standing_lost)
    return {"driver_fatal_lines": fatal or unknown or 0, "bus_lost_lines": lost or unknown or 0}


def accused(tally: Tally) -> frozenset[Subject]:
    """Everything the log has named, and that no new driver has cleared."""
    return tally.standing | tally.standing_lost | tally.unproven | frozenset(tally.driver_fatal) | frozenset(tally.bus_lost)
