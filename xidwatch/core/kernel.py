"""What the records of the kernel log mean: the way from a record to events.

    NVRM: Xid (PCI:0000:3b:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus.
    -> KernelEvent(kind="xid", xid=79, pci=0000:3b:00.0, severity=critical, bus_lost=True, driver_fatal=True)

Law: pure and total. Any text gives zero or more events and never an exception; what cannot be read keeps its text.
It says what was written, never why, and it flags for action only what nobody but the speaker can have written. Any user chooses
the names of his processes and files, line breaks included, and the kernel prints both in records of its own:

    NVRM: Xid 79, a[26039]: segfault at 0 ip 0000000000401136 sp 00007ffd error 6 in x[401000+1000]
    NVRM: Xid (PCI:0000:3b:00): 31, pid=26039, name=
    NVRM: Xid 79, channel 0x0000000a

The lines of one speaker are one `Family` in a module of their own (`kernel_nvidia`), which this one only lists.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Protocol

from xidwatch.core.kernel_nvidia import LONGEST_NAME, NvidiaLines, is_driver_load
from xidwatch.core.model import KernelEvent, KernelMessage, PciAddress
from xidwatch.core.xids import XidClass, XidRule, xid_rules

__all__ = ["Family", "Parser", "XidClass", "XidRule", "is_driver_load", "xid_rules"]

# `name[pid]: segfault ...`, `name[pid] bad frame ...`: the kernel names a process. No driver begins so, whatever the name is. The
# bound matters as much: without it a name inside a driver's line could take that line away.
_NAMED_PROCESS = re.compile(rf".{{0,{LONGEST_NAME}}}\[[0-9]{{1,10}}\](?:[:\s]|$)", re.ASCII | re.DOTALL)


class Family(Protocol):
    """The lines of one speaker, and what it has to remember between them."""

    @property
    def needles(self) -> tuple[str, ...]:
        """Every line it cares for holds one of these, case and all. As few as possible: each is looked for in every record."""

    def read(self, line: KernelMessage) -> KernelEvent | None:
        """The event of one line, stripped and without a line break. Never raises."""

    def is_one_sentence(self, text: str) -> bool:
        """Whether a record that begins so is the speaker's to its end, over all its line breaks."""


class Parser:
    """Turns records into events, in the order of the log. Usually none or one per record."""

    def __init__(self, xids: Mapping[int, XidRule]) -> None:
        self._xids = xids
        self._nvidia = NvidiaLines(xids)
        self._families: tuple[Family, ...] = (self._nvidia,)
        self._needles = tuple(needle for family in self._families for needle in family.needles)

    @property
    def uuids(self) -> Mapping[PciAddress, str]:
        """GPU UUIDs as the driver printed them in this log: once per GPU, before its first Xid."""
        return MappingProxyType(self._nvidia.uuids)

    def feed(self, message: KernelMessage) -> tuple[KernelEvent, ...]:
        """The events of one record; nothing to act on in what follows a line break, nor in a record that a process wrote (`injected`)."""
        for needle in self._needles:
            if needle in message.text:
                break
        else:
            return ()  # nearly every record of a log; a flood of them must cost next to nothing
        if _NAMED_PROCESS.match(message.text.strip()):
            return ()
        first, *further = self._lines(message)
        if message.from_kernel:
            return (*self._events([first], self._families), *map(_unacted, self._events(further, self._apart())))
        events = self._events([first, *further], self._apart())
        return tuple(replace(_unacted(event), injected=True) for event in events)

    def finish(self) -> tuple[KernelEvent, ...]:
        """What is still held at the end of the log: nothing, as every event goes out with the first line that decides it."""
        return ()

    def _apart(self) -> tuple[Family, ...]:
        """With a memory of its own: what anybody may have written must not complete, swallow or rename what the kernel writes."""
        return (NvidiaLines(self._xids),)

    def _events(self, lines: Iterable[KernelMessage], families: tuple[Family, ...]) -> Iterator[KernelEvent]:
        for line in lines:
            if _NAMED_PROCESS.match(line.text):
                continue
            for family in families:
                if any(needle in line.text for needle in family.needles) and (event := family.read(line)):
                    yield event
                    break

    def _lines(self, message: KernelMessage) -> list[KernelMessage]:
        """A record's lines, stripped; at least one. A line without a needle goes on with the one before."""
        text = message.text.strip()
        if "\n" not in text:
            return [message if text == message.text else replace(message, text=text)]
        pieces = [piece.strip() for piece in text.split("\n")]
        if any(family.is_one_sentence(text) for family in self._families):
            return [replace(message, text=" ".join(pieces))]
        told: list[str] = []
        for piece in pieces:
            if told and not any(needle in piece for needle in self._needles):
                told[-1] = f"{told[-1]} {piece}".rstrip()
            else:
                told.append(piece)
        return [replace(message, text=line) for line in told]


def _unacted(event: KernelEvent) -> KernelEvent:
    return replace(event, driver_fatal=False, bus_lost=False) if event.driver_fatal or event.bus_lost else event
