"""The ladder: what could bring lost hardware back, in which order, and what stands in the way now."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from tests.core.story import CHAINS, DOWNSTREAM, DRIVER, EVENING, GPU, GPUS, SWITCH
from xidwatch.core.model import Condition, Missing, Readings, Status, Subject
from xidwatch.core.recovery import Rung, Situation, ladder, situation, words

ROOT_PORT = Subject("port", "0000:00:03.1")
PLACES = {**CHAINS, ROOT_PORT: "0000:00/03.1"}
UNDER = frozenset({*GPUS, DOWNSTREAM, SWITCH, ROOT_PORT, DRIVER})
SOFTWARE = {"rescan", "bus-reset", "slot-power", "gpu-reset", "module-reload"}


def true(subject: Subject, type_: str, reason: str = "", status: Status = Status.TRUE) -> Condition:
    return Condition(subject, type_, status, EVENING, reason)


def seen(
    *bad: Condition,
    readings: Readings | None = None,
    holders: str = "",
    leftovers: tuple[str, ...] = (),
    told: Mapping[Subject, str] | None = None,
) -> Situation:
    return situation(UNDER, bad, readings or {}, PLACES, holders=holders, leftovers=leftovers, told=told)


def rungs(now: Situation) -> dict[str, Rung]:
    return {rung.key: rung for rung in ladder(now)}


def free(now: Situation) -> set[str]:
    return {rung.key for rung in ladder(now) if not rung.blocked}


def test_the_order_is_from_the_least_invasive_to_the_mains() -> None:
    """Where all of them apply."""
    now = Situation(GPU, above=DOWNSTREAM, slot="4")
    assert list(rungs(now)) == [
        "stop",
        "rescan",
        "bus-reset",
        "slot-power",
        "gpu-reset",
        "module-reload",
        "reboot",
        "power-cycle",
        "mains",
    ]


def test_nothing_bad_needs_nothing() -> None:
    """Nor does what is bad elsewhere, or only not known."""
    assert ladder(seen()) == ()
    assert ladder(seen(true(GPU, "GpuLost", status=Status.UNKNOWN))) == ()
    assert ladder(seen(true(Subject("gpu", "0000:99:00.0"), "GpuLost"))) == ()


def test_one_lost_gpu_may_come_back_by_software() -> None:
    """Named by itself and by the port above it; a reset by its driver is no way while it is off the bus."""
    now = seen(true(GPU, "GpuLost"))
    assert (now.top, now.above) == (GPU, DOWNSTREAM)
    assert "gpu-reset" not in free(now)
    assert {"rescan", "bus-reset", "reboot"} <= free(now)
    assert GPU.name in rungs(now)["rescan"].how
    assert DOWNSTREAM.name in rungs(now)["bus-reset"].how


@pytest.mark.parametrize(("subject", "type_"), [(GPU, "GpuMissing"), (DOWNSTREAM, "PortMissing")])
def test_what_is_not_listed_is_not_removed(subject: Subject, type_: str) -> None:
    """It has no file to write to; a rescan alone may find it, and names nobody who is not there."""
    now = seen(true(subject, type_), true(GPU, "GpuLost"))
    assert rungs(now)["remove"].blocked == ("it is not listed any more: rescan alone",)
    assert rungs(now)["rescan"].how == "echo 1 > /sys/bus/pci/rescan"
    assert "remove" not in rungs(seen(true(GPU, "GpuLost")))


def test_a_gpu_that_only_asks_for_a_reset_may_be_reset() -> None:
    """It is on the bus."""
    assert "gpu-reset" in free(seen(true(GPU, "DriverFatalXid", "kernel: Xid 119: GSP timeout")))


def test_a_driver_that_has_failed_as_a_whole_needs_a_reboot() -> None:
    """Also when no line about it says so any more."""
    now = seen(true(GPU, "GpuLost"), true(DRIVER, "DriverFatalXid", "driver_fatal_lines 1"))
    assert not free(now) & SOFTWARE
    assert "reboot" in free(now)


def test_the_topmost_is_what_is_removed() -> None:
    """Of a switch with everything below it."""
    now = seen(true(GPU, "GpuLost"), true(SWITCH, "ConfigSpaceAllOnes"), true(DOWNSTREAM, "ConfigSpaceAllOnes"))
    assert (now.top, now.above) == (SWITCH, ROOT_PORT)


def test_what_holds_the_device_blocks_what_would_wait_for_it() -> None:
    """A removal waits for it under a global lock; a reboot does not ask."""
    now = seen(true(GPU, "GpuLost"), holders="4711 4712")
    assert not free(now) & SOFTWARE
    assert "held by process 4711, process 4712" in rungs(now)["rescan"].blocked
    assert {"stop", "reboot"} <= free(now)


def test_what_cannot_be_ended_leaves_a_reboot() -> None:
    """Not even the first step can be taken."""
    now = seen(true(GPU, "GpuLost"), leftovers=("4711 VLLM::Worker_TP0, state D in uvm_va_space",))
    assert free(now) == {"reboot", "power-cycle", "mains"}
    assert "cannot be ended: 4711 VLLM::Worker_TP0, state D in uvm_va_space" in rungs(now)["stop"].blocked


@pytest.mark.parametrize(
    ("bad", "readings"),
    [
        (true(GPU, "DriverFatalXid", "kernel: GPU recovery action changed from 0x0 (None) to 0x2 (Node Reboot Required)"), {}),
        (true(DRIVER, "DriverFatalXid", "kernel: uvm encountered global fatal error 0x60, requiring os reboot to recover."), {}),
        (true(GPU, "GpuLost"), {GPU: {"recovery_action": 2}}),
    ],
)
def test_what_the_driver_says_needs_a_reboot_needs_one(bad: Condition, readings: Readings) -> None:
    """By its line or by NVML."""
    now = seen(true(GPU, "GpuLost"), bad, readings=readings)
    assert free(now) == {"stop", "reboot", "power-cycle", "mains"}


FATAL = true(GPU, "DriverFatalXid", "kernel: Xid 79: GPU has fallen off the bus")  # the first line of a loss; what it asks for comes later


@pytest.mark.parametrize(("words", "number"), [("Node Reboot Required", 2), ("System Reboot", 7), ("Something New", 9)])
def test_a_reboot_that_is_asked_for_stands_first_with_its_reason(words: str, number: int) -> None:
    """By the line of one GPU or by NVML, though nothing was said of the driver as a whole; an action nobody knows is not less."""
    for now in (seen(FATAL, told={GPUS[1]: words}), seen(FATAL, readings={GPUS[1]: {"recovery_action": number}})):
        first, *others = ladder(now)
        assert (first.key, first.blocked) == ("reboot", ())
        assert "for less does not help (the driver asks for '" in first.what
        assert GPUS[1].name in first.what
        assert {rung.key for rung in others if not rung.blocked} == {"stop", "power-cycle", "mains"}


@pytest.mark.parametrize(
    ("words", "lead", "is_free"),
    [
        ("GPU Reset Required", "gpu-reset", set()),
        ("PF FLR", "gpu-reset", set()),
        ("Bus Reset", "bus-reset", set()),
        ("Drain and Reset", "drain", set()),
        ("Drain P2P", "drain-p2p", {"rescan"}),
        ("Recover IMEX Domain", "imex", {"rescan"}),
    ],
)
def test_what_the_driver_asks_for_stands_first(words: str, lead: str, is_free: set[str]) -> None:
    """Also where nothing else is held against the hardware; a step that is less says that it does not help."""
    first, *others = ladder(seen(told={GPU: words}))
    assert (first.key, first.blocked) == (lead, ())
    assert {rung.key for rung in others if rung.key == "rescan" and not rung.blocked} == is_free
    assert all(words in rung.blocked[0] for rung in others if rung.key == "rescan" and not is_free)


def test_of_several_the_weightiest_is_asked_for() -> None:
    """As the driver weighs them, and with the names of those that ask for it."""
    now = seen(told={GPUS[0]: "Drain P2P", GPUS[1]: "GPU Reset Required", GPUS[2]: "None", GPUS[3]: "GPU Reset Required"})
    assert now.asked == ("GPU Reset Required", f"{GPUS[1].name}, {GPUS[3].name}")
    assert ladder(seen(told={GPUS[0]: "Drain P2P", GPUS[1]: "Node Reboot Required"}))[0].key == "reboot"


def test_what_the_driver_says_now_counts_before_its_last_line() -> None:
    """A reset is over without a line."""
    assert ladder(seen(told={GPU: "GPU Reset Required"}, readings={GPU: {"recovery_action": 0}})) == ()
    assert ladder(seen(told={GPU: "GPU Reset Required"}, readings={GPU: {"recovery_action": Missing.NOT_ASKED}}))[0].key == "gpu-reset"


def test_what_cannot_be_reached_is_not_led_by_what_would_have_to_reach_it() -> None:
    """No reset by a driver to which it is gone, no reboot of what has no power."""
    gone = seen(true(GPU, "GpuLost"), told={GPU: "GPU Reset Required"})
    assert ladder(gone)[0].key == "stop"
    assert "rescan" in free(gone)
    dark = seen(true(SWITCH, "ConfigSpaceAllOnes"), readings={ROOT_PORT: {"link_width": 0}}, told={GPU: "Node Reboot Required"})
    assert ladder(dark)[0].key == "stop"


def test_what_has_no_power_gets_none_by_software() -> None:
    """All ones below a link that is down: not even a warm reboot."""
    now = seen(true(SWITCH, "ConfigSpaceAllOnes"), readings={ROOT_PORT: {"link_width": 0}})
    assert free(now) == {"stop", "power-cycle", "mains"}
    assert "0000:00:03.1" in rungs(now)["reboot"].blocked[0]


@pytest.mark.parametrize("width", [16, Missing.DEVICE_LOST, None])
def test_a_link_that_is_up_or_not_read_is_no_evidence_of_power(width: int | Missing | None) -> None:
    """Nothing is claimed that was not seen."""
    readings: Readings = {ROOT_PORT: {} if width is None else {"link_width": width}}
    assert "reboot" in free(seen(true(SWITCH, "ConfigSpaceAllOnes"), readings=readings))


def test_a_line_says_how_or_why_not() -> None:
    """And names no more than a few."""
    said = words(ladder(Situation(GPU, holders=tuple(f"process {n}" for n in range(10)))))
    assert said[0] == "stop whatever uses the GPUs: the engines, and nvidia-persistenced"
    assert said[1] == "PCI removal of 0000:11:00.0 and rescan: blocked: held by process 0, process 1, process 2, process 3 and 6 more"
