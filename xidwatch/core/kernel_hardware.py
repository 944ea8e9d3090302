"""What processor, memory controller and firmware report: machine checks, EDAC, and the firmware's error records (APEI: GHES, BERT).

    mce: [Hardware Error]: Machine check events logged
    mce: [Hardware Error]: CPU 0: Machine Check: 0 Bank 4: a600000000020408
    EDAC MC1: 1 CE memory read error on CPU_SrcID#1_Ha#0_Chan#0_DIMM#0 (channel:0 slot:0 page:0xee30a0 ...)
    {1}[Hardware Error]: Hardware error from APEI Generic Hardware Error Source: 1
    {1}[Hardware Error]: event severity: recoverable
    {1}[Hardware Error]:  Error 0, type: fatal
    {1}[Hardware Error]:   section_type: PCIe error
    {1}[Hardware Error]:   device_id: 0000:3b:00.0
    NMI: PCI system error (SERR) for reason b1 on CPU 0.

Law: a family of `kernel`, pure and total. A machine check is told by its first line, banks of its own being events of their own. A
record of the firmware says in its first line only that it is one, so it is held until its lines have said how bad it is and, in a PCIe
section, about which device: those lines follow at once, and nobody acts on them. What is held goes out as it stands when the
lines break off. Its text is those lines, joined by " | ".
Sources: arch/x86/kernel/cpu/mce/core.c, arch/x86/kernel/nmi.c, drivers/edac/ (edac_mc.c, mce_amd.c), drivers/acpi/apei/ghes.c and bert.c,
drivers/firmware/efi/cper.c, mm/memory-failure.c, Linux 2.6.30 to 6.16.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from xidwatch.core.model import KernelEvent, KernelMessage, PciAddress, Severity

RECORD_USEC = 1_000_000  # from the first to the last line of one report
MOST_BETWEEN = 16  # lines of other speakers that may stand between those of one record
MOST_LINES = 16  # of a record, before it goes out as it stands

_CPER = re.compile(r"^(?:\{(?P<record>[0-9]{1,9})\})?\[Hardware Error\]: ?(?P<said>.*)$", re.ASCII | re.DOTALL)
_CPER_HEAD = re.compile(r"^ {0,2}(?:Hardware error from APEI|APEI generic hardware error status)")
_CPER_SEVERITY = re.compile(r"^ {0,2}(?:event )?severity: (?:[0-9]{1,3}, )?(?P<word>corrected|recoverable|fatal|info)")
_CPER_SECTION = re.compile(r"^ {0,4}(?:Error [0-9]{1,5}, |section: [0-9]{1,5}, )?section[_ ]type: (?P<type>.{1,80})")
_CPER_DEVICE = re.compile(r"^ {0,6}device_id: (?P<where>[0-9a-fA-F]{4,8}:[0-9a-fA-F]{2}:[0-9a-fA-F]{2}\.[0-7])")
_BERT = "BERT: Error records from previous boot"
_WORDS = {"info": Severity.INFO, "corrected": Severity.WARNING, "recoverable": Severity.ERROR, "fatal": Severity.CRITICAL}

_BANK = re.compile(
    r"^(?:mce: )?(?:\[Hardware Error\]: )?CPU (?P<cpu>[0-9]{1,5}): Machine Check(?P<exception> Exception)?: +[0-9a-f]{1,16}"
    r" Bank [0-9]{1,3}: (?P<status>[0-9a-fA-F]{1,16})",
    re.ASCII,
)
_UNCORRECTED, _CONTEXT_CORRUPT = 1 << 61, 1 << 57  # of a bank's status: arch/x86/include/asm/mce.h
_LOGGED = re.compile(r"^(?:mce: )?(?:\[Hardware Error\]: )?Machine check events logged", re.ASCII)
_MCE_PHRASES = (  # of AMD's decoder, of the handler, and of what is done about poisoned memory
    (r"(?:mce: )?\[Hardware Error\]: (?:Corrected|Deferred) error, no action required", Severity.WARNING),
    (r"(?:mce: )?\[Hardware Error\]: Uncorrected, software (?:restartable|containable) error", Severity.ERROR),
    (r"(?:mce: )?\[Hardware Error\]: System Fatal error", Severity.CRITICAL),
    (r"mce: Uncorrected hardware memory error in user-access at ", Severity.ERROR),
    (r"mce: CPUs not responding to MCE broadcast", Severity.CRITICAL),
    (r"CPU [0-9]{1,5}: Machine Check Exception: +[0-9a-f]{1,16}$", Severity.CRITICAL),  # 2.4 and 2.6: the banks stand in lines of their own
    (r"NMI: (?:PCI system error|IOCK error|Memory parity error).{0,30}? for reason [0-9a-f]{2} on CPU (?P<cpu>[0-9]{1,5})", Severity.ERROR),
    (r"Uhhuh\. NMI received for unknown reason [0-9a-f]{2} on CPU (?P<cpu>[0-9]{1,5})", Severity.INFO),  # profilers lose some, too
    (r"(?:Memory failure: |MCE )0x[0-9a-f]{1,16}: recovery action for [\w /-]{1,60}: (?:Failed|Ignored)", Severity.ERROR),
    (
        r"(?:Memory failure: |MCE )0x[0-9a-f]{1,16}: (?:Killing|Sending SIGBUS to) (?P<process>.{1,64}):(?P<pid>[0-9]{1,10}) due to hard",
        Severity.ERROR,
    ),
)
_MCE_PATTERNS = tuple((re.compile(pattern, re.ASCII | re.DOTALL), severity) for pattern, severity in _MCE_PHRASES)
# `EDAC MC0: 4 CE error on ...`, `EDAC MC0: 1 CE on mc#0csrow#3...`, older `EDAC MC0: CE page 0x1, offset ...` and
# `EDAC MC0: UE - no information available: ...`; longer than a process's name where it decides.
_EDAC = re.compile(
    r"^EDAC (?:MC|DEVICE|PCI)[0-9]{1,4}: (?:[0-9]{1,9} )?(?P<what>CE|UE)"
    r"(?: page | row |: | - no information available|.{0,120}? on )",
    re.ASCII | re.DOTALL,
)
_EDAC_BUS = re.compile(
    r"^EDAC PCI[0-9]{0,4}: (?:Bridge )?(?:Signaled System Error|Master Data Parity Error|Detected Parity Error)"
    r" on (?P<where>[0-9a-fA-F:.]{7,16})",
    re.ASCII,
)


@dataclass(slots=True)
class _Record:
    """A record of the firmware, as far as its lines have come."""

    number: str  # in braces before each of its lines; BERT and old kernels print none
    first: KernelMessage
    severity: Severity = Severity.WARNING
    fixed: bool = False  # of an earlier boot: how bad it was then says nothing about now
    section: str = ""
    between: int = 0
    told: list[str] = field(default_factory=list)


class HardwareLines:
    """Reads one line at a time; holds at most one record of the firmware."""

    begins = (
        r"(?:\{[0-9]{1,9}\})?\[Hardware Error\]: |mce: (?:\[Hardware|Uncorrected|CPUs not)|CPU [0-9]{1,5}: Machine Check"
        r"|Machine check events logged|EDAC |BERT: Error|Memory failure: |MCE 0x|NMI: |Uhhuh\. NMI"
    )

    def __init__(self) -> None:
        self._held: _Record | None = None
        self._done: tuple[str, int] | None = None  # (number, usec) of the record that has had its event
        self._logged: int | None = None  # usec of the last "Machine check events logged"

    @property
    def holds(self) -> bool:
        """Whether a record waits for its further lines."""
        return self._held is not None

    def read(self, line: KernelMessage) -> KernelEvent | None:
        """The event of a line, or of the record that it completes or follows."""
        if line.text.startswith("EDAC "):
            return _edac(line)
        if line.text.startswith(_BERT):
            return self._begin(_Record("", line, fixed=True, told=[line.text]))
        match = _CPER.match(line.text)
        return self._machine_check(line) or (self._firmware(line, match["record"] or "", match["said"]) if match else None)

    def pass_over(self, usec: int) -> KernelEvent | None:
        """A line of somebody else, at `usec`: what is held goes out when its own lines have stayed away for too long."""
        held = self._held
        if held is None:
            return None
        held.between += 1
        return self.finish() if held.between > MOST_BETWEEN or not _soon(held.first.usec, usec) else None

    def finish(self) -> KernelEvent | None:
        """What is held, as it stands."""
        return self._tell(None) if self._held else None

    def is_one_sentence(self, _text: str) -> bool:
        """Each line is one."""
        return False

    def _machine_check(self, line: KernelMessage) -> KernelEvent | None:
        if match := _BANK.match(line.text):
            return KernelEvent(line.seq, line.usec, "mce", _bank_severity(match), line.text, cpu=int(match["cpu"]))
        if _LOGGED.match(line.text):
            self._logged = line.usec
            return KernelEvent(line.seq, line.usec, "mce", Severity.WARNING, line.text)
        for pattern, severity in _MCE_PATTERNS:
            if match := pattern.match(line.text):
                logged, self._logged = self._logged, None
                if severity is Severity.WARNING and logged is not None and _soon(logged, line.usec):
                    return None
                told = match.groupdict()
                pid, cpu = int(told.get("pid") or 0) or None, told.get("cpu")
                return KernelEvent(
                    line.seq, line.usec, "mce", severity, line.text, pid=pid, process=told.get("process"), cpu=int(cpu) if cpu else None
                )
        return None

    def _firmware(self, line: KernelMessage, number: str, said: str) -> KernelEvent | None:
        if _CPER_HEAD.match(said):
            if self._held and self._held.number == number and len(self._held.told) == 1 and _soon(self._held.first.usec, line.usec):
                self._held.told.append(line.text)  # kernels before 3.13 say it in two lines
                return None
            return self._begin(_Record(number, line, told=[line.text]))
        severity, section, device = _CPER_SEVERITY.match(said), _CPER_SECTION.match(said), _CPER_DEVICE.match(said)
        if not (severity or section or device) or self._is_done(number, line.usec):
            return None  # its other lines say more about it, and nothing that decides
        held = self._held
        is_another = held is not None and (held.number != number or not _soon(held.first.usec, line.usec))
        broken_off = self.finish() if is_another else None
        held = self._held = self._held or _Record(number, line)
        held.told.append(line.text)
        if severity and not held.fixed:
            held.severity = _WORDS[severity["word"]]
        held.section = section["type"] if section else held.section
        is_said = device is not None or (section is not None and "PCIe" not in held.section) or len(held.told) >= MOST_LINES
        return self._tell(device) if is_said and broken_off is None else broken_off

    def _begin(self, record: _Record) -> KernelEvent | None:
        before = self.finish()
        self._held, self._done = record, None
        return before

    def _tell(self, device: re.Match[str] | None) -> KernelEvent | None:
        held, self._held = self._held, None
        if held is None:
            return None
        self._done = (held.number, held.first.usec)
        pci = PciAddress.try_parse(device["where"]) if device else None
        corrected_link = held.severity is Severity.WARNING and not held.fixed and "PCIe" in held.section
        severity = Severity.INFO if corrected_link else held.severity  # as AER would call it
        return KernelEvent(held.first.seq, held.first.usec, "ghes", severity, " | ".join(held.told), pci=pci)

    def _is_done(self, number: str, usec: int) -> bool:
        return self._done is not None and self._done[0] == number and _soon(self._done[1], usec)


def _soon(usec: int, later_usec: int) -> bool:
    return 0 <= later_usec - usec <= RECORD_USEC


def _edac(line: KernelMessage) -> KernelEvent | None:
    if match := _EDAC.match(line.text):
        severity = Severity.WARNING if match["what"] == "CE" else Severity.ERROR
        return KernelEvent(line.seq, line.usec, "edac", severity, line.text)
    if match := _EDAC_BUS.match(line.text):
        return KernelEvent(line.seq, line.usec, "edac", Severity.ERROR, line.text, pci=PciAddress.try_parse(match["where"]))
    return None


def _bank_severity(match: re.Match[str]) -> Severity:
    """A bank that was polled is what has been; an exception with the context lost is the end of this boot."""
    status = int(match["status"], 16)
    if not status & _UNCORRECTED:
        return Severity.WARNING  # also where a driver of the memory controller prints it in the words of an exception
    return Severity.CRITICAL if match["exception"] and status & _CONTEXT_CORRUPT else Severity.ERROR
