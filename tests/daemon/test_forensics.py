"""The dump worker as it runs: a real child, real collectors below it, a real folder."""

from __future__ import annotations

import json
import os
import select
import signal
import socket
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.daemon.harness import LoopDisk, has_ended, poll_until, wait_at_gate
from xidwatch.daemon import forensics
from xidwatch.daemon.processes import state_letter
from xidwatch.records import dumps
from xidwatch.records.dumps import Manifest

PATIENCE_SECONDS = 60.0
ENOUGH_SECONDS = 1.0  # for a collector to come so far, on a busy machine too
INCIDENT = "20260917T021008Z-bus-lost-0f"


class Working:
    """A dump worker in a child process, and the daemon's end of its channel."""

    def __init__(self, *preload: str, most_collected: int = forensics.MAX_COLLECTED) -> None:
        self.channel, theirs = socket.socketpair()
        self._heard = b""
        self.pid = os.fork()
        if self.pid == 0:
            try:
                self.channel.close()
                forensics.MAX_COLLECTED = most_collected
                forensics.main(theirs, {"preload": list(preload)})
            finally:
                os._exit(0)
        theirs.close()

    def gets(self, folder: Path, *parts: dict[str, object]) -> None:
        job = {"folder": str(folder), "incident": INCIDENT, "boot_id": "b", "trigger": "t-000001", "parts": parts}
        self.channel.sendall(json.dumps(job).encode() + b"\n")

    def says(self) -> list[dict[str, Any]]:
        """Everything until it is done or gone."""
        deadline = time.monotonic() + PATIENCE_SECONDS
        while b'"done"' not in self._heard:
            assert select.select([self.channel], [], [], max(0.0, deadline - time.monotonic()))[0], self._heard
            data = self.channel.recv(65536)
            if not data:
                break
            self._heard += data
        return [json.loads(line) for line in self._heard.splitlines()]

    def close(self) -> None:
        self.channel.close()
        if not has_ended(self.pid, 0.0):
            os.kill(self.pid, signal.SIGKILL)
        os.waitpid(self.pid, 0)


@pytest.fixture
def working() -> Iterator[Working]:
    worker = Working("tests.fakes.collectors:speaks")
    yield worker
    worker.close()


def text(name: str, content: str) -> dict[str, object]:
    return {"name": name, "text": content}


def collect(name: str, target: str, *arguments: object, seconds: float = 60.0) -> dict[str, object]:
    return {"name": name, "collect": f"tests.fakes.collectors:{target}", "with": list(arguments), "deadline_s": seconds}


def statuses(manifest: Manifest) -> list[tuple[str, str]]:
    return [(part.name, part.status) for part in manifest.parts]


def test_parts_are_written_in_order_and_reported(working: Working, tmp_path: Path) -> None:
    """What was in memory comes first and as it was; each part is told when it is durable."""
    folder = tmp_path / INCIDENT
    working.gets(folder, text("010-samples.csv", "a,ü\n"), collect("040-config-space.txt", "speaks", "one", "two"))
    said = working.says()
    assert [(line["part"], line["status"]) for line in said[:-1]] == [("010-samples.csv", "ok"), ("040-config-space.txt", "ok")]
    assert said[-1] == {"done": True, "parts": 2}
    assert (folder / "010-samples.csv").read_text() == "a,ü\n"
    assert (folder / "040-config-space.txt").read_text() == "one\ntwo\n"
    manifest = dumps.load(folder)
    assert (manifest.state, manifest.trigger, manifest.incident) == ("complete", "t-000001", INCIDENT)
    assert has_ended(working.pid, PATIENCE_SECONDS)


def test_a_job_of_any_size_is_taken(working: Working, tmp_path: Path) -> None:
    """An hour of rows comes in many pieces."""
    rows = "x" * 99 + "\n"
    working.gets(tmp_path / INCIDENT, text("010-samples.csv", rows * 50_000))
    assert working.says()[-1]["done"]
    assert (tmp_path / INCIDENT / "010-samples.csv").stat().st_size == 5_000_000


def test_a_collector_that_breaks_down_costs_its_part_alone(working: Working, tmp_path: Path) -> None:
    """What it had said is kept, the status says that it failed, and the next part is written."""
    folder = tmp_path / INCIDENT
    working.gets(folder, collect("040-a.txt", "fails", "half"), collect("050-b.txt", "speaks", "whole"))
    working.says()
    manifest = dumps.load(folder)
    assert statuses(manifest) == [("040-a.txt", "failed"), ("050-b.txt", "ok")]
    assert (folder / "040-a.txt").read_text() == "half\n"
    assert "ended with 3" in manifest.parts[0].note


@pytest.mark.slow
def test_a_collector_that_hangs_is_ended_at_its_deadline(working: Working, tmp_path: Path) -> None:
    """What it had said is kept; the dump goes on without it."""
    folder = tmp_path / INCIDENT
    working.gets(folder, collect("040-a.txt", "hangs", "so far", seconds=ENOUGH_SECONDS), collect("050-b.txt", "speaks", "whole"))
    working.says()
    assert statuses(dumps.load(folder)) == [("040-a.txt", "timeout"), ("050-b.txt", "ok")]
    assert (folder / "040-a.txt").read_text() == "so far\n"
    assert not Path(f"/proc/{working.pid}/task/{working.pid}/children").exists() or has_ended(working.pid, PATIENCE_SECONDS)


def test_a_collector_without_end_is_cut_off(tmp_path: Path) -> None:
    """A part has a bound; what fits is kept, and nobody waits for the rest."""
    worker = Working(most_collected=100_000)
    try:
        worker.gets(tmp_path / INCIDENT, collect("040-a.txt", "never_ends"), collect("050-b.txt", "speaks", "whole"))
        worker.says()
    finally:
        worker.close()
    manifest = dumps.load(tmp_path / INCIDENT)
    assert statuses(manifest) == [("040-a.txt", "failed"), ("050-b.txt", "ok")]
    assert 100_000 <= manifest.parts[0].bytes < 200_000
    assert "cut off after 100000 bytes" in manifest.parts[0].note


@pytest.mark.root
@pytest.mark.slow
def test_a_collector_that_cannot_be_ended_is_named_and_left(working: Working, tmp_path: Path) -> None:
    """Uninterruptible sleep: the part says stuck, the daemon learns who it is, and the dump is finished."""
    disk = LoopDisk(tmp_path / "disk")
    disk.freeze()
    try:
        stuck_part = collect("040-a.txt", "creates", str(disk.path / "new"), seconds=ENOUGH_SECONDS)
        working.gets(tmp_path / INCIDENT, stuck_part, text("050-b.txt", "whole"))
        said = working.says()
        (stuck,) = [line["stuck"] for line in said if "stuck" in line]
        assert (stuck["name"], state_letter(stuck["pid"])) == ("040-a.txt", "D")
        assert stuck["start_ticks"] > 0
        assert said[-1]["done"]
        assert statuses(dumps.load(tmp_path / INCIDENT)) == [("040-a.txt", "stuck"), ("050-b.txt", "ok")]
        assert has_ended(working.pid, PATIENCE_SECONDS)
    finally:
        disk.thaw()
        poll_until("the stuck one has ended", lambda: state_letter(stuck["pid"]) in ("", "Z"))
        disk.unmount()


def test_term_does_not_stop_it(working: Working, tmp_path: Path) -> None:
    """Evidence first: a service that is stopped in the middle of a dump still gets it whole."""
    working.gets(tmp_path / INCIDENT, collect("040-a.txt", "hangs", "so far", seconds=0.2), text("050-b.txt", "whole"))
    poll_until("the first part is begun", (tmp_path / INCIDENT / "040-a.txt").exists)
    os.kill(working.pid, signal.SIGTERM)
    assert working.says()[-1]["done"]
    assert dumps.load(tmp_path / INCIDENT).state == "complete"


def test_term_to_the_whole_group_ends_no_collector(working: Working, tmp_path: Path) -> None:
    """A service that is stopped, or whose daemon was killed, in the middle of a part still gets that part whole."""
    os.mkfifo(tmp_path / "gate")
    working.gets(tmp_path / INCIDENT, collect("040-a.txt", "waits", str(tmp_path / "gate")))
    gate = wait_at_gate(tmp_path / "gate")
    children = Path(f"/proc/{working.pid}/task/{working.pid}/children").read_text().split()
    for pid in (working.pid, *map(int, children)):
        os.kill(pid, signal.SIGTERM)
    os.close(gate)
    working.says()
    assert len(children) == 1
    assert statuses(dumps.load(tmp_path / INCIDENT)) == [("040-a.txt", "ok")]
    assert (tmp_path / INCIDENT / "040-a.txt").read_text() == "before\nafter\n"


def test_without_a_daemon_the_dump_is_finished_all_the_same(working: Working, tmp_path: Path) -> None:
    """The daemon may die of what it has just ordered a dump of."""
    working.gets(tmp_path / INCIDENT, collect("040-a.txt", "hangs", "so far", seconds=0.1), text("050-b.txt", "whole"))
    working.channel.close()
    assert has_ended(working.pid, PATIENCE_SECONDS)
    assert dumps.load(tmp_path / INCIDENT).state == "complete"


def test_without_a_job_it_leaves(working: Working) -> None:
    """End of input while it stands by."""
    working.channel.close()
    assert has_ended(working.pid, PATIENCE_SECONDS)


def test_a_folder_that_cannot_be_had_ends_it(working: Working, tmp_path: Path) -> None:
    """Its end tells the daemon: no dump, and no claim that there is one."""
    (tmp_path / "file").write_text("in the way")
    working.gets(tmp_path / "file" / INCIDENT, text("010-samples.csv", "x"))
    assert working.says() == []
