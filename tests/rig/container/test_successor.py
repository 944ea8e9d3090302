"""The daemon hangs or is killed under a real systemd, beside a driver call that does not return: the next one carries on."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from typing import Any

import pytest

from tests.daemon.harness import LoopDisk, numbers
from tests.rig.container.host import LOST_GPU, UNIT, Host

WATCHDOG_SECONDS = 5.0
RESTART_SECONDS = 5.0
PHASE_SECONDS = 2.0  # TimeoutStopSec: so long lasts each phase of a stop in which a process of the group cannot be ended
PHASES = 4
STUCK_SECONDS = 'xidwatch_probe_stuck_seconds{probe="nvml"}'
SLACK_SECONDS = 5.0  # of a busy machine

pytestmark = [pytest.mark.rig, pytest.mark.root, pytest.mark.slow]


@pytest.fixture
def host(new_host: Callable[..., Host], frozen: LoopDisk) -> Host:
    return new_host(frozen)


def seconds_until_succeeded(host: Host, main: int) -> float:
    """From now until systemd has ended this main process and started another that says it is ready."""
    began = time.monotonic()
    host.until("the end of the main process", lambda: not host.process(main), 60.0)
    host.tell_again()
    host.until_unit(UNIT, seconds=60.0, NRestarts="1", SubState="running")
    took = time.monotonic() - began
    assert host.main_pid != main
    return took


def became(changes: Sequence[Mapping[str, Any]], type_: str, subject: str) -> list[str]:
    """One condition's statuses on record, in order."""
    return [change["after"] for change in changes if (change["type"], change["subject"]) == (type_, subject)]


def assert_carries_on(host: Host, incident: str, stuck: int) -> None:
    """The open incident is the same one, no edge has fired and no dump been taken again, and who is stuck has been adopted, unharmed."""
    calls = host.library.total()
    host.until_line("carrying on from its journal")
    host.until_line(f"nvml: process {stuck} of the run before is still there")
    host.ticks_more(3)
    shown, child = host.state(), host.child("nvml")
    assert shown
    assert (shown.incident, shown.verdict, host.condition("GpuLost", LOST_GPU)) == (incident, "failed", "TRUE")
    assert child
    assert (child.pid, host.is_stuck(stuck), host.library.total()) == (stuck, True, calls)
    host.until("it is called stuck", lambda: host.metrics()[STUCK_SECONDS] > 0)
    assert host.metrics()["xidwatch_incident_open"] == 1
    entries = host.records()
    assert sorted(numbers(entries)) == list(range(1, len(entries) + 1))
    kinds = Counter(entry.kind for entry in entries)
    assert (kinds["opened"], kinds["started"], kinds["stopped"], kinds["kernel"]) == (1, 2, 0, 1)
    changes = [entry.body for entry in entries if entry.kind == "transition"]
    edges = Counter((change["type"], change["subject"]) for change in changes if change["after"] == "TRUE")
    assert edges["GpuLost", LOST_GPU] == 1
    for edge in edges:
        statuses = became(changes, *edge)
        assert ("TRUE", "TRUE") not in pairwise(statuses), edge  # known all along, or not known in between
        assert not edge[0].startswith("ConfigSpace") or "FALSE" not in statuses[statuses.index("TRUE") :], edge
    assert [entry.body["kind"] for entry in entries if entry.kind == "action"].count("TAKE_DUMP") == 1


def test_a_hung_loop_is_killed_by_the_watchdog(host: Host) -> None:
    """TERM does not reach it: the unit's last word kills it, and it alone. Within the watchdog's time and four times TimeoutStopSec."""
    host.drop_in(WatchdogSec="5s", TimeoutStopSec="2s")  # 120 s and 5 s in the unit
    host.start()
    stuck = host.stick()
    incident = host.lose_switch()
    main = host.main_pid
    host.hang(main)
    took = seconds_until_succeeded(host, main)
    print(f"a hung daemon was succeeded after {took:.1f} s")
    assert took < WATCHDOG_SECONDS + PHASES * PHASE_SECONDS + RESTART_SECONDS + SLACK_SECONDS
    said = host.lines()
    assert [line for line in said if "Watchdog timeout (limit 5s)!" in line]
    assert not [line for line in said if "SIGABRT" in line or "with signal SIGKILL" in line]
    assert_carries_on(host, incident, stuck)


def test_a_killed_daemon_is_started_again(host: Host) -> None:
    """As after the kernel's SIGKILL when memory runs out."""
    host.drop_in(TimeoutStopSec="2s")  # 5 s in the unit
    host.start()
    stuck = host.stick()
    incident = host.lose_switch()
    main = host.main_pid
    host.send("KILL", main)
    took = seconds_until_succeeded(host, main)
    print(f"a killed daemon was succeeded after {took:.1f} s")
    assert took < PHASES * PHASE_SECONDS + RESTART_SECONDS + SLACK_SECONDS
    assert_carries_on(host, incident, stuck)
