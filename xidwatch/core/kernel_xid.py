"""One Xid or SXid line of the NVIDIA driver, taken apart: number, device, process, and what it asks for.

    NVRM: Xid (PCI:0000:3b:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus.
    NVRM: Xid (PCI:0000:17:00 GPU-I:02 GPU-CI:00): 43,pid=31337,name=python3,Ch 00000008
    Xid (PCI:0000:3b:00): 31, Ch 00000003                                                         as a tracepoint prints it
    nvidia-nvswitch0: SXid (PCI:0000:05:00.0): 12028, Non-fatal, Link 31 egress non-posted PRIV error

Law: patterns and what stands in them; no memory, and no meaning but what the line itself says. What an event is made of them, and
whether it may be acted on, is `kernel_nvidia`'s.
Sources: as there.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache

from xidwatch.core.model import KernelEvent, KernelMessage, PciAddress, Severity

# The number counts only in its own place: "caused by previous Xid N" and a process called "Xid 79" name others.
XID = re.compile(
    r"^NVRM: {1,16}Xid(?: {0,16}\((?P<where>[^)]*)\))?[:,]? {0,16}(?P<xid>[0-9]{1,5})(?:[,.:\s][\s,]*(?P<body>.*))?$",
    re.ASCII | re.DOTALL,
)
IS_XID = re.compile(r"NVRM: {1,16}Xid")
# Without the driver's name: a whole address and a number, which no process's name is long enough for.
NAMELESS = (
    r"S?Xid \((?:PCI:)?[0-9a-fA-F]{4,8}:[0-9a-fA-F]{2}:[0-9a-fA-F]{2}(?:\.[0-7])?"
    r"(?: GPU-I:[0-9]{1,4}(?: GPU-CI:[0-9]{1,4})?)?\): {0,16}[0-9]"
)
# The name is a thread's and may hold anything, colons and brackets too; only ", " ends it, and a name with that inside is cut short.
# Where not even the pid has a blank behind its comma, the name has none either.
_WHO = re.compile(
    r"^pid ?= ?(?:(?P<pid>[0-9]{1,10})(?![0-9])|(?P<quote>['\"])(?P<quoted>[0-9]{1,10})(?P=quote)|'[^']*'|\"[^\"]*\"|<[^>]*>)"
    r"(?:\s*,\s+name ?= ?(?P<name>.*?)(?:,\s|,?$)|,name=(?P<close>[^,]*)(?:,|$))?[\s,]*(?P<said>.*)$",
    re.ASCII | re.DOTALL,
)
_NOBODY, _NOBODY_BEGINS = ("", "<unknown", "N/A"), ("", "<u", "< ", "N/", "N ")
_QUOTES = ("'", '"')
CAUSED_BY = re.compile(r"caused by previous Xid ([0-9]{1,5})", re.ASCII)
_RECOVERY = re.compile(
    r"\bGPU recovery action changed (?:from 0x[0-9a-fA-F]{1,8} \([^)]*\) )?to 0x(?P<action>[0-9a-fA-F]{1,8}) \((?P<words>[^)]*)\)"
)
_MIG = re.compile(r" GPU-I:(?P<gi>[0-9]{1,4})(?: GPU-CI:(?P<ci>[0-9]{1,4}))?", re.ASCII)
_SXID = re.compile(
    r"^(?:nvidia-nvswitch[0-9]*:? {1,16})?SXid {0,16}\((?P<where>[^)]*)\): {0,16}(?P<sxid>[0-9]{1,7})(?:[,\s]\s*(?P<said>.*))?$",
    re.ASCII | re.DOTALL,
)
# The domain has four digits, more for VMD and some hypervisors; an Xid prints no function.
_ADDRESS = re.compile(r"\b[0-9a-fA-F]{4,8}:[0-9a-fA-F]{2}:[0-9a-fA-F]{2}(?:\.[0-7])?\b")
_BUS_AND_DEVICE = re.compile(r"^00[0-9a-fA-F]{2}:[0-9a-fA-F]{2}$")  # all that drivers of 2006 to 2010 print


@lru_cache(maxsize=1024)  # a host has few, and a flood names the same ones
def address(text: str) -> PciAddress | None:
    """Of `PCI:0000:3b:00`, `0000:3b:00.0`, `PCI:0000:17:00 GPU-I:02 GPU-CI:00` or `0001:00`; None when it is none of them."""
    words = text.removeprefix("PCI:").split()
    if not words:
        return None
    return PciAddress.try_parse(words[0].removeprefix("00") if _BUS_AND_DEVICE.match(words[0]) else words[0])


def address_of(match: re.Match[str] | None) -> PciAddress | None:
    """What stands in the group `where`."""
    return address(match["where"] or "") if match else None


def address_in(text: str) -> PciAddress | None:
    """The first one in a text; the domain may be longer than four digits."""
    match = _ADDRESS.search(text)
    return address(match[0]) if match else None


@lru_cache(maxsize=1024)
def mig(where: str) -> tuple[int | None, int | None]:
    """(GPU instance, compute instance) of `PCI:0000:17:00 GPU-I:02 GPU-CI:00`."""
    match = _MIG.search(where) if "GPU-I" in where else None
    return (int(match["gi"]), int(match["ci"]) if match["ci"] else None) if match else (None, None)


def who(body: str) -> tuple[int | None, str | None, str]:
    """(pid, process, the rest). Pid 0, `'<unknown>'` and `'N/A'` are nobody."""
    match = _WHO.match(body)
    if not match:
        return None, None, body
    name = (match["name"] or match["close"] or "").strip()
    if name[:1] in _QUOTES and len(name) > 2 and name[0] == name[-1]:
        name = name[1:-1]
    nobody = name[:2] in _NOBODY_BEGINS and name.replace(" ", "").rstrip(">") in _NOBODY  # also where a wrap has damaged it
    process = None if nobody else name
    return int(match["pid"] or match["quoted"] or 0) or None, process, match["said"]


@dataclass(frozen=True, slots=True)
class Recovery:
    """The action that an Xid 154 asks for, as the driver calls it."""

    words: str
    severity: Severity
    driver_fatal: bool


_KNOWN_ACTIONS = ("None", "GPU Reset Required", "Node Reboot Required", "Drain P2P", "Drain and Reset", "Recover IMEX Domain")
_ACTIONS = {words.replace(" ", ""): words for words in _KNOWN_ACTIONS}
# 0 none, 1 GPU reset, 3 drain P2P, 4 drain and reset, 5 recover IMEX domain. 2 is the node reboot; what the driver will think of
# next is not known to be less.
_RECOVERY_SEVERITY = {0: Severity.INFO, 1: Severity.ERROR, 3: Severity.ERROR, 4: Severity.ERROR, 5: Severity.ERROR}


def recovery(said: str) -> Recovery | None:
    """What Xid 154 now asks for; None when the line breaks off before that."""
    match = _RECOVERY.search(said)
    if not match:
        return None
    severity = _RECOVERY_SEVERITY.get(int(match["action"], 16), Severity.CRITICAL)
    if "reboot" in match["words"].lower():
        severity = Severity.CRITICAL
    words = _ACTIONS.get(match["words"].replace(" ", ""), match["words"])  # also where a wrap has damaged it
    return Recovery(words, severity, driver_fatal=severity is Severity.CRITICAL)


_SXID_THERMAL = {10005: Severity.INFO, 10006: Severity.CRITICAL}  # cool again, shut down: these lines hold neither word


def sxid(line: KernelMessage) -> KernelEvent | None:
    """Address and function are the switch's. Fatal or not is a word of the line, not a property of the number."""
    match = _SXID.match(line.text)
    if not match:
        return KernelEvent(line.seq, line.usec, "sxid", Severity.INFO, line.text) if "SXid (" in line.text else None
    number, said = int(match["sxid"]), match["said"] or ""
    if said.startswith(("Severity ", "Data {")):
        return None  # second to fourth record of one event
    severity = Severity.CRITICAL if said.startswith("Fatal") else _SXID_THERMAL.get(number, Severity.WARNING)
    return KernelEvent(line.seq, line.usec, "sxid", severity, line.text, xid=number, pci=address(match["where"]))
