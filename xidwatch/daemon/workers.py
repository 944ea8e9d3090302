"""The daemon's side of the probes: asking, deadlines, giving up, and starting over.

A deadline is not a kill. When it passes, what has arrived counts, and the worker keeps its chance to come back. Only
when it is wanted again and still busy is it left behind (end of input, TERM, and for those that hold no driver KILL),
and a replacement leaves out the subject it was last touching. A worker that holds the NVIDIA driver is never replaced
while it lives, and never more than three processes are left behind in all.

    start ──► idle ──ask──► busy ──done──► idle
                              │ deadline
                              ▼
                            late ──done──► idle          (it came back)
                              │ wanted again, holds no driver
                              ▼
                          abandoned, replaced
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from xidwatch.core.model import Subject, Value
from xidwatch.core.power import Stretch
from xidwatch.daemon.channel import Channel
from xidwatch.daemon.loop import Loop, Timer
from xidwatch.daemon.nursery import Nursery
from xidwatch.daemon.processes import Abandoned
from xidwatch.wire import UNASKED, ProbeProtocolError, Reply, Request, WireTrace, decode_reply, encode, to_reading, to_stretch

MOST_ABANDONED = 3
MAX_ANSWER = 2 * 1024 * 1024  # bytes a request (what the pci probe tells at most fits): a worker that floods has broken the protocol
TRACE_BYTES_A_SECOND = 64 * 1024.0  # 16 GPUs at 50 Hz send a quarter of it
TRACE_BURST = 512 * 1024.0  # bytes: more than the socket holds back while the loop does not run
MAX_TOOK_MS = 10**9  # whatever a worker says
LEAVING_SECONDS = 5.0  # a healthy worker told to leave is not called stuck before this


@dataclass(frozen=True, slots=True)
class ProbeSpec:
    """One probe as the daemon knows it: by string, never by import."""

    name: str
    target: str  # module:function, called in the worker
    options: Mapping[str, object] = field(default_factory=dict)
    deadline_seconds: float = 4.0
    first_deadline_seconds: float = 4.0  # the very first answer of a process may take this long before it counts as late
    holds_driver: bool = False
    looks: bool = False  # takes part in an immediate look


@dataclass(slots=True)
class Ask:
    """One request and what came of it. `ended`: done, failed, timeout, crashed, garbage, or not-asked."""

    number: int
    probe: str
    what: str
    begun: float
    deadline: float  # monotonic; after it the asker goes on without
    on_end: Callable[[Ask], None]
    readings: dict[Subject, dict[str, Value]] = field(default_factory=dict)
    at: str = ""
    ended: str = ""
    why: str = ""
    failure: str = ""  # the failure's type, as the probe names it
    took_ms: int = 0
    skip: tuple[str, ...] = ()
    received: int = 0  # bytes

    def end(self, how: str, why: str = "") -> None:
        """Once; the second time is nothing."""
        if not self.ended:
            self.ended, self.why = how, why
            self.on_end(self)


@dataclass(slots=True)
class Allowance:
    """How much a worker may say unasked: TRACE_BURST at once, TRACE_BYTES_A_SECOND in the long run."""

    since: float
    left: float = TRACE_BURST

    def spend(self, size: int, now: float) -> None:
        """Raises ProbeProtocolError when that is too much."""
        self.left = min(TRACE_BURST, self.left + (now - self.since) * TRACE_BYTES_A_SECOND) - size
        self.since = now
        if self.left < 0:
            raise ProbeProtocolError(f"more than {TRACE_BURST:.0f} bytes unasked, and {TRACE_BYTES_A_SECOND:.0f} a second")


class Worker:
    """One live process running one probe."""

    def __init__(self, pool: Workers, spec: ProbeSpec, skip: frozenset[str]) -> None:
        self.spec = spec
        self.skip = skip
        self.pid = 0
        self.start_ticks = 0
        self.late_since: float | None = None
        self.current: Ask | None = None
        self._pool = pool
        self.due: float | None = None  # monotonic: when the answer under way counts as late
        self._answered_once = False
        self._waiting: list[Ask] = []
        self._timer: Timer | None = None
        self._unasked = Allowance(pool.loop.clock.now().mono)
        self.request, sock = pool.nursery.start("xidwatch.probes.worker:main", spec.name, {"target": spec.target, "options": spec.options})
        self.channel = Channel(pool.loop, sock, self._line, self._gone)

    def ask(self, ask: Ask) -> None:
        """Now, or when the request under way is answered; the latest of a kind replaces an older one still waiting."""
        for other in [other for other in self._waiting if other.what == ask.what]:
            self._waiting.remove(other)
            other.end("not-asked", "overtaken by a newer request")
        self._waiting.append(ask)
        self._pool.loop.at(ask.deadline, lambda: ask.end("timeout", "no answer before the deadline"))
        self._next()

    def _next(self) -> None:
        while self.current is None and self._waiting:
            ask = self._waiting.pop(0)
            if not ask.ended:
                self._send(ask)

    def _send(self, ask: Ask) -> None:
        now = self._pool.loop.clock.now().mono
        self.current = ask
        patience = self.spec.deadline_seconds if self._answered_once else self.spec.first_deadline_seconds
        self.due = max(ask.deadline, now + patience)
        self._timer = self._pool.loop.at(self.due, self._overdue)
        deadline_ms = max(1, int((ask.deadline - now) * 1000))
        ask.skip = tuple(sorted(self.skip))
        self.channel.send(encode(Request(ask=ask.number, what=ask.what, deadline_ms=deadline_ms, skip=ask.skip)))

    def _overdue(self) -> None:
        if self.current is not None:
            self.late_since = self._pool.loop.clock.now().mono
            self._pool.changed()

    def _line(self, line: bytes) -> None:
        try:
            reply = decode_reply(line)
            if reply.trace is not None:
                self._traced(reply.ask, reply.trace, len(line))
                return
            ask = self._current(reply)
            ask.received += len(line)
            if ask.received > MAX_ANSWER:
                raise ProbeProtocolError(f"more than {MAX_ANSWER} bytes in answer to one request")
            self._take(ask, reply)
        except ProbeProtocolError as error:
            self._broken("garbage", str(error))

    def _traced(self, ask: int, trace: WireTrace, size: int) -> None:
        """At any time, also from one that is late with its answer: what it measured before counts."""
        if ask != UNASKED:
            raise ProbeProtocolError(f"a trace as an answer to request {ask}")
        self._unasked.spend(size, self._pool.loop.clock.now().mono)
        self._pool.on_trace(to_stretch(trace))

    def _current(self, reply: Reply) -> Ask:
        if self.current is None or reply.ask != self.current.number:
            raise ProbeProtocolError(f"an answer to request {reply.ask}, which is not open")
        return self.current

    def _take(self, ask: Ask, reply: Reply) -> None:
        if reply.reading is not None:
            if not ask.ended:
                reading = to_reading(reply.reading)
                ask.readings.setdefault(reading.subject, {})[reading.quantity] = reading.value
        elif reply.at is not None:
            ask.at = reply.at
        elif reply.failed is not None:
            ask.failure = reply.failed.type
            self._answered(ask, "failed", reply.failed.text)
        elif reply.done:
            ask.took_ms = min(max(reply.took_ms, 0), MAX_TOOK_MS)
            self._answered(ask, "done", "")
        else:
            raise ProbeProtocolError("a line that says nothing")

    def _answered(self, ask: Ask, how: str, why: str) -> None:
        self._answered_once = True
        self.current = self.due = None
        if self._timer:
            self._timer.cancel()
        if self.late_since is not None:
            self.late_since = None
            self._pool.came_back(self)
        ask.end(how, why)
        self._next()

    def _gone(self, why: str) -> None:
        self._broken("garbage" if why else "crashed", why or "the worker process ended")

    def release(self) -> None:
        """Out of service by decision; whoever waits for an answer is told so, and keeps what has come."""
        self._broken("not-asked", "the worker was told to leave")

    def _broken(self, how: str, why: str) -> None:
        asks = [ask for ask in (self.current, *self._waiting) if ask]
        self.retire()
        for ask in asks:
            ask.end(how, why)

    def retire(self) -> None:
        """Take it out of service: end of input now; the pool sees to the rest if it stays."""
        at = self.current.at if self.current else ""
        self.current = None
        if self._timer:
            self._timer.cancel()
        self.channel.close()
        self._pool.leave_behind(self, at)


class Workers:
    """All probes' workers, and the processes left behind."""

    def __init__(
        self,
        loop: Loop,
        nursery: Nursery,
        specs: tuple[ProbeSpec, ...],
        *,
        adopted: tuple[Abandoned, ...] = (),
        on_change: Callable[[], None] = lambda: None,
        on_trace: Callable[[Stretch], None] = lambda _stretch: None,
    ) -> None:
        self.loop = loop
        self.nursery = nursery
        self.specs = {spec.name: spec for spec in specs}
        self.abandoned: list[Abandoned] = list(adopted)
        self._workers: dict[str, Worker] = {}
        self._unborn: dict[int, Abandoned] = {}  # given up before the nursery said who they are
        self._numbers = itertools.count(1)
        self._on_change = on_change
        self.on_trace = on_trace

    # ------------------------------------------------------------------------------------------------------- asking

    def ask(self, probe: str, what: str, deadline: float, on_end: Callable[[Ask], None]) -> None:
        """Ask one probe; `on_end` is called exactly once, no later than the deadline (monotonic seconds)."""
        ask = Ask(next(self._numbers), probe, what, self.loop.clock.now().mono, deadline, on_end)
        worker = self._worker(probe)
        if isinstance(worker, str):
            ask.at = self._where(probe)
            ask.end("timeout", worker)
        else:
            worker.ask(ask)

    def _worker(self, probe: str) -> Worker | str:
        """A worker to ask, or why there is none."""
        spec = self.specs[probe]
        worker = self._workers.get(probe)
        if worker is not None and worker.late_since is None:
            return worker
        if worker is not None:
            if spec.holds_driver:
                return "still waiting for the answer to an earlier request"
            worker.retire()
        left = [process for process in self.abandoned if process.name == probe and process.is_alive()]
        if left and spec.holds_driver:
            return f"process {left[0].pid} of this probe still holds the driver"
        lost = [process for process in left if not process.at]
        if lost:
            return f"process {lost[0].pid} of this probe has not ended and does not say where it is"
        stuck = sum(not process.holds_evidence for process in self.abandoned)
        if left and stuck >= MOST_ABANDONED:
            return f"{stuck} processes are stuck already; none is added"
        skip = frozenset(process.at for process in left)
        self._workers[probe] = started = Worker(self, spec, skip)
        self.changed()
        return started

    # ------------------------------------------------------------------------------------------ coming, going, staying

    def started(self, request: int, pid: int, start_ticks: int) -> bool:
        """The nursery says who was born; False when it is none of ours."""
        orphan = self._unborn.pop(request, None)
        if orphan is not None:
            orphan.pid, orphan.start_ticks = pid, start_ticks
            self.abandoned.append(orphan)
            self.changed()
            return True
        for worker in self._workers.values():
            if worker.request == request:
                worker.pid, worker.start_ticks = pid, start_ticks
                self.changed()
                return True
        return False

    def came_back(self, worker: Worker) -> None:
        """A late worker has answered after all and serves on."""
        self.changed()

    def leave_behind(self, worker: Worker, at: str) -> None:
        """Out of service. Whether it has really ended shows when it is looked for."""
        if self._workers.get(worker.spec.name) is worker:
            del self._workers[worker.spec.name]
        expected = max(worker.due or 0.0, self.loop.clock.now().mono + LEAVING_SECONDS)
        since = expected if worker.late_since is None else worker.late_since
        left = Abandoned(worker.spec.name, worker.pid, worker.start_ticks, since, at, worker.spec.holds_driver)
        if worker.pid:
            self.abandoned.append(left)
        else:
            self._unborn[worker.request] = left
        self.changed()

    def tend(self) -> None:
        """Look after those left behind: forget the ended, nudge the others one rung further."""
        now = self.loop.clock.now().mono
        alive = [process for process in self.abandoned if process.is_alive()]
        for process in alive:
            process.nudge(now)
        if len(alive) != len(self.abandoned):
            self.abandoned = alive
            self._refresh_skips()
            self.changed()

    def _refresh_skips(self) -> None:
        for worker in self._workers.values():
            worker.skip = frozenset(process.at for process in self.abandoned if process.name == worker.spec.name and process.at)

    def release(self, probe: str) -> None:
        """Tell a worker to finish and exit; it is not asked again until somebody asks."""
        worker = self._workers.get(probe)
        if worker is not None:
            worker.release()

    def changed(self) -> None:
        """Somebody came, went or got stuck: the successor's list has to be renewed."""
        self._on_change()

    # -------------------------------------------------------------------------------------------------------- looking

    def stuck_seconds(self, probe: str, now: float) -> float:
        """How long the oldest unanswered request of this probe has been late, 0 when none is."""
        times = [process.since for process in self.abandoned if process.name == probe]
        worker = self._workers.get(probe)
        if worker is not None and worker.late_since is not None:
            times.append(worker.late_since)
        return max((now - since for since in times if since < now), default=0.0)

    def _where(self, probe: str) -> str:
        """The subject at which a process of this probe is stuck; empty when none is, or has not said."""
        worker = self._workers.get(probe)
        late = worker.current.at if worker is not None and worker.late_since is not None and worker.current else ""
        return late or next((process.at for process in self.abandoned if process.name == probe and process.at), "")

    def clearing(self) -> frozenset[str]:
        """The probes of which a process that got stuck is about to be ended: it may yet be seen to go."""
        now = self.loop.clock.now().mono
        return frozenset(process.name for process in self.abandoned if not process.is_there_to_stay(now))

    def living(self) -> list[Abandoned]:
        """Every process there is, in service or left behind, as the successor will want to know it."""
        serving = [
            Abandoned(w.spec.name, w.pid, w.start_ticks, w.late_since or 0.0, w.current.at if w.current else "", w.spec.holds_driver)
            for w in self._workers.values()
            if w.pid
        ]
        return serving + self.abandoned

    def is_serving(self, probe: str) -> bool:
        """Is there a worker that may be expected to answer?"""
        worker = self._workers.get(probe)
        return worker is not None and worker.late_since is None

    def is_in_driver(self) -> bool:
        """Is a process that holds the driver in the middle of an answer, or on its way out (and not known to be stuck)?"""
        now = self.loop.clock.now().mono
        serving = any(w.spec.holds_driver and w.current is not None and w.late_since is None for w in self._workers.values())
        return serving or any(process.holds_driver and process.since > now for process in self.abandoned)

    def leaving(self) -> bool:
        """Is anybody still on the way out who may be expected to make it?"""
        now = self.loop.clock.now().mono
        return any(process.since > now for process in self.abandoned)

    def finish(self) -> None:
        """End of input to all of them."""
        for worker in list(self._workers.values()):
            worker.retire()
