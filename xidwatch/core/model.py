"""The words of the program as values.

Law: what lives here is an immutable value with a meaning outside any one module. No behaviour beyond
construction, parsing and printing; no import from elsewhere in the package.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from functools import lru_cache
from typing import TypeVar, dataclass_transform

T = TypeVar("T")


class Missing(StrEnum):
    """Why a reading is not there. Never a number, never 0, never "healthy"."""

    ABSENT = "ABSENT"  # the thing it is read from is not there (any more)
    ASLEEP = "ASLEEP"  # runtime-suspended: reading would wake it
    BEHIND_DEAD_PARENT = "BEHIND_DEAD_PARENT"  # the bridge above does not answer; not asked
    DENIED = "DENIED"  # permission
    DEVICE_LOST = "DEVICE_LOST"  # its driver says that it is gone, or nobody answers for it
    MALFORMED = "MALFORMED"  # an answer came and could not be understood
    NOT_ASKED = "NOT_ASKED"  # by design not asked this time
    TIMED_OUT = "TIMED_OUT"  # asked, no answer before the deadline
    UNSUPPORTED = "UNSUPPORTED"  # this hardware, driver or kernel does not offer it


@dataclass_transform(frozen_default=True)
def value(cls: type[T]) -> type[T]:
    """A frozen dataclass for the type checker, which is who keeps it frozen: made three times as fast, for what every line of a log is."""
    return dataclass(slots=True, unsafe_hash=True)(cls)


Value = int | float | str | Missing


class Status(StrEnum):
    """Of a condition."""

    TRUE = "TRUE"
    FALSE = "FALSE"
    UNKNOWN = "UNKNOWN"
    NOT_APPLICABLE = "NOT_APPLICABLE"


class Severity(StrEnum):
    """One scale for kernel events, conditions and findings; compare with `rank`."""

    INFO = "info"
    WARNING = "warning"
    ERROR = "error"
    CRITICAL = "critical"

    @property
    def rank(self) -> int:
        """0 (info) to 3 (critical)."""
        return _SEVERITY_RANK[self]


_SEVERITY_RANK = {Severity.INFO: 0, Severity.WARNING: 1, Severity.ERROR: 2, Severity.CRITICAL: 3}

_PCI = re.compile(
    r"^(?:PCI:)?(?:(?P<domain>[0-9a-f]{4,8}):)?(?P<bus>[0-9a-f]{2}):(?P<device>[0-9a-f]{2})(?:\.(?P<function>[0-7]))?$",
    re.IGNORECASE,
)


@dataclass(frozen=True, slots=True, order=True)
class PciAddress:
    """Where a PCI function answers within this boot. Joins sysfs, NVML and kernel-log spellings."""

    domain: int
    bus: int
    device: int
    function: int = 0

    @classmethod
    def parse(cls, text: str) -> PciAddress:
        """Read `0000:3b:00.0` (sysfs), `00000000:3B:00.0` (NVML), `PCI:0000:3b:00` (Xid lines).

        A missing domain or function is 0. Raises ValueError for anything else.
        """
        match = _PCI.match(text.strip())
        if not match or int(match["device"], 16) > 0x1F:
            raise ValueError(f"not a PCI address: {text!r} (expected dddd:bb:dd.f)")
        return cls(
            int(match["domain"] or "0", 16),
            int(match["bus"], 16),
            int(match["device"], 16),
            int(match["function"] or "0", 16),
        )

    @staticmethod
    @lru_cache(maxsize=1024)  # a host has few, and its log names them all the time
    def try_parse(text: str) -> PciAddress | None:
        """The same; None for anything else."""
        try:
            return PciAddress.parse(text)
        except ValueError:
            return None

    def __hash__(self) -> int:
        return self.domain << 16 | self.bus << 8 | self.device << 3 | self.function

    @lru_cache(maxsize=1024)  # noqa: B019  values, and few
    def __str__(self) -> str:
        return f"{self.domain:04x}:{self.bus:02x}:{self.device:02x}.{self.function:x}"


@dataclass(frozen=True, slots=True, order=True)
class Subject:
    """What a reading or a condition is about: a kind (`gpu port nvme rail chip engine host kernel driver probe`) and a name.

    PCI subjects are named by their address within a boot (one that is missed, where now another one is, by its chain), rails by the
    operator, engines by their unit, sensor inputs `CHIP@PATH/INPUT`; kinds with a single member have an empty name.
    """

    kind: str
    name: str = ""

    def __str__(self) -> str:
        return f"{self.kind}:{self.name}" if self.name else self.kind

    @staticmethod
    @lru_cache(maxsize=4096)
    def parse(text: str) -> Subject:
        """The inverse of `str`; raises ValueError when there is no kind."""
        kind, _, name = text.partition(":")
        if not kind:
            raise ValueError(f"not a subject: {text!r} (expected kind:name)")
        return Subject(kind, name)

    @property
    def pci(self) -> PciAddress | None:
        """The address of a PCI subject; None for every other kind, and for a device that only its place names in this boot."""
        return PciAddress.parse(self.name) if self.kind in PCI_KINDS and "/" not in self.name else None


PCI_KINDS = frozenset({"gpu", "port", "nvme"})
HOST = Subject("host")
KERNEL = Subject("kernel")


@dataclass(frozen=True, slots=True)
class Reading:
    """One fact about one subject. The unit is the last word of the quantity's name."""

    subject: Subject
    quantity: str
    value: Value


Readings = Mapping[Subject, Mapping[str, Value]]


@dataclass(frozen=True, slots=True)
class Moment:
    """One instant on both clocks. `wall` is for people and may jump; `mono` orders and measures within a boot."""

    wall: float  # seconds since the epoch, UTC
    mono: float  # seconds, CLOCK_MONOTONIC


@value
class KernelMessage:
    """One record of the kernel log as /dev/kmsg gives it, unescaped.

    `usec` counts from boot on the kernel's own clock; only facility 0 was written by the kernel itself.
    Source: Documentation/ABI/testing/dev-kmsg.
    """

    seq: int
    usec: int
    facility: int
    level: int
    flags: str
    text: str

    @property
    def from_kernel(self) -> bool:
        """False for a line that a process wrote into the log: user space can never get facility 0."""
        return self.facility == 0


@value
class KernelEvent:
    """What one kernel record means. Kinds and severities as `xidwatch decode` prints them."""

    seq: int
    usec: int
    kind: str  # xid sxid aer dpc pciehp gsp uvm_fatal nvrm_init_fail nvme mce edac ghes lockup rcu hung_task power_state
    severity: Severity
    text: str
    xid: int | None = None
    pci: PciAddress | None = None
    pid: int | None = None
    process: str | None = None
    recovery: str | None = None  # Xid 154: the action now asked for, in the driver's words
    caused_by: int | None = None
    mig_gi: int | None = None
    mig_ci: int | None = None
    cpu: int | None = None
    bus_lost: bool = False  # the text says the device has left the bus
    driver_fatal: bool = False  # after it NVML must not be asked again this boot
    injected: bool = False  # written by a process, not by the kernel: recorded, never acted on
    repeated: int = 1  # identical lines folded into this one


@dataclass(frozen=True, slots=True)
class Sample:
    """Everything one tick learnt; one CSV row."""

    tick: int
    at: Moment  # when the tick began
    boot_id: str
    readings: Readings


@dataclass(frozen=True, slots=True)
class Condition:
    """The state of one (subject, type): what was observed, never why."""

    subject: Subject
    type: str
    status: Status
    since: Moment
    reason: str
    missing: Missing | None = None  # which lack made it UNKNOWN


@dataclass(frozen=True, slots=True)
class Transition:
    """A change of status. A sampled edge happened in (not_before, at]; a kernel edge at `at`."""

    id: str
    at: Moment
    subject: Subject
    type: str
    before: Status
    after: Status
    severity: Severity
    reason: str
    not_before: Moment | None = None
    incident: str | None = None
    missing: Missing | None = None


class ActionKind(StrEnum):
    """What the watch asks the daemon to do."""

    LOOK = "LOOK"  # read the first dwords now
    TAKE_DUMP = "TAKE_DUMP"  # stage one, into the incident's folder
    RELEASE_DRIVER = "RELEASE_DRIVER"  # tell the NVML worker to finish and exit
    STOP_ENGINE = "STOP_ENGINE"  # systemctl stop, bounded, then look at what is left in its control group
    START_ENGINE = "START_ENGINE"  # systemctl start, then wait until it is ready
    RECOVER = "RECOVER"  # one step of the ladder that an operator has switched on


@dataclass(frozen=True, slots=True)
class Action:
    """A decision, recorded before it is carried out."""

    id: str
    at: Moment
    kind: ActionKind
    cause: str  # id of the transition it follows from
    incident: str | None = None
    unit: str = ""  # of an engine that is stopped or started; what is started may be its gentler stand-in
    step: str = ""  # of a recovery, and to what: addresses, a slot, "" for the host
    target: str = ""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of an action."""

    id: str
    at: Moment
    action: str  # id of the action
    result: str  # ok, timeout, failed, late-record ...
    took_ms: int
    detail: str = ""


@dataclass(frozen=True, slots=True)
class Incident:
    """From the first bad edge to recovery."""

    id: str
    began: Moment
    trigger: str  # id of the transition that opened it
    severity: Severity
    members: frozenset[tuple[Subject, str]]
    last_dump: Moment | None = None
    dumps: int = 0
