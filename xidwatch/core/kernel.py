"""What the records of the kernel log mean: the way from a record to events.

    NVRM: Xid (PCI:0000:3b:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus.
    -> KernelEvent(kind="xid", xid=79, pci=0000:3b:00.0, severity=critical, bus_lost=True, driver_fatal=True)

Law: pure and total. Any text gives zero or more events and never an exception; what cannot be read keeps its text.
It says what was written, never why. The lines of one speaker are one `Family` in a module of their own
(`kernel_nvidia`), which this one only lists.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Protocol

from xidwatch.core.kernel_nvidia import NvidiaLines
from xidwatch.core.model import KernelEvent, KernelMessage, PciAddress
from xidwatch.core.xids import XidClass, XidRule, xid_rules

__all__ = ["Family", "Parser", "XidClass", "XidRule", "xid_rules"]


class Family(Protocol):
    """The lines of one speaker, and what it has to remember between them."""

    @property
    def needles(self) -> tuple[str, ...]:
        """Every line it cares for holds one of these, case and all. As few as possible: each is looked for in every record."""

    def read(self, line: KernelMessage) -> KernelEvent | None:
        """The event of one line, stripped and without a line break. Never raises."""


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
        """The events of one record. One that a process wrote comes back `injected`, with nothing to act on."""
        for needle in self._needles:
            if needle in message.text:
                break
        else:
            return ()  # nearly every record of a log; a flood of them must cost next to nothing
        if message.from_kernel:
            return tuple(self._events(message, self._families))
        # With a memory of its own: what a process writes must not complete or swallow a line of the kernel.
        apart: tuple[Family, ...] = (NvidiaLines(self._xids),)
        events = self._events(message, apart)
        return tuple(replace(event, injected=True, driver_fatal=False, bus_lost=False) for event in events)

    def _events(self, message: KernelMessage, families: tuple[Family, ...]) -> Iterator[KernelEvent]:
        for line in self._lines(message):
            for family in families:
                if any(needle in line.text for needle in family.needles) and (event := family.read(line)):
                    yield event
                    break

    def _lines(self, message: KernelMessage) -> Iterator[KernelMessage]:
        """A record's lines, stripped. One printk may hold several; a line without a needle goes on with the one before."""
        text = message.text.strip()
        if "\n" not in text:
            yield message if text == message.text else replace(message, text=text)
            return
        told: list[str] = []
        for piece in (piece.strip() for piece in text.split("\n")):
            if told and not any(needle in piece for needle in self._needles):
                told[-1] = f"{told[-1]} {piece}".rstrip()
            else:
                told.append(piece)
        yield from (replace(message, text=line) for line in told)
