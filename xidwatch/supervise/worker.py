"""One process, one engine stopped or started, then gone. It asks, looks, and tells; whoever started it may leave it to itself.

    options  {"do": "stop", "unit": "vllm.service", "within_s": 120, "health": "", "metrics": "http://127.0.0.1:8000/metrics", "probe": ""}
    options  {"do": "start", "unit": "vllm.service", "within_s": 900, "health": "http://127.0.0.1:8000/health", "probe": "http://127.0.0.1:8000/v1",
              "api_key_file": "/etc/xidwatch/vllm.key", "enabled_only": true}
    <- {"seen": {"active_state": "activating", "invocation_id": "3a3b..."}}           whenever it has become another
    <- {"result": "leftovers", "detail": "failed (failed), result timeout", "leftovers": ["process 4711 (VLLM::Worker) state D in ..."]}

When nobody listens any more it leaves, whatever it was waiting for: an engine is systemd's child, and goes on.
"""

from __future__ import annotations

import json
import select
import signal
import socket
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from xidwatch.supervise.readiness import Pages
from xidwatch.supervise.service import CGROUPS, PROC, Service
from xidwatch.supervise.starting import Start
from xidwatch.supervise.stopping import Stop

Pause = Callable[[float], None]
PAGES = ("health", "metrics", "probe", "api_key_file")


class NobodyListens(Exception):
    """The daemon has left, or has something else to do."""


def main(channel: socket.socket, options: Mapping[str, Any]) -> None:
    """As a child of the nursery: one job, then the end."""
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    try:
        _tell(channel, work(options, lambda seen: _tell(channel, {"seen": seen}), lambda seconds: _pause(channel, seconds)))
    except (NobodyListens, BrokenPipeError, ConnectionResetError):
        return


def work(job: Mapping[str, Any], on_shown: Callable[[Mapping[str, object]], None], pause: Pause) -> dict[str, object]:
    """What became of it. `pause` waits for so many seconds, and may raise."""
    service = _service(job, on_shown)
    pages = Pages(*(str(job.get(name, "")) for name in PAGES))
    deadline = time.monotonic() + float(job["within_s"])
    if job["do"] == "stop":
        return asdict(Stop(service, deadline, time.monotonic, pause, pages.ports).run())
    return asdict(Start(service, pages, deadline, time.monotonic, pause, bool(job.get("enabled_only", True))).run())


def _service(job: Mapping[str, Any], on_shown: Callable[[Mapping[str, object]], None]) -> Service:
    """Other places than the host's own are for tests."""
    cgroups, proc = (Path(job.get(name, usual)) for name, usual in (("cgroup_root", CGROUPS), ("proc_root", PROC)))
    return Service(str(job["unit"]), on_shown, systemctl=str(job.get("systemctl", "")), cgroup_root=cgroups, proc_root=proc)


def _tell(channel: socket.socket, message: Mapping[str, object]) -> None:
    channel.sendall(json.dumps(message).encode() + b"\n")


def _pause(channel: socket.socket, seconds: float) -> None:
    """The daemon says nothing: what can be read is its end."""
    if select.select([channel], [], [], seconds)[0]:
        raise NobodyListens
