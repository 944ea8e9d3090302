"""`xidwatch maintenance`: an operator's word to the daemon, and how it stands."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.cli.test_note import daemon
from xidwatch import cli
from xidwatch.clock import SystemClock
from xidwatch.records import state
from xidwatch.records.state import MaintenanceState, StateFile

ON = MaintenanceState(until="2026-09-17T03:10:08.412Z", reason="driver upgrade\x1b[2J", by="alice (uid 0)")


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The run directory, whatever the state directory is."""
    monkeypatch.setattr("xidwatch.places.run_dir", lambda _state_dir: tmp_path)
    return tmp_path


def written(place: Path, maintenance: MaintenanceState | None, age_s: float = 0.0) -> None:
    clock = SystemClock()
    mono_ms = int((clock.now().mono - age_s) * 1000)
    shown = StateFile(boot_id=clock.boot_id, mono_ms=mono_ms, verdict="healthy", pid=os.getpid(), maintenance=maintenance)
    (place / state.NAME).write_bytes(state.encode(shown))


def test_it_is_the_daemons_to_take(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """For how long, why and who; its answer is passed on, and without one nothing is done."""
    heard: list[Mapping[str, Any]] = []

    def answer(request: Mapping[str, Any], _uid: int) -> Mapping[str, object]:
        heard.append(request)
        if request["do"] == "maintenance-off":
            raise ValueError("the host is not in maintenance")
        return {"ok": True, "text": "maintenance until then"}

    begin = ["maintenance", "on", "--for", "30m", "--reason", "driver upgrade"]
    assert cli.main(begin) == 69
    with daemon(place, answer):
        assert cli.main(begin) == 0
        assert cli.main(["maintenance", "off"]) == 69
    assert [(r["do"], r.get("for"), r.get("reason")) for r in heard] == [
        ("maintenance-on", "30m", "driver upgrade"),
        ("maintenance-off", None, None),
    ]
    err = capsys.readouterr().err
    assert "no daemon answers" in err
    assert "maintenance until then" in err
    assert "the host is not in maintenance" in err


@pytest.mark.parametrize(("words", "said"), [(["--reason", "x"], "for how long"), (["--for", "30m"], "--reason")])
def test_it_needs_an_end_and_a_reason(place: Path, words: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Or it would be forgotten."""
    assert cli.main(["maintenance", "on", *words]) == 64
    assert said in capsys.readouterr().err


def test_how_it_stands_is_read_from_the_state_file(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """On with until when, by whom and why, or off; no control sign reaches the terminal."""
    written(place, ON)
    assert cli.main(["maintenance"]) == 0
    out = capsys.readouterr().out
    assert out.startswith("on until 2026-09-17T03:10:08.412Z, by alice (uid 0): driver upgrade")
    assert "\x1b" not in out
    assert cli.main(["maintenance", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["maintenance"]["by"] == "alice (uid 0)"
    written(place, None)
    assert cli.main(["maintenance"]) == 0
    assert capsys.readouterr().out == "off\n"


def test_an_old_word_is_not_how_it_stands(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Nor none at all."""
    assert cli.main(["maintenance"]) == 3
    written(place, ON, age_s=1000.0)
    assert cli.main(["maintenance"]) == 3
    assert capsys.readouterr().out == ""
