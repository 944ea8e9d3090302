"""What a device looks like while nothing is wrong: `expected` in the rules.

Law: pure. Takes the readings of one moment and what was learnt before, gives what is to be learnt now.
"""

from __future__ import annotations

from collections.abc import Mapping

from xidwatch.core import engines
from xidwatch.core.model import PCI_KINDS, Missing, Readings, Value

LEARNT = ("command", "secondary_bus", "subordinate_bus", "link_width", "driver")
REMEMBERED = ("identity", "link_width")  # of earlier boots too, by `roster`
LEARNT_OF_RAILS = ("present",)


def news(readings: Readings, expected: Readings) -> Readings:
    """Subjects seen whole for the first time, or with another driver, or GPUs; empty when there is nothing to learn."""
    devices = {
        subject: {name: values[name] for name in LEARNT if name in values and not isinstance(values[name], Missing)}
        for subject, values in readings.items()
        if subject.kind in PCI_KINDS and _tells_all(values) and _is_new(expected.get(subject), values)
    }
    rails = {
        subject: {name: values[name] for name in LEARNT_OF_RAILS}
        for subject, values in readings.items()
        if subject.kind == "rail" and _is_read(values) and subject not in expected
    }
    units = {
        subject: values
        for subject, engine in readings.items()
        if subject.kind == "engine" and (values := engines.learnt(engine, readings, expected.get(subject, {})))
    }
    return {**devices, **rails, **units}


def _tells_all(values: Mapping[str, Value]) -> bool:
    """Half a reading would be believed for as long as the device keeps its driver."""
    word = values.get("config_dword0", Missing.NOT_ASKED)
    lacks = {values[name] for name in LEARNT if isinstance(values.get(name), Missing)}
    answers = isinstance(word, int) and word & 0xFFFF not in (0xFFFF, 0x0001)
    return answers and "driver" in values and lacks <= {Missing.UNSUPPORTED}


def _is_new(expected: Mapping[str, Value] | None, values: Mapping[str, Value]) -> bool:
    """Never seen before, or bound to another driver, which sets the registers as it likes."""
    return expected is None or expected.get("driver") != values["driver"]


def _is_read(values: Mapping[str, Value]) -> bool:
    return values.get("present") == 1 and not isinstance(values.get("volts", Missing.NOT_ASKED), Missing)
