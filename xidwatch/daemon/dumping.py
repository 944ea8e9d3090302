"""The loop's side of dumps: a dump worker stands ready before it is needed, and another takes its place when it is used."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from xidwatch.core.model import Action
from xidwatch.daemon import frames
from xidwatch.daemon.channel import Channel
from xidwatch.daemon.loop import Loop, Timer
from xidwatch.daemon.memory import Memory
from xidwatch.daemon.nursery import Nursery
from xidwatch.daemon.processes import Abandoned

STANDBY_SECONDS = 1.0  # between attempts to have one ready
STAGE_ONE_SECONDS = 30.0  # then it is no longer waited for; it goes on by itself
POWER_SECONDS = 10.0  # for making text of it: 0.3 s for 16 GPUs
CONFIG_SPACE_SECONDS = 5.0
POWER, CONFIG_SPACE = COLLECTORS = ("xidwatch.records.power_trace:csv_text", "xidwatch.probes.pci:config_space_text")


@dataclass(frozen=True, slots=True)
class DumpResult:
    """What became of a dump: ok, timeout or failed, with the status of each part."""

    result: str
    took_ms: int
    parts: Mapping[str, str]
    stuck: tuple[Abandoned, ...] = ()


def jobs(memory: Memory, action: Action, boot_id: str, sysfs: str, directories: tuple[Path, ...]) -> list[Mapping[str, object]]:
    """One for each evidence directory."""
    incident = action.incident or "unknown"
    each = job(memory, incident, boot_id, action.cause, sysfs)
    return [{**each, "folder": str(directory / "incidents" / incident)} for directory in directories]


def job(memory: Memory, incident: str, boot_id: str, trigger: str, sysfs: str) -> Mapping[str, object]:
    """What a dump worker is to write, but for the folder. Most volatile first; what needs no hardware before what does."""
    traces = memory.power.packed()
    power = {"name": "015-power-trace.csv", "collect": POWER, "with": [traces], "deadline_s": POWER_SECONDS}
    parts = [
        {"name": "010-samples.csv", "text": memory.samples_text()},
        *([power] if traces else []),  # where there is none, an empty file would look like one that was lost
        {"name": "020-kernel.txt", "text": memory.kernel_text()},
        {"name": "030-inventory.json", "text": memory.inventory_text()},
        {"name": "040-config-space.txt", "collect": CONFIG_SPACE, "with": [sysfs], "deadline_s": CONFIG_SPACE_SECONDS},
    ]
    return {"incident": incident, "boot_id": boot_id, "trigger": trigger, "parts": parts}


@dataclass(slots=True)
class _Dump:
    """One job and what is known of it. `on_end` is None once it has been told."""

    job: Mapping[str, object]
    begun: float
    on_end: Callable[[DumpResult], None] | None
    parts: dict[str, str] = field(default_factory=dict)
    stuck: list[Abandoned] = field(default_factory=list)
    timer: Timer | None = None
    tried_again: bool = False


class _Worker:
    """A dump process: standing by, or at work on a dump."""

    def __init__(self, loop: Loop, nursery: Nursery, on_line: Callable[[_Worker, bytes], None], on_gone: Callable[[_Worker], None]) -> None:
        self.dump: _Dump | None = None
        _, sock = nursery.start("xidwatch.daemon.forensics:main", "dump", {"preload": list(COLLECTORS)})
        self.channel = Channel(loop, sock, lambda line: on_line(self, line), lambda _why: on_gone(self))


class Dumps:
    """Hands each dump to a process of its own. A process that dies on the way is followed by another, once."""

    def __init__(self, loop: Loop, nursery: Nursery) -> None:
        self._loop = loop
        self._nursery = nursery
        self._finishing = False
        self._running: list[_Dump] = []
        self._standby: _Worker | None = None
        self._stand_by()

    def take(self, job: Mapping[str, object], on_end: Callable[[DumpResult], None]) -> None:
        """Start now. `on_end` is called once, within `STAGE_ONE_SECONDS`."""
        dump = _Dump(job, self._loop.clock.now().mono, on_end)
        dump.timer = self._loop.after(STAGE_ONE_SECONDS, lambda: self._end(dump, "timeout"))
        self._running.append(dump)
        self._hand_over(dump)

    def is_running(self) -> bool:
        """Is evidence still being written?"""
        return bool(self._running)

    def finish(self) -> None:
        """The one standing by goes home; those at work finish."""
        self._finishing = True
        if self._standby:
            self._standby.channel.close()
        self._standby = None

    def _stand_by(self) -> None:
        if self._standby is None and not self._finishing:
            self._standby = self._prepare()

    def _prepare(self) -> _Worker:
        return _Worker(self._loop, self._nursery, self._line, self._gone)

    def _hand_over(self, dump: _Dump) -> None:
        worker, self._standby = self._standby or self._prepare(), None
        worker.dump = dump
        worker.channel.send(frames.encode(dump.job))
        self._stand_by()

    def _line(self, worker: _Worker, line: bytes) -> None:
        dump = worker.dump
        if dump is None:
            return
        try:
            message = frames.decode(line)
        except frames.FrameError:
            worker.channel.close()
            self._gone(worker)
            return
        if "part" in message:
            dump.parts[message["part"]] = message["status"]
        elif "stuck" in message:
            dump.stuck.append(self._stuck(message["stuck"]))
        elif message.get("done"):
            worker.channel.close()  # a stuck collector would hold its other end open for ever
            self._end(dump, "ok" if all(status == "ok" for status in dump.parts.values()) else "partial")

    def _stuck(self, body: Mapping[str, Any]) -> Abandoned:
        return Abandoned("dump", int(body["pid"]), int(body["start_ticks"]), self._loop.clock.now().mono, at=str(body["name"]))

    def _gone(self, worker: _Worker) -> None:
        if worker is self._standby:
            self._standby = None
            self._loop.after(STANDBY_SECONDS, self._stand_by)  # not at once: what cannot live would be born without end
        dump = worker.dump
        if dump is None or dump.on_end is None:
            return
        if dump.tried_again:
            self._end(dump, "failed")
        else:
            dump.tried_again = True
            self._hand_over(dump)

    def _end(self, dump: _Dump, result: str) -> None:
        callback, dump.on_end = dump.on_end, None
        if callback is None:
            return
        if dump.timer:
            dump.timer.cancel()
        self._running.remove(dump)
        took_ms = int((self._loop.clock.now().mono - dump.begun) * 1000)
        callback(DumpResult(result, took_ms, dict(dump.parts), tuple(dump.stuck)))
