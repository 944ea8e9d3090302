"""The heart: `step(rules, state, input) -> (state', outputs)`.

Law: pure. Everything the daemon learns comes in as one of the inputs below; everything it records or does goes out
as one of the outputs, in the order in which it has to be written down. A decision is always behind the edge it
follows from, and nothing here waits, reads or writes.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace

from xidwatch.core import health, incidents, learning, tally
from xidwatch.core.expression import Facts
from xidwatch.core.health import Tracked
from xidwatch.core.messages import (
    Closed,
    ConditionKey,
    DriverRenewed,
    DumpFailed,
    Gap,
    Input,
    KernelLogUnreadable,
    KernelRead,
    KernelRecord,
    Learnt,
    Looked,
    Opened,
    Output,
    Restored,
    Row,
    SampleTaken,
)
from xidwatch.core.model import (
    KERNEL,
    Action,
    ActionKind,
    Condition,
    Incident,
    KernelEvent,
    Moment,
    Readings,
    Sample,
    Severity,
    Status,
    Subject,
    Transition,
    Value,
)
from xidwatch.core.rules import Rule, judge
from xidwatch.core.tally import Tally

SECONDS_BETWEEN_LOOKS = 1.0
DRIVER_KINDS = ("gpu", "driver")
FATAL_LINES, LOST_LINES = "driver_fatal_lines", "bus_lost_lines"
# From the root down: an incident is named after the topmost thing that is bad, not after what cannot answer because of it.
KIND_ORDER = ("port", "gpu", "nvme", "driver", "rail", "chip", "host", "kernel", "probe")


@dataclass(frozen=True, slots=True)
class State:
    """What the watch knows. Replaced, never changed."""

    conditions: Mapping[ConditionKey, Tracked] = field(default_factory=dict)
    readings: Readings = field(default_factory=dict)  # of the latest tick, and of looks since
    expected: Readings = field(default_factory=dict)  # as learnt while healthy
    tally: Tally = field(default_factory=Tally)
    incident: Incident | None = None
    dumps: tuple[float, ...] = ()  # wall times of the last day's dumps
    driver_released: bool = False
    looked_at: float = float("-inf")  # monotonic time of the last immediate look asked for
    next_id: int = 1


@dataclass(slots=True)
class _Step:
    """One step under way: the only mutable thing here, and it never leaves this module."""

    rules: tuple[Rule, ...]
    state: State
    out: list[Output] = field(default_factory=list)
    own_conditions: dict[ConditionKey, Tracked] | None = None  # copied at the first change, so that most steps copy nothing

    def change(self, **changes: object) -> None:
        self.state = replace(self.state, **changes)  # type: ignore[arg-type]

    @property
    def conditions(self) -> Mapping[ConditionKey, Tracked]:
        return self.state.conditions if self.own_conditions is None else self.own_conditions

    def hold(self, key: ConditionKey, tracked: Tracked) -> None:
        if self.own_conditions is None:
            self.own_conditions = dict(self.state.conditions)
        self.own_conditions[key] = tracked

    def id(self, letter: str) -> str:
        number = self.state.next_id
        self.change(next_id=number + 1)
        return f"{letter}-{number:06d}"

    def done(self) -> tuple[State, tuple[Output, ...]]:
        if self.own_conditions is not None:
            self.change(conditions=self.own_conditions)
        return self.state, tuple(self.out)


def step(rules: tuple[Rule, ...], state: State, given: Input) -> tuple[State, tuple[Output, ...]]:
    """The next state, and what has to be written and done, in order."""
    now = _Step(rules, state)
    match given:
        case Restored():
            _restore(now, given)
        case SampleTaken(sample=sample):
            _sample(now, sample)
        case Looked(at=at, readings=readings):
            _looked(now, readings, at)
        case KernelRead():
            _kernel(now, given)
        case KernelLogUnreadable(why=why):
            now.change(tally=replace(state.tally, unreadable=why))
        case DriverRenewed(at=at):
            _renewed(now, at)
        case DumpFailed(incident=name):
            _dump_failed(now, name)
    return now.done()


# ------------------------------------------------------------------------------------------------------------- inputs


def _restore(now: _Step, given: Restored) -> None:
    members = given.incident.members if given.incident else frozenset()
    kinds = {rule.type: frozenset(rule.when) for rule in now.rules}
    conditions = {
        key: Tracked(condition, was_true=condition.status is Status.TRUE or key in members)
        for key, condition in given.conditions.items()
        if condition.subject.kind in kinds.get(condition.type, ())
    }
    fatal = frozenset(key[0] for key, c in given.conditions.items() if key[1] == "DriverFatalXid" and c.status is Status.TRUE)
    now.change(
        conditions=conditions,
        incident=given.incident,
        next_id=max(given.next_id, now.state.next_id),
        expected=given.expected,
        dumps=given.dumps,
        driver_released=bool(fatal),
        tally=replace(now.state.tally, standing=fatal),
    )


def _sample(now: _Step, sample: Sample) -> None:
    now.change(tally=tally.proven(now.state.tally, _answering(sample.readings)))
    complete = {**sample.readings, KERNEL: tally.kernel_readings(now.state.tally, sample.at)}
    now.change(readings=complete)  # what is not in it has not been read: an older value would pass for fresh
    _learn(now, sample.at)
    everything = complete.keys() | {subject for subject, _ in now.conditions} | tally.accused(now.state.tally)
    _judge(now, dict.fromkeys(everything), sample.at, polled=True)
    _close_if_over(now, sample.at)
    incident = now.state.incident
    if incident is not None and incident.dumps == 0:  # the run that opened it ended before it could ask, or the disk refused
        _dump(now, incident, incident.trigger, sample.at)
    fresh, repeats, suppressed = tally.flush(now.state.tally)
    now.change(tally=fresh)
    for event in repeats:
        now.out.append(KernelRecord(now.id("k"), sample.at, event))
    if suppressed:
        now.out.append(Gap(now.id("g"), sample.at, "journal", suppressed))
    now.out.append(Row(replace(sample, readings=complete)))


def _looked(now: _Step, readings: Readings, at: Moment) -> None:
    _merge(now, readings)
    _judge(now, readings, at, polled=False)
    _close_if_over(now, at)


def _renewed(now: _Step, at: Moment) -> None:
    now.change(tally=tally.release(now.state.tally), driver_released=False)
    accused = tally.accused(now.state.tally)
    _judge(now, dict.fromkeys(accused, (FATAL_LINES, LOST_LINES)), at, polled=False)


def _kernel(now: _Step, given: KernelRead) -> None:
    known = now.state.tally
    last_seq = known.last_seq if given.last_seq is None else given.last_seq
    page = replace(known, unreadable=None, last_seq=last_seq, lost_since_tick=known.lost_since_tick + given.lost)
    if given.history:
        still_lost = {key[0] for key, held in now.conditions.items() if key[1] == "GpuLost" and held.condition.status is Status.TRUE}
        now.change(tally=tally.recall(page, given.events, still_lost=frozenset(still_lost)))
        _gap(now, given)
        return
    page, worth = tally.count(page, given.events)
    now.change(tally=page)
    _gap(now, given)
    for (at, event), deserves_record in zip(given.events, worth, strict=True):
        _event(now, event, at, given.at, deserves_record=deserves_record)


def _gap(now: _Step, given: KernelRead) -> None:
    if given.lost:
        now.out.append(Gap(now.id("g"), given.at, "kmsg", given.lost))
        seen = {KERNEL: tally.kernel_readings(now.state.tally, given.at)}
        _merge(now, seen)
        _judge(now, seen, given.at, polled=False)


def _event(now: _Step, event: KernelEvent, at: Moment, read_at: Moment, *, deserves_record: bool) -> None:
    """`at`: when it was written; `read_at`: now. What a backlog asks for is asked for now, and once."""
    before = len(now.out)
    news = [name for name, told in ((FATAL_LINES, event.driver_fatal), (LOST_LINES, event.bus_lost)) if told and not event.injected]
    if news:
        _judge(now, {tally.subject_of(event): news}, at, polled=False, because=event.text)
    if deserves_record:  # behind its edges: once it is on disk a successor takes the line for dealt with
        now.out.append(KernelRecord(now.id("k"), at, event))
    if event.injected:
        return
    cause = _cause(now.out[before:], event)
    if news or tally.asks_for_a_look(event):
        _look(now, read_at, cause)
    if event.driver_fatal and not now.state.driver_released:
        now.change(driver_released=True)
        now.out.append(Action(now.id("a"), read_at, ActionKind.RELEASE_DRIVER, cause))


def _look(now: _Step, at: Moment, cause: str) -> None:
    if at.mono - now.state.looked_at < SECONDS_BETWEEN_LOOKS:  # a lost switch brings hundreds of lines; one look answers them all
        return
    now.change(looked_at=at.mono)
    now.out.append(Action(now.id("a"), at, ActionKind.LOOK, cause))


def _cause(written: list[Output], event: KernelEvent) -> str:
    """The edge that came of an event, else its record; a repeat that has neither is named by its place in the log."""
    edges = [output.id for output in written if isinstance(output, Transition)]
    records = [output.id for output in written if isinstance(output, KernelRecord)]
    return (edges or records or [f"seq-{event.seq}"])[-1]


# ------------------------------------------------------------------------------------------------- readings, remembered


def _merge(now: _Step, readings: Readings) -> None:
    merged = dict(now.state.readings)
    for subject, values in readings.items():
        merged[subject] = {**merged.get(subject, {}), **values}
    now.change(readings=merged)


def _answering(readings: Readings) -> frozenset[Subject]:
    """The GPUs that the driver has answered for."""
    return frozenset(subject for subject, values in readings.items() if subject.kind == "gpu" and values.get("nvml_status") == 0)


def _learn(now: _Step, at: Moment) -> None:
    """What a device looks like while nothing is wrong. Never during an incident: that is no time to learn what is normal."""
    if now.state.incident is not None:
        return
    learnt = learning.news(now.state.readings, now.state.expected)
    if learnt:
        now.change(expected={**now.state.expected, **learnt})
        now.out.append(Learnt(at, now.state.expected))


# ------------------------------------------------------------------------------------------------ conditions and edges


def _judge(now: _Step, news: Mapping[Subject, Collection[str] | None], at: Moment, *, polled: bool, because: str = "") -> None:
    """Every rule that looks at something new: the quantities just read of each subject, None for all there is.

    A rule none of whose quantities is new is not judged again: yesterday's reading is no evidence of today's health.
    """
    for subject in sorted(news, key=_from_the_root):
        fresh = news[subject]
        for rule in now.rules:
            expression = rule.when.get(subject.kind)
            if expression is not None and (fresh is None or any(name in fresh for name in expression.names)):
                _judge_one(now, rule, subject, at, polled=polled, because=because)


def _from_the_root(subject: Subject) -> tuple[int, Subject]:
    """Bridges have lower bus numbers than what is below them."""
    return KIND_ORDER.index(subject.kind) if subject.kind in KIND_ORDER else len(KIND_ORDER), subject


def _judge_one(now: _Step, rule: Rule, subject: Subject, at: Moment, *, polled: bool, because: str) -> None:
    key = (subject, rule.type)
    before = now.conditions.get(key)
    if because and before and before.condition.status is Status.TRUE and before.good_since is None:
        return  # a line can only accuse: in a flood of them there is nothing to judge again
    facts = Facts(_facts(now.state, subject), now.state.expected.get(subject, {}))
    judged = judge(rule, subject.kind, facts)
    if because and judged.status is Status.TRUE:
        judged = replace(judged, reason=f"kernel: {because}")
    after = health.advance(rule, before or health.begin(subject, rule, at), judged, at, polled=polled)
    now.hold(key, after)
    was = before.condition.status if before else Status.UNKNOWN
    first_and_quiet = before is None and after.condition.status is not Status.TRUE
    if after.condition.status is not was and not first_and_quiet:
        _edge(now, rule, was, after, before.last_good if before and not because else None)


def _facts(state: State, subject: Subject) -> Mapping[str, Value]:
    values = state.readings.get(subject, {})
    if subject.kind in DRIVER_KINDS:
        return {**values, **tally.device_readings(state.tally, subject)}
    return values


def _edge(now: _Step, rule: Rule, was: Status, tracked: Tracked, last_good: Moment | None) -> None:
    condition = tracked.condition
    is_bad = condition.status is Status.TRUE
    edge = Transition(
        id=now.id("t"),
        at=condition.since,
        subject=condition.subject,
        type=condition.type,
        before=was,
        after=condition.status,
        severity=rule.severity,
        reason=condition.reason,
        not_before=last_good if is_bad else None,
        missing=condition.missing,
    )
    if is_bad and rule.opens_incident:
        _bad_edge(now, rule, edge)
    elif is_bad or now.state.incident is None:  # a bad edge that carries an incident's name is one of its members
        now.out.append(edge)
    else:
        now.out.append(replace(edge, incident=now.state.incident.id))


def _bad_edge(now: _Step, rule: Rule, edge: Transition) -> None:
    if now.state.incident is None:
        incident, wants_dump = incidents.opened(rule, edge), True
        now.out.append(replace(edge, incident=incident.id))
        now.out.append(Opened(now.id("i"), edge.at, incident))
    else:
        incident, wants_dump = incidents.joined(now.state.incident, rule, edge)
        now.out.append(replace(edge, incident=incident.id))
    now.change(incident=incident)
    if wants_dump and not _dump(now, incident, edge.id, edge.at):
        now.out.append(Gap(now.id("g"), edge.at, "dumps", 1))


def _dump_failed(now: _Step, name: str) -> None:
    """What the daemon has in memory is still there: the next tick asks again, as long as the day's dumps last."""
    incident = now.state.incident
    if incident is not None and incident.id == name and incident.dumps:
        now.change(incident=replace(incident, dumps=incident.dumps - 1))


def _dump(now: _Step, incident: Incident, cause: str, at: Moment) -> bool:
    """Ask for a dump, unless the day's are used up."""
    if not incidents.may_dump(now.state.dumps, at):
        return False
    now.change(
        incident=replace(incident, last_dump=at, dumps=incident.dumps + 1),
        dumps=(*now.state.dumps[-incidents.DUMPS_PER_DAY :], at.wall),
    )
    now.out.append(Action(now.id("a"), at, ActionKind.TAKE_DUMP, cause, incident.id))
    return True


def _close_if_over(now: _Step, at: Moment) -> None:
    incident = now.state.incident
    if incident is None:
        return
    conditions = {key: tracked.condition for key, tracked in now.conditions.items()}
    if incidents.is_over(incident, conditions, (rule.type for rule in now.rules if rule.opens_incident)):
        now.out.append(Closed(now.id("i"), at, incident))
        now.change(incident=None)


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
