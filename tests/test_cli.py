"""The command line as a whole: usage, help, pipes and exit codes."""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from pathlib import Path

import pytest

from xidwatch import __version__, cli
from xidwatch.config import DEFAULT_STATE

ROOT = Path(__file__).resolve().parents[1]
XIDWATCH = [sys.executable, "-m", "xidwatch"]


def run(*words: str, stdout: int = subprocess.PIPE) -> tuple[int, str, str]:
    """As a shell would; exit code, standard output and standard error."""
    started = subprocess.Popen([*XIDWATCH, *words], cwd=ROOT, stdout=stdout, stderr=subprocess.PIPE, text=True)
    assert started.stderr
    said = started.stdout.read() if started.stdout else ""
    errors = started.stderr.read()
    for stream in (started.stdout, started.stderr):
        if stream:
            stream.close()
    return started.wait(timeout=60), said, errors


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ([], "the following arguments are required: COMMAND (`xidwatch --help` tells more)"),
        (["frobnicate"], "invalid choice: 'frobnicate'"),
        (["run", "--twice"], "unrecognized arguments: --twice"),
        (["note"], "xidwatch note: the following arguments are required: TEXT (`xidwatch note --help` tells more)"),
        (["allow-driver"], "the following arguments are required: REASON"),
        (["--config"], "expected one argument"),
    ],
)
def test_wrong_usage_is_64_and_never_a_verdict(words: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Two would mean that the hardware has failed. What was wrong, and where to look, on standard error."""
    with pytest.raises(SystemExit) as left:
        cli.main(words)
    out, err = capsys.readouterr()
    assert (left.value.code, out) == (64, "")
    assert said in err
    assert err.startswith("usage: xidwatch")


def test_the_version_is_said(capsys: pytest.CaptureFixture[str]) -> None:
    """On standard output, with success."""
    with pytest.raises(SystemExit) as left:
        cli.main(["--version"])
    assert (left.value.code, capsys.readouterr().out) == (0, f"xidwatch {__version__}\n")


def test_help_names_every_command_and_the_exit_codes(capsys: pytest.CaptureFixture[str]) -> None:
    """And every command has a help of its own, with a word about each option and argument."""
    with pytest.raises(SystemExit):
        cli.main(["--help"])
    out = " ".join(capsys.readouterr().out.split())
    assert "0 healthy, 1 degraded, 2 failed, 3 unknown; 64 usage" in out
    assert str(DEFAULT_STATE) in out
    (commands,) = (action for action in cli.parser()._actions if isinstance(action, argparse._SubParsersAction))
    assert {name.replace("-", "_") for name in commands.choices} == set(cli.COMMANDS)
    for name, command in commands.choices.items():
        assert name in out
        assert all(action.help or action.choices for action in command._actions), name


@pytest.fixture
def command(monkeypatch: pytest.MonkeyPatch) -> list[argparse.Namespace]:
    """`run` and `note`, which do nothing but keep what they were called with."""
    seen: list[argparse.Namespace] = []

    def keep(arguments: argparse.Namespace) -> int:
        seen.append(arguments)
        return 3

    monkeypatch.setattr("xidwatch.cli.run.run", keep)
    monkeypatch.setattr("xidwatch.cli.note.send", lambda arguments, _what: keep(arguments))
    return seen


def test_the_state_directory_of_systemd_is_for_the_service_alone(
    command: list[argparse.Namespace], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A command in the unit of an engine would inherit the engine's; what is written on the command line always counts."""
    monkeypatch.setenv("STATE_DIRECTORY", "/var/lib/elsewhere:/var/lib/more")
    for words in (["run"], ["note", "x"], ["--state-dir", "here", "run"], ["--state-dir", "here", "note", "x"]):
        assert cli.main(words) == 3
    monkeypatch.delenv("STATE_DIRECTORY")
    assert cli.main(["run"]) == 3
    assert [arguments.state_dir for arguments in command] == [
        Path("/var/lib/elsewhere"),
        DEFAULT_STATE,
        Path("here"),
        Path("here"),
        DEFAULT_STATE,
    ]


def test_an_interrupt_is_no_traceback(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """130, as the shell says of one."""

    def interrupted(_: argparse.Namespace) -> int:
        raise KeyboardInterrupt

    monkeypatch.setattr("xidwatch.cli.run.run", interrupted)
    assert cli.main(["run"]) == 130
    assert capsys.readouterr() == ("", "")


TALKER = """
import sys
from xidwatch import cli
import xidwatch.cli.run
def talk(arguments):
    for number in range({lines}):
        print("line", number)
    return 2
xidwatch.cli.run.run = talk
sys.exit(cli.main(["run"]))
"""


def talker(lines: int, stdout: int) -> subprocess.Popen[str]:
    """A command that prints so many lines and finds that the host has failed."""
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}
    command = [sys.executable, "-c", TALKER.format(lines=lines)]
    return subprocess.Popen(command, cwd=ROOT, stdout=stdout, stderr=subprocess.PIPE, text=True, env=environment)


def ended(process: subprocess.Popen[str]) -> tuple[int, str]:
    """Exit code and standard error."""
    assert process.stderr
    errors = process.stderr.read()
    process.stderr.close()
    return process.wait(timeout=60), errors


def test_a_reader_that_has_seen_enough_is_no_error() -> None:
    """`| head -1`: quiet, and as good as killed by the pipe when the end was never reached."""
    talking = talker(200_000, subprocess.PIPE)
    assert talking.stdout
    head = subprocess.Popen(["head", "-1"], stdin=talking.stdout, stdout=subprocess.PIPE, text=True)
    talking.stdout.close()
    assert head.stdout
    assert head.stdout.read() == "line 0\n"
    head.stdout.close()
    head.wait(timeout=60)
    assert ended(talking) == (141, "")


def test_nobody_who_listens_to_errors_is_none() -> None:
    """`2>&-`: they go nowhere, and not among the results."""
    closed = ["sh", "-c", 'exec "$@" 2>&-', "sh", *XIDWATCH, "decode", "--json", "/nowhere", "/dev/null"]
    process = subprocess.Popen(closed, cwd=ROOT, stdout=subprocess.PIPE)
    assert process.stdout
    assert process.stdout.read() == b""
    process.stdout.close()
    assert process.wait(timeout=60) == 66


def test_a_reader_that_left_early_does_not_make_the_host_healthy() -> None:
    """What was found stays what it is when nobody wants to read it: never 0."""
    read, write = os.pipe()
    os.close(read)
    talking = talker(3, write)
    os.close(write)
    assert ended(talking) == (2, "")


@pytest.mark.slow
def test_the_module_is_the_command() -> None:
    """`python -m xidwatch` from a checkout, and nothing on standard output that is no result."""
    assert run("--version")[:2] == (0, f"xidwatch {__version__}\n")
    code, out, err = run("note", "--state-dir", "/nowhere")
    assert (code, out) == (64, "")
    assert "unrecognized" in err or "required" in err
