"""What the kernel announces about PCI devices and the nvidia module: add, remove, bind, change.

    remove@/devices/pci0000:00/0000:00:03.1/0000:0f:00.0   ACTION=remove SUBSYSTEM=pci PCI_SLOT_NAME=0000:0f:00.0 PCI_CLASS=60400

A bonus signal: a silent loss on a port without hot-plug announces nothing. Source `kernel`, not `udev`: udevd may be
stuck on the very device. Only properties are read, never attributes (those would read sysfs, and with it hardware).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

import pyudev

SUBSYSTEMS = ("pci", "module")
MOST_PER_TURN = 64


@dataclass(frozen=True, slots=True)
class Uevent:
    """One announcement. `name` is the PCI address or the module's name."""

    action: str
    subsystem: str
    name: str
    properties: dict[str, str]

    @property
    def is_of_interest(self) -> bool:
        """About a bridge, a display controller or an NVMe drive, or about it cannot be told what."""
        try:
            code = int(self.properties["PCI_CLASS"], 16)
        except (KeyError, ValueError):
            return self.subsystem == "pci"
        return self.subsystem == "pci" and (code >> 16 == 0x03 or code >> 8 in (0x0604, 0x0108))

    @property
    def is_driver_load(self) -> bool:
        """The nvidia module has just been loaded."""
        return self.subsystem == "module" and self.name == "nvidia" and self.action == "add"


class Announcer(Protocol):
    """Where announcements come from."""

    def fileno(self) -> int:
        """For the selector."""

    def read(self) -> tuple[list[Uevent], bool]:
        """What has been announced, a bounded number, and whether announcements were lost."""


class Uevents:
    """A netlink socket for the loop. Creating it raises OSError or ImportError where there is none to be had."""

    def __init__(self) -> None:
        self._monitor: Any = pyudev.Monitor.from_netlink(pyudev.Context(), source="kernel")
        for subsystem in SUBSYSTEMS:
            self._monitor.filter_by(subsystem)
        self._monitor.start()

    def fileno(self) -> int:
        """For the selector."""
        return int(self._monitor.fileno())

    def read(self) -> tuple[list[Uevent], bool]:
        """What has been announced, at most `MOST_PER_TURN`, and whether announcements were lost (then look for yourself)."""
        events: list[Uevent] = []
        try:
            while len(events) < MOST_PER_TURN and (device := self._monitor.poll(timeout=0)) is not None:
                properties = {str(key): str(value) for key, value in device.properties.items()}
                name = properties.get("PCI_SLOT_NAME", device.sys_name)
                events.append(Uevent(str(device.action), str(device.subsystem), str(name), properties))
        except OSError:  # ENOBUFS: the receive buffer ran over in a storm
            return events, True
        return events, False
