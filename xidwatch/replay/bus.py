"""The PCI tree of a fixture as folders: real `config` files, real links, the attributes that the probe reads.

    0000:00:03.1 root 1022:1453                  what is indented is below; a bridge is root, upstream or downstream
      0000:0f:00.0 upstream 1000:c010 slot=4
        0000:10:00.0 downstream 1000:c010
          0000:11:00.0 gpu 10de:2204 1458:403b   vendor:device, and vendor:device of the board

Law: a folder and what happens to it; who calls says when. A read has no effect here: it neither wakes a sleeping device nor fails.
Sources: PCI Express Base Specification, 7.5 (registers); Documentation/ABI/testing/sysfs-bus-pci.
"""

from __future__ import annotations

import os
import shutil
import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

CLASSES = {"root": 0x060400, "upstream": 0x060400, "downstream": 0x060400, "gpu": 0x030200, "nvme": 0x010802, "other": 0x020000}
DRIVERS = {"root": "pcieport", "upstream": "pcieport", "downstream": "pcieport", "gpu": "nvidia", "nvme": "nvme", "other": ""}
IDS = {
    "root": "1022:1453",
    "upstream": "1000:c010",
    "downstream": "1000:c010",
    "gpu": "10de:2204",
    "nvme": "144d:a80a",
    "other": "8086:0d4f",
}
PCIE_TYPES = {"root": 4, "upstream": 5, "downstream": 6, "gpu": 1, "nvme": 0}
AER_KINDS = {"correctable": "COR", "nonfatal": "NONFATAL", "fatal": "FATAL"}
ROOT_AER = {"correctable": "cor", "nonfatal": "nonfatal", "fatal": "fatal"}
COMMAND = 0x0507  # memory and I/O on, bus master, SERR, no INTx
CONFIG_BYTES = 4096
SILENCE = {"current_link_speed": "Unknown", "current_link_width": "63", "max_link_width": "63"}  # a dead link's registers are all ones too
AWAKE = {"power/runtime_status": "active", "power_state": "D0"}
ASLEEP = {"power/runtime_status": "suspended", "power_state": "D3cold"}
# What a fixture may set, by the name it uses, and the file that is.
ATTRIBUTES = {
    "link_speed": "current_link_speed",
    "link_width": "current_link_width",
    "max_link_speed": "max_link_speed",
    "max_link_width": "max_link_width",
    "numa_node": "numa_node",
}
COUNTERS = tuple(f"aer_{kind}" for kind in AER_KINDS)


@dataclass(slots=True)
class Function:
    """One function: what it is built from, and its attributes while it is well."""

    address: str
    kind: str
    parent: str = ""
    ids: str = ""
    board: str = ""
    class_code: int = 0
    driver: str = ""
    slot: str = ""
    files: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.ids = self.ids or IDS[self.kind]
        self.class_code = self.class_code or CLASSES[self.kind]
        self.files = {**self._plain(), **(self._pcie() if self.kind in PCIE_TYPES else {}), **self.files}

    def _plain(self) -> dict[str, str]:
        names = ("vendor", "device", "subsystem_vendor", "subsystem_device")
        ids = [*self.ids.split(":"), *(self.board.split(":") if self.board else ())]
        return {
            **dict(zip(names, (f"0x{part}" for part in ids), strict=False)),
            "class": f"{self.class_code:#08x}",
            "numa_node": "-1",
            **AWAKE,
        }

    def _pcie(self) -> dict[str, str]:
        links = dict.fromkeys(("current_link_speed", "max_link_speed"), "16.0 GT/s PCIe") | dict.fromkeys(
            ("current_link_width", "max_link_width"), "16"
        )
        counters = {f"aer_dev_{kind}": aer_text(word, 0) for kind, word in AER_KINDS.items()}
        roots = {f"aer_rootport_total_err_{name}": "0" for name in ROOT_AER.values()} if self.kind == "root" else {}
        return {**links, **counters, **roots}


def aer_text(word: str, count: int) -> str:
    """An AER file; only its total is told."""
    return f"TOTAL_ERR_{word} {count}"


class Bus:
    """The functions below `root`/devices. Addresses are those of the fixture; an unknown one raises KeyError."""

    def __init__(self, root: Path, functions: Mapping[str, Function], *, native_aer: bool = True) -> None:
        self._root = root
        self._functions = dict(functions)
        self._native_aer = native_aer
        for folder in ("devices", "bus/pci/devices", "bus/pci/drivers", "bus/pci/slots"):
            (root / folder).mkdir(parents=True, exist_ok=True)
        for address in functions:
            self._build(self._functions[address])

    def __contains__(self, address: str) -> bool:
        return address in self._functions

    @property
    def gpus(self) -> list[Function]:
        """In the order of the fixture, which is NVML's: those that its driver has."""
        return [function for function in self._functions.values() if function.kind == "gpu" and function.driver == "nvidia"]

    # ------------------------------------------------------------------------------------------------------ events

    def set(self, address: str, name: str, value: str) -> None:
        """One attribute, or one AER counter, which the kernel keeps whatever becomes of the device."""
        function = self._functions[address]
        if name in COUNTERS:
            kind = name.removeprefix("aer_")
            file, text = f"aer_dev_{kind}", aer_text(AER_KINDS[kind], int(value))
        else:
            file, text = ATTRIBUTES[name], value
        function.files[file] = text
        _write(self._folder(function), {file: text})

    def die(self, address: str) -> None:
        """It and all below read all ones. The kernel does not notice: folders, drivers and states stay."""
        for function in self._below(address):
            (self._folder(function) / "config").write_bytes(b"\xff" * CONFIG_BYTES)
            _write(self._folder(function), SILENCE if function.kind in PCIE_TYPES else {})

    def revive(self, address: str) -> None:
        """It and all below are well again."""
        for function in self._below(address):
            self._fill(function)

    def clear(self, address: str) -> None:
        """It has power again and no memory: its ids answer, command register and bus numbers are 0."""
        function = self._functions[address]
        (self._folder(function) / "config").write_bytes(_image(function, (0, 0, 0), 0))

    def sleep(self, address: str) -> None:
        """It is runtime-suspended: nobody is to read it, and who did would see all ones."""
        folder = self._folder(self._functions[address])
        _write(folder, ASLEEP)
        (folder / "config").write_bytes(b"\xff" * CONFIG_BYTES)

    def remove(self, address: str) -> None:
        """It and all below leave sysfs."""
        for function in list(self._below(address)):
            (self._root / "bus/pci/devices" / function.address).unlink(missing_ok=True)
        shutil.rmtree(self._folder(self._functions[address]))

    def add(self, address: str) -> None:
        """It and all below are found again, as built."""
        for function in self._below(address):
            self._build(function)

    def replace(self, address: str, *, ids: str = "", board: str = "") -> None:
        """Another card is in its place."""
        old = self._functions[address]
        self.remove(address)
        function = Function(address, old.kind, old.parent, ids or old.ids, board or old.board, old.class_code, old.driver, old.slot)
        self._functions[address] = function
        self._build(function)

    # ------------------------------------------------------------------------------------------------------ inside

    def _folder(self, function: Function) -> Path:
        above = self._folder(self._functions[function.parent]) if function.parent else self._root / "devices" / f"pci{function.address[:7]}"
        return above / function.address

    def _below(self, address: str) -> Iterator[Function]:
        """It first, then what is below, parents before children."""
        yield self._functions[address]
        for child in [each.address for each in self._functions.values() if each.parent == address]:
            yield from self._below(child)

    def _build(self, function: Function) -> None:
        folder = self._folder(function)
        (folder / "power").mkdir(parents=True)
        self._fill(function)
        _link(self._root / "bus/pci/devices" / function.address, folder)
        if function.driver:
            place = self._root / "bus/pci/drivers" / function.driver
            place.mkdir(exist_ok=True)
            _link(folder / "driver", place)
        if function.kind == "root" and self._native_aer:
            service = self._root / "bus/pci_express/drivers/aer"
            service.mkdir(parents=True, exist_ok=True)
            _link(service / f"{function.address}:pcie002", folder)
        if function.slot:
            (self._root / "bus/pci/slots" / function.slot).mkdir(exist_ok=True)
            _write(self._root / "bus/pci/slots" / function.slot, {"address": function.address.partition(".")[0]})

    def _fill(self, function: Function) -> None:
        folder = self._folder(function)
        (folder / "config").write_bytes(_image(function, self._buses(function), COMMAND))
        _write(folder, function.files)

    def _buses(self, function: Function) -> tuple[int, int, int]:
        """Primary, secondary, subordinate, as those below have been numbered."""
        own = int(function.address.split(":")[1], 16)
        below = [int(each.address.split(":")[1], 16) for each in self._below(function.address) if each is not function]
        return (own, min(below), max(below)) if below else (own, own, own)


def _image(function: Function, buses: tuple[int, int, int], command: int) -> bytes:
    """4096 bytes: ids, command, class; on bridges bus numbers; the PCI Express capability at 40, AER at 100."""
    vendor, device = (int(part, 16) for part in function.ids.split(":"))
    image = bytearray(CONFIG_BYTES)
    struct.pack_into("<HHHHI", image, 0x00, vendor, device, command, 0x0010, function.class_code << 8)
    if function.class_code >> 8 == 0x0604:
        image[0x0E] = 1
        image[0x18:0x1B] = bytes(buses)
    elif function.board:
        struct.pack_into("<HH", image, 0x2C, *(int(part, 16) for part in function.board.split(":")))
    if function.kind in PCIE_TYPES:
        image[0x34] = 0x40
        struct.pack_into("<BBH", image, 0x40, 0x10, 0x00, PCIE_TYPES[function.kind] << 4 | 2)
        struct.pack_into("<I", image, 0x100, 0x0002_0001)
    return bytes(image)


def _write(folder: Path, files: Mapping[str, str]) -> None:
    for name, text in files.items():
        (folder / name).write_text(f"{text}\n")


def _link(link: Path, target: Path) -> None:
    link.unlink(missing_ok=True)
    link.symlink_to(os.path.relpath(target, link.parent))
