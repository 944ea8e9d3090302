"""The NVMe driver's lines about its controller: time-outs, resets, and controllers that are gone.

    nvme nvme0: pci function 0000:02:00.0
    nvme nvme0: controller is down; will reset: CSTS=0xffffffff, PCI_STATUS=0xffff
    nvme nvme0: Does your device have a faulty power saving mode enabled?
    nvme nvme0: I/O tag 22 (2016) opcode 0x2 (Admin Cmd) QID 0 timeout, reset controller
    nvme nvme0: Disabling device after reset failure: -19
    nvme: probe of 0000:01:00.0 failed with error -19
    nvme0n1: I/O Cmd(0x2) @ LBA 2048, 8 blocks, I/O Error (sct 0x2 / sc 0x81)

Law: a family of `kernel`, pure and total. It says what the driver did, not why; advice that the driver prints behind it is no event.
Which device `nvme0` is, the driver says once, when it finds it; without that line nobody knows.
Sources: drivers/nvme/host/pci.c and core.c, drivers/base/dd.c, Linux 3.3 (one file, with the device's address in front) to 6.16.
"""

from __future__ import annotations

import re

from xidwatch.core.model import KernelEvent, KernelMessage, PciAddress, Severity

_LINE = re.compile(r"^nvme nvme(?P<number>[0-9]{1,5}): (?P<said>.*)$", re.ASCII | re.DOTALL)
# Of a namespace: a command of the host's failed. What an administrator's tool asks in vain (`nvme0: Admin Cmd(0x6)`) is no trouble.
_FAILED = re.compile(
    r"^nvme(?P<number>[0-9]{1,5})(?:c[0-9]{1,5})?n[0-9]{1,5}: .{1,40}\(0x[0-9a-f]{1,2}\) @ LBA [0-9]{1,20}, [0-9]{1,10} blocks, "
    r".{1,80} \(sct 0x",
    re.ASCII,
)
_FUNCTION = re.compile(r"^pci function (?P<where>[0-9a-fA-F:.]{7,24})$")
_REFUSED = re.compile(r"^nvme: probe of (?P<where>[0-9a-fA-F:.]{7,24}) failed with error -?[0-9]{1,9}", re.ASCII)
_TIMEOUT = re.compile(r"^I/O .{0,120}?\btimeout, (?P<then>\w+)", re.ASCII | re.DOTALL)
# What the line begins with. The words are the driver's through and through: no name of anybody stands in them.
_PHRASES = (
    ("Device not ready; aborting", Severity.CRITICAL),
    ("Disabling device after reset failure", Severity.CRITICAL),
    ("probe with driver nvme failed with error", Severity.CRITICAL),
    ("Removing after probe failure", Severity.CRITICAL),
    ("Identify Controller failed", Severity.ERROR),
    ("failed to mark controller", Severity.ERROR),
    ("Device shutdown incomplete", Severity.ERROR),
    ("Failed status: ", Severity.ERROR),
    ("resetting controller due to ", Severity.ERROR),
    ("controller is down; will reset", Severity.ERROR),
    ("frozen state error detected, reset controller", Severity.ERROR),
    ("failure state error detected, request disconnect", Severity.CRITICAL),
)
_UNREACHABLE = re.compile(r"PCI_STATUS(?:=0xffff\b| ?read ?failed)")  # not even the configuration space answers


class NvmeLines:
    """Reads one line at a time; remembers which device each controller is."""

    begins = r"nvme nvme[0-9]|nvme: probe of |nvme[0-9]{1,5}(?:c[0-9]{1,5})?n[0-9]{1,5}: "

    def __init__(self) -> None:
        self._devices: dict[str, PciAddress] = {}

    def read(self, line: KernelMessage) -> KernelEvent | None:
        """The event of a line; None for what is no trouble."""
        if failed := _FAILED.match(line.text):
            return KernelEvent(line.seq, line.usec, "nvme", Severity.ERROR, line.text, pci=self._devices.get(failed["number"]))
        match = _LINE.match(line.text)
        if not match:
            refused = _REFUSED.match(line.text)
            where = PciAddress.try_parse(refused["where"]) if refused else None
            return KernelEvent(line.seq, line.usec, "nvme", Severity.CRITICAL, line.text, pci=where) if refused else None
        said = match["said"]
        if function := _FUNCTION.match(said):
            if device := PciAddress.try_parse(function["where"]):
                self._devices[match["number"]] = device
            return None
        severity = severity_of(said)
        if severity is None:
            return None
        return KernelEvent(line.seq, line.usec, "nvme", severity, line.text, pci=self._devices.get(match["number"]))

    def is_one_sentence(self, _text: str) -> bool:
        """Each line is one."""
        return False

    def finish(self) -> KernelEvent | None:
        """Nothing is ever held."""
        return None


def severity_of(said: str) -> Severity | None:
    """How bad a sentence of the driver is; None when it is no trouble at all."""
    if match := _TIMEOUT.match(said):
        return Severity.WARNING if match["then"] == "completion" else Severity.ERROR  # the answer was there, its interrupt was not
    for words, severity in _PHRASES:
        if said.startswith(words):
            return Severity.CRITICAL if _UNREACHABLE.search(said) else severity
    return None
