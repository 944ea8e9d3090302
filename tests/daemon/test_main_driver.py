"""The real daemon, the shipped nvml probe and the real binding over a driver that misbehaves: a library in C.

Whatever that does, the other probes' ticks are on time, nobody kills who is in it, and nothing is claimed that it did not say.
"""

from __future__ import annotations

import csv
import os
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.daemon.harness import PATIENCE_SECONDS, Rig, Running, answered, has_ended, missing_reasons, open_gate, poll_until, settled
from tests.fakes.nvml_library import NvmlLibrary
from xidwatch.records import dumps
from xidwatch.records.power_trace import iso_us
from xidwatch.records.samples import Row

INTERVAL_SECONDS = 0.5
GPUS = [f"gpu:0000:{bus}:00.0" for bus in ("11", "12", "13", "14")]
POWER = [f"{gpu}:power_average_watts" for gpu in GPUS]
WATTS = "250"
SPIKE_MW, SPIKE_AT = 931_000, 17
SUCCESS = 'xidwatch_probe_success{probe="nvml"}'
STUCK_SECONDS = 'xidwatch_probe_stuck_seconds{probe="nvml"}'
LOST = "NVRM: Xid (PCI:0000:11:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus."

pytestmark = pytest.mark.slow


@pytest.fixture
def rig(tmp_path: Path) -> Iterator[Rig]:
    with Rig(tmp_path) as rig:
        yield rig


def start(rig: Rig, library: NvmlLibrary) -> Running:
    """Beside two healthy probes; over when the driver has answered."""
    running = rig.start(rig.pci(), rig.host(), rig.driver(library))
    until_success(running, 1)
    return running


def until_success(running: Running, wanted: int) -> None:
    running.until(f"nvml success {wanted}", lambda: running.metrics().get(SUCCESS) == wanted)


def until_stuck(running: Running) -> None:
    """Wait for two ticks that went without the driver's answer."""
    running.until("stuck for a second", lambda: running.metrics()[STUCK_SECONDS] > 1.0)


def holder(rig: Rig) -> int:
    """The one process that holds the driver."""
    (process,) = rig.processes("nvml")
    return process.pid


def rows_on_time(rig: Rig) -> list[Row]:
    """All rows: none left out or late, and the healthy probes in each from when they have started."""
    rows = rig.rows()
    assert [row.tick for row in rows] == list(range(1, len(rows) + 1))
    assert rig.most_late(rows, INTERVAL_SECONDS) < 0.5
    served = rig.given_time(settled(rows, "pci", "host"), "pci", "host", within=0.4)
    assert {(row.cells["probe:pci:success"], row.cells["probe:host:success"]) for row in served} <= {("1", "1")}
    return rows


def first_failure(rows: list[Row]) -> Row:
    """Where the driver failed first after it had answered."""
    success = [row.cells["probe:nvml:success"] for row in rows]
    return rows[success.index("0", success.index("1"))]


def test_one_lost_gpu_of_four_leaves_three_in_the_row(rig: Rig, nvml_library: NvmlLibrary) -> None:
    """Error 15 for one is a loss of that one: its cells are empty, the others' are not, and the same worker serves on."""
    running = start(rig, nvml_library)
    before = holder(rig)
    nvml_library.gpu(1, every="error 15")
    running.until_condition("GpuLost", GPUS[1], "TRUE")
    running.ticks_more(2)
    assert [running.condition("GpuLost", gpu) for gpu in GPUS] == ["FALSE", "TRUE", "FALSE", "FALSE"]
    assert holder(rig) == before
    assert running.terminate()[0] == 0
    last = rows_on_time(rig)[-1]
    assert [last.cells[column] for column in POWER] == [WATTS, "", WATTS, WATTS]
    assert last.cells[f"{GPUS[1]}:nvml_status"] == "15"
    assert missing_reasons(rig.journal(), POWER[1])[-1] == "DEVICE_LOST"


def test_a_call_that_never_returns_is_late_and_is_never_killed(rig: Rig, nvml_library: NvmlLibrary) -> None:
    """The worker stays in its call, alone; it outlives its daemon, and the successor starts no other beside it."""
    running = start(rig, nvml_library)
    stuck = holder(rig)
    nvml_library.gpu(2, nvmlDeviceGetUtilizationRates="pause")
    until_stuck(running)
    in_the_call = nvml_library.total()
    running.ticks_more(2)
    assert running.find("nvml: still waiting for the answer to an earlier request")
    assert (holder(rig), nvml_library.total()) == (stuck, in_the_call)
    assert running.terminate()[0] == 0
    rows_on_time(rig)

    successor = rig.start(rig.pci(), rig.host(), rig.driver(nvml_library), state_dir=rig.folder / "successor")
    successor.line(f"nvml: process {stuck} of this probe still holds the driver")
    successor.ticks_more(8)  # 4 s: who is ever killed would be by then
    assert (holder(rig), nvml_library.total()) == (stuck, in_the_call)
    assert successor.terminate()[0] == 0


def test_what_was_read_before_the_call_that_never_returns_is_in_the_row(rig: Rig, nvml_library: NvmlLibrary) -> None:
    """Two GPUs have answered when the third takes the worker away: they are measured, the rest timed out."""
    running = start(rig, nvml_library)
    nvml_library.gpu(2, nvmlDeviceGetHandleByPciBusId_v2="pause")
    until_stuck(running)
    assert running.terminate()[0] == 0
    first = first_failure(rows_on_time(rig))
    assert [first.cells[column] for column in POWER] == [WATTS, WATTS, "", ""]
    assert [missing_reasons(rig.journal(), column)[0] for column in POWER[2:]] == ["TIMED_OUT", "TIMED_OUT"]


@pytest.mark.root
def test_a_driver_in_uninterruptible_sleep_is_waited_for(rig: Rig, nvml_library: NvmlLibrary) -> None:
    """Nothing can end it and nobody tries; when the call returns, the same process serves on."""
    disk = rig.loop_disk()
    running = start(rig, nvml_library)
    before = holder(rig)
    disk.freeze()
    nvml_library.gpu(3, nvmlDeviceGetPowerUsage=f"create {disk.path / 'new'}")
    until_stuck(running)
    assert [(process.pid, process.state) for process in rig.processes("nvml")] == [(before, "D")]

    nvml_library.gpu(3, nvmlDeviceGetPowerUsage=None)
    disk.thaw()
    until_success(running, 1)
    assert (holder(rig), running.metrics()[STUCK_SECONDS]) == (before, 0)
    running.ticks_more(1)
    assert running.terminate()[0] == 0
    assert [answered(rows_on_time(rig), "nvml")[-1].cells[column] for column in POWER] == [WATTS] * 4


def test_a_library_that_aborts_takes_its_worker_only(rig: Rig, nvml_library: NvmlLibrary) -> None:
    """The tick keeps what came before the crash; at the next one a new worker asks again."""
    running = start(rig, nvml_library)
    before = holder(rig)
    nvml_library.gpu(1, nvmlDeviceGetHandleByPciBusId_v2="abort")
    assert has_ended(before, PATIENCE_SECONDS)
    running.line("nvml: the worker process ended")
    until_success(running, 0)  # the tick it broke is over: what is shown from here on is not from before
    nvml_library.gpu(1, nvmlDeviceGetHandleByPciBusId_v2=None)
    until_success(running, 1)
    assert holder(rig) != before
    assert running.metrics()[STUCK_SECONDS] == 0
    running.ticks_more(1)
    assert running.terminate()[0] == 0
    rows = rows_on_time(rig)
    assert [first_failure(rows).cells[column] for column in POWER] == [WATTS, "", "", ""]
    assert [answered(rows, "nvml")[-1].cells[column] for column in POWER] == [WATTS] * 4


def test_a_half_upgraded_driver_is_said_and_served_when_it_matches(rig: Rig, nvml_library: NvmlLibrary) -> None:
    """While library and module differ every tick tries to open the driver, and no more than that; once they match, it answers."""
    nvml_library.driver(library_version="590.48.01")
    running = rig.start(rig.pci(), rig.host(), rig.driver(nvml_library))
    running.line("nvml: driver library and kernel module differ in version")
    running.ticks_more(3)
    assert nvml_library.count("nvmlInitWithFlags") >= 3
    assert nvml_library.count("nvmlDeviceGetCount_v2") == 0
    nvml_library.driver(driver_version="590.48.01")  # the module has been reloaded
    until_success(running, 1)
    assert len(rig.processes("nvml")) == 1
    running.ticks_more(1)
    assert running.terminate()[0] == 0
    assert [answered(rows_on_time(rig), "nvml")[-1].cells[column] for column in POWER] == [WATTS] * 4


def test_an_upgrade_under_the_running_daemon_needs_no_restart_by_hand(rig: Rig, nvml_library: NvmlLibrary) -> None:
    """New files change nothing for who has the old ones loaded; with the new module the old worker gives way to one that fits."""
    running = start(rig, nvml_library)
    before = holder(rig)
    nvml_library.driver(library_version="590.48.01")
    running.ticks_more(2)
    assert (holder(rig), running.metrics()[SUCCESS]) == (before, 1)
    nvml_library.driver(every="error 9")
    running.line("nvml: the nvidia kernel module is not loaded")
    assert holder(rig) == before
    nvml_library.driver(every=None, driver_version="590.48.01")
    running.line("nvml: driver library and kernel module differ in version")
    until_success(running, 1)
    assert holder(rig) != before
    running.ticks_more(1)
    assert running.terminate()[0] == 0
    assert [answered(rows_on_time(rig), "nvml")[-1].cells[column] for column in POWER] == [WATTS] * 4


def test_a_slow_start_of_the_driver_is_waited_for_and_holds_up_nobody(rig: Rig, nvml_library: NvmlLibrary) -> None:
    """Without persistence the first call initialises every GPU: rows go out without them, and the worker is not called stuck."""
    gate = rig.folder / "gate"
    os.mkfifo(gate)
    nvml_library.driver(nvmlInitWithFlags=f"read {gate}")
    running = rig.start(rig.pci(), rig.host(), rig.driver(nvml_library, first_deadline_seconds=120.0))
    running.until("it opens the driver", lambda: rig.processes("nvml"))
    running.ticks_more(3)
    assert running.metrics()[STUCK_SECONDS] == 0
    first = holder(rig)
    nvml_library.driver(nvmlInitWithFlags=None)
    open_gate(gate)
    until_success(running, 1)
    assert (holder(rig), nvml_library.count("nvmlInitWithFlags")) == (first, 1)
    running.ticks_more(1)
    assert running.terminate()[0] == 0
    rows = rows_on_time(rig)
    assert not [column for column in POWER if rows[0].cells.get(column)]
    assert [answered(rows, "nvml")[-1].cells[column] for column in POWER] == [WATTS] * 4


def a_spike(rig: Rig) -> tuple[int, str]:
    """600 ms of work with one sample of 931 W, all of it in the buffer by now: when it began (us), and the trace for a GPU."""
    path = rig.folder / "spike"
    path.write_text("".join(f"{number * 20_000} {SPIKE_MW if number == SPIKE_AT else 200_000}\n" for number in range(30)))
    began_us = time.time_ns() // 1000 - 600_000
    return began_us, f"file {began_us} {path}"


def power_trace(rig: Rig) -> list[dict[str, str]]:
    """The part of the one dump; it says `ok`."""
    (folder,) = dumps.folders(rig.state_dir)
    (part,) = (part for part in dumps.load(folder).parts if part.name == "015-power-trace.csv")
    assert part.status == "ok"
    return list(csv.DictReader((folder / part.name).read_text().splitlines()))


def test_a_spike_before_the_driver_hung_is_in_the_dump(rig: Rig, nvml_library: NvmlLibrary) -> None:
    """It left the worker before the call that never returns, which is alive, asked nothing and killed by nobody."""
    nvml_library.gpu(0, trace="none")
    running = start(rig, nvml_library)
    began_us, trace = a_spike(rig)
    nvml_library.gpu(0, trace=trace)
    drained = nvml_library.count("nvmlDeviceGetSamples", gpu=0)
    running.until("it is drained", lambda: nvml_library.count("nvmlDeviceGetSamples", gpu=0) >= drained + 4)  # two calls a drain
    nvml_library.every_gpu(nvmlDeviceGetSamples="pause")
    until_stuck(running)
    stuck, stood_at = holder(rig), nvml_library.total()
    rig.kernel.says(LOST)
    running.line("TAKE_DUMP .* ok")
    rows = [row for row in power_trace(rig) if row["gpu"] == "0000:11:00.0"]
    spike = [row for row in rows if row["watts"] == f"{SPIKE_MW / 1000:.3f}"]
    assert [(row["time"], row["source"]) for row in spike] == [(iso_us(began_us + SPIKE_AT * 20_000), "buffer")]
    assert len([row for row in rows if row["watts"] == "200.000"]) == 29
    assert (holder(rig), nvml_library.total()) == (stuck, stood_at)
    assert running.terminate()[0] == 0


def test_boards_without_a_buffer_are_polled_said_once_and_marked_in_the_dump(rig: Rig, nvml_library: NvmlLibrary) -> None:
    """The remark names them; every sample of theirs says that it was polled, and none of the others does."""
    for number in (0, 2):
        nvml_library.gpu(number, nvmlDeviceGetSamples="error 3")
    running = start(rig, nvml_library)
    said = running.line("nvml: the driver gives no power samples for 0000:11:00.0, 0000:13:00.0; its sensor's latest reading")
    running.ticks_more(3)
    assert [line for line in running.lines if line.text == said.text] == [said]
    rig.kernel.says(LOST)
    running.line("TAKE_DUMP .* ok")
    sources = {(row["gpu"][5:7], row["source"], row["watts"]) for row in power_trace(rig)}
    assert sources == {
        ("11", "poll_instant", "251.000"),
        ("12", "buffer", "250.000"),
        ("13", "poll_instant", "251.000"),
        ("14", "buffer", "250.000"),
    }
    assert running.terminate()[0] == 0


def test_after_a_fatal_xid_the_driver_is_called_no_more(rig: Rig, nvml_library: NvmlLibrary) -> None:
    """The worker shuts the session down and leaves; from then on the library's own counter stands still."""
    running = start(rig, nvml_library)
    before = holder(rig)
    rig.tree.die("0000:0f:00.0")
    nvml_library.every_gpu(every="error 15")
    rig.kernel.says(LOST)
    running.line("RELEASE_DRIVER .* ok")
    assert has_ended(before, PATIENCE_SECONDS)
    poll_until("nobody holds the driver", lambda: not rig.processes("nvml"))
    stood_at = nvml_library.calls()
    running.ticks_more(6)  # 3 s: a drain of the buffers would have come
    assert nvml_library.calls() == stood_at
    assert stood_at["nvmlShutdown"][0] == 1
    assert not rig.processes("nvml")
    assert running.terminate()[0] == 0
    assert nvml_library.calls() == stood_at
    assert [rows_on_time(rig)[-1].cells[column] for column in POWER] == [""] * 4
    assert missing_reasons(rig.journal(), POWER[0])[-1] == "NOT_ASKED"
