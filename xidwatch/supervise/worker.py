"""One process, one engine stopped or started, then gone. It asks, looks, and tells; whoever started it may leave it to itself.

    -> {"do": "stop", "unit": "vllm.service", "within_s": 120, "pages": ["http://127.0.0.1:8000/metrics"]}
    -> {"do": "start", "unit": "vllm.service", "within_s": 900, "health": "http://127.0.0.1:8000/health", "probe": "http://127.0.0.1:8000/v1"}
    <- {"seen": {"active_state": "activating", "invocation_id": "3a3b..."}}           whenever it has become another
    <- {"result": "leftovers", "detail": "", "leftovers": ["process 4711 (VLLM::Worker TP) in state D, in os_acquire_rwlock_write"]}

When nobody listens any more it leaves, whatever it was waiting for: an engine is systemd's child, and goes on.
"""

from __future__ import annotations

import json
import select
import signal
import socket
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from xidwatch.core.loopback import Endpoint
from xidwatch.core.model import Missing
from xidwatch.supervise import leftovers, ready, units
from xidwatch.supervise.units import Units, Values

POLL_SECONDS = 0.5
RECEIVE = 64 * 1024
TOLD = ("active_state", "sub_state", "invocation_id", "result", "restarts", "unit_file_state", "load_state", "control_group")
STAYS_UP_SECONDS = 5.0  # an engine that has no page to ask is taken for ready when it has not fallen over by then


@dataclass(frozen=True, slots=True)
class Done:
    """How it ended. Of a stop: ok, leftovers, timeout, failed. Of a start: ready, refused, failed, not-ready, timeout."""

    result: str
    detail: str = ""
    leftovers: tuple[str, ...] = ()
    invocation_id: str = ""


class NobodyListens(Exception):
    """The daemon has left, or has something else to do."""


def main(channel: socket.socket, _options: Mapping[str, Any]) -> None:
    """As a child of the nursery: one job, then the end."""
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    line = channel.recv(RECEIVE)
    if not line:
        return
    job = json.loads(line)
    with suppress(NobodyListens, OSError):
        done = Worker(channel, Units()).work(job)
        _tell(channel, {"result": done.result, "detail": done.detail, "leftovers": done.leftovers, "invocation_id": done.invocation_id})


def _tell(channel: socket.socket, message: Mapping[str, object]) -> None:
    channel.sendall(json.dumps(message).encode() + b"\n")


class Worker:
    """At work on one job."""

    def __init__(self, channel: socket.socket, systemd: Units) -> None:
        self._channel = channel
        self._systemd = systemd
        self._shown: Mapping[str, object] = {}

    def work(self, job: Mapping[str, Any]) -> Done:
        """Until it is done, or its time is over."""
        deadline = self._systemd.monotonic() + float(job["within_s"])
        unit = str(job["unit"])
        return self._stop(unit, job, deadline) if job["do"] == "stop" else self._start(unit, job, deadline)

    # --------------------------------------------------------------------------------------------------------- stopping

    def _stop(self, unit: str, job: Mapping[str, Any], deadline: float) -> Done:
        group = units.control_group(self._look(unit))  # gone from its properties once it is down
        if not self._systemd.queue("stop", unit):
            return Done("failed", "systemctl did not come back")
        after = self._until(unit, units.is_down, deadline)
        left = leftovers.that_stay(group)
        pages = [Endpoint.parse(page) for page in job.get("pages", ()) if page]
        remarks = [*dict.fromkeys(leftovers.port(page) for page in pages), leftovers.shared_memory()]
        detail = "; ".join(filter(None, remarks))
        if not units.is_down(after):
            return Done("timeout", "; ".join(filter(None, (f"it is still {after.get('active_state')}", detail))), left)
        return Done("leftovers" if left else "ok", detail, left)

    # --------------------------------------------------------------------------------------------------------- starting

    def _start(self, unit: str, job: Mapping[str, Any], deadline: float) -> Done:
        before = self._look(unit)
        if why := units.forbidden(before):
            return Done("failed", why)
        if left := leftovers.processes(units.control_group(before)) if units.is_down(before) else ():
            return Done("failed", "what is left of the last run is in its control group", left)
        if before.get("active_state") == "failed":
            self._systemd.queue("reset-failed", unit)  # or a start limit that was hit on the way down would refuse this one
        if not self._systemd.queue("start", unit):
            return Done("failed", "systemctl did not come back")
        old = before.get("invocation_id")

        def has_settled(values: Values) -> bool:
            is_another = not isinstance(values.get("invocation_id"), Missing) and values.get("invocation_id") != old
            return values.get("active_state") == "active" or (
                units.is_down(values) and (is_another or values.get("result") == "exec-condition")
            )

        after = self._until(unit, has_settled, deadline)
        invocation = str(after.get("invocation_id", ""))
        if after.get("result") == "exec-condition" and units.is_down(after):
            return Done("refused", "its own condition (the gate) did not let it start", (), invocation)
        if units.is_down(after):
            return Done("failed", units.how_it_ended(after), (), invocation)
        if after.get("active_state") != "active":
            return Done("timeout", f"it is still {after.get('active_state')}", (), invocation)
        return self._ready(unit, job, deadline, invocation)

    def _ready(self, unit: str, job: Mapping[str, Any], deadline: float, invocation: str) -> Done:
        """Its page says so, then one token comes, and it is still the same run."""
        page, probe = job.get("health") or job.get("metrics") or "", job.get("probe") or ""
        began = self._systemd.monotonic()
        why = "it has not stayed up for long enough"
        while self._systemd.monotonic() < deadline:
            values = self._look(unit)
            if units.is_down(values):
                return Done("failed", units.how_it_ended(values), (), invocation)
            if values.get("invocation_id") not in (invocation, *Missing):
                return Done("failed", "it has been restarted before it was ready", (), invocation)
            why = ready.page(Endpoint.parse(page)) if page else ""
            if not why and probe:
                given, why = ready.token(Endpoint.parse(probe))
                if not why:
                    return Done("ready", f"it gave a token: {given!r}", (), invocation)
            elif not why and (page or self._systemd.monotonic() - began >= STAYS_UP_SECONDS):
                return Done("ready", "its page says so" if page else "it stays up; no page of it is configured to be asked", (), invocation)
            self._wait()
        return Done("not-ready", why, (), invocation)

    # ---------------------------------------------------------------------------------------------------------- looking

    def _until(self, unit: str, is_so: Callable[[Values], bool], deadline: float) -> Values:
        """The first look at which it is so; the last one before the deadline when it never was."""
        values = self._look(unit)
        while not is_so(values) and self._systemd.monotonic() < deadline:
            self._wait()
            values = self._look(unit)
        return values

    def _look(self, unit: str) -> Values:
        values = self._systemd.look(unit)
        shown = {name: value for name in TOLD if not isinstance(value := values.get(name, Missing.ABSENT), Missing)}
        if shown != self._shown:
            self._shown = shown
            _tell(self._channel, {"seen": shown})
        return values

    def _wait(self) -> None:
        """Until it is time to look again. Raises NobodyListens."""
        if select.select([self._channel], [], [], POLL_SECONDS)[0]:
            raise NobodyListens
