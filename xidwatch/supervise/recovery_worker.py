"""One process, one step of recovery, then gone.

    options  {"do": "rescan", "target": "0000:0f:00.0", "within_s": 300, "evidence": ["/var/lib/xidwatch"],
              "mark": "/run/xidwatch/recovery-5f0c..."}
    <- {"result": "ok", "detail": "0000:0f:00.0 is back and answering"}

A step leaves a mark where a boot does not last, once for all runs: whatever becomes of the journal, it is not taken twice in a boot.

Until it has begun it leaves when nobody listens any more, or when it is told to. From then on it finishes: a device that was removed
is scanned for, whoever has died meanwhile. What the kernel does not return from, nobody can end.
"""

from __future__ import annotations

import json
import os
import select
import signal
import socket
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from xidwatch.core.recovery_model import REFUSED, UNABLE
from xidwatch.supervise.recovery import STEPS, Host, Refused, Unable


class NobodyListens(Exception):
    """The daemon has left before anything was done."""


class _Turn:
    """Before it has begun, and after."""

    def __init__(self, channel: socket.socket) -> None:
        self._channel = channel
        self._has_begun = False

    def begin(self) -> None:
        """From here on nobody ends it. Raises NobodyListens: it must not begin for a daemon that may have a successor by now."""
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        if select.select([self._channel], [], [], 0)[0]:
            raise NobodyListens
        self._has_begun = True

    def pause(self, seconds: float) -> None:
        """The daemon says nothing: what can be read is its end."""
        if self._has_begun:
            select.select([], [], [], seconds)
        elif select.select([self._channel], [], [], seconds)[0]:
            raise NobodyListens


def main(channel: socket.socket, options: Mapping[str, Any]) -> None:
    """As a child of the nursery."""
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    turn = _Turn(channel)
    try:
        result, detail = work(options, turn.pause, turn.begin)
    except NobodyListens:
        return
    with suppress(OSError):
        channel.sendall(json.dumps({"result": result, "detail": detail}).encode() + b"\n")


def work(job: Mapping[str, Any], pause: Callable[[float], None], begin: Callable[[], None]) -> tuple[str, str]:
    """What became of it."""
    step = str(job["do"])

    def begun() -> None:
        begin()
        _mark(Path(f"{job['mark']}-{step}"))

    host = Host(pause, begun, time.monotonic() + float(job["within_s"]), evidence=tuple(map(Path, job.get("evidence", ()))))
    host.sysfs, host.proc = Path(job.get("sysfs") or host.sysfs), Path(job.get("proc") or host.proc)
    host.programs = tuple(map(Path, job.get("programs", ()))) or host.programs
    try:
        return STEPS[step](host, str(job.get("target", "")))
    except Refused as objection:
        return REFUSED, str(objection)
    except Unable as objection:
        return UNABLE, str(objection)


def _mark(path: Path) -> None:
    """It is being taken in this boot. Raises Unable: it has been, by whatever run, or nobody would know."""
    try:
        os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o644))
    except FileExistsError:
        raise Unable(f"it has been taken in this boot, though the journal does not say so ({path})") from None
    except OSError as error:
        raise Unable(f"nothing would show that it was taken: {path}: {error.strerror}") from None
