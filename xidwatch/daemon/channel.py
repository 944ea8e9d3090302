"""A non-blocking socket that carries lines, with bounds on both sides."""

from __future__ import annotations

import socket
from collections import deque
from collections.abc import Callable
from contextlib import suppress

from xidwatch.daemon.loop import Loop

READ_PER_TURN = 64 * 1024  # bytes
MAX_LINE = 64 * 1024


class Channel:
    """The loop's end of a socket pair.

    `on_line` gets each line without its newline, `on_end` is called once: when the other side is gone (with no reason
    where it simply left) or has sent a line longer than `max_line`. Sending never waits: what does not fit is queued,
    and `queued` says how much, so that the owner can bound it. A write that fails ends nothing by itself: what the other
    side said before it went is heard first.
    """

    def __init__(
        self,
        loop: Loop,
        sock: socket.socket,
        on_line: Callable[[bytes], None],
        on_end: Callable[[str], None],
        *,
        max_line: int = MAX_LINE,
    ) -> None:
        sock.setblocking(False)
        self._loop = loop
        self._sock = sock
        self._on_line = on_line
        self._on_end = on_end
        self._max_line = max_line
        self._half = bytearray()
        self._finishing = False
        self._unheard = False  # the other side reads no more
        self._out: deque[memoryview] = deque()
        self.queued = 0  # bytes
        self.open = True
        loop.watch(sock, self._read)

    def send(self, line: bytes) -> None:
        """Queue one line (with its newline). To a closed channel: dropped, `on_end` has told. After `finish`: dropped."""
        if not self.open or self._finishing or self._unheard:
            return
        self._out.append(memoryview(line))
        self.queued += len(line)
        self._write()

    def finish(self) -> None:
        """Tell the other side, behind all that is queued, that nothing more will come; what it still says is heard."""
        self._finishing = True
        if self.open and not self._out:
            self._shut()

    def _shut(self) -> None:
        with suppress(OSError):
            self._sock.shutdown(socket.SHUT_WR)

    def close(self) -> None:
        """Let go, without a word to the owner."""
        if self.open:
            self.open = False
            self._loop.forget(self._sock)
            self._sock.close()

    def _write(self) -> None:
        while self._out:
            try:
                sent = self._sock.send(self._out[0])
            except BlockingIOError:
                break
            except OSError:  # the end of the other side comes by reading
                self._unheard = True
                self._out.clear()
                self.queued = 0
                break
            self.queued -= sent
            if sent == len(self._out[0]):
                self._out.popleft()
            else:
                self._out[0] = self._out[0][sent:]
        if self._finishing and not self._out:
            self._shut()
        self._loop.watch(self._sock, self._read, self._write if self._out else None)

    def _read(self) -> None:
        try:
            data = self._sock.recv(READ_PER_TURN)
        except BlockingIOError:
            return
        except OSError:  # ECONNRESET: it went without reading all that it was sent
            data = b""
        if not data:
            self._end(f"half a line: {bytes(self._half[:80])!r}" if self._half else "")
            return
        first, *others = data.split(b"\n")
        self._half += first
        for rest in others:
            line, self._half = bytes(self._half), bytearray(rest)
            self._line(line)
        self._check(len(self._half))

    def _line(self, line: bytes) -> None:
        self._check(len(line))
        if self.open:  # the owner may have closed it at an earlier line of these
            self._on_line(line)

    def _check(self, length: int) -> None:
        if length > self._max_line:
            self._end(f"a line of more than {self._max_line} bytes")

    def _end(self, why: str) -> None:
        if self.open:
            self.close()
            self._on_end(why)
