"""The disk under the state directory refuses, in each of the ways disks do: ticks go on, it is said, and afterwards all is there.

The frozen disk has tests of its own (`test_main_frozen_disk`), and so has the recorder alone (`test_recorder`).
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.daemon.harness import PATIENCE_SECONDS, Rig, has_ended, numbers

INTERVAL_SECONDS = 0.5
BAD_TICKS = (1, 2, 3)
XID_43 = "NVRM: Xid (PCI:0000:11:00): 43, pid={}, name=x, channel 0x0000000a"

pytestmark = [pytest.mark.slow, pytest.mark.root]


@dataclass(frozen=True)
class Refusal:
    """How a disk refuses, what is said of it, and how it comes back.

    `is_for_a_successor`: it cannot begin while the recorder has files open, so that one is killed before.
    """

    begin: Callable[[Path], object]
    said: str
    end: Callable[[Path], object]
    is_for_a_successor: bool = False


def _fill(disk: Path) -> None:
    free = os.statvfs(disk)
    (disk / "filler").write_bytes(bytes(free.f_bavail * free.f_bsize))


def _remount(how: str) -> Callable[[Path], object]:
    return lambda disk: subprocess.run(["mount", "-o", f"remount,{how}", str(disk)], check=True, timeout=60)


REFUSALS = {
    "full": Refusal(_fill, "No space left on device", lambda disk: (disk / "filler").unlink()),
    "read-only": Refusal(_remount("ro"), "Read-only file system", _remount("rw"), is_for_a_successor=True),
}


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """A filesystem of 1 MiB."""
    place = tmp_path / "disk"
    place.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(place)], capture_output=True, text=True, check=False)
    if mounted.returncode:
        pytest.skip(f"needs the right to mount: {mounted.stderr.strip()}")
    yield place
    subprocess.run(["umount", "-l", str(place)], check=True, timeout=60)


@pytest.fixture
def rig(disk: Path, tmp_path: Path) -> Iterator[Rig]:
    with Rig(tmp_path) as rig:
        yield rig


@pytest.mark.parametrize("how", REFUSALS)
def test_what_a_disk_refused_is_on_it_as_soon_as_it_takes_it(rig: Rig, disk: Path, how: str) -> None:
    """Edges show and ticks keep their times meanwhile; afterwards every row and every line is there once, and so is that it was late."""
    refusal = REFUSALS[how]
    late = {"xidwatch.daemon.views:RECORDER_LATE_SECONDS": 0.7}
    running = rig.start(rig.pci(), rig.host(), state_dir=disk / "state", patience=late)
    running.settle(3)
    time_before = time.time()
    kept = {path: path.read_bytes() for path in [*disk.glob("state/journal/*"), *disk.glob("state/samples/*")]}
    if refusal.is_for_a_successor:
        (recorder,) = rig.processes("recorder")
        os.kill(recorder.pid, signal.SIGKILL)
        assert has_ended(recorder.pid, PATIENCE_SECONDS)
    refusal.begin(disk)
    for number in BAD_TICKS:
        rig.kernel.says(XID_43.format(number))
        running.ticks_more(1)
    running.line(f"records: {refusal.said}")
    running.until("it is said how far behind", lambda: running.metrics()["xidwatch_records_behind_seconds"] > 0.7)
    running.ticks_more(2)

    refusal.end(disk)
    running.line("records: writing to .* again")
    running.until("the records catch up", lambda: running.metrics()["xidwatch_records_behind_seconds"] < 0.7)
    running.ticks_more(1)
    assert running.terminate()[0] == 0
    for path, data in kept.items():
        assert path.read_bytes().startswith(data)
    rows, entries = rig.rows(disk / "state"), rig.journal(disk / "state")
    assert [row.tick for row in rows] == list(range(1, len(rows) + 1))
    assert rig.most_late(rows, INTERVAL_SECONDS) < 0.5
    assert sorted(numbers(entries)) == list(range(1, len(entries) + 1))
    assert [entry.body["pid"] for entry in entries if entry.kind == "kernel"] == list(BAD_TICKS)
    assert max(float(row.cells["probe:recorder:stuck_seconds"]) for row in rows if row.wall > time_before) > 0.7


def test_a_directory_that_is_deleted_under_way_is_begun_anew(rig: Rig, disk: Path) -> None:
    """What was in it is gone with it, and it is said; from then on everything is recorded, and a successor reads it."""
    running = rig.start(rig.pci(), rig.host(), state_dir=disk / "state")
    running.settle(3)
    shutil.rmtree(disk / "state")
    running.line("was deleted, moved or mounted over; it is begun anew")
    rig.kernel.says(XID_43.format(7))
    running.ticks_more(2)
    running.kill()
    successor = rig.start(rig.pci(), rig.host(), state_dir=disk / "state")
    successor.tick(3)
    assert successor.terminate()[0] == 0
    assert [entry.body["pid"] for entry in rig.journal(disk / "state") if entry.kind == "kernel"] == [7]
    assert len(rig.rows(disk / "state")) >= 5
