"""Start, reload and stop of the installed unit under a real systemd."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest

from tests.daemon.harness import LoopDisk
from tests.rig.container.host import UNIT, Host
from xidwatch.daemon.main import LONGEST_LEAVE_SECONDS

TIMEOUT_STOP_SECONDS = 5.0
SLACK_SECONDS = 3.0  # of a busy machine

pytestmark = [pytest.mark.rig, pytest.mark.root, pytest.mark.slow]


def test_start_returns_when_it_is_ready(host: Host) -> None:
    """`systemctl start` waits for the daemon's word, which does not wait for any probe; `systemctl status` shows what it says of itself."""
    began = time.monotonic()
    host.run("systemctl", "start", UNIT)
    took = time.monotonic() - began
    print(f"ready after {took:.2f} s")
    assert took < SLACK_SECONDS
    assert host.container.show(UNIT, "Type", "SubState") == {"Type": "notify", "SubState": "running"}
    host.start()
    assert 'Status: "healthy, tick ' in host.run("systemctl", "status", UNIT)
    host.run("xidwatch", "status")


def test_reload_takes_a_valid_configuration_and_refuses_an_invalid_one(host: Host) -> None:
    """`systemctl reload` changes the interval of the same process; of a bad file the mistake is named and the good settings stay."""
    host.start()
    pid = host.main_pid
    host.configure(interval="0.5s")
    host.run("systemctl", "reload", UNIT)
    host.until("the new interval", lambda: (shown := host.state()) and shown.interval_s == 0.5)

    host.configure(interval="2s", more='colour = "blue"')
    host.run("systemctl", "reload", UNIT)
    host.until_line("configuration refused, the old one stays: .*colour: unknown key")
    host.ticks_more(2)
    shown = host.state()
    assert shown
    assert (shown.interval_s, shown.pid, host.main_pid) == (0.5, pid, pid)
    settings = host.until("it is on record", lambda: [entry.body["interval"] for entry in host.records() if entry.kind == "settings"])
    assert settings == ["0.5s"]


def test_a_configuration_that_is_wrong_from_the_start_is_not_tried_again(host: Host) -> None:
    """The unit fails at once, says what is wrong, and does not restart: that would cure nothing."""
    host.configure(more='colour = "blue"')
    host.run("systemctl", "start", UNIT, status=1)
    assert host.container.show(UNIT, "ActiveState", "ExecMainStatus", "NRestarts") == {
        "ActiveState": "failed",
        "ExecMainStatus": "78",
        "NRestarts": "0",
    }
    host.until_line("colour: unknown key")


def test_a_stop_leaves_a_stuck_driver_call_alone(new_host: Callable[..., Host], frozen: LoopDisk) -> None:
    """It ends in bounded time, kills nobody who holds the driver, and the next start adopts who is still there."""
    host = new_host(frozen)
    host.start()
    stuck = host.stick()
    began = time.monotonic()
    host.run("systemctl", "stop", UNIT)
    took = time.monotonic() - began
    print(f"stopped beside a stuck driver call after {took:.1f} s")
    assert took < LONGEST_LEAVE_SECONDS + 2 * TIMEOUT_STOP_SECONDS + SLACK_SECONDS
    assert host.container.show(UNIT, "ActiveState", "Result") == {"ActiveState": "failed", "Result": "timeout"}
    assert host.is_stuck(stuck)
    assert host.records()[-1].kind == "stopped"

    host.run("systemctl", "start", UNIT)
    host.until_line(f"nvml: process {stuck} of the run before is still there")
    host.ticks_more(2)
    assert host.is_stuck(stuck)
    frozen.thaw()
    host.until("it leaves by itself", lambda: not host.process(stuck))
