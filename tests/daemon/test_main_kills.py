"""SIGKILL to every process in turn, as the kernel does when memory runs out: the others go on, and nothing is lost or doubled."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from tests.daemon.harness import PATIENCE_SECONDS, Rig, Running, has_ended, numbers
from xidwatch.records import dumps

INTERVAL_SECONDS = 0.5
XID_43 = 'xidwatch_gpu_xid_errors_total{pci_bus_id="0000:11:00.0",uuid="GPU-00000000-0000-0000-0000-000000000001",xid="43"}'

pytestmark = pytest.mark.slow


@pytest.fixture
def rig(tmp_path: Path) -> Iterator[Rig]:
    with Rig(tmp_path) as rig:
        yield rig


def kill(pid: int) -> None:
    os.kill(pid, signal.SIGKILL)
    assert has_ended(pid, PATIENCE_SECONDS)


def kill_and_see_replaced(rig: Rig, running: Running, name: str) -> None:
    """One child dies, another takes its place."""
    (old,) = rig.processes(name)
    kill(old.pid)
    running.until(f"another {name}", lambda: [process for process in rig.processes(name) if process.pid != old.pid])


def success(running: Running, probe: str) -> bool:
    return running.metrics()[f'xidwatch_probe_success{{probe="{probe}"}}'] == 1


def test_every_child_may_be_killed(rig: Rig) -> None:
    """Each worker, the dump worker standing by, the recorder and the nursery are replaced; every tick and record is there, once."""
    running = rig.start(rig.pci(), rig.host(), rig.nvml())
    running.settle()
    for probe in ("pci", "host", "nvml"):
        kill_and_see_replaced(rig, running, probe)
        running.until(f"{probe} answers again", partial(success, running, probe))
    kill_and_see_replaced(rig, running, "dump")

    (recorder,) = rig.processes("recorder")
    os.kill(recorder.pid, signal.SIGSTOP)  # what it is given now it takes with it
    rig.kernel.says("NVRM: Xid (PCI:0000:11:00): 43, pid=467, name=x, channel 0x0000000a")
    running.until("the Xid is counted", lambda: running.metrics()[XID_43] == 1)
    kill_and_see_replaced(rig, running, "recorder")
    rig.kernel.says("NVRM: Xid (PCI:0000:12:00): 43, pid=468, name=x, channel 0x0000000b")

    kill_and_see_replaced(rig, running, "nursery")
    kill_and_see_replaced(rig, running, "pci")  # the new one can bear children
    running.until("pci answers again", lambda: success(running, "pci"))
    rig.tree.die("0000:0f:00.0")
    running.line("TAKE_DUMP .* ok")
    running.ticks_more(1)
    assert running.terminate()[0] == 0

    rows, entries = rig.rows(), rig.journal()
    assert [row.tick for row in rows] == list(range(1, len(rows) + 1))
    assert rig.most_late(rows, INTERVAL_SECONDS) < 0.5
    assert sorted(numbers(entries)) == list(range(1, len(entries) + 1))
    assert [entry.body["pid"] for entry in entries if entry.kind == "kernel"] == [467, 468]
    (folder,) = dumps.folders(rig.state_dir)
    assert dumps.load(folder).state == "complete"


def test_a_successor_carries_on(rig: Rig) -> None:
    """After SIGKILL of the loop its successor adopts the worker stuck in a driver call, knows the incident, and repeats nothing."""
    rules = rig.rules(ProbeStuck={"hold": "1s"})
    first = rig.start(rig.pci(), rig.host(), rig.nvml(), rules_dir=rules)
    first.settle()
    rig.steer(hang=True)
    first.until_condition("ProbeStuck", "probe:nvml", "TRUE")
    first.until("an incident is open", lambda: first.state()["incident"])
    first.line("TAKE_DUMP .* ok")
    first.ticks_more(1)
    (stuck,) = rig.processes("nvml")
    port, stuck_before, incident = first.metrics_port(), stuck_seconds(first), first.state()["incident"]
    first.kill()

    second = rig.start(rig.pci(), rig.host(), rig.nvml(), rules_dir=rules, metrics=f"127.0.0.1:{port}")
    second.line(f"nvml: process {stuck.pid} of the run before is still there")
    second.line("carrying on from its journal")
    second.tick(8)  # 3.5 s: time enough for a ladder that would end in SIGKILL
    assert (second.state()["incident"], second.condition("ProbeStuck", "probe:nvml")) == (incident, "TRUE")
    assert second.metrics_port() == port
    assert stuck_seconds(second) > stuck_before + 3.0
    assert [process.pid for process in rig.processes("nvml")] == [stuck.pid]
    status, seconds = second.terminate()
    assert (status, second.ours(seconds) < 1.0) == (0, True)
    assert not has_ended(stuck.pid, 0.0)

    entries = rig.journal()
    assert sorted(numbers(entries)) == list(range(1, len(entries) + 1))
    opened = [entry for entry in entries if entry.kind == "opened"]
    edges = [entry for entry in entries if entry.kind == "transition" and entry.body["after"] == "TRUE"]
    taken = [entry for entry in entries if entry.kind == "action" and entry.body["kind"] == "TAKE_DUMP"]
    assert (len(opened), len(edges), len(taken)) == (1, 1, 1)


def stuck_seconds(running: Running) -> float:
    return running.metrics()['xidwatch_probe_stuck_seconds{probe="nvml"}']
