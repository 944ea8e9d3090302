"""One log: a file, a pipe or /dev/kmsg, as chunks of plain text bytes, and in words what could not be read of it.

A chunk is empty when nothing has come for a while: whoever reads gives out what he has. Text in UTF-16 (as PowerShell and some
journal viewers save it) becomes UTF-8; whatever else the bytes are, they are handed on as they are.
"""

from __future__ import annotations

import codecs
import errno
import os
import select
import stat
from collections.abc import Iterator
from itertools import chain
from typing import overload

from xidwatch.core.logscan import Searched
from xidwatch.logs import scouts, unpack
from xidwatch.logs.find import Search
from xidwatch.logs.unpack import UnpackError

READ_BYTES = 256 * 1024  # stays in a core's cache
RECORD_BYTES = 16 * 1024  # of /dev/kmsg: one read is one record
IDLE_SECONDS = 0.25
SAMPLE_BYTES = 4096  # of each chunk: is it text?
_TEXT = bytes({*range(0x20, 0x7F), *range(0x80, 0x100), 0, 7, 8, 9, 10, 12, 13, 27})
_MOST_CONTROL = 0.03  # the share of other bytes that text may hold; a random file has a tenth of them
_JOURNAL = b"LPKSHHRH"
JOURNAL_HINT = "a journal file of systemd, not text: use `journalctl --file FILE -o export | xidwatch decode -`"
_ZIP = b"PK\x03\x04"


class Source:
    """What is read, from the beginning to its end. Raises OSError when it cannot be opened."""

    def __init__(self, path: str) -> None:
        """`-` is standard input."""
        self.name = "standard input" if path == "-" else path
        self.troubles: list[str] = []
        self.done_bytes = 0  # as they lie in the file
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
        os.close(self._fd)

    @overload
    def chunks(self) -> Iterator[bytes]: ...

    @overload
    def chunks(self, search: Search) -> Iterator[bytes | Searched]: ...

    def chunks(self, search: Search | None = None) -> Iterator[bytes | Searched]:
        """All of it. Never raises for what is in it: see `troubles`. `search`: by which a large file may be searched while it is read."""
        raw = self._raw()
        head = b""
        for chunk in raw:
            head += chunk
            if len(head) >= unpack.LONGEST_MAGIC:
                break
        kind = unpack.kind_of(head)
        stream: Iterator[bytes | Searched]
        if kind or search is None or _wide(head):
            stream = as_utf8(unpack.unpacked(kind, _joined(head, raw)) if kind else _joined(head, raw))
        else:
            stream = chain([head.removeprefix(codecs.BOM_UTF8)], self._searched(search), raw)
        try:
            yield from self._checked(stream)
        except UnpackError as error:
            self.troubles.append(str(error) if str(error) == unpack.ZSTD_MISSING else f"{error}: what comes after is not read")

    def _raw(self) -> Iterator[bytes]:
        while (chunk := self._read()) is not None:
            self.done_bytes += len(chunk)
            yield chunk

    def _searched(self, search: Search) -> Iterator[bytes | Searched]:
        """What scouts make of it. Reading goes on behind that."""
        if self.total_bytes is None:
            return
        at = os.lseek(self._fd, 0, os.SEEK_CUR)
        for chunk in scouts.searched(self._fd, at, self.total_bytes - at, search):
            os.lseek(self._fd, scouts.CHUNK_BYTES, os.SEEK_CUR)
            self.done_bytes += scouts.CHUNK_BYTES
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
            self.troubles.append(f"reading failed: {(error.strerror or str(error)).lower()}")
            return None

    def _checked(self, chunks: Iterator[bytes | Searched]) -> Iterator[bytes | Searched]:
        """Say once that it is no text; there may be some in it all the same."""
        said, first = False, True
        for chunk in chunks:
            sample = chunk[:SAMPLE_BYTES] if isinstance(chunk, bytes) else bytes(chunk.data[:SAMPLE_BYTES])
            if sample and not said and (trouble := what_else(sample, first=first)):
                self.troubles.append(trouble)
                said = True
            first = first and not sample
            yield chunk


def what_else(chunk: bytes, *, first: bool) -> str | None:
    """In words, when a chunk is not text."""
    if first and chunk.startswith(_JOURNAL):
        return JOURNAL_HINT
    if first and chunk.startswith(_ZIP):
        return "a zip archive, not text: unpack it first"
    sample = chunk[:SAMPLE_BYTES]
    control = len(sample.translate(None, _TEXT))
    return "not text, or damaged: only what looks like a log in it was read" if control > _MOST_CONTROL * len(sample) else None


def ready(fd: int) -> bool:
    """Whether there is something to read, or the end, within IDLE_SECONDS."""
    poll = select.poll()
    poll.register(fd, select.POLLIN | select.POLLPRI)
    return bool(poll.poll(IDLE_SECONDS * 1000))


def _joined(head: bytes, rest: Iterator[bytes]) -> Iterator[bytes]:
    if head:
        yield head
    yield from rest


def as_utf8(chunks: Iterator[bytes]) -> Iterator[bytes]:
    """The same text; UTF-16 becomes UTF-8."""
    first = next((chunk for chunk in chunks if chunk), b"")
    encoding = _wide(first)
    if encoding is None:
        yield from _joined(first.removeprefix(codecs.BOM_UTF8), chunks)
        return
    decoder = codecs.getincrementaldecoder(encoding)("replace")
    for chunk in _joined(first, chunks):
        yield decoder.decode(chunk).lstrip("\ufeff").encode("utf-8", "replace")


def _wide(head: bytes) -> str | None:
    """UTF-16 by its mark, or because every other byte of the beginning is zero."""
    if head.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        return "utf-16-le" if head.startswith(codecs.BOM_UTF16_LE) else "utf-16-be"
    sample = head[:SAMPLE_BYTES]
    for encoding, zeros in (("utf-16-le", sample[1::2]), ("utf-16-be", sample[::2])):
        if len(sample) > 16 and zeros.count(0) > 0.9 * len(zeros) and sample.count(0) < 0.6 * len(sample):
            return encoding
    return None
