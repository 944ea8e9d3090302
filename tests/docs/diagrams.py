"""State diagrams, drawn from what the code does: every input in every state that can be reached, and where it leads.

`DIAGRAMS` is the list. A machine that is a table already is one line in it: `"gate": lambda: of_table(gate.TABLE)`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from itertools import product
from typing import Any

from xidwatch.core import gate, health, incidents
from xidwatch.core.expression import parse
from xidwatch.core.health import Tracked
from xidwatch.core.model import Condition, Moment, Severity, Status, Subject, Transition
from xidwatch.core.rules import Judgement, Rule

Edge = tuple[str, str, str]  # from, to, why
HOLD, CLEAR = 30.0, 60.0
GPU, PORT = Subject("gpu", "0000:11:00.0"), Subject("port", "0000:0f:00.0")
GOOD = (Status.FALSE, Status.NOT_APPLICABLE)


def mermaid(edges: Iterable[Edge], first: str) -> str:
    """A state diagram: one arrow between two states, with every reason for it."""
    why: dict[tuple[str, str], list[str]] = {}
    for before, after, reason in edges:
        reasons = why.setdefault((before, after), [])
        if reason not in reasons:
            reasons.append(reason)
    arrows = [f"    {before} --> {after}: {'<br/>or '.join(reasons)}" for (before, after), reasons in why.items()]
    return "\n".join(["```mermaid", "stateDiagram-v2", f"    [*] --> {first}", *arrows, "```"])


def of_table(table: Mapping[tuple[Any, Any], tuple[Any, Any]]) -> str:
    """Of a machine that is a table: `(state, event) -> (state, effect)`; an effect stands behind its event. Begins with the first row."""
    edges = [
        (str(before), str(after), f"{event}{f' ({effect})' if str(effect) else ''}") for (before, event), (after, effect) in table.items()
    ]
    return mermaid(edges, edges[0][0])


def condition() -> str:
    """Of `health.advance`: each judgement in each state, when it has just begun and when it has lasted."""
    found: list[Edge] = []
    begun = health.begin(GPU, _rule(Severity.CRITICAL), Moment(0.0, 0.0))
    waiting, seen = [begun], set()
    while waiting:
        tracked = waiting.pop(0)
        before = tracked.condition.status
        if (before, tracked.was_true) in seen:
            continue
        seen.add((before, tracked.was_true))
        for judged in Status:
            after, lasted = _judged(tracked, judged)
            waiting.append(after)
            if after.condition.status is not before:
                again = ", if it was TRUE before" if tracked.was_true and before is Status.UNKNOWN and lasted else ""
                found.append((before, after.condition.status, f"judged {judged}{lasted}{again}"))
    return mermaid(found, Status.UNKNOWN)


def _judged(tracked: Tracked, judged: Status) -> tuple[Tracked, str]:
    """The condition once this judgement has had its effect, and how long that took in words."""
    rule = _rule(Severity.CRITICAL)
    after, start = tracked, 1000.0
    for seconds, words in ((0.0, ""), (HOLD, " for hold"), (CLEAR, " for clear")):
        at = Moment(start + seconds, start + seconds)
        after = health.advance(rule, after, Judgement(judged, ""), at, polled=True)
        if after.condition.status is judged:
            return after, words
    raise AssertionError(f"{judged} for {CLEAR} s changes nothing")


def incident() -> str:
    """Of `incidents`: what opens one, what a further edge does to it, and with which members it is over."""
    error, critical = _rule(Severity.ERROR), _rule(Severity.CRITICAL)
    found: list[Edge] = [("none", "open", "a condition that opens incidents becomes TRUE (dump)")]
    first = incidents.opened(error, _edge(PORT, 0.0))
    for rule, seconds, what in (
        (error, 60.0, "a further one becomes TRUE"),
        (critical, 5.0, "a further one becomes TRUE"),
        (critical, 60.0, "a further one, more severe, later than 10 s"),
    ):
        dumped = replace(first, last_dump=Moment(0.0, 0.0), dumps=1)
        grown, wants_dump = incidents.joined(dumped, rule, _edge(GPU, seconds))
        assert len(grown.members) == 2
        found.append(("open", "open", f"{what}{' (dump)' if wants_dump else ' (joins)'}"))
    for member, other in product(Status, Status):
        held = {(PORT, "Bad"): _condition(PORT, "Bad", member), (GPU, "Bad"): _condition(GPU, "Bad", other)}
        if incidents.is_over(first, held, ("Bad",)):
            found.append(("open", "none", f"every member {member}, no other TRUE"))
    return mermaid(found, "none")


def _rule(severity: Severity) -> Rule:
    return Rule("Bad", {"gpu": parse("present == 0")}, severity, "-", HOLD, CLEAR, opens_incident=True, label="bad")


def _edge(subject: Subject, seconds: float) -> Transition:
    at = Moment(seconds, seconds)
    return Transition("t-000001", at, subject, "Bad", Status.FALSE, Status.TRUE, Severity.ERROR, "", None, None)


def _condition(subject: Subject, type_: str, status: Status) -> Condition:
    return Condition(subject, type_, status, Moment(0.0, 0.0), "")


DIAGRAMS: dict[str, Callable[[], str]] = {
    "condition": condition,
    "incident": incident,
    "gate": lambda: of_table(gate.TABLE),
}
