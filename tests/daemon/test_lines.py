"""One readable line a tick, one line an edge."""

from __future__ import annotations

import pytest

from tests.fakes.clock import BOOT_ID, FakeClock
from xidwatch.core.model import HOST, KERNEL, Condition, Missing, Moment, Readings, Sample, Severity, Status, Subject, Transition, Value
from xidwatch.core.rules import Rule
from xidwatch.core.ticks import Answer
from xidwatch.daemon import lines

QUIET: Readings = {
    HOST: {"load_1m": 1.2, "memory_available_bytes": 120_300_000_000},
    KERNEL: {"xid_lines_since_last_tick": 0},
}
PORT = Subject("port", "0000:0f:00.0")


def gpus(count: int, **values: Value) -> Readings:
    """So many GPUs, all with these readings."""
    return {Subject("gpu", f"0000:{0x11 + number:02x}:00.0"): dict(values) for number in range(count)}


def said(readings: Readings, *answers: Answer, verdict: str = "healthy") -> str:
    return lines.tick(Sample(12, FakeClock().now(), BOOT_ID, {**QUIET, **readings}), verdict, answers)


def test_a_host_without_gpus_says_so() -> None:
    """And all the rest."""
    assert said({}) == "tick 12  healthy  no GPUs  load 1.20  mem 120.3 GB free  Xid 0"


def test_one_gpu_is_no_plural() -> None:
    """With its draw, its highest peak and its temperature."""
    one = gpus(1, power_mean_watts=231.4, power_peak_watts=402.4, temperature_celsius=61, nvml_status=0, config_dword0=0x220410DE)
    assert said(one) == "tick 12  healthy  1 GPU  231 W (single peak 402 W)  max 61 C  load 1.20  mem 120.3 GB free  Xid 0"


def test_several_are_summed_and_the_peak_is_not() -> None:
    """Peaks of different cards were not at the same instant."""
    eight = gpus(8, power_mean_watts=100.0, power_peak_watts=150.0, temperature_celsius=50, nvml_status=0)
    ports: Readings = {Subject("port", f"0000:{bus:02x}:00.0"): {"config_dword0": 0x1000C010} for bus in range(9)}
    nvme: Readings = {Subject("nvme", "0000:02:00.0"): {"config_dword0": 0xA80A144D}}
    assert "  8 GPUs  800 W (single peak 150 W)  max 50 C  9 ports  1 nvme  load" in said({**eight, **ports, **nvme})


def test_the_one_second_average_stands_in_for_the_mean() -> None:
    """At the first tick there is no interval to take a mean over."""
    assert "1 GPU  300 W  load" in said(gpus(1, power_mean_watts=Missing.NOT_ASKED, power_average_watts=300.0))


def test_lost_gpus_stay_counted_and_are_called_lost() -> None:
    """Their readings are gone: no watts, and no zero in their place."""
    lost = gpus(4, power_mean_watts=Missing.DEVICE_LOST, temperature_celsius=Missing.DEVICE_LOST, nvml_status=15, config_dword0=0xFFFFFFFF)
    line = said({**lost, PORT: {"config_dword0": 0xFFFFFFFF}}, verdict="failed")
    assert line.startswith("tick 12  failed  4 GPUs  4 LOST  1 port  5 NOT ANSWERING  load")


@pytest.mark.parametrize(("status", "words"), [(15, "1 LOST"), (16, "1 LOST"), (10, "1 NVML ERROR"), (999, "1 NVML ERROR")])
def test_an_answer_that_was_none_is_not_a_loss(status: int, words: str) -> None:
    """Only two of NVML's codes say that the GPU is gone."""
    line = said({**gpus(1, nvml_status=status), Subject("gpu", "0000:99:00.0"): {"nvml_status": 0}})
    assert f"  2 GPUs  {words}  load" in line
    assert ("LOST" in line) is ("LOST" in words)


def test_rails_are_shown_while_they_are_few() -> None:
    """In volts; one that is missing leaves nothing in its place, and a pin that nobody has named is no rail."""
    rails: Readings = {Subject("rail", f"psu{number}"): {"volts": 12.096, "present": 1} for number in range(6)}
    assert "no GPUs  psu0 12.10 V  psu1 12.10 V  psu2 12.10 V  psu3 12.10 V  load" in said(rails)
    lost: Readings = {Subject("rail", "a"): {"volts": Missing.ABSENT}, Subject("chip", "x@y/in1"): {"volts": 12.0, "pin_volts": 1.0}}
    assert "no GPUs  load" in said(lost)


def test_a_kernel_log_that_cannot_be_read_is_no_zero() -> None:
    """Nobody knows how many Xids there were."""
    assert said({KERNEL: {"xid_lines_since_last_tick": Missing.DENIED}}).endswith("kernel log unreadable")
    assert said({KERNEL: {}}).endswith("kernel log unreadable")
    assert said({KERNEL: {"xid_lines_since_last_tick": 8}}).endswith("Xid 8")


def test_a_probe_that_is_late_is_named_and_one_that_failed_is_not() -> None:
    """What was said once is not repeated every tick."""
    answers = (
        Answer("pci", "done", {}),
        Answer("nvml", "failed", {}, "the nvidia kernel module is not loaded"),
        Answer("host", "timeout", {}, "no answer in 2 s"),
        Answer("ipmi", "crashed", {}),
        Answer("late", "not-asked", {}, "released"),
    )
    assert said({}, *answers).endswith("Xid 0  host: no answer in 2 s  ipmi: crashed")


# --- edges


def edge(subject: Subject, after: Status, reason: str, severity: Severity = Severity.CRITICAL) -> Transition:
    return Transition("t-000001", FakeClock().now(), subject, "ConfigSpaceAllOnes", Status.UNKNOWN, after, severity, reason)


@pytest.mark.parametrize(("severity", "priority"), [(Severity.INFO, 6), (Severity.WARNING, 4), (Severity.ERROR, 3), (Severity.CRITICAL, 2)])
def test_an_edge_to_the_bad_has_a_line_of_its_own(severity: Severity, priority: int) -> None:
    """As urgent as its rule is severe."""
    assert lines.bad_edge(edge(PORT, Status.TRUE, "config_dword0 ffffffff", severity)) == (
        priority,
        "ConfigSpaceAllOnes TRUE port:0000:0f:00.0 (was UNKNOWN): config_dword0 ffffffff",
    )


def test_other_edges_that_say_the_same_share_a_line() -> None:
    """A few are named, the others counted; edges to TRUE are not among them."""
    subjects = [Subject("port", f"0000:{bus:02x}:00.0") for bus in range(6)]
    edges = [
        edge(subjects[5], Status.FALSE, "config_dword0 1000c010"),
        *(edge(subject, Status.UNKNOWN, "config_dword0 missing (TIMED_OUT)") for subject in subjects),
        edge(PORT, Status.TRUE, "config_dword0 ffffffff"),
    ]
    named = "port:0000:00:00.0, port:0000:01:00.0, port:0000:02:00.0, port:0000:03:00.0"
    assert lines.other_edges(edges) == [
        "ConfigSpaceAllOnes FALSE port:0000:05:00.0: config_dword0 1000c010",
        f"ConfigSpaceAllOnes UNKNOWN {named} and 2 more: config_dword0 missing (TIMED_OUT)",
    ]


def test_the_worst_condition_is_named_for_systemctl_status() -> None:
    """`failed` alone does not say what to look at; the earliest of the most severe does."""
    sooner, later = Moment(1.0, 1.0), Moment(2.0, 2.0)
    warning, critical = rule("KernelLogGap", Severity.WARNING), rule("GpuLost", Severity.CRITICAL)
    gap = Condition(Subject("kernel"), "KernelLogGap", Status.TRUE, sooner, "")
    lost = [Condition(Subject("gpu", name), "GpuLost", Status.TRUE, at, "") for name, at in (("late", later), ("early", sooner))]
    good = Condition(Subject("gpu", "good"), "GpuLost", Status.FALSE, sooner, "")
    told = lines.worst([(gap, warning), *((condition, critical) for condition in lost), (good, critical)])
    assert told == "; GpuLost gpu:early and 2 more"
    assert lines.worst([(good, critical)]) == ""


def rule(type_: str, severity: Severity) -> Rule:
    """One that only its severity is asked of."""
    return Rule(type_, {}, severity, "a test")


def test_records_that_wait_for_a_disk_are_told_at_every_tick() -> None:
    """A person who watches the lines go by must not take them for recorded."""
    late: Readings = {Subject("probe", "recorder"): {"stuck_seconds": 61.2}, Subject("probe", "recorder-2"): {"stuck_seconds": 0}}
    assert said(late).endswith("recorder: RECORDS 61 s BEHIND")


def test_a_sum_over_some_gpus_says_over_how_many() -> None:
    """Three of four answered: their watts are not those of the host."""
    gpus: Readings = {
        Subject("gpu", f"0000:1{n}:00.0"): {"power_mean_watts": Missing.DEVICE_LOST if n == 4 else 100.0} for n in range(1, 5)
    }
    assert "4 GPUs  300 W of 3" in said(gpus)


def test_an_engine_is_its_state_and_its_requests() -> None:
    """Running and waiting; without figures the state alone, without either nothing."""
    vllm, llama, silent = (Subject("engine", name) for name in ("vllm.service", "llama@0.service", "sglang.service"))
    readings: Readings = {
        vllm: {"active_state": "active", "requests_running": 3, "requests_waiting": 1},
        llama: {"active_state": "failed", "requests_running": Missing.ABSENT, "requests_waiting": Missing.ABSENT},
        silent: {"active_state": Missing.TIMED_OUT},
    }
    assert "  no GPUs  llama@0 failed  vllm active 3+1 requests  load" in said(readings)
