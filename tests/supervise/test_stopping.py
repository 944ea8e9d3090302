"""Stopping an engine, with a systemctl that plays a script."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.fakes.systemd import DOWN, UNIT, Systemd
from xidwatch.supervise.stopping import DYING_SECONDS, Stop, Stopped

WITHIN = 10.0


@pytest.fixture
def systemd(tmp_path: Path) -> Systemd:
    return Systemd(tmp_path)


def stop(systemd: Systemd, tmp_path: Path, within: float = WITHIN) -> Stopped:
    return Stop(systemd.service(), systemd.mono + within, systemd.monotonic, systemd.pause, shm=tmp_path / "shm").run()


def test_it_is_told_once_and_watched_until_systemd_is_done(systemd: Systemd, tmp_path: Path) -> None:
    """Inactive with a job still queued is not the end."""
    systemd.on("stop", {"ActiveState": "deactivating", "Job": "7"}, {**DOWN, "Job": "7"}, {"Job": ""})
    systemd.nobody_is_left()
    assert stop(systemd, tmp_path) == Stopped("ok", "inactive (dead)")
    assert systemd.orders == [f"stop --no-block -- {UNIT}"]
    assert [seen["active_state"] for seen in systemd.seen] == ["active", "deactivating", "inactive"]


def test_a_unit_that_does_not_run_is_not_told_anything(systemd: Systemd, tmp_path: Path) -> None:
    """A stop that is repeated does no harm."""
    systemd.shows(**DOWN)
    systemd.nobody_is_left()
    assert stop(systemd, tmp_path) == Stopped("ok", "it was not running")
    assert not systemd.orders


def test_one_that_waits_to_be_restarted_is_told(systemd: Systemd, tmp_path: Path) -> None:
    """It is down and about to come back: systemd would start it on the lost hardware."""
    systemd.shows(ActiveState="activating", SubState="auto-restart")
    systemd.on("stop", DOWN)
    systemd.nobody_is_left()
    assert stop(systemd, tmp_path).result == "ok"
    assert systemd.orders


def test_a_process_that_outlives_it_is_named_with_where_it_is(systemd: Systemd, tmp_path: Path) -> None:
    """Given the time in which a killed one dies; found though systemd has forgotten its control group."""
    systemd.on("stop", {**DOWN, "ActiveState": "failed", "SubState": "failed", "Result": "timeout"})
    systemd.one_is_left(waits_in="os_acquire_rwlock_write")
    stopped = stop(systemd, tmp_path)
    assert (stopped.result, stopped.detail) == ("leftovers", "failed (failed), result timeout; who is left was asked to end once more")
    assert stopped.leftovers == ("process 4712 (VLLM::Worker TP) thread 14712 state D in os_acquire_rwlock_write",)
    assert sum(systemd.paused) >= DYING_SECONDS


def test_who_outlived_an_earlier_stop_is_asked_once_more_by_term_alone(systemd: Systemd, tmp_path: Path) -> None:
    """Systemd does nothing about them at a further stop, for it is done with the unit; asked, they may end."""
    systemd.shows(**DOWN)
    pause = systemd.pause

    def until_asked(seconds: float) -> None:
        pause(seconds)
        if systemd.orders:
            systemd.nobody_is_left()

    stopped = Stop(systemd.service(), systemd.mono + WITHIN, systemd.monotonic, until_asked, shm=tmp_path / "shm").run()
    assert stopped == Stopped("ok", "it was not running; who is left was asked to end once more")
    assert systemd.orders == [f"kill --signal=TERM -- {UNIT}"]


def test_what_systemd_objects_to_asking_is_passed_on(systemd: Systemd, tmp_path: Path) -> None:
    """And who is left is named all the same."""
    systemd.shows(**DOWN)
    systemd.objects("No matching processes to kill")
    stopped = stop(systemd, tmp_path)
    assert stopped.detail.endswith("once more (No matching processes to kill)")
    assert len(stopped.leftovers) == 2


def test_a_zombie_is_no_process(systemd: Systemd, tmp_path: Path) -> None:
    """It holds nothing."""
    systemd.on("stop", DOWN)
    systemd.one_is_left()
    systemd.host.process(4712, state="Z")
    assert stop(systemd, tmp_path).result == "ok"


def test_its_time_is_bounded(systemd: Systemd, tmp_path: Path) -> None:
    """Systemd goes on by itself; who lives is named."""
    systemd.on("stop", {"ActiveState": "deactivating", "SubState": "stop-sigterm", "Job": "7"})
    began = systemd.mono
    stopped = stop(systemd, tmp_path)
    assert (stopped.result, stopped.detail) == ("timeout", "systemd is still at it: deactivating (stop-sigterm)")
    assert len(stopped.leftovers) == 2
    assert systemd.mono - began < WITHIN + 1


def test_an_objection_is_passed_on(systemd: Systemd, tmp_path: Path) -> None:
    """As systemctl words it."""
    systemd.objects("Failed to stop engine.service: Access denied")
    stopped = stop(systemd, tmp_path)
    assert (stopped.result, stopped.detail) == ("failed", "Failed to stop engine.service: Access denied")


def test_a_unit_that_nobody_knows_cannot_be_stopped(systemd: Systemd, tmp_path: Path) -> None:
    """`systemctl show` succeeds for it."""
    systemd.knows_nothing_of_it()
    assert stop(systemd, tmp_path) == Stopped("failed", f"systemd knows no {UNIT}")


def test_shared_memory_that_is_left_is_said(systemd: Systemd, tmp_path: Path) -> None:
    """And stays: whose it is cannot be told for sure."""
    systemd.shows(UID="0", **DOWN)
    systemd.nobody_is_left()
    (tmp_path / "shm").mkdir()
    (tmp_path / "shm/psm_1234").write_bytes(bytes(3 * 2**20))
    (tmp_path / "shm/somebody-elses").write_bytes(b"x")
    uid = (tmp_path / "shm/psm_1234").stat().st_uid
    systemd.shows(UID=str(uid))
    assert stop(systemd, tmp_path).detail == f"it was not running; 1 segments of shared memory (3 MiB) of its user are in {tmp_path}/shm"
