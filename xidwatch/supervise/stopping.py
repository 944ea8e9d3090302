"""Stopping an engine: systemd is told, watched until it is done or the time is over, and then what is left is looked at.

Who ignores TERM is systemd's to kill, by the unit's own settings. Who is left when systemd is done with the unit (KillMode=process,
or it was not to be ended then) is asked by TERM once more, through systemd, which knows whose processes these are; nothing here sends
a signal. A stop that is repeated does no harm.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

from xidwatch.supervise import remains
from xidwatch.supervise.service import Service, Shown

LOOK_SECONDS = 0.25  # between two looks
DYING_SECONDS = 3.0  # a process that was killed and can die has done so by then

OK, LEFTOVERS, TIMEOUT, FAILED = "ok", "leftovers", "timeout", "failed"


@dataclass(frozen=True, slots=True)
class Stopped:
    """What became of it. `leftovers`: a line for people for each process that is still there."""

    result: str
    detail: str = ""
    leftovers: tuple[str, ...] = ()


@dataclass(slots=True)
class Stop:
    """One stop. `deadline`: monotonic; `pause` is called between looks, with seconds."""

    service: Service
    deadline: float
    monotonic: Callable[[], float]
    pause: Callable[[float], None]
    ports: tuple[int, ...] = ()
    shm: Path = Path("/dev/shm")  # noqa: S108  looked at, never written to
    uid: int = 0

    def run(self) -> Stopped:
        """Returns at the deadline or a few seconds after it at the latest."""
        before = self.service.show()
        if before is not None and before.load_state == "not-found":
            return Stopped(FAILED, f"systemd knows no {self.service.unit}")
        self.uid = before.uid if before is not None else 0
        if before is not None and before.is_down:
            return self._look_back(before, "it was not running")
        objection = self.service.order("stop")
        now = self._until_down()
        if now is None or not now.is_down:
            return self._late(now, objection)
        return self._look_back(now, str(now))

    def _until_down(self) -> Shown | None:
        """As systemd has it last: down, or still at it when the time is over."""
        while True:
            now = self.service.show()
            if (now is not None and now.is_down) or self.monotonic() >= self.deadline:
                return now
            self.pause(LOOK_SECONDS)

    def _late(self, now: Shown | None, objection: str) -> Stopped:
        if objection and (now is None or not now.has_job):
            return Stopped(FAILED, objection, self._described())
        state = "systemd does not answer" if now is None else f"systemd is still at it: {now}"
        return Stopped(TIMEOUT, state, self._described())

    def _look_back(self, now: Shown, said: str) -> Stopped:
        if self._lives_on():
            objection = self.service.order("kill")
            said += "; who is left was asked to end once more" + (f" ({objection})" if objection else "")
        is_left = self._lives_on()
        detail = "; ".join([said, *self._things(now)])
        return Stopped(LEFTOVERS, detail, self._described()) if is_left else Stopped(OK, detail)

    def _lives_on(self) -> bool:
        """Whether somebody is left after the time in which one can die."""
        until = self.monotonic() + DYING_SECONDS
        while (left := self._left()) and self.monotonic() < until:
            self.pause(LOOK_SECONDS)
        return bool(left)

    def _left(self) -> list[int]:
        return remains.living(self.service.processes(), self.service.proc_root)

    def _described(self) -> tuple[str, ...]:
        return remains.describe(self.service.processes(), self.service.proc_root)

    def _things(self, now: Shown) -> Iterable[str]:
        """What is no process, in words."""
        if not self.service.processes() and now.is_down:
            yield from (f"port {port} is still held by somebody" for port in remains.held_ports(self.ports, self.service.proc_root))
        count, size = remains.shared_memory(self.uid, self.shm)
        if count:
            yield f"{count} segments of shared memory ({size / 2**20:.0f} MiB) of its user are in {self.shm}"
