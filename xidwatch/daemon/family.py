"""Whose processes these are: the list a successor will find, and the ones a predecessor left.

Everything alive is in `children.json` by pid and start time, renewed whenever somebody comes, goes or gets stuck. A
successor looks for those that are still there, by that identity and by the name they call themselves: it signals nobody
just because a file says so.
"""

from __future__ import annotations

from xidwatch.daemon.evidence import Evidence
from xidwatch.daemon.loop import Loop
from xidwatch.daemon.processes import Abandoned, is_ours
from xidwatch.daemon.recording import RECORDER
from xidwatch.daemon.rundir import RunDir
from xidwatch.daemon.scribe import WARNING, Scribe
from xidwatch.daemon.workers import LEAVING_SECONDS, ProbeSpec, Workers
from xidwatch.records.state import Child

TENDING_SECONDS = 1.0


def adopt(rundir: RunDir, boot_id: str, known: tuple[ProbeSpec, ...], now: float) -> tuple[Abandoned, ...]:
    """What a predecessor left behind and is still there. Nobody listens to it any more: it can only end, or be stuck.

    A driver holder is one whatever the settings say today: a probe switched off since holds the driver all the same.
    """
    holders = {spec.name for spec in known if spec.holds_driver}
    found = [
        Abandoned(
            child.name,
            child.pid,
            child.start_ticks,
            child.since_mono or now + LEAVING_SECONDS,
            child.at or "",
            holds_driver=child.holds_driver or child.name in holders,
            holds_evidence=child.name == RECORDER,
            adopted=True,
        )
        for child in rundir.children(boot_id)
        if is_ours(child.pid, child.name)
    ]
    return tuple(process for process in found if process.is_alive())


def tell(scribe: Scribe, adopted: tuple[Abandoned, ...]) -> None:
    """For people."""
    for process in adopted:
        at = f" at {process.at}" if process.at else ""
        scribe.log(WARNING, f"{process.name}: process {process.pid} of the run before is still there{at}", event="adopted")


class Family:
    """Keeps the list, and looks after those left behind as long as there are any."""

    def __init__(self, loop: Loop, rundir: RunDir, workers: Workers, evidence: Evidence) -> None:
        self._loop = loop
        self._rundir = rundir
        self._workers = workers
        self._evidence = evidence
        self._tending = False

    def started(self, request: int, pid: int, start_ticks: int) -> None:
        """The nursery says who was born."""
        if not self._evidence.started(request, pid, start_ticks):
            self._workers.started(request, pid, start_ticks)
        self.changed()

    def changed(self) -> None:
        """Somebody came, went or got stuck."""
        children = tuple(
            Child(pid=p.pid, start_ticks=p.start_ticks, name=p.name, at=p.at or None, since_mono=p.since, holds_driver=p.holds_driver)
            for p in (*self._workers.living(), *self._evidence.as_processes())
        )
        self._rundir.write_children(children, self._loop.clock.boot_id)
        if self._workers.abandoned and not self._tending:
            self._tending = True
            self._loop.after(TENDING_SECONDS, self._tend)

    def _tend(self) -> None:
        self._tending = False
        self._workers.tend()
        if self._workers.abandoned:
            self.changed()
