"""The loop's side of engines: each stop and each start is a process of its own, bounded, and may be left to itself."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from xidwatch.config import EngineConfig
from xidwatch.core.gate_model import GateSettings
from xidwatch.core.messages import EngineSeen, EngineStarted, EngineStopped
from xidwatch.core.model import Action, ActionKind, Value
from xidwatch.core.rules import seconds
from xidwatch.daemon import frames
from xidwatch.daemon.channel import Channel
from xidwatch.daemon.loop import Loop, Timer
from xidwatch.daemon.nursery import Nursery
from xidwatch.daemon.processes import Abandoned

NAME = "engine"
TARGET = "xidwatch.supervise.worker:main"
SPARE_SECONDS = 90.0  # beyond its own deadline: a call under way, a token that is on its way, a look at what is left
MAX_ANSWER = 1024 * 1024  # bytes
Told = EngineSeen | EngineStopped | EngineStarted


def gate_settings(engines: tuple[EngineConfig, ...]) -> tuple[GateSettings, ...]:
    """As the watch takes them."""
    return tuple(
        GateSettings(
            unit=each.unit,
            gpus=each.gpus,
            after_incident_unit=each.after_incident_unit,
            settle_seconds=seconds(each.settle),
            ready_seconds=seconds(each.ready_within),
            back_off_seconds=seconds(each.back_off),
            most_starts=each.most_starts,
            window_seconds=seconds(each.window),
            power_limit_watts=each.power_limit_watts,
        )
        for each in engines
    )


@dataclass(slots=True)
class _Job:
    """One worker and what it is at. `on_end` is called once. `pid` is 0 until it is born."""

    action: Action
    engine: EngineConfig
    begun: float
    on_end: Callable[[str, int, str], None]
    request: int
    channel: Channel
    timer: Timer
    pid: int = 0
    start_ticks: int = 0
    over: bool = False


class Supervisor:
    """`on_told` gets what the watch is to know: how a unit is meanwhile, and how the job ended.

    `on_stuck` gets a process that does not answer in time. `places` are other ones than the host's own, for tests.
    """

    def __init__(
        self,
        loop: Loop,
        nursery: Nursery,
        on_told: Callable[[Told], None],
        on_stuck: Callable[[Abandoned], None],
        places: Mapping[str, object] | None = None,
    ) -> None:
        self._loop = loop
        self._nursery = nursery
        self._on_told = on_told
        self._on_stuck = on_stuck
        self._places = dict(places or {})
        self._jobs: dict[str, _Job] = {}  # by the engine's unit

    def carry_out(self, action: Action, engine: EngineConfig, on_end: Callable[[str, int, str], None]) -> None:
        """Begin. A job for the same engine that is still under way is left to itself: what is decided later counts."""
        before = self._jobs.pop(engine.unit, None)
        if before is not None:
            self._end(before, "overtaken", "something else was decided meanwhile")
        within = seconds(engine.stop_within if action.kind is ActionKind.STOP_ENGINE else engine.ready_within)
        request, sock = self._nursery.start(TARGET, NAME, {**self._places, **_plain(action, engine), "within_s": within})
        job: _Job
        channel = Channel(self._loop, sock, lambda line: self._line(job, line), lambda _why: self._gone(job), max_line=MAX_ANSWER)
        timer = self._loop.after(within + SPARE_SECONDS, lambda: self._overdue(job))
        job = _Job(action, engine, self._loop.clock.now().mono, on_end, request, channel, timer)
        self._jobs[engine.unit] = job

    def started(self, request: int, pid: int, start_ticks: int) -> bool:
        """The nursery says who was born; False when it is none of these."""
        for job in self._jobs.values():
            if job.request == request:
                job.pid, job.start_ticks = pid, start_ticks
                return True
        return False

    def finish(self) -> None:
        """The daemon leaves: workers do too, engines go on."""
        for job in tuple(self._jobs.values()):
            self._end(job, "left", "the daemon has left; its successor looks how it went")
        self._jobs.clear()

    def _line(self, job: _Job, line: bytes) -> None:
        try:
            message = frames.decode(line)
        except frames.FrameError as error:
            message = {"result": "failed", "detail": str(error)}
        if "seen" in message:
            values: Mapping[str, Value] = message["seen"]
            if not job.over:
                self._on_told(EngineSeen(self._loop.clock.now(), job.action.unit, values))
        else:
            self._tell(job, message)

    def _gone(self, job: _Job) -> None:
        self._tell(job, {"result": "failed", "detail": "the process that was at it ended without a word"})

    def _overdue(self, job: _Job) -> None:
        """It stands where no deadline of its own helps, as a look at a process can. It is let go, and not forgotten."""
        if job.pid:
            self._on_stuck(Abandoned(NAME, job.pid, job.start_ticks, self._loop.clock.now().mono, at=job.action.unit))
        self._tell(job, {"result": "timeout", "detail": "the process that is at it does not answer"})

    def _tell(self, job: _Job, message: Mapping[str, object]) -> None:
        """The outcome is put on record; then the watch is told, once."""
        if job.over:
            return
        result, detail = str(message.get("result", "failed")), str(message.get("detail", ""))
        left = tuple(str(each) for each in _list(message.get("leftovers")))
        invocation = str(message.get("invocation_id", ""))
        self._jobs.pop(job.engine.unit, None)
        self._end(job, "ok" if result == "ready" else result, "; ".join(filter(None, (detail, *left))))
        now, action = self._loop.clock.now(), job.action
        if action.kind is ActionKind.STOP_ENGINE:
            self._on_told(EngineStopped(now, job.engine.unit, action.id, result, detail, left))
        else:
            self._on_told(EngineStarted(now, job.engine.unit, action.id, result, detail, invocation))

    def _end(self, job: _Job, result: str, detail: str) -> None:
        if job.over:
            return
        job.over = True
        job.timer.cancel()
        job.channel.close()
        job.on_end(result, int((self._loop.clock.now().mono - job.begun) * 1000), detail)


def _list(value: object) -> list[object]:
    return value if isinstance(value, list) else []


def _plain(action: Action, engine: EngineConfig) -> dict[str, object]:
    """The job as the worker takes it. A stand-in need not be enabled: it is never to start with the host."""
    return {
        "do": "stop" if action.kind is ActionKind.STOP_ENGINE else "start",
        "unit": action.unit,
        "health": engine.health,
        "metrics": engine.metrics,
        "probe": engine.probe,
        "api_key_file": engine.api_key_file,
        "enabled_only": action.unit == engine.unit,
    }
