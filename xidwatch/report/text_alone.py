"""Conditions that were TRUE without being part of an incident: evidence that nobody was woken for.

RailOutOfRange, warning: rail board_12v, between 18:10:30 and 18:11:00, good again at 18:14:30: volts 11.28, nominal_volts 12
"""

from __future__ import annotations

from collections.abc import Sequence

from xidwatch.core.model import Severity, Status
from xidwatch.report import words
from xidwatch.report.lines import Line, Style, heading, paragraph
from xidwatch.report.story import Observation

MOST = 12


def alone(seen: Sequence[Observation]) -> list[Line]:
    """The section: what still stands first, then the gravest and the latest; what is alike is told together."""
    groups = _together(sorted(seen, key=_weight))
    if not groups:
        return []
    lines = heading("CONDITIONS THAT WERE TRUE AND OPENED NO INCIDENT")
    for group in groups[:MOST]:
        lines += paragraph(_words(group), _style(group[0]), hanging=" " * 4, most=3)
    more = len(groups) - MOST
    return [*lines, Line(f"  ... {more} more, see --format json", "dim")] if more > 0 else lines


def _weight(seen: Observation) -> tuple[bool, int, float]:
    return seen.status is not Status.TRUE, -seen.severity.rank, -seen.since


def _together(seen: Sequence[Observation]) -> list[list[Observation]]:
    """Of one kind, with the same history for the same reasons."""
    groups: dict[tuple[object, ...], list[Observation]] = {}
    for each in seen:
        key = (each.type, each.subject.kind, each.began, each.not_before, each.reason, each.status, each.since, each.times)
        groups.setdefault(key, []).append(each)
    return list(groups.values())


def _words(group: Sequence[Observation]) -> str:
    first = group[0]
    who = words.subjects([each.subject for each in group])
    began = words.between(first.not_before, first.began) if first.not_before is not None else f"seen at {words.stamp(first.began)}"
    times = f" ({first.times} times)" if first.times > 1 else ""
    return f"{words.clean(first.type)}, {first.severity}: {who}, {began}{times}, {_end(first)}: {words.clean(first.reason)}"


def _end(seen: Observation) -> str:
    since = words.stamp(seen.since, near=seen.began)
    match seen.status:
        case Status.TRUE:
            return "still so at the last record"
        case Status.FALSE:
            return f"good again at {since}"
        case Status.UNKNOWN:
            return f"not known since {since} ({words.clean(seen.why_now)})"
        case Status.NOT_APPLICABLE:
            return f"not to be judged any more since {since} ({words.clean(seen.why_now)})"


def _style(seen: Observation) -> Style:
    if seen.severity is Severity.INFO:
        return "dim"
    return "warn" if seen.status is Status.TRUE else ""
