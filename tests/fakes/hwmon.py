"""A tree that looks like sysfs as far as sensor chips go: folders of attributes, the numbered links to them, RAPL zones.

    sensors = HwmonTree(tmp_path)
    board = sensors.chip("nct6798", "platform/nct6775.656", {"in1_input": 1008}, driver="nct6775")
    sensors.renumber()
    HwmonProbe(str(sensors.root))

What the fake does not do: a read has no effect, so no alarm clears. A read that fails is a `fails`, one that blocks a `blocks`.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path


@dataclass(slots=True)
class FakeChip:
    """One chip: `device` is its real folder, `number` that of its hwmonN today."""

    device: Path
    number: int

    @property
    def folder(self) -> Path:
        return self.device / "hwmon" / f"hwmon{self.number}"


class HwmonTree:
    """Builds chips and lets things happen to them."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.chips: list[FakeChip] = []
        (root / "class/hwmon").mkdir(parents=True)

    # --- builders

    def chip(self, name: str, place: str, files: Mapping[str, object], *, driver: str = "") -> FakeChip:
        """A chip at `place` below devices, with its attributes."""
        chip = FakeChip(self.root / "devices" / place, len(self.chips))
        chip.folder.mkdir(parents=True)
        self.chips.append(chip)
        self.write(chip, {"name": name, **files})
        (chip.folder / "device").symlink_to(os.path.relpath(chip.device, chip.folder))
        if driver:
            (self.root / "bus/drivers" / driver).mkdir(parents=True, exist_ok=True)
            (chip.device / "driver").symlink_to(os.path.relpath(self.root / "bus/drivers" / driver, chip.device))
        self._link(chip)
        return chip

    def board(self, **files: object) -> FakeChip:
        """A Super-I/O as on most boards: 12 V divided by twelve at in1, a pin that leads nowhere at in5."""
        given = {"in1_input": 1008, "in1_alarm": 0, "in5_input": 2040, "in5_alarm": 1, "fan2_input": 1180, "temp1_input": 41500}
        return self.chip("nct6798", "platform/nct6775.656", {**given, **files}, driver="nct6775")

    def supply(self, serial: int = 4) -> FakeChip:
        """A supply that speaks HID over USB, with labels and real volts."""
        usb = "pci0000:00/0000:00:14.0/usb1/1-5/1-5:1.0"
        files = {"in1_input": 12060, "in1_label": "v_out +12v", "power1_input": 214000000, "curr2_input": 17500, "temp1_input": 39000}
        return self.chip("corsairpsu", f"{usb}/0003:1B1C:1C08.{serial:04X}", files, driver="corsair-psu")

    def zone(self, zone: str, name: str, energy_uj: int, *, range_uj: int = 262_143_328_850) -> Path:
        """One RAPL zone."""
        folder = self.root / "class/powercap" / zone
        folder.mkdir(parents=True)
        for file, value in {"name": name, "energy_uj": energy_uj, "max_energy_range_uj": range_uj}.items():
            (folder / file).write_text(f"{value}\n")
        return folder

    # --- events

    def write(self, chip: FakeChip, files: Mapping[str, object]) -> None:
        """Sets attributes."""
        for name, value in files.items():
            (chip.folder / name).write_text(f"{value}\n")

    def fails(self, chip: FakeChip, name: str) -> None:
        """Reading it is an error (EISDIR, which stands for EIO: a file system in a folder has no other at hand)."""
        (chip.folder / name).unlink()
        (chip.folder / name).mkdir()

    def blocks(self, chip: FakeChip, name: str) -> Path:
        """Reading it does not return before somebody has opened the FIFO for writing and closed it again."""
        path = chip.folder / name
        path.unlink()
        os.mkfifo(path)
        return path

    def renumber(self) -> None:
        """Every chip gets another hwmonN, the first the last one's: what a module loaded again does."""
        numbers = [chip.number for chip in self.chips]
        folders = [chip.folder for chip in self.chips]
        for folder in folders:
            (self.root / "class/hwmon" / folder.name).unlink()
        for chip, folder, number in zip(self.chips, folders, [*numbers[1:], numbers[0]], strict=True):
            chip.number = number
            folder.rename(folder.with_name("moving"))
            chip.folder.parent.joinpath("moving").rename(chip.folder)
            self._link(chip)

    def remove(self, chip: FakeChip) -> None:
        """The device is unplugged or its driver unloaded."""
        (self.root / "class/hwmon" / chip.folder.name).unlink()
        shutil.rmtree(chip.device)
        self.chips.remove(chip)

    # --- inside

    def _link(self, chip: FakeChip) -> None:
        link = self.root / "class/hwmon" / chip.folder.name
        link.symlink_to(os.path.relpath(chip.folder, link.parent))
