"""Readings that were missing, as the records say it: column by column, with the reason and the time.

    {"missing":{"reason":"TIMED_OUT","columns":["gpu:0000:11:00.0:temperature_celsius"]}}     from now on
    {"missing":{"reason":null,"columns":["gpu:0000:11:00.0:temperature_celsius"]}}            it is back

Law: pure, and bounded by the number of columns and reasons, however long the records are.
"""

from __future__ import annotations

from dataclasses import dataclass

from xidwatch.records.journal import Entry
from xidwatch.report import facts

Lacks = dict[str, tuple[str, float]]  # column -> reason, since


@dataclass(frozen=True, slots=True)
class Lack:
    """One column that was missing. `began` None: before the time that is told about; `ended` None: it still is."""

    column: str
    reason: str
    began: float | None
    ended: float | None
    times: int = 1


def columns(entry: Entry) -> list[str]:
    """The columns a `missing` record is about: a list of them, or in one-column form subject and quantity."""
    named = facts.texts(entry.body, "columns")
    single = facts.text(entry.body, "subject")
    return named or ([f"{single}:{facts.text(entry.body, 'quantity')}"] if single else [])


def update_lacks(lacks: Lacks, entry: Entry) -> list[tuple[str, str, float]]:
    """Take over a `missing` record; returns what was missing until now and no longer is (column, reason, since)."""
    reason = facts.text(entry.body, "reason")
    over: list[tuple[str, str, float]] = []
    for column in columns(entry):
        before = lacks.pop(column, None)
        if before is not None:
            over.append((column, *before))
        if reason:
            lacks[column] = (reason, entry.wall)
    return over


class PastLacks:
    """What was missing for a while. Every run tells its lacks anew: one that the next run tells too was never over."""

    def __init__(self, since: float | None) -> None:
        self._since = since
        self._over: dict[tuple[str, str], Lack] = {}
        self._carried: dict[str, Lack] = {}  # until the run that has just started says whether it still holds

    def take(self, lacks: Lacks, entry: Entry) -> None:
        """A `missing` record; `lacks` is what is missing now, and is brought up to date."""
        for column, reason, began in update_lacks(lacks, entry):
            self._end(Lack(column, reason, began, entry.wall))
        for column in columns(entry):
            carried, now = self._carried.get(column), lacks.get(column)
            if carried and carried.began is not None and now and now[0] == carried.reason:
                lacks[column] = (carried.reason, carried.began)
                del self._carried[column]

    def started(self, lacks: Lacks, ended: float) -> None:
        """A run starts, and knows of no lack yet; the one before it ended at `ended`."""
        self._settle()
        self._carried = {column: Lack(column, reason, began, ended) for column, (reason, began) in lacks.items()}
        lacks.clear()

    def all(self) -> tuple[Lack, ...]:
        """Each column and reason once, with how often."""
        self._settle()
        return tuple(self._over.values())

    def _settle(self) -> None:
        for lack in self._carried.values():
            self._end(lack)
        self._carried = {}

    def _end(self, lack: Lack) -> None:
        if self._since is not None and lack.ended is not None and lack.ended < self._since:
            return
        known = self._over.get((lack.column, lack.reason))
        first, times = (known.began, known.times + 1) if known else (lack.began, 1)
        self._over[lack.column, lack.reason] = Lack(lack.column, lack.reason, first, lack.ended, times)
