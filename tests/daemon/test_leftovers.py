"""Run directories of other state directories: taken away when nobody needs them, and never before."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from tests.fakes.clock import BOOT_ID
from xidwatch.daemon import leftovers, rundir
from xidwatch.daemon.processes import start_ticks
from xidwatch.daemon.rundir import RunDir
from xidwatch.records import state as state_record
from xidwatch.records.state import Child, StateFile

NOW = 100_000.0
LONG_AGO = NOW - leftovers.KEPT_SECONDS - 1
NAME = "xidwatch-0dc9837e"


@pytest.fixture
def folder() -> Iterator[Path]:
    """Stands for /run."""
    with TemporaryDirectory(dir="/dev/shm") as made:
        yield Path(made)


def left(folder: Path, name: str = NAME, *, at: float = LONG_AGO, boot_id: str = BOOT_ID, child: Child | None = None) -> Path:
    """What a run leaves: its last state, its children, its lock."""
    held = RunDir(folder / name)
    held.write_state(StateFile(boot_id=boot_id, mono_ms=int(at * 1000), verdict="unknown"))
    held.write_children((child,) if child else (), boot_id)
    held.release()
    return folder / name


def test_what_a_run_has_left_goes_after_a_day(folder: Path) -> None:
    """All of it, and nothing beside it."""
    gone, beside = left(folder), left(folder, "xidwatch")
    recent = left(folder, "xidwatch-00000001", at=NOW - leftovers.KEPT_SECONDS)
    other = left(folder, "xidwatch-whatever")
    assert leftovers.clear(folder, NOW, BOOT_ID) == [gone]
    assert sorted(folder.iterdir()) == sorted((beside, recent, other))
    assert (recent / rundir.STATE).exists()


def test_who_still_runs_keeps_his(folder: Path) -> None:
    """However long his last word is ago: he may be hanging."""
    held = RunDir(left(folder))
    assert leftovers.clear(folder, NOW, BOOT_ID) == []
    assert state_record.read(folder / NAME / rundir.STATE).verdict == "unknown"
    held.release()


def test_where_a_process_is_stuck_it_is_for_the_next_run_to_find(folder: Path) -> None:
    """Within this boot; a number that is somebody else's by now keeps nothing."""
    mine = start_ticks(os.getpid())
    assert mine is not None
    stuck = Child(pid=os.getpid(), start_ticks=mine, name="nvml", holds_driver=True)
    place = left(folder, child=stuck)
    assert leftovers.clear(folder, NOW, BOOT_ID) == []
    left(folder, child=Child(pid=os.getpid(), start_ticks=mine + 1, name="nvml"))
    assert leftovers.clear(folder, NOW, BOOT_ID) == [place]


def test_what_is_not_understood_stays(folder: Path) -> None:
    """Of another boot (a /run that is kept), without a state, with a file that no run leaves, no folder at all."""
    left(folder, boot_id="another")
    (left(folder, "xidwatch-00000001") / rundir.STATE).unlink()
    (left(folder, "xidwatch-00000002") / "precious").touch()
    (folder / "xidwatch-00000003").touch()
    assert leftovers.clear(folder, NOW, BOOT_ID) == []
    assert {path.name for path in (folder / "xidwatch-00000002").iterdir()} == {"precious", rundir.STATE, rundir.CHILDREN, rundir.LOCK}
    assert leftovers.clear(folder / "nowhere", NOW, BOOT_ID) == []
