"""What has changed between two looks at who is there: after maintenance, and before a baseline is accepted.

Law: pure. Only what was known both times can have changed: a fact that somebody cannot tell now is no news.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from xidwatch.core import roster
from xidwatch.core.model import PCI_KINDS, Missing, Readings, Value

MOST_CHARACTERS = 60  # of a value
NAMES = ("name", "uuid", "serial", "board", "driver")  # by which a device is known to people

Facts = Mapping[str, Value]


class Here(NamedTuple):
    """The facts about everything that is there. Not `is_listed`: the list of PCI devices did not come, so one that is not in it may be."""

    facts: Readings
    is_listed: bool


def here(readings: Readings, inventory: Readings) -> Here:
    """As of these readings: of PCI devices only those that are seen."""
    facts = {
        subject: facts
        for subject, facts in inventory.items()
        if subject.kind not in PCI_KINDS or readings.get(subject, {}).get("present") == 1
    }
    return Here(facts, not isinstance(roster.listing(readings), Missing))


def since(before: Here, after: Here) -> tuple[str, ...]:
    """`changes`, where PCI devices were listed both times; else of all others."""
    if before.is_listed and after.is_listed:
        return changes(before.facts, after.facts)
    return changes(_beside_pci(before.facts), _beside_pci(after.facts))


def _beside_pci(readings: Readings) -> Readings:
    return {subject: facts for subject, facts in readings.items() if subject.kind not in PCI_KINDS}


def changes(before: Readings, after: Readings) -> tuple[str, ...]:
    """In words, one a subject: who went, who came, who is another or has other facts."""
    words = [
        *(f"{subject} is not there any more{_called(before[subject])}" for subject in sorted(before.keys() - after.keys())),
        *(f"{subject} is new{_called(after[subject])}" for subject in sorted(after.keys() - before.keys())),
    ]
    for subject in sorted(before.keys() & after.keys()):
        different = _different(before[subject], after[subject])
        if different:
            words.append(f"{subject}: {different}")
    return tuple(words)


def _called(facts: Facts) -> str:
    known = [_short(facts[name]) for name in NAMES if _is_told(facts.get(name))]
    return f" ({', '.join(known)})" if known else ""


def _different(before: Facts, after: Facts) -> str:
    both = [name for name in sorted(before) if _is_told(before[name]) and _is_told(after.get(name)) and before[name] != after[name]]
    return ", ".join(f"{name} was {_short(before[name])} and is {_short(after[name])}" for name in both)


def _is_told(value: Value | None) -> bool:
    return value is not None and not isinstance(value, Missing) and value != ""


def _short(value: Value) -> str:
    text = str(value)
    return text if len(text) <= MOST_CHARACTERS else f"{text[: MOST_CHARACTERS - 3]}..."
