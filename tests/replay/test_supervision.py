"""Engines in a replayed night: supervised by the real daemon, stopped and started by the real worker."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.replay.stage import HOST, SWITCH, XID, journal, play, write
from xidwatch.replay.script import FixtureError

UNIT = "vllm.service"
ENGINE = HOST.replace("chip", f"unit {UNIT} pids=100,101,102\nchip", 1)
CONFIG = f"""\
[[engines]]
unit = "{UNIT}"
health = "http://127.0.0.1:8000/health"
metrics = "http://127.0.0.1:8000/metrics"
ready_within = "3m"
stop_within = "1m"
"""
BUSY = f"+5s unit {UNIT} active\n+60s accept\n+0s unit {UNIT} requests_running=2\n"
DIES = f"+60s die {SWITCH}\n+0s lost gpus\n"  # 150 s after boot
LOST = "# boot 1\n" + XID.format(seq=1, usec=150_010_000)
REBOOT = f"+60s boot\n+0s revive {SWITCH}\n+0s found gpus\n+20s start\n+1s unit {UNIT} start\n"


def night(tmp_path: Path, timeline: str, kmsg: str = LOST) -> Path:
    """What it left."""
    play(write(tmp_path / "night", timeline, kmsg=kmsg, host=ENGINE, config=CONFIG), tmp_path / "state")
    return tmp_path / "state"


def states(state_dir: Path) -> list[str]:
    """Through which the gate went."""
    gates = [body for body in journal(state_dir, "gate") if body["before"] != body["state"]]
    return [body["state"] for body in gates]


def outcomes(state_dir: Path) -> list[Any]:
    """What became of stops and starts."""
    engine = {body["id"] for body in _records(state_dir, "action") if body["action"]["kind"].endswith("_ENGINE")}
    return [body["outcome"] for body in _records(state_dir, "outcome") if body["outcome"]["for"] in engine]


def _records(state_dir: Path, kind: str) -> list[Any]:
    lines = [line for path in sorted((state_dir / "journal").glob("*.jsonl")) for line in path.read_text().splitlines()]
    return [record for record in map(json.loads, lines) if kind in record]


@pytest.mark.slow
def test_an_engine_is_stopped_when_its_hardware_is_lost(tmp_path: Path) -> None:
    """After the first evidence; then it is held."""
    state_dir = night(tmp_path, f"{BUSY}{DIES}+60s end\n")
    assert states(state_dir) == ["RUNNING", "STOPPING", "HELD"]
    kinds = [action["kind"] for action in journal(state_dir, "action")]
    assert kinds.index("TAKE_DUMP") < kinds.index("STOP_ENGINE")
    assert [(each["result"], each["took_ms"]) for each in outcomes(state_dir)] == [("ok", 2000)]


@pytest.mark.slow
def test_after_a_reboot_it_is_proven_and_started(tmp_path: Path) -> None:
    """Systemd leaves it out with the host, since nothing is proven yet; it is ready when its page is."""
    state_dir = night(tmp_path, f"{BUSY}{DIES}{REBOOT}+8m end\n")
    assert states(state_dir)[2:] == ["HELD", "PROVING", "STARTING", "RUNNING"]
    assert outcomes(state_dir)[-1]["result"] == "ok"


@pytest.mark.slow
def test_without_an_accepted_baseline_nothing_is_started(tmp_path: Path) -> None:
    """It is held, and what to do is said."""
    state_dir = night(tmp_path, f"{BUSY.replace('accept', 'note x')}{DIES}{REBOOT}+8m end\n")
    assert states(state_dir)[-1] == "HELD"
    assert "check --accept" in journal(state_dir, "gate")[-1]["why"]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("temper", "result", "words"),
    [("ignores-stop", "timeout", "deactivating"), ("leftovers", "leftovers", "state D in os_acquire_rwlock_write")],
)
def test_a_stop_ends_as_the_fixture_says(tmp_path: Path, temper: str, result: str, words: str) -> None:
    """By the worker's own look at systemd and at the processes."""
    state_dir = night(tmp_path, f"{BUSY}+0s engine {UNIT} {temper}\n{DIES}+3m end\n")
    (stop,) = outcomes(state_dir)
    assert stop["result"] == result
    assert words in stop["detail"]


@pytest.mark.slow
def test_a_worker_that_is_stuck_keeps_the_gate_closed(tmp_path: Path) -> None:
    """Also when the switch is back: a process of the last run holds a GPU."""
    state_dir = night(tmp_path, f"{BUSY}+0s engine {UNIT} leftovers\n{DIES}+60s revive {SWITCH}\n+0s found gpus\n+8m end\n")
    assert states(state_dir)[-1] == "HELD"
    assert "1 of its processes are still there" in journal(state_dir, "gate")[-1]["why"]


@pytest.mark.slow
@pytest.mark.parametrize(("temper", "result"), [("fails-to-start", "failed"), ("never-ready", "not-ready")])
def test_a_start_ends_as_the_fixture_says(tmp_path: Path, temper: str, result: str) -> None:
    """And is a relapse."""
    state_dir = night(tmp_path, f"{BUSY}+0s engine {UNIT} {temper}\n{DIES}{REBOOT}+6m end\n")
    start = next(each for each in outcomes(state_dir) if each["result"] != "ok")
    assert start["result"] == result
    assert "RUNNING" not in states(state_dir)[2:]


@pytest.mark.slow
def test_the_same_parent_lost_twice_under_load_latches(tmp_path: Path) -> None:
    """Until an operator says otherwise."""
    again = f"+4m unit {UNIT} requests_running=2\n+60s die {SWITCH}\n+0s lost gpus\n+60s end\n"
    second = "# boot 2\n" + XID.format(seq=1, usec=321_010_000)
    state_dir = night(tmp_path, f"{BUSY}{DIES}{REBOOT}{again}", LOST + second)
    assert states(state_dir)[-1] == "LATCHED"
    assert f"what hangs on port:{SWITCH} was lost twice under load" in journal(state_dir, "gate")[-1]["why"]


@pytest.mark.slow
def test_a_word_of_the_operator_takes_it_out_of_the_latch(tmp_path: Path) -> None:
    """It is proven like any other time."""
    again = f"+4m unit {UNIT} requests_running=2\n+60s die {SWITCH}\n+0s lost gpus\n{REBOOT}+60s reset {UNIT}\n+8m end\n"
    second = "# boot 2\n" + XID.format(seq=1, usec=321_010_000)
    state_dir = night(tmp_path, f"{BUSY}{DIES}{REBOOT}{again}", LOST + second)
    assert states(state_dir)[-5:] == ["LATCHED", "HELD", "PROVING", "STARTING", "RUNNING"]


@pytest.mark.slow
def test_a_reset_of_what_is_not_latched_is_a_mistake(tmp_path: Path) -> None:
    """Told with its line, as every mistake in a fixture."""
    with pytest.raises(FixtureError, match=r"timeline\.txt:5: reset: vllm\.service is RUNNING, not LATCHED"):
        night(tmp_path, f"+5s unit {UNIT} active\n+90s note x\n+0s reset {UNIT}\n+1s end\n")
