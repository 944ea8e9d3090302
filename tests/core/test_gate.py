"""The table of the gate: every state by every event, and what is remembered on the way."""

from __future__ import annotations

from dataclasses import replace

import pytest

from xidwatch.core import gate
from xidwatch.core.gate import TABLE, Effect
from xidwatch.core.gate_events import LONGEST_BACK_OFF_SECONDS, Event, Seen, Unit, survivors
from xidwatch.core.gate_model import Gate, GateSettings, GateState, Lease, Loss
from xidwatch.core.model import Moment

ADOPTING, RUNNING, STOPPING, HELD, PROVING, STARTING, OFF, LATCHED = GateState
SETTINGS = GateSettings("vllm.service", settle_seconds=60.0, back_off_seconds=60.0, most_starts=3, window_seconds=3600.0)
BOOT = "boot-a"
SINCE = Moment(1_789_610_000.0, 5_000.0)
NOW = Moment(1_789_610_030.0, 5_030.0)
LEASE = Lease("a-000007", Moment(1_789_610_900.0, 5_900.0))
LOST = ("ConfigSpaceAllOnes port:0000:0f:00.0",)
DOWN, RUNS, OTHER_RUN = Unit(runs=False), Unit(runs=True, invocation_id="run-1"), Unit(runs=True, invocation_id="run-2")


def standing(state: GateState, **changes: object) -> Gate:
    """A gate in this state, as it usually is there."""
    usual: dict[GateState, dict[str, object]] = {
        ADOPTING: {"owed": False},
        STOPPING: {"asked": "a-000006"},
        PROVING: {"holds_since": replace(SINCE, mono=4_900.0)},
        STARTING: {"lease": LEASE},
        OFF: {"by_itself": True},
    }
    known = {"boot_id": BOOT, "invocation_id": "run-1", "why": "before", **usual.get(state, {}), **changes}
    return Gate("vllm.service", state, SINCE, **known)  # type: ignore[arg-type]


def seen(unit: Unit | None = None, **changes: object) -> Seen:
    """What is seen of it now."""
    return Seen(NOW, BOOT, unit, **changes)  # type: ignore[arg-type]


# What makes an event happen, with what the gate has to be like for it.
HAPPENS: dict[Event, tuple[Seen, dict[str, object]]] = {
    Event.RESET: (seen(reset_by="alice"), {}),
    Event.FORBIDDEN: (seen(Unit(runs=False, forbidden="its unit is masked")), {}),
    Event.UP_LOST: (seen(RUNS, lost=LOST), {"asked": "a-000006"}),
    Event.TAKEN: (seen(OTHER_RUN, lost=LOST), {}),
    Event.UP: (seen(RUNS), {}),
    Event.UP_ANEW: (seen(OTHER_RUN), {}),
    Event.DOWN_LOST: (seen(Unit(runs=False, how="ended", enabled=True), lost=LOST), {}),
    Event.OWED: (seen(Unit(runs=False, how="stopped", processes=1)), {"owed": True}),
    Event.SKIPPED: (seen(Unit(runs=False, how="skipped", processes=1)), {}),
    Event.STOPPED: (seen(Unit(runs=False, how="stopped", processes=1)), {}),
    Event.ENDED: (seen(Unit(runs=False, how="ended", processes=1)), {}),
    Event.IDLE: (seen(Unit(runs=False, on_demand=True, processes=1), is_well=True), {}),
    Event.EVIDENCE: (seen(), {"asked": ""}),
    Event.CALLED_OFF: (seen(overridden=True), {"asked": ""}),
    Event.STOP_OVER: (seen(stop_result=("ok", "", ())), {}),
    Event.AGAIN: (seen(Unit(runs=False, processes=1)), {"ask_after": NOW.wall - 1.0}),
    Event.LATCH: (
        seen(DOWN, proofs_lacking=(), stop_result=("ok", "", ())),
        {"losses": (Loss(NOW.wall - 60.0, "0000:00/03.1"), Loss(NOW.wall - 5.0, "0000:00/03.1"))},
    ),
    Event.DOUBT: (seen(DOWN, unclear=("not known: GpuLost gpu:0000:11:00.0",)), {}),
    Event.CLEAR: (seen(DOWN), {"holds_since": None}),
    Event.PROVEN: (seen(DOWN, proofs_lacking=()), {}),
    Event.READY: (seen(start_result=("ready", "", "run-2")), {}),
    Event.NOT_READY: (seen(start_result=("failed", "exit code 1", "")), {}),
    Event.NOT_READY_UP: (seen(start_result=("not-ready", "no answer", "run-2")), {}),
}

# Where each of these leads from each state: itself where nothing is said. In the order of the states.
LEADS_TO: dict[Event, dict[GateState, GateState]] = {
    Event.RESET: {LATCHED: HELD},
    Event.FORBIDDEN: {ADOPTING: OFF, RUNNING: OFF, HELD: OFF, PROVING: OFF},
    Event.UP_LOST: {ADOPTING: STOPPING, RUNNING: STOPPING, HELD: STOPPING, PROVING: STOPPING, STARTING: STOPPING},
    Event.TAKEN: {ADOPTING: STOPPING, RUNNING: STOPPING, HELD: OFF, PROVING: OFF, STARTING: STOPPING},
    Event.UP: {ADOPTING: RUNNING, HELD: RUNNING, PROVING: RUNNING, OFF: RUNNING},
    Event.UP_ANEW: {ADOPTING: RUNNING, HELD: RUNNING, PROVING: RUNNING, OFF: RUNNING},
    Event.DOWN_LOST: {ADOPTING: HELD, RUNNING: HELD, PROVING: HELD, STARTING: STOPPING, OFF: HELD},
    Event.OWED: {ADOPTING: HELD, RUNNING: OFF, PROVING: HELD},
    Event.SKIPPED: {ADOPTING: HELD, RUNNING: HELD, PROVING: HELD, OFF: HELD},
    Event.STOPPED: {ADOPTING: OFF, RUNNING: OFF, PROVING: HELD},
    Event.ENDED: {ADOPTING: OFF, RUNNING: OFF, PROVING: HELD},
    Event.IDLE: {ADOPTING: OFF, PROVING: HELD},
    Event.EVIDENCE: {},
    Event.CALLED_OFF: {STOPPING: HELD, PROVING: HELD},
    Event.STOP_OVER: {STOPPING: HELD},
    Event.AGAIN: {PROVING: HELD},
    Event.LATCH: {STOPPING: LATCHED, HELD: LATCHED, PROVING: LATCHED},
    Event.DOUBT: {PROVING: HELD},
    Event.CLEAR: {HELD: PROVING},
    Event.PROVEN: {HELD: PROVING, PROVING: STARTING},
    Event.READY: {STARTING: RUNNING},
    Event.NOT_READY: {STARTING: HELD},
    Event.NOT_READY_UP: {STARTING: STOPPING},
}


@pytest.mark.parametrize("event", Event)
@pytest.mark.parametrize("state", GateState)
def test_every_state_by_every_event(state: GateState, event: Event) -> None:
    """Where it leads, and that nothing is stopped or started but on the way that is meant for it."""
    happened, needs = HAPPENS[event]
    after, effect = gate.step(SETTINGS, standing(state, **needs), happened)
    assert after.state is LEADS_TO[event].get(state, state)
    if after.state is STOPPING and effect is Effect.STOP:
        assert state is not STOPPING or not standing(state, **needs).asked
    assert (effect is Effect.START) == (state is PROVING and after.state is STARTING)


def test_the_table_has_no_row_for_nothing() -> None:
    """Every event leads somewhere from some state, every state but the ones of the operator is left by itself."""
    assert {event for _, event in TABLE} == set(Event)
    left = {state for (state, _), (after, _) in TABLE.items() if after is not state}
    assert left == set(GateState)
    assert [(event, after) for (state, event), (after, _) in TABLE.items() if state is LATCHED and after is not LATCHED] == [
        (Event.RESET, HELD)
    ]


def test_only_one_row_starts_anything() -> None:
    """And it comes from PROVING."""
    assert [key for key, (_, effect) in TABLE.items() if effect is Effect.START] == [(PROVING, Event.PROVEN)]
    stops = [key for key, (_, effect) in TABLE.items() if effect is Effect.STOP]
    assert stops == [(STOPPING, Event.EVIDENCE), (HELD, Event.AGAIN), (LATCHED, Event.AGAIN)]


def test_starting_is_left_by_itself() -> None:
    """With nobody's word the lease ends it."""
    late = replace(seen(), at=LEASE.until)
    after, effect = gate.step(SETTINGS, standing(STARTING), late)
    assert (after.state, effect, after.lease, after.relapses) == (STOPPING, Effect.STOP, None, 1)


def test_the_back_off_doubles_up_to_an_hour() -> None:
    """60 s, 120 s, 240 s and so on; a success forgets them."""
    held, waits = standing(STARTING), []
    for _ in range(9):
        held, _ = gate.step(SETTINGS, replace(held, state=STARTING, lease=LEASE), seen(start_result=("failed", "", "")))
        waits.append(held.not_before - NOW.wall)
    assert waits == [60.0, 120.0, 240.0, 480.0, 960.0, 1920.0, 3600.0, 3600.0, 3600.0]
    runs, _ = gate.step(SETTINGS, replace(held, state=STARTING, lease=LEASE), seen(start_result=("ready", "", "run-3")))
    assert (runs.relapses, runs.invocation_id, runs.lease) == (0, "run-3", None)


def test_a_clock_that_is_set_back_locks_nobody_out() -> None:
    """A back-off is never longer than its longest, whatever the wall clock says."""
    proven = seen(DOWN, proofs_lacking=())
    waits = standing(PROVING, not_before=NOW.wall + 30.0)
    assert gate.step(SETTINGS, waits, proven)[0].state is PROVING
    set_back = standing(PROVING, not_before=NOW.wall + LONGEST_BACK_OFF_SECONDS + 1.0)
    assert gate.step(SETTINGS, set_back, proven)[0].state is STARTING


def test_starts_are_counted_in_their_window() -> None:
    """One that lies further back counts no more."""
    old, recent = NOW.wall - 3601.0, NOW.wall - 1800.0
    proven = seen(DOWN, proofs_lacking=())
    started, _ = gate.step(SETTINGS, standing(PROVING, starts=(old, recent, recent)), proven)
    assert (started.state, started.starts) == (STARTING, (recent, recent, NOW.wall))
    latched, effect = gate.step(SETTINGS, standing(PROVING, starts=(recent, recent, recent)), proven)
    assert (latched.state, effect) == (LATCHED, Effect.NOTHING)
    assert "--reset vllm.service" in latched.why
    assert latched.why.count("2026-09-17T01:23:") == 3  # when they were


def test_a_start_that_has_come_to_something_counts_no_more() -> None:
    """Nor one whose run a successor finds; until hardware is lost within the window after it."""
    early, own = NOW.wall - 1800.0, NOW.wall - 60.0
    ready = seen(start_result=("ready", "", "run-2"))
    runs, _ = gate.step(SETTINGS, standing(STARTING, starts=(early, own), start_said="start: failed"), ready)
    assert (runs.state, runs.starts, runs.served, runs.start_said) == (RUNNING, (early,), own, "")
    found, _ = gate.step(SETTINGS, standing(ADOPTING, starts=(early, own), owed=True), seen(OTHER_RUN))
    assert (found.state, found.starts, found.served) == (RUNNING, (early,), own)
    lost, _ = gate.step(SETTINGS, runs, seen(lost=LOST, evidence_due=True))
    assert (lost.state, lost.starts, lost.served) == (STOPPING, (early, own), 0.0)
    later = Moment(own + 3601.0, NOW.mono + 3600.0)
    long_after, _ = gate.step(SETTINGS, runs, replace(seen(lost=LOST, evidence_due=True), at=later))
    assert (long_after.state, long_after.starts) == (STOPPING, (early,))


def test_one_that_another_condition_refuses_says_so() -> None:
    """The gate was open for it. What latches it in the end says it too."""
    refused = seen(start_result=("refused", "its own condition said no", ""))
    held, _ = gate.step(SETTINGS, standing(STARTING, starts=(NOW.wall,)), refused)
    assert (held.state, held.starts) == (HELD, (NOW.wall,))
    assert "an ExecCondition of the unit other than the gate's?" in held.why
    proven = replace(standing(PROVING, starts=(NOW.wall,) * 3), start_said=held.start_said)
    latched, _ = gate.step(SETTINGS, proven, seen(DOWN, proofs_lacking=()))
    assert latched.state is LATCHED
    assert held.why in latched.why
    late, _ = gate.step(SETTINGS, standing(STARTING), replace(refused, at=LEASE.until))
    assert "other than the gate's" not in late.why  # which had closed again


def test_one_tick_is_no_proof() -> None:
    """However short the settle time is."""
    hasty = replace(SETTINGS, settle_seconds=0.0)
    first, effect = gate.step(hasty, standing(PROVING, holds_since=None), seen(DOWN, proofs_lacking=()))
    assert (first.state, effect) == (PROVING, Effect.NOTHING)
    assert gate.step(hasty, first, replace(seen(DOWN, proofs_lacking=()), at=Moment(NOW.wall + 1.0, NOW.mono + 1.0)))[1] is Effect.START


def test_a_loss_grows_to_what_it_took() -> None:
    """The first line names a card; a moment later it is the switch."""
    busy = standing(RUNNING, busy_wall=NOW.wall - 20.0)
    first, _ = gate.step(SETTINGS, busy, seen(lost=LOST, parent="0000:00/03.1/00.0/08.0/00.0", evidence_due=True))
    assert [loss.parent for loss in first.losses] == ["0000:00/03.1/00.0/08.0/00.0"]
    wider, _ = gate.step(SETTINGS, first, seen(lost=LOST, parent="0000:00/03.1/00.0", evidence_due=True))
    assert [loss.parent for loss in wider.losses] == ["0000:00/03.1/00.0"]
    other, _ = gate.step(SETTINGS, wider, seen(lost=LOST, parent="0000:00/01.1", evidence_due=True))
    assert other.losses == wider.losses


def test_a_reset_forgets_what_was_counted() -> None:
    """It has to be proven like any other, and no old loss latches it again."""
    loss = Loss(NOW.wall, "0000:00/03.1")
    latched = standing(LATCHED, starts=(NOW.wall,), losses=(loss, loss), relapses=4, not_before=NOW.wall + 900.0)
    after, _ = gate.step(SETTINGS, latched, seen(reset_by="alice"))
    assert (after.state, after.starts, after.losses, after.relapses, after.not_before) == (HELD, (), (), 0, 0.0)


@pytest.mark.parametrize(
    ("before", "same_boot", "next_boot"),
    [
        (ADOPTING, ADOPTING, ADOPTING),
        (RUNNING, ADOPTING, ADOPTING),
        (STOPPING, HELD, HELD),
        (HELD, HELD, HELD),
        (PROVING, HELD, HELD),
        (STARTING, ADOPTING, ADOPTING),
        (OFF, OFF, ADOPTING),
        (LATCHED, LATCHED, LATCHED),
    ],
)
def test_what_a_new_run_takes_over(before: GateState, same_boot: GateState, next_boot: GateState) -> None:
    """Nothing is open, leased or proven since it once was."""
    for boot_id, expected in ((BOOT, same_boot), ("boot-b", next_boot)):
        after = gate.restored(standing(before), boot_id)
        assert after.state is expected
        assert (after.lease, after.asked, after.holds_since) == (None, "", None)


def test_what_is_to_be_looked_at_after_maintenance() -> None:
    """Everything but what was held or latched."""
    after = {state: gate.after_maintenance(standing(state), NOW).state for state in GateState}
    changed = {RUNNING: ADOPTING, STOPPING: HELD, PROVING: HELD, STARTING: ADOPTING, OFF: ADOPTING}
    assert after == {state: changed.get(state, state) for state in GateState}
    assert gate.after_maintenance(standing(STARTING), NOW).owed


def test_a_stop_nobody_speaks_of_is_over_one_day() -> None:
    """The gate waits for nobody without bound; what is still there shows in its control group."""
    after, _ = gate.step(SETTINGS, standing(STOPPING), replace(seen(), at=Moment(NOW.wall + 1200.0, NOW.mono + 1200.0)))
    assert after.state is HELD
    assert "nobody has said" in after.why


SURVIVES = (Unit(runs=False, processes=1), replace(RUNS, processes=1))  # processes that systemd is done with, and a run whose stop failed


@pytest.mark.parametrize("state", [HELD, LATCHED])
@pytest.mark.parametrize("left", SURVIVES)
def test_what_outlived_the_stop_is_asked_again_less_and_less_often(state: GateState, left: Unit) -> None:
    """First five minutes after the stop, then after ten, twenty, forty and every hour, eight times in all; and that is said."""
    now, asked = standing(state, ask_after=NOW.wall + 300.0, leftovers=("process 101 (VLLM::Worker) state S",)), []
    for minute in range(600):
        at = Moment(NOW.wall + 60.0 * minute, NOW.mono + 60.0 * minute)
        now, effect = gate.step(SETTINGS, now, replace(seen(left), at=at, unclear=("not known: GpuLost gpu:0000:11:00.0",)))
        if now.state is not state:  # whoever runs on hardware that nobody speaks against is let run
            assert (state, left.runs) == (HELD, True)
            return
        if effect is Effect.STOP:
            asked.append(minute)
    assert asked == [5, 15, 35, 75, 135, 195, 255, 315]
    assert "process 101 (VLLM::Worker) state S, asked again to end (8 of 8 times); they are not asked any more" in survivors(now)


def test_what_is_nobodys_survivor_is_not_asked() -> None:
    """Another run is somebody else's, so is what an operator has opened; without a stop of ours nothing has survived one."""
    due = standing(LATCHED, ask_after=NOW.wall - 1.0)
    left = Unit(runs=False, processes=1)
    assert gate.step(SETTINGS, due, seen(left))[1] is Effect.STOP
    for happened in (seen(OTHER_RUN), seen(left, overridden=True), seen(), seen(DOWN), seen(Unit(runs=False, processes=None))):
        assert gate.step(SETTINGS, due, happened)[1] is Effect.NOTHING
    assert gate.step(SETTINGS, replace(due, ask_after=0.0), seen(left))[1] is Effect.NOTHING


def test_who_has_gone_at_last_is_left_behind_no_more() -> None:
    """By the word of the stop that asked again, or when the control group is empty."""
    latched = standing(LATCHED, ask_after=NOW.wall + 300.0, leftovers=("101", "102"))
    assert gate.step(SETTINGS, latched, seen(stop_result=("leftovers", "", ("102",))))[0].leftovers == ("102",)
    assert gate.step(SETTINGS, latched, seen(DOWN))[0].leftovers == ()
