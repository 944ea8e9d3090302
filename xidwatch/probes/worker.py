"""The process around a probe: lines in, lines out, and out of the way when told.

    $ python -m xidwatch.probes.worker pci
    {"ask": 1, "what": "look", "deadline_ms": 1000}
    {"ask":1,"done":true,"took_ms":0}

Every fact leaves the process before hardware is touched for the next one, so that what was learnt survives a call that
never returns; power over time leaves it unasked. End of input and SIGTERM both mean: finish what you are at, let go of the driver, exit.
"""

from __future__ import annotations

import contextlib
import importlib
import os
import selectors
import signal
import socket
import sys
import time
from collections.abc import Callable, Mapping
from types import FrameType
from typing import Any

from xidwatch.core.model import Subject, Value
from xidwatch.core.power import Stretch
from xidwatch.probes.base import Ask, Probe, ProbeFailed, Tracing
from xidwatch.wire import Failure, ProbeProtocolError, Reply, Request, decode_request, encode, encode_reading, encode_trace

FLUSH_AT = 16 * 1024  # bytes
RECEIVE = 64 * 1024


class _Leave(Exception):
    """SIGTERM arrived while waiting for a request."""


class Lines:
    """Both directions of the conversation, blocking."""

    def __init__(self, receive: int, send: int) -> None:
        self._receive = receive
        self._send = send
        self._half = b""
        self._lines: list[bytes] = []
        self._selector = selectors.DefaultSelector()
        self._selector.register(receive, selectors.EVENT_READ)

    def next(self, timeout: float | None) -> bytes | None:
        """The next line; None when `timeout` seconds pass first. Raises EOFError at the end of input."""
        while not self._lines:
            if not self._selector.select(timeout):
                return None
            data = os.read(self._receive, RECEIVE)
            if not data:
                raise EOFError
            *self._lines, self._half = (self._half + data).split(b"\n")
        return self._lines.pop(0)

    def write(self, data: bytes) -> None:
        """All of it."""
        while data:
            data = data[os.write(self._send, data) :]

    def trace(self, stretch: Stretch) -> None:
        """Unasked, and at once."""
        self.write(encode_trace(stretch))


class _Emit:
    """Collects the lines of one answer and sends them in time."""

    def __init__(self, lines: Lines, ask: int) -> None:
        self._lines = lines
        self._ask = ask
        self._pending = bytearray()

    def at(self, subject: Subject) -> None:
        self._pending += encode(Reply(ask=self._ask, at=str(subject)))
        self.flush()

    def reading(self, subject: Subject, quantity: str, value: Value) -> None:
        self._pending += encode_reading(self._ask, subject, quantity, value)
        if len(self._pending) > FLUSH_AT:
            self.flush()

    def flush(self) -> None:
        self._lines.write(bytes(self._pending))
        self._pending.clear()


class Serving:
    """One probe, served until there is nobody left to serve."""

    def __init__(self, probe: Probe, lines: Lines, *, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._probe = probe
        self._monotonic = monotonic
        self._lines = lines
        self._busy = False
        self.leaving = False  # no further request is served
        if isinstance(probe, Tracing):
            probe.trace_into(lines)

    def run(self) -> None:
        """Until end of input, SIGTERM, or a failure that only a fresh process can mend."""
        signal.signal(signal.SIGTERM, self._terminate)
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        with contextlib.suppress(_Leave, EOFError, BrokenPipeError, ConnectionResetError):
            self._serve()
        self._busy = True  # from here on a SIGTERM changes nothing
        self._probe.close()

    def _terminate(self, _signum: int, _frame: FrameType | None) -> None:
        self.leaving = True
        if not self._busy:
            raise _Leave

    def _serve(self) -> None:
        while not self.leaving:
            line = self._lines.next(self._probe.between_seconds)
            self._busy = True
            if line is None:
                self._probe.between()
            else:
                self.answer(line)
            self._busy = False

    def answer(self, line: bytes) -> None:
        """One request, from the line to the last line of its answer."""
        try:
            request = decode_request(line)
        except ProbeProtocolError as error:
            print(f"xidwatch worker: {error}", file=sys.stderr)
            return
        begun = self._monotonic()
        emit = _Emit(self._lines, request.ask)
        try:
            self._ask(request, Ask(begun + request.deadline_ms / 1000, frozenset(request.skip)), emit)
            last = Reply(ask=request.ask, done=True, took_ms=int((self._monotonic() - begun) * 1000))
        except ProbeFailed as failure:
            self.leaving = self.leaving or failure.restart
            last = Reply(ask=request.ask, failed=Failure(failure.kind, failure.text))
        emit.flush()
        self._lines.write(encode(last))

    def _ask(self, request: Request, ask: Ask, emit: _Emit) -> None:
        match request.what:
            case "sample":
                self._probe.sample(ask, emit)
            case "look":
                self._probe.look(ask, emit)
            case "inventory":
                self._probe.inventory(ask, emit)
            case other:
                raise ProbeFailed("UnknownRequest", f"no such request: {other}")


def main(channel: socket.socket, options: Mapping[str, Any]) -> None:
    """As a child of the nursery: `options` name the probe's factory and what it is given."""
    module, _, function = str(options["target"]).partition(":")
    probe: Probe = getattr(importlib.import_module(module), function)(options.get("options") or {})
    Serving(probe, Lines(channel.fileno(), channel.fileno())).run()


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit("usage: python -m xidwatch.probes.worker PROBE   (nvml, pci, hwmon, host or engine; requests on standard input)")
    by_hand: Probe = importlib.import_module(f"xidwatch.probes.{sys.argv[1]}").create({})
    Serving(by_hand, Lines(0, 1)).run()
