"""The timeline in words: one entry a line, what is alike in one instant folded, the middle of a long one left out.

>> 02:10:08.412  kernel    CRIT  NVRM: Xid (PCI:0000:11:00): 79, pid=4242, GPU has fallen off the bus.
02:10:08.412  watch     CRIT  GpuLost TRUE: GPU 0000:11:00.0, as the kernel line above says
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from xidwatch.core.model import Severity, Status, Subject
from xidwatch.report import words
from xidwatch.report.lines import Line, Style, heading, paragraph
from xidwatch.report.story import Case, Event
from xidwatch.report.timeline import QUOTED

MOST_BEFORE = 15  # rows before the first bad one
MOST_HEAD = 45
MOST_TAIL = 25
FOLD_BAD_FROM = 5  # fewer bad edges of one kind in one instant are told one by one
SEVERITY = {Severity.CRITICAL: "CRIT", Severity.ERROR: "err", Severity.WARNING: "warn", Severity.INFO: ""}
STYLE: dict[Severity, Style] = {Severity.CRITICAL: "bad", Severity.ERROR: "warn", Severity.WARNING: "warn", Severity.INFO: ""}
SOURCE = {"outcome": "action", "incident": "watch"}
HANGING = " " * 33


@dataclass(frozen=True, slots=True)
class Entry:
    """An event, with those that are told together with it."""

    event: Event
    subjects: tuple[Subject, ...]
    result: Event | None = None  # of an action
    echoes: bool = False  # an edge whose kernel line stands above it
    alike: bool = True  # all of them for the same reason


def timeline(case: Case) -> list[Line]:
    """The section."""
    entries = list(_entries(case.events))
    first = next((index for index, entry in enumerate(entries) if entry.event.first_bad), 0)
    before, since = entries[:first], entries[first:]
    lines = heading("TIMELINE  (>> is the first bad entry)" if case.first_event else "TIMELINE")
    day = ""
    skipped = len(before) - MOST_BEFORE
    lines += _more(skipped, "earlier")
    for entry in before[max(0, skipped) :]:
        day = _row(lines, entry, day)
    middle = len(since) - MOST_HEAD - MOST_TAIL
    for entry in since[:MOST_HEAD] if middle > 0 else since:
        day = _row(lines, entry, day)
    if middle > 0:
        lines += _more(middle + case.events_left_out, "more")
        for entry in since[-MOST_TAIL:]:
            day = _row(lines, entry, day)
    return lines if entries else [*lines, Line("  nothing on record")]


def _more(number: int, what: str) -> list[Line]:
    return [Line(f"   ... {number} {what}, see --format json", "dim")] if number > 0 else []


def _row(lines: list[Line], entry: Entry, day: str) -> str:
    """Add an entry's lines, under its day where that is a new one; returns the day."""
    event = entry.event
    today = words.day(event.wall)
    if today != day:
        lines.append(Line(f"   {today}", "dim"))
    source, severity = SOURCE.get(event.source, event.source), _severity(entry)
    mark = ">>" if event.first_bad else "  "
    indent = f"{mark} {words.clock(event.wall)}  {source:8}  {SEVERITY[severity]:4}"
    lines += paragraph(_text(entry), STYLE[severity], indent=f"{indent:33}", hanging=HANGING, most=3)
    return today


def _severity(entry: Entry) -> Severity:
    if entry.event.injected:  # anybody could have written it
        return Severity.INFO
    return max(entry.event.severity, entry.result.severity if entry.result else Severity.INFO, key=lambda each: each.rank)


def _text(entry: Entry) -> str:
    event = entry.event
    match event.source:
        case "watch":
            return _edge(entry)
        case "kernel" if event.injected:
            return f"INJECTED by a process, not by the kernel, not acted on: {words.clean(event.text)}"
        case "kernel" if event.repeated > 1 and " since: " not in event.text:
            return f"{words.clean(event.text)} ({event.repeated} times)"
        case "action":
            about = f" {words.clean(event.text)}" if event.text else ""
            return f"{event.kind}{about}: {words.clean(entry.result.text) if entry.result else 'no outcome on record'}"
        case "person":
            return f"note: {words.clean(event.text)}"
        case _:
            return words.clean(event.text)


def _edge(entry: Entry) -> str:
    event = entry.event
    who = words.counted(entry.subjects[0].kind, len(entry.subjects)) if _mixed(entry.subjects) else words.subjects(entry.subjects)
    text = f"{words.clean(event.kind)} {event.status}: {who}"
    if event.not_before is not None:
        text += f", {words.between(event.not_before, event.wall, near=event.wall)}"
    if entry.echoes:
        return f"{text}, by the kernel line above"
    if not entry.alike:
        return f"{text}, for different reasons: see --format json"
    return f"{text}: {words.clean(event.text)}" if event.text else text


def _mixed(subjects: tuple[Subject, ...]) -> bool:
    return len(subjects) > words.MOST_SUBJECTS


def _entries(events: Iterable[Event]) -> Iterator[Entry]:
    """Actions with their outcomes, edges that are alike together, everything else by itself."""
    listed = list(events)
    outcomes = {(event.boot_id, event.refers_to): event for event in listed if event.source == "outcome"}
    actions = {(event.boot_id, event.id) for event in listed if event.source == "action"}
    groups = _groups(listed)
    kernel_texts: set[tuple[float, str]] = set()
    for event in listed:
        if event.source == "kernel":
            kernel_texts.add((event.wall, event.text))
        if event.source == "outcome" and (event.boot_id, event.refers_to) in actions:
            continue
        if event.source == "watch" and event.subject is not None:
            together = groups.get(_group(event), [event])
            if event is together[0] or _singly(event, together):
                alone = _singly(event, together)
                subjects = (event.subject,) if alone else tuple(each.subject for each in together if each.subject and not each.first_bad)
                alike = alone or len({each.text for each in together}) == 1
                echoes = (event.wall, event.text.removeprefix(QUOTED)) in kernel_texts
                yield Entry(event, subjects, echoes=echoes, alike=alike)
        else:
            yield Entry(event, (), outcomes.get((event.boot_id, event.id)) if event.source == "action" else None)


_Group = tuple[str, float, str, str, Status | None, Status | None]


def _group(event: Event) -> _Group:
    kind = event.subject.kind if event.subject else ""
    return event.boot_id, event.wall, event.kind, kind, event.before, event.status


def _groups(events: list[Event]) -> dict[_Group, list[Event]]:
    groups: dict[_Group, list[Event]] = {}
    for event in events:
        if event.source == "watch" and not event.first_bad:
            groups.setdefault(_group(event), []).append(event)
    return groups


def _singly(event: Event, together: list[Event]) -> bool:
    return event.first_bad or (event.is_bad_edge and len(together) < FOLD_BAD_FROM)
