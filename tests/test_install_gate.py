"""`make install-gate`: what it writes beside an engine's unit, and what it leaves alone."""

from __future__ import annotations

import os
import shlex
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
    at = lines.index("[Service]")
    assert [line.partition("=")[0] for line in lines[: at + 2]] == ["[Unit]", "After", "[Service]", "ExecCondition"]
    assert lines[at + 1].startswith("ExecCondition=+/bin/sh -c ")
    assert " /opt/bin/xidwatch gate " in lines[at + 1]
    assert all(line.endswith("\\") for line in lines[at + 1 : -1])
    assert "/usr/local/bin" not in "".join(lines)


def condition(folder: Path, unit: str, program: str | None) -> tuple[int, str]:
    """What the condition of a gated unit comes to, with this in the place of the program; taken out of the file as systemd does."""
    bindir = folder / "bin"
    bindir.mkdir()
    if program is not None:
        (bindir / "xidwatch").write_text(program)
        (bindir / "xidwatch").chmod(0o755)
    assert call(SCRIPT, folder, unit, BINDIR=str(bindir))[0] == 0
    text = gate(folder, unit).read_text().replace("\\\n", "")
    command = next(line for line in text.splitlines() if line.startswith("ExecCondition=")).partition("=+")[2]
    words = [word.replace("$$", "$").replace("%n", unit) for word in shlex.split(command)]
    done = subprocess.run(words, capture_output=True, text=True, timeout=30, check=False)
    return done.returncode, done.stderr


@pytest.mark.parametrize("status", [0, 2, 3])
def test_an_answer_is_passed_on(tmp_path: Path, status: int) -> None:
    """Open, closed, unknown: the last two leave the unit out, and it is not failed."""
    assert condition(tmp_path, "vllm.service", f'#!/bin/sh\n[ "$*" = "gate vllm.service" ] && exit {status}\n') == (status, "")


def test_a_program_that_is_gone_stops_nobody_and_that_is_said(tmp_path: Path) -> None:
    """Somebody has removed it, and its gates with it, but for this one."""
    status, said = condition(tmp_path, "vllm@0.service", None)
    assert status == 0
    assert "vllm@0.service starts without being gated. make install" in said


@pytest.mark.parametrize(
    ("program", "status"),
    [
        ("#!/bin/sh\necho 'ImportError: msgspec' >&2\nexit 1\n", 1),
        ("#!/bin/sh\nexit 64\n", 64),
        ("#!/bin/sh\nkill -SEGV $$\n", 139),
        ("#!/nowhere/bin/python\n", 127),
        ("#!/etc\n", 126),
    ],
)
def test_a_program_that_cannot_answer_fails_the_unit_loudly(tmp_path: Path, program: str, status: int) -> None:
    """Neither left out in silence, as by 1 to 254, nor started on hardware that nobody has looked at; with what to do."""
    code, said = condition(tmp_path, r"vllm\x2d1.service", program)
    assert code == 255
    assert f"exit status {status}, see above): vllm\\x2d1.service is not started" in said
    assert all(line.startswith("<2>") for line in said.splitlines()[-2:])
    assert "make install" in said
    assert r"make uninstall-gate UNIT=vllm\x2d1.service" in said


@pytest.mark.parametrize(("unit", "file"), [("vllm", "vllm.service"), ("llama@0", "llama@.service"), ("llama@0", "llama@0.service")])
def test_a_unit_that_nobody_knows_is_warned_about(tmp_path: Path, unit: str, file: str) -> None:
    """It may come later, so the gate is written; where there is a file of it, or of its template, nothing is said."""
    status, said = call(SCRIPT, tmp_path, unit)
    assert status == 0
    assert f"warning: there is no {unit}.service below {tmp_path} yet" in said
    place = tmp_path / "usr/lib/systemd/system"
    place.mkdir(parents=True)
    (place / file).touch()
    assert "warning" not in call(SCRIPT, tmp_path, unit)[1]


@pytest.mark.parametrize("unit", ["llama-3.1", "llama-3.1.service", r"vllm\x2d1", "vllm@gpu:0", "vllm@", "-x"])
def test_whatever_can_be_a_service_is_gated(tmp_path: Path, unit: str) -> None:
    """With or without its ending, with dots in it, escaped, an instance or a whole template; by make as by the script."""
    full = unit if unit.endswith(".service") else f"{unit}.service"
    assert call(SCRIPT, tmp_path, unit)[0] == 0
    assert gate(tmp_path, full).exists()
    assert call(Path("make"), tmp_path, "-C", str(ROOT), "-s", "uninstall-gate", f"UNIT={unit}")[0] == 0
    assert not gate(tmp_path, full).exists()


@pytest.mark.parametrize(
    "unit", ["", "../x", "a b", "docker-5f0c.scope", "vllm.socket", "xidwatch", ".service", "@0", "$(id)", "é", "x" * 250]
)
def test_what_is_no_engine_is_refused(tmp_path: Path, unit: str) -> None:
    """As wrong usage, before anything is written."""
    status, said = call(SCRIPT, tmp_path, unit)
    assert status == 64
    assert said.startswith("install-gate: ")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("bindir", ["/opt/my bin", "bin", "/opt/a|b", "/opt/%n", "/opt/$HOME", "/opt/'"])
def test_a_place_that_would_change_the_command_is_refused(tmp_path: Path, bindir: str) -> None:
    """It stands in a line of systemd's and in one of a shell."""
    status, said = call(SCRIPT, tmp_path, "vllm", BINDIR=bindir)
    assert (status, "an absolute path" in said) == (64, True)
    assert not list(tmp_path.iterdir())


def test_somebody_elses_file_is_left_alone(tmp_path: Path) -> None:
    """Under the same name, neither replaced nor removed."""
    path = gate(tmp_path, "vllm.service")
    path.parent.mkdir(parents=True)
    path.write_text("[Service]\nMemoryMax=1G\n")
    for words in (["vllm"], ["--remove", "vllm"]):
        status, said = call(SCRIPT, tmp_path, *words)
        assert status == 73
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
