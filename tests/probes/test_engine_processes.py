"""Processes by control group, without ever touching what a stuck one may hold locked."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.fakes.engine import EngineHost
from xidwatch.probes import engine_processes
from xidwatch.probes.engine_processes import PAGE_BYTES, Waits

UNIT = "vllm.service"


@pytest.fixture
def host(tmp_path: Path) -> EngineHost:
    return EngineHost(tmp_path)


def test_processes_are_counted_below_the_group_too(host: EngineHost) -> None:
    """Those of a delegated subgroup as well; one in another pid namespace has no number here."""
    host.unit(UNIT, [4711, 4712])
    below = host.cgroup_root / "system.slice" / UNIT / "workers" / "one"
    below.mkdir(parents=True)
    (below / "cgroup.procs").write_text("4713\n0\n4711\n")
    for pid in (4711, 4712, 4713):
        host.process(pid, pages=pid)
    found = engine_processes.read(host.cgroup_root / "system.slice" / UNIT, host.proc_root)
    assert found.pids == [4711, 4712, 4713]
    assert found.resident_bytes == (4711 + 4712 + 4713) * PAGE_BYTES
    assert found.processes_uninterruptible == 0


def test_a_thread_that_is_stuck_is_found_behind_a_main_thread_that_is_not(host: EngineHost) -> None:
    """By number, name and process; a name may hold blanks, parentheses and signs that move a cursor."""
    host.unit(UNIT, [4711, 4712])
    host.process(4711, "VLLM::Worker (TP 0) \x1b[2J")
    host.process(4712, "a) D 1 (b", state="D", waits_in="os_acquire_rwlock_write", start=700)
    found = engine_processes.read(host.cgroup_root / "system.slice" / UNIT, host.proc_root)
    assert found.uninterruptible == {(4712, 700): (4712, "a) D 1 (b"), (14712, 701): (4712, "worker")}
    assert found.processes_uninterruptible == 1
    assert engine_processes.waits_in(host.proc_root, 4712, 14712) == "os_acquire_rwlock_write"
    assert engine_processes.waits_in(host.proc_root, 4711, 14711) == ""
    host.process(4711, "x\x1b[2J", state="D")
    again = engine_processes.read(host.cgroup_root / "system.slice" / UNIT, host.proc_root)
    assert again.uninterruptible[4711, 500] == (4711, "x?[2J")


@pytest.mark.parametrize("text", ["", "4711\n", "4711 (x) \n", "4711 (x) S 1 2\n", "\xff\n"])
def test_what_ends_while_it_is_looked_at_is_counted_by_its_group(host: EngineHost, text: str) -> None:
    """The group had it; what can no longer be read of it is left out."""
    host.unit(UNIT, [4711, 4712, 4713])
    host.process(4711)
    host.process(4712)
    (host.proc_root / "4712" / "stat").write_text(text, encoding="latin-1")
    found = engine_processes.read(host.cgroup_root / "system.slice" / UNIT, host.proc_root)
    assert (found.pids, found.resident_bytes) == ([4711, 4712, 4713], 100 * PAGE_BYTES)


def test_real_processes_are_read_as_they_are(host: EngineHost) -> None:
    """This very one, through the real /proc: alive, of some size, not stuck."""
    host.unit(UNIT, [os.getpid()])
    found = engine_processes.read(host.cgroup_root / "system.slice" / UNIT, Path("/proc"))
    assert found.pids == [os.getpid()]
    assert found.resident_bytes > 1_000_000
    assert found.uninterruptible == {}


@pytest.mark.parametrize("hierarchy", ["", "unified", "systemd"])
def test_a_group_is_found_in_every_layout_of_the_tree(tmp_path: Path, hierarchy: str) -> None:
    """Version 2, both at once, version 1; by systemd's path, and without it in whatever slice."""
    group = tmp_path / hierarchy / "system.slice/system-vllm.slice/vllm@0.service"
    group.mkdir(parents=True)
    (group / "cgroup.procs").touch()
    assert engine_processes.has_units(tmp_path)
    assert engine_processes.at(tmp_path, "/system.slice/system-vllm.slice/vllm@0.service") == group
    assert engine_processes.find(tmp_path, "vllm@0.service") == group
    assert engine_processes.at(tmp_path, "/system.slice/vllm@0.service") is None
    assert engine_processes.find(tmp_path, "vllm@1.service") is None


def test_a_users_own_unit_of_the_same_name_is_not_taken_for_it(tmp_path: Path) -> None:
    """Its manager is a service, and nothing is looked for below one."""
    group = tmp_path / "user.slice/user-1000.slice/user@1000.service/app.slice/vllm.service"
    group.mkdir(parents=True)
    (group / "cgroup.procs").touch()
    assert engine_processes.find(tmp_path, "vllm.service") is None
    assert not engine_processes.has_units(tmp_path)


def test_how_long_a_thread_has_been_stuck_is_what_was_seen() -> None:
    """From the first look that found it so, as long as every look did; the same number started anew is another."""
    waits = Waits()
    assert waits.look({}, 100.0) is None
    assert waits.look({(7, 1): "a"}, 130.0) == (7, 1)
    assert waits.look({(7, 1): "a", (5, 1): "b"}, 160.0) == (7, 1)
    assert (waits.since[7, 1], waits.since[5, 1]) == (130.0, 160.0)
    assert waits.look({(5, 1): "b", (7, 2): "a"}, 190.0) == (5, 1)
    assert waits.look({}, 220.0) is None
    assert waits.look({(5, 1): "b"}, 250.0) == (5, 1)
    assert waits.since == {(5, 1): 250.0}
