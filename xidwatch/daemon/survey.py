"""One look at the host without a daemon: the same workers, the same deadlines, the same watch, and then it is over.

kernel log ──► is the driver to be asked at all? ──► one tick ──► who they are ──► the state that a daemon would have by then
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Self

from xidwatch.clock import SystemClock
from xidwatch.config import Config, Rules
from xidwatch.core import watch
from xidwatch.core.messages import Input, Inventoried, Restored, SampleTaken
from xidwatch.core.model import Readings, Sample, Subject, Value
from xidwatch.core.state import State
from xidwatch.core.ticks import Answer, Columns
from xidwatch.daemon.kernel_sense import KernelSense
from xidwatch.daemon.loop import Loop
from xidwatch.daemon.nursery import Nursery
from xidwatch.daemon.probes import preload
from xidwatch.daemon.processes import Abandoned, is_ours
from xidwatch.daemon.ticker import as_answer
from xidwatch.daemon.workers import Ask, ProbeSpec, Workers
from xidwatch.records import state as state_record
from xidwatch.records.state import Child

SECONDS = 10.0  # for any answer: on a busy host the start of the workers alone takes some of them, and nobody samples meanwhile
LEAVING_SECONDS = 5.0  # a worker that has been told to leave is looked after this long
CHECK_SECONDS = 0.02


@dataclass(frozen=True, slots=True)
class Survey:
    """What was found. `remarks`: what could not be seen, for people."""

    state: State
    inventory: Readings
    remarks: tuple[str, ...]


class Crew:
    """Workers for one command; as a context, so that they are told to leave whatever happens.

    `run_dir`: where a daemon leaves word of what is stuck. Whoever does not leave is written down there, for the next daemon.
    """

    def __init__(self, specs: tuple[ProbeSpec, ...], run_dir: Path) -> None:
        self.loop = Loop(SystemClock())
        self._run_dir = run_dir
        self._nursery = Nursery(self.loop, preload(specs), self._started, lambda _pid, _status: self.workers.tend())
        self.workers = Workers(self.loop, self._nursery, specs, adopted=_left_by_others(run_dir, self.loop.clock.boot_id))

    def _started(self, request: int, pid: int, start_ticks: int) -> None:
        self.workers.started(request, pid, start_ticks)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.workers.finish()
        self._patience = self.loop.clock.now().mono + LEAVING_SECONDS
        self._wait()
        self.loop.run()
        self._nursery.close()
        self._leave_word()

    def ask(self, what: str, probes: Iterable[str]) -> dict[str, Answer]:
        """All of them at once; an answer of each, no later than its deadline."""
        answers: dict[str, Answer] = {}
        asked = list(probes)

        def ended(ask: Ask) -> None:
            answers[ask.probe] = as_answer(ask)
            if len(answers) == len(asked):
                self.loop.stop()

        now = self.loop.clock.now().mono
        for name in asked:
            spec = self.workers.specs[name]
            seconds = SECONDS if what == "inventory" else max(SECONDS, spec.first_deadline_seconds)
            self.loop.at(now, partial(self.workers.ask, name, what, now + seconds, ended))  # in the loop: one may end at once
        if asked:
            self.loop.run()
        return {name: answers[name] for name in asked}  # whoever was faster: the same records every time

    def _wait(self) -> None:
        self.workers.tend()
        if self.workers.leaving() and self.loop.clock.now().mono < self._patience:
            self.loop.after(CHECK_SECONDS, self._wait)
        else:
            self.loop.stop()
            self.loop.after(0.0, self.loop.stop)

    def _leave_word(self) -> None:
        left = [process for process in self.workers.abandoned if not process.adopted and process.is_alive()]
        if not left or not self._run_dir.is_dir():
            return
        boot_id, place = self.loop.clock.boot_id, self._run_dir / state_record.CHILDREN_NAME
        known = state_record.read_children(place, boot_id)
        new = (
            Child(pid=p.pid, start_ticks=p.start_ticks, name=p.name, at=p.at or None, since_mono=p.since, holds_driver=p.holds_driver)
            for p in left
        )
        state_record.write_atomic(place, state_record.encode_children((*known, *new), boot_id))


def _left_by_others(run_dir: Path, boot_id: str) -> tuple[Abandoned, ...]:
    """What a daemon has left stuck and is still there: no second one beside it."""
    children = state_record.read_children(run_dir / state_record.CHILDREN_NAME, boot_id)
    found = (
        Abandoned(child.name, child.pid, child.start_ticks, child.since_mono, child.at or "", child.holds_driver, adopted=True)
        for child in children
        if is_ours(child.pid, child.name)
    )
    return tuple(process for process in found if process.is_alive())


def survey(crew: Crew, config: Config, rules: Rules, past: Restored, history_until: int | None) -> Survey:
    """One tick, then who they are. A driver that has lost a GPU for good is not asked."""
    state, clock = State(), crew.loop.clock
    remarks: list[str] = []

    def take(given: Input) -> None:
        nonlocal state
        state, _ = watch.step(rules.conditions, state, given)

    take(past)
    remarks += _read_kernel_log(crew.loop, config, rules, history_until, take)
    asked = [name for name, spec in crew.workers.specs.items() if not (spec.holds_driver and state.driver_released)]
    answers = crew.ask("sample", asked)
    readings = Columns().complete(answers)
    readings.update({Subject("probe", answer.probe): _own(answer) for answer in answers.values()})
    take(SampleTaken(Sample(1, clock.now(), clock.boot_id, readings)))
    remarks += [f"{answer.probe}: {answer.trouble or answer.ended}" for answer in answers.values() if not answer.in_full]
    inventory = {subject: dict(facts) for subject, facts in past.inventory.items()}
    for answer in crew.ask("inventory", [name for name in asked if answers[name].ended == "done"]).values():
        for subject, facts in answer.readings.items():
            inventory.setdefault(subject, {}).update(facts)
        remarks += [] if answer.in_full else [f"{answer.probe}: inventory: {answer.trouble or answer.ended}"]
    take(Inventoried(clock.now(), inventory))
    return Survey(state, inventory, tuple(dict.fromkeys(remarks)))


def _read_kernel_log(loop: Loop, config: Config, rules: Rules, history_until: int | None, take: Callable[[Input], None]) -> list[str]:
    """What it holds up to now; why not, if it cannot be read."""
    sense = KernelSense(loop, rules.xids, lambda _message: None, take)
    trouble = sense.open(config.kernel_log, history_until)
    sense.catch_up()
    sense.close()
    return [trouble] if trouble else []


def _own(answer: Answer) -> dict[str, Value]:
    return {"success": int(answer.in_full), "answering": int(answer.answering), "took_ms": answer.took_ms, "stuck_seconds": 0.0}
