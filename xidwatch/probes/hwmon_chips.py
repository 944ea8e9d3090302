"""Sensor chips as sysfs shows them: who they are whatever their number is today, and what they can be asked.

Law: reads only, one short read a file; knows no quantity of ours and no emit. Finding a chip touches no hardware.

    class/hwmon/hwmon3 -> ../../devices/platform/nct6775.656/hwmon/hwmon3
    hwmon3/name           nct6798
    hwmon3/device      -> ../../../nct6775.656                     together: nct6798@platform/nct6775.656
    hwmon3/in1_input      1008             (mV at the pin; temp m°C, curr mA, power and energy µW and µJ, fan RPM)
    hwmon3/in1_label      +12V             (most drivers have none)
    hwmon3/in1_alarm      0                (a bit of the chip, against limits the firmware left; some clear when read)

The number of hwmonN changes between boots and when a module is loaded again, so does that of an I2C adapter, of an NVMe
controller and the last part of a HID device's name: none of them is part of who a chip is.
Sources: Documentation/hwmon/sysfs-interface.rst; drivers/hwmon/hwmon.c; drivers/hid/hid-core.c (hid_add_device).
"""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from xidwatch.core import sensors
from xidwatch.core.model import Missing, Subject
from xidwatch.core.sensors import Reluctant

MOST_BYTES = 256  # an attribute is one number or a label
_INPUT = re.compile(r"(?P<name>(?P<kind>in|curr|power|temp|fan|energy)(?P<number>\d+))_(?P<item>input|average)")
_ALARM = re.compile(r"(?P<name>[a-z]+\d+)_(?P<which>(?:(?:min|max|lcrit|crit|cap|emergency)_)?alarm)")
_KINDS = ("in", "curr", "power", "temp", "fan", "energy")
_ADAPTER = re.compile(r"i2c-\d+")
_CLIENT = re.compile(r"\d+-([0-9a-f]{4})")
_HID = re.compile(r"([0-9A-F]{4}:[0-9A-F]{4}:[0-9A-F]{4})\.[0-9A-F]{4}")
_NVME = re.compile(r"nvme\d+")
_SLEEPING = frozenset({"suspended", "suspending"})

_REASONS = {
    errno.EACCES: Missing.DENIED,
    errno.EPERM: Missing.DENIED,
    errno.ENOENT: Missing.ABSENT,
    errno.ENODEV: Missing.ABSENT,
    errno.ENODATA: Missing.ABSENT,  # the chip has nothing to say about it now: no sensor, no pulse, switched off
    errno.ENXIO: Missing.DEVICE_LOST,  # nobody acknowledges the address
    errno.EREMOTEIO: Missing.DEVICE_LOST,  # the same, on some buses
    errno.EAGAIN: Missing.TIMED_OUT,
    errno.EBUSY: Missing.TIMED_OUT,  # the firmware holds the chip
    errno.ETIMEDOUT: Missing.TIMED_OUT,
    errno.EOPNOTSUPP: Missing.UNSUPPORTED,
    # EIO and all else: a transfer that went wrong, MALFORMED
}


@dataclass(frozen=True, slots=True)
class Input:
    """One thing a chip measures. `alarms`: by quantity, as in `max_alarm`, the file."""

    name: str  # in1
    kind: str  # in, curr, power, temp, fan or energy
    number: int
    file: str
    alarms: Mapping[str, str]
    has_label: bool


@dataclass(frozen=True, slots=True)
class Chip:
    """One sensor chip as it is to be found now."""

    identity: str  # nct6798@platform/nct6775.656
    name: str
    driver: str  # empty when the device has none of its own
    folder: Path  # where its attributes are
    device: Path | None  # real folder of the device it belongs to
    inputs: tuple[Input, ...]
    is_named: bool  # by itself, as every driver's chip is

    @property
    def is_whole(self) -> bool:
        """The kernel links a chip before its attributes are there, and takes them away before the link."""
        return self.is_named and bool(self.inputs)

    @property
    def subject(self) -> Subject:
        """The unit of getting stuck."""
        return Subject("chip", self.identity)

    @property
    def reluctant(self) -> Reluctant | None:
        """Why it is not to be read unasked."""
        return sensors.reluctant(self.name, self.driver)

    @property
    def real_volts(self) -> bool:
        """Whether its voltages are those of rails, not of pins."""
        return sensors.gives_real_volts(self.name, self.driver)

    def about(self, source: Input) -> Subject:
        """Under which an input goes that nobody has named."""
        return Subject("chip", f"{self.identity}/{source.name}")


# --- one attribute


def read_text(path: Path) -> str | Missing:
    """An attribute without its newline, or why not: a sensor that fails is a reading that is missing, never an error."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            return os.read(descriptor, MOST_BYTES).decode(errors="replace").strip()
        finally:
            os.close(descriptor)
    except OSError as error:
        return _REASONS.get(error.errno or 0, Missing.MALFORMED)


def read_number(path: Path) -> int | Missing:
    """The whole number an attribute holds, or why there is none."""
    text = read_text(path)
    if isinstance(text, Missing):
        return text
    try:
        return int(text)
    except ValueError:
        return Missing.MALFORMED


# --- all chips


def links(root: Path) -> dict[str, str]:
    """Every hwmonN and where it points: cheap, and changes when a chip comes, goes or is renumbered. Empty without any. Raises OSError."""
    try:
        return {entry.name: str(entry.readlink()) for entry in (root / "class/hwmon").iterdir() if entry.is_symlink()}
    except FileNotFoundError:  # no driver has registered one, or one went between the listing and here
        return {}


def find(root: Path) -> dict[str, Chip]:
    """Every chip by identity. Two that nothing tells apart are numbered, `#2`, in the order of their hwmonN. Raises OSError."""
    found: list[Chip] = []
    for name in sorted(links(root), key=lambda text: (len(text), text)):
        try:
            found.append(_chip((root / "class/hwmon" / name).resolve(strict=True), root.resolve() / "devices"))
        except OSError:  # gone meanwhile
            continue
    identities = numbered(chip.identity for chip in found)
    return {identity: replace(chip, identity=identity) for identity, chip in zip(identities, found, strict=True)}


def numbered(names: Iterable[str]) -> list[str]:
    """`a a b` as `a a#2 b`."""
    counts: dict[str, int] = {}
    result = []
    for name in names:
        counts[name] = counts.get(name, 0) + 1
        result.append(name if counts[name] == 1 else f"{name}#{counts[name]}")
    return result


def _chip(own: Path, devices: Path) -> Chip:
    link = own / "device"
    device = link.resolve(strict=True) if link.is_symlink() else None
    folder = own if (own / "name").exists() or device is None else device  # drivers of old keep everything with the device
    driver = _driver(device)
    name = read_text(folder / "name")
    called = (driver or "unnamed") if isinstance(name, Missing) else name
    found = inputs(os.listdir(folder))  # noqa: PTH208  names only
    return Chip(f"{called}@{place(device, devices)}", called, driver, folder, device, found, is_named=not isinstance(name, Missing))


def _driver(device: Path | None) -> str:
    try:
        return (device / "driver").readlink().name if device else ""
    except OSError:
        return ""


def place(device: Path | None, devices: Path) -> str:
    """Where a device sits, below sys/devices, without what is only a count of today; `virtual` for a chip without a device.

    pci0000:00/0000:00:1f.4/i2c-3/3-0021     ->  pci0000:00/0000:00:1f.4/i2c-smbus-i801-adapter-at-efa0/0021
    .../usb1/1-5/1-5:1.0/0003:1B1C:1C08.0004 ->  .../usb1/1-5/1-5:1.0/0003:1B1C:1C08
    .../0000:03:00.0/nvme/nvme0              ->  .../0000:03:00.0/nvme
    """
    if device is None:
        return "virtual"
    parts: list[str] = []
    folder = devices
    for part in device.relative_to(devices).parts if device.is_relative_to(devices) else device.parts[1:]:
        folder /= part
        if _ADAPTER.fullmatch(part):
            parts.append(_adapter(folder))
        elif client := _CLIENT.fullmatch(part):
            parts.append(client[1])  # a USB port (1-5) has no four digits behind its dash
        elif hid := _HID.fullmatch(part):
            parts.append(hid[1])
        elif not _NVME.fullmatch(part):
            parts.append(part)
    return "/".join(parts)


def _adapter(folder: Path) -> str:
    """An I2C adapter by its own words."""
    words = read_text(folder / "name")
    return "i2c" if isinstance(words, Missing) else "i2c-" + re.sub(r"[^a-z0-9]+", "-", words.lower()).strip("-")


def inputs(files: Iterable[str]) -> tuple[Input, ...]:
    """What a folder of attributes offers, in the order people number it. A power that has no momentary value is taken as its average."""
    names = frozenset(files)
    alarms: dict[str, dict[str, str]] = {}
    for file in sorted(names):
        if match := _ALARM.fullmatch(file):
            alarms.setdefault(match["name"], {})[match["which"]] = file
    found: dict[str, Input] = {}
    for file in sorted(names):  # average before input, which then takes its place
        if match := _INPUT.fullmatch(file):
            name = match["name"]
            found[name] = Input(name, match["kind"], int(match["number"]), file, alarms.get(name, {}), f"{name}_label" in names)
    return tuple(sorted(found.values(), key=lambda each: (_KINDS.index(each.kind), each.number)))


def is_asleep(chip: Chip) -> bool:
    """Whether reading would wake the very device the chip is part of.

    What sits on an I2C or USB adapter is asked all the same: the adapter dozes between any two transfers, and disturbs nobody by waking.
    """
    if chip.device is None or any(_ADAPTER.fullmatch(part) or part.startswith("usb") for part in chip.device.parts):
        return False
    lineage = (chip.device, *chip.device.parents)
    return any(read_text(folder / "power/runtime_status") in _SLEEPING for folder in lineage if (folder / "power").is_dir())
