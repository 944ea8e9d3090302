"""What a person asks about an event: what it means, where it usually comes from, what to look at first, what it is not.

    [xid]
    37 = { meaning = "A method that the firmware of the front end does not know." }
    [xid.79]
    meaning = "..."
    causes = ["...", ...]        # the usual one first
    check = ["...", ...]         # the cheapest and safest first
    is_not = "..."
    [sxid]
    11000-11999 = { meaning = "..." }      # a row for many; a row of its own wins
    [kind.aer]
    meaning = "..."

Law: validation and lookup of texts, and what xidwatch itself does, which is derived from flags and conditions and never written down.
Nothing here decides anything.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from xidwatch.core.model import KernelEvent
from xidwatch.core.rules import Rule, RulesError
from xidwatch.core.tally import asks_for_a_look
from xidwatch.core.watch import FATAL_LINES, LOST_LINES

_NUMBERED = ("xid", "sxid")
_TABLES = (*_NUMBERED, "kind")
_TEXTS, _LISTS = ("meaning", "is_not"), ("causes", "check")
_RANGE = re.compile(r"([1-9][0-9]{0,6})(?:-([1-9][0-9]{0,6}))?")


@dataclass(frozen=True, slots=True)
class Explanation:
    """One row of rules/explain.toml. Empty where nobody has written anything."""

    meaning: str = ""
    causes: tuple[str, ...] = ()
    check: tuple[str, ...] = ()
    is_not: str = ""


@dataclass(frozen=True, slots=True)
class Explanations:
    """All of them: ranges of numbers by table, and kinds of events by name."""

    numbered: Mapping[str, tuple[tuple[int, int, Explanation], ...]]
    kinds: Mapping[str, Explanation]

    def of_number(self, table: str, number: int) -> Explanation | None:
        """Of an Xid (`xid`) or SXid (`sxid`); the narrowest row that holds it. None when nothing is written about it."""
        found = [(last - first, text) for first, last, text in self.numbered.get(table, ()) if first <= number <= last]
        return min(found, key=lambda pair: pair[0])[1] if found else None


def explanations(table: Mapping[str, object]) -> Explanations:
    """The rows of a parsed explain.toml. Raises RulesError: each wrong key with its path."""
    problems = [f"{key}: unknown key (known here: {', '.join(_TABLES)})" for key in table if key not in _TABLES]
    read: dict[str, dict[str, Explanation]] = {name: {} for name in _TABLES}
    for name in _TABLES:
        rows = table.get(name, {})
        if not isinstance(rows, Mapping):
            problems.append(f"{name}: expected a table of rows")
            continue
        for key, row in rows.items():
            wrong = list(_problems(name, str(key), row))
            problems += wrong
            if not wrong:
                read[name][str(key)] = _explanation(row)
    if problems:
        raise RulesError(problems)
    return Explanations({name: tuple((*_span(key), text) for key, text in read[name].items()) for name in _NUMBERED}, read["kind"])


def _problems(table: str, key: str, row: object) -> Iterator[str]:
    path = f"{table}.{key}"
    span = _RANGE.fullmatch(key)
    if table in _NUMBERED and (not span or int(span[1]) > int(span[2] or span[1])):
        yield f"{path}: neither a number nor a range of them, as in 11000-11999"
    if not isinstance(row, Mapping):
        yield f"{path}: expected a table"
        return
    known = (*_TEXTS, *_LISTS)
    yield from (f"{path}.{other}: unknown key (known here: {', '.join(known)})" for other in row if other not in known)
    yield from (f"{path}.{name}: expected a text" for name in _TEXTS if not isinstance(row.get(name, ""), str))
    for name in _LISTS:
        value = row.get(name, [])
        if not isinstance(value, list) or not all(isinstance(each, str) for each in value):
            yield f"{path}.{name}: expected a list of texts"


def _explanation(row: object) -> Explanation:
    assert isinstance(row, Mapping)  # said again for the type checker
    return Explanation(row.get("meaning", ""), tuple(row.get("causes", ())), tuple(row.get("check", ())), row.get("is_not", ""))


def _span(key: str) -> tuple[int, int]:
    first, _, last = key.partition("-")
    return int(first), int(last or first)


def conduct(event: KernelEvent, conditions: Iterable[Rule]) -> list[str]:
    """What xidwatch does about such an event when the kernel writes it, a sentence each, by the conditions in force."""
    if event.injected:
        return ["It writes the line down, marked as injected: a process wrote it, and nothing is done about it."]
    readings = {name for name, told in ((FATAL_LINES, event.driver_fatal), (LOST_LINES, event.bus_lost)) if told}
    raised = [rule for rule in conditions if any(readings.intersection(when.names) for when in rule.when.values())]
    counted = event.kind == "xid" and event.xid is not None
    said = [f"It writes the line into its journal{' and counts it by GPU and number' if counted else ''}."]
    said += [f"{rule.type} becomes true{_consequences(rule)}." for rule in raised]
    if event.driver_fatal:
        said.append("NVML is not asked again before a driver reload, a reboot, or `xidwatch allow-driver`.")
    if readings or asks_for_a_look(event):
        said.append("The first words of every device's configuration space are read at once, at most once a second.")
    if not raised:
        said.append("By itself it opens no incident and touches no engine.")
    return said


def _consequences(rule: Rule) -> str:
    told = ["opens an incident", "takes a dump"] if rule.opens_incident else []
    told += ["stops an engine that stands on it, if xidwatch supervises that (`[[engines]]`)"] if rule.stops_engine else []
    return f": {', '.join(told)}" if told else ""
