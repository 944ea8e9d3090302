"""Sensor chips of a fixture as sysfs shows them, and the few files of /proc that the host probe reads.

    chip nct6798 platform/nct6775.656 driver=nct6775 in5_input=1008 fan2_input=1180 temp1_input=41500
    proc memory_gib=128 load=1.2 busy=0.05 blocked=0

An attribute that is told `EIO` fails when it is read, until it is told a number again.
Law: files and what is in them. Sources: Documentation/hwmon/sysfs-interface.rst; proc(5).
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

FAILS = "EIO"
BROKEN = "/proc/self/mem"  # whoever reads it at its beginning gets EIO
TICKS_A_SECOND = 100
CPUS = 32
PRESSURES = ("cpu", "memory", "io")
PROC = {"memory_gib": 128.0, "available_gib": 110.0, "load": 0.2, "busy": 0.01, "blocked": 0.0, "pressure": 0.0}


class Sensors:
    """Chips by the name of their driver's part, `nct6798`."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._chips: dict[str, Path] = {}

    def add(self, name: str, place: str, driver: str, files: Mapping[str, str]) -> None:
        """A chip at `place` below devices."""
        device = self._root / "devices" / place
        folder = device / f"hwmon/hwmon{len(self._chips)}"
        folder.mkdir(parents=True)
        (folder / "device").symlink_to(os.path.relpath(device, folder))
        if driver:
            target = self._root / "bus/drivers" / driver
            target.mkdir(parents=True, exist_ok=True)
            (device / "driver").symlink_to(os.path.relpath(target, device))
        links = self._root / "class/hwmon"
        links.mkdir(parents=True, exist_ok=True)
        (links / folder.name).symlink_to(os.path.relpath(folder, links))
        self._chips[name] = folder
        self.set(name, {"name": name, **files})

    def __contains__(self, name: str) -> bool:
        return name in self._chips

    def set(self, name: str, files: Mapping[str, str]) -> None:
        """What its attributes say, or that they fail."""
        for file, text in files.items():
            path = self._chips[name] / file
            path.unlink(missing_ok=True)
            if text == FAILS:
                path.symlink_to(BROKEN)
            else:
                path.write_text(f"{text}\n")


@dataclass(slots=True)
class Proc:
    """/proc in a folder. `values`: as PROC; CPU time is kept by how busy the processors are said to be."""

    root: Path
    values: dict[str, float]
    _since: float = 0.0
    _busy_seconds: float = 0.0
    _written: dict[str, str] = field(default_factory=dict)

    def set(self, name: str, value: float, mono: float) -> None:
        """From here on."""
        self._account(mono)
        self.values[name] = value

    def begin(self) -> None:
        """A boot: counters start anew."""
        self._since = self._busy_seconds = 0.0

    def write(self, mono: float) -> None:
        """As it reads at this time after boot."""
        self._account(mono)
        value = self.values
        busy = round(self._busy_seconds * CPUS * TICKS_A_SECOND)
        idle = round(mono * CPUS * TICKS_A_SECOND) - busy
        total, available = (round(value[name] * 2**20) for name in ("memory_gib", "available_gib"))
        files = {
            "loadavg": f"{value['load']:.2f} {value['load']:.2f} {value['load']:.2f} 1/900 4242",
            "uptime": f"{mono:.2f} {idle / TICKS_A_SECOND:.2f}",
            "stat": f"cpu  {busy} 0 0 {idle} 0 0 0 0 0 0\nprocs_running 1\nprocs_blocked {value['blocked']:.0f}",
            "meminfo": f"MemTotal: {total} kB\nMemFree: {available} kB\nMemAvailable: {available} kB\nBuffers: 0 kB\nCached: 0 kB\n"
            "Active: 0 kB\nInactive: 0 kB\nShmem: 0 kB\nSlab: 0 kB\nSReclaimable: 0 kB\nSwapTotal: 0 kB\nSwapFree: 0 kB",
            "vmstat": "pswpin 0\npswpout 0",
            **{f"pressure/{name}": f"some avg10={value['pressure'] * 100:.2f} avg60=0.00 avg300=0.00 total=0" for name in PRESSURES},
        }
        (self.root / "pressure").mkdir(parents=True, exist_ok=True)
        for name, text in files.items():
            if self._written.get(name) != text:
                (self.root / name).write_text(text + "\n")
        self._written = files

    def _account(self, mono: float) -> None:
        self._busy_seconds += self.values["busy"] * max(0.0, mono - self._since)
        self._since = mono
