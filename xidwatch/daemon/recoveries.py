"""The loop's side of recovery: each step is a process of its own, bounded, and left to itself when it does not come back.

One at a time. It may stand in the kernel, under a lock of all PCI devices, so that it is never killed; and it finishes what it has
begun when the daemon leaves, or dies. How that went is then not on record, which counts as done.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from xidwatch.config import RecoveryConfig
from xidwatch.core.model import Action
from xidwatch.core.recovery_model import FAILED, LEFT, REFUSED, TIMEOUT, RecoverySettings
from xidwatch.core.rules import seconds
from xidwatch.daemon import frames
from xidwatch.daemon.channel import Channel
from xidwatch.daemon.loop import Loop, Timer
from xidwatch.daemon.nursery import Nursery
from xidwatch.daemon.processes import Abandoned

NAME = "recovery"
TARGET = "xidwatch.supervise.recovery_worker:main"
STEP_SECONDS = 300.0  # a switch with eight GPUs is slow to come back, and modules are slow to load
SPARE_SECONDS = 60.0
MAX_ANSWER = 64 * 1024  # bytes
PLACES: Mapping[str, object] = {}  # other ones than the host's own, for tests

Outcome = Callable[[Action, str, int, str], None]


def recovery_settings(config: RecoveryConfig, *, once: bool) -> RecoverySettings:
    """As the watch takes them. A single tick is for looking."""
    enabled = () if once else config.enabled
    return RecoverySettings(enabled, seconds(config.wait), seconds(config.reboot_after), seconds(config.reboot_window))


@dataclass(slots=True)
class _Job:
    """The step that is being taken. `pid` is 0 until the process is born."""

    action: Action
    begun: float
    request: int
    channel: Channel
    timer: Timer
    pid: int = 0
    start_ticks: int = 0
    over: bool = False


class Recovery:
    """`sysfs`: where that is; `evidence`: whose records have to outlive a reboot; `rundir`: where a step leaves its mark.

    `hindrance`: what has come up since it was decided on; `on_stuck` gets what does not come back.
    """

    def __init__(
        self,
        loop: Loop,
        nursery: Nursery,
        sysfs: str,
        evidence: tuple[Path, ...],
        rundir: Path,
        hindrance: Callable[[Action], str],
        on_stuck: Callable[[Abandoned], None],
        outcome: Outcome,
    ) -> None:
        self._loop = loop
        self._nursery = nursery
        mark = rundir / f"recovery-{loop.clock.boot_id}"
        self._options = {"sysfs": sysfs, "evidence": [str(folder) for folder in evidence], "mark": str(mark)}
        self._hindrance = hindrance
        self._on_stuck = on_stuck
        self._outcome = outcome
        self._job: _Job | None = None

    def carry_out(self, action: Action, durable: bool) -> None:
        """Begin, if the decision is on disk and nothing else is under way: nobody may ever have to guess what was done."""
        if not durable:
            self._outcome(action, REFUSED, 0, "the decision is not on disk, and without that it might be taken twice")
            return
        if self._job is not None:
            self._outcome(action, REFUSED, 0, "another step is under way")
            return
        if against := self._hindrance(action):  # its record may have taken half a minute
            self._outcome(action, REFUSED, 0, against)
            return
        options = {**self._options, "do": action.step, "target": action.target, "within_s": STEP_SECONDS, **PLACES}
        request, sock = self._nursery.start(TARGET, NAME, options)
        job: _Job
        channel = Channel(self._loop, sock, lambda line: self._line(job, line), lambda _why: self._gone(job), max_line=MAX_ANSWER)
        timer = self._loop.after(STEP_SECONDS + SPARE_SECONDS, lambda: self._overdue(job))
        job = self._job = _Job(action, self._loop.clock.now().mono, request, channel, timer)

    def started(self, request: int, pid: int, start_ticks: int) -> bool:
        """The nursery says who was born; False when it is not this."""
        if self._job is None or self._job.request != request:
            return False
        self._job.pid, self._job.start_ticks = pid, start_ticks
        return True

    def finish(self) -> None:
        """The daemon leaves; a step that has begun is finished without it, and nobody hears how it went."""
        if self._job is not None:
            self._end(self._job, LEFT, "the daemon has left; what has begun is finished without it")

    def _line(self, job: _Job, line: bytes) -> None:
        try:
            message = frames.decode(line)
        except frames.FrameError as error:
            message = {"result": FAILED, "detail": str(error)}
        self._end(job, str(message.get("result", FAILED)), str(message.get("detail", "")))

    def _gone(self, job: _Job) -> None:
        self._end(job, FAILED, "the process that was at it ended without a word; what it has done is not known")

    def _overdue(self, job: _Job) -> None:
        if job.pid:
            stuck = Abandoned(NAME, job.pid, job.start_ticks, self._loop.clock.now().mono, at=job.action.target, holds_driver=True)
            self._on_stuck(stuck)
        self._end(job, TIMEOUT, "the process that is at it does not come back; it is left, for it may stand in the kernel")

    def _end(self, job: _Job, result: str, detail: str) -> None:
        if job.over:
            return
        job.over = True
        self._job = None
        job.timer.cancel()
        job.channel.close()
        self._outcome(job.action, result, int((self._loop.clock.now().mono - job.begun) * 1000), detail)
