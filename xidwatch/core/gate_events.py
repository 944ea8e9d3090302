"""What has happened to the gate of one engine: events, from what was seen at one moment.

Law: pure. It says what is so and why, the weightiest first; what follows is `gate`'s table. UNKNOWN is in no event that stops, and
keeps from every event that starts.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum

from xidwatch.core.gate_model import Gate, GateSettings, GateState
from xidwatch.core.model import Moment

ADOPTING, RUNNING, STOPPING, HELD, PROVING, STARTING, OFF, LATCHED = GateState

EVIDENCE_SECONDS = 60.0  # the daemon says within 30 s how stage one ended; should it not, nothing waits for ever
WORD_SECONDS = 1200.0  # a stop has its own deadline; this one is for when nobody says how it ended
ENDED_LATELY_SECONDS = 180.0  # workers die milliseconds after the bus; a tick later at the latest it is known why
LOSSES_SECONDS = 7 * 86400.0  # the same parent lost twice within it is no accident
LONGEST_BACK_OFF_SECONDS = 3600.0
MOST_ASKED_AGAIN = 8  # who has not ended in some five hours waits for something that no word of ours brings about


class Event(StrEnum):
    """What can happen to an engine's gate; the text is for the diagram."""

    RESET = "an operator resets it"
    FORBIDDEN = "its unit is disabled, masked or not there"
    UP_LOST = "it runs, and hardware under it is gone"
    TAKEN = "somebody has started it on hardware that is gone"
    UP = "it runs"
    UP_ANEW = "another run of it is under way"
    DOWN_LOST = "it has ended, and hardware under it is gone"
    OWED = "it was about to be started, and does not run"
    SKIPPED = "systemd has left it out, since a condition of its own said no"
    STOPPED = "somebody has stopped it"
    ENDED = "it has ended by itself"
    IDLE = "it has not run in this boot, and does not start with the host"
    EVIDENCE = "stage one of the dump is over"
    CALLED_OFF = "an operator has opened it before it was stopped"
    STOP_OVER = "our stop is over"
    AGAIN = "what was to be stopped is still there"
    LATCH = "too many starts came to nothing, or the same parent lost twice under load"
    DOUBT = "something speaks against the hardware, or is not known"
    CLEAR = "nothing speaks against the hardware"
    PROVEN = "every proof has held for the settle time"
    READY = "it answers"
    NOT_READY = "it did not come up"
    NOT_READY_UP = "it runs and does not answer"


@dataclass(frozen=True, slots=True)
class Unit:
    """Its unit as just seen. `moves`: systemd is at it (activating, deactivating). `how`: why it does not run, "" when nobody knows."""

    runs: bool
    moves: str = ""
    invocation_id: str = ""
    restarts: int = 0  # by systemd itself, since somebody started it
    how: str = ""  # stopped, ended, skipped
    forbidden: str = ""  # why it must not be started, "" when it may
    enabled: bool = False  # it starts with the host
    on_demand: bool = False  # as far as systemd knows it does not: static, linked
    processes: int | None = 0  # None: nobody can say

    @property
    def is_down(self) -> bool:
        """It does not run, and nobody is about to change that."""
        return not self.runs and not self.moves


@dataclass(frozen=True, slots=True)
class Seen:
    """Everything that the gate of one engine is moved by. `unit` None: it was not looked at just now, or nobody could say how it is."""

    at: Moment
    boot_id: str
    unit: Unit | None
    lost: tuple[str, ...] = ()  # what is bad under it, in words
    unclear: tuple[str, ...] = ()  # what is not known of it, in words
    parent: str = ""  # the topmost place that all the lost ones share
    parent_name: str = ""  # whoever is there, as people know it
    incident: str | None = None
    is_well: bool = False  # a whole tick found nothing bad under it, and nothing that is not known
    evidence_due: bool = False  # stage one is still being written
    proofs_lacking: tuple[str, ...] | None = None  # None: not looked at this time; empty: every proof holds
    is_busy: bool = False
    stop_result: tuple[str, str, tuple[str, ...]] | None = None  # of the action asked for: result, detail, leftovers
    start_result: tuple[str, str, str] | None = None  # result, detail, invocation
    reset_by: str = ""
    overridden: bool = False  # an operator has opened it by hand: nothing is stopped, nothing started
    stands_on: tuple[tuple[str, ...], str] | None = None  # places of its GPUs and the setting they are known by, when that is settled
    shared: tuple[str, ...] | None = None  # those on which somebody else computes, when that could be seen


def events(settings: GateSettings, gate: Gate, seen: Seen) -> Iterator[tuple[Event, str]]:
    """What has happened, the weightiest first, with the reason for people."""
    if seen.reset_by:
        yield Event.RESET, f"reset by {seen.reset_by}"
    if gate.state is STOPPING:
        yield from _of_stopping(gate, seen)
        return
    if seen.lost:
        yield from _of_loss(gate, seen)
    if seen.unit is not None and seen.unit.runs and (seen.overridden or not seen.lost):
        yield _running(gate, seen.unit)
    if seen.unit is not None and seen.unit.is_down:
        yield from _down(gate, seen, seen.unit)
    if gate.state is STARTING:
        yield from _of_start(gate, seen)
    elif gate.state in (HELD, PROVING):
        yield from _of_proof(settings, gate, seen)
    if gate.state in (HELD, LATCHED) and _is_to_be_asked(gate, seen):
        yield Event.AGAIN, gate.why


def _of_stopping(gate: Gate, seen: Seen) -> Iterator[tuple[Event, str]]:
    waited = seen.at.mono - gate.since.mono
    if not gate.asked:
        if seen.overridden:
            yield Event.CALLED_OFF, "opened by hand before it was stopped"
        elif not seen.evidence_due or waited >= EVIDENCE_SECONDS:
            yield Event.EVIDENCE, gate.why
    elif seen.stop_result is not None:
        result, detail, _ = seen.stop_result
        if twice := _lost_twice(gate, seen):
            yield Event.LATCH, twice
        yield Event.STOP_OVER, "; ".join(filter(None, (gate.why, ", ".join(filter(None, (f"stop: {result}", detail))))))
    elif waited >= WORD_SECONDS:
        yield Event.STOP_OVER, f"{gate.why}; nobody has said how its stop ended"


def _of_loss(gate: Gate, seen: Seen) -> Iterator[tuple[Event, str]]:
    """Hardware under it is gone. What an operator has started in spite of that is his; what nobody meant to run there is stopped."""
    lost, unit = "; ".join(seen.lost), seen.unit
    ours = gate.state in (ADOPTING, RUNNING, STARTING) or (unit is not None and _nobody_meant_it(gate, seen, unit))
    if unit is not None and unit.runs and not ours:
        yield Event.TAKEN, f"somebody has started it although: {lost}; left alone"
    elif seen.overridden:
        return
    elif unit is None or gate.state is STARTING:
        if gate.state in (RUNNING, STARTING):
            yield Event.UP_LOST, lost
    elif unit.runs or (unit.moves and gate.state in (ADOPTING, RUNNING)):
        yield Event.UP_LOST, lost
    elif unit.is_down and _is_wanted(gate, seen, unit):
        yield Event.DOWN_LOST, f"it has ended: {lost}" if gate.state is not ADOPTING else lost


def _nobody_meant_it(gate: Gate, seen: Seen, unit: Unit) -> bool:
    """It runs since its stop failed, since systemd restarts what ends, or since systemd starts it with the host."""
    if gate.state is OFF:
        return gate.by_itself and unit.restarts > 0
    by_host = gate.boot_id != seen.boot_id and not seen.overridden  # whose gate is open by order is started by who gave it
    return unit.invocation_id == gate.invocation_id or unit.restarts > 0 or by_host


def _is_wanted(gate: Gate, seen: Seen, unit: Unit) -> bool:
    """It ended because of the loss, as far as anybody can tell, or was to start with the host: it is to run again."""
    if gate.state is ADOPTING:
        return gate.owed or (unit.enabled and unit.how != "stopped")
    lately = gate.by_itself and seen.at.mono - gate.since.mono < ENDED_LATELY_SECONDS
    return gate.state is RUNNING or (gate.state is OFF and lately and unit.how == "ended")


def _running(gate: Gate, unit: Unit) -> tuple[Event, str]:
    if unit.invocation_id in ("", gate.invocation_id):
        return Event.UP, "it runs"
    if unit.restarts:
        return Event.UP_ANEW, "systemd has restarted it"
    return Event.UP_ANEW, "it runs, started by somebody else" if gate.invocation_id and not gate.owed else "it runs"


def _down(gate: Gate, seen: Seen, unit: Unit) -> Iterator[tuple[Event, str]]:
    """Systemd forgets at once that it has left out a unit that nothing refers to: one that only people start is theirs to start."""
    if unit.forbidden:
        yield Event.FORBIDDEN, unit.forbidden
    elif gate.owed:
        yield Event.OWED, "a start was granted before, and it does not run"
    elif unit.how == "skipped":
        yield Event.SKIPPED, "systemd has left it out, since a condition of its own said no: the gate, or another one"
    if unit.how == "stopped":
        yield Event.STOPPED, "somebody else has stopped it"
    elif unit.how == "ended":
        yield Event.ENDED, "it has ended by itself"
    elif unit.how == "" and unit.on_demand and seen.is_well:
        yield Event.IDLE, "it does not run, and does not start with the host: whoever starts it may"


def _is_to_be_asked(gate: Gate, seen: Seen) -> bool:
    """The run that was to be stopped runs, or has left processes; what others have started since is theirs. Less and less often."""
    unit = seen.unit
    if unit is None or seen.overridden or not gate.ask_after or gate.asked_again >= MOST_ASKED_AGAIN:
        return False
    survives = bool(unit.processes) if unit.is_down else unit.runs and unit.invocation_id == gate.invocation_id
    return survives and not 0 < gate.ask_after - seen.at.wall <= LONGEST_BACK_OFF_SECONDS


def survivors(gate: Gate) -> str:
    """What is said of those that outlived the stop, and of what was done about them."""
    times = f"asked again to end ({gate.asked_again} of {MOST_ASKED_AGAIN} times)" if gate.asked_again else ""
    over = "; they are not asked any more" if gate.asked_again >= MOST_ASKED_AGAIN else ""
    return ", ".join(filter(None, ("; ".join(gate.leftovers), times))) + over


def _of_start(gate: Gate, seen: Seen) -> Iterator[tuple[Event, str]]:
    is_up = seen.unit is not None and not seen.unit.is_down
    if seen.start_result is not None:
        result, detail, _ = seen.start_result
        why = ", ".join(filter(None, (f"start: {_in_words(gate, seen, result)}", detail)))
        if result == "ready":
            yield Event.READY, f"it answers: {detail}" if detail else "it answers"
        elif is_up or result in ("not-ready", "timeout"):
            yield Event.NOT_READY_UP, why
        else:
            yield Event.NOT_READY, why
    elif gate.lease is None or seen.at.mono >= gate.lease.until.mono:
        yield Event.NOT_READY_UP, "nobody has said how the start ended"


def _in_words(gate: Gate, seen: Seen, result: str) -> str:
    """Who refuses a start that was granted is not this gate."""
    was_open = gate.lease is not None and seen.at.mono < gate.lease.until.mono
    if result == "refused" and was_open:
        return "its own condition refused it (an ExecCondition of the unit other than the gate's?)"
    return result


def _of_proof(settings: GateSettings, gate: Gate, seen: Seen) -> Iterator[tuple[Event, str]]:
    if twice := _lost_twice(gate, seen):
        yield Event.LATCH, twice
    if doubt := against(gate, seen):
        yield Event.DOUBT, doubt
    elif gate.state is HELD:
        if seen.unit is not None:
            yield Event.CLEAR, "nothing speaks against the hardware; proving it"
    elif gate.holds_since is not None and seen.proofs_lacking:
        yield Event.DOUBT, f"no longer proven: {'; '.join(seen.proofs_lacking)}"
    elif _has_settled(settings, gate, seen) and not backs_off(gate, seen.at):
        if len(recent_starts(settings, gate, seen.at)) >= settings.most_starts:
            yield Event.LATCH, _too_many(settings, gate, recent_starts(settings, gate, seen.at))
        yield Event.PROVEN, "every proof has held for the settle time"


def _too_many(settings: GateSettings, gate: Gate, starts: tuple[float, ...]) -> str:
    """When they were, and how the last of them ended."""
    times = ", ".join(f"{datetime.fromtimestamp(wall, UTC):%Y-%m-%dT%H:%M:%SZ}" for wall in starts)
    what = f"{len(starts)} starts within {settings.window_seconds / 3600:g} h came to nothing, or hardware was lost after them: {times}"
    last = f"the last that came to nothing: {gate.start_said}" if gate.start_said else ""
    return "; ".join(filter(None, (what, last, f"`xidwatch gate --reset {gate.unit}` has it proven and started anew")))


def against(gate: Gate, seen: Seen) -> str:
    """What keeps it from being proven; "" when nothing does."""
    if seen.overridden:
        return "opened by hand: nothing is proven, and nothing started by xidwatch, until that is over"
    unit = seen.unit
    said: tuple[str, ...] = ()
    if unit is not None and unit.moves:
        said = (f"its unit is {unit.moves}",)
    elif unit is not None and unit.processes is None:
        said = ("not known: whether processes of its last run are still there",)
    elif unit is not None and unit.processes:
        said = (f"{unit.processes} of its processes are still there: {survivors(gate) or 'they outlived the stop'}",)
    return "; ".join((*seen.lost, *said, *seen.unclear))


def _has_settled(settings: GateSettings, gate: Gate, seen: Seen) -> bool:
    """As seen at two ticks at least."""
    if seen.proofs_lacking != () or seen.unit is None or gate.holds_since is None:
        return False
    return seen.at.mono - gate.holds_since.mono >= settings.settle_seconds and seen.at != gate.holds_since


def backs_off(gate: Gate, at: Moment) -> bool:
    """Longer than it can last is the word of a clock that has been set back."""
    return 0 < gate.not_before - at.wall <= LONGEST_BACK_OFF_SECONDS


def _lost_twice(gate: Gate, seen: Seen) -> str:
    """Two losses of one parent while there was work, and not a word of proof that could tell a supply from a good one."""
    recent = [loss for loss in gate.losses if loss.parent and abs(seen.at.wall - loss.wall) < LOSSES_SECONDS]
    same = [loss for loss in recent if loss.parent == recent[-1].parent]
    if len(same) < 2:
        return ""
    minutes = abs(same[-1].wall - same[-2].wall) / 60
    what = f"what hangs on {seen.parent_name or same[-1].parent} was lost twice under load, {minutes:.0f} min apart"
    return f"{what}; no idle host can prove its supply: mend that first, then `xidwatch gate --reset {gate.unit}`"


def recent_starts(settings: GateSettings, gate: Gate, at: Moment) -> tuple[float, ...]:
    """Those that count, within the window; a clock that was set back takes none away."""
    return tuple(wall for wall in gate.starts if abs(at.wall - wall) < settings.window_seconds)
