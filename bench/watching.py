"""Waiting for a file to change without spinning: the two cores of a small machine belong to what is measured (inotify(7))."""

from __future__ import annotations

import ctypes
import os
import select
import time
from collections.abc import Callable
from pathlib import Path
from typing import Self, TypeVar

T = TypeVar("T")

MODIFIED = 0x2
MOVED_HERE = 0x80
READ_BYTES = 64 * 1024

_libc = ctypes.CDLL(None, use_errno=True)


class Changes:
    """Wakes for every change of what is watched."""

    def __init__(self) -> None:
        self._fd = _checked(_libc.inotify_init1(os.O_CLOEXEC | os.O_NONBLOCK))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self._fd)

    def watch(self, path: Path) -> Self:
        """A file that grows, or a folder in which files are replaced. Raises OSError."""
        _checked(_libc.inotify_add_watch(self._fd, os.fsencode(path), MODIFIED | MOVED_HERE))
        return self

    def until(self, look: Callable[[], T | None], seconds: float, what: str) -> tuple[T, float]:
        """What `look` finds, and the monotonic time of the change after which it did. Raises TimeoutError that names `what`."""
        woken = time.monotonic()
        end = woken + seconds
        while True:
            found = look()
            if found is not None:
                return found, woken
            ready, _, _ = select.select([self._fd], [], [], max(0.0, end - time.monotonic()))
            woken = time.monotonic()
            if not ready:
                raise TimeoutError(f"not seen within {seconds:g} s: {what}")
            os.read(self._fd, READ_BYTES)


def _checked(result: int) -> int:
    if result < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return result
