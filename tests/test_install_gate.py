"""`make install-gate`: what it writes beside an engine's unit, and what it leaves alone."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
SCRIPT = ROOT / "scripts/install-gate.sh"
UNINSTALL = ROOT / "scripts/uninstall.sh"
UNITS = "etc/systemd/system"

pytestmark = pytest.mark.slow


def call(script: Path, folder: Path, *words: str, **settings: str) -> tuple[int, str]:
    """Exit status, and what it said; below a scratch folder, where no systemd is asked."""
    environment = {**os.environ, "DESTDIR": str(folder), **settings}
    done = subprocess.run([str(script), *words], env=environment, capture_output=True, text=True, timeout=60, check=False)
    return done.returncode, done.stderr


def gate(folder: Path, unit: str) -> Path:
    return folder / UNITS / f"{unit}.d/50-xidwatch.conf"


def test_a_gate_is_written_and_taken_away(tmp_path: Path) -> None:
    """Twice each is as good as once, and nothing else is left."""
    for _ in range(2):
        assert call(SCRIPT, tmp_path, "vllm")[0] == 0
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == [gate(tmp_path, "vllm.service")]
    for _ in range(2):
        assert call(SCRIPT, tmp_path, "--remove", "vllm.service")[0] == 0
    assert [path.name for path in (tmp_path / UNITS).iterdir()] == []


def test_the_condition_runs_as_root_and_names_the_installed_program(tmp_path: Path) -> None:
    """With `+`, or an engine with User= would be skipped for ever; everything else in the file is a comment, an order or a section."""
    assert call(SCRIPT, tmp_path, "vllm@0.service", BINDIR="/opt/bin")[0] == 0
    lines = [line for line in gate(tmp_path, "vllm@0.service").read_text().splitlines() if line and not line.startswith("#")]
    assert [line.partition("=")[0] for line in lines] == ["[Unit]", "After", "[Service]", "ExecCondition"]
    assert lines[-1].startswith("ExecCondition=+/bin/sh -c ")
    assert " /opt/bin/xidwatch gate " in lines[-1]


@pytest.mark.parametrize(("unit", "file"), [("vllm", "vllm.service"), ("llama@0", "llama@.service"), ("llama@0", "llama@0.service")])
def test_a_unit_that_nobody_knows_is_warned_about(tmp_path: Path, unit: str, file: str) -> None:
    """It may come later, so the gate is written; where there is a file of it, or of its template, nothing is said."""
    status, said = call(SCRIPT, tmp_path, unit)
    assert status == 0
    assert f"warning: there is no {unit}.service below {tmp_path}" in said
    place = tmp_path / "usr/lib/systemd/system"
    place.mkdir(parents=True)
    (place / file).touch()
    assert "warning" not in call(SCRIPT, tmp_path, unit)[1]


@pytest.mark.parametrize("unit", ["", "../x", "a b", "docker-5f0c.scope", "xidwatch", ".service", "$(id)"])
def test_what_is_no_engine_is_refused(tmp_path: Path, unit: str) -> None:
    """Before anything is written."""
    status, said = call(SCRIPT, tmp_path, unit)
    assert status == 1
    assert said.startswith("install-gate: ")
    assert not list(tmp_path.iterdir())


def test_somebody_elses_file_is_left_alone(tmp_path: Path) -> None:
    """Under the same name, neither replaced nor removed."""
    path = gate(tmp_path, "vllm.service")
    path.parent.mkdir(parents=True)
    path.write_text("[Service]\nMemoryMax=1G\n")
    for words in (["vllm"], ["--remove", "vllm"]):
        status, said = call(SCRIPT, tmp_path, *words)
        assert status == 1
        assert "was not written by this" in said
    assert call(UNINSTALL, tmp_path)[0] == 0
    assert path.read_text() == "[Service]\nMemoryMax=1G\n"


def test_an_uninstalled_program_leaves_no_gate(tmp_path: Path) -> None:
    """Of any engine, and of one that somebody wrote by hand."""
    for unit in ("vllm", "llama@1"):
        assert call(SCRIPT, tmp_path, unit)[0] == 0
    by_hand = gate(tmp_path, "other.service")
    by_hand.parent.mkdir()
    by_hand.write_text("[Service]\nExecCondition=+/usr/local/bin/xidwatch gate other.service\n")
    assert call(UNINSTALL, tmp_path)[0] == 0
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []


def test_nothing_reloads_systemd_behind_the_operators_back() -> None:
    """It can take the GPUs away from containers that run: it is said that it is needed, and never done."""
    for script in (ROOT / "scripts").glob("*.sh"):
        lines = [line.strip() for line in script.read_text().splitlines()]
        assert not [line for line in lines if line.startswith("systemctl daemon-reload")]
