"""The words of the gate: what is known of one engine, and what goes in and out of its table.

Law: immutable values, no behaviour. The table is `gate`, what counts as proof is `proof`.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from xidwatch.core.model import Moment


class GateState(StrEnum):
    """Between the hardware and one engine."""

    ADOPTING = "ADOPTING"  # just started; nothing is proven, nothing is done
    RUNNING = "RUNNING"  # the engine runs, or is systemd's to restart, on hardware that is not known to be bad
    STOPPING = "STOPPING"  # hardware under it is gone: stage one of the dump, then stop
    HELD = "HELD"  # it is to run again, and may not yet
    PROVING = "PROVING"  # nothing speaks against the hardware; every proof has to hold for the settle time
    STARTING = "STARTING"  # one start is granted, as a lease; the engine has to become ready
    OFF = "OFF"  # somebody else stopped it, or it ended by itself: hands off
    LATCHED = "LATCHED"  # only the operator leaves it


@dataclass(frozen=True, slots=True)
class Lease:
    """One start. It is used up when the unit is active with another invocation, and over at `until`."""

    action: str  # id of the START_ENGINE action
    until: Moment


@dataclass(frozen=True, slots=True)
class Loss:
    """Hardware under the engine went while it had work. `parent`: the topmost device that all the lost ones share, "" for none."""

    wall: float
    parent: str


@dataclass(frozen=True, slots=True)
class Gate:
    """All that is remembered of one engine's gate; it survives restarts and reboots, `since` by its wall clock only."""

    unit: str
    state: GateState
    since: Moment
    why: str = ""
    invocation_id: str = ""  # of the run that was last seen, or stopped
    boot_id: str = ""  # in which the state was entered
    incident: str | None = None  # for which it was stopped
    lease: Lease | None = None
    starts: tuple[float, ...] = ()  # wall times of the starts within the window that came to nothing, or are under way
    served: float = 0.0  # wall time of the last one that did not: it counts after all when hardware is lost within the window
    start_said: str = ""  # how the last start that came to nothing ended, in words
    losses: tuple[Loss, ...] = ()
    relapses: int = 0  # in PROVING and STARTING since it last ran
    not_before: float = 0.0  # wall time before which no further start is granted: the back-off
    leftovers: tuple[str, ...] = ()  # processes that outlived the stop, in words for people
    asked_again: int = 0  # HELD, LATCHED: how often they have been since
    ask_after: float = 0.0  # wall time before which they are not; 0: no stop of ours came before
    by_itself: bool = False  # OFF: it ended by itself, and nobody meant it to
    told: str = ""  # id of the record of it as it stands; not kept
    asked: str = ""  # id of the last STOP_ENGINE action in this state; STOPPING: "" while the evidence is waited for
    holds_since: Moment | None = None  # PROVING: every proof has held since then
    busy_wall: float = 0.0  # when it was last seen at work; not kept
    owed: bool = False  # ADOPTING: an earlier run was about to start it; how that went is not on record
    gpus: tuple[str, ...] = ()  # the places of its GPUs as last known while it ran: numbers move, and what was found is forgotten
    gpus_of: str = ""  # the setting that they were known by
    shared: tuple[str, ...] = ()  # those of them on which somebody else computed as well


@dataclass(frozen=True, slots=True)
class GateSettings:
    """One `[[engines]]` table as the gate sees it. Durations in seconds."""

    unit: str
    gpus: str | tuple[str, ...] = "found"
    after_incident_unit: str = ""
    settle_seconds: float = 60.0
    ready_seconds: float = 900.0
    back_off_seconds: float = 60.0  # doubled with every relapse, to an hour at most
    most_starts: int = 3
    window_seconds: float = 3600.0
    power_limit_watts: float = 0.0  # of each of its GPUs; 0: as learnt


@dataclass(frozen=True, slots=True)
class GateMoved:
    """An output: the gate of one engine has changed its state, or the reason for it. Written before anything is done."""

    id: str
    at: Moment
    before: GateState | None
    gate: Gate


@dataclass(frozen=True, slots=True)
class Maintenance:
    """The host is being worked on: NVML released, nothing acted on, everything recorded, until `until` (wall time)."""

    began: Moment
    until: float
    reason: str
    by: str = ""
