"""The report for somebody at two in the morning: the most important first, no wider than asked for, all times UTC.

Law: words for a `Story`, pure. A sampled edge is said as the interval it lies in; what was not seen is said as such.
"""

from __future__ import annotations

from collections.abc import Iterable

from xidwatch.core.model import PCI_KINDS, Status, Subject
from xidwatch.records.dumps import Part
from xidwatch.report import words
from xidwatch.report.lines import WIDTH, Line, Style, heading, paragraph, wrapped
from xidwatch.report.story import Case, Coverage, Dump, Observation, Story, Unseen
from xidwatch.report.text_alone import alone
from xidwatch.report.text_engines import engines
from xidwatch.report.text_readings import readings
from xidwatch.report.text_timeline import timeline

MOST_UNSEEN = 40
MOST_DAMAGE = 10
MOST_OTHERS = 8
MOST_KERNEL = 12
STATE_STYLE: dict[str, Style] = {"open": "bad", "unknown": "warn", "closed": ""}
INCOMPLETE = {
    "writing": "INCOMPLETE: the manifest was never finished. The dump is being written now, or the machine died in it.",
    "unknown": "INCOMPLETE: no whole manifest; the parts below are what lies in the folder, unchecked.",
}
EXPLAINED = {
    "ABSENT": "not there",
    "ASLEEP": "asleep, not woken",
    "BEHIND_DEAD_PARENT": "behind a bridge that did not answer, not asked",
    "DENIED": "permission denied",
    "DEVICE_LOST": "gone, by its driver or since nobody answers for it",
    "MALFORMED": "the answer could not be understood",
    "NOT_ASKED": "not asked",
    "TIMED_OUT": "no answer in time",
    "UNSUPPORTED": "not offered by this hardware, driver or kernel",
}


def report(told: Story, width: int = WIDTH) -> list[Line]:
    """All of it, in lines of at most so many columns; only a path may be longer."""
    return wrapped(_quiet(told) if told.case is None else _incident(told, told.case, width), width)


def _quiet(told: Story) -> list[Line]:
    return [*_nothing(told), *alone(told.alone), *_notes(told), *_unseen(told, told.coverage.last), *_others(told)]


def _incident(told: Story, case: Case, width: int) -> list[Line]:
    return [
        *_head(told, case),
        *heading("WHAT HAPPENED"),
        *_what_happened(told, case),
        *timeline(case),
        *engines(case),
        *readings(case, width),
        *_unseen(told, case.began),
        *_evidence(case.dumps),
        *alone(told.alone),
        *_others(told),
    ]


# ------------------------------------------------------------------------------------------------------- what happened


def _head(told: Story, case: Case) -> list[Line]:
    drill = ", a drill" if any(dump.drill for dump in case.dumps) else ""
    upto = f" up to {words.stamp(told.coverage.last)}" if told.coverage.last is not None else ""
    return [
        Line(f"incident {words.clean(case.id)}: {case.state}, {case.severity}{drill}", STATE_STYLE[case.state] or "heading"),
        Line(f"all times UTC; records in {words.clean(told.state_dir)}{upto}", "dim", hanging="", whole=True),
        *_replayed(told),
    ]


def _replayed(told: Story) -> list[Line]:
    """Whose records these are is said before anything else."""
    if not told.replayed:
        return []
    return [
        Line(f"REPLAYED from {words.clean(told.replayed)}: so it was then and there, and says nothing about this host", "warn", hanging="")
    ]


def _what_happened(told: Story, case: Case) -> list[Line]:
    lines = paragraph(f"{_beginning(case)} {_ending(told, case)}", STATE_STYLE[case.state])
    if case.observations:
        lines += paragraph(f"Became TRUE: {_by_kind(case.observations)}.", "bad")
    first = case.first_event
    if first is not None:
        lines += paragraph(_first(case))
    boots = [event for event in case.events if event.kind == "boot" and event.source == "run" and event.wall > case.began]
    if boots:
        times = words.listed(words.stamp(event.wall, near=case.began) for event in boots)
        lines += paragraph(f"The host was restarted during it; xidwatch was back at {times}.")
    if case.state == "open":
        lines += _as_it_stands(case)
    if case.bystanders:
        lines += paragraph(f"Seen to answer after it began: {_named(case.bystanders)}.")
    return lines


def _beginning(case: Case) -> str:
    opening = case.observations[0] if case.observations else None
    if case.not_before is not None:
        return f"Began {words.between(case.not_before, case.began)}."
    if opening is not None and not opening.from_kernel:
        return f"Found bad at {words.stamp(case.began)}; it was not seen good before, so it may have begun earlier."
    return f"Began {words.stamp(case.began, exact=True)}."


def _ending(told: Story, case: Case) -> str:
    if case.ended is not None:
        ended = words.stamp(case.ended, near=case.began)
        return f"Seen to be over at {ended}, {words.duration(max(0.0, case.ended - case.began))} later."
    if case.state == "unknown":
        return f"Its end is not known: {case.end_unknown}."
    last = told.coverage.last if told.coverage.last is not None else case.began
    text = f"OPEN: not over at the last record, {words.stamp(last, near=case.began)}."
    if told.coverage.ends_cleanly is False:
        text += " The replay ends there." if told.replayed else " The run that wrote it recorded no end: it still runs, or it died."
    return text


def _by_kind(observations: Iterable[Observation]) -> str:
    """`GPUs 0000:11:00.0, 0000:12:00.0: GpuLost and DriverFatalXid; port 0000:0f:00.0: ConfigSpaceAllOnes`."""
    types: dict[Subject, list[str]] = {}
    for seen in observations:
        types.setdefault(seen.subject, []).append(words.clean(seen.type))
    alike: dict[tuple[str, tuple[str, ...]], list[Subject]] = {}
    for subject, several in types.items():
        alike.setdefault((subject.kind, tuple(sorted(set(several)))), []).append(subject)
    return "; ".join(f"{_who(subjects)}: {words.listed(names)}" for (_, names), subjects in alike.items())


def _who(subjects: list[Subject]) -> str:
    """Counted, and by name while they are few."""
    if len(subjects) == 1:
        return words.subject(subjects[0])
    number = words.counted(subjects[0].kind, len(subjects))
    return f"{number} ({', '.join(words.clean(each.name) for each in subjects)})" if len(subjects) <= words.MOST_SUBJECTS else number


def _named(subjects: tuple[Subject, ...]) -> str:
    by_kind = {kind: [each for each in subjects if each.kind == kind] for kind in sorted(PCI_KINDS)}
    return words.listed(words.subjects(several) for several in by_kind.values() if several)


def _first(case: Case) -> str:
    event = case.first_event
    assert event is not None
    about = f" on {words.subject(event.subject)}" if event.subject else f" ({event.pci})" if event.pci else ""
    if event.not_before is not None:
        when = words.between(event.not_before, event.wall, near=case.began)
    else:
        when = f"at {words.stamp(event.wall, near=case.began, exact=True)}"
    kind = "kernel line" if event.source == "kernel" else words.clean(event.kind)
    return f"First: {kind}{about} {when}: {words.clean(event.text)}"


def _as_it_stands(case: Case) -> list[Line]:
    still = [seen for seen in case.observations if seen.status is Status.TRUE]
    unknown = [seen for seen in case.observations if seen.status is Status.UNKNOWN]
    over = len(case.observations) - len(still) - len(unknown)
    if len(still) == len(case.observations):
        return paragraph("All of it stood so at the last record.", "bad") if still else []
    parts = [f"TRUE: {_by_kind(still)}" if still else "nothing TRUE"]
    if unknown:
        parts.append(f"UNKNOWN: {_by_kind(unknown)} ({words.clean(unknown[0].why_now)})")
    if over:
        parts.append(f"good again: {words.count(over, 'condition')}")
    return paragraph(f"As it stood last: {'; '.join(parts)}.", "bad" if still else "warn")


# ------------------------------------------------------------------------------------------------------ nothing at all


def _nothing(told: Story) -> list[Line]:
    cover = told.coverage
    lines = [
        Line("no incident in that time" if told.others else "no incident on record", "heading"),
        Line(f"all times UTC; records in {words.clean(told.state_dir)}", "dim", hanging="", whole=True),
        *_replayed(told),
        *heading("WHAT THE RECORDS COVER"),
    ]
    if cover.nothing_since is not None and cover.last is not None:
        since = words.stamp(cover.nothing_since)
        lines += paragraph(f"Nothing is on record after {since}; the last record is of {words.stamp(cover.last)}.", "warn")
    elif cover.first is not None and cover.last is not None:
        lines += paragraph(_covered(cover, cover.first, cover.last))
    else:
        lines += paragraph("Nothing: not one record could be read.", "warn")
    if cover.ends_cleanly is False:
        lines += paragraph("The replay ends there." if told.replayed else "The last run recorded no end: it still runs, or it died.")
    counts = [f"{count.count} x {_kernel_kind(count.kind, count.xid)}" for count in cover.kernel_counts[:MOST_KERNEL]]
    if counts:
        more = len(cover.kernel_counts) - len(counts)
        rest = f" and {more} other kinds" if more > 0 else ""
        none = "" if told.others else ", none of which opened an incident"
        lines += paragraph(f"Kernel events on record{none}: {', '.join(counts)}{rest}.")
    return lines


def _covered(cover: Coverage, first: float, last: float) -> str:
    text = f"{words.stamp(first)} to {words.stamp(last, near=first)}, {words.duration(last - first)}: "
    ticks = words.count(cover.ticks or 0, "tick")
    runs = f"{words.count(cover.runs, 'run')} in {words.count(cover.boots, 'boot')}"
    return f"{text}{ticks}, {words.count(cover.records, 'journal record')}, {runs}."


def _kernel_kind(kind: str, xid: int | None) -> str:
    return f"Xid {xid}" if kind == "xid" and xid is not None else words.clean(kind)


def _notes(told: Story) -> list[Line]:
    if not told.notes:
        return []
    lines = heading("NOTES")
    if told.notes_left_out:
        lines.append(Line(f"  ... {told.notes_left_out} older, see the journal", "dim"))
    for note in told.notes:
        lines += paragraph(f"{words.stamp(note.wall)}  {words.clean(note.text)}", hanging=" " * 23)
    return lines


# --------------------------------------------------------------------------------------------------------- not seen


def _unseen(told: Story, near: float | None) -> list[Line]:
    lines = heading("WHAT COULD NOT BE SEEN, AND WHY")
    if not told.unseen and not told.damage:
        return [*lines, Line("  no lack is on record")]
    for lack in told.unseen[:MOST_UNSEEN]:
        lines += paragraph(_lack(lack, near or 0.0), indent="  - ", hanging="    ")
    if len(told.unseen) > MOST_UNSEEN:
        lines.append(Line(f"  ... {len(told.unseen) - MOST_UNSEEN} more, see --format json", "dim"))
    for place in told.damage[:MOST_DAMAGE]:
        where = words.clean(place.path.removeprefix(told.state_dir).lstrip("/"))
        line = f", line {place.line}" if place.line else ""
        lines += paragraph(f"records: {where}{line}: {words.clean(place.text)}", "warn", indent="  - ", hanging="    ", most=2)
    if len(told.damage) > MOST_DAMAGE:
        lines.append(Line(f"  ... {len(told.damage) - MOST_DAMAGE} more damaged places, see --format json", "dim"))
    return lines


def _lack(lack: Unseen, near: float) -> str:
    why = f"{lack.why} ({EXPLAINED[lack.why]})" if lack.why in EXPLAINED else words.clean(lack.why)
    held = words.span(lack.began, lack.ended, near=near)
    times = f", {lack.times} times" if lack.times > 1 else ""
    return f"{words.clean(lack.what)}: {why}" + (f", {held}{times}" if held != "all along" else "")


# ------------------------------------------------------------------------------------------------------------ evidence


def _evidence(dumps: tuple[Dump, ...]) -> list[Line]:
    lines = heading("EVIDENCE")
    for dump in dumps:
        trouble = f": {words.clean(dump.trouble)}" if dump.trouble else ""
        lines.append(Line(f"  {words.clean(dump.folder)}/{trouble}", hanging=" " * 4, whole=True))
        if dump.state in INCOMPLETE:
            lines += paragraph(INCOMPLETE[dump.state], "warn")
        lines += [_part(part) for part in dump.parts]
        if not dump.parts and not dump.trouble:
            lines.append(Line("    no parts", "warn"))
    return lines


def _part(part: Part) -> Line:
    size = f"{part.bytes:,} bytes".replace(",", " ")
    text = f"    {words.clean(part.name):28} {part.status:8} {size:>18}  {words.clean(part.note)}"
    return Line(text.rstrip(), "" if part.status == "ok" else "warn", hanging=" " * 8, most=2)


def _others(told: Story) -> list[Line]:
    if not told.others:
        return []
    lines = heading(f"ALSO ON RECORD  ({words.count(len(told.others), 'further incident')}; xidwatch report ID tells one)")
    lines += [Line(f"  {words.clean(other)}") for other in reversed(told.others[-MOST_OTHERS:])]
    more = len(told.others) - MOST_OTHERS
    return [*lines, Line(f"  ... {more} older", "dim")] if more > 0 else lines
