"""`xidwatch status`: the state file in words, never better than it is."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from xidwatch.cli import main
from xidwatch.cli.status import describe
from xidwatch.clock import SystemClock
from xidwatch.records import state
from xidwatch.records.state import ConditionState, EngineState, MaintenanceState, ProbeState, RecoveryState, StateFile

LOST = ConditionState(
    subject="gpu:0000:11:00.0", type="GpuLost", status="TRUE", since="2026-09-17T02:10:08Z", reason="nvml_status 15\x1b[2J"
)
GOOD = ConditionState(subject="gpu:0000:12:00.0", type="GpuLost", status="FALSE", since="2026-09-17T01:10:08Z")


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """A state directory whose daemon ran as an ordinary user: what is true now lies below it."""
    (tmp_path / "run").mkdir()
    return tmp_path


def status(place: Path, *arguments: str) -> int:
    return main(["--state-dir", str(place), "status", *arguments])


def written(place: Path, *, verdict: str, age_s: float = 0.0, boot_id: str = "", pid: int | None = os.getpid()) -> None:
    clock = SystemClock()
    shown = StateFile(
        boot_id=boot_id or clock.boot_id,
        mono_ms=int((clock.now().mono - age_s) * 1000),
        verdict=verdict,
        since="2026-09-17T02:10:08Z",
        conditions=(LOST, GOOD),
        tick=120,
        pid=pid,
        time="2026-09-17T02:10:38Z",
        incident="20260917T021008Z-gpu-lost-11",
        probes={"nvml": ProbeState(success=False, stuck_s=61.0, text="no answer in time"), "pci": ProbeState(success=True, age_s=1.0)},
    )
    (place / "run" / state.NAME).write_bytes(state.encode(shown))


@pytest.mark.parametrize(("verdict", "code"), [("healthy", 0), ("degraded", 1), ("failed", 2), ("unknown", 3)])
def test_the_exit_status_is_the_verdict(place: Path, verdict: str, code: int, capsys: pytest.CaptureFixture[str]) -> None:
    """0 healthy, 1 degraded, 2 failed, 3 unknown; the verdict is the first word."""
    written(place, verdict=verdict)
    assert status(place) == code
    assert capsys.readouterr().out.split()[0] == verdict


@pytest.mark.parametrize(
    ("age_s", "boot_id", "why"), [(1000.0, "", "older than three intervals"), (0.0, "another", "before the last reboot")]
)
def test_what_is_old_is_unknown(place: Path, age_s: float, boot_id: str, why: str, capsys: pytest.CaptureFixture[str]) -> None:
    """A record that is stale or of another boot says nothing about now, however good it sounds."""
    written(place, verdict="healthy", age_s=age_s, boot_id=boot_id)
    assert status(place) == 3
    shown = capsys.readouterr().out
    assert shown.startswith("unknown")
    assert why in shown
    assert "it was healthy" in shown


def test_a_daemon_that_has_stopped_is_said_to_have(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """What it knew last is shown as that."""
    written(place, verdict="healthy", pid=None)
    status(place)
    assert "has stopped" in capsys.readouterr().out


def test_no_state_file_is_unknown_with_what_to_do(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Nothing goes to standard output, a hint goes to standard error, with the directory that was asked about; a program gets an object."""
    assert status(place) == 3
    shown = capsys.readouterr()
    assert shown.out == ""
    assert f"nothing is known of a daemon for {place}: " in shown.err
    assert "is xidwatch running?" in shown.err
    assert status(place, "--json") == 3
    assert json.loads(capsys.readouterr().out) == {"verdict": "unknown", "verdict_recorded": None, "freshness": "absent"}


def test_what_is_bad_and_who_does_not_answer_is_named(place: Path) -> None:
    """Bad conditions one by one, good ones counted, a stuck probe with how long; no control sign reaches the terminal."""
    written(place, verdict="failed")
    lines = describe(state.read(place / "run" / state.NAME), "fresh", "failed")
    page = "\n".join(lines)
    assert "TRUE    GpuLost gpu:0000:11:00.0" in page
    assert "  1 condition looked at and good" in page
    assert "probe nvml: does not answer: no answer in time, stuck for 61 s" in page
    assert "\x1b" not in page


def test_a_source_that_is_left_alone_is_not_said_to_be_silent() -> None:
    """It is not asked, and why."""
    released = ProbeState(success=False, asked=False, text="released after a driver-fatal Xid")
    page = describe(StateFile(boot_id="", mono_ms=0, verdict="failed", pid=1, probes={"nvml": released}), "fresh", "failed")
    assert page[-1] == "  probe nvml: is not asked: released after a driver-fatal Xid"


def test_a_source_that_leaves_something_out_is_said_to_answer_in_part() -> None:
    """And what it is."""
    beside = ProbeState(success=False, partly=True, text="leaves out chip:a@b, where a process is stuck", stuck_s=61.0)
    page = describe(StateFile(boot_id="", mono_ms=0, verdict="degraded", pid=1, probes={"hwmon": beside}), "fresh", "degraded")
    assert page[-1] == "  probe hwmon: answers in part: leaves out chip:a@b, where a process is stuck, stuck for 61 s"


def test_json_holds_both_verdicts(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """What was recorded, and what may be believed now."""
    written(place, verdict="healthy", age_s=1000.0)
    assert status(place, "--json") == 3
    found = json.loads(capsys.readouterr().out)
    assert (found["verdict"], found["verdict_recorded"], found["freshness"]) == ("unknown", "healthy", "stale")


def test_a_daemon_that_was_killed_is_not_believed(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Its last word is a second old and says healthy; the process that said it is gone."""
    child = os.fork()
    if child == 0:
        os._exit(0)
    os.waitpid(child, 0)
    written(place, verdict="healthy", pid=child)
    assert status(place) == 3
    out = capsys.readouterr().out
    assert out.startswith("unknown")
    assert f"process {child} is gone without a word" in out


def test_engines_are_shown_with_their_gpus() -> None:
    """And who says that they are theirs; what is not known is said to be that."""
    engines = {
        "vllm.service": EngineState(unit="active/running", gpus=("0000:11:00.0", "0000:12:00.0"), gpus_by="found"),
        "llama.service": EngineState(),
    }
    lines = describe(StateFile(boot_id="5f0c", mono_ms=1, verdict="healthy", engines=engines, pid=1), "fresh", "healthy")
    assert "  engine vllm.service: active/running, GPUs 0000:11:00.0 0000:12:00.0 (found)" in lines
    assert "  engine llama.service: state not known, GPUs not known" in lines


HELD = EngineState(
    state="HELD",
    since="2026-09-17T02:10:21.118Z",
    may_start=False,
    why="4 of 4 GPUs lost",
    unit="inactive/dead",
    order="2026-09-17T04:10:00.000Z",
    recovery=("warm reboot: sync, then systemctl reboot",),
)


def test_a_gate_is_shown_with_its_reason_and_what_could_help() -> None:
    """And that somebody has gone past it; one granted start with its end."""
    starting = EngineState(state="STARTING", may_start=True, lease="2026-09-17T02:25:00.000Z")
    engines = {"vllm.service": HELD, "llama.service": starting}
    page = "\n".join(describe(StateFile(boot_id="5f0c", mono_ms=1, verdict="failed", engines=engines, pid=1), "fresh", "failed"))
    assert "gate HELD since 2026-09-17T02:10:21.118Z, may not start: 4 of 4 GPUs lost" in page
    assert "open until 2026-09-17T04:10:00.000Z by an operator's order" in page
    assert "in this order; none of it is done by itself:\n      warm reboot: sync, then systemctl reboot" in page
    assert "gate STARTING, may start, one start granted until 2026-09-17T02:25:00.000Z" in page


def test_maintenance_is_said_before_what_it_explains() -> None:
    """Until when, by whom and why."""
    on = MaintenanceState(until="2026-09-17T03:10:08.412Z", reason="card swap", by="alice (uid 0)")
    lines = describe(StateFile(boot_id="5f0c", mono_ms=1, verdict="failed", maintenance=on, pid=1), "fresh", "failed")
    assert lines[1] == "  maintenance until 2026-09-17T03:10:08.412Z, by alice (uid 0): card swap  (nothing is acted on)"


def test_a_step_of_recovery_is_shown_with_what_came_of_it_or_what_is_in_its_way() -> None:
    """And what is not switched on is not shown."""
    taken = RecoveryState(step="rescan", target="0000:12:00.0", done="02:14", result="failed", detail="it did not come back")
    waiting = RecoveryState(step="reboot", against=("waiting", "the host is in maintenance"))
    unheard = RecoveryState(step="gpu-reset", target="0000:12:00.0", done="02:14")
    steps = (taken, waiting, unheard, RecoveryState(step="slot-power", target="4"))
    shown = describe(StateFile(boot_id="5f0c", mono_ms=1, verdict="failed", recovery=steps, pid=1), "fresh", "failed")
    lines = [line for line in shown if line.startswith("  recovery ")]
    assert lines == [
        "  recovery rescan: taken of 0000:12:00.0 at 02:14, failed: it did not come back",
        "  recovery reboot: switched on, not now: waiting; the host is in maintenance",
        "  recovery gpu-reset: taken of 0000:12:00.0 at 02:14, under way, or how it ended is not on record",
        "  recovery slot-power: switched on, and due of 4",
    ]
