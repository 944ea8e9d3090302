"""What could not be seen, gathered from every kind of record that says so.

    gpu 0000:11:00.0, 0000:12:00.0: power_*, temperature_celsius   TIMED_OUT   02:10:08 to 02:12:38

Law: pure. Silence is never taken for health: each lack is told with its reason and the time for which it held.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

from xidwatch.core.model import Subject
from xidwatch.records.journal import Entry
from xidwatch.report import facts, words
from xidwatch.report.lacks import Lack, Lacks, update_lacks
from xidwatch.report.ledger import Run
from xidwatch.report.story import Dump, Event, Unseen

MOST_NAMES = 6  # quantities spelt out before "and n more"
FAMILY = 3  # so many quantities of one first word are written `power_*`
MOST_SPANS = 3  # of one remark that is made in some runs and not in others; more are one span with a count
MOST_UNWATCHED = 12  # times in which nobody watched are told one by one


class LackLog:
    """What is missing while records go by, from what was missing at the beginning."""

    def __init__(self, at_first: Lacks) -> None:
        self._now: Lacks = dict(at_first)
        self._before = set(at_first)
        self._over: list[Lack] = []

    def take(self, entry: Entry) -> None:
        """Only `missing` and `started` records count: a run that starts knows of no lack yet, and tells all of them anew."""
        if entry.kind == "missing":
            over = update_lacks(self._now, entry)
        elif entry.kind == "started":
            over = [(column, *lack) for column, lack in self._now.items()]
            self._now.clear()
        else:
            return
        for column, reason, since in over:
            self._over.append(Lack(column, reason, self._since(column, since), entry.wall))
            self._before.discard(column)

    def lacks(self) -> list[Lack]:
        """All of them; one that still holds has no end."""
        still = [Lack(column, reason, self._since(column, since), None) for column, (reason, since) in self._now.items()]
        return [*self._over, *still]

    def _since(self, column: str, since: float) -> float | None:
        return None if column in self._before else since


def of_lacks(lacks: Iterable[Lack]) -> list[Unseen]:
    """Columns that went and came together are told together."""
    together: dict[tuple[str, float | None, float | None, int], dict[Subject, list[str]]] = {}
    for lack in lacks:
        name, _, quantity = lack.column.rpartition(":")
        subject = facts.subject(name)
        if subject is not None:
            together.setdefault((lack.reason, lack.began, lack.ended, lack.times), {}).setdefault(subject, []).append(quantity)
    found: list[Unseen] = []
    for (reason, began, ended, times), by_subject in together.items():
        alike: dict[tuple[str, tuple[str, ...]], list[Subject]] = {}
        for subject, quantities in by_subject.items():
            alike.setdefault((subject.kind, tuple(sorted(quantities))), []).append(subject)
        for (_, alike_names), subjects in alike.items():
            found.append(Unseen(f"{words.subjects(subjects)}: {names(alike_names)}", reason, began, ended, times))
    return merged(found)


def names(quantities: Iterable[str]) -> str:
    """`power_*, temperature_celsius`: families of three and more under their first word, and no more than a few names."""
    families: dict[str, list[str]] = {}
    for name in quantities:
        families.setdefault(name.partition("_")[0], []).append(name)
    short: list[str] = []
    for first, members in families.items():
        short += [f"{first}_*"] if len(members) >= FAMILY else members
    more = len(short) - MOST_NAMES
    return ", ".join(short[:MOST_NAMES]) + (f" and {more} more" if more > 0 else "")


def merged(found: Iterable[Unseen]) -> list[Unseen]:
    """The same lack again and again is one line, with how often."""
    by_words: dict[tuple[str, str], Unseen] = {}
    for each in found:
        known = by_words.get((each.what, each.why))
        if known is None:
            by_words[each.what, each.why] = each
        else:
            began = None if known.began is None or each.began is None else min(known.began, each.began)
            ended = None if known.ended is None or each.ended is None else max(known.ended, each.ended)
            by_words[each.what, each.why] = replace(known, began=began, ended=ended, times=known.times + each.times)
    return list(by_words.values())


def of_runs(runs: Sequence[Run], begin: float, end: float) -> list[Unseen]:
    """Times in which nobody watched; the earlier ones of very many are told together."""
    found: list[Unseen] = []
    for before, after in pairwise(runs):
        left = before.stopped if before.stopped is not None else before.last
        if after.began < begin or left > end:
            continue
        why = "xidwatch was stopped" if before.stopped is not None else "the run ended without a word"
        if after.boot_id != before.boot_id:
            why += ", the host was restarted in between"
        found.append(Unseen("everything", why, left, after.began))
    return [*merged(found[:-MOST_UNWATCHED]), *found[-MOST_UNWATCHED:]]


def of_remarks(runs: Sequence[Run], *, all_along: bool = False) -> list[Unseen]:
    """What the program itself said it cannot see, and probes that were switched off.

    The same in runs that follow each other is told once, from the first time to the last run's end. With `all_along`,
    what holds for every one of `runs` has no time.
    """
    spans: dict[str, list[_Span]] = {}
    for index, run in enumerate(runs):
        for text, began in _remarks(run).items():
            known = spans.setdefault(text, [])
            if known and known[-1].last == index - 1:
                known[-1] = replace(known[-1], ended=run.until, last=index)
            else:
                known.append(_Span(began, run.until, index, index))
    found: list[Unseen] = []
    for text, several in spans.items():
        if all_along and several[0].first == 0 and several[0].last == len(runs) - 1:
            found.append(Unseen(*_about(text, len(runs))))
        else:
            each = [Unseen(*_about(text, span.last - span.first + 1), span.began, span.ended) for span in several]
            found += merged(each) if len(each) > MOST_SPANS else each
    return found


@dataclass(frozen=True, slots=True)
class _Span:
    """From one run to another, by their places in the list."""

    began: float
    ended: float | None
    first: int
    last: int


def _remarks(run: Run) -> dict[str, float]:
    off = {f"{name}: switched off in the settings (probes.{name}.enabled = false)": run.began for name in run.switched_off}
    return off | {text: wall for text, wall in run.remarks.items() if text}


def _about(text: str, runs: int) -> tuple[str, str]:
    """A remark begins with the source it is about, or is about the run as a whole."""
    source, colon, rest = text.partition(": ")
    if colon and " " not in source:
        return source, rest
    return "the run" if runs == 1 else "the runs", text


def of_lost(runs: Iterable[Run], begin: float) -> list[Unseen]:
    """Records that each run lost."""
    return [
        Unseen(f"records of {source}", f"{lost.number} were not kept", lost.first, lost.last)
        for run in runs
        for source, lost in run.lost.items()
        if lost.last >= begin
    ]


def of_gaps(events: Iterable[Event]) -> list[Unseen]:
    """Records that were lost."""
    return [Unseen(f"records of {event.kind}", event.text, event.wall, event.wall) for event in events if event.source == "gap"]


def of_dumps(dumps: Iterable[Dump]) -> list[Unseen]:
    """Parts of the evidence that could not be had."""
    found: list[Unseen] = []
    for dump in dumps:
        if dump.trouble:
            found.append(Unseen("the evidence folder", dump.trouble))
        for part in dump.parts:
            began = facts.time({"started": part.started}, "started")
            if part.status == "unknown":
                found.append(Unseen(f"evidence part {part.name}", "it lies in the folder, but no manifest says that it is whole"))
            elif part.status != "ok":
                found.append(Unseen(f"evidence part {part.name}", f"{part.status}{': ' + part.note if part.note else ''}", began, began))
    return found
