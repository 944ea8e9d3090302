"""Engines in the watch: what each gate sees, and what is asked of the daemon because of it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.core.engine_story import ENGINE, GENTLE, SETTINGS, START, STOP, UNIT, Night, card, moves, orders, unit
from tests.core.story import GPU, GPUS, SWITCH, asked, dumps, xid
from xidwatch.core import gate_view
from xidwatch.core.gate_model import GateMoved, GateSettings, GateState
from xidwatch.core.messages import EngineStopped
from xidwatch.core.model import Action, ActionKind, Missing, Subject, Value
from xidwatch.core.supervision import unit as read_unit

ADOPTING, RUNNING, STOPPING, HELD, PROVING, STARTING, OFF, LATCHED = GateState


def test_the_night_and_the_morning() -> None:
    """Hardware goes, the evidence is written, the engine is stopped; the host comes back whole, is proven, and the engine is started."""
    night = Night()
    assert night.at is RUNNING
    lost = night.lose_switch().look()
    assert moves(lost) == [(RUNNING, STOPPING)]
    assert len(dumps(lost)) == 1
    assert orders(lost) == []  # the evidence first
    assert orders(night.dumped()) == [STOP]
    assert moves(night.stopped()) == [(STOPPING, HELD)]
    assert "ConfigSpaceAllOnes" in night.gate.why
    night.ticks(20)
    assert night.at is HELD  # as long as it is gone

    morning = night.again(new_boot=True)
    morning.mended().name_all()
    outputs = morning.settle()
    assert orders(outputs) == [START]
    assert morning.gate.lease is not None
    assert moves(morning.started()) == [(STARTING, RUNNING)]
    assert morning.gate.invocation_id == "run-2"
    morning.ticks(3)
    assert morning.at is RUNNING


def test_a_start_is_written_down_before_it_is_asked_for() -> None:
    """The move into STARTING with its lease, then the action that names it."""
    night = Night().lose_and_stop().mended()
    outputs = [output for output in night.settle() if isinstance(output, GateMoved | Action)]
    moved, action = outputs
    assert isinstance(moved, GateMoved)
    assert isinstance(action, Action)
    assert (action.kind, action.cause) == (ActionKind.START_ENGINE, moved.id)
    assert moved.gate.lease is not None
    assert moved.gate.lease.action == action.id


def test_a_stop_names_the_move_that_it_follows_from() -> None:
    """Which was written when the hardware was lost; the stop waits for the evidence."""
    night = Night()
    night.lose_switch()
    (moved,) = [output for output in night.look() if isinstance(output, GateMoved)]
    (action,) = [output for output in night.dumped() if isinstance(output, Action)]
    assert (action.kind, action.cause) == (ActionKind.STOP_ENGINE, moved.id)


def test_three_cards_of_four_are_not_enough() -> None:
    """After a reboot one is missing: whatever the others say, nothing is started."""
    morning = Night().lose_and_stop().again(new_boot=True)
    morning.mended().take_out(GPUS[3])
    morning.name_all()
    assert orders(morning.ticks(20)) == []
    assert morning.at is HELD
    assert "GpuMissing" in morning.gate.why


def test_a_kernel_line_is_enough() -> None:
    """An Xid that takes a GPU away, between two ticks and before anybody has looked at the unit again."""
    night = Night()
    assert moves(night.kernel(xid(GPU, 79))) == [(RUNNING, STOPPING)]


@pytest.mark.parametrize("number", [13, 31, 43, 45, 94])
def test_application_xids_stop_nothing(number: int) -> None:
    """They are the engine's own doing, or nobody's."""
    night = Night()
    assert moves(night.kernel(xid(GPU, number, "some application error")) + night.ticks(3)) == []


def test_an_injected_line_stops_nothing() -> None:
    """Trust only the kernel."""
    assert moves(Night().kernel(xid(GPU, 79), facility=1)) == []


def test_not_knowing_stops_nothing_and_starts_nothing() -> None:
    """Readings that did not come are no loss, and no proof."""
    night = Night()
    for gpu in GPUS:
        night.set(gpu, dict.fromkeys(("config_dword0", "nvml_status", "command"), Missing.TIMED_OUT))
    assert moves(night.ticks(5)) == []
    night.mend()
    held = Night().lose_and_stop().mended()
    held.set(GPU, {"config_dword0": Missing.TIMED_OUT})
    assert orders(held.ticks(20)) == []


@pytest.mark.parametrize(
    ("quantity", "value"),
    [
        ("nvml_status", Missing.TIMED_OUT),
        ("power_limit_watts", Missing.NOT_ASKED),
        ("temperature_celsius", 95),
        ("link_width", 8),
        ("recovery_action", 1),
        ("compute_pids", "4711"),
        ("compute_pids", Missing.TIMED_OUT),
    ],
)
def test_one_proof_that_does_not_hold_is_enough(quantity: str, value: Value) -> None:
    """With the reason in the gate's words; once it holds the start follows."""
    night = Night(replace(SETTINGS, power_limit_watts=250.0)).lose_and_stop().mended()
    night.set(GPU, {quantity: value})
    assert orders(night.ticks(12)) == []
    assert str(GPU) in night.gate.why
    night.set(GPU, card(compute_pids="", link_width=16, nvml_status=0))
    assert orders(night.settle()) == [START]


def test_a_proof_has_to_hold_for_the_settle_time() -> None:
    """A lapse in between and it begins anew, later than before."""
    night = Night(replace(SETTINGS, settle_seconds=120.0)).lose_and_stop().mended()
    night.ticks(4)
    assert night.at is PROVING
    night.set(GPU, {"nvml_status": Missing.TIMED_OUT})
    assert (PROVING, HELD) in moves(night.tick())
    night.set(GPU, {"nvml_status": 0})
    assert night.gate.relapses == 1
    assert night.gate.not_before > night.now.wall
    began = night.now.mono
    assert orders(night.settle(20)) == [START]
    assert night.now.mono - began >= 120.0


def test_a_new_xid_puts_the_start_off() -> None:
    """Whatever it says: the GPU has to be quiet for the settle time."""
    night = Night().lose_and_stop().mended()
    night.ticks(2)
    night.kernel(xid(GPU, 31, "MMU fault"))
    assert orders(night.tick()) == []
    assert orders(night.settle()) == [START]


def test_without_an_accepted_baseline_nothing_is_proven() -> None:
    """And what to do about it is said."""
    night = Night(accepted=False).lose_and_stop().mended()
    night.name_all()
    assert orders(night.ticks(10)) == []
    assert night.at is HELD
    assert "check --accept" in night.gate.why


def test_nothing_is_proven_while_the_driver_is_not_asked() -> None:
    """After a driver-fatal Xid, until it is loaded anew."""
    night = Night()
    night.kernel(xid(GPU, 79))
    night.dumped()
    night.stopped()
    assert night.state.driver_released
    assert orders(night.ticks(10)) == []
    night.mended()
    assert orders(night.settle(12)) == [START]


def test_a_unit_that_systemd_left_out_is_started_when_the_gate_opens() -> None:
    """Systemd tries a skipped unit no second time."""
    night = Night(runs=False)
    night.unit("inactive", result="exec-condition")
    assert moves(night.tick())[-1][1] is HELD
    assert orders(night.settle()) == [START]


def never_run(file_state: Value, *, accepted: bool = True) -> Night:
    """A boot in which nobody has started it yet."""
    morning = Night(accepted=accepted, runs=False).again(new_boot=True)
    morning.readings[ENGINE] = unit("inactive", unit_file_state=file_state, state_seconds=Missing.ABSENT)
    morning.name_all()
    return morning


@pytest.mark.parametrize("file_state", ["static", "linked", "indirect", "generated"])
@pytest.mark.parametrize("accepted", [True, False])
def test_a_unit_that_only_people_start_is_theirs_to_start(file_state: str, *, accepted: bool) -> None:
    """Systemd unloads it as soon as its condition has said no: that it was left out is never seen."""
    night = never_run(file_state, accepted=accepted)
    assert moves(night.ticks(2)) == [(ADOPTING, OFF)]
    assert gate_view.may_start(night.gate, (), None, night.now) is True
    assert orders(night.ticks(10)) == []
    night.unit(unit_file_state=file_state)
    assert moves(night.tick()) == [(OFF, RUNNING)]


def test_nobody_may_start_it_before_its_hardware_is_known_to_be_well() -> None:
    """Neither on what is lost nor on what is not known."""
    night = never_run("static")
    night.set(GPU, {"config_dword0": Missing.TIMED_OUT})
    assert moves(night.ticks(4)) == []
    night.lose_switch()
    assert moves(night.ticks(4)) == []
    assert night.at is ADOPTING
    assert moves(night.mended().ticks(12)) == [(ADOPTING, OFF)]


@pytest.mark.parametrize("file_state", ["enabled", Missing.TIMED_OUT])
def test_one_that_starts_with_the_host_is_waited_for(file_state: Value) -> None:
    """As is one of which nobody knows whether it does."""
    night = never_run(file_state)
    assert moves(night.ticks(4)) == []
    assert night.at is ADOPTING


def test_a_unit_that_is_just_asking_whether_it_may_start_does_not_run() -> None:
    """A tick in the middle of its condition must not open the gate that it asks."""
    night = Night().lose_and_stop()
    night.unit("activating", sub_state="condition")
    assert moves(night.tick() + night.seen()) == []
    assert night.at is HELD


@pytest.mark.parametrize("file_state", ["disabled", "masked"])
def test_a_unit_that_is_switched_off_is_never_started(file_state: str) -> None:
    """Whoever did that meant it."""
    night = Night().lose_and_stop().mended()
    night.unit("inactive", unit_file_state=file_state)
    assert orders(night.ticks(10)) == []
    assert night.at is OFF
    night.unit("inactive", unit_file_state=file_state, result="exec-condition")
    assert moves(night.ticks(4)) == []  # not to and fro


def test_what_somebody_stops_stays_stopped_and_what_he_starts_runs() -> None:
    """Hands off, and said so."""
    night = Night()
    night.unit("inactive")
    assert moves(night.tick()) == [(RUNNING, OFF)]
    assert night.gate.why == "somebody else has stopped it"
    assert orders(night.ticks(10)) == []
    night.unit(invocation_id="run-7")
    assert moves(night.tick()) == [(OFF, RUNNING)]
    assert night.gate.why == "it runs, started by somebody else"


def test_what_ends_by_itself_is_for_systemd_unless_the_hardware_explains_it() -> None:
    """Workers die before anybody knows of the loss: then it is held, and comes back."""
    night = Night()
    night.unit("failed", result="exit-code")
    assert moves(night.tick()) == [(RUNNING, OFF)]
    assert moves(night.lose_switch().tick()) == [(OFF, HELD)]
    night.mended()
    assert orders(night.settle(10)) == [START]
    late = Night()
    late.unit("failed", result="exit-code")
    late.ticks(8)
    assert moves(late.lose_switch().tick()) == []


def test_who_starts_it_on_lost_hardware_is_left_alone() -> None:
    """The operator's word is above the gate's; also at the next look, and until he stops it or the hardware is back."""
    night = Night().lose_and_stop()
    night.unit(invocation_id="run-9")
    assert moves(night.tick()) == [(HELD, OFF)]
    assert "left alone" in night.gate.why
    assert orders(night.ticks(5)) == []
    night.mended().unit(invocation_id="run-9")
    assert moves(night.ticks(4)) == [(OFF, RUNNING)]


def test_a_stop_that_failed_is_tried_again_and_is_no_second_loss() -> None:
    """The same run is still there: nobody meant it to be."""
    night = Night().works()
    night.lose_switch().look()
    night.dumped()
    night.give(EngineStopped(night.wait(1.0).now, UNIT, night.gate.asked, "failed", "systemctl did not answer"))
    assert night.at is HELD
    assert orders(night.tick()) == [STOP]
    assert len(night.gate.losses) == 1


def test_what_outlived_the_stop_keeps_it_down() -> None:
    """Systemd would start a second engine beside them; with their names, until they are gone, and asked to end once more."""
    night = Night()
    night.lose_switch().look()
    night.dumped()
    night.stopped("leftovers", ("101 VLLM::Worker D nvidia_poll",))
    night.mended()
    assert orders(night.ticks(9)) == []
    assert "VLLM::Worker" in night.gate.why
    assert orders(night.ticks(3)) == [STOP]
    night.stopped("leftovers", ("101 VLLM::Worker D nvidia_poll",))
    assert orders(night.ticks(3)) == []
    assert "asked again to end (1 of 8 times)" in night.gate.why
    night.unit("inactive")
    assert orders(night.settle()) == [START]
    assert night.gate.leftovers == ()


def test_a_control_group_nobody_can_see_is_not_empty() -> None:
    """What did not come is never 0."""
    night = Night().lose_and_stop().mended()
    night.unit("inactive", processes=Missing.DENIED)
    assert orders(night.ticks(10)) == []
    assert "not known: whether processes" in night.gate.why


def test_the_second_loss_of_one_switch_under_load_is_for_the_operator() -> None:
    """Whichever card was named first: idle proof is no proof of a supply. Only the reset leaves it, also across a reboot."""
    night = Night().works()
    night.kernel(xid(GPUS[0], 79))
    night.lose_switch().look()
    night.dumped()
    night.stopped()
    night.mended()
    night.settle(12)
    night.started()
    night.works()
    night.kernel(xid(GPUS[2], 79))
    night.lose_switch().look()
    night.dumped()
    night.stopped()
    assert night.at is LATCHED
    morning = night.again(new_boot=True)
    morning.mended().name_all()
    morning.ticks(10)
    assert morning.at is LATCHED
    assert moves(morning.reset()) == [(LATCHED, HELD)]
    assert orders(morning.settle()) == [START]


def latched(leftovers: tuple[str, ...]) -> Night:
    """Lost twice under load, and these have outlived the second stop."""
    night = Night().works()
    night.lose_and_stop().mended().settle(12)
    night.started()
    night.works().lose_switch().look()
    night.dumped()
    night.stopped("leftovers", leftovers)
    assert night.at is LATCHED
    return night


def test_what_outlived_the_stop_of_one_that_is_latched_is_asked_again_too() -> None:
    """It stays latched, and what is left is on record as the last stop has named it; never while somebody works on the host."""
    night = latched(("process 101", "process 102"))
    night.maintenance(3600.0)
    assert orders(night.ticks(20)) == []
    night.maintenance(None)
    assert orders(night.ticks(2)) == [STOP]
    night.stopped("leftovers", ("process 102",))
    assert (night.at, night.gate.leftovers) == (LATCHED, ("process 102",))
    assert night.gate.why.startswith("what hangs on")
    later = night.again()
    assert orders(later.ticks(25)) == [STOP]
    assert later.gate.asked_again == 2


def test_the_stand_in_is_asked_when_it_is_the_one_that_is_left() -> None:
    """And not the unit in whose place it ran."""
    night = latched(("process 101",))
    night.settings = replace(night.settings, after_incident_unit=GENTLE)
    later = night.again()
    later.unit("inactive")
    later.readings[Subject("engine", GENTLE)] = unit("inactive", processes=1)
    assert orders(later.ticks(20)) == [(ActionKind.STOP_ENGINE, GENTLE)]


def test_two_losses_at_rest_latch_nothing() -> None:
    """Only what happened under load says something of a supply."""
    night = Night()
    for run in ("run-2", "run-3"):
        night.lose_and_stop().mended()
        assert orders(night.settle(12)) == [START]
        night.started(run=run)
        night.ticks(8)
    assert night.at is RUNNING


def test_more_starts_than_the_window_allows_latch_it() -> None:
    """Three that fail, and no fourth."""
    night = Night(replace(SETTINGS, back_off_seconds=1.0, window_seconds=36000.0)).lose_and_stop().mended()
    for _ in range(3):
        assert orders(night.settle(12)) == [START]
        night.started("failed")
        assert night.at is HELD
    assert orders(night.ticks(12)) == []
    assert night.at is LATCHED


def test_reboots_and_new_runs_latch_no_engine_that_always_comes_up() -> None:
    """Five of them within an hour of maintenance."""
    night = Night(replace(SETTINGS, window_seconds=36000.0))
    for run in range(5):
        night = night.again(new_boot=True)
        night.unit("inactive", result="exec-condition").mended().name_all()
        assert orders(night.settle(12)) == [START]
        night = night if run % 2 else night.again()  # a run that ends while it starts
        if run % 2:
            night.started(run=f"run-{run}")
        night.unit(invocation_id=f"run-{run}").ticks(2)
        assert (night.at, night.gate.starts) == (RUNNING, ())


def test_starts_that_hardware_loss_follows_latch_it() -> None:
    """Though each of them was ready: three, and no fourth."""
    night = Night(replace(SETTINGS, window_seconds=36000.0))
    for run in ("run-2", "run-3", "run-4"):
        night.lose_and_stop().mended()
        assert orders(night.settle(12)) == [START]
        night.started(run=run)
        night.ticks(4)
    night.lose_and_stop().mended()
    assert orders(night.ticks(12)) == []
    assert night.at is LATCHED


def test_hardware_lost_while_it_starts_stops_it() -> None:
    """Though its unit may not even be up: the start is under way."""
    night = Night().lose_and_stop().mended()
    night.settle()
    lost = night.lose_switch().tick()
    assert moves(lost) == [(STARTING, STOPPING)]
    assert night.gate.lease is None


def test_one_that_runs_and_does_not_answer_is_stopped_and_counts() -> None:
    """It must become ready inside its deadline."""
    night = Night().lose_and_stop().mended()
    night.settle()
    outputs = night.started("not-ready")
    assert moves(outputs) == [(STARTING, STOPPING)]
    assert orders(outputs) == [STOP]
    assert night.gate.relapses == 1


def test_a_start_nobody_speaks_of_is_over_with_its_lease() -> None:
    """The gate waits for nobody without bound."""
    night = Night(replace(SETTINGS, ready_seconds=60.0)).lose_and_stop().mended()
    night.settle()
    night.ticks(5)
    assert night.at in (STOPPING, HELD)
    assert night.gate.relapses == 1


def test_an_answer_to_an_older_question_moves_nothing() -> None:
    """Only the action that was asked for is answered."""
    night = Night()
    night.lose_switch().look()
    night.dumped()
    assert moves(night.give(EngineStopped(night.now, UNIT, "a-000001", "ok"))) == []


def test_evidence_that_never_ends_is_not_waited_for_for_ever() -> None:
    """Within two ticks the engine is stopped anyhow."""
    night = Night()
    night.lose_switch().look()
    assert orders(night.ticks(3)) == [STOP]


def test_in_maintenance_nothing_moves_and_afterwards_all_is_looked_at_anew() -> None:
    """Cards are swapped under a running engine: no edge is acted on, no dump taken; what is still lost then is acted on."""
    night = Night()
    night.maintenance(1800.0)
    lost = night.lose_switch().look() + night.ticks(3)
    assert moves(lost) == []
    assert orders(lost) == []
    assert moves(night.maintenance(None)) == [(RUNNING, ADOPTING)]
    assert moves(night.tick()) == [(ADOPTING, STOPPING)]


def test_a_latch_can_be_reset_in_maintenance() -> None:
    """The card has been swapped just then."""
    night = Night().lose_and_stop()
    night.state = replace(night.state, gates={UNIT: replace(night.gate, state=LATCHED)})
    night.maintenance(1800.0)
    assert moves(night.reset()) == [(LATCHED, HELD)]


def test_opened_by_hand_nothing_of_ours_interferes() -> None:
    """Nothing is stopped, nothing started, until that is over."""
    night = Night()
    night.open_by_hand(UNIT)
    assert orders(night.lose_switch().look() + night.ticks(3)) == []
    held = Night().lose_and_stop().mended()
    held.open_by_hand(UNIT)
    assert orders(held.ticks(10)) == []
    held.open_by_hand()
    assert orders(held.settle()) == [START]


def test_after_an_incident_the_gentler_unit_is_started_and_later_stopped() -> None:
    """It is supervised like the other, and the gate keeps one name."""
    night = Night(replace(SETTINGS, after_incident_unit=GENTLE)).lose_and_stop().mended()
    other = replace(ENGINE, name=GENTLE)
    night.readings[other] = unit("inactive", unit_file_state="disabled")
    assert orders(night.settle()) == [(ActionKind.START_ENGINE, GENTLE)]
    night.readings[other] = unit(invocation_id="run-g", unit_file_state="disabled")
    night.started(run="run-g")
    night.unit("inactive")
    night.ticks(2)
    assert night.at is RUNNING
    night.lose_switch().look()
    assert orders(night.dumped()) == [(ActionKind.STOP_ENGINE, GENTLE)]


def test_the_loss_of_another_engines_gpu_stops_nothing_here() -> None:
    """Each engine stands on its own GPUs, the ports above them, and the driver."""
    night = Night(GateSettings(UNIT, gpus=(GPUS[0].name,)))
    night.set(GPUS[3], {"nvml_status": 15})
    assert moves(night.ticks(2)) == []
    night.set(GPUS[0], {"nvml_status": 15})
    assert moves(night.tick()) == [(RUNNING, STOPPING)]


# ------------------------------------------------------------------------------------------------- one run after another


def test_a_successor_stops_what_its_predecessor_was_stopping() -> None:
    """Once more, for nobody knows how far that came; when the first look shows that it is the same run."""
    night = Night()
    night.lose_switch().look()
    night.dumped()
    later = night.again()
    assert later.at is HELD
    assert orders(later.out) == []
    outputs = later.tick()
    assert moves(outputs) == [(HELD, STOPPING)]
    assert orders(outputs) == [STOP]


@pytest.mark.parametrize(("active", "then"), [("active", RUNNING), ("inactive", HELD), ("failed", HELD)])
def test_a_successor_adopts_a_start_or_counts_it(active: str, then: GateState) -> None:
    """Whether or not it came to pass it used up its lease; the engine is not forgotten."""
    night = Night().lose_and_stop().mended()
    night.settle()
    after = night.again()
    assert after.gate.lease is None
    after.unit(active, **({"invocation_id": "run-2"} if active == "active" else {}))
    assert moves(after.tick()) == [(ADOPTING, then)]
    assert after.gate.relapses == (0 if then is RUNNING else 1)


def test_an_engine_that_ran_before_the_host_went_down_is_held_when_a_card_is_missing() -> None:
    """Nobody had the time to write down that it was to be stopped."""
    morning = Night().again(new_boot=True)
    morning.unit("inactive", state_seconds=Missing.ABSENT)
    morning.take_out(GPUS[3])
    assert moves(morning.tick()) == [(ADOPTING, HELD)]


def test_its_gpus_are_known_after_a_reboot_too() -> None:
    """What was found is of one boot; where that was is remembered, whatever the buses are called now."""
    night = Night(replace(SETTINGS, gpus="found"))
    assert [place.rpartition("/")[0][-4:] for place in night.gate.gpus] == ["08.0", "09.0", "0a.0", "0b.0"]
    only = Night(replace(SETTINGS, gpus="found"))
    for gpu in GPUS[1:]:
        only.set(gpu, {"compute_pids": ""})
    only.readings[ENGINE] = unit(invocation_id="run-5", metrics_status=200)
    only.ticks(2)
    assert len(only.gate.gpus) == 1
    morning = only.again(new_boot=True)
    morning.take_out(GPUS[3])
    morning.readings[ENGINE] = unit(invocation_id="run-6")
    morning.tick()
    assert morning.at is RUNNING  # the missing card is none of its own


def test_a_gpu_that_it_never_had_for_itself_may_be_in_use() -> None:
    """Who computed there beside it is no leftover of it."""
    night = Night()
    night.set(GPU, {"compute_pids": "100 101 9000"})
    night.tick()
    night.lose_and_stop().mended()
    night.set(GPU, {"compute_pids": "9000"})
    assert orders(night.settle()) == [START]


def test_a_container_without_a_name_is_no_stranger() -> None:
    """Its processes are in no group of the unit's: while it runs they pass for nobody else's, and what is left of it is a leftover."""
    night = Night()
    night.unit(starts_container=1)
    for gpu in GPUS:
        night.set(gpu, {"compute_pids": "9000"})
    night.tick()
    assert night.gate.shared == ()
    night.lose_and_stop().mended()
    night.set(GPU, {"compute_pids": "9000"})
    assert orders(night.ticks(8)) == []
    assert "process 9000 is still on it" in night.gate.why
    night.set(GPU, {"compute_pids": ""})
    assert orders(night.settle()) == [START]


# ---------------------------------------------------------------------------------------------------------- small things


def test_a_host_without_engines_has_no_gates() -> None:
    """And nothing is done for their sake."""
    night = Night()
    night.state = replace(night.state, gates={}, engines=())
    assert moves(night.lose_switch().look() + night.ticks(2)) == []


def test_a_flood_of_lines_records_one_move() -> None:
    """What is told of a gate is told when it changes."""
    night = Night()
    told = [output for _ in range(50) for output in night.kernel(xid(GPU, 79)) if isinstance(output, GateMoved)]
    assert len(told) == 1


@pytest.mark.parametrize(
    ("values", "runs", "how"),
    [
        (unit(), True, ""),
        (unit("reloading"), True, ""),
        (unit("activating", sub_state="auto-restart"), False, ""),
        (unit("inactive"), False, "stopped"),
        (unit("inactive", state_seconds=Missing.ABSENT), False, ""),
        (unit("inactive", result="exec-condition"), False, "skipped"),
        (unit("failed", result="signal"), False, "ended"),
        (unit("inactive", result="exit-code"), False, "ended"),
    ],
)
def test_what_systemd_says_of_a_unit(values: dict[str, Value], *, runs: bool, how: str) -> None:
    """Whether it runs, and if not, whose doing that is."""
    found = read_unit(values)
    assert found is not None
    assert (found.runs, found.how) == (runs, how)


def test_a_unit_systemd_says_nothing_of_is_not_down() -> None:
    """No answer is no state."""
    assert read_unit(dict.fromkeys(unit(), Missing.TIMED_OUT)) is None
    assert read_unit({}) is None
    gone = read_unit(unit("inactive", load_state="not-found"))
    assert gone is not None
    assert gone.forbidden == "systemd says of its unit: not-found"


def test_nothing_is_asked_of_a_look() -> None:
    """A look at the bus while all is well moves no gate."""
    night = Night()
    assert asked(night.look(SWITCH), ActionKind.STOP_ENGINE) == []


def test_a_stop_and_a_start_name_the_move_that_they_follow_from() -> None:
    """By the id of a record that is written before them."""
    night = Night()
    outputs = [*night.lose_switch().look(), *night.dumped()]
    night.stopped()
    outputs += night.mended().settle()
    acts = [each for each in outputs if isinstance(each, Action) and each.kind in {ActionKind.STOP_ENGINE, ActionKind.START_ENGINE}]
    assert [each.kind for each in acts] == [ActionKind.STOP_ENGINE, ActionKind.START_ENGINE]
    for act in acts:
        before = outputs[: outputs.index(act)]
        assert act.cause in {each.id for each in before if isinstance(each, GateMoved)}


def test_a_stand_in_of_which_nothing_is_known_may_run() -> None:
    """Systemd does not say how it is: the engine beside it is neither taken for stopped nor started on the same GPUs."""
    night = Night(replace(SETTINGS, after_incident_unit=GENTLE))
    other = replace(ENGINE, name=GENTLE)
    night.unit("inactive", result="exec-condition")
    night.set(other, unit(invocation_id="run-g"))
    for gpu in GPUS:
        night.set(gpu, {"compute_pids": Missing.UNSUPPORTED})
    night.ticks(3)
    assert night.at is RUNNING
    night.set(other, dict.fromkeys(night.readings[other], Missing.TIMED_OUT))
    assert orders(night.ticks(12)) == []
    assert night.at is RUNNING


def test_an_engine_whose_processes_are_not_told_shares_no_gpu_because_of_that() -> None:
    """The look at systemd that fails as the host goes down would waive the proof that nobody is left on the GPUs."""
    night = Night()
    night.set(ENGINE, dict.fromkeys(night.readings[ENGINE], Missing.TIMED_OUT))
    night.tick()
    assert night.gate.shared == ()
    night.unit()
    night.lose_and_stop().mended()
    night.set(GPU, {"compute_pids": "101"})  # left by it, in no control group any more
    assert orders(night.ticks(12)) == []
    assert "still on it" in night.gate.why


def test_a_stop_that_a_run_before_this_one_has_not_carried_out_meets_nobody_else() -> None:
    """The daemon was killed while the evidence was written; the operator has mended the host and started the engine since."""
    night = Night()
    night.lose_switch().look()
    assert night.at is STOPPING
    night.mended().unit(invocation_id="theirs")
    later = night.again()
    assert orders(later.ticks(3)) == []
    assert later.at in (RUNNING, OFF)


def test_what_an_operator_has_started_by_order_is_his_after_the_order_too() -> None:
    """Also in the boot after the incident: the end of the order stops nothing that it let start."""
    morning = Night().lose_and_stop().again(new_boot=True)
    morning.mended().take_out(GPUS[3]).wait(0.0)
    morning.name_all()
    morning.ticks(3)
    assert morning.at is HELD
    morning.open_by_hand(UNIT)
    morning.unit(invocation_id="theirs")
    morning.ticks(3)
    assert morning.at is OFF
    assert "left alone" in morning.gate.why
    assert moves(morning.open_by_hand() + morning.ticks(5)) == []


def test_a_card_that_is_gone_is_not_the_one_that_has_its_number_now() -> None:
    """The buses move as one card fails to come back: an engine on its neighbour, found under the old number of the other, goes on."""
    for gone, used in ((GPUS[0], GPUS[1]), (GPUS[3], GPUS[2])):
        night = Night(GateSettings(UNIT))
        for gpu in set(GPUS) - {used}:
            night.set(gpu, {"compute_pids": ""})
        morning = night.again(new_boot=True)
        morning.readings = {**morning.readings, gone: morning.readings[used]}
        morning.take_out(used)
        morning.readings[ENGINE] = unit(invocation_id="run-2")
        others = {gpu: {"uuid": f"GPU-{gpu.name}", "serial": Missing.UNSUPPORTED} for gpu in set(GPUS) - {gone, used}}
        morning.inventory({**others, gone: {"uuid": f"GPU-{used.name}", "serial": Missing.UNSUPPORTED}})
        assert moves(morning.ticks(5)) == [(ADOPTING, RUNNING)]
        assert orders(morning.out) == []


def test_all_are_as_many_as_it_last_ran_on() -> None:
    """After a reboot one card is bound to another driver: three of four are not all, until an operator lets it run on them."""
    morning = Night().lose_and_stop().again(new_boot=True)
    morning.mended().name_all()
    morning.set(GPUS[3], {"driver": "vfio-pci", **dict.fromkeys(("nvml_status", "temperature_celsius"), Missing.ABSENT)})
    assert orders(morning.ticks(10)) == []
    assert str(GPUS[3]) in morning.gate.why
    morning.open_by_hand(UNIT)
    morning.unit(invocation_id="theirs").ticks(2)
    assert morning.at is RUNNING
    assert len(morning.gate.gpus) == 3
