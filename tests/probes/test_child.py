"""A command is listened to until its deadline, and never waited for."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.daemon.harness import has_ended, open_gate, poll_until
from xidwatch.core.model import Missing
from xidwatch.probes.child import MOST_LEFT, Listener

SECONDS = 60.0  # nobody needs them
SHORT_SECONDS = 0.1
ENOUGH_SECONDS = 1.0  # for a shell to begin, on a busy machine too
MOST_BYTES = 100_000


@pytest.fixture
def gate(tmp_path: Path) -> Iterator[Path]:
    """A FIFO that a command waits at; whoever is left there at the end is let through."""
    path = tmp_path / "gate"
    os.mkfifo(path)
    yield path
    os.close(os.open(path, os.O_RDWR | os.O_NONBLOCK))


def ask(listener: Listener, *words: str, seconds: float = SECONDS) -> bytes | Missing:
    return listener.ask(words, time.monotonic() + seconds)


def shell(text: str) -> tuple[str, ...]:
    return "/bin/sh", "-c", text


def test_what_a_command_writes_is_its_answer() -> None:
    """All of it, whatever its exit status; nothing is left behind."""
    listener = Listener(MOST_BYTES)
    assert ask(listener, *shell("echo one; echo two; echo three >&2; exit 3")) == b"one\ntwo\n"
    poll_until("it is gone", lambda: listener.left == 0)


def test_a_command_that_cannot_be_started_says_nothing(tmp_path: Path) -> None:
    """Not there, not executable, a folder."""
    (tmp_path / "text").write_text("x")
    listener = Listener(MOST_BYTES)
    for path in (tmp_path / "nowhere", tmp_path / "text", tmp_path):
        assert ask(listener, str(path)) == b""
        poll_until("it is gone", lambda: listener.left == 0)


def test_it_gets_nothing_of_this_process() -> None:
    """No descriptor beside the three, no input, no environment but the language: held open there, a channel would not be seen to end."""
    held, other = os.pipe()
    for descriptor in (held, other):
        os.set_inheritable(descriptor, True)
    try:
        said = ask(Listener(MOST_BYTES), *shell("cd /proc/self/fd && echo *; cat; env | cut -d= -f1 | sort"))
    finally:
        os.close(held)
        os.close(other)
    assert isinstance(said, bytes)
    descriptors, *names = said.decode().split("\n")
    assert set(descriptors.split()) <= {"0", "1", "2", "3"}  # the shell opens the folder itself
    assert set(names) <= {"", "LC_ALL", "PATH", "PWD", "_", "SHLVL", "OLDPWD"}


def test_at_the_deadline_it_is_told_to_end_and_not_waited_for(gate: Path) -> None:
    """What it had written is no answer: it might be half of one."""
    listener = Listener(MOST_BYTES)
    began = time.monotonic()
    assert ask(listener, *shell(f"echo half; exec cat {gate}"), seconds=SHORT_SECONDS) is Missing.TIMED_OUT
    assert time.monotonic() - began < SECONDS / 2
    poll_until("it is gone", lambda: listener.left == 0)


def test_one_that_does_not_listen_is_left_and_after_some_no_more_are_started(gate: Path, tmp_path: Path) -> None:
    """So a bus that hangs for a night costs two processes; when they have ended all is as before."""
    listener = Listener(MOST_BYTES)
    begun = tmp_path / "begun"
    for _ in range(MOST_LEFT):
        assert ask(listener, *shell(f"trap '' TERM; echo $$ >> {begun}; exec cat {gate}"), seconds=ENOUGH_SECONDS) is Missing.TIMED_OUT
    assert ask(listener, *shell(f"echo more >> {begun}")) is Missing.TIMED_OUT
    pids = [int(word) for word in begun.read_text().split()]
    assert len(pids) == MOST_LEFT == listener.left
    open_gate(gate)
    for pid in pids:
        if not has_ended(pid, 0.5):  # both waited at the gate, and it let one through
            open_gate(gate)
    poll_until("they are gone", lambda: listener.left == 0)
    assert ask(listener, *shell("echo again")) == b"again\n"


def test_more_than_can_be_an_answer_is_none() -> None:
    """It is told to end."""
    listener = Listener(MOST_BYTES)
    assert ask(listener, *shell("exec yes")) is Missing.MALFORMED
    poll_until("it is gone", lambda: listener.left == 0)


def test_where_the_kernel_takes_ended_children_away_nothing_changes() -> None:
    """A parent that ignores SIGCHLD never gets a status; what is gone is gone."""
    before = signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    try:
        listener = Listener(MOST_BYTES)
        assert ask(listener, *shell("echo one")) == b"one\n"
        poll_until("it is gone", lambda: listener.left == 0)
    finally:
        signal.signal(signal.SIGCHLD, before)
