"""Processes by identity, and the ladder for those that do not leave."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.daemon.harness import has_ended, poll_until
from xidwatch.daemon.processes import KILL_AFTER_SECONDS, TERM_AFTER_SECONDS, Abandoned, end_now, start_ticks, state_letter

NAME = "a) Z 1 (b"
DEAF = f"""
import signal
open("/proc/self/comm", "w").write("{NAME}")
signal.signal(signal.SIGTERM, signal.SIG_IGN)
print(flush=True)
signal.pause()
"""


@pytest.fixture
def deaf() -> Iterator[subprocess.Popen[bytes]]:
    """A process that does not listen to TERM."""
    process = subprocess.Popen([sys.executable, "-c", DEAF], stdout=subprocess.PIPE)
    assert process.stdout
    process.stdout.readline()
    yield process
    process.kill()
    process.wait()
    process.stdout.close()


def left(process: subprocess.Popen[bytes], holds: str = "") -> Abandoned:
    ticks = start_ticks(process.pid) or 0
    return Abandoned("pci", process.pid, ticks, 0.0, holds_driver=holds == "driver", holds_evidence=holds == "evidence")


@pytest.fixture
def signals(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """What is sent, instead of sending it."""
    sent: list[int] = []
    monkeypatch.setattr(os, "kill", lambda _pid, signum: sent.append(signum))
    return sent


def climb(process: Abandoned, seconds: float) -> None:
    """Looked after ten times a second for so long."""
    for tenth in range(round(seconds * 10) + 1):
        process.nudge(1000.0 + tenth / 10)


def test_a_process_is_its_number_and_its_beginning(deaf: subprocess.Popen[bytes]) -> None:
    """Somebody else with the same number is not the same process; a zombie is none any more."""
    process = left(deaf)
    assert process.is_alive()
    assert not Abandoned("pci", deaf.pid, process.start_ticks + 1, 0.0).is_alive()
    assert state_letter(deaf.pid) in "RS"
    end_now(deaf.pid)
    assert has_ended(deaf.pid, 5.0)
    assert state_letter(deaf.pid) == "Z"
    assert not process.is_alive()
    deaf.wait()
    assert (start_ticks(deaf.pid), state_letter(deaf.pid)) == (None, "")
    end_now(deaf.pid)  # nobody there: nothing happens


def test_a_name_with_blanks_and_brackets_is_read(deaf: subprocess.Popen[bytes]) -> None:
    """The name stands unescaped in the middle of the line, and may look like what follows it."""
    assert Path(f"/proc/{deaf.pid}/comm").read_text() == f"{NAME}\n"
    assert state_letter(deaf.pid) in "RS"
    began = (start_ticks(deaf.pid) or 0) / os.sysconf("SC_CLK_TCK")
    assert 0 <= time.clock_gettime(time.CLOCK_BOOTTIME) - began < 60


def test_the_ladder_is_patience_then_term_then_kill(deaf: subprocess.Popen[bytes], signals: list[int]) -> None:
    """One signal each, in their time, counted from when it was first looked after."""
    process = left(deaf)
    climb(process, TERM_AFTER_SECONDS - 0.1)
    assert signals == []
    climb(process, TERM_AFTER_SECONDS)
    assert signals == [signal.SIGTERM]
    climb(process, KILL_AFTER_SECONDS - 0.1)
    assert signals == [signal.SIGTERM]
    climb(process, 100.0)
    assert signals == [signal.SIGTERM, signal.SIGKILL]


@pytest.mark.parametrize("what", ["driver", "evidence"])
def test_who_holds_the_driver_or_evidence_is_never_killed(deaf: subprocess.Popen[bytes], signals: list[int], what: str) -> None:
    """TERM is the last rung, however long it takes."""
    process = left(deaf, holds=what)
    climb(process, 1000.0)
    assert signals == [signal.SIGTERM]


def test_nobody_else_is_signalled(deaf: subprocess.Popen[bytes], signals: list[int]) -> None:
    """When the process has ended and its number was given away, the newcomer is left alone."""
    climb(Abandoned("pci", deaf.pid, 1, 0.0), 100.0)
    assert signals == []


def test_the_signals_are_real(deaf: subprocess.Popen[bytes]) -> None:
    """A process in user space that ignores TERM is ended in the end."""
    process = left(deaf)
    climb(process, KILL_AFTER_SECONDS)
    assert has_ended(deaf.pid, 5.0)
    poll_until("it is seen to have ended", _not(process.is_alive))
    assert os.waitstatus_to_exitcode(os.waitpid(deaf.pid, 0)[1]) == -signal.SIGKILL


def _not(said: Callable[[], bool]) -> Callable[[], bool]:
    return lambda: not said()
