"""A PCI tree in a folder: real `config` files, real links, the attributes and texts of Linux 6.12.

    tree = SysfsTree(tmp_path)
    root_port = tree.bridge("0000:00:03.1", secondary=0x0F, subordinate=0x11)
    upstream = tree.bridge("0000:0f:00.0", root_port, port_type="upstream", secondary=0x10, subordinate=0x11)
    downstream = tree.bridge("0000:10:08.0", upstream, port_type="downstream", secondary=0x11)
    tree.gpu("0000:11:00.0", downstream)
    tree.die(upstream)                 # it and all below read ff, as when a switch loses its supply
    create({"root": str(tree.root)})

`two_switch_host(tmp_path)` is the host most tests want. What the fake does not do: a read has no effect, so it can
neither wake a sleeping device nor fail; make a file unreadable or record the system calls to prove that it was left alone.
"""

from __future__ import annotations

import os
import shutil
import struct
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

PORT_TYPES = {"root": 4, "upstream": 5, "downstream": 6}
ENABLED = 0x0507  # command: I/O, memory, bus master, SERR, INTx off
GEN4 = "16.0 GT/s PCIe"

AER_CORRECTABLE = "RxErr 0\nBadTLP 0\nBadDLLP 0\nRollover 0\nTimeout 0\nNonFatalErr 0\nCorrIntErr 0\nHeaderOF 0\nTOTAL_ERR_COR 0\n"
_UNCORRECTABLE = (
    "Undefined 0\nDLP 0\nSDES 0\nTLP 0\nFCP 0\nCmpltTO 0\nCmpltAbrt 0\nUnxCmplt 0\nRxOF 0\nMalfTLP 0\nECRC 0\nUnsupReq 0\n"
    "ACSViol 0\nUncorrIntErr 0\nBlockedTLP 0\nAtomicOpBlocked 0\nTLPBlockedErr 0\nPoisonTLPBlocked 0\n"
)
AER_NONFATAL = f"{_UNCORRECTABLE}TOTAL_ERR_NONFATAL 0\n"
AER_FATAL = f"{_UNCORRECTABLE}TOTAL_ERR_FATAL 0\n"


@dataclass(frozen=True, slots=True)
class Registers:
    """What one function's configuration space holds. `pcie_type` None: conventional PCI, 256 bytes, no capability."""

    vendor: int
    device: int
    class_code: int  # 24 bits
    pcie_type: int | None
    buses: tuple[int, int, int] | None = None  # bridges: primary, secondary, subordinate
    command: int = ENABLED
    subsystem: tuple[int, int] = (0x1043, 0x87C5)

    def image(self) -> bytes:
        """The bytes of the `config` file: power management at 40, PCI Express at 60, AER at 100."""
        image = bytearray(256 if self.pcie_type is None else 4096)
        status = 0 if self.pcie_type is None else 0x0010  # has a capability list
        struct.pack_into("<HHHHI", image, 0x00, self.vendor, self.device, self.command, status, self.class_code << 8 | 0xA1)
        if self.buses:
            image[0x0E] = 1
            image[0x18:0x1B] = bytes(self.buses)
        else:
            struct.pack_into("<HH", image, 0x2C, *self.subsystem)
        if self.pcie_type is not None:
            image[0x34] = 0x40
            struct.pack_into("<BBHI", image, 0x40, 0x01, 0x60, 0x0003, 0)
            struct.pack_into("<BBHI", image, 0x60, 0x10, 0x00, self.pcie_type << 4 | 2, 0)
            struct.pack_into("<IHH", image, 0x6C, 0x0000_0104, 0, 0x2104)  # LnkCap; LnkCtl; LnkSta: 16 GT/s, 16 lanes, link active
            struct.pack_into("<I", image, 0x100, 0x0002_0001)
        return bytes(image)


@dataclass(slots=True)
class _Fake:
    folder: Path
    registers: Registers
    healthy: dict[str, bytes]  # every plain file as first written


class SysfsTree:
    """Builds functions (each builder returns the address, to be the parent of the next) and lets things happen to them."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self._fakes: dict[str, _Fake] = {}
        for folder in ("devices", "bus/pci/devices", "bus/pci/drivers", "bus/pci/slots"):
            (root / folder).mkdir(parents=True, exist_ok=True)

    # --- builders

    def bridge(
        self,
        address: str,
        parent: str = "",
        *,
        secondary: int,
        subordinate: int | None = None,
        port_type: str = "root",
        vendor: int = 0x1000,
        device: int = 0xC010,
    ) -> str:
        """A PCI-to-PCI bridge bound to pcieport; `port_type` root, upstream or downstream. Buses below: secondary to subordinate."""
        buses = (int(address.split(":")[1], 16), secondary, secondary if subordinate is None else subordinate)
        registers = Registers(vendor, device, 0x060400, PORT_TYPES[port_type], buses)
        self._add(address, parent, registers, "pcieport", _pcie_files())
        if port_type == "root":
            for name in ("cor", "nonfatal", "fatal"):
                self.write(address, f"aer_rootport_total_err_{name}", "0\n")
            (self.root / "bus/pci_express/drivers/aer").mkdir(parents=True, exist_ok=True)
            self._link(self.root / f"bus/pci_express/drivers/aer/{address}:pcie002", self.folder(address))
        return address

    def gpu(self, address: str, parent: str, *, device: int = 0x2204, driver: str = "nvidia") -> str:
        """An NVIDIA GPU; GeForce boards say Legacy Endpoint."""
        return self._add(address, parent, Registers(0x10DE, device, 0x030000, 1), driver, _pcie_files())

    def nvme(self, address: str, parent: str) -> str:
        """An NVMe drive."""
        return self._add(address, parent, Registers(0x144D, 0xA80A, 0x010802, 0), "nvme", _pcie_files())

    def other(self, address: str, parent: str = "", *, class_code: int = 0x020000, driver: str = "") -> str:
        """A conventional PCI function: no link files, no AER, 256 bytes of configuration space."""
        return self._add(address, parent, Registers(0x1AF4, 0x1041, class_code, None), driver, {})

    def virtual_function(self, address: str, parent: str, physical: str) -> str:
        """An SR-IOV function of the GPU `physical`: its first dword reads ffffffff while all is well."""
        self._add(address, parent, Registers(0x10DE, 0x2204, 0x030000, 0), "", {})
        self.write(address, "config", b"\xff" * 4 + bytes(4092))
        self._link(self.folder(address) / "physfn", self.folder(physical))
        return address

    def slot(self, name: str, address: str) -> None:
        """Firmware's name for where a device sits: `address` without function."""
        folder = self.root / "bus/pci/slots" / name
        folder.mkdir()
        (folder / "address").write_text(address + "\n")

    # --- events

    def die(self, address: str) -> None:
        """It and everything below stop answering. The kernel does not notice: folders, drivers, cached ids and states stay."""
        for fake in self._subtree(address):
            (fake.folder / "config").write_bytes(b"\xff" * len(fake.healthy["config"]))
            if "current_link_width" in fake.healthy:
                _write(fake.folder, {"current_link_speed": b"Unknown\n", "current_link_width": b"63\n", "max_link_width": b"63\n"})

    def recover(self, address: str) -> None:
        """It and everything below are as they were built: awake, answering, configured."""
        for fake in self._subtree(address):
            _write(fake.folder, fake.healthy)

    def revive_cleared(self, address: str) -> None:
        """It has power again and no memory: ids answer, command register and bus numbers are 0. What is below stays as it is."""
        fake = self._fakes[address]
        buses = (0, 0, 0) if fake.registers.buses else None
        _write(fake.folder, {**fake.healthy, "config": replace(fake.registers, command=0, buses=buses).image()})

    def sleep(self, address: str) -> None:
        """It is runtime-suspended, alone, in D3cold: a sleeping device reads all ones too."""
        fake = self._fakes[address]
        power = {"power/runtime_status": b"suspended\n", "power_state": b"D3cold\n"}
        _write(fake.folder, {**power, "config": b"\xff" * len(fake.healthy["config"])})

    def remove(self, address: str) -> None:
        """It and everything below leave sysfs."""
        folder = self.folder(address)
        for gone in [name for name, fake in self._fakes.items() if fake.folder.is_relative_to(folder)]:
            del self._fakes[gone]
            (self.root / "bus/pci/devices" / gone).unlink()
        shutil.rmtree(folder)

    def write(self, address: str, name: str, content: str | bytes) -> None:
        """Sets one attribute; `recover` keeps it."""
        data = content.encode() if isinstance(content, str) else content
        fake = self._fakes[address]
        fake.healthy[name] = data
        _write(fake.folder, {name: data})

    def unlink(self, address: str, name: str) -> None:
        """Takes one attribute away, as on a kernel or device without it."""
        self._fakes[address].healthy.pop(name, None)
        (self.folder(address) / name).unlink()

    def folder(self, address: str) -> Path:
        """The real folder of a function."""
        return self._fakes[address].folder

    # --- inside

    def _add(self, address: str, parent: str, registers: Registers, driver: str, files: dict[str, bytes]) -> str:
        folder = (self.folder(parent) if parent else self.root / "devices" / f"pci{address[:7]}") / address
        (folder / "power").mkdir(parents=True)
        self._fakes[address] = _Fake(folder, registers, {**_plain_files(registers), **files})
        _write(folder, self._fakes[address].healthy)
        self._link(self.root / "bus/pci/devices" / address, folder)
        if driver:
            (self.root / "bus/pci/drivers" / driver).mkdir(exist_ok=True)
            self._link(folder / "driver", self.root / "bus/pci/drivers" / driver)
        return address

    def _subtree(self, address: str) -> Iterator[_Fake]:
        top = self.folder(address)
        return (fake for fake in self._fakes.values() if fake.folder.is_relative_to(top))

    @staticmethod
    def _link(link: Path, target: Path) -> None:
        link.symlink_to(os.path.relpath(target, link.parent))


def two_switch_host(root: Path) -> SysfsTree:
    """Four GPUs below a switch at 0f, a drive below one at 01, each switch below its own root port; a host bridge and a GPU's sound.

    0000:00:03.1 root - 0f:00.0 upstream - 10:00.0 10:04.0 10:08.0 10:0c.0 downstream - 11:00.0 12:00.0 13:00.0 14:00.0
    0000:00:01.1 root - 01:00.0 upstream - 02:00.0 downstream - 03:00.0
    """
    tree = SysfsTree(root)
    tree.other("0000:00:00.0", class_code=0x060000)
    drive_port = tree.bridge("0000:00:01.1", secondary=0x01, subordinate=0x03, vendor=0x1022, device=0x1453)
    drive_switch = tree.bridge("0000:01:00.0", drive_port, port_type="upstream", secondary=0x02, subordinate=0x03)
    tree.nvme("0000:03:00.0", tree.bridge("0000:02:00.0", drive_switch, port_type="downstream", secondary=0x03))
    gpu_port = tree.bridge("0000:00:03.1", secondary=0x0F, subordinate=0x14, vendor=0x1022, device=0x1453)
    gpu_switch = tree.bridge("0000:0f:00.0", gpu_port, port_type="upstream", secondary=0x10, subordinate=0x14)
    for number, bus in enumerate(range(0x11, 0x15)):
        port = tree.bridge(f"0000:10:{4 * number:02x}.0", gpu_switch, port_type="downstream", secondary=bus)
        tree.gpu(f"0000:{bus:02x}:00.0", port)
    tree.other("0000:11:00.1", port_of(tree, "0000:11:00.0"), class_code=0x040300, driver="snd_hda_intel")
    tree.slot("4", "0000:0f:00")
    return tree


def port_of(tree: SysfsTree, address: str) -> str:
    """The bridge directly above a function."""
    return tree.folder(address).parent.name


def _plain_files(registers: Registers) -> dict[str, bytes]:
    texts = {
        "vendor": f"{registers.vendor:#06x}",
        "device": f"{registers.device:#06x}",
        "class": f"{registers.class_code:#08x}",
        "revision": "0xa1",
        "subsystem_vendor": f"{registers.subsystem[0]:#06x}",
        "subsystem_device": f"{registers.subsystem[1]:#06x}",
        "numa_node": "-1",
        "power_state": "D0",
        "power/runtime_status": "active",
    }
    return {"config": registers.image(), **{name: f"{text}\n".encode() for name, text in texts.items()}}


def _pcie_files() -> dict[str, bytes]:
    texts = {
        "current_link_speed": GEN4,
        "current_link_width": "16",
        "max_link_speed": GEN4,
        "max_link_width": "16",
    }
    counters = {"aer_dev_correctable": AER_CORRECTABLE, "aer_dev_nonfatal": AER_NONFATAL, "aer_dev_fatal": AER_FATAL}
    return {name: f"{text}\n".encode() for name, text in texts.items()} | {name: text.encode() for name, text in counters.items()}


def _write(folder: Path, files: dict[str, bytes]) -> None:
    for name, data in files.items():
        (folder / name).write_bytes(data)
