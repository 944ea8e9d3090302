"""The watch, told as stories: what a night brings, what is decided, and in which order it is written down."""

from __future__ import annotations

import pytest

from tests.core.story import (
    ALL_ONES,
    BEHIND,
    DISK,
    DOWNSTREAM,
    DRIVER,
    EVENING,
    GPU,
    GPUS,
    NVML,
    REBOOT_ASKED,
    SILENT,
    SWITCH,
    UVM_FATAL,
    Story,
    asked,
    bad,
    closed,
    dumps,
    edges,
    gaps,
    learnt,
    opened,
    records,
    xid,
)
from xidwatch.core import incidents
from xidwatch.core.messages import KernelRecord, Opened, Output, Row
from xidwatch.core.model import Action, ActionKind, Missing, Moment, Severity, Status, Subject, Transition, Value

T, F, U, N = Status.TRUE, Status.FALSE, Status.UNKNOWN, Status.NOT_APPLICABLE


# ---------------------------------------------------------------------------------------------------------- quiet days


def test_a_quiet_day_brings_rows_and_nothing_else() -> None:
    """The first look is quiet, the baseline is learnt once, and then there is a row a tick."""
    story = Story()
    assert [type(output).__name__ for output in story.tick()] == ["Learnt", "Row"]
    assert all(isinstance(output, Row) for output in story.ticks(100))
    assert story.verdict == "healthy"
    assert story.state.incident is None


def test_a_row_holds_what_the_kernel_log_says_beside_what_the_probes_said() -> None:
    """One row, one place to look."""
    story = Story()
    story.kernel(xid(GPU, 31, "fault"), xid(GPU, 31, "fault"), "usb 1-1: new device")
    (row,) = (output for output in story.tick() if isinstance(output, Row))
    assert row.sample.readings[Subject("kernel")] == {
        "xid_lines_45s": 2, "xid_lines_since_last_tick": 2, "last_seq": 90_003, "gap_records": 0,
    }  # fmt: skip
    assert row.sample.readings[GPU] == story.readings[GPU]
    (row,) = (output for output in story.tick() if isinstance(output, Row))
    assert row.sample.readings[Subject("kernel")]["xid_lines_since_last_tick"] == 0


# ------------------------------------------------------------------------------------ the switch is lost, without a word


def test_a_switch_that_reads_all_ones_opens_one_incident_with_one_dump() -> None:
    """Named after the switch, dated between the last good tick and this one; what is behind it is unknown, not lost."""
    story = Story()
    story.ticks(3)
    last_good = story.now
    out = story.lose_switch().tick()
    (edge,) = bad(out)
    assert (edge.subject, edge.type, edge.severity) == (SWITCH, "ConfigSpaceAllOnes", Severity.CRITICAL)
    assert (edge.not_before, edge.at, edge.reason) == (last_good, story.now, "config_dword0 ffffffff")
    assert [begun.incident.id for begun in opened(out)] == [edge.incident] == ["20260917T015520Z-bus-lost-0f"]
    assert [(dump.cause, dump.incident) for dump in dumps(out)] == [(edge.id, edge.incident)]
    for below in (DOWNSTREAM, *GPUS):
        assert story.condition(below, "ConfigSpaceAllOnes").status is U
        assert story.condition(below, "ConfigSpaceAllOnes").missing is Missing.BEHIND_DEAD_PARENT
    assert story.status(DISK, "ConfigSpaceAllOnes") is F
    assert story.verdict == "failed"


def test_a_loss_that_lasts_is_told_once() -> None:
    """Nothing changes, so nothing is said, however many ticks it takes."""
    story = Story()
    story.ticks(2)
    story.lose_switch().tick()
    assert all(isinstance(output, Row) for output in story.ticks(200))


def test_the_topmost_thing_that_is_bad_gives_the_incident_its_name() -> None:
    """NVML calls the GPUs lost in the same tick in which the switch above them is gone."""
    story = Story()
    story.ticks(2)
    story.lose_switch()
    for gpu in GPUS:
        story.set(gpu, {"nvml_status": 15})
    out = story.tick()
    assert [edge.subject for edge in bad(out)] == [SWITCH, *GPUS]
    assert [begun.incident.id.partition("-")[2] for begun in opened(out)] == ["bus-lost-0f"]
    assert len(dumps(out)) == 1


def test_an_edge_is_written_before_what_follows_from_it() -> None:
    """Edge, incident, action, and the row last."""
    story = Story()
    story.tick()
    story.lose_switch()
    kinds = [type(output) for output in story.tick() if not (isinstance(output, Transition) and output.after is not T)]
    assert kinds == [Transition, Opened, Action, Row]


# ------------------------------------------------------------------------------------------------------------ the night


def the_night() -> tuple[Story, list[Output]]:
    story = Story()
    story.ticks(4)
    story.wait(8)
    before = len(story.out)
    for gpu in GPUS:
        story.wait(0.001).kernel(xid(gpu, 79))
    story.wait(0.2).kernel(*(xid(gpu, 154, REBOOT_ASKED) for gpu in GPUS), UVM_FATAL)
    return story, story.out[before:]


def test_four_lost_gpus_make_one_incident() -> None:
    """One dump, one order to let go of the driver, one look; every line is on record and every GPU is accused."""
    story, out = the_night()
    assert len(opened(out)) == 1
    assert len(dumps(out)) == 1
    assert len(asked(out, ActionKind.RELEASE_DRIVER)) == 1
    assert len(asked(out, ActionKind.LOOK)) == 1
    assert len(records(out)) == 9
    for gpu in GPUS:
        assert story.status(gpu, "GpuLost") is T
        assert story.status(gpu, "DriverFatalXid") is T
    assert story.status(DRIVER, "DriverFatalXid") is T
    assert story.state.driver_released
    assert {edge.incident for edge in bad(out)} == {opened(out)[0].incident.id}


def test_a_kernel_edge_has_an_instant_and_the_kernels_own_words() -> None:
    """No interval: the line says when."""
    story = Story()
    story.ticks(2)
    lost, fatal = bad(story.wait(3).kernel(xid(GPU, 79)))
    assert (lost.type, fatal.type) == ("GpuLost", "DriverFatalXid")
    assert lost.at == story.now
    assert lost.not_before is None
    assert lost.reason == "kernel: " + xid(GPU, 79)


def test_the_edges_are_written_first_then_the_line_then_what_is_done() -> None:
    """Each action names an edge that stands before it. The line comes behind its edges: on disk it means "dealt with"."""
    story = Story()
    story.tick()
    out = story.kernel(xid(GPU, 79))
    assert [type(output) for output in out] == [Transition, Opened, Action, Transition, KernelRecord, Action, Action]
    lost, fatal = bad(out)
    assert [(action.kind, action.cause) for action in out if isinstance(action, Action)] == [
        (ActionKind.TAKE_DUMP, lost.id),
        (ActionKind.LOOK, fatal.id),
        (ActionKind.RELEASE_DRIVER, fatal.id),
    ]


def test_an_action_follows_from_its_own_line_and_not_from_a_neighbours() -> None:
    """Two lines read at once: the loss of one GPU does not explain what is done about another event."""
    story = Story()
    story.tick()
    story.kernel(UVM_FATAL)
    repeated = story.wait(2).kernel(xid(GPU, 31, "fault"), UVM_FATAL)
    assert [action.cause for action in asked(repeated, ActionKind.LOOK)] == [f"seq-{story.seq}"]


def test_the_look_that_follows_shows_the_switch_and_joins() -> None:
    """A second later all ones are seen: the same incident, and no second dump within ten seconds."""
    story, _ = the_night()
    story.wait(0.3).lose_switch()
    out = story.look()
    assert story.state.incident is not None
    assert [(edge.subject, edge.incident) for edge in bad(out)] == [(SWITCH, story.state.incident.id)]
    assert not dumps(out)
    assert not opened(out)
    assert (SWITCH, "ConfigSpaceAllOnes") in story.state.incident.members


def test_lines_for_minutes_bring_one_look_a_second() -> None:
    """A lost switch prints hundreds of lines; a look costs a walk over the tree."""
    story = Story()
    story.tick()
    before = len(story.out)
    for _ in range(100):
        story.wait(0.1).kernel(xid(GPU, 79))
    assert 10 <= len(asked(story.out[before:], ActionKind.LOOK)) <= 11


def test_a_backlog_asks_for_one_look_now_and_not_for_one_per_hour_it_tells_of() -> None:
    """Lines from before the start are old, but what is to be done about them is done once, now."""
    story = Story()
    out = []
    for age in range(3600, 0, -60):
        out += story.kernel(UVM_FATAL, at=Moment(EVENING.wall - age, EVENING.mono - age))
    (look,) = asked(out, ActionKind.LOOK)
    assert look.at == EVENING
    assert len(asked(out, ActionKind.RELEASE_DRIVER)) == 1


def test_every_kernel_line_about_the_bus_is_worth_a_look() -> None:
    """UVM's fatal error names no device; the configuration space does."""
    story = Story()
    story.tick()
    assert len(asked(story.kernel(UVM_FATAL), ActionKind.LOOK)) == 1


def test_readings_that_are_not_new_are_not_judged_again() -> None:
    """A look reads registers: NVML's answer of half a minute ago is no evidence of this second's health."""
    story = Story()
    story.ticks(2)
    story.set(GPU, {"nvml_status": 15}).tick()
    story.set(GPU, {"nvml_status": 0}).tick()
    story.wait(29)
    for _ in range(40):
        story.wait(1).look()
    assert story.status(GPU, "GpuLost") is T
    story.ticks(1)
    assert story.status(GPU, "GpuLost") is F


# --------------------------------------------------------------------------------------------------- more than one dump


def stick(story: Story, seconds: float) -> list[Output]:
    return story.set(NVML, {"success": 0, "stuck_seconds": seconds}).tick()


def test_a_probe_that_is_late_for_a_moment_is_no_incident() -> None:
    """Shorter than its hold: a driver may take its time."""
    story = Story()
    story.tick()
    stick(story, 12.0)
    story.mend(NVML).tick()
    assert opened(story.out) == []
    assert edges(story.out) == []


def test_a_probe_that_stays_stuck_is_an_error_and_a_later_loss_adds_a_dump() -> None:
    """First the worker hangs, then the driver gives the GPU up: two dumps of one incident, the second for the worse edge."""
    story = Story()
    story.ticks(2)
    for seconds in (20.0, 50.0, 80.0):
        stick(story, seconds)
    (edge,) = bad(story.out)
    assert (edge.subject, edge.type) == (NVML, "ProbeStuck")
    assert story.verdict == "degraded"
    assert len(dumps(story.out)) == 1
    out = story.wait(11).kernel(xid(GPU, 79))
    assert opened(out) == []
    assert [dump.incident for dump in dumps(out)] == [edge.incident]
    assert story.state.incident is not None
    assert (story.state.incident.severity, story.state.incident.dumps) == (Severity.CRITICAL, 2)


def test_a_worse_edge_within_ten_seconds_shares_the_dump() -> None:
    """The dump is still being written."""
    story = Story()
    story.ticks(2)
    for seconds in (20.0, 50.0, 80.0):
        stick(story, seconds)
    assert dumps(story.wait(9).kernel(xid(GPU, 79))) == []


def test_dumps_are_bounded_per_day_and_edges_are_not() -> None:
    """A device that flaps for a day is recorded to the end; the disk is not filled with the same evidence."""
    story = Story()
    story.tick()
    for _ in range(40):
        story.set(DISK, {"config_dword0": ALL_ONES, **SILENT}).tick()
        story.mend(DISK).ticks(4)
    assert len(opened(story.out)) == len(closed(story.out)) == 40
    assert len(dumps(story.out)) == incidents.DUMPS_PER_DAY
    assert [gap.source for gap in gaps(story.out)] == ["dumps"] * (40 - incidents.DUMPS_PER_DAY)  # what was left out is on record
    story.wait(86_400)
    assert len(dumps(story.set(DISK, {"config_dword0": ALL_ONES}).tick())) == 1


# ------------------------------------------------------------------------------------------------------------- recovery


def test_an_incident_closes_when_every_member_has_been_good_for_its_time() -> None:
    """Not at the first good tick, and only once."""
    story = Story()
    story.ticks(2)
    story.lose_switch().ticks(2)
    story.mend()
    assert closed(story.ticks(2)) == []
    (end,) = closed(story.tick())
    assert end.incident.id == opened(story.out)[0].incident.id
    assert story.state.incident is None
    assert story.verdict == "healthy"


def test_an_incident_stays_open_while_a_member_is_unknown() -> None:
    """The switch is back and a GPU that was seen to be lost does not answer: nobody knows whether it is good."""
    story = Story()
    story.ticks(2)
    story.lose_switch().set(GPU, {"nvml_status": 15}).tick()
    story.mend().set(GPU, {"nvml_status": Missing.TIMED_OUT})
    assert closed(story.ticks(50)) == []
    assert story.status(GPU, "GpuLost") is U
    story.mend()
    assert len(closed(story.ticks(3))) == 1


def test_a_member_that_stops_applying_is_good_after_the_same_time() -> None:
    """A lost GPU that is handed to another driver has not recovered that very second."""
    story = Story()
    story.ticks(2)
    story.set(GPU, {"nvml_status": 15}).tick()
    story.set(GPU, {"nvml_status": Missing.ABSENT, "driver": "vfio-pci"})
    assert closed(story.ticks(2)) == []
    assert len(closed(story.tick())) == 1
    assert story.status(GPU, "GpuLost") is N


def test_what_comes_back_and_goes_again_is_one_incident() -> None:
    """A relapse before it has cleared never ended."""
    story = Story()
    story.ticks(2)
    for _ in range(5):
        story.lose_switch().tick()
        story.mend().ticks(2)
    assert len(opened(story.out)) == 1
    assert len(dumps(story.out)) == 1
    assert closed(story.out) == []


def test_a_second_loss_is_a_second_incident() -> None:
    """After recovery everything begins anew, dump and all."""
    story = Story()
    story.ticks(2)
    for _ in range(2):
        story.lose_switch().tick()
        story.mend().ticks(3)
    assert len(opened(story.out)) == len(dumps(story.out)) == len(closed(story.out)) == 2
    assert len({begun.incident.id for begun in opened(story.out)}) == 2


# ------------------------------------------------------------------------------------------- what a device is like


def test_a_device_is_learnt_once_while_all_is_well() -> None:
    """And the same again is not news."""
    story = Story()
    (first,) = learnt(story.ticks(10))
    assert first.expected[GPU] == {"command": 0x0507, "link_width": 16, "driver": "nvidia"}
    assert first.expected[SWITCH]["secondary_bus"] == 0x10
    assert NVML not in first.expected


def test_nothing_is_learnt_during_an_incident() -> None:
    """A device that appears then waits until things are good again."""
    story = Story()
    story.tick()
    story.lose_switch().tick()
    newcomer = Subject("nvme", "0000:42:00.0")
    story.set(newcomer, {**story.readings[DISK], "chain": "0000:00/01.2/00.0"}).ticks(5)
    assert newcomer not in story.state.expected
    assert [set(found.expected) >= {newcomer} for found in learnt(story.mend().ticks(4))] == [True]


@pytest.mark.parametrize("lack", [{"driver": Missing.TIMED_OUT}, {"command": Missing.DEVICE_LOST}, {"config_dword0": ALL_ONES}, BEHIND])
def test_half_a_reading_teaches_nothing(lack: dict[str, Value]) -> None:
    """What was cut short by a deadline would be believed for as long as the device keeps its driver."""
    story = Story().set(DISK, lack)
    assert DISK not in learnt(story.tick())[0].expected


def test_a_driver_that_could_not_be_read_is_no_other_driver() -> None:
    """Or a reset device would be learnt as normal because one link could not be read in time."""
    story = Story()
    story.ticks(2)
    story.set(DISK, {"command": 0, "driver": Missing.TIMED_OUT})
    assert learnt(story.tick()) == []
    assert story.status(DISK, "ConfigSpaceReset") is T


def test_what_a_virtual_machine_does_not_show_keeps_nothing_from_being_learnt() -> None:
    """A link width that this hardware cannot report is no half reading."""
    story = Story().set(GPU, {"link_width": Missing.UNSUPPORTED})
    assert learnt(story.tick())[0].expected[GPU] == {"command": 0x0507, "driver": "nvidia"}


def test_a_device_that_was_reset_under_its_driver_is_noticed() -> None:
    """The switch came back from a power cut: it answers, and has forgotten which bus is below it."""
    story = Story()
    story.ticks(2)
    story.set(SWITCH, {"command": 0, "secondary_bus": 0, "subordinate_bus": 0})
    story.set(GPU, {"command": 0})
    out = story.tick()
    assert [(edge.subject, edge.type) for edge in bad(out)] == [(SWITCH, "ConfigSpaceReset"), (GPU, "ConfigSpaceReset")]
    assert [begun.incident.id.partition("-")[2] for begun in opened(out)] == ["config-reset-0f"]


def test_a_device_bound_to_another_driver_is_learnt_anew() -> None:
    """That one sets the registers as it likes: no alarm, and from now on this is normal."""
    story = Story()
    story.ticks(2)
    story.set(GPU, {"driver": "vfio-pci", "command": 0, "nvml_status": Missing.ABSENT})
    out = story.ticks(2)
    assert bad(out) == []
    assert len(learnt(out)) == 1
    assert story.status(GPU, "ConfigSpaceReset") is F
    assert story.status(GPU, "GpuLost") is N


def test_a_device_that_sleeps_is_left_alone_and_raises_no_alarm() -> None:
    """Suspended, it would read all ones; it is not asked, and the host is no less healthy for it."""
    story = Story()
    story.ticks(2)
    story.set(DISK, {"config_dword0": Missing.ASLEEP, "command": Missing.ASLEEP, "link_width": Missing.ASLEEP})
    out = story.ticks(3)
    assert not bad(out)
    assert not opened(out)
    assert story.condition(DISK, "ConfigSpaceAllOnes").missing is Missing.ASLEEP
    assert story.verdict == "healthy"


def test_a_device_that_is_no_longer_reported_is_unknown() -> None:
    """Neither as bad nor as good as it was when it was last seen."""
    story = Story()
    story.ticks(2)
    del story.readings[DISK]
    story.tick()
    assert story.status(DISK, "ConfigSpaceAllOnes") is U
    assert story.status(DISK, "DriveMissing") is T


# --------------------------------------------------------------------------------------------------------------- clocks


@pytest.mark.parametrize("step", [-400 * 86_400.0, -3600.0, -1.0, 3600.0, 400 * 86_400.0])
def test_a_step_of_the_wall_clock_decides_nothing(step: float) -> None:
    """Holding, clearing, sharing a dump and looking go by the clock that cannot be set."""

    def told(step: float) -> list[tuple[str, str]]:
        story = Story()
        story.ticks(2)
        for seconds in (20.0, 50.0, 80.0):
            stick(story, seconds)
            story.now = Moment(story.now.wall + step, story.now.mono)
        story.wait(11).kernel(xid(GPU, 79))
        story.wait(0.5).kernel(UVM_FATAL)
        story.now = Moment(story.now.wall + step, story.now.mono)
        story.mend().renew_driver()
        story.ticks(4)
        return [(type(output).__name__, getattr(output, "id", "")) for output in story.out]

    assert told(step) == told(0.0)
