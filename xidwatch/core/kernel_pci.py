"""What the PCI core says about devices and ports: AER, DPC, hot-plug, and devices that do not come out of their sleep or reset.

    pcieport 0000:00:03.1: AER: Correctable error message received from 0000:07:00.0          since 6.6
    pcieport 0000:00:02.0: AER: Uncorrected (Fatal) error received: id=0010                    before 4.20
    nvidia 0000:07:00.0: PCIe Bus Error: severity=Correctable, type=Data Link Layer, (Transmitter ID)
    nvidia 0000:07:00.0:   device [10de:2184] error status/mask=00001000/0000a000
    nvidia 0000:07:00.0:    [12] Timeout
    pcieport 0000:00:01.4: DPC: containment event, status:0x1f01 source:0x0000
    pcieport 0000:00:01.1: pciehp: Slot(0): Link Down
    nvme 0000:02:00.0: Unable to change power state from D3cold to D0, device inaccessible
    pcieport 0000:00:01.1: Data Link Layer Link Active not set in 1000 msec

Law: a family of `kernel`, pure and total. A record goes out with its first line: what the port announces, and what is then said about
the device it named, are one event; registers, headers and the steps of a recovery belong to it. A device that the announcement did not
name is another event, so that no address is lost, and so is anything worse. Where nothing was announced (the kernel limits its lines
since 6.16, and rings overrun) the first line that is there is the event.
Every line begins with a driver and an address, longer than a name of a process; no user's words stand in it. None is acted on but
by a look at the device.
Sources: drivers/pci/pcie/aer.c, dpc.c, err.c, edr.c, drivers/pci/hotplug/pciehp_*.c, drivers/pci/pci.c, Linux 2.6.30 to 6.16.
"""

from __future__ import annotations

import re
from typing import TypeVar

from xidwatch.core import kernel_nvme
from xidwatch.core.model import KernelEvent, KernelMessage, PciAddress, Severity

RECORD_USEC = 1_000_000  # how long after its first line the lines of one record may come
RECOVERY_USEC = 120_000_000  # and the end of a recovery: a hot reset of a large tree waits a minute for its devices
MOST_ADDRESSES = 1024  # remembered at a time; a damaged log may hold any number

Told = TypeVar("Told")

_BDF = r"[0-9a-fA-F]{4,8}:[0-9a-fA-F]{2}:[0-9a-fA-F]{2}\.[0-7]"
# Until 4.17 the port's services spoke under names of their own: `dpc 0000:00:1c.0:pcie010: `, two digits at first.
_LINE = re.compile(rf"^(?P<driver>[\w.+-]{{1,40}}) (?P<where>{_BDF})(?::pcie[0-9a-f]{{2,3}})?: (?P<said>.*)$", re.ASCII | re.DOTALL)
_AER = re.compile(
    r"^(?:AER: )?(?:Multiple )?(?:Corrected|Correctable|(?:Uncorrected|Uncorrectable)(?: \((?P<fatal>Fatal|Non-Fatal)\))?) error"
    rf"(?: message)? received(?:: id=(?P<id>[0-9a-f]{{4}})\b|(?:: | from )(?P<source>{_BDF}))?",
    re.ASCII,
)
_BUS_ERROR = re.compile(r"^(?:AER: )?PCI[eE] Bus Error: severity=(?P<severity>[\w() -]{1,40}?)(?:,|$)", re.ASCII)
_RECOVERY = re.compile(r"^(?:AER: )?(?:[Dd]evice recovery failed|can't recover\b|subordinate device reset failed)", re.ASCII)
_DPC = re.compile(r"^(?:DPC: )?(?:DPC )?containment event, status:", re.ASCII)
_DPC_DETAIL = re.compile(r"^(?:DPC: )?(?:DPC )?[\w/() -]{1,60} detected(?:,|$)|^EDR: DPC port recovery failed", re.ASCII)
_SLOT = re.compile(
    r"^(?:pciehp: )?(?:[Ss]lot\([^)]{0,40}\): (?P<what>Link Down|Card not present|Power fault|Surprise Removal|Link Up|Card present"
    r"|Cannot train link|No link|No device found)"
    r"|(?P<older>Link Down event|Card not present|Power fault)(?: queued)? on [Ss]lot)(?P<rest>.{0,80})",
    re.ASCII | re.DOTALL,
)
_BACK = frozenset({"Link Up", "Card present"})
_IN_VAIN = frozenset({"Cannot train link", "No link", "No device found"})  # a card is there, and nothing answers on it
_POWER = re.compile(
    r"^(?:(?P<unreachable>(?:Unable to|can't) change power state from .{1,20} to .{1,20}(?:, device|\(config space) inaccessible)"
    r"|Refused to change power state(?:, currently in (?P<now>\w{2,9})| from (?P<was>\w{2,9}))"
    r"|invalid power transition \(from (?P<from>\w{2,9})"
    r"|(?P<unread>Device config space inaccessible; )"
    r"|not ready [0-9]{1,9}ms after [^;]{1,40}; (?P<reset>waiting|giving up))",
    re.ASCII,
)
_NO_LINK = re.compile(r"^(?:pciehp: |DPC: )?Data Link Layer Link Active not set in [0-9]{1,6} ?ms", re.ASCII)


class PciLines:
    """Reads one line at a time; remembers for a while what has been told of whom."""

    begins = rf"[\w.+-]{{1,40}} {_BDF}:"

    def __init__(self) -> None:
        self._announced: dict[PciAddress, tuple[int, Severity]] = {}  # by a port, and not yet told in full: usec and how bad
        self._uncorrected: int | None = None  # usec of the last error whose recovery may still be told, by any device below
        self._contained: dict[PciAddress, int] = {}
        self._down: dict[PciAddress, int] = {}

    def read(self, line: KernelMessage) -> KernelEvent | None:
        """The event of a line; None for what is no event, or belongs to one that has been given out."""
        match = _LINE.match(line.text)
        where = PciAddress.try_parse(match["where"]) if match else None
        if match is None or where is None:
            return None
        said, driver = match["said"].lstrip(), match["driver"]
        if "rror" in said or "recover" in said or "reset failed" in said:
            found = self._aer(line, where, said, speaks_as_aer=driver in ("aer", "pcieport", "pcieport-driver"))
            if found is not None:
                return found
        if "power" in said or "inaccessible" in said or said.startswith("not ready "):
            return _power(line, where, said)
        if "Link Active" in said:
            return self._no_link(line, where, said)
        if driver in ("pcieport", "dpc") and ("DPC" in said or driver == "dpc"):
            return self._dpc(line, where, said)
        if driver in ("pcieport", "pciehp"):
            return self._slot(line, where, said)
        if driver == "nvme" and (severity := kernel_nvme.severity_of(said)):
            return KernelEvent(line.seq, line.usec, "nvme", severity, line.text, pci=where)
        return None

    def is_one_sentence(self, _text: str) -> bool:
        """Each line is one."""
        return False

    def finish(self) -> KernelEvent | None:
        """Nothing is ever held."""
        return None

    def _aer(self, line: KernelMessage, port: PciAddress, said: str, *, speaks_as_aer: bool) -> KernelEvent | None:
        if (said.startswith("AER: ") or speaks_as_aer) and (match := _AER.match(said)):
            severity = _severity(match[0])
            device = _source(match, port) or port
            self._begin_recovery(line, severity)
            _remember(self._announced, device, (line.usec, severity))
            return KernelEvent(line.seq, line.usec, "aer", severity, line.text, pci=device)
        if match := _BUS_ERROR.match(said):
            severity = _severity(match["severity"])
            if self._is_announced(line.usec, port, severity) or _recent(self._contained.get(port), line.usec, RECORD_USEC):
                return None
            self._begin_recovery(line, severity)
            return KernelEvent(line.seq, line.usec, "aer", severity, line.text, pci=port)
        if _RECOVERY.match(said) and not _recent(self._uncorrected, line.usec, RECOVERY_USEC):
            self._begin_recovery(line, Severity.CRITICAL)
            return KernelEvent(line.seq, line.usec, "aer", Severity.CRITICAL, line.text, pci=port)
        return None

    def _is_announced(self, usec: int, device: PciAddress, severity: Severity) -> bool:
        """Whether the port has just said as much of this device. Once: the next report without an announcement is another event."""
        told = self._announced.pop(device, None)
        return told is not None and _recent(told[0], usec, RECORD_USEC) and severity.rank <= told[1].rank

    def _begin_recovery(self, line: KernelMessage, severity: Severity) -> None:
        if severity is not Severity.INFO:
            self._uncorrected = line.usec

    def _dpc(self, line: KernelMessage, port: PciAddress, said: str) -> KernelEvent | None:
        """The address is the port's, which has cut the link; the device below may have spoken first, or not at all."""
        begins = _DPC.match(said) is not None
        if not begins and (not _DPC_DETAIL.match(said) or _recent(self._contained.get(port), line.usec, RECORD_USEC)):
            return None
        _remember(self._contained, port, line.usec)
        self._begin_recovery(line, Severity.CRITICAL)
        return KernelEvent(line.seq, line.usec, "dpc", Severity.CRITICAL, line.text, pci=port)

    def _no_link(self, line: KernelMessage, port: PciAddress, said: str) -> KernelEvent | None:
        """What is below did not come back from a reset or a sleep; nothing new where that has an event: an error, a link that went down."""
        told = (self._uncorrected, self._contained.get(port), self._down.get(port))
        if _NO_LINK.match(said) is None or any(_recent(usec, line.usec, RECOVERY_USEC) for usec in told):
            return None
        return KernelEvent(line.seq, line.usec, "power_state", Severity.ERROR, line.text, pci=port)

    def _slot(self, line: KernelMessage, port: PciAddress, said: str) -> KernelEvent | None:
        """`Link Down` and `Card not present` come together when both have happened: one event."""
        match = _SLOT.match(said)
        if match is None or "ignored" in match["rest"]:
            return None
        if match["what"] in _BACK:
            self._down.pop(port, None)
            return None
        if _recent(self._down.get(port), line.usec, RECORD_USEC):
            return None
        _remember(self._down, port, line.usec)
        severity = Severity.ERROR if match["what"] in _IN_VAIN else Severity.CRITICAL
        return KernelEvent(line.seq, line.usec, "pciehp", severity, line.text, pci=port)


def _power(line: KernelMessage, device: PciAddress, said: str) -> KernelEvent | None:
    """A device that does not answer after its sleep or its reset. One that merely refuses to sleep goes on working."""
    match = _POWER.match(said)
    if match is None:
        return None
    slept = (match["now"] or match["was"] or match["from"] or "D0") != "D0"
    gone = match["unreachable"] or match["unread"] or match["reset"] == "giving up" or slept
    return KernelEvent(line.seq, line.usec, "power_state", Severity.CRITICAL if gone else Severity.WARNING, line.text, pci=device)


def _severity(words: str) -> Severity:
    """Of `Corrected`, `Uncorrectable (Non-Fatal)`, `Uncorrected (Fatal)`, as old and new kernels spell it."""
    if "Uncorrect" not in words:
        return Severity.INFO
    return Severity.CRITICAL if "(Fatal)" in words else Severity.ERROR


def _source(match: re.Match[str], port: PciAddress) -> PciAddress | None:
    """Whom the port heard; None when it does not know (a bus, device and function of 0). Old kernels print the requester's id."""
    if match["id"]:
        requester = int(match["id"], 16)
        found = PciAddress(port.domain, requester >> 8, requester >> 3 & 0x1F, requester & 7)
    else:
        found = PciAddress.try_parse(match["source"] or "") or PciAddress(0, 0, 0)
    return found if (found.bus, found.device, found.function) != (0, 0, 0) else None


def _recent(told_usec: int | None, usec: int, within_usec: int) -> bool:
    return told_usec is not None and 0 <= usec - told_usec <= within_usec


def _remember(memory: dict[PciAddress, Told], address: PciAddress, told: Told) -> None:
    if len(memory) >= MOST_ADDRESSES:
        memory.clear()
    memory[address] = told
