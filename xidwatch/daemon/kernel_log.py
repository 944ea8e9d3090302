r"""The kernel log as the loop reads it: records from /dev/kmsg, and an honest count of what was lost.

    4,358,27282527,c;NVRM: GPU at PCI:0000:00:06: GPU-5f0c2d1e-0000-4000-8000-000000000001
    6,198,88967,-;acpi PNP0A08:00: PCIe port services disabled; not requesting _OSC control
     SUBSYSTEM=acpi
     DEVICE=+acpi:PNP0A08:00
    4,1234,5678901,-,caller=T1946;NVRM: Xid (PCI:0000:0f:00): 79, pid=4242, name=python3, GPU has fallen off the bus.

Header: `<facility * 8 + level>,<sequence number>,<usec since boot>,<flags>[,more...];`, then the text with every byte
below 20, above 7e and the backslash as `\xNN`, then fields of their own behind a space. NVIDIA writes its Xids at
level 4 with flag `c`, which elsewhere marks the rest of a line: neither level nor flag says what may be left out.

One read of the device is one record; a pipe or a file may stand in for it and cuts where it likes, so what comes is
taken as a stream of lines. Source: Documentation/ABI/testing/dev-kmsg and kernel/printk/printk.c.
"""

from __future__ import annotations

import errno
import os
import re
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Self

from xidwatch.core.model import KernelMessage

READ_BYTES = 16 * 1024  # a record does not come to 8 KiB with all its fields escaped; one that does not fit is lost
MAX_LINE_BYTES = 64 * 1024  # of a line that has not ended yet; the device never comes near

_HEADER = re.compile(rb"(?P<priority>[0-9]{1,10}),(?P<seq>[0-9]{1,20}),(?P<usec>[0-9]{1,20}),(?P<flags>[^,;]*)(?:,[^;]*)?;")
_ESCAPED = re.compile(rb"\\x([0-9a-fA-F]{2})")


@dataclass(frozen=True, slots=True)
class Batch:
    """What one turn brought."""

    messages: tuple[KernelMessage, ...]
    lost: int  # records that were written and cannot be read any more
    malformed: int  # lines that are no record
    more: bool  # the budget is spent: call again next turn, the descriptor may not say so
    closed: bool  # end of file: read through, or a pipe that nobody writes to; the device has none
    error: str = ""  # why, when it was not simply the end


@dataclass(slots=True)
class _Count:
    messages: list[KernelMessage] = field(default_factory=list)
    lost: int = 0
    malformed: int = 0
    closed: bool = False
    error: str = ""


class KernelLog:
    """A non-blocking reader that starts at the oldest record the ring still holds and never stops at a bad one."""

    def __init__(self, fd: int, read: Callable[[int, int], bytes] = os.read) -> None:
        """Take over a descriptor opened for reading, non-blocking."""
        self._fd = fd
        self._read = read
        self._lines: deque[bytes] = deque()  # read, not yet looked at; filled only when empty
        self._half = b""  # a line whose end has not come
        self._skipping = False  # inside a line that was too long
        self._expected: int | None = None  # the sequence number that comes next when nothing is lost

    @classmethod
    def open(cls, path: str = "/dev/kmsg") -> Self:
        """Open without waiting. Raises OSError, notably PermissionError (needs CAP_SYSLOG) and FileNotFoundError."""
        return cls(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC))

    def fileno(self) -> int:
        """For the selector. An overrun shows as an error condition there and is none: just read on."""
        return self._fd

    def close(self) -> None:
        """Let go of the descriptor."""
        os.close(self._fd)

    def read(self, budget: int = 256) -> Batch:
        """Up to `budget` records, in order, without ever waiting."""
        count = _Count()
        more = True
        for _ in range(budget):
            if not self._lines and not self._fill(count):
                more = False
                break
            if self._lines:
                self._take(self._lines.popleft(), count)
        return Batch(tuple(count.messages), count.lost, count.malformed, more, count.closed, count.error)

    def _fill(self, count: _Count) -> bool:
        """One read. False when there is nothing (now, or ever again); true says only that it is worth going on."""
        try:
            chunk = self._read(self._fd, READ_BYTES)
        except BlockingIOError:
            return False
        except OSError as error:
            return self._failed(error, count)
        count.closed = not chunk
        self._split(chunk, count)
        return bool(chunk)

    def _failed(self, error: OSError, count: _Count) -> bool:
        if error.errno == errno.EPIPE:  # overrun: the next read gives the oldest record left, its number says what is gone
            if self._expected is None:
                count.lost += 1  # at least; nobody knows from where
            return True
        if error.errno == errno.EINVAL:  # a record larger than the buffer; the kernel has moved past it
            count.malformed += 1
            count.lost += 1
            if self._expected is not None:
                self._expected += 1
            return True
        count.closed = True
        count.error = str(error)
        return False

    def _split(self, chunk: bytes, count: _Count) -> None:
        *whole, self._half = (self._half + chunk).split(b"\n")
        if whole and self._skipping:
            del whole[0]
            self._skipping = False
        self._lines.extend(line for line in whole if line and not line.startswith(b" "))  # the rest: fields of the record before
        if self._skipping:
            self._half = b""
        elif len(self._half) > MAX_LINE_BYTES:
            count.malformed += 1
            self._half = b""
            self._skipping = True

    def _take(self, line: bytes, count: _Count) -> None:
        header = _HEADER.match(line)
        if not header:
            count.malformed += 1
            return
        seq, priority = int(header["seq"]), int(header["priority"])
        if self._expected is not None and seq > self._expected:
            count.lost += seq - self._expected
        self._expected = seq + 1  # a step back is another log in place of this one, not a loss
        count.messages.append(
            KernelMessage(
                seq=seq,
                usec=int(header["usec"]),
                facility=priority >> 3,
                level=priority & 7,
                flags=header["flags"].decode("ascii", "replace"),
                text=_unescape(line[header.end() :]),
            )
        )


def _unescape(text: bytes) -> str:
    """The bytes that were printed, as UTF-8 as far as they are; a line break inside one record comes back as one."""
    if b"\\x" in text:
        text = _ESCAPED.sub(lambda escaped: bytes.fromhex(escaped[1].decode("ascii")), text)
    return text.decode("utf-8", "replace")
