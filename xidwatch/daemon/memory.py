r"""What the loop keeps in memory so that a dump has it even when the disk is already gone.

Its texts are those of the files they stand in for, and are read like them:

    time,boot_id,tick,gpu:0000:11:00.0:power_mean_watts,gpu:0000:11:00.0:temperature_celsius
    2026-09-17T02:09:38.004Z,5f0c...,119,246.1,61
    4,1234,5678901,-;NVRM: Xid (PCI:0000:0f:00): 79, pid=4242, name=python3, GPU has fallen off the bus.
"""

from __future__ import annotations

import csv
import io
import json
import re
from collections import deque
from collections.abc import Iterable

from xidwatch.clock import iso
from xidwatch.core import quantities
from xidwatch.core.model import KernelMessage, Readings, Sample
from xidwatch.daemon.power_ring import PowerRing
from xidwatch.records.values import plain_readings

ROWS = 120  # an hour at 30 s
KERNEL_RECORDS = 2000
KERNEL_CHARACTERS = 1024 * 1024
POSITIONS = {quantity.name: position for position, quantity in enumerate(quantities.TABLE)}
KINDS = ("gpu", "port", "nvme", "rail", "host", "kernel", "engine", "probe", "chip")

_ESCAPED = re.compile(rb"[^\x20-\x7e]|\\")
_BREAKS = re.compile(r"[\r\n\0]+")


def cells(readings: Readings) -> dict[str, str]:
    """A sample as the CSV has it: column to text, empty for missing; inventory facts are no columns.

    The order is that of the kinds, the names and the table of quantities, never that in which the answers came: rows under
    one header must agree.
    """
    subjects = sorted(readings, key=lambda subject: (KINDS.index(subject.kind) if subject.kind in KINDS else len(KINDS), subject))
    return {
        f"{subject}:{name}": quantities.text(name, readings[subject][name])
        for subject in subjects
        for name in sorted(readings[subject], key=_position)
        if not (name in quantities.BY_NAME and quantities.BY_NAME[name].fact)
    }


def _position(name: str) -> tuple[int, str]:
    return POSITIONS.get(name, len(POSITIONS)), name


class Memory:
    """Bounded rings of the latest samples, kernel records and each GPU's power over time, and the latest inventory."""

    def __init__(self) -> None:
        self._rows: deque[tuple[str, str]] = deque(maxlen=ROWS)  # header line, row line: kept as text, which is small
        self._kernel: deque[KernelMessage] = deque()
        self._kernel_characters = 0
        self.power = PowerRing()
        self.inventory: Readings = {}

    def add_row(self, sample: Sample, row: dict[str, str]) -> None:
        """The latest tick."""
        header = _csv_line(("time", "boot_id", "tick", *row))
        line = _csv_line((iso(sample.at.wall), sample.boot_id, str(sample.tick), *row.values()))
        if self._rows and self._rows[-1][0] == header:
            header = self._rows[-1][0]  # one string for all rows of the same columns
        self._rows.append((header, line))

    def add_kernel(self, message: KernelMessage) -> None:
        """Every record, event or not: what stood around it is evidence too."""
        self._kernel.append(message)
        self._kernel_characters += len(message.text)
        while len(self._kernel) > KERNEL_RECORDS or self._kernel_characters > KERNEL_CHARACTERS:
            self._kernel_characters -= len(self._kernel.popleft().text)

    def samples_text(self) -> str:
        """The rows as CSV; a change of columns starts a new header."""
        lines: list[str] = []
        header = ""
        for row_header, line in self._rows:
            if row_header != header:
                header = row_header
                lines.append(header)
            lines.append(line)
        return "".join(lines)

    def kernel_text(self) -> str:
        """The records as /dev/kmsg gives them, escapes and all: `prio,seq,usec,flags;text`, one a line whatever is in it."""
        return "".join(f"{m.facility * 8 + m.level},{m.seq},{m.usec},{m.flags};{_escaped(m.text)}\n" for m in self._kernel)

    def inventory_text(self) -> str:
        """The inventory as it was while things answered."""
        return json.dumps(plain_readings(self.inventory), indent=1) + "\n"


def _csv_line(texts: Iterable[str]) -> str:
    out = io.StringIO()
    csv.writer(out, lineterminator="\n").writerow(_BREAKS.sub(" ", text) for text in texts)  # a line is a row, always
    return out.getvalue()


def _escaped(text: str) -> str:
    return _ESCAPED.sub(lambda found: b"\\x%02x" % ord(found[0]), text.encode("utf-8", "replace")).decode("ascii")
