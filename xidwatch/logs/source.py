"""One log: a file, a pipe or /dev/kmsg, as chunks of plain text bytes, and in words what could not be read of it.

A chunk is empty when nothing has come for a while: whoever reads gives out what he has.
"""

from __future__ import annotations

import codecs
import errno
import os
import select
import stat
from collections.abc import Iterator
from itertools import chain

from xidwatch.core.logblocks import Block
from xidwatch.logs import unpack
from xidwatch.logs.find import Search
from xidwatch.logs.scouts import Scouts
from xidwatch.logs.texts import as_utf8, what_else, wide
from xidwatch.logs.unpack import UnpackError

READ_BYTES = 256 * 1024  # stays in a core's cache
RECORD_BYTES = 16 * 1024  # of /dev/kmsg: one read is one record
IDLE_SECONDS = 0.25


class Source:
    """What is read, from the beginning to its end. Raises OSError when it cannot be opened."""

    def __init__(self, path: str) -> None:
        """`-` is standard input."""
        self.name = "standard input" if path == "-" else path
        self.troubles: list[str] = []
        self.done_bytes = 0  # as they lie in the file
        self._head: bytes | None = None
        self._scouts: Scouts | None = None
        self._fd = os.dup(0) if path == "-" else os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
        status = os.fstat(self._fd)
        if stat.S_ISDIR(status.st_mode):
            os.close(self._fd)
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), path)
        self.is_file = stat.S_ISREG(status.st_mode)
        self.total_bytes = status.st_size if self.is_file else None
        self._is_record_device = stat.S_ISCHR(status.st_mode) and not os.isatty(self._fd)

    def close(self) -> None:
        """Let go of it."""
        if self._scouts:
            self._scouts.close()
        os.close(self._fd)

    def begin(self, search: Search) -> None:
        """Have it searched by several processes from now on, where that is worth it: a large file of plain text."""
        if self.total_bytes is None:
            return
        head = self._begun()
        whole = head.rfind(b"\n") + 1
        if whole and not unpack.kind_of(head) and not wide(head):
            half = len(head) - whole
            self._head = head[:whole]
            self.done_bytes -= half
            self._scouts = Scouts(self._fd, os.lseek(self._fd, -half, os.SEEK_CUR), self.total_bytes, search)

    def chunks(self) -> Iterator[bytes | Block]:
        """All of it; of what has been searched already, blocks. Never raises for what is in it: see `troubles`."""
        head = self._begun()
        if self._scouts:
            yield from self._checked(chain([head.removeprefix(codecs.BOM_UTF8)], self._pieces(self._scouts), self._raw()))
            return
        raw = chain([head], self._raw())
        kind = unpack.kind_of(head)
        try:
            yield from self._checked(as_utf8(unpack.unpacked(kind, raw) if kind else raw))
        except UnpackError as error:
            self.troubles.append(str(error) if str(error) == unpack.ZSTD_MISSING else f"{error}: what comes after is not read")

    def _begun(self) -> bytes:
        """Its first bytes, as many as tell what it is."""
        if self._head is None:
            self._head = b""
            for chunk in self._raw():
                self._head += chunk
                if len(self._head) >= unpack.LONGEST_MAGIC:
                    break
        return self._head

    def _pieces(self, scouts: Scouts) -> Iterator[Block]:
        """What they have searched. Reading goes on behind that."""
        for piece in scouts.pieces(self._bytes):
            os.lseek(self._fd, piece.end, os.SEEK_SET)
            self.done_bytes += piece.fresh_bytes
            yield piece

    def _bytes(self, begin: int, end: int) -> bytes:
        try:
            return os.pread(self._fd, end - begin, begin)
        except OSError as error:
            self._failed(error)
            return b""

    def _raw(self) -> Iterator[bytes]:
        while (chunk := self._read()) is not None:
            self.done_bytes += len(chunk)
            yield chunk

    def _read(self) -> bytes | None:
        """Empty when nothing has come for a while, None at the end: of a file, of a pipe without a writer, of what the ring holds."""
        if not self.is_file and not ready(self._fd):
            return None if self._is_record_device else b""  # who wants to wait for more records follows them
        try:
            return os.read(self._fd, RECORD_BYTES if self._is_record_device else READ_BYTES) or None
        except BlockingIOError:
            return b""
        except OSError as error:
            if error.errno == errno.EPIPE:
                self.troubles.append("kernel records were overwritten before they could be read")
                return b""
            self._failed(error)
            return None

    def _failed(self, error: OSError) -> None:
        trouble = f"reading failed: {(error.strerror or str(error)).lower()}"
        if trouble not in self.troubles:
            self.troubles.append(trouble)

    def _checked(self, chunks: Iterator[bytes | Block]) -> Iterator[bytes | Block]:
        """Say once that it is no text; there may be some in it all the same."""
        said, first = False, True
        for chunk in chunks:
            if isinstance(chunk, bytes) and chunk and not said and (trouble := what_else(chunk, first=first)):
                self.troubles.append(trouble)
                said = True
            first = first and not chunk
            yield chunk


def ready(fd: int) -> bool:
    """Whether there is something to read, or the end, within IDLE_SECONDS."""
    poll = select.poll()
    poll.register(fd, select.POLLIN | select.POLLPRI)
    return bool(poll.poll(IDLE_SECONDS * 1000))
