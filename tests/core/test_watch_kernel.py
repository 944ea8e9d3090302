"""The watch and the kernel log: application faults, forged lines, gaps, floods, and a log that cannot be read."""

from __future__ import annotations

import pytest

from tests.core.story import (
    DRIVER,
    GPU,
    GPUS,
    KERNEL,
    REBOOT_ASKED,
    SWITCH,
    UVM_FATAL,
    Story,
    asked,
    bad,
    closed,
    edges,
    gaps,
    opened,
    records,
    xid,
)
from xidwatch.core.messages import KernelRecord, Output
from xidwatch.core.model import Action, ActionKind, Missing, PciAddress, Status
from xidwatch.core.tally import RECORDS_PER_TICK

T, F, U = Status.TRUE, Status.FALSE, Status.UNKNOWN
CARD = PciAddress.parse(GPU.name)


def quiet() -> Story:
    story = Story()
    story.ticks(2)
    return story


# ------------------------------------------------------------------------------------------ no affair of the hardware's


@pytest.mark.parametrize("number", [13, 31, 43, 45])
def test_an_applications_xid_is_recorded_and_counted_and_nothing_more(number: int) -> None:
    """A faulty program is no incident, and the driver is none the worse for it."""
    story = quiet()
    out = story.kernel(xid(GPU, number, "Graphics SM Warp Exception on (GPC 0)"))
    assert [type(output) for output in out] == [KernelRecord]
    assert story.state.tally.totals == {(CARD, number): 1}
    assert edges(story.tick()) == []
    assert story.verdict == "healthy"


def test_a_line_that_a_process_wrote_is_recorded_and_changes_nothing() -> None:
    """Anybody who may write to the log can write Xid 79: on record, marked, and not believed."""
    story = quiet()
    out = story.kernel(xid(GPU, 79), xid(GPU, 154, REBOOT_ASKED), UVM_FATAL, facility=1)
    assert [record.event.injected for record in records(out)] == [True, True, True]
    assert len(out) == 3
    assert story.state.tally.totals == {}
    assert not story.state.driver_released
    assert edges(story.tick()) == []
    assert story.readings[GPU]["nvml_status"] == 0


def test_a_forged_line_hides_no_real_one() -> None:
    """The same words from the kernel are another matter."""
    story = quiet()
    story.kernel(xid(GPU, 79), facility=1)
    out = story.kernel(xid(GPU, 79))
    assert len(records(out)) == 1
    assert len(opened(out)) == 1


@pytest.mark.parametrize(("severity", "looks"), [("Correctable", 0), ("Uncorrectable (Non-Fatal)", 1), ("Uncorrectable (Fatal)", 1)])
def test_a_corrected_error_of_a_link_is_no_reason_to_look(severity: str, looks: int) -> None:
    """A poor link brings one every second for years; an uncorrected one may mean that the device has gone."""
    story = quiet()
    out = story.kernel(f"pcieport 0000:00:01.1: AER: {severity} error message received from 0000:11:00.0")
    assert len(records(out)) == 1
    assert len(asked(out, ActionKind.LOOK)) == looks


# ------------------------------------------------------------------------------------------------------ a fresh driver


def test_a_further_line_starts_the_recovery_over() -> None:
    """A GPU that NVML has called good for half a minute is lost again when the driver says so."""
    story = quiet()
    story.set(GPU, {"nvml_status": 15}).tick()
    story.mend().ticks(2)
    assert bad(story.kernel(xid(GPU, 79)))[0].type == "DriverFatalXid"
    story.ticks(5)
    assert story.status(GPU, "GpuLost") is T


def test_a_fresh_driver_clears_nothing_until_it_answers() -> None:
    """Loaded is not healthy: what the old one left is unknown until NVML speaks for the GPU, and then has to last."""
    story = quiet()
    story.kernel(xid(GPU, 79), UVM_FATAL)
    story.set(GPU, {"nvml_status": Missing.NOT_ASKED}).ticks(3)
    story.wait(5).renew_driver()
    assert not story.state.driver_released
    accused = [(GPU, "GpuLost"), (GPU, "DriverFatalXid"), (DRIVER, "DriverFatalXid")]
    for gpu in GPUS:
        story.set(gpu, {"nvml_status": Missing.TIMED_OUT})
    assert closed(story.ticks(20)) == []
    assert [story.status(*key) for key in accused] == [U, U, U]
    story.mend().ticks(2)
    assert [story.status(*key) for key in accused] == [U, F, F]
    assert len(closed(story.tick())) == 1
    assert [story.status(*key) for key in accused] == [F, F, F]


def test_a_fresh_driver_that_finds_the_gpu_lost_says_so() -> None:
    """NVML's own verdict takes the place of the old line."""
    story = quiet()
    story.kernel(xid(GPU, 79))
    story.renew_driver()
    story.set(GPU, {"nvml_status": 15}).ticks(5)
    assert story.status(GPU, "GpuLost") is T
    assert closed(story.out) == []


def test_a_fresh_driver_may_fail_like_the_old_one() -> None:
    """It is let go of again, and the incident, which never closed, goes on."""
    story = quiet()
    story.kernel(xid(GPU, 79))
    story.wait(60).renew_driver()
    out = story.wait(60).kernel(xid(GPU, 79))
    assert len(asked(out, ActionKind.RELEASE_DRIVER)) == 1
    assert opened(out) == []
    assert story.status(GPU, "DriverFatalXid") is T


def test_the_first_load_of_a_driver_is_no_news() -> None:
    """Nothing was accused, so nothing is in doubt."""
    story = quiet()
    assert story.renew_driver() == []
    assert edges(story.ticks(3)) == []


# ---------------------------------------------------------------------------------------------------------------- gaps


def test_a_gap_in_the_log_is_recorded_and_warned_of_for_ten_minutes() -> None:
    """An Xid may have been among the lost; a warning opens no incident."""
    story = quiet()
    out = story.wait(3).kernel(lost=311)
    assert [(gap.source, gap.lost) for gap in gaps(out)] == [("kmsg", 311)]
    assert [(edge.subject, edge.type) for edge in bad(out)] == [(KERNEL, "KernelLogGap")]
    assert opened(out) == []
    story.ticks(21)
    assert story.status(KERNEL, "KernelLogGap") is T
    assert story.verdict == "degraded"
    story.tick()
    assert story.status(KERNEL, "KernelLogGap") is F


def test_a_warning_during_an_incident_is_no_member_of_it() -> None:
    """Its edge carries no incident, and so a successor does not wait for it to clear."""
    story = quiet()
    story.lose_switch().tick()
    (gap,) = bad(story.kernel(lost=1))
    assert gap.incident is None
    assert story.state.incident is not None
    assert story.state.incident.members == {(SWITCH, "ConfigSpaceAllOnes")}


def test_a_log_that_cannot_be_read_makes_unknown_what_only_it_could_tell() -> None:
    """Silence is no health."""
    story = Story()
    story.no_kernel_log()
    story.ticks(2)
    for subject, type_ in ((KERNEL, "KernelLogGap"), (GPU, "DriverFatalXid"), (GPU, "GpuLost")):
        assert story.condition(subject, type_).status is U
        assert story.condition(subject, type_).missing is Missing.DENIED
    assert story.status(GPU, "ConfigSpaceAllOnes") is F
    assert story.verdict == "unknown"


def test_losing_the_log_unsays_nothing() -> None:
    """A fatal line stands although nobody can read on; the driver is not asked again."""
    story = quiet()
    story.kernel(xid(GPU, 79))
    story.no_kernel_log(Missing.ABSENT)
    story.ticks(3)
    assert story.status(GPU, "DriverFatalXid") is T
    assert story.state.driver_released
    assert story.status(GPUS[1], "DriverFatalXid") is U


def test_a_log_that_can_be_read_again_is_believed_again() -> None:
    """The reason it could not is forgotten with the next record."""
    story = Story()
    story.no_kernel_log()
    story.tick()
    story.kernel("systemd[1]: Started something.")
    story.tick()
    assert story.status(GPU, "DriverFatalXid") is F


# -------------------------------------------------------------------------------------------------------------- floods

FLOOD = 100_000
BATCH = 256


def flood(story: Story, texts: list[str]) -> list[Output]:
    out: list[Output] = []
    for start in range(0, len(texts), BATCH):
        out += story.kernel(*texts[start : start + BATCH])
    return out


@pytest.mark.slow
def test_a_flood_of_one_line_is_one_record_and_one_count() -> None:
    """Folded while it comes, told at the tick, and right to the line."""
    story = quiet()
    out = flood(story, [xid(GPU, 31, "fault")] * FLOOD)
    assert len(out) == 1
    repeats = records(story.tick())
    assert [(record.event.repeated, record.event.seq) for record in repeats] == [(FLOOD - 1, story.seq)]
    assert story.state.tally.totals == {(CARD, 31): FLOOD}
    assert records(story.tick()) == []


@pytest.mark.slow
def test_a_flood_of_distinct_lines_is_bounded_and_says_what_it_left_out() -> None:
    """The first of each kind is on record whenever it comes, acted on as ever, and the gap is told as a number."""
    story = quiet()
    out = flood(story, [xid(GPU, 31, f"fault at 0x{number:x}") for number in range(FLOOD)])
    assert len(out) == RECORDS_PER_TICK
    late = story.kernel(xid(GPUS[2], 79))
    assert len(records(late)) == 1
    assert len(opened(late)) == 1
    tick = story.tick()
    assert [(gap.source, gap.lost) for gap in gaps(tick)] == [("journal", FLOOD - RECORDS_PER_TICK)]
    assert story.state.tally.totals == {(CARD, 31): FLOOD, (PciAddress.parse(GPUS[2].name), 79): 1}


@pytest.mark.slow
def test_a_flood_of_losses_is_one_incident() -> None:
    """Four GPUs telling of their loss ten thousand times: four accused, one dump, one release, one look for it all."""
    story = quiet()
    out = flood(story, [xid(gpu, 79) for _ in range(2500) for gpu in GPUS])
    actions = [output.kind for output in out if isinstance(output, Action)]
    assert sorted(actions) == [ActionKind.LOOK, ActionKind.RELEASE_DRIVER, ActionKind.TAKE_DUMP]
    assert len(records(out)) == 4
    assert len(bad(out)) == 8
    assert len(opened(out)) == 1
