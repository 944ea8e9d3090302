"""The watch and its predecessor: what is on record is known, what was acted on is not acted on again."""

from __future__ import annotations

from dataclasses import replace

from tests.core.story import DISK, DRIVER, GPU, GPUS, RULES, SWITCH, UVM_FATAL, Story, asked, bad, closed, dumps, edges, opened, xid
from xidwatch.core import watch
from xidwatch.core.messages import DumpFailed, Opened, Output, Restored
from xidwatch.core.model import Action, ActionKind, Condition, Missing, Moment, Severity, Status
from xidwatch.core.watch import State

T, F, U = Status.TRUE, Status.FALSE, Status.UNKNOWN


def the_night() -> Story:
    """Xid 79 on all four, the switch gone, NVML not asked any more."""
    story = Story()
    story.ticks(3)
    story.kernel(*(xid(gpu, 79) for gpu in GPUS), UVM_FATAL)
    story.lose_switch()
    for gpu in GPUS:
        story.set(gpu, {"nvml_status": Missing.NOT_ASKED})
    story.look()
    story.ticks(2)
    return story


def retell(story: Story) -> list[Output]:
    """The ring from its beginning, as the successor reads it."""
    story.seq -= 5
    return story.kernel(*(xid(gpu, 79) for gpu in GPUS), UVM_FATAL, history=True)


def test_a_restart_fires_no_old_edge_again() -> None:
    """History is counted and not acted on; the driver stays released; ticks find all as it was."""
    after = the_night().restart()
    assert after.state.driver_released
    assert retell(after) == []
    out = after.ticks(3)
    assert not any(isinstance(output, Opened | Action) for output in out)
    assert not bad(out)
    assert after.state.driver_released
    for gpu in GPUS:
        assert after.status(gpu, "DriverFatalXid") is T
        assert after.status(gpu, "GpuLost") is T
    assert after.state.tally.totals == {(gpu.pci, 79): 1 for gpu in GPUS}


def test_record_numbers_go_on_after_a_restart() -> None:
    """No id is given twice."""
    before = the_night()
    after = before.restart()
    assert after.state.next_id == before.state.next_id


def test_a_verdict_outlives_the_kernels_ring() -> None:
    """The lines have been overrun since, so history says nothing: the driver is not healthy for that."""
    after = the_night().restart()
    after.ticks(5)
    assert after.status(GPU, "DriverFatalXid") is T
    assert after.status(DRIVER, "DriverFatalXid") is T
    assert {after.status(gpu, "GpuLost") for gpu in GPUS} == {T}
    assert after.state.driver_released
    assert closed(after.out) == []


def test_a_loss_that_is_only_remembered_ends_when_the_driver_answers_for_the_gpu() -> None:
    """It was reset while nobody watched, and no line of this run's says that it is lost."""
    story = Story()
    story.ticks(2)
    story.set(GPU, {"nvml_status": 16}).tick()
    after = story.restart()
    after.set(GPU, {"nvml_status": Missing.TIMED_OUT}).ticks(3)
    assert after.status(GPU, "GpuLost") is T
    after.set(GPU, {"nvml_status": 0}).ticks(4)
    assert after.status(GPU, "GpuLost") is F
    assert after.state.incident is None


def test_a_line_that_comes_after_a_restart_is_live() -> None:
    """History ends where the journal does."""
    story = Story()
    story.ticks(3)
    after = story.restart()
    out = after.kernel(xid(GPU, 79))
    assert len(opened(out)) == len(dumps(out)) == 1


def test_a_line_before_the_first_tick_makes_nothing_unknown_that_was_known() -> None:
    """Nothing has been read in this run yet: only what the line itself says is judged."""
    after = the_night().restart()
    out = after.kernel(xid(GPU, 79))
    assert edges(out) == []
    assert after.status(GPU, "GpuLost") is T
    assert after.status(SWITCH, "ConfigSpaceAllOnes") is T


def test_what_was_cleared_before_the_restart_stays_cleared() -> None:
    """A driver that was renewed and has answered is not accused by lines about its predecessor."""
    story = Story()
    story.ticks(3)
    story.kernel(xid(GPU, 79))
    story.renew_driver()
    story.ticks(4)
    assert story.state.incident is None
    after = story.restart()
    assert after.kernel(xid(GPU, 79), history=True) == []
    assert edges(after.ticks(3)) == []
    assert not after.state.driver_released
    assert after.status(GPU, "DriverFatalXid") is F


def test_a_gpu_still_lost_under_a_fresh_driver_does_not_condemn_that_driver() -> None:
    """Each verdict stands or falls by itself: lost is not driver-fatal."""
    story = Story()
    story.ticks(3)
    story.kernel(xid(GPU, 79))
    story.renew_driver()
    story.ticks(4)
    story.set(GPU, {"nvml_status": 15}).tick()
    assert (story.status(GPU, "GpuLost"), story.status(GPU, "DriverFatalXid")) == (T, F)
    after = story.restart()
    after.kernel(xid(GPU, 79), history=True)
    out = after.ticks(3)
    assert asked(out, ActionKind.RELEASE_DRIVER) == []
    assert after.status(GPU, "DriverFatalXid") is F


def test_an_old_bad_condition_of_a_thing_that_is_gone_becomes_unknown() -> None:
    """Nobody reports it any more; it is not bad for ever because it was last seen so."""
    story = Story()
    story.ticks(2)
    story.set(DISK, {"config_dword0": 0xFFFFFFFF}).tick()
    after = story.restart()
    del after.readings[DISK]
    after.tick()
    assert after.status(DISK, "ConfigSpaceAllOnes") is U


# ------------------------------------------------------------------------------------------------------------ a new boot


def test_after_a_reboot_everything_is_unknown_and_the_incident_is_open() -> None:
    """Nothing has been looked at; NVML may be asked, for the driver is a new one. The host is no better than its incident."""
    after = the_night().restart(new_boot=True)
    assert {tracked.condition.status for tracked in after.state.conditions.values()} == {U}
    assert after.state.incident is not None
    assert not after.state.driver_released
    assert after.verdict == "failed"


def test_after_a_reboot_only_evidence_closes_the_incident() -> None:
    """Each member has to be seen to be good for its time."""
    after = the_night().restart(new_boot=True)
    after.mend()
    for gpu in GPUS:
        after.set(gpu, {"nvml_status": Missing.TIMED_OUT})
    assert closed(after.ticks(10)) == []
    after.mend()
    out = after.ticks(3)
    assert len(closed(out)) == 1
    assert after.verdict == "healthy"


def test_a_loss_after_the_reboot_is_dumped_although_the_incident_is_still_open() -> None:
    """60 minutes later the same happens again: the first dump is of another boot and says nothing about it."""
    after = the_night().restart(new_boot=True)
    after.mend().set(DISK, {"config_dword0": Missing.TIMED_OUT})
    after.ticks(1)
    out = after.wait(20).kernel(xid(GPU, 79))
    assert opened(out) == []
    assert len(dumps(out)) == 1
    assert dumps(after.wait(30).kernel(xid(GPUS[1], 79))) == []


def test_after_a_reboot_nothing_learnt_before_is_expected() -> None:
    """Buses may have been renumbered; it is learnt anew once the incident is over."""
    after = the_night().restart(new_boot=True)
    assert after.state.expected == {}
    after.mend().ticks(5)
    assert after.state.incident is None
    assert GPU in after.state.expected


def test_a_rule_that_is_gone_takes_its_conditions_along() -> None:
    """An upgrade leaves nothing behind that nobody would ever judge again."""
    moment = Moment(1.0, 1.0)
    held = {
        (GPU, type_): Condition(GPU, type_, T, moment, "") for type_ in ("OldRule", "ProbeStuck", "GpuLost")
    }  # ProbeStuck is about probes, not GPUs
    state, out = watch.step(RULES, State(), Restored(held, None, 7, {}))
    assert set(state.conditions) == {(GPU, "GpuLost")}
    assert out == ()


def test_views_show_every_condition_with_its_rule() -> None:
    """For the state file and the metrics."""
    story = the_night()
    shown = {(condition.subject, condition.type): rule.severity for condition, rule in watch.conditions_with_severity(RULES, story.state)}
    assert shown[GPU, "GpuLost"] is Severity.CRITICAL
    assert len(shown) == len(story.state.conditions)


def test_ids_outside_a_step_come_from_the_same_count() -> None:
    """Outcomes and notes are numbered with everything else."""
    state, first = watch.next_id(State(), "o")
    _, second = watch.next_id(state, "r")
    assert (first, second) == ("o-000001", "r-000002")


def test_an_incident_whose_dump_was_never_asked_for_gets_it_from_the_successor() -> None:
    """The run that opened it was killed between the edge and the action: the evidence of now is better than none."""
    before = the_night()
    incident = before.state.incident
    assert incident is not None
    before.state = replace(before.state, incident=replace(incident, dumps=0, last_dump=None))
    after = before.restart()
    (dump,) = dumps(after.tick())
    assert (dump.incident, dump.cause) == (incident.id, incident.trigger)
    assert not dumps(after.ticks(3))


def test_a_dump_that_failed_is_asked_for_again() -> None:
    """The disk was full at the edge and has room now; samples and kernel lines are still in memory."""
    story = the_night()
    incident = story.state.incident
    assert incident is not None
    story.give(DumpFailed(incident.id))
    (again,) = dumps(story.tick())
    assert (again.incident, again.cause) == (incident.id, incident.trigger)
    assert not dumps(story.ticks(3))


def test_a_dump_of_an_incident_that_is_over_is_not_asked_for_again() -> None:
    """Its failure is on record; the next incident is another story."""
    story = the_night()
    story.give(DumpFailed("20260101T000000Z-gpu-lost-11"))
    assert not dumps(story.tick())
