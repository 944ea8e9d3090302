"""A log that grows: read from its beginning, then whatever is added, through rotation, truncation and absence.

Looks every IDLE_SECONDS. A file that has been moved away is read to its end before the one that took its name is begun; while
there is none of that name the old one is kept. /dev/kmsg and pipes tell by themselves when there is more.
"""

from __future__ import annotations

import errno
import os
import select
import stat
from collections.abc import Callable, Iterator
from pathlib import Path

from xidwatch.logs.source import IDLE_SECONDS, READ_BYTES, RECORD_BYTES, ready

Chunk = bytes | None
"""Empty: nothing has come for a while. None: another file begins, whose lines are counted from 1."""


def pause() -> None:
    """For IDLE_SECONDS, or until a signal."""
    select.poll().poll(IDLE_SECONDS * 1000)


class Followed:
    """Never ends by itself, except for a pipe that nobody writes to any more. Raises OSError when it cannot be opened."""

    def __init__(self, path: str, wait: Callable[[], None] = pause) -> None:
        self.name = path
        self.troubles: list[str] = []
        self._wait = wait
        self._fd = self._open()
        self._read = 0  # bytes of this file

    def close(self) -> None:
        """Let go of it."""
        os.close(self._fd)

    def chunks(self) -> Iterator[Chunk]:
        """As they come."""
        if stat.S_ISREG(os.fstat(self._fd).st_mode):
            return self._file()
        return self._stream()

    def _open(self) -> int:
        fd = os.open(self.name, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
        if stat.S_ISDIR(os.fstat(fd).st_mode):
            os.close(fd)
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), self.name)
        return fd

    def _file(self) -> Iterator[Chunk]:
        while True:
            yield from self._rest()
            yield b""
            if self._is_shorter():
                self.troubles.append("the file was truncated: read again from its beginning")
                os.lseek(self._fd, 0, os.SEEK_SET)
                self._read = 0
                yield None
            elif (successor := self._successor()) is not None:
                yield from self._rest()  # written between the last look and the move
                os.close(self._fd)
                self._fd, self._read = successor, 0
                yield None
            else:
                self._wait()

    def _rest(self) -> Iterator[bytes]:
        while chunk := os.read(self._fd, READ_BYTES):
            self._read += len(chunk)
            yield chunk

    def _is_shorter(self) -> bool:
        return os.fstat(self._fd).st_size < self._read

    def _successor(self) -> int | None:
        """The descriptor of another file that has the name now."""
        try:
            there = Path(self.name).stat()
            if os.path.samestat(there, os.fstat(self._fd)):
                return None
            return self._open()
        except OSError:
            return None

    def _stream(self) -> Iterator[Chunk]:
        while True:
            if not ready(self._fd):
                yield b""
                continue
            try:
                chunk = os.read(self._fd, RECORD_BYTES)
            except BlockingIOError:
                continue
            except OSError as error:
                if error.errno != errno.EPIPE:
                    self.troubles.append(f"reading failed: {(error.strerror or str(error)).lower()}")
                    return
                self.troubles.append("kernel records were overwritten before they could be read")
                continue
            if not chunk:
                return
            yield chunk
