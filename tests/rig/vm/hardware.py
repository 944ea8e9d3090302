"""The guest's hardware, and what can happen to it: switches, rails, error injection, and a disk that stops answering.

What QEMU does and does not do decided the means (7.2): a link cannot be taken down, so a switch vanishes by renumbering the
buses of the port above it, which leaves no event and no line, as a lost supply does.
"""

from __future__ import annotations

import struct
from typing import Protocol

from tests.rig.vm.machine import GPUS

ROOT_PORT = "00:04.0"
SWITCH = "01:00.0"
DOWNSTREAM = ("02:00.0", "02:01.0", "02:02.0", "02:03.0")
OTHER_SIDE = ("00:05.0", "07:00.0", "08:00.0")
NVME = "09:00.0"
GPU_SUBJECTS = tuple(f"gpu:0000:{address}" for address in GPUS)
NOWHERE = "fe"  # a bus number without a bus

SLOT_CHIP = 0x21  # ltc4245, a controller of a PCIe slot's supplies
CHIP = "ltc4245@i2c-smbus-stub-driver/0021"
TWELVE_VOLTS, MILLIVOLTS_A_STEP = 0x10, 55
REGISTERS = range(0x10, 0x18)


class Runs(Protocol):
    """Whoever can run a command in the guest."""

    def run(self, command: str, seconds: float = ..., *, check: bool = ...) -> str: ...


class Switch:
    """A PCIe bridge and all that is below it; the GPUs' switch below its root port, unless another is named."""

    def __init__(self, guest: Runs, port: str = ROOT_PORT) -> None:
        self._guest = guest
        self._port = port

    def vanish(self) -> None:
        """From the next read on all that is below answers all ones: no announcement, no kernel line. I/O is not cut."""
        buses = self._guest.run(f"setpci -s {self._port} SECONDARY_BUS SUBORDINATE_BUS").split()
        self._before = dict(zip(("SECONDARY_BUS", "SUBORDINATE_BUS"), buses, strict=True))
        self._guest.run(f"setpci -s {self._port} SUBORDINATE_BUS={NOWHERE} SECONDARY_BUS={NOWHERE}")

    def come_back(self) -> None:
        """As it was, configuration and all."""
        self._guest.run(f"setpci -s {self._port} " + " ".join(f"{name}={number}" for name, number in self._before.items()))

    def power(self, *, on: bool) -> None:
        """The slot's power controller: off and everything below reads all ones; on again and it has forgotten its configuration."""
        self._guest.run(f"setpci -s {self._port} CAP_EXP+18.w={'0' if on else '400'}:400")

    def enumerate(self) -> None:
        """Out of the kernel's tree and found again: what brings a device back that has lost its configuration."""
        below = self._guest.run(f"cd /sys/bus/pci/devices/0000:{self._port}; echo 0000:??:??.?").strip()
        self._guest.run(f"echo 1 >/sys/bus/pci/devices/{below}/remove; echo 1 >/sys/bus/pci/rescan; udevadm settle")


class Rails:
    """A chip on an emulated I2C bus that measures a slot's supplies; its registers are what we say."""

    def __init__(self, guest: Runs) -> None:
        self._guest = guest
        self._bus = ""

    def appear(self, volts: float = 12.0) -> None:
        """Load the chip with its 12 V at so much."""
        self._guest.run(f"modprobe -a i2c-dev; modprobe i2c-stub chip_addr={SLOT_CHIP:#x}")
        self._bus = self._guest.run('i2cdetect -l | awk \'/stub/ {sub("i2c-", "", $1); print $1}\'').strip()
        for register in REGISTERS:
            self._guest.run(f"i2cset -y -f {self._bus} {SLOT_CHIP:#x} {register:#x} 200")
        self.twelve_volts(volts)
        self._guest.run(f"echo ltc4245 {SLOT_CHIP:#x} >/sys/bus/i2c/devices/i2c-{self._bus}/new_device")

    def twelve_volts(self, volts: float) -> None:
        """The 12 V input from now on, to 55 mV."""
        steps = round(volts * 1000 / MILLIVOLTS_A_STEP)
        self._guest.run(f"i2cset -y -f {self._bus} {SLOT_CHIP:#x} {TWELVE_VOLTS:#x} {steps}")

    def vanish(self) -> None:
        """The driver lets the chip go."""
        self._guest.run(f"echo {SLOT_CHIP:#x} >/sys/bus/i2c/devices/i2c-{self._bus}/delete_device")


class Disk:
    """A small filesystem of its own that can be frozen: whoever writes to it then waits in uninterruptible sleep."""

    def __init__(self, guest: Runs, mounted: str) -> None:
        self._guest = guest
        self.mounted = mounted
        image = f"/run/disk{mounted.replace('/', '-')}.img"
        guest.run(f"mkdir -p {mounted}; cp --sparse=always /usr/local/lib/rig/disk.img {image}; mount -o loop {image} {mounted}")

    def freeze(self) -> None:
        """From now on a write waits, and no signal ends it."""
        self._guest.run(f"fsfreeze -f {self.mounted}")

    def thaw(self) -> None:
        """Whoever waited goes on."""
        self._guest.run(f"fsfreeze -u {self.mounted}")

    def turn_read_only(self) -> None:
        """As after an error that ext4 has found."""
        self._guest.run(f"mount -o remount,errors=remount-ro {self.mounted}")
        self._guest.run(f"echo rig >/sys/fs/ext4/$(basename $(findmnt -n -o SOURCE {self.mounted}))/trigger_fs_error")

    def fill(self) -> None:
        """Not a byte is left."""
        self._guest.run(
            f"dd if=/dev/zero of={self.mounted}/filler bs=64k 2>/dev/null; dd if=/dev/zero of={self.mounted}/rest bs=1 count=65536",
            check=False,
        )

    def free(self) -> None:
        """There is room again."""
        self._guest.run(f"rm -f {self.mounted}/filler {self.mounted}/rest")


def aer_injection(address: str, *, correctable: int = 0, uncorrectable: int = 0) -> bytes:
    """What the kernel's aer_inject wants to be told: status bits as in the AER registers. Layout: drivers/pci/pcie/aer_inject.c."""
    bus, _, rest = address.partition(":")
    device, _, function = rest.partition(".")
    return struct.pack("=BBBx7I", int(bus, 16), int(device, 16), int(function, 16), uncorrectable, correctable, 0, 0, 0, 0, 0)
