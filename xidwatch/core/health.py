"""How a judgement becomes a condition: holding, clearing, and the interval in which an edge happened.

Law: one condition at a time, pure. What follows from an edge is decided in `watch`.

    judged TRUE for `hold`                               ->  TRUE
    judged FALSE or NOT_APPLICABLE for `clear`, or twice ->  that   (at once if it was never TRUE)
    judged UNKNOWN                                       ->  UNKNOWN, and clearing starts over
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from xidwatch.core.model import Condition, Missing, Moment, Severity, Status, Subject
from xidwatch.core.rules import Judgement, Rule

GOOD_TICKS_TO_CLEAR = 2


@dataclass(frozen=True, slots=True)
class Tracked:
    """A condition and what has to be remembered to move it."""

    condition: Condition
    bad_since: Moment | None = None  # judged TRUE without a break since
    good_since: Moment | None = None  # judged FALSE or NOT_APPLICABLE without a break since
    good_ticks: int = 0
    last_good: Moment | None = None  # latest polled FALSE: the open end of the next edge's interval
    was_true: bool = False  # TRUE at some time since it was last FALSE: leaving needs clearing


def begin(subject: Subject, rule: Rule, at: Moment) -> Tracked:
    """A condition nobody has looked at yet."""
    return Tracked(Condition(subject, rule.type, Status.UNKNOWN, at, "not looked at yet"))


def advance(rule: Rule, tracked: Tracked, judged: Judgement, at: Moment, *, polled: bool) -> Tracked:
    """The condition after one more judgement. `polled`: from a tick, not from a kernel line or a quick look."""
    match judged.status:
        case Status.TRUE:
            return _bad(rule, tracked, judged, at)
        case Status.FALSE | Status.NOT_APPLICABLE:
            return _good(rule, tracked, judged, at, polled=polled)
        case Status.UNKNOWN:
            fresh = replace(tracked, bad_since=None, good_since=None, good_ticks=0)
            return _move(fresh, judged, at)


def _bad(rule: Rule, tracked: Tracked, judged: Judgement, at: Moment) -> Tracked:
    bad_since = tracked.bad_since or at
    tracked = replace(tracked, bad_since=bad_since, good_since=None, good_ticks=0)
    if tracked.condition.status is not Status.TRUE and at.mono - bad_since.mono < rule.hold_seconds:
        return tracked
    return replace(_move(tracked, judged, at), was_true=True)


def _good(rule: Rule, tracked: Tracked, judged: Judgement, at: Moment, *, polled: bool) -> Tracked:
    good_since = tracked.good_since or at
    tracked = replace(
        tracked,
        bad_since=None,
        good_since=good_since,
        good_ticks=tracked.good_ticks + (1 if polled else 0),
        last_good=at if polled and judged.status is Status.FALSE else tracked.last_good,
    )
    if tracked.was_true and not _cleared(rule, tracked, at):
        return tracked
    return replace(_move(tracked, judged, at), was_true=False)


def _cleared(rule: Rule, tracked: Tracked, at: Moment) -> bool:
    if rule.clear_seconds is None:
        return tracked.good_ticks >= GOOD_TICKS_TO_CLEAR
    since = tracked.good_since
    return since is not None and at.mono - since.mono >= rule.clear_seconds


def _move(tracked: Tracked, judged: Judgement, at: Moment) -> Tracked:
    condition = tracked.condition
    since = condition.since if condition.status is judged.status else at
    return replace(tracked, condition=replace(condition, status=judged.status, since=since, reason=judged.reason, missing=judged.missing))


def verdict(conditions: Iterable[tuple[Condition, Severity]]) -> str:
    """The host in one word: healthy, degraded, failed or unknown.

    Bad news outranks ignorance. A device that sleeps was left alone on purpose, and what would be a mere remark if it were
    true is none the worse for not being known: neither makes the host unknown.
    """
    worst = "healthy"
    for condition, severity in conditions:
        if condition.status is Status.TRUE:
            if severity is Severity.CRITICAL:
                return "failed"
            worst = worst if severity is Severity.INFO else "degraded"
        elif condition.status is Status.UNKNOWN and _matters(condition, severity) and worst == "healthy":
            worst = "unknown"
    return worst


def _matters(condition: Condition, severity: Severity) -> bool:
    return condition.missing is not Missing.ASLEEP and severity is not Severity.INFO
