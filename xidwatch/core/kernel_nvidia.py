"""The NVIDIA driver's lines: Xid, SXid, bus loss without a number, UVM, GSP, failed initialisation.

    NVRM: GPU at PCI:0000:17:00: GPU-5f0c2d1e-0000-4000-8000-000000000001
    NVRM: Xid (PCI:0000:17:00 GPU-I:02 GPU-CI:00): 43, pid=31337, name=python3, Ch 00000008
    NVRM: Xid (PCI:0000:17:00): 154, GPU recovery action changed from 0x0 (None) to 0x2 (Node Reboot Required)
    NVRM: GPU 0000:17:00.0: GPU has fallen off the bus.
    NVRM: nvGpuOpsReportFatalError: uvm encountered global fatal error 0x60, requiring os reboot to recover.
    nvidia-nvswitch0: SXid (PCI:0000:05:00.0): 12028, Non-fatal, Link 31 egress non-posted PRIV error
    nvidia: probe of 0000:11:00.0 failed with error -1

Law: a family of `kernel`, pure and total. What a number means is data (`xids`); what a line says decides before it.
A line may hold a process's name, which any user chooses: at most 15 characters of any kind. So a flag to act on (`driver_fatal`,
`bus_lost`) needs an anchored form, longer than a name from its first character to the words that decide. The same text
anywhere else is an event without a flag; so is an Xid that stands there without the driver's name before it (`Xid (PCI:...`, as a
tracepoint prints it): longer than a name, and yet nothing says that the driver has written it.
Sources: NVIDIA/open-gpu-kernel-modules, the print statements of kernel_rc.c (Xid), gpu.c (154), osinit.c and nv.c (bus loss,
initialisation), kernel_gsp.c (GSP), nvswitch (SXid), nv-tracepoint.h, and its history for the older forms; Linux' drivers/base/dd.c
(`probe of`, in other words since 6.9).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace

from xidwatch.core import kernel_xid
from xidwatch.core.model import KernelEvent, KernelMessage, PciAddress, Severity
from xidwatch.core.xids import XidClass, XidRule

SECOND_USEC = 1_000_000
EXCEPTION_USEC = 50_000  # how long after its head the further records of an Xid 13 may come
OPENED_LINES = 2  # how many NVRM lines further on the end of "The NVIDIA GPU ..." may stand
TOLD_USEC = 1_000_000  # how long after an event the driver may say it again in other words
MOST_TOLD = 1024  # remembered at a time; a damaged log may name any number of GPUs

LONGEST_NAME = 15  # characters of a process's name: TASK_COMM_LEN of linux/sched.h, less the end mark

_UUID = re.compile(r"^NVRM: GPU at (?P<where>PCI:\S+): (?P<uuid>GPU-[0-9a-fA-F-]{1,64})$")
_LOST = re.compile(
    r"^NVRM: {1,16}GPU {1,16}(?:at {1,16})?(?P<where>(?:PCI:)?[0-9a-fA-F:.]{7,24}?):? {1,16}(?:GPU {1,16})?has fallen off the bus"
)
_ANNOUNCED = re.compile(r"^NVRM: The NVIDIA GPU (?P<where>[0-9a-fA-F:.]{7,24})(?= |$)")
_AFTER_ANNOUNCED = re.compile(
    r"^NVRM: (?:(?:\(PCI ID: [0-9a-fA-F:]{1,16}\)|installed|in|this|system|has) ){0,6}fallen off the bus and is not responding"
)
_UVM_FATAL = re.compile(
    r"^(?:NVRM: (?:GPU[0-9]{1,3} )?(?:\w{1,64}: )?|nvidia-uvm: )uvm encountered global fatal error 0x[0-9a-fA-F]"
    r"|^nvidia-uvm: [\w.]{1,64}:[0-9]{1,6} \w{1,64}\[pid:[0-9]{1,10}\] encountered a global fatal error: ",
    re.ASCII | re.IGNORECASE,
)
# The open module names the architecture last; the version had a hyphen in 2007 (1.0-9755).
_LOADING = re.compile(
    r"^NVRM: loading NVIDIA UNIX (?:Open Kernel Module for \w{2,16}|\w{2,16} Kernel Module) {1,2}[0-9]{1,4}\.[0-9][0-9.-]{0,15}(?: |$)",
    re.ASCII,
)
_UNUSABLE = "NVRM: This PCI I/O region assigned to your NVIDIA device is invalid"
# Words of a client that the driver repeats (its name, and up to 63 characters that it calls its version), and those around them.
_MISMATCHED = ("NVRM: API mismatch", "NVRM: has the version ", "NVRM: this kernel module has", "NVRM: the version ")
_MISMATCH = re.compile(
    r"^NVRM: API mismatch: the client (?:'(?P<process>.{0,15})' \(pid (?P<pid>[0-9]{1,10})\)\s+(?:NVRM: )?)?"
    r"has the version [0-9.]{1,16}, but\s+(?:NVRM: )?this kernel module has\s+(?:NVRM: )?the version [0-9.]{1,16}[. ]",
    re.ASCII | re.DOTALL,
)
_PROBE_FAILED = re.compile(r"^NVRM: The NVIDIA probe routine failed for (?P<devices>[0-9]{1,4}) device", re.ASCII)
_NONE_STARTED = "NVRM: None of the NVIDIA "
_OPENINGS = ("NVRM: The NVIDIA GPU ", _UNUSABLE, _MISMATCHED[0])
_BDF = r"[0-9a-fA-F]{4,8}:[0-9a-fA-F]{2}:[0-9a-fA-F]{2}\.[0-7]"
_REFUSED = re.compile(
    rf"^nvidia(?:-nvswitch)?(?:: probe of (?P<where>{_BDF})| (?P<at>{_BDF}): probe with driver [\w-]{{1,40}}) failed with error -?[0-9]",
    re.ASCII,
)


def is_driver_load(text: str) -> bool:
    """Whether a record is the one that the module prints once when it starts.

    NVRM: loading NVIDIA UNIX Open Kernel Module for x86_64  580.159.04  Release Build  (dvs-builder@host1)
    NVRM: loading NVIDIA UNIX x86_64 Kernel Module  550.67  Tue Mar 12 23:54:15 UTC 2024
    """
    return _LOADING.match(text.strip()) is not None


class NvidiaLines:
    """Reads one line at a time; remembers only what a later line of the same event leans on."""

    # Case matters: network chips print an "XID 541" of their own.
    begins = rf"NVRM: |nvidia-nvswitch|nvidia-uvm: |{kernel_xid.NAMELESS}|nvidia: probe of |nvidia {_BDF}: probe with "

    def __init__(self, xids: Mapping[int, XidRule]) -> None:
        self.uuids: dict[PciAddress, str] = {}
        self.xids = xids
        self._opened: list[KernelMessage] = []  # NVRM lines of a sentence that has begun, and not yet said what is the matter
        self._told: dict[tuple[str, PciAddress], int] = {}  # losses and failed starts that have had their event: usec
        self._exceptions: dict[PciAddress | None, int] = {}  # Xid 13 still being told: usec of its head

    def read(self, line: KernelMessage) -> KernelEvent | None:
        """The event of a line; None for what is no event, or belongs to one that has been given out."""
        text = line.text
        if text.startswith("NVRM: "):
            self._keep_opened(line)
            return self._xid(line) if text.startswith("NVRM: Xid") or kernel_xid.IS_XID.match(text) else self._resource_manager(line)
        if text.startswith(("Xid (", "SXid (")):
            return kernel_xid.sxid(line) if text[0] == "S" else self._nameless(line)
        if refused := _REFUSED.match(text):
            return self._refused(line, PciAddress.try_parse(refused["where"] or refused["at"]))
        if text.startswith("nvidia-nvswitch"):
            return kernel_xid.sxid(line)
        # The UVM module speaks for itself where RM does not speak for it; all else are somebody's words about the driver.
        return _by_phrase(line) if text.startswith("nvidia-uvm: ") else None

    def _resource_manager(self, line: KernelMessage) -> KernelEvent | None:
        text = line.text
        if text.startswith(_MISMATCHED):
            return self._mismatch()
        if "fallen off the bus" in text:
            return self._bus_loss(line)
        if match := _UUID.match(text):
            if gpu := kernel_xid.address_of(match):
                self.uuids[gpu] = match["uuid"]
            return None
        return self._other(line)

    def is_one_sentence(self, text: str) -> bool:
        """The probe-time loss and the unusable BAR, which have no place for anybody else's words; a client's version, where it is one."""
        return text.startswith(("NVRM: The NVIDIA GPU ", _UNUSABLE)) or _MISMATCH.match(text) is not None

    def finish(self) -> KernelEvent | None:
        """Nothing is ever held."""
        return None

    def _keep_opened(self, line: KernelMessage) -> None:
        """A sentence that stands in several records, as far as it has come. Other speakers may come in between."""
        if line.text.startswith(_OPENINGS):
            self._opened = [line]
        elif self._opened:
            self._opened = [*self._opened, line] if len(self._opened) <= OPENED_LINES else []

    def _nameless(self, line: KernelMessage) -> KernelEvent | None:
        """Of an Xid that names no driver: told apart, so that it neither swallows nor completes what the driver writes."""
        event = NvidiaLines(self.xids).read(replace(line, text=f"NVRM: {line.text}"))
        return event and replace(event, text=line.text, driver_fatal=False, bus_lost=False)

    def _xid(self, line: KernelMessage) -> KernelEvent | None:
        match = kernel_xid.XID.match(line.text)
        if not match:
            # With the driver's bracket it is a damaged record; without, somebody else's sentence about one.
            damaged = line.text.startswith("NVRM: Xid (")
            return KernelEvent(line.seq, line.usec, "xid", Severity.WARNING if damaged else Severity.INFO, line.text)
        number, pci = int(match["xid"]), kernel_xid.address_of(match)
        pid, process, said = kernel_xid.who(match["body"] or "")
        if number == 13 and self._continues_exception(line.usec, pci, said):
            return None
        rule = self.xids.get(number) or XidRule(number, "", XidClass.INFORMATIONAL, Severity.WARNING)
        recovery = kernel_xid.recovery(said) if number == 154 else None
        fatal = recovery.driver_fatal if recovery else rule.driver_fatal
        cause = kernel_xid.CAUSED_BY.search(said) if "caused by" in said else None
        gi, ci = kernel_xid.mig(match["where"] or "")
        if rule.bus_lost and pci is not None:
            self._tell("lost", pci, line.usec)
        return KernelEvent(
            line.seq,
            line.usec,
            "xid",
            recovery.severity if recovery else rule.severity_of(said),
            line.text,
            xid=number,
            pci=pci,
            pid=pid,
            process=process,
            recovery=recovery.words if recovery else None,
            caused_by=int(cause[1]) if cause else None,
            bus_lost=rule.bus_lost and pci is not None,  # "NVRM: Xid 79, a" is a name like any other
            driver_fatal=fatal and pci is not None,
            mig_gi=gi,
            mig_ci=ci,
        )

    def _continues_exception(self, usec: int, pci: PciAddress | None, said: str) -> bool:
        """Whether an Xid 13 goes on telling an exception that has had its event.

        The driver prints one exception as a head (`Graphics SM Warp Exception on ...`), its registers (`Graphics Exception:
        ESR ...`) and last the channel with the process (`pid=..., Graphics Exception: channel ...`): three records within
        3 ms on an H200 with driver 580. The event goes out at the head; whom it hit comes too late for it.
        """
        self._exceptions = {gpu: head for gpu, head in self._exceptions.items() if _is_told_together(head, usec)}
        further = said.startswith("Graphics Exception:")
        continues = further and pci in self._exceptions
        if further and not said.startswith("Graphics Exception: ESR"):
            self._exceptions.pop(pci, None)  # the last record: the next one begins another exception
        elif not continues:
            self._exceptions[pci] = usec
        return continues

    def _bus_loss(self, line: KernelMessage) -> KernelEvent | None:
        """A loss without a number. Of a running GPU it means what Xid 79 means; at probe time no driver held the GPU yet.

        NVRM: GPU at 0000:2b:00.0 has fallen off the bus.          None where an Xid 79 of this GPU has just said it

        NVRM: The NVIDIA GPU 0000:b3:00.0
        NVRM: (PCI ID: 10de:26b5) installed in this system has
        NVRM: fallen off the bus and is not responding to commands.
        """
        running = _LOST.match(line.text)
        pci = kernel_xid.address_of(running or _ANNOUNCED.match(line.text))
        if running and pci and self._is_told("lost", pci, line.usec):
            return None
        first, text = line, line.text
        if pci is None and self._opened and _AFTER_ANNOUNCED.match(line.text):
            pci = kernel_xid.address_of(_ANNOUNCED.match(self._opened[0].text))
            first, text = self._opened[0], " ".join(opened.text for opened in self._opened)
        lost = pci is not None
        if pci and not running:
            self._tell("start", pci, line.usec)
        rule = self.xids.get(79)
        fatal = lost and running is not None and rule is not None and rule.driver_fatal
        return KernelEvent(first.seq, first.usec, "xid", Severity.CRITICAL, text, pci=pci, bus_lost=lost, driver_fatal=fatal)

    def _other(self, line: KernelMessage) -> KernelEvent | None:
        """By its words. A start that failed is told again by the module around RM, and summed up; an unusable BAR takes two lines."""
        event = _by_phrase(line)
        if event is None or event.kind != "nvrm_init_fail":
            return event
        if event.pci and "rm_init_adapter" in line.text and self._is_told("start", event.pci, line.usec):
            return None
        if line.text.startswith(_NONE_STARTED) and self._failed_starts(line.usec):
            return None
        if (sum_up := _PROBE_FAILED.match(line.text)) and self._failed_starts(line.usec) >= int(sum_up["devices"]):
            return None
        if event.pci:
            self._tell("start", event.pci, line.usec)
        if self._opened and self._opened[0].text.startswith(_UNUSABLE) and "BAR" in line.text:
            first = self._opened[0]
            return replace(event, seq=first.seq, usec=first.usec, text=" ".join(opened.text for opened in self._opened))
        return event

    def _refused(self, line: KernelMessage, device: PciAddress | None) -> KernelEvent | None:
        """The kernel's word for a driver that does not take a device; nothing new where the driver has just said why."""
        if device and self._is_told("start", device, line.usec):
            return None
        if device:
            self._tell("start", device, line.usec)
        return KernelEvent(line.seq, line.usec, "nvrm_init_fail", Severity.CRITICAL, line.text, pci=device)

    def _mismatch(self) -> KernelEvent | None:
        """A client of another version is turned away; all others go on. Said once both versions are, in up to four lines.

        NVRM: API mismatch: the client 'python3' (pid 26039)
        NVRM: has the version 535.54.03, but this kernel module has
        NVRM: the version 535.86.05.  Please make sure that this
        """
        text = " ".join(opened.text for opened in self._opened)
        match = _MISMATCH.match(text)
        if match is None:
            return None
        first, self._opened = self._opened[0], []
        pid, process = int(match["pid"] or 0) or None, (match["process"] or "").strip() or None
        return KernelEvent(first.seq, first.usec, "nvrm_init_fail", Severity.WARNING, text, pid=pid, process=process)

    def _tell(self, what: str, gpu: PciAddress, usec: int) -> None:
        if len(self._told) >= MOST_TOLD:
            self._told.clear()
        self._told[what, gpu] = usec

    def _failed_starts(self, usec: int) -> int:
        return sum(self._is_told(what, gpu, usec) for what, gpu in self._told if what == "start")

    def _is_told(self, what: str, gpu: PciAddress, usec: int) -> bool:
        told = self._told.get((what, gpu))
        return told is not None and 0 <= usec - told <= TOLD_USEC


def _is_told_together(head_usec: int, usec: int) -> bool:
    """Whether records of these times can be of one exception. A log whose times are whole seconds cannot tell less than one."""
    coarse = head_usec % SECOND_USEC == usec % SECOND_USEC == 0
    return 0 <= usec - head_usec <= (SECOND_USEC if coarse else EXCEPTION_USEC)


@dataclass(frozen=True, slots=True)
class _Phrase:
    words: tuple[str, ...]  # all of them, lower case, in the line
    kind: str
    severity: Severity


# The first that fits. None is so short that a process's name can hold it. A failed message to GSP is an error only: mostly the GPU
# behind it is gone (status 0x0f), not its firmware.
# Tables and notes that the driver prints about GSP after another event ("RPC history", "RPC buffer contains") are no events.
_PHRASES = (
    _Phrase(("uvm", "global fatal error"), "uvm_fatal", Severity.CRITICAL),
    _Phrase(("cannot initialize gsp firmware rm",), "nvrm_init_fail", Severity.CRITICAL),
    _Phrase(("rminitadapter failed",), "nvrm_init_fail", Severity.CRITICAL),
    _Phrase(("rm_init_adapter", "failed"), "nvrm_init_fail", Severity.CRITICAL),
    _Phrase(("bailing out of rminitadapter",), "nvrm_init_fail", Severity.CRITICAL),
    _Phrase(("does not have the necessary power cables",), "nvrm_init_fail", Severity.CRITICAL),
    _Phrase(("nvrm: none of the nvidia ", " were initialized"), "nvrm_init_fail", Severity.CRITICAL),
    _Phrase(("probe routine failed for",), "nvrm_init_fail", Severity.CRITICAL),
    _Phrase(("nvrm: bar", "m @ 0x", "(pci:"), "nvrm_init_fail", Severity.CRITICAL),  # said of an unusable region only
    _Phrase(("nvidia_frontend_open", "failed, error"), "nvrm_init_fail", Severity.ERROR),
    _Phrase(("heartbeat timed out",), "gsp", Severity.CRITICAL),
    _Phrase(("gsp-crashcat report",), "gsp", Severity.CRITICAL),
    _Phrase(("signal from gsp", "has halted"), "gsp", Severity.CRITICAL),
    _Phrase(("cannot proceed with booting gsp",), "gsp", Severity.CRITICAL),
    _Phrase(("** gsp timeout **",), "gsp", Severity.CRITICAL),
    _Phrase(("timeout", "waiting for rpc", "gsp"), "gsp", Severity.CRITICAL),
    _Phrase(("rate limiting gsp rpc error prints",), "gsp", Severity.ERROR),
    _Phrase(("rpcsendmessage failed",), "gsp", Severity.ERROR),
    _Phrase(("rpcrecvpoll", "timedout"), "gsp", Severity.ERROR),
    _Phrase(("gsp rpc timeouts",), "gsp", Severity.ERROR),
    _Phrase(("gsprmalloc failed",), "gsp", Severity.ERROR),
    _Phrase(("gsprmcontrol failed",), "gsp", Severity.WARNING),  # often a question that this GPU has no answer to
    _Phrase(("nvrm: no nvidia g", " found"), "nvrm_init_fail", Severity.WARNING),  # "GPU", "graphics adapter": none at all on the bus
)


def _by_phrase(line: KernelMessage) -> KernelEvent | None:
    text = line.text.lower()
    for phrase in _PHRASES:
        if phrase.words[0] in text and all(map(text.__contains__, phrase.words)):
            pci, fatal = kernel_xid.address_in(line.text), _UVM_FATAL.match(line.text) is not None
            return KernelEvent(line.seq, line.usec, phrase.kind, phrase.severity, line.text, pci=pci, driver_fatal=fatal)
    return None
