"""PCI bridges, NVIDIA GPUs and NVMe drives: do they answer, at which speed, with which errors counted.

Law: turns what `pci_config` reads into readings; one function that cannot be read never keeps another from being read.

    config                       first dword, command (04), on bridges bus numbers (18): four bytes a read
    current_link_speed           16.0 GT/s PCIe             (older kernels: 16.0 GT/s; a dead device: Unknown)
    current_link_width           16                         (a dead device: 63)
    aer_dev_correctable          RxErr 0 ... TOTAL_ERR_COR 0
    aer_rootport_total_err_cor   0
    driver -> ../../../../../../bus/pci/drivers/nvidia
    bus/pci_express/drivers/aer/0000:00:03.1:pcie002      the root port whose error messages this kernel handles

Link files wake the bridge above just as `config` does, so both are left alone while anything on the way sleeps. AER
counters live in the kernel and touch no hardware; they are read even when the device has gone, and they are evidence
then. They stay 0 for ever when the firmware kept AER for itself; then the kernel has bound no AER service to the root port.
Sources: Documentation/ABI/testing/sysfs-bus-pci, sysfs-bus-pci-devices-aer_stats; drivers/pci/pci-sysfs.c, pcie/aer.c,
pcie/portdrv.c (services, and how they are named).
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path

from xidwatch.core.model import HOST, Missing, PciAddress, Value
from xidwatch.core.quantities import text as printed
from xidwatch.probes import pci_config
from xidwatch.probes.base import Ask, Emit, Probe, ProbeFailed
from xidwatch.probes.pci_config import Answer, Function, TopDown, attribute, field, integer

AER_COUNTERS = {"aer_correctable": "aer_dev_correctable", "aer_nonfatal": "aer_dev_nonfatal", "aer_fatal": "aer_dev_fatal"}
AER_ROOT_COUNTERS = {
    "aer_root_correctable": "aer_rootport_total_err_cor",
    "aer_root_nonfatal": "aer_rootport_total_err_nonfatal",
    "aer_root_fatal": "aer_rootport_total_err_fatal",
}
MOST_FUNCTIONS = 1_000  # read and listed: what there is to tell of so many fits into one answer
DEAD_LINK_WIDTHS = frozenset({63, 255})  # six bits of all ones, or the whole byte

_ROOT_PORT, _UPSTREAM, _DOWNSTREAM = 4, 5, 6
_PORT_TYPES = {_ROOT_PORT: "root", _UPSTREAM: "upstream", _DOWNSTREAM: "downstream"}
_LEADING_NUMBER = re.compile(r"\d+(?:\.\d+)?")


def create(options: Mapping[str, object]) -> Probe:
    """Options: `root`, where sysfs is mounted (default /sys)."""
    return PciProbe(str(options.get("root", "/sys")))


class PciProbe:
    """Readings about `port:`, `gpu:` and `nvme:` functions. Knows the tree as last seen, so that what vanished is ABSENT, not forgotten."""

    between_seconds: float | None = None

    def __init__(
        self, root: str = "/sys", *, sleep: Callable[[float], None] = time.sleep, monotonic: Callable[[], float] = time.monotonic
    ) -> None:
        self._root = Path(root)
        self._sleep = sleep
        self._monotonic = monotonic
        self._links: dict[str, str] = {}
        self._functions: dict[PciAddress, Function] = {}

    def sample(self, ask: Ask, emit: Emit) -> None:
        """Registers, link, AER counters and driver of every function. Raises ProbeFailed without a PCI bus.

        `ask.skip` spares hardware: counters and driver of what is skipped are still read, from the kernel's memory.
        """
        self._report_presence(emit)
        native = pci_config.aer_roots(self._root)
        for function, dword0 in self._walk(ask, emit):
            _report_registers(function, dword0, emit)
            _report_link(function, dword0, "current", ("link_gts", "link_width"), emit)
            _report_aer_owner(function, native, emit)
            _report_aer(function, emit)
            emit.reading(function.subject, "driver", pci_config.driver(function))

    def look(self, ask: Ask, emit: Emit) -> None:
        """Who is there; first dword, command and bus numbers, and the driver they belong to. Raises ProbeFailed without a PCI bus."""
        self._report_presence(emit)
        for function, dword0 in self._walk(ask, emit):
            _report_registers(function, dword0, emit)
            emit.reading(function.subject, "driver", pci_config.driver(function))

    def inventory(self, ask: Ask, emit: Emit) -> None:
        """Identity and limits of every function there is now; what vanished before is forgotten. Raises ProbeFailed without a PCI bus."""
        self._links = self._on_the_bus()
        self._functions = pci_config.enumerate_functions(self._root)
        read = self._read_functions()
        emit.reading(HOST, "functions_elsewhere", sum(not function.kind for function in self._functions.values()))
        if unread := self._unread():
            emit.reading(HOST, "functions_unread", unread)
        emit.reading(HOST, "virtual_functions", " ".join(sorted(_virtual_gpus(self._functions.values()))))
        slots, native = slot_names(self._root), pci_config.aer_roots(self._root)
        for function in read:
            _report_identity(function, slots, emit)
            _report_aer_owner(function, native, emit)
        port_types: dict[PciAddress, int] = {}
        for function, dword0 in self._walk(ask, emit):
            if function.kind == "port":
                emit.reading(function.subject, "port_type", _port_type(function, dword0, port_types))
            _report_link(function, dword0, "max", ("max_link_gts", "max_link_width"), emit)

    def between(self) -> None:
        """Nothing: sysfs keeps no buffer that overruns."""

    def close(self) -> None:
        """Nothing is held between requests: after a rescan an old descriptor would no longer name the device."""

    def _on_the_bus(self) -> dict[str, str]:
        try:
            return pci_config.links(self._root)
        except OSError as error:
            raise ProbeFailed("NoPciBus", f"{self._root}/bus/pci/devices: {error.strerror}") from error

    def _notice_new(self) -> None:
        """Adds functions that came or moved; keeps the ones that went."""
        links = self._on_the_bus()
        if links.items() - self._links.items():
            self._functions = self._functions | pci_config.enumerate_functions(self._root)
        self._links = links

    def _report_presence(self, emit: Emit) -> None:
        """Who is there and where, from the listing alone: no hardware is touched.

        The count comes last: with it the list is complete. It is not told where some are left out, or those would be missed.
        """
        self._notice_new()
        for function in self._read_functions():
            there = str(function.address) in self._links
            emit.reading(function.subject, "present", int(there))
            if there:
                emit.reading(function.subject, "chain", function.chain)
                emit.reading(function.subject, "board", function.board)
        emit.reading(HOST, "pci_functions", Missing.NOT_ASKED if self._unread() else len(self._links))

    def _read_functions(self) -> list[Function]:
        return most_wanted([function for function in self._functions.values() if function.kind], MOST_FUNCTIONS)

    def _unread(self) -> int:
        return max(0, sum(bool(function.kind) for function in self._functions.values()) - MOST_FUNCTIONS)

    def _walk(self, ask: Ask, emit: Emit) -> Iterable[tuple[Function, Answer]]:
        return TopDown(
            self._read_functions(),
            skip=ask.skip,
            deadline=ask.deadline,
            before_touching=lambda function: emit.at(function.subject),
            sleep=self._sleep,
            monotonic=self._monotonic,
        )


def most_wanted(functions: list[Function], most: int) -> list[Function]:
    """Top down, and no more than so many: GPUs and all that is above them come before anything else."""
    vital = {folder for function in functions if function.kind == "gpu" for folder in function.lineage}
    if len(functions) > most:
        functions = sorted(functions, key=lambda each: (each.folder not in vital, each.level, each.address))[:most]
    return sorted(functions, key=lambda each: (each.level, each.address))


def _virtual_gpus(functions: Iterable[Function]) -> Iterator[str]:
    return (str(each.address) for each in functions if each.virtual and each.board.startswith("10de:") and each.class_code >> 16 == 3)


# --- readings of one function


def _report_registers(function: Function, dword0: Answer, emit: Emit) -> None:
    why_not = pci_config.why_no_more(dword0)
    emit.reading(function.subject, "config_dword0", dword0)
    command = why_not or pci_config.read_register(function.folder, pci_config.COMMAND)
    emit.reading(function.subject, "command", field(command, 0, 0xFFFF))
    if function.kind != "port":
        return
    buses = why_not or pci_config.read_register(function.folder, pci_config.BUS_NUMBERS)
    for shift, quantity in ((0, "primary_bus"), (8, "secondary_bus"), (16, "subordinate_bus")):
        emit.reading(function.subject, quantity, field(buses, shift, 0xFF))


def _report_link(function: Function, dword0: Answer, which: str, quantities: tuple[str, str], emit: Emit) -> None:
    why_not = pci_config.why_no_more(dword0)
    speed, width = quantities
    emit.reading(function.subject, speed, why_not or link_gts(attribute(function, f"{which}_link_speed")))
    lanes = why_not or integer(attribute(function, f"{which}_link_width"))
    # It died under this very read: that is no width, neither to compare nor to be compared with.
    emit.reading(function.subject, width, Missing.DEVICE_LOST if lanes in DEAD_LINK_WIDTHS else lanes)


def _report_aer(function: Function, emit: Emit) -> None:
    for quantity, name in AER_COUNTERS.items():
        emit.reading(function.subject, quantity, aer_total(attribute(function, name)))
    for quantity, name in AER_ROOT_COUNTERS.items():
        count = integer(attribute(function, name))
        if count not in {Missing.UNSUPPORTED, Missing.ABSENT}:  # only root ports have these files
            emit.reading(function.subject, quantity, count)


def _report_aer_owner(function: Function, native: frozenset[PciAddress] | Missing, emit: Emit) -> None:
    emit.reading(function.subject, "aer_native", native if isinstance(native, Missing) else int(function.root in native))


def _report_identity(function: Function, slots: Mapping[str, str], emit: Emit) -> None:
    facts: dict[str, Value] = {
        "chain": function.chain,
        "parent": str(function.parent or ""),
        "vendor": integer(attribute(function, "vendor"), 16),
        "device": integer(attribute(function, "device"), 16),
        "subsystem": _subsystem(function),
        **({"serial": pci_config.drive_serial(function)} if function.kind == "nvme" else {}),
        "class": function.class_code,
        "driver": pci_config.driver(function),
        "slot": slots.get(str(function.address).partition(".")[0], Missing.UNSUPPORTED),
        "numa_node": integer(attribute(function, "numa_node")),
        "aer": _keeps_aer(function),
    }
    for quantity, value in facts.items():
        emit.reading(function.subject, quantity, value)


def _subsystem(function: Function) -> str:
    vendor = integer(attribute(function, "subsystem_vendor"), 16)
    device = integer(attribute(function, "subsystem_device"), 16)
    if isinstance(vendor, Missing):
        return vendor
    return device if isinstance(device, Missing) else f"{vendor:04x}:{device:04x}"


def _keeps_aer(function: Function) -> Answer:
    counters = attribute(function, AER_COUNTERS["aer_correctable"])
    if counters is Missing.UNSUPPORTED:
        return 0
    return counters if isinstance(counters, Missing) else 1


def _port_type(function: Function, dword0: Answer, types: dict[PciAddress, int]) -> str:
    """`types` holds the bridges met so far in this walk. A bridge without a PCI Express capability is a `bridge`."""
    claimed = pci_config.why_no_more(dword0) or pci_config.pcie_type(function.folder)
    if claimed is Missing.UNSUPPORTED:
        return "bridge"
    if isinstance(claimed, Missing):
        return claimed
    above = types.get(function.parent) if function.parent else None
    types[function.address] = acting = acting_port_type(claimed, above)
    return _PORT_TYPES.get(acting, "bridge")


# --- the texts sysfs prints


def acting_port_type(claimed: int, above: int | None) -> int:
    """Some ports claim the wrong direction; corrected by the port above as the kernel does (set_pcie_port_type)."""
    if claimed == _DOWNSTREAM and above in {_ROOT_PORT, _DOWNSTREAM}:
        return _UPSTREAM
    return _DOWNSTREAM if claimed == _UPSTREAM and above == _UPSTREAM else claimed


def link_gts(text: str) -> float | Missing:
    """GT/s per lane from `16.0 GT/s PCIe`; `Unknown` is MALFORMED; a Missing is handed through."""
    if isinstance(text, Missing):
        return text
    number = _LEADING_NUMBER.match(text)
    return float(number[0]) if number else Missing.MALFORMED


def aer_total(text: str) -> Answer:
    """The TOTAL line of an AER file: events, not the sum of the lines above it.

    Kernels print short names (`RxErr 0`), the ABI document long ones (`Receiver Error 0`): only the last word is a number.
    """
    if isinstance(text, Missing):
        return text
    for line in reversed(text.splitlines()):
        name, _, count = line.strip().rpartition(" ")
        if name.startswith("TOTAL_"):
            return integer(count)
    return Missing.MALFORMED


def slot_names(root: Path) -> dict[str, str]:
    """Physical slot by device (`0000:0f:00`, no function), from <root>/bus/pci/slots/NAME/address; empty where firmware names none."""
    names: dict[str, str] = {}
    try:
        folders = sorted((root / "bus/pci/slots").iterdir())
    except OSError:
        return names
    for folder in folders:
        device = pci_config.read_text(folder / "address")
        if not isinstance(device, Missing):
            names[device] = folder.name
    return names


# --- configuration space as forensic text

LINE_LIMIT = 250  # characters: lspci refuses a whole file over one line of 255
BLOCK_BYTES = 64  # how much of a device that dies under the dump is still asked for
_ROW_BYTES = 16

_SILENCE: Mapping[Answer, str] = {
    pci_config.ALL_ONES: "no answer (all ones twice, 100 ms apart): nothing more was read",
    pci_config.NOT_READY: "not ready (configuration retry status): nothing more was read",
    Missing.ASLEEP: "asleep, or below a sleeping bridge: not read, reading would wake it",
    Missing.BEHIND_DEAD_PARENT: "the bridge above does not answer: not read",
    Missing.NOT_ASKED: "left out, or below a bridge that was left out or is not ready: not read",
    Missing.UNSUPPORTED: "virtual function: its ids read ffff by design: not read",
    Missing.ABSENT: "gone while this was written",
    Missing.DENIED: "permission denied",
    Missing.MALFORMED: "configuration space could not be read",
}


def config_space_text(
    root: str = "/sys", *, skip: frozenset[str] = frozenset(), sleep: Callable[[float], None] = time.sleep
) -> Iterator[str]:
    """Configuration space of every PCI function, level by level from the root buses down, as text without its last newline.

    A function that answers is a header line and hex rows as `lspci -xxxx` prints them, so `lspci -F FILE -vvv` decodes the
    text; of any other the header is a comment and the next line says why nothing more was read. Both headers name address,
    first dword, class, runtime status, power state, driver and path below `root`. `skip` as in Ask. Raises ProbeFailed
    without a PCI bus.

        # 0000:0f:00.0 dword0=ffffffff class=060400 runtime=active power=D0 driver=pcieport path=devices/...
        # 0000:0f:00.0 no answer (all ones twice, 100 ms apart): nothing more was read

        0000:00:03.1 dword0=14531022 class=060400 runtime=active power=D0 driver=pcieport path=devices/pci0000:00/0000:00:03.1
        00: 22 10 53 14 07 04 10 00 00 00 04 06 10 00 81 00
    """
    try:
        functions = pci_config.enumerate_functions(Path(root))
    except OSError as error:
        raise ProbeFailed("NoPciBus", f"{root}/bus/pci/devices: {error.strerror}") from error
    yield "# PCI configuration space, level by level from the root buses down; decode with: lspci -F FILE -vvv"
    yield ""
    for function, dword0 in TopDown(functions.values(), skip=skip, sleep=sleep):
        header = _header(function, dword0, Path(root).resolve())
        if pci_config.why_no_more(dword0):
            yield f"# {header}"[:LINE_LIMIT]
            yield f"# {function.address} {_SILENCE.get(dword0, dword0)}"
        else:
            yield header[:LINE_LIMIT]
            yield from _hex_rows(function.folder)
        yield ""  # here and not before the next header: the walk reads the next device's first dword before it hands it over


def _header(function: Function, dword0: Answer, root: Path) -> str:
    facts = {
        "dword0": printed("config_dword0", dword0) or "-",
        "class": f"{function.class_code:06x}",
        "runtime": attribute(function, "power/runtime_status"),
        "power": attribute(function, "power_state"),
        "driver": pci_config.driver(function) or "-",
        "path": function.folder.relative_to(root),
    }
    return " ".join([str(function.address), *(f"{name}={fact}" for name, fact in facts.items())])


def _hex_rows(folder: Path) -> Iterator[str]:
    """As much as `config` gives, a block at a time. After a block of all ones the device is asked again whether it is still there."""
    try:
        descriptor = os.open(folder / "config", os.O_RDONLY | os.O_CLOEXEC)
    except OSError as error:
        yield f"# {error.strerror}"
        return
    try:
        for offset in range(0, os.fstat(descriptor).st_size, BLOCK_BYTES):
            block = os.pread(descriptor, BLOCK_BYTES, offset)
            if not block:
                yield f"# ends at {offset:02x}: the rest needs CAP_SYS_ADMIN"
                return
            if not block.strip(b"\xff") and os.pread(descriptor, 4, 0) == b"\xff" * 4:
                yield f"# stopped answering before {offset + len(block):02x}"
                return
            rows = range(0, len(block), _ROW_BYTES)
            yield "\n".join(f"{offset + row:02x}: {block[row : row + _ROW_BYTES].hex(' ')}" for row in rows)
    except OSError as error:
        yield f"# {error.strerror}"
    finally:
        os.close(descriptor)
