"""The gate of one engine: never on hardware that is known to be bad, always back when it is proven.

Law: pure, one engine at a time. What happened is an event, what follows from it stands in `TABLE`, and what is not in the table
changes nothing. What was seen is worked out in `supervision`, what that amounts to in `gate_events`, what counts as proof in `proof`.

    RUNNING ── hardware lost ──► STOPPING ── stopped ──► HELD ── nothing against it ──► PROVING ── proven ──► STARTING ── ready ──► RUNNING
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from enum import StrEnum

from xidwatch.core.gate_events import (
    LONGEST_BACK_OFF_SECONDS,
    LOSSES_SECONDS,
    Event,
    Seen,
    against,
    backs_off,
    events,
    recent_starts,
)
from xidwatch.core.gate_model import Gate, GateSettings, GateState, Lease, Loss
from xidwatch.core.model import Moment

ADOPTING, RUNNING, STOPPING, HELD, PROVING, STARTING, OFF, LATCHED = GateState

BUSY_SECONDS = 120.0  # a loss this short after it was seen at work happened under load
SAME_LOSS_SECONDS = 300.0  # what else is found lost this soon after is part of it
MOST_LOSSES = 20
ASK_AGAIN_SECONDS = 300.0  # after a stop, longer than one usually takes; doubled with every time, to an hour at most
LEASE_SPARE_SECONDS = 60.0  # the start has its own deadline; this one is for when nobody says how it ended


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
    (ADOPTING, Event.OWED): (HELD, Effect.NOTHING),
    (ADOPTING, Event.SKIPPED): (HELD, Effect.NOTHING),
    (ADOPTING, Event.STOPPED): (OFF, Effect.NOTHING),
    (ADOPTING, Event.ENDED): (OFF, Effect.NOTHING),
    (ADOPTING, Event.FORBIDDEN): (OFF, Effect.NOTHING),
    (ADOPTING, Event.IDLE): (OFF, Effect.NOTHING),
    (RUNNING, Event.UP_LOST): (STOPPING, Effect.NOTHING),
    (RUNNING, Event.UP_ANEW): (RUNNING, Effect.NOTHING),
    (RUNNING, Event.DOWN_LOST): (HELD, Effect.NOTHING),
    (RUNNING, Event.FORBIDDEN): (OFF, Effect.NOTHING),
    (RUNNING, Event.SKIPPED): (HELD, Effect.NOTHING),
    (RUNNING, Event.STOPPED): (OFF, Effect.NOTHING),
    (RUNNING, Event.ENDED): (OFF, Effect.NOTHING),
    (STOPPING, Event.EVIDENCE): (STOPPING, Effect.STOP),
    (STOPPING, Event.CALLED_OFF): (HELD, Effect.NOTHING),
    (STOPPING, Event.STOP_OVER): (HELD, Effect.NOTHING),
    (STOPPING, Event.LATCH): (LATCHED, Effect.NOTHING),
    (HELD, Event.FORBIDDEN): (OFF, Effect.NOTHING),
    (HELD, Event.UP_LOST): (STOPPING, Effect.NOTHING),
    (HELD, Event.TAKEN): (OFF, Effect.NOTHING),
    (HELD, Event.UP): (RUNNING, Effect.NOTHING),
    (HELD, Event.UP_ANEW): (RUNNING, Effect.NOTHING),
    (HELD, Event.LATCH): (LATCHED, Effect.NOTHING),
    (HELD, Event.CLEAR): (PROVING, Effect.NOTHING),
    (HELD, Event.AGAIN): (HELD, Effect.STOP),
    (PROVING, Event.FORBIDDEN): (OFF, Effect.NOTHING),
    (PROVING, Event.UP_LOST): (STOPPING, Effect.NOTHING),
    (PROVING, Event.TAKEN): (OFF, Effect.NOTHING),
    (PROVING, Event.UP): (RUNNING, Effect.NOTHING),
    (PROVING, Event.UP_ANEW): (RUNNING, Effect.NOTHING),
    (PROVING, Event.DOUBT): (HELD, Effect.NOTHING),
    (PROVING, Event.LATCH): (LATCHED, Effect.NOTHING),
    (PROVING, Event.PROVEN): (STARTING, Effect.START),
    (STARTING, Event.UP_LOST): (STOPPING, Effect.NOTHING),
    (STARTING, Event.READY): (RUNNING, Effect.NOTHING),
    (STARTING, Event.NOT_READY): (HELD, Effect.NOTHING),
    (STARTING, Event.NOT_READY_UP): (STOPPING, Effect.NOTHING),
    (OFF, Event.UP_LOST): (STOPPING, Effect.NOTHING),
    (OFF, Event.TAKEN): (OFF, Effect.NOTHING),
    (OFF, Event.UP): (RUNNING, Effect.NOTHING),
    (OFF, Event.UP_ANEW): (RUNNING, Effect.NOTHING),
    (OFF, Event.DOWN_LOST): (HELD, Effect.NOTHING),
    (OFF, Event.SKIPPED): (HELD, Effect.NOTHING),
    (LATCHED, Event.RESET): (HELD, Effect.NOTHING),
    (LATCHED, Event.AGAIN): (LATCHED, Effect.STOP),
}
RELAPSES = {(PROVING, HELD), (STARTING, HELD), (STARTING, STOPPING)}  # a way back that counts


def step(settings: GateSettings, gate: Gate, seen: Seen) -> tuple[Gate, Effect]:
    """The gate after what was seen. The first event that the table knows for this state moves it, once.

    But what is to be stopped is stopped at once, when no evidence has to be waited for.
    """
    gate = _noted(gate, seen)
    for event, why in events(settings, gate, seen):
        row = TABLE.get((gate.state, event))
        if row is not None:
            after, effect = row
            if event is Event.AGAIN:
                return _asked_again(gate, seen.at), effect
            moved = _moved(settings, gate, seen, event, after, why)
            return step(settings, moved, seen) if after is STOPPING and gate.state is not STOPPING else (moved, effect)
    return _waiting(gate, seen), Effect.NOTHING


def restored(gate: Gate, boot_id: str) -> Gate:
    """As a new run takes it over. What was under way is not known to have happened, and nothing is open because it once was."""
    if gate.state is STARTING:
        gate = replace(gate, state=ADOPTING, owed=True, why="a run before this one has started it; how that went is not on record")
    elif gate.state is PROVING:
        gate = replace(gate, state=HELD, why="it has to be proven anew")
    elif gate.state is STOPPING:  # whoever runs now need not be who was to be stopped: the first look at its unit tells
        ended = "the host went down" if gate.boot_id != boot_id else "the run before this one ended"
        asks = gate.since.wall + ASK_AGAIN_SECONDS
        gate = replace(
            gate, state=HELD, asked_again=0, ask_after=asks, why=f"was being stopped when {ended}{f' ({gate.why})' if gate.why else ''}"
        )
    elif gate.state is RUNNING or (gate.state is OFF and gate.boot_id != boot_id):
        gate = replace(gate, state=ADOPTING, by_itself=False, why="not looked at yet")
    since = gate.since if gate.boot_id == boot_id else Moment(gate.since.wall, 0.0)
    return replace(gate, asked="", holds_since=None, lease=None, since=since)


def after_maintenance(gate: Gate, at: Moment) -> Gate:
    """Whatever ran or did not has to be looked at anew; what was held stays held."""
    state = {RUNNING: ADOPTING, OFF: ADOPTING, STARTING: ADOPTING, STOPPING: HELD, PROVING: HELD}.get(gate.state, gate.state)
    if state is gate.state:
        return gate
    owed = gate.owed or gate.state is STARTING
    gate = replace(gate, state=state, since=at, why="maintenance is over: to be looked at anew", lease=None, asked="")
    return replace(gate, holds_since=None, by_itself=False, owed=owed)


# -------------------------------------------------------------------------------------------------------------- moving


def _noted(gate: Gate, seen: Seen) -> Gate:
    """What is remembered whether or not it moves."""
    if seen.is_busy:
        gate = replace(gate, busy_wall=seen.at.wall)
    if gate.state is RUNNING and not seen.lost:
        places, known_by = seen.stands_on or (gate.gpus, gate.gpus_of)
        gate = replace(gate, gpus=places, gpus_of=known_by, shared=gate.shared if seen.shared is None else seen.shared)
    if gate.state is PROVING and seen.proofs_lacking == ():
        gate = replace(gate, holds_since=gate.holds_since or seen.at)
    if gate.state in (HELD, LATCHED):
        gate = replace(gate, leftovers=_left(gate, seen))
    return replace(gate, losses=_widened(gate, seen)) if gate.state in (STOPPING, HELD) else gate


def _left(gate: Gate, seen: Seen) -> tuple[str, ...]:
    """Those that are still there, as the last stop has named them."""
    if seen.stop_result is not None:
        return seen.stop_result[2]
    return () if seen.unit is not None and seen.unit.processes == 0 else gate.leftovers


def _asked_again(gate: Gate, at: Moment) -> Gate:
    """It stays where it is, and waits longer before the next time."""
    seconds = min(ASK_AGAIN_SECONDS * 2.0 ** (gate.asked_again + 1), LONGEST_BACK_OFF_SECONDS)
    return replace(gate, asked_again=gate.asked_again + 1, ask_after=at.wall + seconds)


def _widened(gate: Gate, seen: Seen) -> tuple[Loss, ...]:
    """The first line of a loss names one device; what the others share with it shows a moment later."""
    if not gate.losses or not seen.parent or abs(seen.at.wall - gate.losses[-1].wall) > SAME_LOSS_SECONDS:
        return gate.losses
    last = gate.losses[-1]
    is_wider = not last.parent or last.parent.startswith(f"{seen.parent}/")
    return (*gate.losses[:-1], replace(last, parent=seen.parent)) if is_wider else gate.losses


def _moved(settings: GateSettings, gate: Gate, seen: Seen, event: Event, after: GateState, why: str) -> Gate:
    before = gate.state
    moved = replace(
        gate,
        state=after,
        since=gate.since if before is after else seen.at,
        why=why,
        boot_id=seen.boot_id,
        holds_since=None,
        owed=False,
        by_itself=event is Event.ENDED,
        invocation_id=_invocation(seen) or gate.invocation_id,
    )
    if (before, after) in RELAPSES or event is Event.OWED:
        moved = _backed_off(settings, moved, seen.at)
    if before is not after:
        moved = _entered(moved, seen, event, before)
    moved = _counted(settings, gate, moved, event, why, seen.at)
    if event is Event.READY:
        moved = replace(moved, incident=None, relapses=0)
    if event is Event.RESET:
        moved = replace(moved, starts=(), served=0.0, start_said="", losses=(), relapses=0, not_before=0.0)
    return moved


def _counted(settings: GateSettings, before: Gate, moved: Gate, event: Event, why: str, at: Moment) -> Gate:
    """A start counts until it has come to something, and the latest again when hardware is lost within the window after it.

    One whose run was found by a successor, or after maintenance, has come to something as well.
    """
    starts = recent_starts(settings, before, at)
    if event is Event.PROVEN:
        return replace(moved, starts=(*starts, at.wall), served=0.0)
    is_up = event is Event.READY or (before.owed and moved.state is RUNNING)
    if is_up and before.starts:
        return replace(moved, starts=before.starts[:-1], served=before.starts[-1], start_said="")
    if event in (Event.NOT_READY, Event.NOT_READY_UP):
        return replace(moved, start_said=why)
    is_lost = event in (Event.UP_LOST, Event.DOWN_LOST)
    if is_lost and before.served and abs(at.wall - before.served) < settings.window_seconds:
        return replace(moved, starts=(*starts, before.served), served=0.0)
    return moved


def _invocation(seen: Seen) -> str:
    """Of the run that is known now; "" when none is."""
    if seen.start_result is not None:
        return seen.start_result[2]
    return seen.unit.invocation_id if seen.unit is not None and seen.unit.runs else ""


def _entered(gate: Gate, seen: Seen, event: Event, before: GateState) -> Gate:
    """What a new state brings with it, and what it leaves behind."""
    left = seen.stop_result[2] if seen.stop_result is not None else gate.leftovers
    gate = replace(gate, lease=None, asked="", leftovers=() if gate.state in (RUNNING, STOPPING) else left)
    if before is STOPPING:
        gate = replace(gate, asked_again=0, ask_after=0.0 if event is Event.CALLED_OFF else seen.at.wall + ASK_AGAIN_SECONDS)
    elif gate.state not in (HELD, LATCHED, PROVING):
        gate = replace(gate, asked_again=0, ask_after=0.0)
    if event in (Event.UP_LOST, Event.DOWN_LOST):
        gate = replace(gate, losses=_losses(gate, seen, before), incident=seen.incident or gate.incident)
    return gate


def granted(settings: GateSettings, gate: Gate, action: str, at: Moment) -> Gate:
    """With the one start that the action of this id may make."""
    seconds = settings.ready_seconds + LEASE_SPARE_SECONDS
    return replace(gate, lease=Lease(action, Moment(at.wall + seconds, at.mono + seconds)))


def _backed_off(settings: GateSettings, gate: Gate, at: Moment) -> Gate:
    relapses = gate.relapses + 1
    seconds = min(settings.back_off_seconds * 2.0 ** min(relapses - 1, 16), LONGEST_BACK_OFF_SECONDS)
    return replace(gate, relapses=relapses, not_before=at.wall + seconds)


def _losses(gate: Gate, seen: Seen, before: GateState) -> tuple[Loss, ...]:
    """With this one, if there was work when it happened; what could not be stopped has not been lost once more."""
    recent = tuple(loss for loss in gate.losses if abs(seen.at.wall - loss.wall) < LOSSES_SECONDS)[-MOST_LOSSES:]
    if before in (HELD, PROVING) or seen.at.wall - gate.busy_wall > BUSY_SECONDS:
        return recent
    return (*recent, Loss(seen.at.wall, seen.parent))


def _waiting(gate: Gate, seen: Seen) -> Gate:
    """It stays where it is; the reason may be another one now, which people want to know."""
    if gate.state is HELD and seen.unit is not None:
        return replace(gate, why=against(gate, seen) or gate.why)
    if gate.state is PROVING and seen.proofs_lacking:
        return replace(gate, why=f"not proven yet: {'; '.join(seen.proofs_lacking)}")
    if gate.state is PROVING and seen.proofs_lacking == ():
        return replace(gate, why=f"every proof holds; {'waiting for the back-off' if backs_off(gate, seen.at) else 'it has to settle'}")
    return gate
