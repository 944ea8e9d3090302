"""From the answers of one tick to one complete sample: a reading that did not come is Missing, with its reason.

Law: pure. It knows which probe owns which column, nothing of processes or time.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from xidwatch.core.model import Missing, Readings, Subject, Value

Column = tuple[Subject, str]


@dataclass(frozen=True, slots=True)
class Answer:
    """How one probe's request ended: `done failed timeout crashed garbage not-asked`, and what came."""

    probe: str
    ended: str
    readings: Readings
    why: str = ""
    failure: str = ""
    took_ms: int = 0
    left_out: tuple[str, ...] = ()  # subjects not to be touched, since a process is stuck at each
    at: str = ""  # the subject it was touching when it last said so

    @property
    def in_full(self) -> bool:
        """Everything that was to be asked has been answered."""
        return self.ended == "done" and not self.left_out

    @property
    def answering(self) -> bool:
        """It came to an end of its own, if only by saying why not; or it was not to be asked."""
        return self.ended in ("done", "failed", "not-asked")

    @property
    def trouble(self) -> str:
        """Why it was not answered in full, for people; empty when it was."""
        if self.why:
            return self.why if self.answering or not self.at else f"{self.why} (at {self.at})"
        return f"leaves out {', '.join(self.left_out)}, where a process is stuck" if self.left_out else ""


@dataclass(slots=True)
class Columns:
    """Every column ever reported in this run, by the probe that reports it."""

    owner: dict[Column, str] = field(default_factory=dict)

    def complete(self, answers: Mapping[str, Answer]) -> dict[Subject, dict[str, Value]]:
        """All known columns; new ones join."""
        readings: dict[Subject, dict[str, Value]] = {}
        for answer in answers.values():
            for subject, values in answer.readings.items():
                readings.setdefault(subject, {}).update(values)
                self.owner.update(dict.fromkeys(((subject, name) for name in values), answer.probe))
        for (subject, name), probe in self.owner.items():
            values = readings.setdefault(subject, {})
            if name not in values:
                values[name] = why_missing(answers.get(probe))
        return readings


def why_missing(answer: Answer | None) -> Missing:
    """What the lack of a reading means, given how its probe's request ended."""
    if answer is None or answer.ended == "not-asked":
        return Missing.NOT_ASKED
    match answer.ended:
        case "done":
            return Missing.ABSENT
        case "failed":
            return Missing.DENIED if "Permission" in answer.failure else Missing.ABSENT
        case "garbage":
            return Missing.MALFORMED
        case _:
            return Missing.TIMED_OUT


def missing_changes(before: Mapping[Column, Missing], readings: Readings) -> tuple[dict[Column, Missing], dict[str, list[str]]]:
    """Which columns are missing now, and what changed since: reason (or "back") to column names, for the journal."""
    now = {(subject, name): value for subject, values in readings.items() for name, value in values.items() if isinstance(value, Missing)}
    changed: dict[str, list[str]] = {}
    for column, reason in now.items():
        if before.get(column) is not reason:
            changed.setdefault(str(reason), []).append(f"{column[0]}:{column[1]}")
    for subject, name in sorted(before.keys() - now.keys()):
        if name in readings.get(subject, {}):
            changed.setdefault("back", []).append(f"{subject}:{name}")
    return now, changed
