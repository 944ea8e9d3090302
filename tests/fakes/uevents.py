"""The kernel's announcements from a pipe: what a netlink socket would bring, one JSON object a record of 256 bytes.

    {"ACTION": "remove", "SUBSYSTEM": "pci", "PCI_SLOT_NAME": "0000:11:00.0", "PCI_CLASS": "30000"}

Nobody but the kernel can send into its own netlink group; so a monitor of the test's takes the place of pyudev's, below all
that is ours.
"""

from __future__ import annotations

import json
import os
from dataclasses import dataclass

from xidwatch.daemon.uevents import Uevents

RECORD_BYTES = 256  # like a datagram it is there as a whole or not at all, and what is not read yet keeps the pipe readable


def record(properties: dict[str, str]) -> bytes:
    """As it goes into the pipe."""
    return json.dumps(properties).encode().ljust(RECORD_BYTES)


@dataclass(frozen=True, slots=True)
class Device:
    """As pyudev hands it over."""

    action: str
    subsystem: str
    sys_name: str
    properties: dict[str, str]


class PipeMonitor:
    """Reads a FIFO as pyudev.Monitor reads its socket."""

    def __init__(self, path: str) -> None:
        self._descriptor = os.open(path, os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)

    def fileno(self) -> int:
        return self._descriptor

    def poll(self, timeout: float) -> Device | None:
        assert timeout == 0
        try:
            properties = {str(key): str(value) for key, value in json.loads(os.read(self._descriptor, RECORD_BYTES)).items()}
        except BlockingIOError:
            return None
        return Device(properties["ACTION"], properties["SUBSYSTEM"], properties.get("sys_name", ""), properties)


def piped(path: str) -> type[Uevents]:
    """A source of announcements that come from there."""

    class Piped(Uevents):
        def __init__(self) -> None:
            self._monitor = PipeMonitor(path)

    return Piped
