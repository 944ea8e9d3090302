"""The daemon: everything wired together. What it learns goes into `step`; what comes out is written, then done.

kernel log, uevents, answers, looks ──► step(rules, state, input) ──► records ──► actions ──► outcomes
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from xidwatch import __version__
from xidwatch.clock import Clock, iso
from xidwatch.config import Config, Rules, as_mapping
from xidwatch.core import remarks, ticks, watch
from xidwatch.core.messages import Gap, Input, Learnt, Restored, Row, SampleTaken
from xidwatch.core.model import Action, ActionKind, Missing, Moment, Readings, Sample, Subject, Transition, Value
from xidwatch.core.ticks import Answer, Columns
from xidwatch.core.watch import State
from xidwatch.daemon import lines, views
from xidwatch.daemon.acting import Hands
from xidwatch.daemon.dumping import Dumps
from xidwatch.daemon.evidence import Evidence
from xidwatch.daemon.inventory import Inventory
from xidwatch.daemon.kernel_sense import KernelSense
from xidwatch.daemon.loop import Loop
from xidwatch.daemon.memory import Memory, cells
from xidwatch.daemon.metrics import SnapshotCollector
from xidwatch.daemon.notify import Notifier
from xidwatch.daemon.nursery import Nursery
from xidwatch.daemon.probes import deadlines, preload, specs, sysfs_root
from xidwatch.daemon.processes import Abandoned
from xidwatch.daemon.recording import RECORDER
from xidwatch.daemon.rundir import RunDir
from xidwatch.daemon.scribe import ERROR, INFO, NOTICE, WARNING, Scribe
from xidwatch.daemon.ticker import Ticker
from xidwatch.daemon.workers import LEAVING_SECONDS, ProbeSpec, Workers
from xidwatch.records import baseline, journal
from xidwatch.records.recovery import Recovered, RecoveredRecord
from xidwatch.records.samples import Row as SampleRow
from xidwatch.records.state import Child

RECOVERY_SECONDS = 2.0  # the journal is waited for this long (it takes a tenth): then being up matters more than knowing the past
TENDING_SECONDS = 1.0
CHECKPOINT_TICKS = 120
CONFIG_SPACE_SECONDS = 5.0
RELEASED = "released after a driver-fatal Xid; not asked again before a driver reload, a reboot, or `xidwatch allow-driver`"


@dataclass(frozen=True, slots=True)
class Settings:
    """How it was started. `specs` replaces the probes (tests and benchmarks bring their own)."""

    state_dir: Path
    run_dir: Path
    config: Config
    rules: Rules
    config_path: Path | None = None
    log: str = "terminal"  # terminal, plain or journal
    once: bool = False
    specs: tuple[ProbeSpec, ...] | None = None

    @property
    def evidence_dirs(self) -> tuple[Path, ...]:
        """The state directory first, then the further ones."""
        return tuple(dict.fromkeys((self.state_dir, *(Path(name) for name in self.config.evidence_dirs))))


class Daemon:
    """One run. `on_begun` is called when the past is known (or given up on), `on_tick` after every finished tick."""

    def __init__(
        self,
        settings: Settings,
        loop: Loop,
        notifier: Notifier,
        rundir: RunDir,
        on_begun: Callable[[int | None], None],
        on_tick: Callable[[int], None],
    ) -> None:
        self.settings = settings
        self.config = settings.config
        self.loop = loop
        self.clock: Clock = loop.clock
        self.rundir = rundir
        self._conditions = settings.rules.conditions
        self._notifier = notifier
        self._on_begun = on_begun
        self._on_tick = on_tick
        self._begun = False
        self._tending = False
        self._state = State()
        self._columns = Columns()
        self._missing: dict[ticks.Column, Missing] = {}
        self._sample: Sample | None = None
        self._verdict = ("unknown", self.clock.now())
        self._history = views.ProbeHistory()
        self._dumps_taken = 0
        self._parting: Readings = {}  # a released worker's last words, for the next row
        self.memory = Memory()

        chosen = settings.specs if settings.specs is not None else specs(settings.config)
        self.nursery = Nursery(loop, preload(chosen), self._child_started, lambda _pid, _status: self.workers.tend())
        self.evidence = Evidence(
            loop, self.nursery, settings.evidence_dirs, self._recorder_options(), self._recovered, self._recorder_trouble
        )
        self.evidence.on_dropped = self._records_dropped
        rundir.publish = self.evidence.publish
        self.scribe = Scribe(self.evidence, self.clock, self._new_id)
        self.workers = Workers(loop, self.nursery, chosen, adopted=self._adopt(chosen), on_change=self._children_changed)
        self.dumps = Dumps(loop, self.nursery)
        self._hands = Hands(loop, self.workers, self.evidence, self.dumps, self._dump_jobs, self.scribe.outcome, self.take, self._parted)
        self.inventory = Inventory(loop, self.workers, self.memory, self.scribe)
        self.inventory.on_change = self._write_baseline
        self.kernel = KernelSense(loop, settings.rules.xids, self.memory.add_kernel, self.take)
        self.collector = SnapshotCollector(self.clock)
        interval = self.config.interval_seconds
        self.ticker = Ticker(loop, self.workers, deadlines(chosen, self.config), interval, self._refusals, self._ticked)
        loop.after(RECOVERY_SECONDS, lambda: self._begin(self.evidence.second_best()))

    # ------------------------------------------------------------------------------------------------------- starting

    def _recorder_options(self) -> dict[str, object]:
        return {
            "boot_id": self.clock.boot_id,
            "interval_s": self.config.interval_seconds,
            "log": self.settings.log,
        }

    def _recovered(self, record: RecoveredRecord) -> None:
        self._begin(record)  # a later recorder finds what this very run has written, and is not listened to

    def _begin(self, record: RecoveredRecord | None) -> None:
        if self._begun:
            return
        self._begun = True
        if record is None:
            text = "the journal could not be read in time (slow or hanging disk): this run knows nothing of earlier ones"
            self.scribe.say("records:late", text)
            found = None
        else:
            for damage in record.damage:
                self.scribe.log(WARNING, f"{damage.path}:{damage.line}: {damage.text}", event="damage")
            found = self._restore(record)
        for key, text in remarks.about_start(systemd="NOTIFY_SOCKET" in os.environ, root=os.geteuid() == 0).items():
            self.scribe.say(key, text)
        self.scribe.record("started", {"version": __version__, "pid": os.getpid(), "settings": as_mapping(self.config)})
        self._notifier.tell("READY=1", "STATUS=first tick under way")
        self._on_begun(found.kmsg_seq if found else None)

    def _restore(self, record: RecoveredRecord) -> Recovered:
        found = record.recovered()
        learnt = record.baseline
        expected = learnt.readings_expected() if learnt and learnt.boot_id == self.clock.boot_id else {}
        self.take(Restored(found.conditions, found.incident, found.next_id, expected, found.dumps))
        if found.stopped is False and found.last_boot_id == self.clock.boot_id:
            self.scribe.log(NOTICE, "the run before this one was killed or crashed; carrying on from its journal", event="unclean")
        return found

    # ------------------------------------------------------------------------------------------------------ the heart

    def take(self, given: Input) -> None:
        """One input: step, write down what comes out, then act."""
        self._state, outputs = watch.step(self._conditions, self._state, given)
        for output in outputs:
            number = self.scribe.output(output)
            match output:
                case Row(sample=sample):
                    self._row(sample)
                case Learnt():
                    self._write_baseline()
                case Action():
                    self._dumps_taken += output.kind is ActionKind.TAKE_DUMP
                    self._hands.carry_out(output, number)
        transitions = [output for output in outputs if isinstance(output, Transition)]
        self.scribe.other_edges(transitions)
        if transitions:
            self.show()

    def _write_baseline(self) -> None:
        """As learnt so far: what to compare with, and who was there."""
        learnt = baseline.learnt(self.clock.now(), self.clock.boot_id, self._state.expected, self.memory.inventory)
        self.evidence.baseline(learnt)

    def _new_id(self, letter: str) -> str:
        self._state, record_id = watch.next_id(self._state, letter)
        return record_id

    def _dump_jobs(self, action: Action) -> list[Mapping[str, object]]:
        """One for each evidence directory. Most volatile first; what needs no hardware before what does."""
        collector = {
            "name": "040-config-space.txt",
            "collect": "xidwatch.probes.pci:config_space_text",
            "with": [sysfs_root(self.config)],
            "deadline_s": CONFIG_SPACE_SECONDS,
        }
        incident = action.incident or "unknown"
        job = {
            "incident": incident,
            "boot_id": self.clock.boot_id,
            "trigger": action.cause,
            "parts": [
                {"name": "010-samples.csv", "text": self.memory.samples_text()},
                {"name": "020-kernel.txt", "text": self.memory.kernel_text()},
                {"name": "030-inventory.json", "text": self.memory.inventory_text()},
                collector,
            ],
        }
        return [{**job, "folder": str(directory / "incidents" / incident)} for directory in self.evidence.directories]

    # ---------------------------------------------------------------------------------------------------------- ticks

    def _refusals(self) -> Mapping[str, str]:
        if not self._state.driver_released:
            return {}
        return {name: RELEASED for name, spec in self.workers.specs.items() if spec.holds_driver}

    def _parted(self, readings: Readings) -> None:
        self._parting = readings

    def _ticked(self, number: int, at: Moment, answers: Mapping[str, Answer]) -> None:
        if self._parting:
            answers = {name: replace(a, readings=self._parting) if a.ended == "not-asked" else a for name, a in answers.items()}
            self._parting = {}
        self._history.add(answers, at)
        readings = self._columns.complete(answers)
        now = self.clock.now().mono
        readings.update(self._history.readings(self._stuck(), self.evidence.behind_seconds(now), now))
        self._note_missing(readings)
        for key, text in remarks.about_answers(answers).items():
            self.scribe.say(key, text)
        if self._state.driver_released:
            self.scribe.say("nvml:released", f"nvml: {RELEASED}")
        self.take(SampleTaken(Sample(number, at, self.clock.boot_id, readings)))
        self.inventory.renew(answers, released=self._state.driver_released)
        if number % CHECKPOINT_TICKS == 1:
            self.checkpoint()
        self.show()
        worst = lines.worst(watch.conditions_with_severity(self._conditions, self._state))
        self._notifier.tell("WATCHDOG=1", f"STATUS={self._verdict[0]}, tick {number}{worst}")
        self._on_tick(number)

    def _row(self, sample: Sample) -> None:
        self._sample = sample
        row = cells(sample.readings)
        self.memory.add_row(sample, row)
        self.evidence.sample(SampleRow(time=iso(sample.at.wall), boot_id=sample.boot_id, tick=sample.tick, cells=row))
        verdict = watch.verdict(self._conditions, self._state)
        text = lines.tick(sample, verdict, self._history.answers.values())
        self.scribe.log(INFO, text, event="tick", tick=str(sample.tick), verdict=verdict)

    def _note_missing(self, readings: Mapping[Subject, Mapping[str, Value]]) -> None:
        self._missing, changed = ticks.missing_changes(self._missing, readings)
        for reason, columns in changed.items():
            self.scribe.record("missing", {"reason": None if reason == "back" else reason, "columns": columns})

    def checkpoint(self) -> None:
        """The whole state into the journal, so that a successor need not read further back."""
        state = self._state
        record = journal.checkpoint(
            self._new_id("r"),
            self.clock.now(),
            self.clock.boot_id,
            conditions=[tracked.condition for tracked in state.conditions.values()],
            incident=state.incident,
            kmsg_seq=state.tally.last_seq,
            next_id=self._state.next_id,
            dumps=state.dumps,
        )
        self.evidence.journal(record)

    # ---------------------------------------------------------------------------------------------------------- views

    def _stuck(self) -> dict[str, float]:
        now = self.clock.now().mono
        return {name: self.workers.stuck_seconds(name, now) for name in self.workers.specs}

    def show(self, *, leaving: bool = False) -> None:
        """Renew the state file and the metrics snapshot."""
        now = self.clock.now()
        verdict = watch.verdict(self._conditions, self._state)
        if verdict != self._verdict[0]:
            self._verdict = (verdict, now)
        stuck = self._stuck()
        self.rundir.write_state(
            views.state_file(
                self._conditions,
                self._state,
                boot_id=self.clock.boot_id,
                now=now,
                since=self._verdict[1],
                sample=self._sample,
                interval=self.config.interval_seconds,
                history=self._history,
                stuck=stuck,
                leaving=leaving,
            )
        )
        self.collector.snapshot = views.snapshot(
            self._conditions,
            self._state,
            sample=self._sample,
            readings=self._state.readings,
            inventory=self.memory.inventory,
            probes=self._history.views(stuck, self.evidence.behind_seconds(now.mono)),
            known_xids=views.preset_xids(self.settings.rules.xids),
            gap_records=self.kernel.lost,
            ticks_missed=self.ticker.missed,
            dumps=self._dumps_taken,
            behind=min(self.evidence.behind_seconds(now.mono).values()),
        )

    # ------------------------------------------------------------------------------------------------------ processes

    def _adopt(self, known: tuple[ProbeSpec, ...]) -> tuple[Abandoned, ...]:
        """What a predecessor left behind and is still there. Nobody listens to it any more: it can only end, or be stuck."""
        holders = {spec.name for spec in known if spec.holds_driver}
        now = self.clock.now().mono
        found = [
            Abandoned(
                child.name,
                child.pid,
                child.start_ticks,
                child.since_mono or now + LEAVING_SECONDS,
                child.at or "",
                holds_driver=child.name in holders,
                holds_evidence=child.name == RECORDER,
                adopted=True,
            )
            for child in self.rundir.children(self.clock.boot_id)
        ]
        alive = tuple(process for process in found if process.is_alive())
        for process in alive:
            at = f" at {process.at}" if process.at else ""
            self.scribe.log(WARNING, f"{process.name}: process {process.pid} of the run before is still there{at}", event="adopted")
        return alive

    def _child_started(self, request: int, pid: int, start_ticks: int) -> None:
        if not self.evidence.started(request, pid, start_ticks):
            self.workers.started(request, pid, start_ticks)
        self._children_changed()

    def _children_changed(self) -> None:
        children = tuple(
            Child(pid=p.pid, start_ticks=p.start_ticks, name=p.name, at=p.at or None, since_mono=p.since)
            for p in (*self.workers.living(), *self.evidence.as_processes())
        )
        self.rundir.write_children(children, self.clock.boot_id)
        if self.workers.abandoned and not self._tending:
            self._tending = True
            self.loop.after(TENDING_SECONDS, self._tend)

    def _tend(self) -> None:
        self._tending = False
        self.workers.tend()
        if self.workers.abandoned:
            self._children_changed()

    def _recorder_trouble(self, directory: Path, text: str | None) -> None:
        if text:
            self.scribe.log(ERROR, f"records: {text}. Nothing is lost while the daemon runs and its backlog holds", event="records")
        else:
            self.scribe.log(NOTICE, f"records: writing to {directory} again", event="records")

    def _records_dropped(self, directory: Path, count: int) -> None:
        self.scribe.output(Gap(self._new_id("g"), self.clock.now(), f"records:{directory}", count))
