"""What the records of the kernel log mean: the way from a record to events.

    NVRM: Xid (PCI:0000:3b:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus.
    -> KernelEvent(kind="xid", xid=79, pci=0000:3b:00.0, severity=critical, bus_lost=True, driver_fatal=True)

Law: pure and total. Any text gives zero or more events and never an exception; what cannot be read keeps its text.
It says what was written, never why, and it flags for action only what nobody but the speaker can have written. Any user chooses
the names of his processes and files, line breaks included, and the kernel prints both in records of its own:

    NVRM: Xid 79, a[26039]: segfault at 0 ip 0000000000401136 sp 00007ffd error 6 in x[401000+1000]
    NVRM: Xid (PCI:0000:3b:00): 31, pid=26039, name=
    NVRM: Xid 79, channel 0x0000000a

The lines of one speaker are one `Family` in a module of their own (`kernel_nvidia`, `kernel_pci`, ...), which this one only lists. An
event goes out with the first line that decides it, under the number and time of the record's first line; what the same report goes on
to say is swallowed by the family. Its text is that of the line that decided, behind those it needed to (the first two of a loss at
probe time, the first ones of the firmware's records).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Protocol

from xidwatch.core.kernel_hardware import HardwareLines
from xidwatch.core.kernel_host import HostLines
from xidwatch.core.kernel_nvidia import LONGEST_NAME, NvidiaLines, is_driver_load
from xidwatch.core.kernel_nvme import NvmeLines
from xidwatch.core.kernel_pci import PciLines
from xidwatch.core.kernel_pci_block import AerBlockLines
from xidwatch.core.model import KernelEvent, KernelMessage, PciAddress
from xidwatch.core.xids import XidClass, XidRule, xid_rules

__all__ = ["Family", "Parser", "XidClass", "XidRule", "is_driver_load", "is_spoken", "xid_rules"]

# `name[pid]: segfault ...`, `name[pid] bad frame ...`: the kernel names a process. No driver begins so, whatever the name is. The
# bound matters as much: without it a name inside a driver's line could take that line away.
_NAMED_PROCESS = re.compile(rf".{{0,{LONGEST_NAME}}}\[[0-9]{{1,10}}\](?:[:\s]|$)", re.ASCII | re.DOTALL)


class Family(Protocol):
    """The lines of one speaker, and what it has to remember between them."""

    begins: str  # a regular expression, without groups that capture: how every line begins that it cares for, case and all

    def read(self, line: KernelMessage) -> KernelEvent | None:
        """The event of one line, stripped and without a line break. Never raises."""

    def is_one_sentence(self, text: str) -> bool:
        """Whether a record that begins so is the speaker's to its end, over all its line breaks."""

    def finish(self) -> KernelEvent | None:
        """An event that still waits for lines of its record, at the end of the log."""


# One look at a line's beginning tells whose it is: nearly every line of a log is nobody's, and its length costs nothing. The most
# particular first: a port of the PCI core may have any driver's name.
_FAMILIES: tuple[type[Family], ...] = (NvidiaLines, HostLines, HardwareLines, NvmeLines, AerBlockLines, PciLines)
_BEGINS = re.compile(r"\s*(?:" + "|".join(f"({family.begins})" for family in _FAMILIES) + ")", re.ASCII)


def is_spoken(text: str) -> bool:
    """Whether a line begins as one of the speakers begins; nothing else is ever an event."""
    return _BEGINS.match(text) is not None


class Parser:
    """Turns records into events, in the order of the log. Usually none or one per record."""

    def __init__(self, xids: Mapping[int, XidRule]) -> None:
        self._xids = xids
        self._nvidia = NvidiaLines(xids)
        self._hardware, self._blocks = HardwareLines(), AerBlockLines()
        self._families: tuple[Family, ...] = (self._nvidia, HostLines(), self._hardware, NvmeLines(), self._blocks, PciLines())

    def use(self, xids: Mapping[int, XidRule]) -> None:
        """Other rules from here on; what the log has said so far is not forgotten."""
        self._xids = self._nvidia.xids = xids

    @property
    def holds(self) -> bool:
        """Whether the next lines may say more of a record that has had no event yet, whoever they seem to be of."""
        return self._hardware.holds or self._blocks.holds

    @property
    def uuids(self) -> Mapping[PciAddress, str]:
        """GPU UUIDs as the driver printed them in this log: once per GPU, before its first Xid."""
        return MappingProxyType(self._nvidia.uuids)

    def feed(self, message: KernelMessage) -> tuple[KernelEvent, ...]:
        """The events of one record; nothing to act on in what follows a line break, nor in a record that a process wrote (`injected`)."""
        text = message.text
        match, is_one_line = _BEGINS.match(text), "\n" not in text
        if match is None and is_one_line:  # nearly every record of a log; a flood of them must cost next to nothing
            return self._passed_over(message) if self.holds else ()
        if _names_process(text.strip()):
            return ()
        if match and match.lastindex and is_one_line and message.from_kernel and not (text[0].isspace() or text[-1].isspace()):
            event = self._families[match.lastindex - 1].read(message)
            return (event,) if event else ()
        first, *further = self._lines(message)
        if message.from_kernel:
            return (*self._events([first], self._families), *map(_unacted, self._apart(further)))
        return tuple(replace(_unacted(event), injected=True) for event in self._apart([first, *further]))

    def finish(self) -> tuple[KernelEvent, ...]:
        """What is still held at the end of the log."""
        return _given(family.finish() for family in self._families)

    def _passed_over(self, message: KernelMessage) -> tuple[KernelEvent, ...]:
        return _given(family.pass_over(message.usec) for family in (self._hardware, self._blocks)) if message.from_kernel else ()

    def _apart(self, lines: list[KernelMessage]) -> tuple[KernelEvent, ...]:
        """With a memory of its own: what anybody may have written must not complete, swallow or rename what the kernel writes."""
        if not lines:
            return ()
        apart = Parser(self._xids)
        return (*apart._events(lines, apart._families), *apart.finish())

    def _events(self, lines: Iterable[KernelMessage], families: tuple[Family, ...]) -> Iterator[KernelEvent]:
        for line in lines:
            match = _BEGINS.match(line.text)
            if match is None or match.lastindex is None or _names_process(line.text):
                continue
            if event := families[match.lastindex - 1].read(line):
                yield event

    def _lines(self, message: KernelMessage) -> list[KernelMessage]:
        """A record's lines, stripped; at least one. A line that begins as nobody's does goes on with the one before."""
        text = message.text.strip()
        if "\n" not in text:
            return [message if text == message.text else replace(message, text=text)]
        pieces = [piece.strip() for piece in text.split("\n")]
        if any(family.is_one_sentence(text) for family in self._families):
            return [replace(message, text=" ".join(pieces))]
        told = [[pieces[0]]]
        for piece in pieces[1:]:
            if _BEGINS.match(piece):
                told.append([piece])
            else:
                told[-1].append(piece)
        return [replace(message, text=" ".join(parts).rstrip()) for parts in told]


def _names_process(text: str) -> bool:
    return text.find("[", 0, LONGEST_NAME + 1) >= 0 and _NAMED_PROCESS.match(text) is not None


def _given(events: Iterable[KernelEvent | None]) -> tuple[KernelEvent, ...]:
    return tuple(event for event in events if event)


def _unacted(event: KernelEvent) -> KernelEvent:
    return replace(event, driver_fatal=False, bus_lost=False) if event.driver_fatal or event.bus_lost else event
