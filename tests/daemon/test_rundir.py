"""/run/xidwatch: one daemon at a time, and what it leaves for its successor."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from tests.fakes.clock import BOOT_ID
from xidwatch.daemon import rundir
from xidwatch.daemon.rundir import AlreadyRunning, RunDir, is_in_memory
from xidwatch.records import state as state_record
from xidwatch.records.state import Child, StateFile

CHILDREN = (
    Child(pid=4711, start_ticks=182739, name="pci", at="port:0000:0f:00.0", since_mono=3611.2),
    Child(pid=1, start_ticks=2, name="nvml"),
)
HOLDER = """
import sys
from pathlib import Path
from xidwatch.daemon.rundir import RunDir
held = RunDir(Path(sys.argv[1]))
print("held", flush=True)
sys.stdin.read()
"""


@pytest.fixture
def place() -> Iterator[Path]:
    """A folder in memory."""
    with TemporaryDirectory(dir="/dev/shm") as folder:
        yield Path(folder) / "xidwatch"


@pytest.fixture
def held(place: Path) -> Iterator[RunDir]:
    """A daemon's hold on it."""
    held = RunDir(place)
    yield held
    os.close(held._lock)


# --- in memory or not


def test_real_mounts_are_told_apart() -> None:
    """Shared memory is a tmpfs on every Linux; /proc and /sys are not what is meant."""
    assert is_in_memory(Path("/dev/shm"))
    assert is_in_memory(Path("/dev/shm/not/there/yet"))
    assert not is_in_memory(Path("/proc"))
    assert not is_in_memory(Path("/sys/kernel"))


MOUNTS = """\
20 1 8:1 / / rw,relatime shared:1 - ext4 /dev/sda1 rw
21 20 0:20 / /run rw,nosuid shared:2 - tmpfs tmpfs rw,mode=755
22 21 8:2 / /run/media rw - ext4 /dev/sdb1 rw
23 20 0:21 / /with\\040blank\\134 rw - tmpfs tmpfs rw
24 20 0:22 / /twice rw - tmpfs tmpfs rw
25 24 8:3 / /twice rw - xfs /dev/sdc1 rw
26 20 0:23 / /ram rw master:3 propagate_from:1 - ramfs none rw
"""


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("/run/xidwatch", True),
        ("/run", True),
        ("/run/media/xidwatch", False),
        ("/runner", False),
        ("/with blank\\/x", True),
        ("/twice/x", False),
        ("/ram/x", True),
        ("/", False),
    ],
)
def test_the_deepest_and_latest_mount_counts(path: str, expected: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Names with blanks and mounts over mounts included; a longer name with the same beginning is another folder."""
    monkeypatch.setattr(Path, "read_text", lambda *_, **__: MOUNTS)
    assert is_in_memory(Path(path)) is expected


# --- one at a time


def test_a_second_daemon_is_kept_out(place: Path) -> None:
    """It is told which process is there."""
    first = RunDir(place)
    with pytest.raises(AlreadyRunning, match=rf"pid {os.getpid()}\) runs with {place}"):
        RunDir(place)
    os.close(first._lock)
    os.close(RunDir(place)._lock)


def test_the_lock_of_a_killed_daemon_is_free(place: Path) -> None:
    """Nothing has to be cleaned up after kill -9, and the pid in the file is the new one."""
    command = [sys.executable, "-c", HOLDER, str(place)]
    holder = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert holder.stdin
    assert holder.stdout
    assert holder.stdout.readline() == "held\n"
    with pytest.raises(AlreadyRunning, match=f"pid {holder.pid}"):
        RunDir(place)
    os.kill(holder.pid, signal.SIGKILL)
    holder.wait(timeout=60)
    holder.stdin.close()
    holder.stdout.close()
    successor = RunDir(place)
    assert (place / rundir.LOCK).read_text() == f"{os.getpid()}\n"
    os.close(successor._lock)


def test_the_lock_is_not_inherited_by_programs_that_are_started(held: RunDir) -> None:
    """A worker that is stuck for ever must not keep the successor out."""
    assert not os.get_inheritable(held._lock)


# --- what is in it


def test_what_is_written_can_be_read_by_everyone(place: Path, held: RunDir) -> None:
    """The state file as the commands read it, and the port of /metrics."""
    state = StateFile(boot_id=BOOT_ID, mono_ms=3620011, verdict="failed")
    held.write_state(state)
    held.write_metrics_port(20079)
    assert state_record.read(place / rundir.STATE) == state
    assert (place / rundir.METRICS_PORT).read_text() == "20079\n"
    assert {path.stat().st_mode & 0o777 for path in place.iterdir()} == {0o644}
    assert place.stat().st_mode & 0o755 == 0o755
    held.write_metrics_port(None)
    assert (place / rundir.METRICS_PORT).read_text() == "\n"


def test_children_are_known_to_a_successor_of_the_same_boot(place: Path, held: RunDir) -> None:
    """Those of another boot mean nothing: their process numbers belong to others now."""
    assert held.children(BOOT_ID) == ()
    held.write_children(CHILDREN, BOOT_ID)
    assert held.children(BOOT_ID) == CHILDREN
    assert held.children("another-boot") == ()
    (place / rundir.CHILDREN).write_bytes(b'{"v":1,"boot')
    assert held.children(BOOT_ID) == ()


def test_nothing_in_the_directory_can_hold_the_loop(place: Path) -> None:
    """FIFOs in the place of its files are waited for by nobody, and renamed away where something is written."""
    place.mkdir()
    for name in (rundir.LOCK, rundir.CHILDREN, rundir.STATE, f".{rundir.STATE}.tmp"):
        os.mkfifo(place / name)
    held = RunDir(place)
    assert held.children(BOOT_ID) == ()
    held.write_state(StateFile(boot_id=BOOT_ID, mono_ms=1, verdict="healthy"))
    held.write_children(CHILDREN, BOOT_ID)
    assert state_record.read(place / rundir.STATE).verdict == "healthy"
    assert held.children(BOOT_ID) == CHILDREN
    assert (place / rundir.LOCK).read_text() == f"{os.getpid()}\n"
    os.close(held._lock)


def test_on_a_disk_the_recorder_writes(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The loop never waits for a disk: nothing appears but what the recorder is given."""
    monkeypatch.setattr(rundir, "is_in_memory", lambda _path: False)
    held = RunDir(place)
    held.write_state(StateFile(boot_id=BOOT_ID, mono_ms=1, verdict="healthy"))  # nobody to write yet: lost, and said again
    published: list[tuple[str, str]] = []
    held.publish = lambda path, text: published.append((path, text))
    held.write_children(CHILDREN, BOOT_ID)
    ((path, text),) = published
    assert path == str(place / rundir.CHILDREN)
    assert json.loads(text)["boot_id"] == BOOT_ID
    assert [entry.name for entry in place.iterdir()] == [rundir.LOCK]
    os.close(held._lock)


def test_a_full_run_directory_stops_nobody(held: RunDir, monkeypatch: pytest.MonkeyPatch) -> None:
    """The next write says the same again."""

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(state_record, "write_atomic", full)
    held.write_metrics_port(1)


def test_a_place_that_cannot_be_made_raises_with_its_name(tmp_path: Path) -> None:
    """For a message that says which."""
    (tmp_path / "file").write_text("")
    with pytest.raises(OSError, match="Not a directory") as refused:
        RunDir(tmp_path / "file" / "run")
    assert str(tmp_path / "file") in str(refused.value.filename)
