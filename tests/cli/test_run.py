"""`xidwatch run` before it runs: what is refused, with which words and which exit code."""

from __future__ import annotations

import os
import shutil
import sys
from importlib import import_module
from pathlib import Path
from typing import NoReturn

import pytest

from xidwatch import cli
from xidwatch.cli.run import log_mode
from xidwatch.config import rules_dir
from xidwatch.daemon.rundir import AlreadyRunning
from xidwatch.daemon.settings import Settings

NOBODY = 65534


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> list[Settings]:
    """What a daemon would have been started with."""
    seen: list[Settings] = []

    def run(settings: Settings) -> int:
        seen.append(settings)
        return 0

    monkeypatch.setattr("xidwatch.daemon.main.run", run)
    return seen


def refuse(monkeypatch: pytest.MonkeyPatch, error: Exception) -> None:
    """A daemon that cannot begin."""

    def run(_settings: Settings) -> NoReturn:
        raise error

    monkeypatch.setattr("xidwatch.daemon.main.run", run)


def test_settings_come_from_the_command_line(started: list[Settings], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Paths are made absolute, since a daemon's own folder means nothing."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "c.toml").write_text('interval = "5s"\n')
    assert cli.main(["--config", "c.toml", "--state-dir", "state", "run", "--once"]) == 0
    (settings,) = started
    assert settings.state_dir == tmp_path / "state"
    assert settings.config.interval_seconds == 5
    assert settings.once
    assert settings.run_dir.is_absolute()
    assert any(rule.type == "GpuLost" for rule in settings.rules.conditions)


def test_systemds_directories_are_taken(started: list[Settings], monkeypatch: pytest.MonkeyPatch) -> None:
    """Those of the unit."""
    monkeypatch.setenv("STATE_DIRECTORY", "/var/lib/private/xidwatch")
    monkeypatch.setenv("RUNTIME_DIRECTORY", "/run/private/xidwatch")
    assert cli.main(["run"]) == 0
    assert (started[0].state_dir, started[0].run_dir) == (Path("/var/lib/private/xidwatch"), Path("/run/private/xidwatch"))


def test_a_configuration_that_is_refused_is_78_with_every_mistake(
    started: list[Settings], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """One line each on standard error, and nothing is started."""
    path = tmp_path / "c.toml"
    path.write_text('intervall = "30s"\nmetrics = "here"\n')
    assert cli.main(["--config", str(path), "run"]) == 78
    out, err = capsys.readouterr()
    assert (out, started) == ("", [])
    assert [line.split(": ")[:3] for line in err.splitlines()] == [
        ["xidwatch", str(path), "intervall"],
        ["xidwatch", str(path), "metrics"],
    ]


def test_rules_that_are_refused_are_78_as_well(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Each file is named, beside what is wrong with the configuration: nobody mends one thing to be told the next."""
    (tmp_path / "c.toml").write_text('metrics = "here"\n')
    for name in ("conditions.toml", "xid.toml"):
        (tmp_path / name).write_text("[")
    (tmp_path / "rules.d").mkdir()
    (tmp_path / "rules.d" / "site.toml").write_text('[explain.xid.79]\ncheck = "the cable"\n[xidd]\n')
    assert cli.main(["--config", str(tmp_path / "c.toml"), "--rules-dir", str(tmp_path), "run"]) == 78
    said = capsys.readouterr().err.replace(str(tmp_path), "DIR").splitlines()
    assert [line.split(": ")[1] for line in said] == [
        "DIR/c.toml",
        "DIR/conditions.toml",
        "DIR/xid.toml",
        "DIR/rules.d/site.toml",
        "DIR/rules.d/site.toml",
    ]


def test_an_interval_beyond_the_watchdog_is_refused(
    started: list[Settings], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """systemd would end a healthy daemon; a watchdog that is another process's does not count."""
    path = tmp_path / "c.toml"
    path.write_text('interval = "5m"\n')
    monkeypatch.setenv("WATCHDOG_USEC", "120000000")
    assert cli.main(["--config", str(path), "run"]) == 78
    assert "WatchdogSec (120 s)" in capsys.readouterr().err
    monkeypatch.setenv("WATCHDOG_PID", "1")
    assert cli.main(["--config", str(path), "run"]) == 0
    assert len(started) == 1


def test_a_second_daemon_is_75(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """With who is there and what to do."""
    refuse(monkeypatch, AlreadyRunning("another xidwatch (pid 4711) runs with /run/xidwatch"))
    assert cli.main(["run"]) == 75
    said = "xidwatch: another xidwatch (pid 4711) runs with /run/xidwatch. Stop it first, or choose another --state-dir\n"
    assert capsys.readouterr().err == said


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (PermissionError(13, "Permission denied", "/x/run"), "/x/run: permission denied. Run as root, or choose a --state-dir of your own"),
        (NotADirectoryError(20, "Not a directory", "/x/run"), "/x/run: not a directory. Choose another --state-dir"),
        (OSError(30, "Read-only file system", "/x/run"), "/x/run: read-only file system. Choose another --state-dir"),
    ],
)
def test_without_a_place_to_write_it_is_73(
    error: OSError, said: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """With the name of the place."""
    refuse(monkeypatch, error)
    assert cli.main(["run"]) == 73
    assert capsys.readouterr().err == f"xidwatch: {said}\n"


def test_an_error_of_no_file_is_a_defect_and_shows_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its traceback is what the next engineer needs."""
    refuse(monkeypatch, OSError(9, "Bad file descriptor"))
    with pytest.raises(OSError, match="Bad file descriptor"):
        cli.main(["run"])


def as_nobody(words: list[str], write: int) -> NoReturn:
    """In a child: give everything up, run the command, and say on `write` what it said."""
    code = 1
    try:
        sys.stderr = os.fdopen(write, "w", closefd=False)
        os.setgroups([])
        os.setgid(NOBODY)
        os.setuid(NOBODY)
        code = cli.main(words)
        sys.stderr.flush()
    finally:
        os._exit(code)


@pytest.mark.root
def test_nobody_with_a_foreign_state_directory_is_told(tmp_path: Path) -> None:
    """The real thing, as an ordinary user: one line, no traceback, 73."""
    state = tmp_path / "state"
    state.mkdir(mode=0o700)
    for folder in (tmp_path, tmp_path.parent, tmp_path.parent.parent):
        folder.chmod(0o755)
    shutil.copytree(rules_dir(None), tmp_path / "rules")
    cli.parser()  # with the daemon, all is loaded that nobody might not be allowed to read
    import_module("xidwatch.daemon.main")
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        as_nobody(["--state-dir", str(state), "--rules-dir", str(tmp_path / "rules"), "run", "--once"], write)
    os.close(write)
    with os.fdopen(read) as told:
        said = told.read()
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    expected = f"xidwatch: {state}/run: permission denied. Run as root, or choose a --state-dir of your own\n"
    assert (code, said) == (73, expected)


def test_lines_are_for_the_journal_where_systemd_has_connected_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else for the person at the terminal, who may have inherited the variable from a service."""
    monkeypatch.delenv("JOURNAL_STREAM", raising=False)
    assert log_mode() == "terminal"
    monkeypatch.setenv("JOURNAL_STREAM", "8:4711")
    assert log_mode() == "terminal"
    mine = os.fstat(2)
    monkeypatch.setenv("JOURNAL_STREAM", f"{mine.st_dev}:{mine.st_ino}")
    assert log_mode() == "journal"
