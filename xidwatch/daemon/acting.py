"""Carrying out what the watch decides: write the edge, then act, then write the outcome.

An action waits at most two seconds for its record to be on disk. Then it goes ahead, and the outcome says that the
record was late. But a recovery does not.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from xidwatch.core.messages import DumpEnded, DumpFailed, Input, Looked, RecoveryEnded
from xidwatch.core.model import Action, ActionKind, Moment, Readings
from xidwatch.core.recovery_model import REFUSED
from xidwatch.daemon.dumping import DumpResult, Dumps
from xidwatch.daemon.evidence import Evidence, Numbers
from xidwatch.daemon.loop import Loop
from xidwatch.daemon.workers import Ask, Workers

DURABLE_SECONDS = 2.0
RECOVERY_DURABLE_SECONDS = 30.0  # a recovery does not go ahead without: it must not be taken twice, and may take the host down
LOOK_SECONDS = 2.0
PARTING_SECONDS = 1.0
RECORD_LATE = "its record was not on disk yet when it was carried out"


class Hands:
    """`on_outcome(action, result, took_ms, detail)` once for each action; `on_input` gets what a look has seen.

    `on_parting` gets what a worker had in memory when it was told to leave, `on_engine` what is to be done to an engine,
    `on_recovery` a step of recovery, and whether its record is on disk.
    """

    def __init__(
        self,
        loop: Loop,
        workers: Workers,
        evidence: Evidence,
        dumps: Dumps,
        dump_jobs: Callable[[Action], list[Mapping[str, object]]],
        on_outcome: Callable[[Action, str, int, str], None],
        on_input: Callable[[Looked], None],
        on_parting: Callable[[Readings], None],
        on_engine: Callable[[Action, str], None],
        on_recovery: Callable[[Action, bool], None],
    ) -> None:
        self._loop = loop
        self._workers = workers
        self._evidence = evidence
        self._dumps = dumps
        self._dump_jobs = dump_jobs
        self._on_outcome = on_outcome
        self._on_input = on_input
        self._on_parting = on_parting
        self._on_engine = on_engine
        self._on_recovery = on_recovery

    def carry_out(self, action: Action, record: Numbers) -> None:
        """`record` is the action's own journal record."""
        if action.kind is ActionKind.LOOK:  # reads four bytes a device: nothing that would have to be written first
            self._look(action)
            return
        if action.kind is ActionKind.RECOVER:  # what only a further directory knows, a successor would not
            self._evidence.when_first_durable(record, RECOVERY_DURABLE_SECONDS, lambda durable: self._act(action, durable=durable))
            return
        self._evidence.when_durable(record, DURABLE_SECONDS, lambda durable: self._act(action, durable=durable))

    def _act(self, action: Action, *, durable: bool) -> None:
        detail = "" if durable else RECORD_LATE
        match action.kind:
            case ActionKind.TAKE_DUMP:
                self._take_dumps(action, detail)
            case ActionKind.RELEASE_DRIVER:
                self._release(action, detail)
            case ActionKind.STOP_ENGINE | ActionKind.START_ENGINE:
                self._on_engine(action, detail)
            case ActionKind.RECOVER:
                self._recover(action, durable=durable)

    def _recover(self, action: Action, *, durable: bool) -> None:
        if self._dumps.is_running():
            self._on_outcome(action, REFUSED, 0, "a dump is being written, and this would destroy what it is about")
        else:
            self._on_recovery(action, durable)

    def _release(self, action: Action, detail: str) -> None:
        """Let a driver holder hand over what it has in memory (the last peaks before a loss), then tell it to go.

        One whose call does not return is told at once: it must not come back, later, to serve with the driver still open.
        """
        begun = self._loop.clock.now().mono
        holders = [name for name, spec in self._workers.specs.items() if spec.holds_driver]
        stuck = [name for name in holders if self._workers.stuck_seconds(name, begun) > 0]
        for name in stuck:
            self._workers.release(name)
        serving = [name for name in holders if name not in stuck and self._workers.is_serving(name)]
        waiting = set(serving)
        details = [detail, *(f"{name} is in a driver call that does not return; it leaves when it does" for name in stuck)]

        def parted(ask: Ask) -> None:
            self._on_parting(ask.readings)
            self._workers.release(ask.probe)
            waiting.discard(ask.probe)
            if not waiting:
                released()

        def released() -> None:
            took_ms = int((self._loop.clock.now().mono - begun) * 1000)
            self._on_outcome(action, "timeout" if stuck else "ok", took_ms, "; ".join(filter(None, details)))

        for name in serving:
            self._workers.ask(name, "look", begun + PARTING_SECONDS, parted)
        if not serving:
            if not stuck:
                details.append("no worker held the driver")
            released()

    def _look(self, action: Action) -> None:
        begun = self._loop.clock.now().mono
        lookers = [name for name, spec in self._workers.specs.items() if spec.looks]

        def ended(ask: Ask) -> None:
            now = self._loop.clock.now()
            if ask.readings:
                self._on_input(Looked(now, ask.readings))
            self._on_outcome(action, "ok" if ask.ended == "done" else ask.ended, int((now.mono - begun) * 1000), ask.why)

        for name in lookers:
            self._workers.ask(name, "look", begun + LOOK_SECONDS, ended)
        if not lookers:
            self._on_outcome(action, "not-asked", 0, "no probe that can look is enabled")

    def _take_dumps(self, action: Action, detail: str) -> None:
        """One dump for each evidence directory, each by a process of its own: a dead disk keeps only its own waiting."""
        jobs = self._dump_jobs(action)
        results: list[DumpResult] = []

        def dumped(result: DumpResult) -> None:
            results.append(result)
            self._workers.abandoned.extend(result.stuck)
            if len(results) == len(jobs):
                self._on_outcome(action, *_together(results, detail))

        for job in jobs:
            self._dumps.take(job, dumped)


def followed_by(action: Action, now: Moment, result: str, detail: str) -> Iterator[Input]:
    """What the watch is to know of an outcome, for which nobody else tells it."""
    if action.kind is ActionKind.TAKE_DUMP:
        yield DumpEnded(now, action.incident or "", result)
        if result == "failed":  # one that is late is still at it: no second beside it
            yield DumpFailed(action.incident or "")
    if action.kind is ActionKind.RECOVER:
        yield RecoveryEnded(now, action.id, result, detail)


def _together(results: list[DumpResult], detail: str) -> tuple[str, int, str]:
    """Result, duration and detail of all directories' dumps: ok when every part of each is, failed only when no directory has one."""
    said = {result.result for result in results}
    not_ok = {f"{name} {status}" for result in results for name, status in result.parts.items() if status != "ok"}
    lacks = "timeout" if "timeout" in said else "failed"
    has_it = "ok" if said == {"ok"} else "partial"
    together = has_it if said & {"ok", "partial"} else lacks
    without = sum(result.result in ("failed", "timeout") for result in results)
    lacking = f"not in {without} of {len(results)} evidence directories" if without and len(results) > 1 else ""
    return together, max(result.took_ms for result in results), "; ".join(filter(None, [detail, lacking, *sorted(not_ok)]))
