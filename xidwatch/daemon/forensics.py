"""The dump worker: one process, one dump, part after part.

It waits, warm, for its job: by then the disk its modules came from may be gone. What the daemon had in memory is
written first and without touching any hardware; only then come the collectors that ask it, each in a child of its own
with an absolute deadline, since any of them may never return.

    -> {"folder": "/var/lib/xidwatch/incidents/2026...", "incident": "2026...", "boot_id": "...", "trigger": "t-000123",
        "parts": [{"name": "010-samples.csv", "text": "..."},
                  {"name": "015-power-trace.csv", "collect": "xidwatch.records.power_trace:csv_text", "with": [...], "deadline_s": 10},
                  {"name": "040-config-space.txt", "collect": "xidwatch.probes.pci:config_space_text", "with": ["/sys"], "deadline_s": 5}]}
    <- {"part": "010-samples.csv", "status": "ok", "took_ms": 3}
    <- {"stuck": {"pid": 4711, "start_ticks": 182739, "name": "040-config-space.txt"}}
    <- {"done": true, "parts": 4}
"""

from __future__ import annotations

import importlib
import os
import selectors
import signal
import socket
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from xidwatch.clock import Clock, SystemClock
from xidwatch.daemon import frames
from xidwatch.daemon.processes import end_now, start_ticks
from xidwatch.records.dumps import DumpFolder, Stuck

STAGE_ONE = 1
RECEIVE = 1024 * 1024
CHUNK = 64 * 1024
KILL_SECONDS = 0.2  # a process that can die has died by then; one that cannot is not waited for
MAX_COLLECTED = 64 * 1024 * 1024  # bytes a part


def main(channel: socket.socket, options: Mapping[str, Any]) -> None:
    """As a child of the nursery: wait for one job, do it, leave. `options["preload"]` names what to import while there is time."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)  # evidence first: it ends by itself, every part has a deadline
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    os.umask(0o077)
    for target in options.get("preload", ()):
        resolve(target)
    line = _receive(channel)
    if line:
        dump(frames.decode(line), SystemClock(), Collector.start, lambda message: _tell(channel, message))


def _receive(channel: socket.socket) -> bytes:
    parts: list[bytes] = []
    while not parts or not parts[-1].endswith(b"\n"):
        data = channel.recv(RECEIVE)
        if not data:
            return b""
        parts.append(data)
    return b"".join(parts)


def resolve(target: str) -> Any:
    """What `module:name` names."""
    module, _, name = target.partition(":")
    return getattr(importlib.import_module(module), name)


class Collecting(Protocol):
    """A collector under way."""

    @property
    def pid(self) -> int:
        """Of its process."""

    def chunks(self) -> Iterator[bytes]:
        """What it has to say; raises as `DumpFolder.write_part` wants it."""


Start = Callable[[str, list[Any], float], Collecting]  # target, arguments, deadline (monotonic seconds)
Tell = Callable[[Mapping[str, object]], None]


def dump(job: Mapping[str, Any], clock: Clock, start: Start, tell: Tell) -> None:
    """Write one dump, part after part, each durable and told before the next begins."""
    folder = DumpFolder(Path(job["folder"]), incident=job["incident"], boot_id=job["boot_id"], trigger=job["trigger"], clock=clock)
    for part in job["parts"]:
        if "collect" in part:
            collector = start(part["collect"], part.get("with", []), clock.now().mono + float(part["deadline_s"]))
            written = folder.write_part(part["name"], STAGE_ONE, collector.chunks())
            if written.status == "stuck":
                tell({"stuck": {"pid": collector.pid, "start_ticks": start_ticks(collector.pid) or 0, "name": part["name"]}})
        else:
            written = folder.write_part(part["name"], STAGE_ONE, [part["text"].encode()])
        tell({"part": written.name, "status": written.status, "took_ms": written.took_ms})
    folder.complete()
    tell({"done": True, "parts": len(job["parts"])})


def _tell(channel: socket.socket, message: Mapping[str, object]) -> None:
    try:
        channel.sendall(frames.encode(message))
    except OSError:
        pass  # the daemon is gone; the dump goes on


@dataclass(frozen=True, slots=True)
class Collector:
    """A child that runs one generator of text lines, and the pipe its lines come through."""

    pid: int
    pipe: int
    deadline: float

    @classmethod
    def start(cls, target: str, arguments: list[Any], deadline: float) -> Collector:
        """Fork it: this process has one thread and has never touched a driver."""
        receive, send = os.pipe()
        pid = os.fork()
        if pid == 0:
            os.close(receive)
            _collect(target, arguments, send)
        os.close(send)
        return cls(pid, receive, deadline)

    def chunks(self) -> Iterator[bytes]:
        """What it has to say. Raises TimeoutError at the deadline, Stuck when it then cannot be ended, OSError when it failed."""
        total = 0
        with selectors.DefaultSelector() as selector, open(self.pipe, "rb", buffering=0) as pipe:  # noqa: PTH123  a descriptor
            selector.register(pipe, selectors.EVENT_READ)
            while total < MAX_COLLECTED:
                if not selector.select(max(0.0, self.deadline - time.monotonic())):
                    raise self._overdue()
                data = pipe.read(CHUNK)
                if not data:
                    break
                total += len(data)
                yield data
            else:
                end_now(self.pid)  # and not waited for: this process leaves soon
                raise OSError(f"cut off after {MAX_COLLECTED} bytes")
        _, status = os.waitpid(self.pid, 0)  # its pipe is closed: it is past all hardware
        if status:
            raise OSError(f"the collector ended with {os.waitstatus_to_exitcode(status)}")

    def _overdue(self) -> TimeoutError:
        end_now(self.pid)  # it holds no driver
        end = time.monotonic() + KILL_SECONDS
        while time.monotonic() < end:
            if os.waitpid(self.pid, os.WNOHANG)[0]:
                return TimeoutError("its deadline passed")
            time.sleep(0.005)
        return Stuck(f"its deadline passed, and process {self.pid} cannot be ended")


def _collect(target: str, arguments: list[Any], send: int) -> None:
    """Deaf to TERM as its parent is: a stop of the service reaches everybody in the control group."""
    status = 1
    try:
        for text in resolve(target)(*arguments):  # each out at once: what was learnt must not wait for what comes next
            data = text.encode() + b"\n"
            while data:
                data = data[os.write(send, data) :]
        status = 0
    finally:
        os._exit(status)
