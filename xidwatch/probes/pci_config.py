"""PCI functions as sysfs shows them, and how to ask them whether they are there without disturbing anything.

Law: reads only, of `config` four bytes at a time, never of `vpd`, `rom` or `resourceN`; knows no quantity and no emit.

    bus/pci/devices/0000:11:00.0 -> ../../../devices/pci0000:00/0000:00:03.1/0000:0f:00.0/0000:10:08.0/0000:11:00.0
    class                   0x030000
    power/runtime_status    active            (suspended: reading `config` or a link file would wake the bridge above)
    config                  de 10 04 22 07 05 10 00 ...      (ff ff ff ff: nobody answered)

Each component of the real path is the bridge above, so the topology needs no hardware and outlives a dead switch.
Sources: Documentation/ABI/testing/sysfs-bus-pci; drivers/pci/pci-sysfs.c, access.c; PCI Express Base Specification, 7.5.
"""

from __future__ import annotations

import errno
import os
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import groupby
from math import inf
from pathlib import Path

from xidwatch.core.model import Missing, PciAddress, Subject

Answer = int | Missing

ALL_ONES = 0xFFFFFFFF  # what the root complex makes up when no device completes a read
NOT_READY = 0xFFFF0001  # Request Retry Status made visible: there, still initialising after a reset
CONFIRM_SECONDS = 0.1  # between the two reads that make all ones a fact

COMMAND = 0x04
BUS_NUMBERS = 0x18

_HAS_CAPABILITIES = 1 << 20  # status bit 4, as seen in the dword at 04
_FIRST_CAPABILITY = 0x34
_HEADER_BYTES = 64  # all that an opener without CAP_SYS_ADMIN gets
_PCI_EXPRESS = 0x10
_MAX_CAPABILITIES = 48  # a dead or broken list must not loop
_SLEEPING = frozenset({"suspended", "suspending", "resuming"})  # on the way up a device still reads as one that was reset
_PASSED_DOWN = frozenset({Missing.ASLEEP, Missing.BEHIND_DEAD_PARENT, Missing.NOT_ASKED})


# --- one function


@dataclass(frozen=True, slots=True)
class Function:
    """One PCI function, remembered from when it was last seen."""

    address: PciAddress
    kind: str  # port, gpu or nvme; empty for everything that is not read
    class_code: int  # 24 bits
    virtual: bool  # an SR-IOV virtual function: its ids read ffff by design
    lineage: tuple[Path, ...]  # real folders, from the root bus down to its own
    board: str = ""  # vendor:device subsystem-vendor:subsystem-device, as the kernel cached them; empty when it could not say

    @property
    def folder(self) -> Path:
        """Its own real folder; gone when the function is."""
        return self.lineage[-1]

    @property
    def level(self) -> int:
        """How many bridges are above it."""
        return len(self.lineage) - 1

    @property
    def parent(self) -> PciAddress | None:
        """The bridge above, None on a root bus."""
        return PciAddress.parse(self.lineage[-2].name) if self.level else None

    @property
    def root(self) -> PciAddress:
        """What of its lineage sits on a root bus: mostly a root port, or itself."""
        return PciAddress.parse(self.lineage[0].name)

    @property
    def chain(self) -> str:
        """Root bus, then device.function from the root port down, `0000:00/03.1/00.0/08.0/00.0`.

        Bus numbers below a root bus may move between boots, these do not; and two root buses may have the same tree below them.
        """
        root_bus = self.lineage[0].name.rpartition(":")[0]
        return "/".join((root_bus, *(folder.name.rpartition(":")[2] for folder in self.lineage)))

    @property
    def subject(self) -> Subject:
        """Under which its readings go; only for functions with a kind."""
        return Subject(self.kind, str(self.address))


def links(root: Path) -> dict[str, str]:
    """Every function on the bus and where its link points: cheap, and changes when a function comes, goes or moves. Raises OSError."""
    found: dict[str, str] = {}
    for entry in (root / "bus/pci/devices").iterdir():
        try:
            found[entry.name] = str(entry.readlink())
        except OSError:  # gone between the listing and here
            continue
    return found


def enumerate_functions(root: Path) -> dict[PciAddress, Function]:
    """All functions on the bus, parents before children. Reads cached attributes only. Raises OSError without a PCI bus."""
    found: list[Function] = []
    for name in links(root):
        try:
            found.append(_function((root / "bus/pci/devices" / name).resolve(strict=True)))
        except (OSError, ValueError):  # gone meanwhile, or a name that is no address
            continue
    return {function.address: function for function in sorted(found, key=lambda each: (each.level, each.address))}


def _function(folder: Path) -> Function:
    class_code = integer(read_text(folder / "class"), 16)
    vendor = read_text(folder / "vendor")
    code = 0 if isinstance(class_code, Missing) else class_code
    virtual = (folder / "physfn").is_symlink()
    return Function(
        address=PciAddress.parse(folder.name),
        kind="" if virtual else _kind(code, vendor),
        class_code=code,
        virtual=virtual,
        lineage=(*(above for above in reversed(folder.parents) if _is_address(above.name)), folder),
        board=_board(folder),
    )


def _board(folder: Path) -> str:
    """`10de:2204 1043:87c5`; bridges have no subsystem of their own."""
    ids = [integer(read_text(folder / name), 16) for name in ("vendor", "device", "subsystem_vendor", "subsystem_device")]
    vendor, device, *subsystem = ids
    if isinstance(vendor, Missing) or isinstance(device, Missing):
        return ""
    of_board = ":".join(f"{part:04x}" for part in subsystem if not isinstance(part, Missing))
    return f"{vendor:04x}:{device:04x} {of_board}".strip()


def _kind(class_code: int, vendor: str) -> str:
    if class_code >> 8 == 0x0604:
        return "port"
    if class_code >> 8 == 0x0108:
        return "nvme"
    return "gpu" if class_code >> 16 == 0x03 and vendor == "0x10de" else ""


def _is_address(name: str) -> bool:
    try:
        PciAddress.parse(name)
    except ValueError:
        return False
    return True


# --- attributes: text, cached by the kernel unless said otherwise


def missing_from(error: OSError) -> Missing:
    """What a failed system call says about the reading."""
    if isinstance(error, PermissionError):
        return Missing.DENIED
    # ENODEV: removed while the file was open.
    return Missing.ABSENT if error.errno in {errno.ENOENT, errno.ENODEV} else Missing.MALFORMED


def _gone(folder: Path) -> bool:
    try:
        folder.stat()
    except FileNotFoundError:
        return True
    except OSError:
        return False
    return False


def read_text(path: Path) -> str | Missing:
    """A sysfs attribute without its newline (at most a page)."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            return os.read(descriptor, 4096).decode(errors="replace").strip()
        finally:
            os.close(descriptor)
    except OSError as error:
        return missing_from(error)


def attribute(function: Function, name: str) -> str | Missing:
    """An attribute not every function has: UNSUPPORTED without it, ABSENT when the whole function is gone."""
    text = read_text(function.folder / name)
    return Missing.UNSUPPORTED if text is Missing.ABSENT and not _gone(function.folder) else text


def driver(function: Function) -> str:
    """Name of the bound driver, empty when none; Missing when the function is gone."""
    try:
        return (function.folder / "driver").readlink().name
    except FileNotFoundError:
        return Missing.ABSENT if _gone(function.folder) else ""
    except OSError as error:
        return missing_from(error)


def integer(text: str, base: int = 10) -> Answer:
    """A number as sysfs prints it (`0x` allowed with base 16); a Missing is handed through."""
    if isinstance(text, Missing):
        return text
    try:
        return int(text, base)
    except ValueError:
        return Missing.MALFORMED


def aer_roots(root: Path) -> frozenset[PciAddress] | Missing:
    """The root ports whose AER messages this kernel handles: those with an AER service, `0000:00:03.1:pcie002`, bound.

    None where the firmware keeps AER for itself, with `pci=noaer`, and on a kernel built without it.
    """
    try:
        names = [entry.name for entry in (root / "bus/pci_express/drivers/aer").iterdir()]
    except FileNotFoundError:
        return frozenset()
    except OSError as error:
        return missing_from(error)
    ports = (name.partition(":pcie")[0] for name in names if ":pcie" in name)
    return frozenset(PciAddress.parse(port) for port in ports if _is_address(port))


def drive_serial(function: Function) -> str:
    """Of an NVMe drive, as its driver cached it (nvme/nvme0/serial); UNSUPPORTED while no driver has asked it."""
    try:
        controllers = sorted((function.folder / "nvme").iterdir())
    except OSError:
        return Missing.UNSUPPORTED
    serials = (read_text(controller / "serial") for controller in controllers)
    return next((serial for serial in serials if serial and not isinstance(serial, Missing)), Missing.UNSUPPORTED)


# --- configuration space: hardware


def read_dword(folder: Path, offset: int) -> Answer:
    """Four bytes, one transaction. Never an error for a dead device: that one reads ALL_ONES.

    A read through Python's buffer would fetch 4096 bytes, 1024 transactions with interrupts off.
    """
    try:
        descriptor = os.open(folder / "config", os.O_RDONLY | os.O_CLOEXEC)
        try:
            data = os.pread(descriptor, 4, offset)
        finally:
            os.close(descriptor)
    except OSError as error:
        return missing_from(error)
    if len(data) == 4:
        return int.from_bytes(data, "little")
    return Missing.DENIED if offset >= _HEADER_BYTES else Missing.MALFORMED


def read_register(folder: Path, offset: int) -> Answer:
    """Four bytes of a function whose first dword was answered: all ones now means that it has gone since."""
    answer = read_dword(folder, offset)
    return Missing.DEVICE_LOST if answer == ALL_ONES else answer


def field(answer: Answer, shift: int, mask: int) -> Answer:
    """Some bits of a dword; a Missing is handed through."""
    return answer if isinstance(answer, Missing) else answer >> shift & mask


def pcie_type(folder: Path) -> Answer:
    """Device/port type of the PCI Express capability (4 root, 5 upstream, 6 downstream, 7 and 8 bridges).

    UNSUPPORTED without that capability, DENIED when only the 64-byte header may be read.
    """
    capable = field(read_register(folder, COMMAND), 0, _HAS_CAPABILITIES)
    if isinstance(capable, Missing):
        return capable
    pointer = field(read_register(folder, _FIRST_CAPABILITY), 0, 0xFC) if capable else 0
    for _ in range(_MAX_CAPABILITIES):
        if isinstance(pointer, Missing):
            return pointer
        if pointer < _HEADER_BYTES:
            return Missing.UNSUPPORTED
        header = read_register(folder, pointer)
        if field(header, 0, 0xFF) == _PCI_EXPRESS:
            return field(header, 20, 0xF)
        pointer = field(header, 8, 0xFC)
    return Missing.MALFORMED


# --- many functions, from the root down


def why_no_more(answer: Answer) -> Missing | None:
    """After this first dword: why nothing else of the function may be read; None when it is alive."""
    if isinstance(answer, Missing):
        return answer
    if answer == ALL_ONES:
        return Missing.DEVICE_LOST
    # Only the vendor id is answered with a retry status; any other read is repeated by the root complex until it times out.
    return Missing.NOT_ASKED if answer == NOT_READY else None


def _why_not_below(answer: Answer | None) -> Missing | None:
    """After this answer of the bridge above: why a function is not asked; None when it may be."""
    if answer == ALL_ONES:
        return Missing.BEHIND_DEAD_PARENT
    if answer == NOT_READY:
        return Missing.NOT_ASKED
    return answer if isinstance(answer, Missing) and answer in _PASSED_DOWN else None


def _asleep(function: Function) -> Missing | None:
    """ASLEEP when it or any bridge above is runtime-suspended; another reason when that cannot be told; None when awake."""
    for folder in reversed(function.lineage):
        status = read_text(folder / "power/runtime_status")
        if status in _SLEEPING:
            return Missing.ASLEEP
        # A kernel without runtime power management has no such file, and puts nothing to sleep.
        if isinstance(status, Missing) and status is not Missing.ABSENT:
            return status
    return None


@dataclass(slots=True)
class TopDown:
    """One walk over the tree: the first dword of each function, or why it was not read.

    A parent comes before its children, and nothing below a bridge that sleeps, does not answer or is skipped is touched.
    All ones counts only when it is read again CONFIRM_SECONDS later; the suspects of one level share that wait, so a walk
    waits at most once per level. The caller may read on in a function that has just been yielded alive.
    """

    functions: Iterable[Function]  # parents first
    skip: frozenset[str] = frozenset()  # subjects, as text
    deadline: float = inf  # of `monotonic`; past it the walk ends between two functions
    before_touching: Callable[[Function], None] = lambda _: None
    sleep: Callable[[float], None] = time.sleep
    monotonic: Callable[[], float] = time.monotonic

    def __iter__(self) -> Iterator[tuple[Function, Answer]]:
        answers: dict[PciAddress, Answer] = {}
        for _, level in groupby(self.functions, key=lambda each: each.level):
            suspects: list[Function] = []
            for function, answer in self._round(level, answers):
                if answer == ALL_ONES:
                    suspects.append(function)
                else:
                    answers[function.address] = answer
                    yield function, answer
            if suspects:
                self.sleep(CONFIRM_SECONDS)
            for function, answer in self._round(suspects, answers):
                answers[function.address] = answer
                yield function, answer

    def _round(self, level: Iterable[Function], answers: dict[PciAddress, Answer]) -> Iterator[tuple[Function, Answer]]:
        for function in level:
            if self.monotonic() >= self.deadline:
                return
            barred = self._barred(function, answers)
            if barred is None:
                self.before_touching(function)
            yield function, read_dword(function.folder, 0) if barred is None else barred

    def _barred(self, function: Function, answers: dict[PciAddress, Answer]) -> Missing | None:
        if function.virtual:
            return Missing.UNSUPPORTED
        if function.kind and str(function.subject) in self.skip:
            return Missing.NOT_ASKED
        if _gone(function.folder):
            return Missing.ABSENT
        above = answers.get(function.parent) if function.parent else None
        return _why_not_below(above) or _asleep(function)
