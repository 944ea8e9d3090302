"""What would be processes, here on the daemon's own loop: the same channels and lines, and at their other end the same code.

    nursery.start("xidwatch.probes.worker:main", "pci", ...)  ──►  a socket pair; one end to the daemon, the other to a child here

A probe answers within the turn in which it is asked, a recorder writes when nothing else is ready, a dump is written at once.
Their numbers lie beyond the highest the kernel gives, so that nobody's process can ever be meant by them.
"""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from xidwatch.core.recovery_model import UNABLE
from xidwatch.daemon import forensics
from xidwatch.daemon import frames as dump_frames
from xidwatch.daemon.channel import Channel
from xidwatch.daemon.dumping import CONFIG_SPACE
from xidwatch.daemon.loop import Timer
from xidwatch.daemon.nursery import Nursery
from xidwatch.probes import hwmon, pci
from xidwatch.probes.base import Probe
from xidwatch.probes.host import HostProbe
from xidwatch.probes.nvml import NvmlProbe
from xidwatch.probes.worker import Lines, Serving
from xidwatch.records import frames
from xidwatch.records.frames import Answer, Frame, LogLine
from xidwatch.records.store import Store
from xidwatch.replay import supervision
from xidwatch.replay.clock import OwnTime, VirtualClock, VirtualLoop
from xidwatch.replay.host import Host
from xidwatch.replay.strand import Pause, Strand

FIRST_PID = 4_194_305  # PID_MAX_LIMIT of 64-bit kernels is 4,194,304
HANGS = float("inf")


@dataclass(slots=True)
class Stage:
    """What the children work with. `late`: by probe, how long its next answers take, one after the other; HANGS for ever."""

    host: Host
    clock: VirtualClock
    loop: VirtualLoop
    on_log: Callable[[LogLine, float], None]
    late: dict[str, list[float]] = field(default_factory=dict)


class Children(Nursery):
    """The nursery of a replay. `stage` is set for the class that `staged` makes, since the daemon makes the instance."""

    stage: Stage

    def __init__(
        self,
        loop: VirtualLoop,
        preload: Sequence[str],
        on_started: Callable[[int, int, int], None],
        on_exited: Callable[[int, int], None],
    ) -> None:
        self._children: list[Child] = []
        self._born = on_started
        self._count = 0

    def start(self, target: str, name: str, options: Mapping[str, object]) -> tuple[int, socket.socket]:
        """A child, at once; that it was born is told in the next turn, as always."""
        ours, theirs = socket.socketpair()
        self._count += 1
        number = self._count
        self._children.append(_KINDS[target](self.stage, theirs, name, options))
        self.stage.loop.after(0.0, lambda: self._born(number, FIRST_PID + number, 0))
        return number, ours

    def close(self) -> None:
        """The machine has died, or the daemon has left: so do they."""
        for child in self._children:
            child.end()


def staged(stage: Stage) -> type[Children]:
    """The nursery of this stage."""
    return type("StagedChildren", (Children,), {"stage": stage})


class Child:
    """One end of a channel and what stands behind it."""

    def __init__(self, stage: Stage, theirs: socket.socket, max_line: int) -> None:
        self.stage = stage
        self.time = OwnTime(stage.clock)
        self._ended = False
        self.channel = Channel(stage.loop, theirs, self.heard, lambda _why: self.end(), max_line=max_line)

    def heard(self, line: bytes) -> None:
        """A line of the daemon's."""
        raise NotImplementedError

    def say(self, data: bytes) -> None:
        """To the daemon; when it has waited, so much later."""
        if self.time.waited:
            self.stage.loop.after(self.time.waited, lambda: self.channel.send(data))
        else:
            self.channel.send(data)

    def end(self) -> None:
        """The daemon says no more, or is no more."""
        if not self._ended:
            self._ended = True
            self.finish()
            self.channel.close()

    def finish(self) -> None:
        """What is left to do."""


# ----------------------------------------------------------------------------------------------------------------- probes


class _ToChannel(Lines):
    """A worker's lines, into a channel that never makes it wait."""

    def __init__(self, child: Child) -> None:
        self._child = child

    def write(self, data: bytes) -> None:
        self._child.say(data)


class ProbeChild(Child):
    """A worker with its probe. Housekeeping goes on between the requests, as its own times say."""

    def __init__(self, stage: Stage, theirs: socket.socket, name: str, options: Mapping[str, Any]) -> None:
        super().__init__(stage, theirs, frames.MAX_LINE)
        self._name = name
        self._probe = _PROBES[name](stage.host, self.time, options.get("options") or {})
        self._serving = Serving(self._probe, _ToChannel(self), monotonic=self.time.mono)
        self._busy = False
        self._between: Timer | None = None

    def heard(self, line: bytes) -> None:
        """Answer, now or as late as the fixture says."""
        waits = self.stage.late.get(self._name)
        seconds = waits.pop(0) if waits else 0.0
        if not seconds:
            self._answer(line)
            return
        self._busy = True
        if seconds != HANGS:
            self.stage.loop.after(seconds, partial(self._answer, line))

    def _answer(self, line: bytes) -> None:
        self._busy = False
        self.time.waited = 0.0
        if self._name == "host":
            self.stage.host.proc.write(self.time.mono())
        self._serving.answer(line)
        if self._serving.leaving:
            self.end()
        else:
            self._keep_house()

    def _keep_house(self) -> None:
        if self._between:
            self._between.cancel()
        seconds = self._probe.between_seconds
        self._between = None if seconds is None else self.stage.loop.after(seconds, self._house_kept)

    def _house_kept(self) -> None:
        if self.channel.open and not self._busy:
            self.time.waited = 0.0
            self._probe.between()
            self._keep_house()

    def finish(self) -> None:
        """Let go of the driver."""
        self._probe.close()
        if self._between:
            self._between.cancel()


def _nvml(host: Host, time: OwnTime, _: Mapping[str, Any]) -> Probe:
    return NvmlProbe(host.library, monotonic=time.mono, wall=time.wall)


def _pci(host: Host, time: OwnTime, _: Mapping[str, Any]) -> Probe:
    return pci.PciProbe(str(host.sysfs), sleep=time.sleep, monotonic=time.mono)


def _hwmon(host: Host, time: OwnTime, options: Mapping[str, Any]) -> Probe:
    rails = tuple(hwmon.Rail(**rail) for rail in options.get("rails", ()))
    return hwmon.HwmonProbe(str(host.sysfs), rails, frozenset(options.get("poll", ())), monotonic=time.mono)


def _host(host: Host, _time: OwnTime, _: Mapping[str, Any]) -> Probe:
    return HostProbe(host.procfs)


def _engine(host: Host, time: OwnTime, options: Mapping[str, Any]) -> Probe:
    return supervision.probe(host.units, options, time.mono)


_PROBES: dict[str, Callable[[Host, OwnTime, Mapping[str, Any]], Probe]] = {
    "nvml": _nvml,
    "pci": _pci,
    "hwmon": _hwmon,
    "host": _host,
    "engine": _engine,
}


# --------------------------------------------------------------------------------------------------------------- recorder


class RecorderChild(Child):
    """The writer of the state directory, frame for frame; a batch is what came before everything was at rest. Raises OSError."""

    def __init__(self, stage: Stage, theirs: socket.socket, _name: str, options: Mapping[str, Any]) -> None:
        super().__init__(stage, theirs, frames.MAX_LINE)
        self._store = Store(Path(options["state_dir"]), str(options["boot_id"]), float(options["interval_s"]))
        self._batch: list[Frame] = []
        self._due = False
        self.channel.send(frames.answer(Answer(recovered=self._store.open())))

    def heard(self, line: bytes) -> None:
        """To the log at once; to the files soon."""
        frame = frames.decode_frame(line)
        if frame.log is not None:
            self.stage.on_log(frame.log, self.stage.clock.wall())
        elif frame.publish is not None:
            self._store.publish(frame.publish.path, frame.publish.text)
        else:
            self._batch.append(frame)
            if not self._due:
                self._due = True
                self.stage.loop.after(0.0, self._write)

    def _write(self) -> None:
        self._due = False
        batch, self._batch = self._batch, []
        if not batch:
            return
        written = self._store.write(batch)
        if written.trouble:
            raise OSError(written.trouble.errno, written.trouble.text)
        self.channel.send(frames.answer(Answer(durable=batch[-1].n)))

    def finish(self) -> None:
        """All that was handed over is written."""
        self._write()
        self._store.close()


# ------------------------------------------------------------------------------------------------------------------ dumps


@dataclass(frozen=True, slots=True)
class _Collected:
    """A collector that is run where it is read."""

    lines: Iterator[str]
    pid: int = 0

    def chunks(self) -> Iterator[bytes]:
        return (f"{line}\n".encode() for line in self.lines)


class DumpChild(Child):
    """A dump worker: one job, written on the spot."""

    def __init__(self, stage: Stage, theirs: socket.socket, _name: str, _options: Mapping[str, Any]) -> None:
        super().__init__(stage, theirs, frames.MAX_LINE)

    def heard(self, line: bytes) -> None:
        """The job."""
        forensics.dump(dump_frames.decode(line), self.time, self._collect, self._tell)

    def _collect(self, target: str, arguments: list[Any], _deadline: float) -> _Collected:
        if target == CONFIG_SPACE:  # of the fixture's tree, whatever the settings call it
            return _Collected(pci.config_space_text(str(self.stage.host.sysfs), sleep=self.time.sleep))
        return _Collected(forensics.resolve(target)(*arguments))

    def _tell(self, message: Mapping[str, object]) -> None:
        self.say(dump_frames.encode(message))


# --------------------------------------------------------------------------------------------------------------- engines


class EngineChild(Child):
    """A worker that stops or starts one engine. It waits within itself, as the real one does."""

    def __init__(self, stage: Stage, theirs: socket.socket, _name: str, options: Mapping[str, Any]) -> None:
        super().__init__(stage, theirs, frames.MAX_LINE)
        self._job = options
        self._strand = Strand(self._work, stage.loop.after)
        stage.loop.after(0.0, self._strand.go_on)

    def heard(self, line: bytes) -> None:
        """Nothing is said to it: what it is to do it was born with."""

    def _work(self, pause: Pause) -> None:
        self._tell(supervision.work(self.stage.host.units, self._job, self.time.mono, lambda seen: self._tell({"seen": seen}), pause))

    def _tell(self, message: Mapping[str, object]) -> None:
        self.say(dump_frames.encode(message))

    def finish(self) -> None:
        """The engine goes on; it is systemd's."""
        self._strand.end()


class RecoveryChild(Child):
    """A step of recovery that a fixture's settings have switched on: nothing of a replay acts on anybody's hardware."""

    def __init__(self, stage: Stage, theirs: socket.socket, _name: str, _options: Mapping[str, Any]) -> None:
        super().__init__(stage, theirs, frames.MAX_LINE)
        stage.loop.after(0.0, lambda: self.say(dump_frames.encode({"result": UNABLE, "detail": "a replay has no hardware"})))

    def heard(self, line: bytes) -> None:
        """Nothing is said to it."""


_KINDS: dict[str, Callable[[Stage, socket.socket, str, Mapping[str, Any]], Child]] = {
    "xidwatch.probes.worker:main": ProbeChild,
    "xidwatch.daemon.recorder:main": RecorderChild,
    "xidwatch.daemon.forensics:main": DumpChild,
    "xidwatch.supervise.worker:main": EngineChild,
    "xidwatch.supervise.recovery_worker:main": RecoveryChild,
}
