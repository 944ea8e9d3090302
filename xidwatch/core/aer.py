"""PCI Express errors as rates: counters that only ever grow become what has been counted lately.

Law: pure counting over the readings of ticks. It counts from when it began to watch: what was there before says nothing about now.
A counter that has gone down was begun anew (remove and rescan, hot-plug): all it shows has been counted since.
Source: Documentation/ABI/testing/sysfs-bus-pci-devices-aer_stats; counters live in the kernel's own record of the device.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from xidwatch.core.model import PCI_KINDS, Missing, Moment, Readings, Subject, Value

WINDOW_SECONDS = 3600.0
LATELY = {"aer_correctable": "aer_correctable_1h"}
SINCE_TICK = {"aer_nonfatal": "aer_nonfatal_new", "aer_fatal": "aer_fatal_new", "aer_root_fatal": "aer_root_fatal_new"}
COUNTERS = (*LATELY, *SINCE_TICK)

Column = tuple[Subject, str]
Counts = tuple[tuple[float, int], ...]  # monotonic time of a tick, and how many


@dataclass(frozen=True, slots=True)
class Errors:
    """What has been counted: the last value of each counter, what came in the hour, and what the rules may see."""

    last: Mapping[Column, int] = field(default_factory=dict)
    hour: Mapping[Column, Counts] = field(default_factory=dict)
    facts: Readings = field(default_factory=dict)


def counted(errors: Errors, readings: Readings, at: Moment) -> Errors:
    """After a tick. A counter that could not be read keeps its last value, and is missing for as long."""
    last = dict(errors.last)
    hour = {column: kept for column, told in errors.hour.items() if (kept := tuple(e for e in told if at.mono - e[0] < WINDOW_SECONDS))}
    facts: dict[Subject, dict[str, Value]] = {}
    for subject, values in readings.items():
        if subject.kind not in PCI_KINDS:
            continue
        fresh = {name: _fresh(last, (subject, name), _value(values, name)) for name in COUNTERS}
        facts[subject] = {seen: fresh[name] for name, seen in SINCE_TICK.items()}
        for name, seen in LATELY.items():
            facts[subject][seen] = _lately(hour, (subject, name), fresh[name], at)
    return Errors(last, hour, facts)


def _value(values: Mapping[str, Value], name: str) -> Value:
    """Only a root port has counters of its own for what comes from below."""
    return values.get(name, Missing.UNSUPPORTED if name == "aer_root_fatal" else Missing.NOT_ASKED)


def _fresh(last: dict[Column, int], column: Column, value: Value) -> int | Missing:
    """How many have been counted since it was last read; writes down the value."""
    if isinstance(value, Missing):
        return value
    if not isinstance(value, int) or value < 0:
        return Missing.MALFORMED
    before = last.get(column, value)
    last[column] = value
    return value - before if value >= before else value


def _lately(hour: dict[Column, Counts], column: Column, fresh: int | Missing, at: Moment) -> int | Missing:
    """How many in the hour; writes down the fresh ones."""
    if isinstance(fresh, Missing):
        return fresh
    if fresh:
        hour[column] = (*hour.get(column, ()), (at.mono, fresh))
    return sum(count for _, count in hour.get(column, ()))
