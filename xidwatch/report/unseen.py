"""What could not be seen, gathered from every kind of record that says so.

    gpu 0000:11:00.0, 0000:12:00.0: power_*, temperature_celsius   TIMED_OUT   02:10:08 to 02:12:38

Law: pure. Silence is never taken for health: each lack is told with its reason and the time for which it held.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from itertools import pairwise

from xidwatch.core.model import Subject
from xidwatch.records.journal import Entry
from xidwatch.report import facts, words
from xidwatch.report.ledger import Lacks, Run, update_lacks
from xidwatch.report.story import Dump, Event, Unseen

MOST_NAMES = 6  # quantities spelt out before "and n more"
FAMILY = 3  # so many quantities of one first word are written `power_*`


@dataclass(frozen=True, slots=True)
class Lack:
    """One column that was missing. `began` None: before the time that is told about."""

    column: str
    reason: str
    began: float | None
    ended: float | None


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
    together: dict[tuple[str, float | None, float | None], dict[Subject, list[str]]] = {}
    for lack in lacks:
        name, _, quantity = lack.column.rpartition(":")
        subject = facts.subject(name)
        if subject is not None:
            together.setdefault((lack.reason, lack.began, lack.ended), {}).setdefault(subject, []).append(quantity)
    found: list[Unseen] = []
    for (reason, began, ended), by_subject in together.items():
        alike: dict[tuple[str, tuple[str, ...]], list[Subject]] = {}
        for subject, quantities in by_subject.items():
            alike.setdefault((subject.kind, tuple(sorted(quantities))), []).append(subject)
        for (_, alike_names), subjects in alike.items():
            found.append(Unseen(f"{words.subjects(subjects)}: {names(alike_names)}", reason, began, ended))
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


def of_runs(runs: list[Run], begin: float, end: float) -> list[Unseen]:
    """Times in which nobody watched."""
    found: list[Unseen] = []
    for before, after in pairwise(runs):
        left = before.stopped if before.stopped is not None else before.last
        if after.began < begin or left > end:
            continue
        why = "xidwatch was stopped" if before.stopped is not None else "the run ended without a word"
        if after.boot_id != before.boot_id:
            why += ", the host was restarted in between"
        found.append(Unseen("everything", why, left, after.began))
    return found


def of_remarks(runs: Iterable[Run]) -> list[Unseen]:
    """What the program itself said it cannot see. A remark begins with the source it is about, or is about the run as a whole."""
    found: list[Unseen] = []
    for text in dict.fromkeys(text for run in runs for text in run.remarks if text):
        source, colon, rest = text.partition(": ")
        named = bool(colon) and " " not in source
        found.append(Unseen(source if named else "this run", rest if named else text))
    return found


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
