"""The disk under the state directory stops answering in mid-run: a real filesystem, frozen. Everything but the disk goes on."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.daemon.harness import PATIENCE_SECONDS, Rig, Running, has_ended, numbers
from xidwatch.daemon.acting import RECORD_LATE
from xidwatch.records import dumps

INTERVAL_SECONDS = 0.5
SWITCH = "0000:0f:00.0"
LOST = "NVRM: Xid (PCI:0000:11:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus."

pytestmark = [pytest.mark.slow, pytest.mark.root]


@pytest.fixture
def rig(tmp_path: Path) -> Iterator[Rig]:
    with Rig(tmp_path) as rig:
        yield rig


def seconds_until_failed(rig: Rig, running: Running) -> float:
    """The switch dies and the driver says so; how long it took until the state file said it too."""
    rig.tree.die(SWITCH)
    said = rig.kernel.says(LOST)
    running.until("the verdict failed", lambda: running.state()["verdict"] == "failed")
    return rig.ours(said, time.monotonic(), "daemon", "test")


def test_a_frozen_disk_delays_neither_tick_nor_edge_nor_action(rig: Rig) -> None:
    """Ticks keep their times, an edge shows at once, its action goes ahead after two seconds, and later the record says so."""
    disk = rig.loop_disk()
    running = rig.start(
        rig.pci(), rig.host(), rig.nvml(), state_dir=disk.path / "state", patience={"xidwatch.daemon.views:RECORDER_LATE_SECONDS": 1.0}
    )
    running.settle(3)
    disk.freeze()
    assert seconds_until_failed(rig, running) < 0.5
    released = running.line("RELEASE_DRIVER .* ok")
    assert released.text.endswith(RECORD_LATE)
    running.until("nobody holds the driver", lambda: not rig.processes("nvml"))
    running.ticks_more(2)
    assert running.metrics()["xidwatch_records_behind_seconds"] > 2.0

    disk.thaw()
    running.line("TAKE_DUMP .* ok")
    running.until("the records catch up", lambda: running.metrics()["xidwatch_records_behind_seconds"] < 1.0)
    running.ticks_more(1)
    (recorder,) = rig.processes("recorder")
    disk.freeze()
    status, seconds = running.terminate()
    assert (status, running.ours(seconds) < 4.0) == (1, True)  # its last words are not on the disk, and it says so
    disk.thaw()
    assert has_ended(recorder.pid, PATIENCE_SECONDS)
    assert rig.journal(running.state_dir)[-1].kind == "stopped"
    rows, entries = rig.rows(running.state_dir), rig.journal(running.state_dir)
    assert [row.tick for row in rows] == list(range(1, len(rows) + 1))
    assert rig.most_late(rows, INTERVAL_SECONDS) < 0.5
    assert max(float(row.cells["probe:recorder:stuck_seconds"]) for row in rows) > 2.0
    assert sorted(numbers(entries)) == list(range(1, len(entries) + 1))
    late = {entry.body["for"] for entry in entries if entry.kind == "outcome" and RECORD_LATE in entry.body.get("detail", "")}
    assert {entry.body["kind"] for entry in entries if entry.id in late} == {"RELEASE_DRIVER", "TAKE_DUMP"}
    (folder,) = dumps.folders(running.state_dir)
    assert dumps.load(folder).state == "complete"


def test_a_daemon_killed_over_a_frozen_disk_gives_way_and_loses_nothing(rig: Rig) -> None:
    """Its port is free for a successor at once; what it had handed over is on the disk as soon as that answers again."""
    disk = rig.loop_disk()
    first = rig.start(rig.pci(), rig.host(), rig.nvml(), state_dir=disk.path / "state")
    first.settle(3)
    port = first.metrics_port()
    disk.freeze()
    assert seconds_until_failed(rig, first) < 0.5
    first.line("RELEASE_DRIVER .* ok")
    (recorder,) = rig.processes("recorder")
    handed_over = first.tick_lines()
    first.kill()

    second = rig.start(rig.pci(), rig.host(), rig.nvml(), metrics=f"127.0.0.1:{port}")
    second.tick(8)  # 3.5 s: a recorder that was to be killed would be by then
    assert second.metrics_port() == port
    assert second.metrics()["xidwatch_up"] == 1
    disk.thaw()
    assert has_ended(recorder.pid, PATIENCE_SECONDS)
    entries, rows = rig.journal(first.state_dir), rig.rows(first.state_dir)
    assert [row.tick for row in rows] == sorted(handed_over)
    assert sorted(numbers(entries)) == list(range(1, len(entries) + 1))
    assert [entry.body["xid"] for entry in entries if entry.kind == "kernel"] == [79]
    assert [RECORD_LATE in entry.body.get("detail", "") for entry in entries if entry.kind == "outcome"] == [False, True]
    assert second.terminate()[0] == 0
