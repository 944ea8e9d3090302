"""The gate of one engine: never on hardware that is known to be bad, always back when it is proven.

Law: pure, one engine at a time. What happened is an event, what follows from it stands in `TABLE`, and what is not in the table
changes nothing. What was seen is worked out in `supervision`, what counts as proof in `proof`; nothing here asks anybody.

    RUNNING ── hardware lost ──► STOPPING ── stopped ──► HELD ── nothing against it ──► PROVING ── proven ──► STARTING ── ready ──► RUNNING

UNKNOWN is in no event that stops, and keeps from every event that starts.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum

from xidwatch.core.gate_model import Gate, GateSettings, GateState, Lease, Loss
from xidwatch.core.model import Moment

ADOPTING, RUNNING, STOPPING, HELD, PROVING, STARTING, OFF, LATCHED = GateState

EVIDENCE_SECONDS = 60.0  # the daemon says within 30 s how stage one ended; should it not, nothing waits for ever
ENDED_LATELY_SECONDS = 180.0  # workers die milliseconds after the bus; a tick later at the latest it is known why
BUSY_SECONDS = 120.0  # a loss this short after it was seen at work happened under load
LOSSES_SECONDS = 7 * 86400.0  # the same parent lost twice within it is no accident
LONGEST_BACK_OFF_SECONDS = 3600.0
LEASE_SPARE_SECONDS = 60.0  # the start has its own deadline; this one is for when nobody says how it ended


class Event(StrEnum):
    """What can happen to an engine's gate; the text is for the diagram."""

    RESET = "an operator resets it"
    FORBIDDEN = "its unit is disabled, masked or not there"
    UP_LOST = "it runs, and hardware under it is gone"
    TAKEN = "somebody has started it on hardware that is gone"
    UP = "it runs"
    UP_ANEW = "somebody has started it"
    DOWN_LOST = "it has ended, and hardware under it is gone"
    SKIPPED = "systemd has left it out, since the gate was not open"
    STOPPED = "somebody has stopped it"
    ENDED = "it has ended by itself"
    EVIDENCE = "stage one of the dump is over"
    STOP_OVER = "our stop is over"
    LATCH = "too many starts, or the same parent lost twice under load"
    DOUBT = "something speaks against the hardware, or is not known"
    CLEAR = "nothing speaks against the hardware"
    PROVEN = "every proof has held for the settle time"
    READY = "it answers"
    NOT_READY = "it did not come up"
    NOT_READY_UP = "it runs and does not answer"


class Effect(StrEnum):
    """What has to be done besides."""

    NOTHING = ""
    STOP = "stop it"
    START = "start it"


TABLE: Mapping[tuple[GateState, Event], tuple[GateState, Effect]] = {
    (ADOPTING, Event.UP_LOST): (STOPPING, Effect.NOTHING),
    (ADOPTING, Event.UP): (RUNNING, Effect.NOTHING),
    (ADOPTING, Event.UP_ANEW): (RUNNING, Effect.NOTHING),
    (ADOPTING, Event.DOWN_LOST): (HELD, Effect.NOTHING),
    (ADOPTING, Event.SKIPPED): (HELD, Effect.NOTHING),
    (ADOPTING, Event.STOPPED): (OFF, Effect.NOTHING),
    (ADOPTING, Event.ENDED): (OFF, Effect.NOTHING),
    (ADOPTING, Event.FORBIDDEN): (OFF, Effect.NOTHING),
    (RUNNING, Event.UP_LOST): (STOPPING, Effect.NOTHING),
    (RUNNING, Event.UP_ANEW): (RUNNING, Effect.NOTHING),
    (RUNNING, Event.DOWN_LOST): (HELD, Effect.NOTHING),
    (RUNNING, Event.SKIPPED): (HELD, Effect.NOTHING),
    (RUNNING, Event.STOPPED): (OFF, Effect.NOTHING),
    (RUNNING, Event.ENDED): (OFF, Effect.NOTHING),
    (STOPPING, Event.EVIDENCE): (STOPPING, Effect.STOP),
    (STOPPING, Event.STOP_OVER): (HELD, Effect.NOTHING),
    (STOPPING, Event.LATCH): (LATCHED, Effect.NOTHING),
    (HELD, Event.FORBIDDEN): (OFF, Effect.NOTHING),
    (HELD, Event.UP_LOST): (STOPPING, Effect.NOTHING),
    (HELD, Event.TAKEN): (OFF, Effect.NOTHING),
    (HELD, Event.UP): (RUNNING, Effect.NOTHING),
    (HELD, Event.UP_ANEW): (RUNNING, Effect.NOTHING),
    (HELD, Event.LATCH): (LATCHED, Effect.NOTHING),
    (HELD, Event.CLEAR): (PROVING, Effect.NOTHING),
    (PROVING, Event.FORBIDDEN): (OFF, Effect.NOTHING),
    (PROVING, Event.UP_LOST): (STOPPING, Effect.NOTHING),
    (PROVING, Event.TAKEN): (OFF, Effect.NOTHING),
    (PROVING, Event.UP): (RUNNING, Effect.NOTHING),
    (PROVING, Event.UP_ANEW): (RUNNING, Effect.NOTHING),
    (PROVING, Event.DOUBT): (HELD, Effect.NOTHING),
    (PROVING, Event.LATCH): (LATCHED, Effect.NOTHING),
    (PROVING, Event.PROVEN): (STARTING, Effect.START),
    (STARTING, Event.UP_LOST): (STOPPING, Effect.NOTHING),
    (STARTING, Event.DOWN_LOST): (HELD, Effect.NOTHING),
    (STARTING, Event.READY): (RUNNING, Effect.NOTHING),
    (STARTING, Event.NOT_READY): (HELD, Effect.NOTHING),
    (STARTING, Event.NOT_READY_UP): (STOPPING, Effect.NOTHING),
    (OFF, Event.UP_LOST): (STOPPING, Effect.NOTHING),
    (OFF, Event.UP): (RUNNING, Effect.NOTHING),
    (OFF, Event.UP_ANEW): (RUNNING, Effect.NOTHING),
    (OFF, Event.DOWN_LOST): (HELD, Effect.NOTHING),
    (OFF, Event.SKIPPED): (HELD, Effect.NOTHING),
    (LATCHED, Event.RESET): (HELD, Effect.NOTHING),
}
RELAPSES = {(PROVING, HELD), (STARTING, HELD), (STARTING, STOPPING)}  # a way back that counts


@dataclass(frozen=True, slots=True)
class Unit:
    """Its unit as last seen. `how`: why it does not run, "" while it does."""

    is_up: bool
    invocation_id: str = ""
    restarts: int = 0  # by systemd itself, since somebody started it
    how: str = ""  # stopped, ended, skipped
    forbidden: str = ""  # why it must not be started, "" when it may
    wanted: bool = False  # it starts with the host
    processes: int = 0


@dataclass(frozen=True, slots=True)
class Seen:
    """Everything that the gate of one engine is moved by. `unit` None: nobody could say how it is."""

    at: Moment
    boot_id: str
    unit: Unit | None
    lost: tuple[str, ...] = ()  # what is bad under it, in words
    unclear: tuple[str, ...] = ()  # what is not known of it, in words
    parent: str = ""  # the topmost place that all the lost ones share
    incident: str | None = None
    evidence_due: bool = False  # stage one is still being written
    proofs_lacking: tuple[str, ...] | None = None  # None: not looked at this time; empty: every proof holds
    is_busy: bool = False
    stop_result: tuple[str, str, tuple[str, ...]] | None = None  # of the action asked for: result, detail, leftovers
    start_result: tuple[str, str, str] | None = None  # result, detail, invocation
    reset_by: str = ""
    overridden: bool = False  # an operator has opened it by hand: nothing is stopped, nothing started


def step(settings: GateSettings, gate: Gate, seen: Seen) -> tuple[Gate, Effect]:
    """The gate after what was seen. The first event that the table knows for this state moves it, once."""
    gate = _noted(gate, seen)
    for event, why in _events(settings, gate, seen):
        moved = TABLE.get((gate.state, event))
        if moved is not None:
            return _moved(settings, gate, seen, event, moved[0], why), moved[1]
    return _waiting(gate, seen), Effect.NOTHING


def restored(gate: Gate, boot_id: str) -> Gate:
    """As a new run takes it over. What was under way is not known to have happened, and nothing is open because it once was."""
    if gate.state is STARTING:
        gate = replace(gate, state=ADOPTING, lease=None, why="a run before this one has started it; how that went is not on record")
    elif gate.state is PROVING:
        gate = replace(gate, state=HELD)
    elif gate.state is STOPPING and gate.boot_id != boot_id:
        gate = replace(gate, state=HELD, why=f"was being stopped when the host went down ({gate.why})" if gate.why else "")
    elif gate.state in (RUNNING, OFF) and gate.boot_id != boot_id:
        gate = replace(gate, state=ADOPTING, by_itself=False)
    elif gate.state is RUNNING:
        gate = replace(gate, state=ADOPTING)
    since = gate.since if gate.boot_id == boot_id else Moment(gate.since.wall, 0.0)
    return replace(gate, asked="", holds_since=None, lease=None, since=since)


def after_maintenance(gate: Gate, at: Moment) -> Gate:
    """Whatever ran or did not has to be looked at anew; what was held stays held."""
    state = {RUNNING: ADOPTING, OFF: ADOPTING, STARTING: ADOPTING, STOPPING: HELD, PROVING: HELD}.get(gate.state, gate.state)
    if state is gate.state:
        return gate
    return replace(gate, state=state, since=at, why="maintenance is over", lease=None, asked="", holds_since=None, by_itself=False)


# -------------------------------------------------------------------------------------------------------------- events


def _events(settings: GateSettings, gate: Gate, seen: Seen) -> Iterator[tuple[Event, str]]:
    """What has happened, the weightiest first, with the reason for people."""
    if seen.reset_by:
        yield Event.RESET, f"reset by {seen.reset_by}"
    if gate.state is STOPPING:
        yield from _of_stopping(gate, seen)
        return
    if seen.unit is not None:
        yield from _of_unit(gate, seen, seen.unit)
    if gate.state is STARTING:
        yield from _of_start(gate, seen)
    elif gate.state in (HELD, PROVING) and seen.unit is not None and not seen.unit.is_up:
        yield from _of_proof(settings, gate, seen, seen.unit)


def _of_stopping(gate: Gate, seen: Seen) -> Iterator[tuple[Event, str]]:
    waited = seen.at.mono - gate.since.mono
    if not gate.asked:
        if not seen.evidence_due or waited >= EVIDENCE_SECONDS:
            yield Event.EVIDENCE, gate.why
    elif seen.stop_result is not None:
        result, detail, _ = seen.stop_result
        if twice := _lost_twice(gate, seen):
            yield Event.LATCH, twice
        yield Event.STOP_OVER, "; ".join(filter(None, (gate.why, "" if result == "ok" else f"stop: {result}", detail)))


def _of_unit(gate: Gate, seen: Seen, unit: Unit) -> Iterator[tuple[Event, str]]:
    if unit.is_up:
        yield _running(gate, seen, unit)
        return
    lost = "; ".join(seen.lost)
    lately = gate.by_itself and seen.at.mono - gate.since.mono < ENDED_LATELY_SECONDS
    is_ours = gate.state in (RUNNING, STARTING) or (gate.state is ADOPTING and unit.wanted) or (gate.state is OFF and lately)
    if seen.lost and is_ours and not seen.overridden and (unit.how != "stopped" or gate.state is not OFF):
        yield Event.DOWN_LOST, f"it has ended: {lost}"
    if unit.how == "skipped":
        yield Event.SKIPPED, "systemd has left it out, since the gate was not open"
    if unit.forbidden:
        yield Event.FORBIDDEN, unit.forbidden
    if unit.how == "stopped":
        yield Event.STOPPED, "somebody else has stopped it"
    if unit.how == "ended":
        yield Event.ENDED, "it has ended by itself"


def _running(gate: Gate, seen: Seen, unit: Unit) -> tuple[Event, str]:
    is_known = unit.invocation_id == gate.invocation_id
    if not seen.lost or seen.overridden:
        if is_known:
            return Event.UP, "it runs"
        return Event.UP_ANEW, "systemd has restarted it" if unit.restarts else "it runs, started by somebody else"
    nobody_meant_it = is_known or unit.restarts > 0 or gate.boot_id != seen.boot_id
    if nobody_meant_it or gate.state in (ADOPTING, RUNNING, STARTING):
        return Event.UP_LOST, "; ".join(seen.lost)
    return Event.TAKEN, f"somebody has started it although: {'; '.join(seen.lost)}; left alone"


def _of_start(gate: Gate, seen: Seen) -> Iterator[tuple[Event, str]]:
    is_up = seen.unit is not None and seen.unit.is_up
    if seen.start_result is not None:
        result, detail, _ = seen.start_result
        if result == "ready":
            yield Event.READY, detail or "it answers"
        else:
            why = ", ".join(filter(None, (f"start: {result}", detail)))
            yield Event.NOT_READY_UP if is_up or result == "not-ready" else Event.NOT_READY, why
    elif gate.lease is None or seen.at.mono >= gate.lease.until.mono:
        yield Event.NOT_READY_UP if is_up else Event.NOT_READY, "nobody has said how the start ended"


def _of_proof(settings: GateSettings, gate: Gate, seen: Seen, unit: Unit) -> Iterator[tuple[Event, str]]:
    against = _against(gate, seen, unit)
    if against:
        yield Event.DOUBT, against
    elif gate.state is HELD:
        yield Event.CLEAR, "nothing speaks against the hardware; proving it"
    elif gate.holds_since is not None and seen.proofs_lacking:
        yield Event.DOUBT, f"no longer proven: {'; '.join(seen.proofs_lacking)}"
    elif _has_settled(settings, gate, seen) and seen.at.wall >= gate.not_before:
        if len(_recent_starts(settings, gate, seen.at)) >= settings.most_starts:
            hours = settings.window_seconds / 3600
            yield Event.LATCH, f"{settings.most_starts} starts within {hours:g} h; `xidwatch gate --reset {gate.unit}`"
        yield Event.PROVEN, "every proof has held for the settle time"


def _against(gate: Gate, seen: Seen, unit: Unit) -> str:
    """What keeps it from being proven; "" when nothing does."""
    if seen.overridden:
        return "opened by hand: nothing is proven, and nothing started by xidwatch, until that is over"
    if unit.processes or (gate.leftovers and seen.stop_result is not None):
        return f"{unit.processes} of its processes are still there: {'; '.join(gate.leftovers) or 'they outlived the stop'}"
    return "; ".join((*seen.lost, *seen.unclear))


def _has_settled(settings: GateSettings, gate: Gate, seen: Seen) -> bool:
    is_fresh = seen.proofs_lacking is not None and not seen.proofs_lacking
    return is_fresh and gate.holds_since is not None and seen.at.mono - gate.holds_since.mono >= settings.settle_seconds


def _lost_twice(gate: Gate, seen: Seen) -> str:
    """Two losses of one parent while there was work, and not a word of proof that could tell a supply from a good one."""
    parents = [loss.parent for loss in gate.losses if loss.parent and seen.at.wall - loss.wall < LOSSES_SECONDS]
    if parents and parents.count(parents[-1]) > 1:
        return f"{parents[-1]} lost twice under load: idle proof is no proof of a supply; `xidwatch gate --reset {gate.unit}`"
    return ""


# -------------------------------------------------------------------------------------------------------------- moving


def _noted(gate: Gate, seen: Seen) -> Gate:
    """What is remembered whether or not it moves."""
    if seen.is_busy:
        gate = replace(gate, busy_wall=seen.at.wall)
    if gate.state is PROVING and seen.proofs_lacking is not None:
        gate = replace(gate, holds_since=(gate.holds_since or seen.at) if not seen.proofs_lacking else gate.holds_since)
    if gate.state is HELD and gate.leftovers and seen.unit is not None and not seen.unit.processes and seen.stop_result is None:
        gate = replace(gate, leftovers=())
    return gate


def _moved(settings: GateSettings, gate: Gate, seen: Seen, event: Event, after: GateState, why: str) -> Gate:
    before = gate.state
    unit = seen.unit
    moved = replace(
        gate,
        state=after,
        since=gate.since if before is after else seen.at,
        why=why,
        boot_id=seen.boot_id,
        holds_since=None,
        by_itself=event is Event.ENDED,
        invocation_id=unit.invocation_id if unit is not None and unit.is_up and unit.invocation_id else gate.invocation_id,
    )
    if (before, after) in RELAPSES:
        moved = _backed_off(settings, moved, seen.at)
    if after is STOPPING and before is not STOPPING:
        moved = replace(moved, incident=seen.incident, asked="", lease=None, leftovers=(), losses=_losses(gate, seen))
    if event in (Event.STOP_OVER, Event.LATCH) and seen.stop_result is not None:
        moved = replace(moved, asked="", leftovers=seen.stop_result[2])
    if after is HELD:
        moved = replace(moved, lease=None, incident=seen.incident or gate.incident)
        moved = replace(moved, losses=_losses(gate, seen)) if event is Event.DOWN_LOST else moved
    if event is Event.PROVEN:
        moved = replace(moved, starts=(*_recent_starts(settings, gate, seen.at), seen.at.wall))
    if event is Event.READY:
        invocation = seen.start_result[2] if seen.start_result else ""
        moved = replace(moved, lease=None, invocation_id=invocation or moved.invocation_id, leftovers=(), incident=None)
    if event is Event.RESET:
        moved = replace(moved, starts=(), losses=(), relapses=0, not_before=0.0)
    return moved


def granted(settings: GateSettings, gate: Gate, action: str, at: Moment) -> Gate:
    """With the one start that the action of this id may make."""
    seconds = settings.ready_seconds + LEASE_SPARE_SECONDS
    return replace(gate, lease=Lease(action, Moment(at.wall + seconds, at.mono + seconds)))


def _backed_off(settings: GateSettings, gate: Gate, at: Moment) -> Gate:
    relapses = gate.relapses + 1
    seconds = min(settings.back_off_seconds * 2.0 ** min(relapses - 1, 16), LONGEST_BACK_OFF_SECONDS)
    return replace(gate, relapses=relapses, not_before=at.wall + seconds)


def _losses(gate: Gate, seen: Seen) -> tuple[Loss, ...]:
    recent = tuple(loss for loss in gate.losses if seen.at.wall - loss.wall < LOSSES_SECONDS)
    if not seen.lost or seen.at.wall - gate.busy_wall > BUSY_SECONDS:
        return recent
    return (*recent, Loss(seen.at.wall, seen.parent))


def _recent_starts(settings: GateSettings, gate: Gate, at: Moment) -> tuple[float, ...]:
    return tuple(wall for wall in gate.starts if 0 <= at.wall - wall < settings.window_seconds)


def _waiting(gate: Gate, seen: Seen) -> Gate:
    """It stays where it is; the reason may be another one now, which people want to know."""
    unit = seen.unit
    if gate.state is HELD and unit is not None:
        why = _against(gate, seen, unit)
        return replace(gate, why=why) if why else gate
    if gate.state is PROVING and seen.proofs_lacking:
        return replace(gate, why=f"not proven yet: {'; '.join(seen.proofs_lacking)}")
    if gate.state is PROVING and seen.proofs_lacking == ():
        back_off = seen.at.wall < gate.not_before
        return replace(gate, why="every proof holds; waiting for the back-off" if back_off else "every proof holds; it has to settle")
    if gate.state is STARTING and unit is not None and unit.is_up and unit.invocation_id not in ("", gate.invocation_id):
        return replace(gate, invocation_id=unit.invocation_id, lease=gate.lease)
    return gate
