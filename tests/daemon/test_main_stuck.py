"""Workers that do not come back: how many are left behind, what their replacements do, and who is never replaced or killed."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.daemon.harness import PATIENCE_SECONDS, Rig, Running, has_ended, missing_reasons, open_gate
from tests.fakes.probes import FIRST, PORTS, SECOND, THIRD
from xidwatch.daemon.workers import MOST_ABANDONED
from xidwatch.records.samples import Row

INTERVAL_SECONDS = 0.5
WORD = "c0101000"
POWER = "gpu:0000:11:00.0:power_average_watts"

pytestmark = pytest.mark.slow


@pytest.fixture
def rig(tmp_path: Path) -> Iterator[Rig]:
    with Rig(tmp_path) as rig:
        yield rig


def start(rig: Rig, target: str, file: Path) -> Running:
    """The probe `bad`, whose trouble begins with the file `trouble`, beside two healthy ones."""
    options = {"when": str(rig.folder / "trouble"), "file": str(file)}
    running = rig.start(rig.pci(), rig.host(), rig.probe("bad", f"tests.fakes.probes:{target}", options=options))
    running.settle()
    return running


def skipping(rig: Rig) -> list[Row]:
    """The rows of a replacement that answers beside the stuck one."""
    return [row for row in rig.rows() if row.cells["probe:bad:answering"] == "1" and row.cells["probe:bad:stuck_seconds"] != "0"]


def stuck_processes(rig: Rig) -> list[int]:
    return [process.pid for process in rig.processes("bad") if process.state == "D"]


@pytest.mark.root
def test_a_replacement_leaves_out_what_its_predecessor_is_stuck_at(rig: Rig) -> None:
    """One process stays in uninterruptible sleep; another serves all that is not behind the same device, until that is back."""
    disk = rig.loop_disk()
    running = start(rig, "opens_file", disk.path / "new")
    disk.freeze()
    (rig.folder / "trouble").touch()
    running.line(f"bad: leaves out {SECOND}, where a process is stuck")
    assert running.metrics()['xidwatch_probe_success{probe="bad"}'] == 0  # not in full
    running.until("it is seen that the process cannot be ended", lambda: skipping(rig))
    (stuck,) = stuck_processes(rig)
    assert len(rig.processes("bad")) == 2

    disk.thaw()
    assert has_ended(stuck, PATIENCE_SECONDS)
    running.until("nobody is stuck", lambda: running.metrics()['xidwatch_probe_stuck_seconds{probe="bad"}'] == 0)
    running.ticks_more(2)
    assert running.terminate()[0] == 0
    skipped = skipping(rig)
    assert skipped
    for row in skipped:
        cells = [row.cells[f"{port}:config_dword0"] for port in (FIRST, SECOND, THIRD)]
        assert cells == [WORD, "", WORD]
    assert missing_reasons(rig.journal(), f"{SECOND}:config_dword0") == ["TIMED_OUT", "NOT_ASKED", None]


@pytest.mark.root
def test_no_more_than_three_are_left_behind(rig: Rig) -> None:
    """A probe that gets stuck at one device after the other loses three processes and no more; when they are free it serves again."""
    disk = rig.loop_disk()
    running = start(rig, "opens_file_everywhere", disk.path / "new")
    disk.freeze()
    (rig.folder / "trouble").touch()
    running.line(f"bad: {MOST_ABANDONED} processes are stuck already; none is added")
    running.ticks_more(2)
    assert len(stuck_processes(rig)) == len(rig.processes("bad")) == MOST_ABANDONED

    disk.thaw()
    running.until("it serves again", lambda: running.metrics()['xidwatch_probe_success{probe="bad"}'] == 1)
    running.until("nobody is left", lambda: len(rig.processes("bad")) == 1)
    running.ticks_more(1)
    assert running.terminate()[0] == 0
    rows = rig.rows()
    assert rig.most_late(rows, INTERVAL_SECONDS) < 0.5
    assert [rows[-1].cells[f"{port}:config_dword0"] for port in PORTS] == [WORD] * len(PORTS)


def until_nvml_answers(running: Running) -> None:
    """It is not asked before the journal has been read, which takes a busy host a while."""
    running.until("nvml answers", lambda: running.metrics().get('xidwatch_probe_success{probe="nvml"}') == 1)


def test_a_driver_holder_is_waited_for_and_serves_on_when_it_comes_back(rig: Rig) -> None:
    """While it is in its call nobody takes its place and its cells are empty; the answer that comes late is not taken for a fresh one."""
    gate = rig.folder / "gate"
    os.mkfifo(gate)
    running = rig.start(rig.pci(), rig.host(), rig.nvml())
    until_nvml_answers(running)
    (holder,) = rig.processes("nvml")
    rig.steer(gate=str(gate))
    running.line("nvml: still waiting for the answer to an earlier request")
    running.ticks_more(2)
    assert [process.pid for process in rig.processes("nvml")] == [holder.pid]
    assert running.metrics()['xidwatch_probe_stuck_seconds{probe="nvml"}'] > 0

    rig.steer()
    open_gate(gate)
    running.until("it answers again", lambda: running.metrics()['xidwatch_probe_success{probe="nvml"}'] == 1)
    assert [process.pid for process in rig.processes("nvml")] == [holder.pid]
    assert running.metrics()['xidwatch_probe_stuck_seconds{probe="nvml"}'] == 0
    assert running.terminate()[0] == 0
    rows = rig.rows()
    assert rig.most_late(rows, INTERVAL_SECONDS) < 0.5
    power = [row.cells.get(POWER, "") for row in rows]  # before the first answer there is no such column
    assert [cell != "" for cell in power] == [row.cells["probe:nvml:success"] == "1" for row in rows]
    assert "" in power[power.index(next(filter(None, power))) :]
    assert rows[-1].cells[POWER]


def test_a_stuck_driver_holder_is_let_go_for_good(rig: Rig) -> None:
    """A fatal Xid while it is in its call: it is told to leave, nobody says that it has, and when the call returns it is gone."""
    gate = rig.folder / "gate"
    os.mkfifo(gate)
    running = rig.start(rig.pci(), rig.host(), rig.nvml())
    until_nvml_answers(running)
    (holder,) = rig.processes("nvml")
    rig.steer(gate=str(gate))
    running.line("nvml: still waiting for the answer to an earlier request")
    rig.kernel.says("NVRM: Xid (PCI:0000:11:00): 119, pid=467, name=x, Timeout after 6s of waiting for RPC response from GPU0 GSP!")
    running.line("RELEASE_DRIVER .* timeout .*nvml is in a driver call that does not return; it leaves when it does")
    running.ticks_more(2)
    assert [process.pid for process in rig.processes("nvml")] == [holder.pid]

    rig.steer()
    open_gate(gate)
    assert has_ended(holder.pid, PATIENCE_SECONDS)
    running.ticks_more(2)
    assert not rig.processes("nvml")
    assert running.terminate()[0] == 0
