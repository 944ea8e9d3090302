"""The list of living processes, and what a successor makes of it."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from xidwatch.daemon.family import adopt
from xidwatch.daemon.processes import comm, start_ticks
from xidwatch.daemon.rundir import CHILDREN, RunDir
from xidwatch.daemon.workers import LEAVING_SECONDS
from xidwatch.records.state import Child, encode_children

BOOT = "5f0c2d1e-0000-4000-8000-000000000001"
NOW = 1000.0


@pytest.fixture
def rundir(tmp_path: Path) -> RunDir:
    """In which somebody has left a list."""
    return RunDir(tmp_path / "run")


def living(name: str) -> int:
    """A process that calls itself `name` and waits to be told."""
    ready, told = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(ready)
        Path("/proc/self/comm").write_text(name)
        os.write(told, b"!")
        signal.pause()
        os._exit(0)
    os.close(told)
    os.read(ready, 1)
    os.close(ready)
    return pid


@pytest.fixture
def worker() -> Iterator[int]:
    """One of ours."""
    yield from _lasting(comm("nvml"))


@pytest.fixture
def stranger() -> Iterator[int]:
    """Somebody else."""
    yield from _lasting("sleep")


def _lasting(name: str) -> Iterator[int]:
    pid = living(name)
    yield pid
    with suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)


def left(rundir: RunDir, pid: int, **said: object) -> None:
    """The predecessor's list names this process with its true start time."""
    child = Child(pid=pid, start_ticks=start_ticks(pid) or 0, name="nvml", **said)  # type: ignore[arg-type]
    (rundir.path / CHILDREN).write_bytes(encode_children((child,), BOOT))


def test_a_worker_left_behind_is_adopted(rundir: RunDir, worker: int) -> None:
    """By pid, start time and name; it has its time to leave before anybody calls it stuck."""
    left(rundir, worker)
    (found,) = adopt(rundir, BOOT, (), NOW)
    assert (found.pid, found.name, found.adopted, found.since) == (worker, "nvml", True, NOW + LEAVING_SECONDS)


def test_a_driver_holder_stays_one_when_its_probe_is_switched_off(rundir: RunDir, worker: int) -> None:
    """What an operator tries first beside a hanging driver must not lead to the SIGKILL that wedges it."""
    left(rundir, worker, holds_driver=True)
    (found,) = adopt(rundir, BOOT, (), NOW)
    assert found.holds_driver


def test_nobody_is_taken_for_ours_because_a_file_says_so(rundir: RunDir, stranger: int) -> None:
    """Right pid, right start time, wrong name: it would be sent signals."""
    left(rundir, stranger)
    assert adopt(rundir, BOOT, (), NOW) == ()


def test_a_list_of_another_boot_means_nobody(rundir: RunDir, worker: int) -> None:
    """Its numbers belong to others now."""
    left(rundir, worker)
    assert adopt(rundir, "another", (), NOW) == ()
