"""From a state directory to a `Story`: the ledger first, then the records around the incident that is asked for.

Law: reads records, decides nothing about causes. What a crash left behind is told as damage, never raised.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from pathlib import Path

from xidwatch.core.model import PCI_KINDS, Severity, Status
from xidwatch.records import Damage, dumps, journal
from xidwatch.report import readings, timeline, unseen
from xidwatch.report.engines import EngineLog
from xidwatch.report.lacks import Lack
from xidwatch.report.ledger import Known, Ledger, Run
from xidwatch.report.observations import Observations
from xidwatch.report.readings import Ticks, Window
from xidwatch.report.story import Case, Coverage, Dump, Observation, Story, Unseen
from xidwatch.report.timeline import Timeline
from xidwatch.report.unseen import LackLog

LEAD_SECONDS = 600.0  # the timeline begins this long before the incident
DAY_SECONDS = 86400.0
MOST_CASES = 20  # told in full where all of them are asked for
MOST_UNCLEAN = 20  # ends without a word that are looked up in the samples
DRIVER = "driver"


class UnknownIncident(Exception):
    """No incident, or more than one, has an id that begins like this. `known`: those on record, oldest first."""

    def __init__(self, wanted: str, matches: list[str], known: list[str]) -> None:
        reason = "fits more than one incident" if matches else "is no incident on record"
        super().__init__(f"{wanted!r} {reason}")
        self.known = matches or known


def choose(book: Ledger, wanted: str = "") -> Known | None:
    """The incident whose id begins with `wanted`; without one the latest that was not over by `book.since`, None where there is none.

    Raises UnknownIncident.
    """
    known = book.in_order()
    if not wanted:
        return next((each for each in reversed(known) if _not_over(each, book.since)), None)
    matches = [each for each in known if each.id == wanted] or [each for each in known if each.id.startswith(wanted)]
    if len(matches) != 1:
        raise UnknownIncident(wanted, [each.id for each in matches], [each.id for each in known])
    return matches[0]


def story(state_dir: Path, book: Ledger, known: Known | None) -> Story:
    """All about one incident; without one, what the records cover and what they could not."""
    if known is None:
        return _quiet(state_dir, book)
    damage = list(book.damage)
    case, lacking = _case(state_dir, book, known, damage)
    others = tuple(each.id for each in book.in_order() if each is not known)
    alone = _alone(book, known.began - DAY_SECONDS, _end(known, book))
    cover = _coverage(book, book.runs, Ticks(None), _newest(state_dir))
    return Story(str(state_dir), cover, case, lacking, tuple(damage), others, alone, book.replayed)


def stories(state_dir: Path, book: Ledger) -> list[Story]:
    """The latest incidents that were not over by `book.since`, oldest first."""
    known = [each for each in book.in_order() if _not_over(each, book.since)]
    return [story(state_dir, book, each) for each in known[-MOST_CASES:]]


def _not_over(known: Known, since: float | None) -> bool:
    """An open one is not over at any time; of one whose end is not on record, it is known up to when it was not."""
    return since is None or known.state == "open" or (known.ended or known.until or known.began) >= since


def _newest(state_dir: Path) -> float | None:
    try:
        return readings.newest(state_dir)
    except OSError:  # told as damage where the rows themselves are read
        return None


def _coverage(book: Ledger, runs: Sequence[Run], ticks: Ticks, newest: float | None) -> Coverage:
    return Coverage(
        first=min((time for time in (book.first, ticks.first) if time is not None), default=None),
        last=max((time for time in (book.last, newest) if time is not None), default=None),
        records=book.records,
        boots=len({run.boot_id for run in runs}),
        runs=len(runs),
        ends_cleanly=book.runs[-1].stopped is not None if book.runs else None,
        ticks=ticks.count,
        kernel_counts=book.kernel_counts,
        since=book.since,
    )


def _quiet(state_dir: Path, book: Ledger) -> Story:
    damage = list(book.damage)
    ticks = Ticks()
    try:
        ticks = readings.count_ticks(state_dir, book.since)
    except OSError as error:
        damage.append(Damage(str(error.filename or state_dir), 0, error.strerror or str(error)))
    everyone = _lived(state_dir, book.runs)
    begin = book.since if book.since is not None else float("-inf")
    runs = [run for run in everyone if run.until is None or run.until >= begin]
    cover = _coverage(book, runs, ticks, _newest(state_dir))
    lacking = _blindness(book, everyone, runs, begin, cover)
    others = tuple(each.id for each in book.in_order())
    left_out = book.notes_written - len(book.notes)
    alone = _alone(book, begin, float("inf"))
    return Story(str(state_dir), cover, None, lacking, tuple(damage), others, alone, book.replayed, tuple(book.notes), left_out)


def _alone(book: Ledger, begin: float, end: float) -> tuple[Observation, ...]:
    """Those that were not over by `begin`, and had begun by `end`."""
    return tuple(seen for seen in book.alone if seen.began <= end and (seen.status is Status.TRUE or seen.since >= begin))


def _blindness(book: Ledger, everyone: list[Run], runs: list[Run], begin: float, cover: Coverage) -> tuple[Unseen, ...]:
    """Of all runs since `begin`: what weighs most first, what has passed last."""
    if cover.nothing_since is not None:
        return (Unseen("everything", "nothing is on record after that time", cover.nothing_since),)
    end = cover.last if cover.last is not None else begin
    now = unseen.of_lacks(Lack(column, reason, began, None) for column, (reason, began) in book.lacks.items())
    return (
        *unseen.of_runs(everyone, begin, end),
        *unseen.of_lost(runs, begin),
        *now,
        *unseen.of_remarks(runs),
        *unseen.of_lacks(book.past_lacks),
    )


# -------------------------------------------------------------------------------------------------------- one incident


@dataclass(slots=True)
class _Pass:
    """What is collected while the records of the window go by."""

    times: Timeline
    seen: Observations
    lacks: LackLog
    engines: EngineLog = field(default_factory=EngineLog)


def _case(state_dir: Path, book: Ledger, known: Known, damage: list[Damage]) -> tuple[Case, tuple[Unseen, ...]]:
    ranks = {boot: rank for rank, boot in enumerate(sorted(book.boots, key=lambda boot: book.boots[boot]))}
    collected = _Pass(Timeline(ranks, known.began), Observations(known.id), LackLog(known.lacks or {}))
    _read_window(state_dir, known, collected)
    observations = collected.seen.all()
    not_before = _not_before(observations, known)
    runs = _runs_in(state_dir, book, known)
    for microseconds, event in timeline.of_runs(runs):
        if known.began - LEAD_SECONDS <= event.wall <= _end(known, book):
            collected.times.add(event, microseconds)
    events, left_out = collected.times.finish()
    horizon = not_before if not_before is not None else known.began - timeline.PRECURSOR_SECONDS
    events = timeline.mark_first_bad(events, known.id, horizon)
    victims = tuple(dict.fromkeys(seen.subject for seen in observations if seen.subject.kind in PCI_KINDS))
    last_good = not_before if not_before is not None else known.began - 0.001  # a row of that very instant shows it already
    found = readings.read(state_dir, Window(known.boot_id, last_good, known.began, known.ended, victims), damage)
    case = Case(
        id=known.id,
        boot_id=known.boot_id,
        began=known.began,
        not_before=not_before,
        ended=known.ended,
        state=known.state,
        severity=max((seen.severity for seen in observations), key=lambda each: each.rank, default=known.severity),
        end_unknown=_why_unknown(known),
        hardware=True if any(seen.subject.kind in PCI_KINDS or seen.subject.kind == DRIVER for seen in observations) else None,
        events=events,
        events_left_out=left_out,
        observations=observations,
        bystanders=tuple(sorted(found.answered)),
        readings=found,
        dumps=_dumps(state_dir, known.id),
        engines=collected.engines.engines(),
    )
    return case, _unseen(case, known, runs, collected.lacks, book)


def _read_window(state_dir: Path, known: Known, collected: _Pass) -> None:
    """From ten minutes before it began to its end, and of what was done to engines until they are back.

    Lacks count from its beginning on: what was missing then is known.
    """
    if not known.journalled:
        return
    begun = over = False
    for entry in journal.read(state_dir, since=max(known.began - LEAD_SECONDS, 0.0)):
        if known.until is not None and entry.wall >= known.until:
            break
        begun = begun or entry.wall >= known.began
        if begun:
            collected.engines.take(entry)
        if over and (collected.engines.is_settled or entry.kind == "opened"):
            break
        if over:
            continue
        collected.times.take(entry)
        collected.seen.take(entry)
        if begun:
            collected.lacks.take(entry)
        over = entry.kind == "closed" and entry.incident == known.id


def _not_before(observations: tuple[Observation, ...], known: Known) -> float | None:
    """The last good look before the first edge, where that edge was found by looking."""
    opening = next((seen for seen in observations if seen.evidence == known.trigger), observations[0] if observations else None)
    return opening.not_before if opening else None


def _end(known: Known, book: Ledger) -> float:
    return known.ended or known.until or book.last or known.began


def _runs_in(state_dir: Path, book: Ledger, known: Known) -> list[Run]:
    """The runs that overlap the window and the one before."""
    begin, end = known.began - LEAD_SECONDS, _end(known, book)
    first = next((index for index, run in enumerate(book.runs) if (run.stopped or run.last) >= begin), len(book.runs) - 1)
    return _lived(state_dir, [run for run in book.runs[max(0, first - 1) :] if run.began <= end])


def _lived(state_dir: Path, runs: list[Run]) -> list[Run]:
    """A run that ended without a word also lived until its last sample."""
    unclean = [(run, after) for run, after in pairwise(runs) if run.stopped is None][-MOST_UNCLEAN:]
    try:
        sampled = readings.last_times(state_dir, [after.began for _, after in unclean])
    except OSError:  # told as damage where the rows themselves are read
        return runs
    longer = {id(run): max(run.last, time) for (run, _), time in zip(unclean, sampled, strict=True) if time is not None}
    return [replace(run, last=longer.get(id(run), run.last)) for run in runs]


def _why_unknown(known: Known) -> str:
    if not known.journalled:
        return "only its evidence folder is on record, the journal does not know it"
    return "it was never closed, and a later incident began" if known.state == "unknown" else ""


def _dumps(state_dir: Path, incident: str) -> tuple[Dump, ...]:
    folder = state_dir / dumps.FOLDER / incident
    try:
        manifest = dumps.load(folder)
    except FileNotFoundError:
        return (Dump(str(folder), "absent", trouble="there is none"),)
    except OSError as error:
        return (Dump(str(folder), "unreadable", trouble=error.strerror or str(error)),)
    return (Dump(str(folder), manifest.state, manifest.parts, manifest.drill),)


def _unseen(case: Case, known: Known, runs: list[Run], lacks: LackLog, book: Ledger) -> tuple[Unseen, ...]:
    """Most telling first: nobody watching, records lost, evidence not had, readings missing, and what this host never shows."""
    begin = case.not_before if case.not_before is not None else case.began
    end = _end(known, book)
    found = [*unseen.of_runs(runs, begin, end), *unseen.of_gaps(case.events), *unseen.of_dumps(case.dumps)]
    if case.state == "unknown":
        found.insert(0, Unseen("its end", case.end_unknown))
    if known.journalled and known.lacks is None:
        found.append(Unseen("readings already missing when it began", "too many incidents since; name this one to see them"))
    found += unseen.of_lacks(lacks.lacks())
    during = [run for run in runs if run.began <= end and (run.stopped or run.last) >= begin]
    return (*found, *unseen.of_remarks(during or runs[-1:], all_along=True))


def exit_code(told: Story) -> int:
    """0: none, or it is over; 2: open and critical, 1: open and less; 3: nobody knows whether it is over."""
    if told.case is None or told.case.state == "closed":
        return 0
    if told.case.state == "unknown":
        return 3
    return 2 if told.case.severity is Severity.CRITICAL else 1
