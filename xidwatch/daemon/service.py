"""The daemon: everything wired together. What it learns goes into `step`; what comes out is written, then done.

kernel log, uevents, answers, looks ──► step(rules, state, input) ──► records ──► actions ──► outcomes
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

from xidwatch.clock import Clock, iso
from xidwatch.config import Rules, as_mapping
from xidwatch.core import comparison, recovering, remarks, ticks, watch
from xidwatch.core.gate_model import Gate, GateMoved, GateState
from xidwatch.core.messages import Gap, Input, Inventoried, Learnt, Looked, Row, SampleTaken
from xidwatch.core.model import Action, ActionKind, Missing, Moment, Readings, Sample, Subject, Transition, Value
from xidwatch.core.ticks import Answer, Columns
from xidwatch.core.watch import State
from xidwatch.daemon import dumping, engine_views, family, lines, past, upkeep, views
from xidwatch.daemon.acting import Hands, followed_by
from xidwatch.daemon.baselines import Baselines, Known
from xidwatch.daemon.dumping import Dumps
from xidwatch.daemon.engines import Engines
from xidwatch.daemon.evidence import Evidence
from xidwatch.daemon.family import Family
from xidwatch.daemon.inventory import Inventory
from xidwatch.daemon.kernel_sense import KernelSense
from xidwatch.daemon.loop import Loop, Throttle
from xidwatch.daemon.memory import Memory, cells
from xidwatch.daemon.metrics import SnapshotCollector
from xidwatch.daemon.notify import Notifier
from xidwatch.daemon.orders import Orders
from xidwatch.daemon.probes import deadlines, preload, specs, sysfs_root
from xidwatch.daemon.recoveries import Recovery, recovery_settings
from xidwatch.daemon.rundir import RunDir
from xidwatch.daemon.scribe import ERROR, INFO, NOTICE, WARNING, Scribe
from xidwatch.daemon.settings import Settings
from xidwatch.daemon.ticker import Ticker
from xidwatch.daemon.upkeep import Upkeep
from xidwatch.daemon.workers import ProbeSpec, Workers
from xidwatch.records.recovery import Recovered, RecoveredRecord
from xidwatch.records.samples import Row as SampleRow

IMPATIENCE_SECONDS = 0.7  # then sampling begins, whether or not the past is known
RECOVERY_SECONDS = 10.0  # the journal is waited for this long: a busy host reads slowly, and half a past makes two incidents of one
CHECKPOINT_TICKS = 120
UNKNOWN_PAST = "not asked before the journal has been read: an earlier run may have let the driver go"
RELEASED = "released after a driver-fatal Xid; not asked again before a driver reload, a reboot, or `xidwatch allow-driver`"
RECOVERING = "not asked while a step of recovery is under way: an open handle would keep it waiting"


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
        self._early: list[Callable[[], None]] = []  # ticks that were complete before the past was known
        self._leaving = False
        self._gone = False  # the last state of this run has been shown
        self._sampling = False
        self._showing = Throttle(loop, self.show)
        self._state = State()
        self._columns = Columns()
        self._missing: dict[ticks.Column, Missing] = {}
        self._sample: Sample | None = None
        self._verdict = ("unknown", self.clock.now())
        self._history = views.ProbeHistory()
        self._dumps_taken = 0
        self._entered = {state: Counter[str]() for state in GateState}  # how often in this run, by engine
        self._records_trouble = ""
        self._parting: Readings = {}  # a released worker's last words, for the next row
        self.memory = Memory()

        self.kernel = KernelSense(loop, settings.rules.xids, self.memory.add_kernel, self.take)
        self.collector = SnapshotCollector(self.clock)
        self._wire(settings.specs if settings.specs is not None else specs(settings.config))

    def _wire(self, chosen: tuple[ProbeSpec, ...]) -> None:
        """The processes and those who speak with them, in the order in which they need each other."""
        loop, dirs = self.loop, self.settings.evidence_dirs
        self.nursery = self.settings.nursery(loop, preload(chosen), self._child_started, lambda _pid, _status: self.workers.tend())
        trouble, dropped = self._recorder_trouble, self._records_dropped
        self.evidence = Evidence(loop, self.nursery, dirs, self._recorder_options(), self._recovered, trouble, dropped)
        self.rundir.publish = self.evidence.publish
        self.scribe = Scribe(self.evidence, self.clock, self._new_id)
        self.baselines = Baselines(self.clock, self.evidence, self.scribe, self._known, self.take)
        adopted = family.adopt(self.rundir, self.clock.boot_id, chosen, self.clock.now().mono)
        family.tell(self.scribe, adopted)
        changed, traced = self._children_changed, self.memory.power.add
        self.workers = Workers(loop, self.nursery, chosen, adopted=adopted, on_change=changed, on_trace=traced)
        self._family = Family(loop, self.rundir, self.workers, self.evidence)
        self.dumps = Dumps(loop, self.nursery)
        stuck, said, parted = self.workers.abandoned.append, self._outcome, self._parted
        recovery = recovery_settings(self.config.recovery, once=self.settings.once)
        doubts = lambda step: recovering.hindrance(self._conditions, self._state, step, self.clock.now())  # noqa: E731  short, and asked once
        self.recovery = Recovery(loop, self.nursery, sysfs_root(self.config), dirs, self.rundir.path, doubts, stuck, said)
        self.engines = Engines(loop, self.nursery, self.config.engines, recovery, self.take, said, stuck)
        acts = self.engines.carry_out, self.recovery.carry_out
        self._hands = Hands(loop, self.workers, self.evidence, self.dumps, self._dump_jobs, said, self._looked, parted, *acts)
        self.inventory = Inventory(loop, self.workers, self.memory, self.scribe)
        self.inventory.on_change = self._inventoried
        self.orders = Orders(self.rundir, self.clock, self.scribe)
        self.upkeep = Upkeep(self.clock, self.scribe, self.inventory, self._maintained, self.take)
        interval = self.config.interval_seconds
        self.ticker = Ticker(loop, self.workers, deadlines(chosen, self.config), interval, self._refusals, self._ticked)

    # ------------------------------------------------------------------------------------------------------- starting

    def _recorder_options(self) -> dict[str, object]:
        return {
            "boot_id": self.clock.boot_id,
            "interval_s": self.config.interval_seconds,
            "log": self.settings.log,
        }

    def _recovered(self, record: RecoveredRecord) -> None:
        self._begin(record, is_first=True)  # a later recorder finds what this very run has written, and is not listened to

    def start(self) -> None:
        """Sample from now on. What the first ticks find is judged when the past is known."""
        self._notifier.tell("READY=1", "STATUS=reading the journal")
        if not self.settings.once:  # a single tick asks everybody, and NVML is asked only when the past is known
            self.loop.after(IMPATIENCE_SECONDS, self._begin_sampling)
        self.loop.after(RECOVERY_SECONDS, lambda: self._begin(self.evidence.second_best()))

    def _begin_sampling(self) -> None:
        if not self._sampling and not self._leaving:
            self._sampling = True
            self.ticker.begin()

    def leave(self) -> None:
        """Nothing begins any more."""
        self._leaving = True
        self.ticker.end()
        self.kernel.close()
        self.engines.finish()
        self.recovery.finish()

    @property
    def has_begun(self) -> bool:
        """The past is known, or given up on; before that nothing of this run belongs into the journal."""
        return self._begun

    def _begin(self, record: RecoveredRecord | None, *, is_first: bool = False) -> None:  # of the directory that has all steps
        if self._begun or self._leaving:
            return
        self._begun = True
        found = self._restore(record) if record else None
        self.engines.begin(found, knows_past=is_first and past.is_whole(record))
        self.scribe.record("started", self.settings.oneself.introduced(as_mapping(self.config)))
        if record is None:
            why = self._records_trouble or "slow or hanging disk"
            self.scribe.say("records:late", f"the journal could not be read in time ({why}): this run knows nothing of earlier ones")
        me = self.settings.oneself
        for key, text in remarks.about_start(systemd=me.by_systemd, root=me.is_root).items():
            if not self.settings.once:
                self.scribe.say(key, text)
        self._on_begun(found.kmsg_seq if found else None)
        self._begin_sampling()
        early, self._early = self._early, []
        for tick in early:
            tick()

    def _restore(self, record: RecoveredRecord) -> Recovered:
        for damage in record.damage:
            self.scribe.log(WARNING, f"{damage.path}:{damage.line}: {damage.text}", event="damage")
        found = record.recovered()
        probes = {*self.workers.specs, *self.evidence.behind_seconds(self.clock.now().mono)}
        rails = {rail.name for rail in self.config.rails} if self.config.probes.hwmon.enabled else set()
        engines = {engine.unit for engine in self.config.engines} if self.config.probes.engine.enabled else set()
        restored = past.restored(record, found, self.clock.boot_id, {"probe": probes, "rail": rails, "engine": engines})
        self.memory.inventory = restored.inventory
        self.baselines.restore(record.baseline)
        self.take(restored)
        if found.stopped is False and found.last_boot_id == self.clock.boot_id:
            self.scribe.log(NOTICE, "the run before this one was killed or crashed; carrying on from its journal", event="unclean")
        return found

    def use(self, rules: Rules) -> None:
        """Other rules from here on. What is true stays so until it is judged again."""
        self._conditions = rules.conditions
        self.kernel.parser.use(rules.xids)

    # ------------------------------------------------------------------------------------------------------ the heart

    def take(self, given: Input) -> None:
        """One input: step, write down what comes out, then act."""
        self._state, outputs = watch.step(self._conditions, self._state, given)
        self.scribe.tell(outputs)
        moved = [output for output in outputs if isinstance(output, GateMoved)]
        for each in moved:
            self._entered[each.gate.state][each.gate.unit] += each.before is not each.gate.state
        for output in outputs:
            number = self.scribe.output(output)
            match output:
                case Row(sample=sample):
                    self._row(sample)
                case Learnt():
                    self.baselines.write()
                case GateMoved() if output is moved[0]:  # one picture has them all, and sixty engines may lose a switch at once
                    self.show()  # before anything is done: the start that follows asks this very file
                case Action():
                    self._dumps_taken += output.kind is ActionKind.TAKE_DUMP
                    self._hands.carry_out(output, number)
        if any(isinstance(output, Transition) for output in outputs):
            self._showing.soon()

    def look_for_orders(self) -> None:
        """Whose gate somebody has opened, or closed again, past this daemon."""
        self.orders.look([each.unit for each in self.settings.config.engines])
        self.engines.opened(self.orders.in_force)

    def _outcome(self, action: Action, result: str, took_ms: int, detail: str) -> None:
        self.scribe.outcome(action, result, took_ms, detail)
        for given in followed_by(action, self.clock.now(), result, detail):
            self.take(given)

    def _inventoried(self) -> None:
        self.take(Inventoried(self.clock.now(), self.memory.inventory))
        self.baselines.write()
        self._showing.soon()

    def _known(self) -> Known:
        return self._conditions, self._state, self.memory.inventory

    def _maintained(self) -> upkeep.Known:
        return self._state.maintenance, comparison.here(self._state.readings, self.memory.inventory)

    @property
    def gates(self) -> Mapping[str, Gate]:
        """By unit, as they stand."""
        return self._state.gates

    @property
    def has_released(self) -> bool:
        """NVML is not asked, because of a driver-fatal Xid."""
        return self._state.driver_released

    def _new_id(self, letter: str) -> str:
        self._state, record_id = watch.next_id(self._state, letter)
        return record_id

    def _dump_jobs(self, action: Action) -> list[Mapping[str, object]]:
        return dumping.jobs(self.memory, action, self.clock.boot_id, sysfs_root(self.config), self.evidence.directories)

    # ---------------------------------------------------------------------------------------------------------- ticks

    def _refusals(self) -> Mapping[str, str]:
        why = UNKNOWN_PAST if not self._begun else RELEASED if self._state.driver_released else self.upkeep.refusal()
        why = why or (RECOVERING if self._state.recovery.under_way else "")
        if not why:
            return {}
        return {name: why for name, spec in self.workers.specs.items() if spec.holds_driver}

    def _looked(self, given: Looked) -> None:
        self.ticker.renew(given.readings)
        self.take(given)

    def _parted(self, readings: Readings) -> None:
        self._parting = readings

    def _ticked(self, number: int, at: Moment, answers: Mapping[str, Answer]) -> None:
        if not self._begun:
            self._early.append(lambda: self._ticked(number, at, answers))
            return
        if self._parting:
            answers = {name: replace(a, readings=self._parting) if a.ended == "not-asked" else a for name, a in answers.items()}
            self._parting = {}
        self._history.add(answers, at, self.workers.clearing())
        readings = self._columns.complete(answers)
        now = self.clock.now().mono
        readings.update(self._history.readings(self._stuck(), self.evidence.behind_seconds(now), now))
        self._note_missing(readings)
        named, members = self.settings.config.named_gpus, self._state.roster.facts.keys()
        for key, text in remarks.about_tick(answers, readings, named, members).items():
            self.scribe.say(key, text)
        if self._state.driver_released:
            self.scribe.say("nvml:released", f"nvml: {RELEASED}")
        self.take(SampleTaken(Sample(number, at, self.clock.boot_id, readings)))
        self.inventory.renew(answers, released=bool(self._refusals()))
        self.upkeep.tick()
        self.look_for_orders()
        if number % CHECKPOINT_TICKS == 1:
            self.checkpoint()
        self._showing.now()
        worst = lines.worst(watch.conditions_with_severity(self._conditions, self._state))
        self._notifier.tell("WATCHDOG=1", f"STATUS={self._verdict[0]}, tick {number}{worst}")
        self._on_tick(number)

    def _row(self, sample: Sample) -> None:
        self._sample = sample
        row = cells(sample.readings)
        self.memory.add_row(sample, row)
        time, interval = iso(sample.at.wall), self.config.interval_seconds
        self.evidence.sample(SampleRow(time=time, boot_id=sample.boot_id, tick=sample.tick, cells=row, interval_s=interval))
        verdict = watch.verdict(self._conditions, self._state)
        text = lines.tick(sample, verdict, self._history.answers.values())
        self.scribe.log(INFO, text, event="tick", tick=str(sample.tick), verdict=verdict)

    def _note_missing(self, readings: Mapping[Subject, Mapping[str, Value]]) -> None:
        self._missing, changed = ticks.missing_changes(self._missing, readings)
        for reason, columns in changed.items():
            self.scribe.record("missing", {"reason": None if reason == "back" else reason, "columns": columns})

    def checkpoint(self) -> None:
        """The whole state into the journal, so that a successor need not read further back.

        Never by a run that does not know the past: its word would make the successor forget an incident that is open.
        """
        if not self.baselines.knows_past:
            return
        record_id = self._new_id("r")
        self.evidence.journal(past.checkpoint(self._state, record_id, self.clock.now(), self.clock.boot_id))

    # ---------------------------------------------------------------------------------------------------------- views

    def _stuck(self) -> dict[str, float]:
        now = self.clock.now().mono
        return {name: self.workers.stuck_seconds(name, now) for name in self.workers.specs}

    def show(self, *, leaving: bool = False) -> None:
        """Renew the state file and the metrics snapshot."""
        self._gone = self._gone or leaving  # a view that was put off must not say that it is alive again
        now = self.clock.now()
        verdict = watch.verdict(self._conditions, self._state)
        if verdict != self._verdict[0]:
            self._verdict = (verdict, now)
        self._history.refuse(self._refusals() if self._begun else {})
        stuck = self._stuck()
        engines = engine_views.shown(self.settings.config.engines, self._conditions, self._state, now, self.orders.in_force)
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
                engines=engines,
                baseline=self.baselines.shown(),
                pid=None if self._gone else self.settings.oneself.pid,
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
            engines=engines,
            behind=min(self.evidence.behind_seconds(now.mono).values()),
            starts=self._entered[GateState.STARTING],
            stops=self._entered[GateState.STOPPING],
        )

    # --------------------------------------------------------------------------------------------- processes, records

    def _child_started(self, request: int, pid: int, start_ticks: int) -> None:
        if not (self.engines.started(request, pid, start_ticks) or self.recovery.started(request, pid, start_ticks)):
            self._family.started(request, pid, start_ticks)

    def _children_changed(self) -> None:
        self._family.changed()

    def _recorder_trouble(self, directory: Path, text: str | None) -> None:
        self._records_trouble = text or ""
        if text:
            self.scribe.log(ERROR, f"records: {text}. Nothing is lost while the daemon runs and its backlog holds", event="records")
        else:
            self.scribe.log(NOTICE, f"records: writing to {directory} again", event="records")

    def _records_dropped(self, directory: Path, count: int) -> None:
        self.scribe.note(Gap(self._new_id("g"), self.clock.now(), f"records:{directory}", count))
