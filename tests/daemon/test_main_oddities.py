"""Files that no kernel should offer, before the real daemon: far too long, beyond all numbers, gone between listing and reading."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.daemon.harness import Rig, Running, missing_reasons, numbers
from tests.fakes.engine import EngineHost
from tests.fakes.hwmon import HwmonTree

INTERVAL_SECONDS = 1.0
UNIT = "vllm.service"
GPU = "0000:11:00.0"
BOARD = "chip:nct6798@platform/nct6775.656"
LONG = b"9" * (10 * 1024 * 1024)
BEYOND = "9" * 400
PROC = {
    "loadavg": "1.25 0.50 0.25 1/84 7357\n",
    "uptime": "1141.64 2196.32\n",
    "stat": "cpu  100 0 50 9000 10 0 5 0 0 0\ncpu0 100 0 50 9000 10 0 5 0 0 0\nprocs_blocked 0\n",
    "meminfo": "MemTotal: 64000000 kB\nMemFree: 32000000 kB\nMemAvailable: 48000000 kB\nSwapTotal: 9 kB\nSwapFree: 9 kB\n",
    "vmstat": "pswpin 0\npswpout 0\n",
}

pytestmark = pytest.mark.slow


class Stage:
    """Everything the probes read, in folders."""

    def __init__(self, rig: Rig) -> None:
        self.rig = rig
        self.sensors = HwmonTree(rig.folder / "sensors")
        self.board = self.sensors.board()
        self.engines = EngineHost(rig.folder / "engines")
        self.engines.process(4711)
        self.engines.unit(UNIT, [4711])
        self.proc = rig.folder / "proc"
        self.proc.mkdir()
        for name, text in PROC.items():
            (self.proc / name).write_text(text)

    def start(self) -> Running:
        rig = self.rig
        hwmon = rig.probe("hwmon", "xidwatch.probes.hwmon:create", options={"root": str(self.sensors.root)})
        host = rig.probe("host", "xidwatch.probes.host:create", options={"proc_root": str(self.proc)})
        running = rig.start(rig.pci(), hwmon, host, rig.engine({**self.engines.options, "engines": [{"unit": UNIT}]}), interval="1s")
        running.settle()
        return running

    @property
    def gpu(self) -> Path:
        return self.rig.tree.folder(GPU)


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[Stage]:
    with Rig(tmp_path) as rig:
        yield Stage(rig)


def assert_unharmed(rig: Rig) -> None:
    """Every tick on time, every probe answering in each, every record there once, nothing bad believed."""
    rows, entries = rig.rows(), rig.journal()
    assert rig.most_late(rows, INTERVAL_SECONDS) < 0.5
    assert [row.tick for row in rows] == list(range(1, len(rows) + 1))
    for name in ("pci", "hwmon", "host", "engine"):
        assert {row.cells[f"probe:{name}:answering"] for row in rows[1:]} == {"1"}, name
    assert sorted(numbers(entries)) == list(range(1, len(entries) + 1))
    assert not [entry.body for entry in entries if entry.kind == "transition" and entry.body["after"] == "TRUE"]


def test_a_file_of_ten_megabytes_is_no_number(stage: Stage) -> None:
    """As much is read of it as such a file can have, and is MALFORMED; what stands beside it is read as ever."""
    running = stage.start()
    for path in (stage.gpu / "current_link_width", stage.gpu / "aer_dev_correctable", stage.board.folder / "in1_input"):
        path.write_bytes(LONG)
    running.ticks_more(2)
    assert running.terminate()[0] == 0
    last, entries = stage.rig.rows()[-1].cells, stage.rig.journal()
    for column in (f"gpu:{GPU}:link_width", f"gpu:{GPU}:aer_correctable", f"{BOARD}/in1:pin_volts"):
        assert last[column] == ""
        assert missing_reasons(entries, column)[-1] == "MALFORMED"
    assert (last[f"gpu:{GPU}:config_dword0"], last[f"{BOARD}/in5:pin_volts"]) == ("220410de", "2.04")
    assert_unharmed(stage.rig)


def test_a_number_beyond_all_measure_is_none(stage: Stage) -> None:
    """Four hundred digits, or infinity, in the files of every probe; no worker, record or view fails at it, and no number is made of it."""
    running = stage.start()
    texts = {
        stage.gpu / "aer_dev_correctable": f"TOTAL_ERR_COR {BEYOND}\n",
        stage.gpu / "current_link_speed": f"{BEYOND}.0 GT/s PCIe\n",
        stage.gpu / "numa_node": f"{BEYOND}\n",
        stage.board.folder / "in1_input": f"{BEYOND}\n",
        stage.board.folder / "temp1_input": f"-{BEYOND}\n",
        stage.proc / "loadavg": f"{BEYOND} inf nan\n",
        stage.proc / "uptime": "1e999 1\n",
        stage.proc / "stat": PROC["stat"].replace("9000", BEYOND).replace("blocked 0", f"blocked {BEYOND}"),
        stage.proc / "meminfo": PROC["meminfo"].replace("48000000", BEYOND).replace("64000000", BEYOND),
    }
    for path, text in texts.items():
        path.write_text(text)
    stage.engines.unit(UNIT, [4711], MainPID=BEYOND, NRestarts=BEYOND, StateChangeTimestampMonotonic=BEYOND)
    running.ticks_more(2)
    assert running.metrics()['xidwatch_probe_success{probe="host"}'] == 1
    assert running.state()["probes"]["engine"]["success"]
    assert running.terminate()[0] == 0
    last = stage.rig.rows()[-1].cells
    for column in (
        *(f"gpu:{GPU}:aer_correctable", f"gpu:{GPU}:link_gts", f"{BOARD}/in1:pin_volts", "host:load_1m", "host:uptime_seconds"),
        *("host:tasks_blocked", "host:memory_available_bytes", f"engine:{UNIT}:restarts"),
    ):
        assert last[column] == "", column
    assert not any(value.lower() in {"inf", "-inf", "nan"} or len(value) > 100 for value in last.values())
    assert last[f"engine:{UNIT}:active_state"] == "active"
    assert_unharmed(stage.rig)


@contextmanager
def coming_and_going(*folders: Path) -> Iterator[None]:
    """What is in these folders, and they themselves, is moved away and back all the time."""
    over = threading.Event()
    names = [(folder, folder.with_name(f"away-{folder.name}")) for folder in folders]

    def play() -> None:
        while not over.is_set():
            for here, away in names:
                here.rename(away)
                over.wait(0.0005)
                away.rename(here)
                over.wait(0.0005)

    player = threading.Thread(target=play)
    player.start()
    try:
        yield
    finally:
        over.set()
        player.join()


def test_what_vanishes_between_listing_and_reading_is_absent_and_costs_nobody_else(stage: Stage) -> None:
    """A GPU's folder, a chip's, a process's and a control group's come and go under the readers; afterwards all is as before."""
    running = stage.start()
    group = stage.engines.cgroup_root / "system.slice" / UNIT
    with coming_and_going(stage.gpu, stage.board.folder, stage.engines.proc_root / "4711", group):
        running.ticks_more(4)
    running.ticks_more(2)
    assert running.terminate()[0] == 0
    rows = stage.rig.rows()
    reasons = {entry.body["reason"] for entry in stage.rig.journal() if entry.kind == "missing"}
    assert reasons <= {None, "ABSENT", "UNSUPPORTED", "NOT_ASKED", "MALFORMED"}
    assert (rows[-1].cells[f"gpu:{GPU}:config_dword0"], rows[-1].cells[f"{BOARD}/in5:pin_volts"]) == ("220410de", "2.04")
    assert rows[-1].cells[f"engine:{UNIT}:processes"] == "1"
    assert {row.cells["port:0000:0f:00.0:config_dword0"] for row in rows[1:]} == {"c0101000"}
    assert_unharmed(stage.rig)
