"""Recovery by itself: what is switched on is done once, in its order, and never while anything speaks against it."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from itertools import pairwise

import pytest

from tests.core.engine_story import BOOT, ENGINE, SETTINGS, UNIT, Night, unit
from tests.core.story import ALL_ONES, DISK, DOWNSTREAM, DRIVER, GPU, GPUS, REBOOT_ASKED, RULES, SWITCH, UVM_FATAL, asked, xid
from xidwatch.core import recovering
from xidwatch.core.gate_model import GateSettings, GateState
from xidwatch.core.messages import GatesOpened, Output, RecoveryEnded, Supervised
from xidwatch.core.model import Action, ActionKind, Missing, Status, Subject
from xidwatch.core.recovery_model import LEFT, Attempt, RecoverySettings, RecoveryStep

RESCAN, SLOT_POWER, GPU_RESET, MODULE_RELOAD, REBOOT = RecoveryStep
EVERYTHING = tuple(RecoveryStep)
WAIT, AFTER, WINDOW = 120.0, 900.0, 86400.0
OTHER = GateSettings("other.service", gpus=(GPUS[1].name,))


class Morning(Night):
    """A night with steps switched on."""

    def __init__(self, *steps: RecoveryStep, attempts: tuple[Attempt, ...] = (), knows_past: bool = True) -> None:
        super().__init__()
        self.switch_on(*steps, attempts=attempts, knows_past=knows_past)

    def switch_on(self, *steps: RecoveryStep, attempts: tuple[Attempt, ...] = (), knows_past: bool = True, other: bool = False) -> None:
        """As at the start of a run."""
        engines = (SETTINGS, OTHER) if other else (SETTINGS,)
        settings = RecoverySettings(steps, WAIT, AFTER, WINDOW)
        given = Supervised(self.now, self.boot_id, engines, tuple(self.state.gates.values()), recovery=settings, attempts=attempts)
        self.give(replace(given, knows_past=knows_past))
        self.tick()

    def lose_card(self, card: Subject = GPU, number: int = 79) -> Morning:
        """One falls off the bus, the engine is stopped, and what is on the bus answers again."""
        self.kernel(xid(card, number))
        self.dumped()
        self.stopped()
        return self

    def steps(self, seconds: float = WAIT + 60.0) -> list[Action]:
        """What is asked for within so long."""
        return [each for _ in range(int(seconds / 30.0)) for each in asked(self.tick(), ActionKind.RECOVER)]

    def ended(self, result: str = "failed", detail: str = "") -> list[Output]:
        """Whatever is under way is over."""
        return self.wait(1.0).give(RecoveryEnded(self.now, self.state.recovery.under_way, result, detail))

    def against(self, step: RecoveryStep) -> tuple[str, ...]:
        """What speaks against it now."""
        return next(each.against for each in recovering.outlooks(RULES, self.state, self.now) if each.step is step)


def named(actions: Iterable[Action]) -> list[tuple[str, str]]:
    return [(each.step, each.target) for each in actions]


# ------------------------------------------------------------------------------------------------------------ what is due


def test_nothing_is_switched_on_by_itself() -> None:
    """And then nothing is ever done, nor shown."""
    night = Morning()
    night.lose_card()
    assert night.steps(1800.0) == []
    assert recovering.outlooks(RULES, night.state, night.now) == ()


def test_a_lost_card_is_removed_and_scanned_for_once_the_driver_is_let_go() -> None:
    """After the wait, on record with what it is done to and for which incident."""
    night = Morning(RESCAN)
    night.lose_card()
    night.ticks(2)
    assert "waiting" in night.against(RESCAN)[-1]
    (step,) = night.steps()
    assert (step.step, step.target, step.incident) == (RESCAN, GPU.name, night.state.incident.id if night.state.incident else None)
    assert step.at.mono - night.gate.since.mono >= WAIT


def test_the_driver_is_let_go_first_where_it_is_still_asked() -> None:
    """A port that was reset says nothing of the driver, whose handles would keep a removal waiting for ever."""
    outputs = down_with_switch(Morning(RESCAN)).ticks(6)
    kinds = [each.kind for each in outputs if isinstance(each, Action)]
    assert kinds[-2:] == [ActionKind.RELEASE_DRIVER, ActionKind.RECOVER]
    assert asked(outputs, ActionKind.RECOVER)[0].target == SWITCH.name


def test_all_that_are_gone_are_scanned_for_together_and_a_switch_with_what_is_below_it() -> None:
    """Four cards with their switch well are four; when the switch is gone too it is one."""
    night = Morning(RESCAN)
    night.kernel(*(xid(gpu, 79) for gpu in GPUS))
    night.dumped()
    night.stopped()
    assert named(night.steps()) == [(RESCAN, " ".join(gpu.name for gpu in GPUS))]


def test_the_order_is_that_of_the_ladder_with_time_between_them() -> None:
    """Each gets its wait; what does not apply is passed over; the reboot is the last, and waits longer."""
    night = Morning(*EVERYTHING)
    night.set(GPU, {"slot": "4"})
    night.lose_card()
    taken: list[Action] = []
    while found := night.steps(1200.0):
        assert len(found) == 1, "one at a time"
        taken += found
        night.ended()
    assert [each.step for each in taken] == [RESCAN, SLOT_POWER, MODULE_RELOAD, REBOOT]
    assert [each.target for each in taken] == [GPU.name, "4", "nvidia", ""]
    assert all(after.at.mono - before.at.mono >= WAIT for before, after in pairwise(taken))
    assert taken[-1].at.mono - night.gate.since.mono >= AFTER


def test_a_card_on_the_bus_whose_driver_asks_for_it_is_reset() -> None:
    """One off the bus is not, for no driver reaches it."""
    night = Morning(GPU_RESET)
    night.kernel(xid(GPU, 119, "Timeout after 6s of waiting for RPC response from GPU0 GSP!"))
    night.dumped()
    night.stopped()
    assert named(night.steps()) == [(GPU_RESET, GPU.name)]
    gone = Morning(GPU_RESET)
    gone.lose_card()
    assert gone.steps() == []
    assert any("off the bus" in each for each in gone.against(GPU_RESET))


def test_a_driver_that_failed_as_a_whole_leaves_only_the_reboot() -> None:
    """Also where no device is gone."""
    night = Morning(*EVERYTHING)
    night.kernel(UVM_FATAL)
    night.dumped()
    night.stopped()
    assert night.status(DRIVER, "DriverFatalXid") is Status.TRUE
    assert named(night.steps(2 * AFTER)) == [(REBOOT, "")]


def test_a_driver_that_asks_for_a_reboot_is_offered_nothing_less() -> None:
    """It is terminal for this boot."""
    night = Morning(*EVERYTHING)
    night.kernel(xid(GPU, 79), xid(GPU, 154, REBOOT_ASKED))
    night.dumped()
    night.stopped()
    assert named(night.steps(2 * AFTER)) == [(REBOOT, "")]


# -------------------------------------------------------------------------------------------------- what speaks against it


def in_maintenance(night: Morning) -> None:
    night.maintenance(36000.0)


def opened_by_hand(night: Morning) -> None:
    night.give(GatesOpened(night.now, frozenset({UNIT})))


def processes_left(night: Morning) -> None:
    night.set(ENGINE, {"processes": 1})


def processes_not_known(night: Morning) -> None:
    night.set(ENGINE, {"processes": Missing.DENIED})


def unit_not_known(night: Morning) -> None:
    night.set(ENGINE, {"active_state": Missing.TIMED_OUT})


def unit_starting(night: Morning) -> None:
    night.set(ENGINE, {"active_state": "activating"})


def silent(night: Morning) -> None:
    night.set(GPU, {"config_dword0": ALL_ONES})


def word_not_known(night: Morning) -> None:
    night.set(GPU, {"config_dword0": Missing.TIMED_OUT})


@pytest.mark.parametrize(
    ("happens", "said"),
    [
        (in_maintenance, "maintenance"),
        (opened_by_hand, "an operator has opened"),
        (processes_left, "is not down"),
        (processes_not_known, "not known whether vllm.service is down"),
        (unit_not_known, "not known whether vllm.service is down"),
        (unit_starting, "is not down"),
        (silent, "answers nothing"),
        (word_not_known, "not known whether"),
    ],
)
def test_nothing_is_done_while(happens: Callable[[Morning], None], said: str) -> None:
    """However long it lasts; and what speaks against it is said."""
    night = Morning(RESCAN)
    night.lose_card()
    happens(night)
    assert night.steps(1500.0) == []
    assert any(said in each for each in night.against(RESCAN))


def test_nothing_is_done_by_a_run_that_knows_no_past() -> None:
    """An earlier one may have done it."""
    night = Morning(*EVERYTHING, knows_past=False)
    night.lose_card()
    assert night.steps(1800.0) == []


def test_nothing_is_done_before_the_evidence_is_written() -> None:
    """A removal destroys what the driver could tell; should nobody ever say how the dump ended, it stays undone."""
    night = Morning(*EVERYTHING)
    night.kernel(xid(GPU, 79))
    night.ticks(4)
    night.stopped()
    assert night.at is GateState.HELD
    assert night.steps(1800.0) == []
    night.dumped()
    assert named(night.steps()) == [(RESCAN, GPU.name)]


def test_nothing_is_done_without_evidence() -> None:
    """A disk that refused it."""
    night = Morning(RESCAN)
    night.lose_card()
    assert night.state.incident is not None
    night.state = replace(night.state, incident=replace(night.state.incident, dumps=0), dumps=(night.now.wall,) * 99)
    assert "no evidence" in " ".join(night.against(RESCAN))


def test_a_latched_engine_is_left_to_its_operator() -> None:
    """It is latched because hands are needed."""
    night = Morning(*EVERYTHING)
    night.lose_card()
    night.state = replace(night.state, gates={UNIT: replace(night.gate, state=GateState.LATCHED)})
    assert night.steps(1800.0) == []
    assert night.against(RESCAN) == ("no engine is held for its hardware",)


def test_what_cannot_be_ended_leaves_only_the_reboot() -> None:
    """A removal would wait for it."""
    night = Morning(*EVERYTHING)
    night.kernel(xid(GPU, 79))
    night.dumped()
    night.stopped("leftovers", leftovers=("process 101 (VLLM::Worker) state D",))
    assert named(night.steps(2 * AFTER)) == [(REBOOT, "")]


def test_an_engine_beside_it_keeps_its_hardware_and_its_host() -> None:
    """Its own card may be removed while another engine works on another one; no reload, and no reboot; and not the switch above both."""
    night = Morning()
    night.switch_on(*EVERYTHING, other=True)
    other = Subject("engine", OTHER.unit)
    night.readings[other] = unit(invocation_id="run-7", pids="200")
    night.ticks(2)
    night.switch_on(*EVERYTHING, other=True)
    night.lose_card()
    assert night.state.gates[OTHER.unit].state is GateState.RUNNING
    assert named(night.steps()) == [(RESCAN, GPU.name)]
    night.ended()
    assert night.steps(1800.0) == []
    assert "other.service is not known to be down" in night.against(MODULE_RELOAD)
    assert "other.service is not known to be down" in night.against(REBOOT)
    night.readings[other] = unit("inactive")
    assert [each.step for each in night.steps()] == [MODULE_RELOAD]


def test_a_drive_elsewhere_that_is_gone_is_nobodys_business() -> None:
    """Only what an engine stands on."""
    night = Morning(*EVERYTHING)
    night.set(DISK, {"config_dword0": ALL_ONES})
    assert night.steps(1800.0) == []


def test_no_software_gives_power() -> None:
    """All ones below a link that is down: nothing is done, and no reboot either."""
    night = Morning(*EVERYTHING)
    night.set(DOWNSTREAM, {"link_width": 0})
    night.set(GPU, {"config_dword0": ALL_ONES, "link_width": Missing.DEVICE_LOST})
    night.ticks(2)
    night.dumped()
    night.stopped()
    assert night.steps(2 * AFTER) == []
    assert all(any("no software gives it power" in each for each in night.against(step)) for step in (RESCAN, MODULE_RELOAD, REBOOT))


def down_with_switch(night: Morning) -> Morning:
    """The switch has forgotten its configuration, and what is below it is silent."""
    night.set(SWITCH, {"command": 0, "secondary_bus": 0, "subordinate_bus": 0})
    for gpu in GPUS:
        night.set(gpu, {"config_dword0": ALL_ONES})
    night.ticks(2)
    night.dumped()
    night.stopped()
    return night


@pytest.mark.parametrize("word", [0x220410DE, Missing.TIMED_OUT])
def test_a_port_is_not_taken_off_the_bus_with_a_gpu_that_nobody_accuses(word: int | Missing) -> None:
    """Also where it is merely not known; whose engine it is does not matter."""
    night = down_with_switch(Morning(RESCAN))
    night.set(GPUS[2], {"config_dword0": word})
    night.ticks(3)
    assert night.steps(600.0) == []
    assert any(f"{GPUS[2].name} would go with it" in each for each in night.against(RESCAN))


def test_gpus_behind_a_silent_port_go_with_the_switch_above_it() -> None:
    """Nobody has asked them: nobody could have answered."""
    night = Morning(RESCAN)
    for gpu in GPUS:
        night.set(gpu, {"config_dword0": Missing.BEHIND_DEAD_PARENT})
    night.set(DOWNSTREAM, {"config_dword0": ALL_ONES})
    night.set(SWITCH, {"command": 0, "secondary_bus": 0, "subordinate_bus": 0})
    night.ticks(2)
    night.dumped()
    night.stopped()
    assert named(night.steps()) == [(RESCAN, SWITCH.name)]


def test_a_slot_is_that_of_what_is_gone() -> None:
    """Not of a card that works, for which the driver asks something."""
    night = Morning(SLOT_POWER)
    night.set(GPUS[1], {"slot": "4"})
    night.set(GPUS[0], {"slot": "3", "recovery_action": 4})
    night.lose_card(GPUS[1])
    assert all(each.target == "4" for each in night.steps(600.0))


def gone_since(night: Morning, happens: Callable[[Morning], None]) -> tuple[str, str]:
    """What speaks against a step once it is decided on, and once this has happened."""
    (step,) = night.steps()
    at_once = recovering.hindrance(RULES, night.state, step, night.now)
    happens(night)
    night.tick()
    return at_once, recovering.hindrance(RULES, night.state, step, night.now)


@pytest.mark.parametrize(
    ("happens", "said"),
    [
        (in_maintenance, "maintenance"),
        (opened_by_hand, "an operator has opened"),
        (processes_left, "is not down"),
        (unit_starting, "is not down"),
        (unit_not_known, "not known whether"),
    ],
)
def test_what_comes_up_while_a_decision_is_written_is_in_its_way(happens: Callable[[Morning], None], said: str) -> None:
    """Its own decision is not."""
    at_once, later = gone_since(Morning(RESCAN).lose_card(), happens)
    assert at_once == ""
    assert said in later


# ------------------------------------------------------------------------------------------------------------ at most once


@pytest.mark.parametrize("result", ["ok", "failed", "timeout", LEFT])
def test_once_in_a_boot_whatever_came_of_it(result: str) -> None:
    """Also when another card is lost afterwards, and when another run takes over."""
    night = Morning(RESCAN)
    night.lose_card()
    assert len(night.steps()) == 1
    night.ended(result)
    night.kernel(xid(GPUS[1], 79))
    night.dumped()
    assert night.steps(1800.0) == []
    night.switch_on(RESCAN, attempts=night.state.recovery.attempts)
    assert night.steps(1800.0) == []
    assert f"done in this boot ({result})" in night.against(RESCAN)


def test_once_in_a_boot_also_behind_a_latch_that_was_reset() -> None:
    """An operator gives the engine its starts back, and no step."""
    night = Morning(RESCAN)
    night.lose_card()
    assert len(night.steps()) == 1
    night.ended()
    night.state = replace(night.state, gates={UNIT: replace(night.gate, state=GateState.LATCHED)})
    night.reset()
    assert night.at is not GateState.LATCHED
    assert night.steps(1800.0) == []
    assert [each.step for each in night.state.recovery.attempts] == [RESCAN]


@pytest.mark.parametrize("state", sorted(set(GateState) - {GateState.HELD}))
def test_only_an_engine_that_is_held_is_a_reason(state: GateState) -> None:
    """And without an engine there is none."""
    night = Morning(*EVERYTHING)
    night.lose_card()
    night.state = replace(night.state, gates={UNIT: replace(night.gate, state=state)})
    assert night.against(RESCAN) == ("no engine is held for its hardware",)
    night.state = replace(night.state, engines=(), gates={})
    assert night.steps(1800.0) == []


def test_how_a_step_ended_that_nobody_heard_of_counts_as_done() -> None:
    """The run that took it was killed; the next waits until it cannot be under way any more, and goes on behind it."""
    night = Morning(RESCAN, MODULE_RELOAD)
    night.lose_card()
    (step,) = night.steps()
    attempts = (Attempt(step.step, step.id, step.at, BOOT, step.incident, step.target),)
    night.state = replace(night.state, recovery=replace(night.state.recovery, under_way=""))
    night.switch_on(RESCAN, MODULE_RELOAD, attempts=attempts)
    assert "done in this boot (how it ended is not on record)" in night.against(RESCAN)
    (later,) = night.steps(recovering.LONGEST_STEP_SECONDS + 60.0)
    assert later.step == MODULE_RELOAD
    assert later.at.mono - step.at.mono >= recovering.LONGEST_STEP_SECONDS


def test_one_at_a_time() -> None:
    """And while it is under way no engine is proven, nor started."""
    night = Morning(*EVERYTHING)
    night.lose_card()
    assert len(night.steps()) == 1
    night.mended()
    assert night.steps(1800.0) == []
    assert night.at is GateState.HELD
    assert "a step is under way" in night.gate.why


def test_what_was_refused_was_not_done_and_is_tried_later_and_later() -> None:
    """Somebody held the device."""
    night = Morning(RESCAN)
    night.lose_card()
    waits = []
    for _ in range(6):
        (step,) = night.steps(2 * recovering.LONGEST_PUT_OFF_SECONDS)[:1]
        night.ended("refused", "held by process 812 (python)")
        began = night.now.mono
        assert any("held by process 812" in each for each in night.against(RESCAN))
        while not asked(night.tick(), ActionKind.RECOVER):
            pass
        waits.append(night.now.mono - began)
        night.ended("refused", "held by process 812 (python)")
        assert step.step == RESCAN
    assert waits == sorted(waits)
    assert waits[0] >= recovering.FIRST_PUT_OFF_SECONDS
    assert waits[-1] <= recovering.LONGEST_PUT_OFF_SECONDS + 30.0


def test_what_cannot_be_done_here_is_not_tried_again_by_this_run() -> None:
    """The next has another sandbox, perhaps."""
    night = Morning(RESCAN)
    night.lose_card()
    night.steps()
    night.ended("unable", "the sandbox")
    assert night.steps(1800.0) == []
    assert night.against(RESCAN)[0] == "the sandbox"
    assert night.state.recovery.attempts == ()


def test_a_step_that_does_not_return_leaves_only_the_reboot() -> None:
    """It may hold the kernel's lock of all PCI devices."""
    night = Morning(*EVERYTHING)
    night.lose_card()
    night.steps()
    night.ended("timeout")
    assert [each.step for each in night.steps(2 * AFTER)] == [REBOOT]


def test_an_outcome_of_somebody_else_changes_nothing() -> None:
    """Of another action, or a second one."""
    night = Morning(RESCAN)
    night.lose_card()
    night.steps()
    night.give(RecoveryEnded(night.now, "a-000001", "ok"))
    assert night.state.recovery.under_way
    night.ended("failed")
    night.give(RecoveryEnded(night.now, night.state.recovery.attempts[0].action, "ok"))
    assert night.state.recovery.attempts[0].result == "failed"


# ---------------------------------------------------------------------------------------------------------- afterwards


def test_a_card_that_was_put_on_the_bus_anew_has_to_be_proven() -> None:
    """What the log said was of another; the driver is asked again, and until it answers nothing is known."""
    night = Morning(RESCAN)
    night.lose_card()
    night.steps()
    before = night.state
    night.ended("ok")
    assert (before.driver_released, night.state.driver_released) == (True, False)
    assert night.status(GPU, "GpuLost") is Status.UNKNOWN
    night.mended()
    assert night.settle()


def test_what_was_in_a_slot_that_was_off_has_to_be_proven_and_nobody_else() -> None:
    """A card elsewhere that the log has accused stands accused, and the driver is not asked beside it."""
    night = Morning(SLOT_POWER)
    night.set(GPU, {"slot": "4"})
    night.lose_card()
    night.steps()
    night.ended("ok")
    assert not night.state.driver_released
    both = Morning(SLOT_POWER)
    both.set(GPU, {"slot": "4"})
    both.lose_card()
    both.steps()
    both.kernel(xid(GPUS[1], 79))
    both.ended("ok")
    assert both.state.driver_released


@pytest.mark.parametrize("result", ["failed", "timeout", "refused", "unable"])
def test_a_step_that_did_not_help_gives_nobody_back_to_the_driver(result: str) -> None:
    """It stays released."""
    night = Morning(RESCAN)
    night.lose_card()
    night.steps()
    night.ended(result)
    assert night.state.driver_released
    assert night.status(GPU, "GpuLost") is Status.TRUE


# ------------------------------------------------------------------------------------------------------------ the reboot


def rebooted(night: Morning, boot: str, *, incident: str | None = None, ago: float = 0.0) -> tuple[Attempt, ...]:
    at = replace(night.now, wall=night.now.wall - ago)
    return (Attempt(REBOOT, "a-000009", at, boot, incident, "", "ok"),)


def held(*, attempts: Callable[[Morning], tuple[Attempt, ...]] = lambda _: ()) -> Morning:
    night = Morning()
    night.switch_on(REBOOT, attempts=attempts(night))
    night.lose_card()
    return night


def test_a_reboot_waits_until_the_engine_was_held_and_the_host_was_up_for_long_enough() -> None:
    """Somebody has to be able to log in on a host that would reboot again and again."""
    night = held()
    (step,) = night.steps(2 * AFTER)
    assert step.at.mono - night.gate.since.mono >= AFTER
    early = held()
    early.now = replace(early.now, mono=60.0)
    early.state = replace(early.state, gates={UNIT: replace(early.gate, since=replace(early.gate.since, mono=0.0))})
    assert early.steps(AFTER - 120.0) == []
    assert early.steps(AFTER)


@pytest.mark.parametrize("ago", [600.0, WINDOW - 7200.0, -3 * WINDOW])
def test_one_reboot_within_the_window(ago: float) -> None:
    """Also when the clock has been put back, and that one lies in the future."""
    night = held(attempts=lambda night: rebooted(night, "an-earlier-boot", ago=ago))
    assert night.steps(1500.0) == []
    assert any("rebooted within" in each for each in night.against(REBOOT))


def test_another_incident_beyond_the_window_may_have_its_reboot() -> None:
    """The guard is against a loop, and not for ever."""
    assert held(attempts=lambda night: rebooted(night, "an-earlier-boot", incident="old", ago=WINDOW + 1)).steps(2 * AFTER)


def test_one_reboot_for_an_incident_however_long_it_lasts() -> None:
    """It is the same incident after the boot, until all it was about is good."""
    night = held()
    assert night.state.incident is not None
    name = night.state.incident.id
    night.switch_on(REBOOT, attempts=rebooted(night, "an-earlier-boot", incident=name, ago=30 * WINDOW))
    assert night.steps(1800.0) == []
    assert "the host has been rebooted for this incident before" in night.against(REBOOT)


def test_after_the_word_to_reboot_nothing_else_is_done() -> None:
    """The host is on its way down."""
    night = Morning(*EVERYTHING)
    night.kernel(UVM_FATAL, xid(GPU, 79))
    night.dumped()
    night.stopped()
    assert [each.step for each in night.steps(2 * AFTER)] == [REBOOT]
    night.ended("ok")
    night.renew_driver()
    assert night.steps(1800.0) == []


@pytest.mark.parametrize("history", [False, True])
def test_what_only_a_reboot_undoes_is_heard_whenever_it_is_said(history: bool) -> None:
    """Behind the first line about a card, and by a successor that reads the log again; of the kernel only, not of a process."""
    night = Morning(*EVERYTHING)
    night.lose_card()
    night.kernel(xid(GPUS[3], 154, REBOOT_ASKED), facility=1)
    assert not night.state.recovery.terminal
    night.kernel(xid(GPUS[3], 154, REBOOT_ASKED), history=history)
    assert night.steps(WAIT + 60.0) == []
    assert any("less than a reboot does not help" in each for each in night.against(MODULE_RELOAD))


def test_a_card_that_is_not_listed_any_more_is_scanned_for_but_not_beside_one_that_is_silent() -> None:
    """The one has nothing to be removed; the other would be taken off the bus for nothing."""
    night = Morning(RESCAN)
    night.take_out(GPU)
    night.ticks(2)
    night.dumped()
    night.stopped()
    assert night.status(GPU, "GpuMissing") is Status.TRUE
    night.set(GPUS[1], {"config_dword0": ALL_ONES})
    assert night.steps() == []
    assert f"{GPUS[1].name} answers nothing, and a rescan finds only what answers" in night.against(RESCAN)
    night.mend(GPUS[1])
    assert len(night.steps(1800.0)) == 1
