"""Processes by identity, and the gentle ladder for those that do not answer.

A pid alone may have been given to somebody else since; with its start time (field 22 of /proc/PID/stat, proc(5)) it
names one process. Nothing here waits for anybody.
"""

from __future__ import annotations

import os
import signal
from contextlib import suppress
from dataclasses import dataclass
from enum import IntEnum

TERM_AFTER_SECONDS = 1.0
KILL_AFTER_SECONDS = 3.0
DEATH_SECONDS = 1.0  # who is there so long after SIGKILL does not take it
COMM_LENGTH = 15


def start_ticks(pid: int) -> int | None:
    """When the process began, in clock ticks since boot; None when there is none or only a zombie is left."""
    fields = _stat_fields(pid)
    return int(fields[19]) if fields and fields[0] not in ("Z", "X") else None


def state_letter(pid: int) -> str:
    """R, S, D ... as the kernel says, empty when it is gone."""
    fields = _stat_fields(pid)
    return fields[0] if fields else ""


def _stat_fields(pid: int) -> list[str]:
    # After the last ')': a name may hold blanks and parentheses. proc is no disk: this cannot hang.
    with suppress(OSError), open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as file:  # noqa: PTH123
        return file.read().rpartition(")")[2].split()
    return []


class Rung(IntEnum):
    """How far a process has been asked to leave."""

    END_OF_INPUT = 0
    TERM = 1
    KILL = 2


@dataclass(slots=True)
class Abandoned:
    """A process that missed its deadline and is no longer waited for. It may come back, end, or stay for ever."""

    name: str
    pid: int
    start_ticks: int
    since: float  # monotonic: when it should have answered
    at: str = ""  # the subject it was touching
    holds_driver: bool = False
    holds_evidence: bool = False  # a recorder that still has to write what it was given
    adopted: bool = False  # left behind by a predecessor
    rung: Rung = Rung.END_OF_INPUT
    asked_to_leave: float | None = None
    killed: float | None = None

    def is_alive(self) -> bool:
        """Still the same process, and not a zombie."""
        return start_ticks(self.pid) == self.start_ticks

    def nudge(self, now: float) -> None:
        """The next rung, when its time has come.

        Never SIGKILL for a driver holder, since that has wedged the GPU's firmware, nor for one that holds evidence: on a
        frozen disk the signal would wait, and strike before the first byte is written when the disk is back.
        """
        if self.asked_to_leave is None:
            self.asked_to_leave = now
        waited = now - self.asked_to_leave
        if self.rung < Rung.TERM and waited >= TERM_AFTER_SECONDS:
            self._signal(signal.SIGTERM, Rung.TERM)
        elif self.rung < Rung.KILL and waited >= KILL_AFTER_SECONDS and not (self.holds_driver or self.holds_evidence):
            self.killed = now
            self._signal(signal.SIGKILL, Rung.KILL)

    def is_there_to_stay(self, now: float) -> bool:
        """Nothing that may be done to it has made it go."""
        return self.holds_driver or self.holds_evidence or (self.killed is not None and now - self.killed >= DEATH_SECONDS)

    def _signal(self, signum: signal.Signals, rung: Rung) -> None:
        self.rung = rung
        if self.is_alive():
            with suppress(OSError):
                os.kill(self.pid, signum)


def end_now(pid: int) -> None:
    """SIGKILL, for a child of one's own that holds no driver. It may be stuck all the same: look before you wait."""
    with suppress(OSError):
        os.kill(pid, signal.SIGKILL)


def comm(name: str) -> str:
    """What a child of the nursery is called in /proc/PID/comm, of at most 15 characters."""
    return f"xw-{name}"[:COMM_LENGTH]


def is_ours(pid: int, name: str) -> bool:
    """Is this process what a child of that name calls itself? Before anybody signals what a file says is ours."""
    with suppress(OSError), open(f"/proc/{pid}/comm", encoding="utf-8", errors="replace") as file:  # noqa: PTH123
        return file.read().rstrip("\n") == comm(name)
    return False
