"""The NVML probe in its real worker, through the real binding, over a library in C: what no fake in Python can show.

The library is proven first: fed with what an H200 answered, the probe reads what was recorded there.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pynvml
import pytest

from tests.fakes.nvml import DEVICE_FUNCTIONS
from tests.fakes.nvml_library import SONAME, NvmlLibrary, bus_id
from tests.fakes.worker import PATIENCE_SECONDS, HandWorker
from xidwatch.core.model import Missing
from xidwatch.core.power import Stretch, TraceSource
from xidwatch.probes.nvml_table import CALLS, INVENTORIED, SAMPLED, Code

GPUS = [f"gpu:0000:{bus}:00.0" for bus in ("11", "12", "13", "14")]
FIRST, SECOND = GPUS[:2]
TOO_SOON = {"power_mean_watts", "power_peak_watts"}  # two samples at once leave no time for a mean, or a new entry in the buffer

# One H200, driver 580.159.04: what each call answered, and what the probe has to make of it.
RECORDED = {
    "name": "NVIDIA H200",
    "vbios": "96.00.A5.00.1A",
    "power_mw": 79852,
    "energy_mj": 4339664,
    "energy_rate_mw": 0,
    "limit_mw": 700000,
    "default_limit_mw": 700000,
    "temperature_c": 35,
    "clock_sm_mhz": 345,
    "utilisation_percent": 0,
    "memory_used_bytes": 644939776,
    "memory_total_bytes": 150754820096,
    "event_reasons": 1,
    "performance_state": 0,
    "link_generation": 5,
    "link_width": 16,
    "replays": 0,
    "field.186": 80119,
    "field.82": 37,
    "field.230": 0,
}
READ = {
    "power_average_watts": 79.852,
    "power_limit_watts": 700.0,
    "temperature_celsius": 35,
    "clock_sm_mhz": 345,
    "utilisation_ratio": 0.0,
    "memory_used_bytes": 644939776,
    "clock_event_reasons": 1,
    "performance_state": 0,
    "nvml_link_generation": 5,
    "nvml_link_width": 16,
    "pcie_replays": 0,
    "power_instant_watts": 80.119,
    "temperature_memory_celsius": 37,
    "recovery_action": 0,
    "nvml_status": 0,
}
# From its total-power buffer: a 100 ms burst of matrix products. Microseconds from the first, milliwatts.
BURST = (
    (0, 125814), (19914, 126190), (41734, 125814), (59863, 126190), (79921, 125814), (99896, 125169), (119866, 125491), (139864, 125491),
    (163190, 125814), (179836, 126520), (200066, 127818), (219865, 554049), (253559, 910545), (274178, 930617), (283411, 914930),
    (300026, 828747), (324837, 396550), (340121, 177070), (362995, 132196), (395871, 124140), (403916, 123817),
)  # fmt: skip


@pytest.fixture
def worker(nvml_library: NvmlLibrary) -> Iterator[HandWorker]:
    with HandWorker("nvml", nvml_library.environment) as worker:
        yield worker


def binding_says(library: NvmlLibrary, script: str) -> str:
    """What a script prints that has the real binding, as `pynvml`, and a session."""
    words = [sys.executable, "-c", f"import pynvml\npynvml.nvmlInit()\n{script}"]
    environment = {**os.environ, **library.environment}
    return subprocess.run(words, env=environment, capture_output=True, text=True, timeout=PATIENCE_SECONDS, check=True).stdout.strip()


# --- the library is what was recorded


def test_what_an_h200_answered_is_read_as_it_was_recorded(nvml_library: NvmlLibrary, worker: HandWorker) -> None:
    """Through structures, unions and arrays of the binding, every figure comes out as it went in."""
    nvml_library.gpu(0, **RECORDED)
    sampled, inventory = worker.ask().readings[FIRST], worker.ask("inventory").readings
    assert {quantity: sampled[quantity] for quantity in READ} == READ
    assert set(SAMPLED) <= set(sampled)
    told = {"nvml_index": 0, "name": "NVIDIA H200", "vbios": "96.00.A5.00.1A", "power_limit_default_watts": 700.0}
    assert {quantity: inventory[FIRST][quantity] for quantity in told} == told
    assert set(inventory[FIRST]) == {*INVENTORIED, "power_trace_source"}
    assert inventory["driver:nvidia"] == {"version": "580.159.04"}
    assert worker.end() == (0, "")
    assert nvml_library.count("nvmlShutdown") == 1


def test_every_function_of_the_probe_is_in_the_library(nvml_library: NvmlLibrary) -> None:
    """A function that only the fake in Python knows would be UNSUPPORTED here, and nobody would notice."""
    wanted = {name for name in DEVICE_FUNCTIONS if name not in {"nvmlDeviceGetPciInfo", "nvmlDeviceGetTemperatureV"}}
    script = f"print([name for name in {sorted(wanted)} if not hasattr(pynvml.nvmlLib, name)])"
    assert binding_says(nvml_library, script) == "[]"


def test_the_sample_buffer_is_that_of_an_h200(nvml_library: NvmlLibrary) -> None:
    """119 entries of 20 ms, stamped in microseconds of the wall clock, oldest first; and none that has been seen."""
    script = (
        "handle = pynvml.nvmlDeviceGetHandleByIndex(0)\n"
        "kind, all = pynvml.nvmlDeviceGetSamples(handle, 0, 0)\n"
        "_, new = pynvml.nvmlDeviceGetSamples(handle, 0, all[60].timeStamp)\n"
        "print(kind, len(all), {b.timeStamp - a.timeStamp for a, b in zip(all, all[1:])}, new[0].timeStamp - all[60].timeStamp)\n"
        "print(all[-1].timeStamp, sorted({e.sampleValue.uiVal for e in all}))\n"
        "try:\n  pynvml.nvmlDeviceGetSamples(handle, 0, 1 << 62)\n"
        "except pynvml.NVMLError_NotFound as error:\n  print(error)"
    )
    nvml_library.gpu(0, trace="bursts 127000 931000 100 500")
    before = time.time()
    shape, content, nothing_new = binding_says(nvml_library, script).splitlines()
    newest, _, milliwatts = content.partition(" ")
    assert (shape, milliwatts, nothing_new) == ("1 119 {20000} 20000", "[127000, 931000]", "Not Found")
    assert before - 0.02 <= int(newest) / 1e6 <= time.time()


@pytest.mark.parametrize(
    ("lookup", "answer"),
    [
        (f"ByPciBusId('{bus_id(0)}')", "found"),
        ("ByIndex(0)", "found"),
        ("ByUUID('GPU-00000000-0000-0000-0000-000000000001')", "GPU is lost"),
        ("BySerial('0000000000001')", "GPU is lost"),
    ],
)
def test_one_lost_gpu_spoils_the_lookup_of_others_by_uuid_and_serial(nvml_library: NvmlLibrary, lookup: str, answer: str) -> None:
    """As nvml.h warns; by address or index the healthy one is found."""
    script = f"try:\n  pynvml.nvmlDeviceGetHandle{lookup}\n  print('found')\nexcept pynvml.NVMLError as error:\n  print(error)"
    assert binding_says(nvml_library, script) == "found"
    nvml_library.gpu(1, every="error 15")
    assert binding_says(nvml_library, script) == answer


@pytest.mark.parametrize("wrong", ["power_wm = 1", "[gpus]", "field.186 = much", "nvmlInitWithFlags = hang", "trace = constant"])
def test_a_state_that_makes_no_sense_is_no_healthy_driver(nvml_library: NvmlLibrary, worker: HandWorker, wrong: str) -> None:
    """A test that misspells what should go wrong must not pass because nothing did."""
    key, _, value = wrong.partition(" = ")
    nvml_library.gpu(0, **{key: value})
    assert not worker.ask().done
    assert worker.leaves()[1].startswith("fake libnvidia-ml: ")


# --- what may go wrong with a GPU


@pytest.mark.parametrize("code", [Code.GPU_IS_LOST, Code.RESET_REQUIRED])
def test_one_lost_gpu_of_four_leaves_three_fully_read(nvml_library: NvmlLibrary, worker: HandWorker, code: int) -> None:
    """The lost one says so, and is asked nothing but whether it is back; the others miss nothing."""
    worker.ask()
    nvml_library.gpu(1, every=f"error {code:d}")
    before = nvml_library.calls()
    readings = worker.ask().readings
    assert readings[SECOND]["nvml_status"] == code
    assert set(readings[SECOND].values()) - {code} <= {Missing.DEVICE_LOST, 250.0, 119}  # and the peak from before the loss
    for gpu in (GPUS[0], *GPUS[2:]):
        assert not [name for name, value in readings[gpu].items() if isinstance(value, Missing) and name not in TOO_SOON]
        assert readings[gpu]["nvml_status"] == 0
        assert readings[gpu]["power_average_watts"] == 250.0
    asked = [name for name, counts in nvml_library.calls().items() if counts[2] > before[name][2]]
    assert asked == ["nvmlDeviceGetHandleByPciBusId_v2"]


def test_a_gpu_taken_off_the_bus_is_absent_and_no_stale_handle_is_used(nvml_library: NvmlLibrary, worker: HandWorker) -> None:
    """The library would crash for a handle whose GPU is gone; the worker lives, and the others keep their names."""
    worker.ask()
    nvml_library.remove(1)
    readings = worker.ask().readings
    assert readings[SECOND]["nvml_status"] is Missing.ABSENT
    assert [readings[gpu]["nvml_status"] for gpu in (GPUS[0], *GPUS[2:])] == [0, 0, 0]
    assert worker.end() == (0, "")


def test_a_handle_that_was_never_given_out_is_a_crash(nvml_library: NvmlLibrary) -> None:
    """What the probe avoids by looking up again at every tick is fatal here, as it can be with the real one."""
    script = "handle = pynvml.nvmlDeviceGetHandleByIndex(0)\npynvml.nvmlShutdown()\npynvml.nvmlInit()\npynvml.nvmlDeviceGetName(handle)"
    with pytest.raises(subprocess.CalledProcessError) as caught:
        binding_says(nvml_library, script)
    assert caught.value.returncode == -6
    assert "nvmlDeviceGetName with a handle that is not valid" in caught.value.stderr


def test_a_denied_call_costs_its_own_quantity_only(nvml_library: NvmlLibrary, worker: HandWorker) -> None:
    """NoPermission is DENIED, asked again, and nothing else suffers."""
    nvml_library.driver(nvmlDeviceGetPcieReplayCounter="error 4")
    for _ in range(2):
        readings = worker.ask().readings[FIRST]
        assert readings["pcie_replays"] is Missing.DENIED
        assert readings["nvml_link_width"] == 16
    assert nvml_library.count("nvmlDeviceGetPcieReplayCounter", gpu=0) == 2


# --- an older driver


@pytest.mark.slow
def test_an_older_driver_answers_by_older_names(nvml_library: NvmlLibrary, nvml_built: Callable[..., Path]) -> None:
    """Where the symbols themselves are missing, the older names give the same readings; what has none is UNSUPPORTED."""
    newer = [row.function for row in CALLS if row.older]
    old = {**nvml_library.environment, "LD_LIBRARY_PATH": str(nvml_built(*newer, "nvmlDeviceGetFieldValues"))}
    nvml_library.gpu(0, **RECORDED)
    with HandWorker("nvml", old) as worker:
        readings = worker.ask().readings[FIRST]
        worker.ask()
    gone = dict.fromkeys(("power_instant_watts", "temperature_memory_celsius", "recovery_action"), Missing.UNSUPPORTED)
    assert {quantity: readings[quantity] for quantity in READ} == {**READ, **gone}
    assert [nvml_library.count(name) for name in newer] == [0] * len(newer)
    assert [nvml_library.count(row.older, gpu=0) for row in CALLS if row.older] == [2] * len(newer)


@pytest.mark.parametrize("function", ["nvmlDeviceGetSamples", "nvmlDeviceGetTotalEnergyConsumption", "nvmlDeviceGetTemperatureV"])
def test_what_a_board_does_not_support_is_asked_once(nvml_library: NvmlLibrary, worker: HandWorker, function: str) -> None:
    """The driver says "not supported" once and is not asked again; the counter in the library is the witness."""
    nvml_library.every_gpu(**{function: "error 3"})
    for _ in range(3):
        assert worker.ask().done
    assert nvml_library.calls()[function][1:5] == (1, 1, 1, 1)


# --- the driver as a whole


@pytest.mark.parametrize(
    ("answer", "kind", "words"),
    [
        ("error 9", "NVMLError_DriverNotLoaded", "modprobe nvidia"),
        ("error 4", "NVMLError_NoPermission", "/dev/nvidia"),
        ("error 999", "NVMLError_Unknown", "kernel log"),
    ],
)
def test_a_driver_that_does_not_start_says_why_and_is_tried_again(
    nvml_library: NvmlLibrary, worker: HandWorker, answer: str, kind: str, words: str
) -> None:
    """The same worker serves as soon as the driver does."""
    nvml_library.driver(nvmlInitWithFlags=answer)
    failed = worker.ask().failed
    assert failed
    assert failed.type == kind
    assert words in failed.text
    nvml_library.driver(nvmlInitWithFlags=None)
    assert worker.ask().value(FIRST, "nvml_status") == 0


@pytest.mark.slow
def test_after_an_upgrade_only_a_new_process_gets_on_with_the_driver(nvml_library: NvmlLibrary, worker: HandWorker) -> None:
    """The old library stays mapped, whatever is on disk by now: the worker says "mismatch" and leaves by itself."""
    assert worker.ask().done
    nvml_library.driver(every="error 9")  # unloaded
    assert worker.ask().failed
    nvml_library.driver(every=None, driver_version="590.48.01", library_version="590.48.01")
    failed = worker.ask().failed
    assert failed
    assert (failed.type, "reload the nvidia module" in failed.text) == ("NVMLError_LibRmVersionMismatch", True)
    assert worker.leaves() == (0, "")
    with HandWorker("nvml", nvml_library.environment) as successor:
        assert successor.ask("inventory").value("driver:nvidia", "version") == "590.48.01"


def test_no_library_at_all_is_said(tmp_path: Path) -> None:
    """Without the file the binding says so, and the probe what to do about it."""
    with HandWorker("nvml", {"LD_LIBRARY_PATH": str(tmp_path)}) as worker:
        failed = worker.ask().failed
    if failed is None or failed.type != "NVMLError_LibraryNotFound":
        pytest.skip(f"this host has its own {SONAME}")
    assert "install the NVIDIA driver" in failed.text


# --- the buffer between the ticks


def play(library: NvmlLibrary, entries: Mapping[int, int], folder: Path) -> int:
    """From now on the first GPU's buffer is this recording (offset in us to mW), played once; when it began, in us."""
    path = folder / f"trace-{library.total()}"
    path.write_text("".join(f"{offset} {milliwatts}\n" for offset, milliwatts in entries.items()))
    began_us = time.time_ns() // 1000
    library.gpu(0, trace=f"file {began_us} {path}")
    return began_us


def sent_by(worker: HandWorker, subject: str) -> list[Stretch]:
    return [stretch for stretch in worker.traces if str(stretch.subject) == subject]


def samples_of(worker: HandWorker, subject: str) -> list[tuple[int, int]]:
    """Stamp and milliwatts, in the order in which they came."""
    return [pair for stretch in sent_by(worker, subject) for pair in zip(stretch.stamps_us, stretch.milliwatts, strict=True)]


@pytest.mark.slow
def test_a_burst_between_two_ticks_is_caught_by_the_worker_itself(nvml_library: NvmlLibrary, worker: HandWorker, tmp_path: Path) -> None:
    """Nobody asks for two seconds; the buffer has forgotten the burst by the next tick, and it is told all the same, once."""
    nvml_library.gpu(0, trace="none")
    assert worker.ask().value(FIRST, "power_peak_watts") is Missing.ABSENT
    began_us = play(nvml_library, dict(BURST), tmp_path)
    worker.until(lambda: len(samples_of(worker, FIRST)) == len(BURST))
    assert samples_of(worker, FIRST) == [(began_us + offset_us, milliwatts) for offset_us, milliwatts in BURST]
    nvml_library.gpu(0, trace="none")  # as if 2.4 s had passed
    told = worker.ask()
    assert (told.value(FIRST, "power_peak_watts"), told.value(FIRST, "power_samples")) == (930.617, len(BURST))
    assert told.value(FIRST, "power_average_watts") == 250.0
    assert worker.ask().value(FIRST, "power_peak_watts") is Missing.ABSENT


@pytest.mark.slow
def test_a_buffer_that_has_forgotten_what_was_seen_last_shows_a_gap(nvml_library: NvmlLibrary, worker: HandWorker, tmp_path: Path) -> None:
    """The first drain of a recording follows nothing, the second the first; one whose beginning is gone follows nothing."""
    nvml_library.gpu(0, trace="none")
    worker.ask()
    play(nvml_library, {0: 80_000, 20_000: 81_000}, tmp_path)
    worker.until(lambda: len(samples_of(worker, FIRST)) == 2)
    before = len(sent_by(worker, FIRST))
    play(nvml_library, {0: 82_000, 20_000: 83_000}, tmp_path)
    worker.until(lambda: len(samples_of(worker, FIRST)) == 4)
    assert sent_by(worker, FIRST)[before].after_us == 0
    follows = {stretch.after_us for stretch in sent_by(worker, SECOND)[1:]}
    assert follows == {stretch.stamps_us[-1] for stretch in sent_by(worker, SECOND)[:-1]}


@pytest.mark.slow
def test_a_board_without_the_buffer_is_polled_by_the_worker_itself(nvml_library: NvmlLibrary, worker: HandWorker) -> None:
    """Unasked, several times; what each sample is goes with it, and another GPU's buffer is drained beside it."""
    nvml_library.gpu(0, nvmlDeviceGetSamples="error 3")
    nvml_library.gpu(1, nvmlDeviceGetSamples="error 3", **{"field.186": "error 3"})
    readings = worker.ask().readings
    assert [readings[gpu]["power_trace_source"] for gpu in GPUS] == ["poll_instant", "poll_average", "buffer", "buffer"]
    worker.until(lambda: min(len(sent_by(worker, gpu)) for gpu in GPUS) >= 3)
    sources = [{(stretch.source, stretch.milliwatts) for stretch in sent_by(worker, gpu)} for gpu in GPUS[:2]]
    assert sources == [{(TraceSource.POLL_INSTANT, (251_000,))}, {(TraceSource.POLL_AVERAGE, (250_000,))}]


def test_error_numbers_are_those_of_the_binding(nvml_library: NvmlLibrary) -> None:
    """The words for an error come from the library, and are the vendor's for what the binding has no words of its own for."""
    said = binding_says(nvml_library, "print([str(pynvml.NVMLError(code)) for code in (2, 3, 4, 6, 9)])")
    assert said == "['Invalid Argument', 'Not Supported', 'Insufficient Permissions', 'Not Found', 'Driver Not Loaded']"
    assert (pynvml.NVML_ERROR_INVALID_ARGUMENT, pynvml.NVML_ERROR_DRIVER_NOT_LOADED) == (2, 9)
