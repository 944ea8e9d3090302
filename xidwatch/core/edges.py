"""From readings to conditions, from their edges to incidents and dumps.

Law: pure, one step at a time. What was learnt and by which input is `watch`; what one edge means to an incident is `incidents`.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace

from xidwatch.core import health, incidents, rules, tally
from xidwatch.core.expression import Facts
from xidwatch.core.health import Tracked
from xidwatch.core.messages import Closed, Gap, Opened
from xidwatch.core.model import PCI_KINDS, Action, ActionKind, Incident, Moment, Severity, Status, Subject, Transition, Value
from xidwatch.core.rules import Judgement, Rule
from xidwatch.core.state import State, Step

DRIVER_KINDS = ("gpu", "driver")
# From the root down: an incident is named after the topmost thing that is bad, not after what cannot answer because of it.
KIND_ORDER = ("port", "gpu", "nvme", "driver", "rail", "chip", "engine", "host", "kernel", "probe")

_STRUCK_OFF = Judgement(Status.NOT_APPLICABLE, "nothing is at this address, and nothing is expected there")


def judge(now: Step, news: Mapping[Subject, Collection[str] | None], at: Moment, *, polled: bool, because: str = "") -> None:
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


def _judge_one(now: Step, rule: Rule, subject: Subject, at: Moment, *, polled: bool, because: str) -> None:
    key = (subject, rule.type)
    before = now.conditions.get(key)
    if because and before and before.condition.status is Status.TRUE and before.good_since is None:
        return  # a line can only accuse: in a flood of them there is nothing to judge again
    judged = rules.judge(rule, subject.kind, Facts(facts(now.state, subject), expected(now.state, subject)))
    if before is None and rule.severity is Severity.INFO and judged.status is Status.UNKNOWN:
        return  # a mere remark begins when there is something to say: the inventory comes after the first tick
    if because and judged.status is Status.TRUE:
        judged = replace(judged, reason=f"kernel: {because}")
    _advance(now, rule, before, judged, subject, at, polled=polled, because=because)


def retire(now: Step, strangers: Collection[Subject], at: Moment) -> None:
    """Nothing is at these addresses and nothing is missed there: whatever was held about them applies no longer."""
    by_type = {rule.type: rule for rule in now.rules}
    for (subject, type_), before in tuple(now.conditions.items()):
        if subject in strangers and type_ in by_type:
            _advance(now, by_type[type_], before, _STRUCK_OFF, subject, at, polled=True, because="")


def _advance(
    now: Step, rule: Rule, before: Tracked | None, judged: Judgement, subject: Subject, at: Moment, *, polled: bool, because: str
) -> None:
    after = health.advance(rule, before or health.begin(subject, rule, at), judged, at, polled=polled)
    now.hold((subject, rule.type), after)
    was = before.condition.status if before else Status.UNKNOWN
    first_and_quiet = before is None and after.condition.status is not Status.TRUE
    if after.condition.status is not was and not first_and_quiet:
        _edge(now, rule, was, after, before.last_good if before and not because else None)


def facts(state: State, subject: Subject) -> Mapping[str, Value]:
    """All that is known of it now: what was read, and what was worked out."""
    values = state.readings.get(subject, {})
    if subject.kind in PCI_KINDS:
        values = {**values, **state.errors.facts.get(subject, {}), **state.roster.facts.get(subject, {})}
    if subject.kind in DRIVER_KINDS:
        values = {**values, **tally.device_readings(state.tally, subject)}
    return values


def expected(state: State, subject: Subject) -> Mapping[str, Value]:
    """The same while nothing is wrong."""
    return {**state.expected.get(subject, {}), **state.roster.expected.get(subject, {})}


def _edge(now: Step, rule: Rule, was: Status, tracked: Tracked, last_good: Moment | None) -> None:
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


def _bad_edge(now: Step, rule: Rule, edge: Transition) -> None:
    if now.state.incident is None:
        incident, wants_dump = incidents.opened(rule, edge), True
        now.out.append(replace(edge, incident=incident.id))
        now.out.append(Opened(now.id("i"), edge.at, incident))
    else:
        incident, wants_dump = incidents.joined(now.state.incident, rule, edge)
        now.out.append(replace(edge, incident=incident.id))
    now.change(incident=incident)
    if wants_dump and not dump(now, incident, edge.id, edge.at):
        now.out.append(Gap(now.id("g"), edge.at, "dumps", 1))


def dump_failed(now: Step, name: str) -> None:
    """What the daemon has in memory is still there: the next tick asks again, as long as the day's dumps last."""
    incident = now.state.incident
    if incident is not None and incident.id == name and incident.dumps:
        now.change(incident=replace(incident, dumps=incident.dumps - 1))


def dump(now: Step, incident: Incident, cause: str, at: Moment) -> bool:
    """Ask for a dump; False when the day's are used up. While somebody works on the host none is wanted."""
    if now.state.maintenance is not None:
        return True
    if not incidents.may_dump(now.state.dumps, at):
        return False
    now.change(
        incident=replace(incident, last_dump=at, dumps=incident.dumps + 1),
        dumps=(*now.state.dumps[-incidents.DUMPS_PER_DAY :], at.wall),
        dumping=now.state.dumping | {incident.id},
    )
    now.out.append(Action(now.id("a"), at, ActionKind.TAKE_DUMP, cause, incident.id))
    return True


def close_if_over(now: Step, at: Moment) -> None:
    """The end of the open incident, if this is it."""
    incident = now.state.incident
    if incident is None:
        return
    conditions = {key: tracked.condition for key, tracked in now.conditions.items()}
    if incidents.is_over(incident, conditions, (rule.type for rule in now.rules if rule.opens_incident)):
        now.out.append(Closed(now.id("i"), at, incident))
        now.change(incident=None)
