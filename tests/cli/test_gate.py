"""`xidwatch gate`: what an engine is told at its start, and what a person can change about that."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.cli.test_note import daemon
from xidwatch import cli
from xidwatch.cli import gate
from xidwatch.clock import SystemClock
from xidwatch.records import order, state
from xidwatch.records.state import EngineState, MaintenanceState, StateFile

ROOT = Path(__file__).resolve().parents[2]
UNIT = "vllm.service"
GONE = 2**22 + 1  # above the highest number that a process may have (PID_MAX_LIMIT, proc(5))
SINCE = "2026-09-17T02:10:21.118Z"
HELD = EngineState(state="HELD", since=SINCE, may_start=False, why="4 of 4 GPUs lost")
RUNNING = EngineState(state="RUNNING", since=SINCE, may_start=True)
ADOPTING = EngineState(state="ADOPTING", since=SINCE, may_start=None, why="nothing is proven yet")
LATCHED = EngineState(state="LATCHED", since=SINCE, may_start=False, why="4 starts within 1 h")


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The run directory, whatever the state directory is."""
    monkeypatch.setattr("xidwatch.places.run_dir", lambda _state_dir: tmp_path)
    return tmp_path


def written(
    place: Path,
    engines: Mapping[str, EngineState],
    *,
    age_s: float = 0.0,
    boot_id: str = "",
    pid: int | None = os.getpid(),
    maintenance: MaintenanceState | None = None,
) -> None:
    """A state file of a daemon that is this process."""
    clock = SystemClock()
    mono_ms = int((clock.now().mono - age_s) * 1000)
    shown = StateFile(
        boot_id=boot_id or clock.boot_id, mono_ms=mono_ms, verdict="failed", engines=dict(engines), pid=pid, maintenance=maintenance
    )
    (place / state.NAME).write_bytes(state.encode(shown))


@pytest.mark.parametrize(
    ("engine", "code", "said"),
    [
        (RUNNING, 0, f"vllm.service: open (RUNNING since {SINCE})\n"),
        (HELD, 2, f"vllm.service: closed (HELD since {SINCE}): 4 of 4 GPUs lost\n"),
        (LATCHED, 2, f"vllm.service: closed (LATCHED since {SINCE}): 4 starts within 1 h\n"),
        (ADOPTING, 3, f"vllm.service: unknown (ADOPTING since {SINCE}): nothing is proven yet\n"),
    ],
)
def test_the_exit_status_is_the_answer(place: Path, engine: EngineState, code: int, said: str, capsys: pytest.CaptureFixture[str]) -> None:
    """0 open, 2 closed, 3 unknown, and never 1; with the state and the reason, and for whoever is kept out what he can do."""
    written(place, {UNIT: engine})
    assert cli.main(["gate", UNIT]) == code
    out, err = capsys.readouterr()
    assert out == said
    assert ("--open-for" in err) == (code != 0)
    assert ("--reset" in err) == (engine is LATCHED)


def test_a_name_without_its_ending_is_a_service(place: Path) -> None:
    """As systemctl takes it; names of instances and escaped ones are units too."""
    written(place, {UNIT: RUNNING, r"llama\x2dcpp@0.service": RUNNING})
    assert cli.main(["gate", "vllm"]) == 0
    assert cli.main(["gate", r"llama\x2dcpp@0"]) == 0


@pytest.mark.parametrize(
    "unit", ["../../etc/shadow", "a b", ".service", "vllm.service\n", "x" * 300, "ü", "vllm.socket", "docker-5f0c.scope"]
)
def test_what_can_be_no_unit_is_refused(place: Path, unit: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Least of all a path."""
    assert cli.main(["gate", unit]) == 64
    assert cli.main(["gate", unit, "--open-for", "1h", "--reason", "x"]) == 64
    assert "is not the name of a service" in capsys.readouterr().err
    assert list(place.iterdir()) == []


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"age_s": 1000.0}, "older than three intervals"),
        ({"boot_id": "another"}, "not run since the last reboot"),
        ({"pid": None}, "the daemon has stopped"),
    ],
)
def test_an_old_word_opens_nothing(place: Path, settings: dict[str, Any], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    """However open it was."""
    written(place, {UNIT: RUNNING}, **settings)
    assert cli.main(["gate", UNIT]) == 3
    assert said in capsys.readouterr().out


def test_the_word_of_a_killed_daemon_opens_nothing(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """It is a second old, and nobody stands behind it."""
    child = os.fork()
    if child == 0:
        os._exit(0)
    os.waitpid(child, 0)
    written(place, {UNIT: RUNNING}, pid=child)
    assert cli.main(["gate", UNIT]) == 3
    assert "gone without a word" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("settings", "step"),
    [
        ({"boot_id": "another"}, "systemctl start xidwatch"),
        ({"pid": None}, "systemctl start xidwatch"),
        ({"age_s": 1000.0}, "systemctl restart xidwatch"),
        ({"age_s": 1000.0, "pid": GONE}, "journalctl -u xidwatch"),
        ({"pid": GONE}, "journalctl -u xidwatch"),
    ],
)
def test_the_next_step_stands_before_the_order(
    place: Path, settings: dict[str, Any], step: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """By what ails the daemon; to go past the gate is the last resort."""
    written(place, {UNIT: RUNNING}, **settings)
    assert cli.main(["gate", UNIT]) == 3
    hint = capsys.readouterr().err
    assert 0 < hint.index(step) < hint.index("--open-for")


def test_without_a_state_file_the_daemon_is_to_be_started(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Said also where no engine was named."""
    for words in ([], [UNIT]):
        assert cli.main(["gate", *words]) == 3
        assert "systemctl start xidwatch" in capsys.readouterr().err


@pytest.mark.parametrize("key", ["unit", "after_incident_unit"])
def test_an_engine_of_the_file_alone_needs_a_restart(place: Path, key: str, capsys: pytest.CaptureFixture[str]) -> None:
    """The daemon takes engines at its start; one that the file does not have either needs a table first."""
    written(place, {"llama.service": RUNNING})
    config = place / "config.toml"
    words = ["gate", UNIT, "--config", str(config)]
    for content in (None, "[[engines", "engines = 1\n", '[[engines]]\nunit = "b.service"\n'):
        if content is not None:
            config.write_text(content)
        assert cli.main(words) == 3
        assert 'add [[engines]] with unit = "vllm.service"' in capsys.readouterr().err
    config.write_text(f'[[engines]]\n{key} = "vllm.service"\n')
    assert cli.main(words) == 3
    err = capsys.readouterr().err
    assert "names it" in err
    assert "systemctl restart xidwatch" in err


def test_in_one_journal_the_reason_stands_before_the_hint(place: Path) -> None:
    """An engine's unit sends both to the same place."""
    both = place / "journal"
    with both.open("wb") as out:
        words = [sys.executable, "-m", "xidwatch", "gate", UNIT, "--state-dir", str(place / "nothing")]
        subprocess.run(words, cwd=ROOT, stdout=out, stderr=out, timeout=60, check=False)
    first, second = both.read_text().splitlines()
    assert first.startswith("vllm.service: unknown: ")
    assert second.startswith("xidwatch: ")


@pytest.mark.parametrize("content", [None, b"", b"{", b'{"v":1}'])
def test_without_a_word_it_is_unknown(place: Path, content: bytes | None) -> None:
    """No file, or none that can be understood."""
    if content is not None:
        (place / state.NAME).write_bytes(content)
    assert cli.main(["gate", UNIT]) == 3


def test_an_engine_that_nobody_configured_is_unknown(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Nobody would ever start it, so what is missing is said."""
    written(place, {"llama.service": RUNNING})
    assert cli.main(["gate", UNIT]) == 3
    assert "no [[engines]] table" in capsys.readouterr().out


def test_a_stand_in_has_the_gate_of_its_engine(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """It is started in its place, by the same lease, and asks under its own name."""
    starting = EngineState(state="STARTING", may_start=True, lease="2999-01-01T00:00:00.000Z", stand_in="vllm-gentle.service")
    written(place, {UNIT: starting})
    assert cli.main(["gate", "vllm-gentle"]) == 0
    assert capsys.readouterr().out.startswith("vllm-gentle.service: open (STARTING)")


def test_a_start_is_granted_for_a_time_only(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The lease of one start is over, though the daemon has not said so yet."""
    written(place, {UNIT: EngineState(state="STARTING", may_start=True, lease="2026-09-17T02:25:00.000Z")})
    assert cli.main(["gate", UNIT]) == 2
    assert "one start was granted, until 2026-09-17T02:25:00.000Z" in capsys.readouterr().out
    written(place, {UNIT: EngineState(state="STARTING", may_start=True, lease="2999-01-01T00:00:00.000Z")})
    assert cli.main(["gate", UNIT]) == 0


def test_without_a_name_all_are_shown(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Closed if one is, else unknown if one is; with none at all unknown."""
    written(place, {UNIT: ADOPTING, "llama.service": RUNNING})
    assert cli.main(["gate"]) == 3
    written(place, {UNIT: ADOPTING, "llama.service": HELD})
    assert cli.main(["gate"]) == 2
    assert [line.split(":")[0] for line in capsys.readouterr().out.splitlines()] == ["llama.service", UNIT] * 2
    written(place, {})
    assert cli.main(["gate"]) == 3
    assert "no engine is configured" in capsys.readouterr().out


def test_json_tells_the_same(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """One object for one engine, a list for all."""
    written(place, {UNIT: HELD, "llama.service": RUNNING})
    assert cli.main(["gate", UNIT, "--json"]) == 2
    found = json.loads(capsys.readouterr().out)
    assert (found["gate"], found["state"], found["may_start"], found["why"]) == ("closed", "HELD", False, "4 of 4 GPUs lost")
    assert cli.main(["gate", "--json"]) == 2
    assert [each["unit"] for each in json.loads(capsys.readouterr().out)] == ["llama.service", UNIT]


WORK = MaintenanceState(until="2026-09-17T03:30:00.000Z", reason="card swap", by="alice")


@pytest.mark.parametrize(
    ("engine", "next_step"),
    [(LATCHED, "--reset vllm.service` has it proven and started anew, once the maintenance is over"), (HELD, "`xidwatch maintenance off`")],
)
def test_maintenance_is_said_of_one_that_is_closed_for_another_reason(
    place: Path, engine: EngineState, next_step: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Until when, by whom and why: nobody waits for a gate that cannot move before. For programs too."""
    written(place, {UNIT: engine}, maintenance=WORK)
    assert cli.main(["gate", UNIT]) == 2
    out, err = capsys.readouterr()
    assert out.endswith("\n  maintenance until 2026-09-17T03:30:00.000Z, by alice: card swap  (nothing is acted on)\n")
    assert next_step in err
    cli.main(["gate", "--json", UNIT])
    assert json.loads(capsys.readouterr().out)["maintenance"] == {"until": WORK.until, "reason": "card swap", "by": "alice"}


def test_maintenance_is_not_believed_of_an_old_word(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Whether it is still on is for a daemon that runs to say."""
    written(place, {UNIT: LATCHED}, maintenance=WORK, age_s=3600.0)
    assert cli.main(["gate", UNIT]) == 3
    assert "maintenance" not in capsys.readouterr().out


def test_who_is_still_on_its_gpus_is_named(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """By what is there now, and not by what a program asks for."""
    why = f"not proven yet: gpu:0000:11:00.0: process {os.getpid()} is still on it"
    written(place, {UNIT: EngineState(state="PROVING", since=SINCE, may_start=False, why=why)})
    assert cli.main(["gate", UNIT]) == 2
    assert f"\n  process {os.getpid()} is {Path('/proc/self/comm').read_text().strip()}, state R" in capsys.readouterr().out


def test_a_long_reason_is_shown_by_its_beginning(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """What is bad comes first in it; programs get it whole."""
    why = "; ".join(["GpuLost gpu:0000:11:00.0", *(f"not known: ConfigSpaceReset gpu:0000:{n:02x}:00.0" for n in range(20))])
    written(place, {UNIT: EngineState(state="HELD", may_start=False, why=why)})
    cli.main(["gate", UNIT])
    line = capsys.readouterr().out.splitlines()[0]
    assert line.startswith("vllm.service: closed (HELD): GpuLost gpu:0000:11:00.0; not known: ")
    assert line.endswith("; ... (--json has all)")
    assert len(line) < 280
    cli.main(["gate", UNIT, "--json"])
    assert json.loads(capsys.readouterr().out)["why"] == why


def test_no_control_sign_reaches_the_terminal(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The reason may have come from a process."""
    written(place, {UNIT: EngineState(state="HELD", may_start=False, why="stuck: \x1b[2Jvllm")})
    cli.main(["gate", UNIT])
    assert "\x1b" not in capsys.readouterr().out


# ---------------------------------------------------------------------------------------------------------- waiting


class Patience:
    """A clock that moves when it is waited for, and gates that open at a time."""

    def __init__(self, opens_at: float) -> None:
        self.now = 0.0
        self._opens_at = opens_at

    def look(self) -> list[gate.Answer]:
        return [gate.Answer(UNIT, gate.OPEN if self.now >= self._opens_at else gate.UNKNOWN, "")]

    def wait(self, patience: float) -> int:
        return gate.verdict(gate.wait(self.look, patience, lambda: self.now, self._pause))

    def _pause(self, seconds: float) -> None:
        self.now += seconds


def test_waiting_ends_when_it_opens_or_when_patience_ends(capsys: pytest.CaptureFixture[str]) -> None:
    """Not a moment later, and with what was true last; what is waited for is said once."""
    opens = Patience(2.5)
    assert (opens.wait(300.0), opens.now) == (gate.OPEN, 3.0)
    never = Patience(1000.0)
    assert "waiting" in capsys.readouterr().err
    assert (never.wait(4.5), never.now) == (gate.UNKNOWN, 4.5)
    assert capsys.readouterr().err == "xidwatch: waiting, 4.5 s at most: vllm.service: unknown\n"
    at_once = Patience(0.0)
    assert (at_once.wait(300.0), at_once.now) == (gate.OPEN, 0.0)
    assert capsys.readouterr().err == ""


def test_waiting_takes_a_duration(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """With its unit; an open gate is not waited for."""
    written(place, {UNIT: RUNNING})
    assert cli.main(["gate", UNIT, "--wait", "5m"]) == 0
    assert cli.main(["gate", UNIT, "--wait", "soon"]) == 64
    assert "is not a duration" in capsys.readouterr().err
    assert cli.main(["gate", UNIT, "--wait", "25h"]) == 64
    assert "at most 24h" in capsys.readouterr().err


# ----------------------------------------------------------------------------------------------------------- orders


def opened(*words: str) -> int:
    return cli.main(["gate", UNIT, "--open-for", "1h", "--reason", *words])


def test_an_order_opens_without_a_daemon(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Whatever is known or not; it says by whom, until when and why, and that nobody has journalled it."""
    assert opened("the daemon does not start") == 0
    assert "No daemon is there to journal it" in capsys.readouterr().err
    assert cli.main(["gate", UNIT]) == 0
    assert "the daemon does not start" in capsys.readouterr().out
    written(place, {UNIT: HELD})
    assert cli.main(["gate", UNIT]) == 0
    assert f"open (HELD since {SINCE}): by order of " in capsys.readouterr().out
    assert cli.main(["gate", "llama.service"]) == 3


def test_an_order_for_what_is_no_engine_is_given_with_a_warning(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The name may be mistyped; an engine of the daemon's or of the file is one."""
    written(place, {UNIT: HELD})
    assert opened("x") == 0
    assert "no [[engines]] table" not in capsys.readouterr().err
    words = ["gate", "vlm", "--open-for", "1h", "--reason", "x", "--config", str(place / "config.toml")]
    assert cli.main(words) == 0
    assert "no [[engines]] table has vlm.service: is the name right?" in capsys.readouterr().err
    (place / "config.toml").write_text('[[engines]]\nunit = "vlm.service"\n')
    assert cli.main(words) == 0
    assert "no [[engines]] table" not in capsys.readouterr().err


def test_an_order_taken_back_opens_no_more_and_stays_to_be_journalled(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A second time there is nothing to take back."""
    written(place, {UNIT: HELD})
    assert opened("x") == 0
    assert cli.main(["gate", UNIT, "--close"]) == 0
    assert cli.main(["gate", UNIT]) == 2
    found = order.read(place, UNIT)
    assert found is not None
    assert found.withdrawn
    assert not order.is_marked(place, found)
    capsys.readouterr()
    assert cli.main(["gate", UNIT, "--close"]) == 0
    assert "no order was in force" in capsys.readouterr().err


def test_an_order_of_another_boot_opens_nothing(place: Path) -> None:
    """Nor one that is over."""
    written(place, {UNIT: HELD})
    now_ms, boot_id = int(time.monotonic() * 1000), SystemClock().boot_id
    for until_ms, boot in ((now_ms + 60_000, "another"), (now_ms - 1, boot_id)):
        order.write(place, order.Order(unit=UNIT, boot_id=boot, until_mono_ms=until_ms, until="", at="", reason="", by=""))
        assert cli.main(["gate", UNIT]) == 2


def test_an_order_that_may_not_be_believed_is_said_and_not_followed(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """What anybody could have written."""
    written(place, {UNIT: HELD})
    assert opened("x") == 0
    order.place(place, UNIT).chmod(0o666)
    assert cli.main(["gate", UNIT]) == 2
    assert "written by anybody" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--open-for", "1h"], "--reason"),
        (["--open-for", "1h", "--reason", "  "], "--reason"),
        (["--open-for", "ever", "--reason", "x"], "is not a duration"),
        (["--open-for", "0s", "--reason", "x"], "more than nothing"),
        (["--open-for", "400d", "--reason", "x"], "at most 7 days"),
    ],
)
def test_an_order_needs_a_reason_and_an_end(place: Path, words: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Somebody will read it, and nobody will remember to take it back."""
    assert cli.main(["gate", UNIT, *words]) == 64
    assert said in capsys.readouterr().err
    assert list(place.iterdir()) == []


def test_an_order_names_its_engine(place: Path) -> None:
    """There is no opening all of them by mistake."""
    assert cli.main(["gate", "--open-for", "1h", "--reason", "x"]) == 64
    assert cli.main(["gate", "--reset"]) == 64
    assert list(place.iterdir()) == []


def test_no_place_to_write_an_order_is_said(place: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """73, with who could."""

    def denied(*_: object, **__: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr("xidwatch.records.order.write", denied)
    assert opened("x") == 73
    assert "permission denied. Run as root" in capsys.readouterr().err


def test_a_reset_is_the_daemons_to_take(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """It is told which engine and who asks; without a daemon, or against its word, nothing is done."""
    heard: list[Mapping[str, Any]] = []

    def answer(request: Mapping[str, Any], _uid: int) -> Mapping[str, object]:
        heard.append(request)
        if request["unit"] != UNIT:
            raise ValueError("is RUNNING, not LATCHED")
        return {"ok": True, "text": "it is out of LATCHED"}

    assert cli.main(["gate", "--reset", UNIT]) == 69
    assert "no daemon answers" in capsys.readouterr().err
    with daemon(place, answer):
        assert cli.main(["gate", "--reset", "vllm"]) == 0
        assert cli.main(["gate", "--reset", "llama"]) == 69
        assert opened("x") == 0
    assert [(request["do"], request["unit"]) for request in heard] == [
        ("gate-reset", UNIT),
        ("gate-reset", "llama.service"),
        ("gate-order", UNIT),
    ]
    err = capsys.readouterr().err
    assert "it is out of LATCHED" in err
    assert "is RUNNING, not LATCHED" in err
    assert "Journalled." in err


# ------------------------------------------------------------------------------------------------------------ speed


@pytest.mark.slow
def test_an_answer_imports_little(place: Path) -> None:
    """The start of an engine waits for it: nothing of the daemon, of the watch, of the configuration or of the report is loaded."""
    script = "import sys; from xidwatch import cli; cli.main(['gate', 'vllm.service']); print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, timeout=60, check=True)
    loaded = set(done.stdout.splitlines()[-1].split())
    assert not loaded & {"dataclasses", "json"}  # which cost as much as all of ours
    assert {name for name in loaded if name.startswith("xidwatch.")} == {
        "xidwatch.cli",
        "xidwatch.cli.gate",
        "xidwatch.places",
        "xidwatch.records",
        "xidwatch.records.files",
        "xidwatch.records.order",
        "xidwatch.records.regular",
        "xidwatch.records.state",
    }
