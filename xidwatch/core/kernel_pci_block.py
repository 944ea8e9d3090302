"""AER as kernels before 2.6.33 print it: a block of lines, the device in one of the last.

    +------ PCI-Express Device Error ------+
    Error Severity          : Uncorrected (Non-Fatal)
    PCIE Bus Error type     : Transaction Layer
    Completion Timeout      : First
    Requester ID            : 0300
    VendorID=10deh, DeviceID=0191h, Bus=03h, Device=00h, Function=00h

Law: a family of `kernel`, pure and total. A block is known by its first line; it is held until it has said about whom, and goes out as
it stands when it breaks off. Lines that look like its further ones, without a block, are nobody's. No domain is printed: it is 0.
Its text is the lines up to there, joined by " | ".
Source: drivers/pci/pcie/aer/aerdrv_errprint.c, Linux 2.6.18 to 2.6.32.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from xidwatch.core.model import KernelEvent, KernelMessage, PciAddress, Severity

BLOCK_USEC = 1_000_000  # from its first to its last line
MOST_LINES = 16  # of anybody, before it goes out as it stands

_HEAD = r"\+-{2,16} ?PCI-?Express Device Error ?-{2,16}\+"
_SEVERITY = re.compile(r"^Error Severity\s{1,16}: (?P<words>Corrected|Uncorrected \((?:Non-)?Fatal\))", re.ASCII)
_AGENTS = r"(?:Receiver|Requester|Completer|Transmitter|Unregistered Agent) ID"
_AGENT = re.compile(rf"^{_AGENTS}\s{{1,16}}: (?P<id>[0-9a-f]{{4}})$", re.ASCII)
_BY_WORDS = {"Corrected": Severity.INFO, "Uncorrected (Non-Fatal)": Severity.ERROR, "Uncorrected (Fatal)": Severity.CRITICAL}


@dataclass(slots=True)
class _Block:
    first: KernelMessage
    severity: Severity = Severity.WARNING  # until it has said
    lines: int = 0
    told: list[str] = field(default_factory=list)


class AerBlockLines:
    """Reads one line at a time; holds at most one block."""

    begins = rf"{_HEAD}|(?:Error Severity|PCIE Bus Error type|{_AGENTS})\s{{1,16}}: "

    def __init__(self) -> None:
        self._held: _Block | None = None

    @property
    def holds(self) -> bool:
        """Whether a block waits for its further lines."""
        return self._held is not None

    def read(self, line: KernelMessage) -> KernelEvent | None:
        """The event of a block whose device this line names, or of an earlier one that it breaks off."""
        if line.text.startswith("+-"):
            broken_off, self._held = self.finish(), _Block(line, told=[_single(line.text)])
            return broken_off
        held = self._held
        if held is None:
            return None
        if not 0 <= line.usec - held.first.usec <= BLOCK_USEC:
            return self.finish()
        held.told.append(_single(line.text))
        if match := _SEVERITY.match(line.text):
            held.severity = _BY_WORDS[match["words"]]
        if match := _AGENT.match(line.text):
            requester = int(match["id"], 16)
            return self._tell(PciAddress(0, requester >> 8, requester >> 3 & 0x1F, requester & 7))
        return None

    def pass_over(self, usec: int) -> KernelEvent | None:
        """A line of somebody else, or one of those that name an error: what is held goes out when it has waited for too long."""
        held = self._held
        if held is None:
            return None
        held.lines += 1
        return self.finish() if held.lines > MOST_LINES or not 0 <= usec - held.first.usec <= BLOCK_USEC else None

    def finish(self) -> KernelEvent | None:
        """What is held, as it stands."""
        return self._tell(None) if self._held else None

    def is_one_sentence(self, _text: str) -> bool:
        """Each line is one."""
        return False

    def _tell(self, device: PciAddress | None) -> KernelEvent | None:
        held, self._held = self._held, None
        if held is None:
            return None
        return KernelEvent(held.first.seq, held.first.usec, "aer", held.severity, " | ".join(held.told), pci=device)


def _single(text: str) -> str:
    return " ".join(text.split())
