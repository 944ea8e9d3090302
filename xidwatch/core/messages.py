"""What goes into the watch and what comes out of it.

Law: immutable values, no behaviour. An output appears in the order in which it has to be written down.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from xidwatch.core.gate_model import Gate, GateMoved, GateSettings, Maintenance
from xidwatch.core.model import Action, Condition, Incident, KernelEvent, Missing, Moment, Readings, Sample, Subject, Transition, Value
from xidwatch.core.recovery_model import Attempt, RecoverySettings

ConditionKey = tuple[Subject, str]

# ------------------------------------------------------------------------------------------------------------- inputs


@dataclass(frozen=True, slots=True)
class Restored:
    """At start: what an earlier run left on record. Its edges have been acted on and do not fire again."""

    conditions: Mapping[ConditionKey, Condition]
    incident: Incident | None
    next_id: int
    expected: Readings
    dumps: tuple[float, ...] = ()
    members: Readings | None = field(default_factory=dict)  # who should be there, by place, of any boot; None: struck off by hand
    inventory: Readings = field(default_factory=dict)  # of this boot
    accepted: bool = False  # `members` are what an operator has accepted


@dataclass(frozen=True, slots=True)
class SampleTaken:
    """A tick is complete; readings that did not come are in it as Missing."""

    sample: Sample


@dataclass(frozen=True, slots=True)
class Looked:
    """The answer to an immediate look at the first dwords."""

    at: Moment
    readings: Readings


@dataclass(frozen=True, slots=True)
class Inventoried:
    """The inventory has changed; all of it, also of devices that no longer answer."""

    at: Moment
    inventory: Readings


@dataclass(frozen=True, slots=True)
class Announced:
    """The kernel has announced that a device came, went or changed its driver. `cause`: the id of the record of it."""

    at: Moment
    cause: str


@dataclass(frozen=True, slots=True)
class KernelRead:
    """Kernel records, in order. `history`: read before, by this run's predecessor."""

    events: tuple[tuple[Moment, KernelEvent], ...]
    last_seq: int | None
    at: Moment
    lost: int = 0
    history: bool = False


@dataclass(frozen=True, slots=True)
class KernelLogUnreadable:
    """There is no kernel log to follow."""

    why: Missing


@dataclass(frozen=True, slots=True)
class DriverRenewed:
    """The NVIDIA module was loaded anew, or an operator allows the driver to be asked again."""

    at: Moment
    why: str


@dataclass(frozen=True, slots=True)
class BaselineAccepted:
    """An operator says that what is known is what should be; `anew`: what is here now, whatever was known before."""

    at: Moment
    anew: bool


@dataclass(frozen=True, slots=True)
class DumpFailed:
    """The dump that was asked for is not on any disk."""

    incident: str


@dataclass(frozen=True, slots=True)
class DumpEnded:
    """Stage one of an incident is over: ok, partial, late or failed; nothing that waited for it waits longer."""

    at: Moment
    incident: str
    result: str


@dataclass(frozen=True, slots=True)
class Supervised:
    """Which engines there are, and how: at start, and after a reload. `gates`: as an earlier run left them, at start only."""

    at: Moment
    boot_id: str
    engines: tuple[GateSettings, ...]
    gates: tuple[Gate, ...] = ()
    maintenance: Maintenance | None = None
    recovery: RecoverySettings = field(default_factory=RecoverySettings)
    attempts: tuple[Attempt, ...] = ()  # at recovery, as an earlier run left them
    knows_past: bool = False  # they are all there were


@dataclass(frozen=True, slots=True)
class EngineSeen:
    """Its unit as it is at this instant, between two ticks; the quantities of the engine probe."""

    at: Moment
    unit: str
    values: Mapping[str, Value]


@dataclass(frozen=True, slots=True)
class EngineStopped:
    """A STOP_ENGINE is over, one way or the other.

    `result`: ok (nothing of it is left), leftovers (processes live on, see `leftovers`), timeout (systemd is still at it), failed.
    """

    at: Moment
    unit: str
    action: str
    result: str
    detail: str = ""
    leftovers: tuple[str, ...] = ()  # a line for people each: pid, name, state, where in the kernel


@dataclass(frozen=True, slots=True)
class EngineStarted:
    """A START_ENGINE is over. `result`: ready, refused (by its own condition), failed, not-ready (in time), timeout."""

    at: Moment
    unit: str
    action: str
    result: str
    detail: str = ""
    invocation_id: str = ""


@dataclass(frozen=True, slots=True)
class RecoveryEnded:
    """A RECOVER is over. `result`: ok, failed, timeout (it has not returned), refused (not now) and unable (not here): nothing was done."""

    at: Moment
    action: str
    result: str
    detail: str = ""


@dataclass(frozen=True, slots=True)
class GateReset:
    """An operator takes an engine out of LATCHED; it has to be proven like any other."""

    at: Moment
    unit: str
    by: str


@dataclass(frozen=True, slots=True)
class GatesOpened:
    """An operator's orders in force: these engines may start whatever is known, and nothing of ours stops or starts them."""

    at: Moment
    units: frozenset[str]


@dataclass(frozen=True, slots=True)
class MaintenanceSet:
    """An operator begins maintenance; None: ends it."""

    at: Moment
    maintenance: Maintenance | None
    by: str


Input = (
    Restored
    | SampleTaken
    | Looked
    | Inventoried
    | Announced
    | KernelRead
    | KernelLogUnreadable
    | DriverRenewed
    | BaselineAccepted
    | DumpFailed
    | DumpEnded
    | Supervised
    | EngineSeen
    | EngineStopped
    | EngineStarted
    | RecoveryEnded
    | GateReset
    | GatesOpened
    | MaintenanceSet
)


# ------------------------------------------------------------------------------------------------------------ outputs


@dataclass(frozen=True, slots=True)
class KernelRecord:
    """An event to be written down."""

    id: str
    at: Moment
    event: KernelEvent


@dataclass(frozen=True, slots=True)
class Gap:
    """So many records of a source were never seen, or seen and not written one by one."""

    id: str
    at: Moment
    source: str
    lost: int


@dataclass(frozen=True, slots=True)
class Opened:
    """An incident begins."""

    id: str
    at: Moment
    incident: Incident


@dataclass(frozen=True, slots=True)
class Closed:
    """It is over."""

    id: str
    at: Moment
    incident: Incident


@dataclass(frozen=True, slots=True)
class Row:
    """The sample, completed with what the kernel log says."""

    sample: Sample


@dataclass(frozen=True, slots=True)
class Learnt:
    """The baseline has changed: what is expected in this boot, or who should be there (`members`, by place)."""

    at: Moment
    expected: Readings
    members: Readings = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Maintained:
    """Maintenance has begun, was prolonged, or (None) is over."""

    id: str
    at: Moment
    maintenance: Maintenance | None
    by: str


Output = Transition | Action | KernelRecord | Gap | Opened | Closed | Row | Learnt | GateMoved | Maintained
