"""The heart: `step(rules, state, input) -> (state', outputs)`.

Law: pure. Everything the daemon learns comes in as one of the inputs below; everything it records or does goes out
as one of the outputs, in the order in which it has to be written down. A decision is always behind the edge it
follows from, and nothing here waits, reads or writes.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace

from xidwatch.core import acceptance, aer, edges, health, learning, recovering, roster, supervision, tally
from xidwatch.core.health import Tracked
from xidwatch.core.messages import (
    Announced,
    BaselineAccepted,
    ConditionKey,
    DriverRenewed,
    DumpFailed,
    Gap,
    Input,
    Inventoried,
    KernelLogUnreadable,
    KernelRead,
    KernelRecord,
    Learnt,
    Looked,
    Maintained,
    MaintenanceSet,
    Output,
    RecoveryEnded,
    Restored,
    Row,
    SampleTaken,
)
from xidwatch.core.model import (
    KERNEL,
    PCI_KINDS,
    Action,
    ActionKind,
    Condition,
    KernelEvent,
    Missing,
    Moment,
    Readings,
    Sample,
    Severity,
    Status,
    Subject,
    Transition,
    Value,
)
from xidwatch.core.rules import Rule
from xidwatch.core.state import State, Step

__all__ = ["State", "conditions_with_severity", "next_id", "step", "verdict"]

SECONDS_BETWEEN_LOOKS = 1.0
FATAL_LINES, LOST_LINES = "driver_fatal_lines", "bus_lost_lines"


def step(rules: tuple[Rule, ...], state: State, given: Input) -> tuple[State, tuple[Output, ...]]:  # noqa: C901, PLR0912  one case an input
    """The next state, and what has to be written and done, in order."""
    now = Step(rules, state)
    match given:
        case Restored():
            _restore(now, given)
        case SampleTaken(sample=sample):
            _sample(now, sample)
        case Looked(at=at, readings=readings):
            _looked(now, readings, at)
        case Inventoried(at=at, inventory=inventory):
            _inventoried(now, inventory, at)
        case Announced(at=at, cause=cause):
            _look(now, at, cause)
        case KernelRead():
            _kernel(now, given)
        case KernelLogUnreadable(why=why):
            now.change(tally=replace(state.tally, unreadable=why))
        case DriverRenewed(at=at):
            _renewed(now, at)
        case BaselineAccepted():
            _accept(now, given)
        case DumpFailed(incident=name):
            edges.dump_failed(now, name)
        case MaintenanceSet():
            _maintain(now, given)
        case RecoveryEnded(at=at) if recovering.renews_driver(state, given):
            _renewed(now, at)
    if not isinstance(given, KernelRead) or now.own_conditions is not None:  # most lines move nothing
        supervision.turn(now, given, now_at(given))
        recovering.turn(now, given, now_at(given))
    return now.done()


def now_at(given: Input) -> Moment | None:
    """When what is told of was so; None for what is told of no time."""
    return given.sample.at if isinstance(given, SampleTaken) else getattr(given, "at", None)


# ------------------------------------------------------------------------------------------------------------- inputs


def _restore(now: Step, given: Restored) -> None:
    members = given.incident.members if given.incident else frozenset()
    kinds = {rule.type: frozenset(rule.when) for rule in now.rules}
    conditions = {
        key: Tracked(condition, was_true=condition.status is Status.TRUE or key in members)
        for key, condition in given.conditions.items()
        if condition.subject.kind in kinds.get(condition.type, ())
    }
    fatal, lost = (_true_of(given.conditions, type_) for type_ in ("DriverFatalXid", "GpuLost"))
    now.change(
        conditions=conditions,
        incident=given.incident,
        next_id=max(given.next_id, now.state.next_id),
        expected=given.expected,
        dumps=given.dumps,
        driver_released=bool(fatal),
        inventory=given.inventory,
        roster=roster.Roster(given.members or {}, anew=given.members is None, accepted=given.accepted),
        tally=replace(now.state.tally, standing=fatal, standing_lost=lost),
    )


def _true_of(conditions: Mapping[ConditionKey, Condition], type_: str) -> frozenset[Subject]:
    return frozenset(subject for (subject, of), condition in conditions.items() if of == type_ and condition.status is Status.TRUE)


def _sample(now: Step, sample: Sample) -> None:
    now.change(tally=tally.proven(now.state.tally, _answering(sample.readings)))
    complete = {**sample.readings, KERNEL: tally.kernel_readings(now.state.tally, sample.at)}
    now.change(readings=complete)  # what is not in it has not been read: an older value would pass for fresh
    now.change(errors=aer.counted(now.state.errors, complete, sample.at))
    _learn(now, sample.at, roster.listing(complete))
    everything = complete.keys() | {subject for subject, _ in now.conditions} | tally.accused(now.state.tally) | now.state.roster.absent
    strangers = _strangers(now)
    edges.judge(now, dict.fromkeys(everything - strangers), sample.at, polled=True)
    edges.retire(now, strangers, sample.at)
    edges.close_if_over(now, sample.at)
    incident = now.state.incident
    if incident is not None and incident.dumps == 0:  # the run that opened it ended before it could ask, or the disk refused
        edges.dump(now, incident, incident.trigger, sample.at)
    fresh, repeats, suppressed = tally.flush(now.state.tally)
    now.change(tally=fresh)
    for event in repeats:
        now.out.append(KernelRecord(now.id("k"), sample.at, event))
    if suppressed:
        now.out.append(Gap(now.id("g"), sample.at, "journal", suppressed))
    now.out.append(Row(replace(sample, readings=complete)))


def _looked(now: Step, readings: Readings, at: Moment) -> None:
    listed = roster.listing(readings)
    before = now.state.readings
    if not isinstance(listed, Missing):  # whom a complete list does not name is not there any more
        gone = {subject: {"present": 0} for subject, values in before.items() if values.get("present") == 1 and subject.kind in PCI_KINDS}
        readings = {**gone, **readings}
    _merge(now, readings)
    _learn(now, at, listed)
    news: dict[Subject, Collection[str]] = {**dict.fromkeys(now.state.roster.absent, ("present",)), **readings}
    strangers = _strangers(now)
    edges.judge(now, {subject: names for subject, names in news.items() if subject not in strangers}, at, polled=False)
    edges.close_if_over(now, at)


def _inventoried(now: Step, inventory: Readings, at: Moment) -> None:
    """Who a device is and what its link could do is known only now."""
    now.change(inventory={subject: facts for subject, facts in inventory.items() if subject.kind in PCI_KINDS})
    _learn(now, at, now.state.roster.listed)
    edges.judge(now, dict.fromkeys(now.state.roster.facts, ("present", "identity", "capable_link_width")), at, polled=False)
    edges.close_if_over(now, at)


def _accept(now: Step, given: BaselineAccepted) -> None:
    """From here on nothing is added to who should be there; what that changes for anybody is judged at once."""
    known = acceptance.candidate(now.state, anew=given.anew)
    now.change(roster=known)
    now.out.append(Learnt(given.at, now.state.expected, known.members))
    edges.judge(now, dict.fromkeys(known.facts, ("present", "identity", "link_width", "in_baseline")), given.at, polled=False)
    edges.retire(now, _strangers(now), given.at)
    edges.close_if_over(now, given.at)


def _maintain(now: Step, given: MaintenanceSet) -> None:
    """The driver is let go at once, so that nothing here pins its module; when it is over, NVML is asked again as before."""
    now.change(maintenance=given.maintenance)
    now.out.append(Maintained(now.id("e"), given.at, given.maintenance, given.by))
    if given.maintenance is not None:
        now.out.append(Action(now.id("a"), given.at, ActionKind.RELEASE_DRIVER, "maintenance"))


def _renewed(now: Step, at: Moment) -> None:
    now.change(tally=tally.release(now.state.tally), driver_released=False)
    accused = tally.accused(now.state.tally)
    edges.judge(now, dict.fromkeys(accused, (FATAL_LINES, LOST_LINES)), at, polled=False)


def _kernel(now: Step, given: KernelRead) -> None:
    known = now.state.tally
    last_seq = known.last_seq if given.last_seq is None else given.last_seq
    recovering.note(now, (event for _, event in given.events))
    page = replace(known, unreadable=None, last_seq=last_seq, lost_since_tick=known.lost_since_tick + given.lost)
    page, events = tally.bounded(page, given.events, now.state.readings)
    if given.history:
        still_lost = {key[0] for key, held in now.conditions.items() if key[1] == "GpuLost" and held.condition.status is Status.TRUE}
        now.change(tally=tally.recall(page, events, still_lost=frozenset(still_lost)))
        _gap(now, given)
        return
    page, worth = tally.count(page, events)
    now.change(tally=page)
    _gap(now, given)
    for (at, event), deserves_record in zip(events, worth, strict=True):
        _event(now, event, at, given.at, deserves_record=deserves_record)


def _gap(now: Step, given: KernelRead) -> None:
    if given.lost:
        now.out.append(Gap(now.id("g"), given.at, "kmsg", given.lost))
        seen = {KERNEL: tally.kernel_readings(now.state.tally, given.at)}
        _merge(now, seen)
        edges.judge(now, seen, given.at, polled=False)


def _event(now: Step, event: KernelEvent, at: Moment, read_at: Moment, *, deserves_record: bool) -> None:
    """`at`: when it was written; `read_at`: now. What a backlog asks for is asked for now, and once."""
    before = len(now.out)
    news = [name for name, told in ((FATAL_LINES, event.driver_fatal), (LOST_LINES, event.bus_lost)) if told and not event.injected]
    if news:
        edges.judge(now, {tally.subject_of(event): news}, at, polled=False, because=event.text)
    if deserves_record:  # behind its edges: once it is on disk a successor takes the line for dealt with
        now.out.append(KernelRecord(now.id("k"), at, event))
    if event.injected:
        return
    if event.kind == "xid":
        supervision.note_xid(now, tally.subject_of(event), at)
    cause = _cause(now.out[before:], event)
    # A lost switch brings hundreds of lines; one look answers them all.
    if (news or tally.asks_for_a_look(event)) and read_at.mono - now.state.looked_at >= SECONDS_BETWEEN_LOOKS:
        _look(now, read_at, cause)
    if event.driver_fatal and not now.state.driver_released:
        now.change(driver_released=True)
        now.out.append(Action(now.id("a"), read_at, ActionKind.RELEASE_DRIVER, cause))


def _look(now: Step, at: Moment, cause: str) -> None:
    now.change(looked_at=at.mono)
    now.out.append(Action(now.id("a"), at, ActionKind.LOOK, cause))


def _cause(written: list[Output], event: KernelEvent) -> str:
    """The edge that came of an event, else its record; a repeat that has neither is named by its place in the log."""
    edges = [output.id for output in written if isinstance(output, Transition)]
    records = [output.id for output in written if isinstance(output, KernelRecord)]
    return (edges or records or [f"seq-{event.seq}"])[-1]


# ------------------------------------------------------------------------------------------------- readings, remembered


def _merge(now: Step, readings: Readings) -> None:
    merged = dict(now.state.readings)
    for subject, values in readings.items():
        merged[subject] = {**merged.get(subject, {}), **values}
    now.change(readings=merged)


def _answering(readings: Readings) -> frozenset[Subject]:
    """The GPUs that the driver has answered for."""
    return frozenset(subject for subject, values in readings.items() if subject.kind == "gpu" and values.get("nvml_status") == 0)


def _learn(now: Step, at: Moment, listed: Value) -> None:
    """Who is there, and what a device looks like while nothing is wrong: an incident is no time to learn what is normal."""
    state = now.state
    is_well = state.incident is None
    learnt = learning.news(state.readings, state.expected) if is_well else {}
    known = roster.renewed(state.roster, state.readings, state.inventory, listed, may_learn=is_well)
    now.change(expected={**state.expected, **learnt} if learnt else state.expected, roster=known)
    if learnt or known.members != state.roster.members:
        now.out.append(Learnt(at, now.state.expected, known.members))


def _strangers(now: Step) -> frozenset[Subject]:
    """Whom nobody would ever judge again. What the kernel log has said stands."""
    judged = {subject for subject, _ in now.conditions if subject.kind in PCI_KINDS}
    return now.state.roster.strangers(judged, now.state.readings) - tally.accused(now.state.tally)


# -------------------------------------------------------------------------------------------------------------- views


def conditions_with_severity(rules: tuple[Rule, ...], state: State) -> list[tuple[Condition, Rule]]:
    """For views: every condition with the rule it belongs to."""
    by_type = {rule.type: rule for rule in rules}
    return [(tracked.condition, by_type[key[1]]) for key, tracked in state.conditions.items() if key[1] in by_type]


def verdict(rules: tuple[Rule, ...], state: State) -> str:
    """healthy, degraded, failed or unknown; no better than its open incident, until that has been seen to be over."""
    now = health.verdict((condition, rule.severity) for condition, rule in conditions_with_severity(rules, state))
    if state.incident is None:
        return now
    return "failed" if state.incident.severity is Severity.CRITICAL or now == "failed" else "degraded"


def next_id(state: State, letter: str) -> tuple[State, str]:
    """A fresh record id outside a step, from the same count."""
    return replace(state, next_id=state.next_id + 1), f"{letter}-{state.next_id:06d}"
