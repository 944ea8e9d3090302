"""A command whose output is listened to until a deadline, and which is then left to itself.

`subprocess` waits: for the command to be loaded from a disk that may be gone, and for its end. Here nothing does. What does
not end in time is told to (SIGTERM), remembered by its number, looked at again, and while too many are left no more is started.
"""

from __future__ import annotations

import os
import selectors
import signal
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path

from xidwatch.core.model import Missing

MOST_LEFT = 2
CHUNK = 64 * 1024  # bytes
ENVIRONMENT = {"LC_ALL": "C", "PATH": "/usr/sbin:/usr/bin:/sbin:/bin"}


class Listener:
    """Starts one command at a time. `most_bytes`: more is no answer; `hears_errors`: what it says on standard error belongs to it."""

    def __init__(self, most_bytes: int, *, hears_errors: bool = False, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._most_bytes = most_bytes
        self._hears_errors = hears_errors
        self._monotonic = monotonic
        self._left: list[int] = []

    @property
    def left(self) -> int:
        """How many have not ended yet."""
        self._left = [pid for pid in self._left if not _has_ended(pid)]
        return len(self._left)

    def ask(self, words: Sequence[str], deadline: float) -> bytes | Missing:
        """All that the command writes to its standard output; TIMED_OUT at the deadline (monotonic), MALFORMED when it is too much.

        A command that cannot be started writes nothing.
        """
        if self.left >= MOST_LEFT:
            return Missing.TIMED_OUT
        pid, pipe = _start(words, hears_errors=self._hears_errors)
        self._left.append(pid)
        try:
            answer = self._listen(pipe, deadline)
        finally:
            os.close(pipe)
        if isinstance(answer, Missing):
            with suppress(OSError):
                os.kill(pid, signal.SIGTERM)
        return answer

    def _listen(self, pipe: int, deadline: float) -> bytes | Missing:
        answer = bytearray()
        with selectors.DefaultSelector() as selector:
            selector.register(pipe, selectors.EVENT_READ)
            while selector.select(max(0.0, deadline - self._monotonic())):
                data = os.read(pipe, CHUNK)
                if not data:
                    return bytes(answer)
                answer += data
                if len(answer) > self._most_bytes:
                    return Missing.MALFORMED
        return Missing.TIMED_OUT


def _start(words: Sequence[str], *, hears_errors: bool) -> tuple[int, int]:
    """Its number, and where its output can be read. Forked by hand: this process has one thread."""
    receive, send = os.pipe()
    pid = os.fork()
    if pid == 0:
        _become(words, send, hears_errors=hears_errors)
    os.close(send)
    return pid, receive


def _become(words: Sequence[str], send: int, *, hears_errors: bool) -> None:
    try:
        nothing = os.open(os.devnull, os.O_RDWR)
        for descriptor, source in enumerate((nothing, send, send if hears_errors else nothing)):
            os.dup2(source, descriptor)
        os.closerange(3, 4096)  # the conversation with the daemon among them: held open here, it would not be seen to end
        os.execve(words[0], list(words), ENVIRONMENT)  # noqa: S606  no shell is the point
    finally:
        os._exit(127)


def _has_ended(pid: int) -> bool:
    try:
        return os.waitpid(pid, os.WNOHANG)[0] == pid
    except ChildProcessError:
        return not Path(f"/proc/{pid}").exists()
