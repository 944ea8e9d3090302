"""A real worker process without a daemon: requests by hand over its pipes.

    with HandWorker("nvml", library.environment) as worker:
        answer = worker.ask("sample")
        answer.value("gpu:0000:11:00.0", "power_average_watts")
        worker.until(lambda: len(worker.traces) > 3)      # what it sends unasked

Nothing is waited for without a deadline; leaving ends its input and, should it still be there, kills it: its driver is a fake.
"""

from __future__ import annotations

import os
import select
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self

from xidwatch.core.model import Value
from xidwatch.core.power import Stretch
from xidwatch.wire import Failure, Reply, Request, decode_reply, encode, to_reading, to_stretch

ROOT = Path(__file__).resolve().parents[2]
PATIENCE_SECONDS = 60.0


@dataclass(slots=True)
class Answer:
    """All that came back for one request. Without `done` and `failed` the worker ended instead."""

    readings: dict[str, dict[str, Value]] = field(default_factory=dict)
    touched: list[str] = field(default_factory=list)
    done: bool = False
    failed: Failure | None = None

    def value(self, subject: str, quantity: str) -> Value:
        return self.readings[subject][quantity]


class HandWorker:
    """`python -m xidwatch.probes.worker PROBE`, its standard input and output in the test's hands."""

    def __init__(self, probe: str, environment: Mapping[str, str]) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "xidwatch.probes.worker", probe],
            cwd=ROOT,
            env={**os.environ, "PYTHONPATH": str(ROOT), **environment},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        assert self._process.stdin
        assert self._process.stdout
        assert self._process.stderr
        self._stdin, self._stdout, self._stderr = self._process.stdin, self._process.stdout, self._process.stderr
        self._half = b""
        self._number = 0
        self.traces: list[Stretch] = []  # as they arrived, asked or not

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.wait(PATIENCE_SECONDS)
        for pipe in (self._stdin, self._stdout, self._stderr):
            pipe.close()

    def ask(self, what: str = "sample", deadline_seconds: float = 4.0) -> Answer:
        """One request and its whole answer."""
        self._number += 1
        os.write(self._stdin.fileno(), encode(Request(ask=self._number, what=what, deadline_ms=int(deadline_seconds * 1000))))
        answer = Answer()
        until = time.monotonic() + PATIENCE_SECONDS
        while not answer.done and answer.failed is None:
            replies = self._hear(until, f"no whole answer within {PATIENCE_SECONDS:g} s: {answer}")
            if replies is None:
                break
            for reply in replies:
                _take(answer, reply)
        return answer

    def until(self, wanted: Callable[[], bool]) -> None:
        """Listen, without asking, until it has sent what is wanted."""
        until = time.monotonic() + PATIENCE_SECONDS
        while not wanted():
            assert self._hear(until, f"not sent within {PATIENCE_SECONDS:g} s") == [], "an answer to no request"

    def _hear(self, until: float, otherwise: str) -> list[Reply] | None:
        """What it says next but for its traces, which are kept; None when it has ended."""
        ready, _, _ = select.select([self._stdout], [], [], max(0.0, until - time.monotonic()))
        assert ready, otherwise
        data = os.read(self._stdout.fileno(), 65536)
        if not data:
            return None
        *lines, self._half = (self._half + data).split(b"\n")
        replies = [decode_reply(line) for line in lines]
        self.traces += [to_stretch(reply.trace) for reply in replies if reply.trace is not None]
        return [reply for reply in replies if reply.trace is None]

    def end(self) -> tuple[int, str]:
        """End of input; exit status and what it said on standard error."""
        self._stdin.close()
        return self.leaves()

    def leaves(self) -> tuple[int, str]:
        """The same, for one that goes by itself."""
        status = self._process.wait(PATIENCE_SECONDS)
        return status, self._stderr.read().decode()


def _take(answer: Answer, reply: Reply) -> None:
    if reply.reading is not None:
        reading = to_reading(reply.reading)
        answer.readings.setdefault(str(reading.subject), {})[reading.quantity] = reading.value
    elif reply.at is not None:
        answer.touched.append(reply.at)
    answer.done, answer.failed = reply.done, reply.failed
