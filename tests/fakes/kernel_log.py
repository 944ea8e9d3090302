"""A kernel log that fails as the device does: `open EACCES` in a file fails the opening, `read EPIPE` the next read, once.

Only the errno is made up; before and after it the real reader reads what the test wrote. The file goes when its error has been had.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from pathlib import Path
from typing import Self

from xidwatch.daemon.kernel_log import KernelLog


def failing(trouble: Path) -> type[KernelLog]:
    """To stand in for the reader; `trouble` says what fails."""

    def fail(deed: str) -> None:
        wanted, _, name = trouble.read_text().partition(" ") if trouble.exists() else ("", "", "")
        if wanted == deed:
            trouble.unlink()
            number = getattr(errno, name)
            raise OSError(number, os.strerror(number))

    def read(descriptor: int, size: int) -> bytes:
        fail("read")
        return os.read(descriptor, size)

    class Failing(KernelLog):
        """As the real one, but for the errors."""

        def __init__(self, fd: int, _read: Callable[[int, int], bytes] = os.read) -> None:
            super().__init__(fd, read)

        @classmethod
        def open(cls, path: str = "/dev/kmsg") -> Self:
            """Raises what was asked for."""
            fail("open")
            return super().open(path)

    return Failing
