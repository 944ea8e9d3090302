"""Engines stopped and started by the installed service, under a real systemd."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.daemon.harness import LoopDisk
from tests.rig.container.engine import UNIT, Engine
from tests.rig.container.host import SWITCH, Host
from tests.rig.container.host import UNIT as SERVICE

pytestmark = [pytest.mark.rig, pytest.mark.root, pytest.mark.slow]


def outcomes(host: Host, kind: str, at_least: int = 1) -> list[tuple[str, str]]:
    """Result and detail of every finished action of this kind, as they stand on record: which may be a little after they show."""
    return host.until(f"{at_least} of {kind}", lambda: found if len(found := on_record(host, kind)) >= at_least else None)


def on_record(host: Host, kind: str) -> list[tuple[str, str]]:
    """The same, so far."""
    records = host.records()
    actions = {entry.id for entry in records if entry.kind == "action" and entry.body["kind"] == kind}
    return [(e.body["result"], e.body.get("detail", "")) for e in records if e.kind == "outcome" and e.body["for"] in actions]


def test_it_goes_with_its_hardware_and_comes_back_with_it(host: Host) -> None:
    """Stopped behind the dump; when the hardware is proven it is started, on a lease that its own condition honours, and gives a token."""
    engine = Engine(host)
    before = host.container.show(UNIT, "InvocationID")
    host.tree.die(SWITCH)
    engine.until("HELD")
    assert not engine.runs()
    assert not engine.pids()
    host.run("xidwatch", "gate", UNIT, status=2)

    host.tree.recover(SWITCH)
    engine.until("RUNNING")
    assert engine.runs()
    assert host.container.show(UNIT, "InvocationID") != before
    assert [result for result, _ in outcomes(host, "STOP_ENGINE")] == ["ok"]
    first, (result, detail) = outcomes(host, "START_ENGINE", at_least=2)
    assert first[0] == result == "ok"
    assert "one token of rig in" in detail
    host.run("xidwatch", "gate", UNIT)


def test_workers_that_ignore_the_signal_are_ended_by_systemd(host: Host) -> None:
    """In bounded time, and none of them is left."""
    engine = Engine(host, "--deaf")
    assert len(engine.pids()) == 3
    host.tree.die(SWITCH)
    engine.until("HELD")
    assert not engine.pids()
    ((result, detail),) = outcomes(host, "STOP_ENGINE")
    assert (result, detail) == ("ok", "failed (failed), result timeout")


def test_workers_that_systemd_leaves_alone_are_asked_too(host: Host) -> None:
    """By the unit's own settings only its first process is stopped; the rest would keep the GPUs for ever."""
    engine = Engine(host, more="KillMode=process")
    assert len(engine.pids()) == 3
    host.tree.die(SWITCH)
    engine.until("HELD")
    host.until("nobody is left", lambda: not engine.pids())
    ((result, detail),) = outcomes(host, "STOP_ENGINE")
    assert (result, detail) == ("ok", "inactive (dead); who is left was asked to end once more")


def test_a_worker_that_cannot_be_ended_keeps_the_engine_down(new_host: Callable[..., Host], frozen: LoopDisk) -> None:
    """It is named with where it waits; no second engine is started beside it, though all is well; when it has gone, one is."""
    host = new_host(frozen)
    frozen.freeze()
    engine = Engine(host, "--stuck /rig/disk/new")
    host.tree.die(SWITCH)
    engine.until("HELD")
    ((result, detail),) = outcomes(host, "STOP_ENGINE")
    (stuck,) = engine.pids()
    assert result == "leftovers"
    assert f"process {stuck} (python3) state D" in detail

    host.tree.recover(SWITCH)
    host.until("it is healthy", lambda: (shown := host.state()) and shown.verdict == "healthy")
    host.ticks_more(6)
    assert engine.gate() == "HELD"
    assert len(outcomes(host, "START_ENGINE")) == 1
    frozen.thaw()
    engine.until("RUNNING")


def test_a_daemon_that_is_killed_at_a_stop_has_a_successor(host: Host) -> None:
    """Systemd goes on with the stop; the next run says so once more, which does no harm, and looks at what is left."""
    engine = Engine(host, "--deaf", stop_seconds=4)
    host.tree.die(SWITCH)
    host.until("the stop", lambda: host.container.show(UNIT, "ActiveState")["ActiveState"] == "deactivating")
    host.send("KILL", host.main_pid)
    engine.until("HELD")
    assert not engine.pids()
    assert host.container.show(SERVICE, "NRestarts")["NRestarts"] != "0"
    host.tree.recover(SWITCH)
    engine.until("RUNNING")


def test_what_an_operator_stops_stays_down(host: Host) -> None:
    """On the best of hardware; and what an operator starts again is supervised again."""
    engine = Engine(host)
    host.run("systemctl", "stop", UNIT)
    engine.until("OFF")
    host.ticks_more(4)
    assert not engine.runs()
    assert len(outcomes(host, "START_ENGINE")) == 1
    host.run("systemctl", "start", UNIT)
    engine.until("RUNNING")


def test_a_unit_that_is_disabled_meanwhile_is_not_started(host: Host) -> None:
    """Its hardware comes back, and it does not."""
    engine = Engine(host)
    host.tree.die(SWITCH)
    engine.until("HELD")
    host.run("systemctl", "disable", "--runtime", UNIT)
    host.tree.recover(SWITCH)
    engine.until("OFF")
    host.ticks_more(4)
    assert not engine.runs()


def test_an_engine_that_does_not_come_up_is_tried_so_often_and_then_left(host: Host) -> None:
    """With a pause that grows, each start on record; the operator's word is needed after that."""
    engine = Engine(host, more="Restart=always\nRestartSec=100ms")
    host.tree.die(SWITCH)
    engine.until("HELD")
    (host.tree.root.parent / "engine.py").write_text("raise SystemExit(3)\n")
    host.tree.recover(SWITCH)
    engine.until("LATCHED")
    assert [result for result, _ in outcomes(host, "START_ENGINE", at_least=3)] == ["ok", "failed", "failed"]
    assert not engine.runs()
