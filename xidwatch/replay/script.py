"""The words a fixture is written in: one thing a line, `#` begins a remark, blanks at the beginning say what is below what.

    2026-09-17T00:42:00Z  boot
    +25s                  start                                    so long after the line before
    00:41:58              set gpus watts=338 peak_watts=560        that time of day, the next after the line before
    00:42:00.100          lost 0000:11:00.0 0000:12:00.0

Words are those of a shell: quotes hold blanks together, `name=value` is an option.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime

from xidwatch.clock import from_iso
from xidwatch.core.rules import seconds

DAY_SECONDS = 86400.0
_OPTION = re.compile(r"(?P<name>[A-Za-z_][A-Za-z0-9_/]*)=(?P<value>.*)", re.DOTALL)
_TIME_OF_DAY = re.compile(r"(\d\d):(\d\d):(\d\d(?:\.\d+)?)")


class FixtureError(Exception):
    """A fixture that cannot be read; says where and what was expected."""


@dataclass(frozen=True, slots=True)
class Words:
    """One line, taken apart."""

    place: str  # host.txt:12
    indent: int
    words: tuple[str, ...]
    options: Mapping[str, str]

    def error(self, text: str) -> FixtureError:
        """What to raise about this line."""
        return FixtureError(f"{self.place}: {text}")


@dataclass(frozen=True, slots=True)
class Event:
    """Something that happens. `at`: wall seconds, as a clock that nobody ever set would show them."""

    at: float
    verb: str
    line: Words  # without time and verb


def lines(text: str, name: str) -> Iterator[Words]:
    """Every line that says something. Raises FixtureError."""
    for number, line in enumerate(text.splitlines(), start=1):
        place = f"{name}:{number}"
        try:
            words = shlex.split(line, comments=True)
        except ValueError as error:
            raise FixtureError(f"{place}: {error}") from error
        if words:
            options = {found["name"]: found["value"] for word in words if (found := _OPTION.fullmatch(word))}
            plain = tuple(word for word in words if not _OPTION.fullmatch(word))
            yield Words(place, len(line) - len(line.lstrip()), plain, options)


def events(text: str, name: str) -> list[Event]:
    """A timeline; times never go back. Raises FixtureError."""
    found: list[Event] = []
    for line in lines(text, name):
        if len(line.words) < 2:
            raise line.error("expected a time and what happens then: `00:42:00 lost 0000:11:00.0`")
        time, verb, *rest = line.words
        at = _when(time, found[-1].at if found else None, line)
        if found and at < found[-1].at:
            raise line.error(f"{time} lies before the line above")
        found.append(Event(at, verb, Words(line.place, line.indent, tuple(rest), line.options)))
    return found


def _when(time: str, before: float | None, line: Words) -> float:
    try:
        return moment(time, before)
    except ValueError as error:
        raise line.error(str(error)) from error


def moment(time: str, before: float | None) -> float:
    """A time as a timeline has it, in wall seconds; `before`: what it may be reckoned from. Raises ValueError."""
    try:
        if time.startswith("+") and before is not None:
            return before + seconds(time[1:])
        if (clock := _TIME_OF_DAY.fullmatch(time)) and before is not None:
            return _next(before, int(clock[1]) * 3600 + int(clock[2]) * 60 + float(clock[3]))
        return from_iso(time)
    except ValueError as error:
        expected = "2026-09-17T00:42:00Z, and after a first one 00:42:00 or +30s as well"
        raise ValueError(f"{time!r} is no time: expected {expected}") from error


def _next(before: float, second_of_day: float) -> float:
    """The first time after `before` at which clocks show this, UTC."""
    midnight = datetime.fromtimestamp(before, UTC).replace(hour=0, minute=0, second=0, microsecond=0).timestamp()
    at = midnight + second_of_day
    return at if at >= before else at + DAY_SECONDS
