"""Views of the state for others: the state file, the metrics snapshot, the probe readings. They show, they judge nothing."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from xidwatch.clock import iso
from xidwatch.core import recovering, watch
from xidwatch.core.gate_model import Maintenance
from xidwatch.core.kernel import XidClass, XidRule
from xidwatch.core.model import Condition, Moment, Readings, Sample, Severity, Status, Subject, Value
from xidwatch.core.rules import Rule
from xidwatch.core.ticks import Answer
from xidwatch.core.watch import State
from xidwatch.daemon.metrics import ProbeView, Snapshot
from xidwatch.records.state import BaselineState, ConditionState, EngineState, MaintenanceState, ProbeState, RecoveryState, StateFile

RECORDER_LATE_SECONDS = 5.0
PRESET_CLASSES = frozenset({XidClass.APPLICATION, XidClass.ECHO, XidClass.HARDWARE, XidClass.LINK, XidClass.MEMORY, XidClass.THERMAL})


@dataclass(slots=True)
class ProbeHistory:
    """How each probe has done so far."""

    answered: dict[str, float] = field(default_factory=dict)  # monotonic time of the last full answer
    answers: dict[str, Answer] = field(default_factory=dict)  # the latest, full or not
    silent: dict[str, str] = field(default_factory=dict)  # those that have nothing to say, and where that began

    def add(self, answers: Mapping[str, Answer], at: Moment, clearing: Collection[str] = ()) -> None:
        """One tick's answers. `clearing`: the probes of which a stuck process is about to be ended.

        What such a one's replacement can tell meanwhile is no recovery: the next will go there again, and get stuck again.
        """
        self.answers.update(answers)
        self.answered.update({name: at.mono for name, answer in answers.items() if answer.in_full})
        for name, answer in answers.items():
            if not answer.answering:
                self.silent[name] = answer.at or self.silent.get(name, "")
            elif not (answer.left_out and name in clearing):
                self.silent.pop(name, None)

    def refuse(self, refusals: Mapping[str, str]) -> None:
        """These are not asked any more, each for this reason: what one said before is not how it is doing now."""
        for name in self.answers.keys() & refusals.keys():
            if self.answers[name].ended != "not-asked":
                self.answers[name] = Answer(name, "not-asked", {}, refusals[name])

    def views(self, stuck: Mapping[str, float], behind: Mapping[str, float]) -> dict[str, ProbeView]:
        """For metrics; a recorder is late when what it was given is not on disk."""
        probes = {
            name: ProbeView(answer.in_full, self.answered.get(name), answer.took_ms / 1000, stuck.get(name, 0.0))
            for name, answer in self.answers.items()
        }
        recorders = {name: ProbeView(not _late(seconds), None, 0.0, _late(seconds)) for name, seconds in behind.items()}
        return probes | recorders

    def readings(self, stuck: Mapping[str, float], behind: Mapping[str, float], now: float) -> dict[Subject, dict[str, Value]]:
        """The watcher watched, as readings of subjects `probe:NAME`; the recorder is watched like a probe."""
        found: dict[Subject, dict[str, Value]] = {}
        for name, answer in self.answers.items():
            values: dict[str, Value] = {
                "success": int(answer.in_full),
                "answering": int(name not in self.silent),
                "took_ms": answer.took_ms,
            }
            if name in self.answered:
                values["age_seconds"] = round(now - self.answered[name], 3)
            values["stuck_seconds"] = round(stuck.get(name, 0.0), 1)
            values["at"] = self.silent.get(name) or ", ".join(answer.left_out)
            found[Subject("probe", name)] = values
        for name, seconds in behind.items():
            late = _late(seconds)
            found[Subject("probe", name)] = {"success": int(not late), "answering": 1, "stuck_seconds": round(late, 1)}
        return found


def _late(behind_seconds: float) -> float:
    """A batch under way is no delay."""
    return behind_seconds if behind_seconds > RECORDER_LATE_SECONDS else 0.0


def state_file(
    rules: tuple[Rule, ...],
    state: State,
    *,
    boot_id: str,
    now: Moment,
    since: Moment,
    sample: Sample | None,
    interval: float,
    history: ProbeHistory,
    stuck: Mapping[str, float],
    engines: Mapping[str, EngineState],
    baseline: BaselineState | None,
    pid: int | None,
) -> StateFile:
    """/run/xidwatch/state.json: no secrets, readable by everyone. The last one of a run has no `pid`, and knows nothing any more."""
    shown = sorted(watch.conditions_with_severity(rules, state), key=lambda pair: (pair[0].type, pair[0].subject))
    conditions = tuple(_condition(c, rule) for c, rule in shown if c.status is not Status.NOT_APPLICABLE)
    return StateFile(
        boot_id=boot_id,
        mono_ms=int(now.mono * 1000),
        verdict="unknown" if pid is None else watch.verdict(rules, state),
        since=iso(now.wall if pid is None else since.wall),
        conditions=conditions,
        tick=sample.tick if sample else None,
        interval_s=interval,
        time=iso(now.wall),
        pid=pid,
        incident=state.incident.id if state.incident else None,
        probes=_probes(history, stuck, now),
        engines=dict(engines),
        baseline=baseline,
        maintenance=_maintenance(state.maintenance),
        recovery=_recovery(rules, state, now),
    )


def _condition(of: Condition, rule: Rule) -> ConditionState:
    return ConditionState(
        subject=str(of.subject),
        type=of.type,
        status=of.status,
        since=iso(of.since.wall),
        reason=of.reason,
        severity=rule.severity,
        advice=rule.advice if of.status is Status.TRUE else "",
    )


def _probes(history: ProbeHistory, stuck: Mapping[str, float], now: Moment) -> dict[str, ProbeState]:
    return {
        name: ProbeState(
            success=answer.in_full,
            asked=answer.ended != "not-asked",
            partly=answer.ended == "done" and not answer.in_full,
            age_s=round(now.mono - history.answered[name], 1) if name in history.answered else None,
            stuck_s=round(stuck.get(name, 0.0), 1),
            text=answer.trouble,
        )
        for name, answer in history.answers.items()
    }


def _recovery(rules: tuple[Rule, ...], state: State, now: Moment) -> tuple[RecoveryState, ...]:
    latest = {each.step: each for each in state.recovery.attempts if each.boot_id == state.boot_id}
    return tuple(
        RecoveryState(step=each.step, target=each.target, against=each.against)
        if (last := latest.get(each.step)) is None
        else RecoveryState(
            step=each.step, target=last.target, against=each.against, done=iso(last.at.wall), result=last.result, detail=last.detail
        )
        for each in recovering.outlooks(rules, state, now)
    )


def _maintenance(on: Maintenance | None) -> MaintenanceState | None:
    return MaintenanceState(until=iso(on.until), reason=on.reason, by=on.by) if on else None


def preset_xids(rules: Mapping[int, XidRule]) -> tuple[int, ...]:
    """The Xids whose counters exist from the start: all that are critical, and those of the kinds that people alert on."""
    return tuple(number for number, rule in rules.items() if rule.severity is Severity.CRITICAL or rule.xid_class in PRESET_CLASSES)


def _missed(state: State) -> Readings:
    """Of earlier boots, or forgotten by the probe: who should be there is shown as not there."""
    return {subject: {**state.readings.get(subject, {}), "present": 0} for subject in state.roster.missed}


def snapshot(
    rules: tuple[Rule, ...],
    state: State,
    *,
    sample: Sample | None,
    readings: Readings,
    inventory: Readings,
    probes: Mapping[str, ProbeView],
    known_xids: tuple[int, ...],
    gap_records: int,
    ticks_missed: int,
    dumps: int,
    engines: Mapping[str, EngineState],
    behind: float,
    starts: Mapping[str, int],
    stops: Mapping[str, int],
) -> Snapshot:
    """What a scrape shows from now on."""
    return Snapshot(
        verdict=watch.verdict(rules, state),
        tick=sample.tick if sample else 0,
        sampled_mono=sample.at.mono if sample else None,
        sampled_wall=sample.at.wall if sample else 0.0,
        readings={**readings, **_missed(state)},
        inventory=inventory,
        conditions=tuple(condition for condition, _ in watch.conditions_with_severity(rules, state)),
        xids=state.tally.totals,
        known_xids=known_xids,
        probes=probes,
        kernel_gap_records=gap_records,
        ticks_missed=ticks_missed,
        dumps=dumps,
        records_behind_seconds=behind,
        incident_open=state.incident is not None,
        engines=engines,
        engine_starts=starts,
        engine_stops=stops,
        maintenance=state.maintenance is not None,
        recovery_enabled=state.recovery.settings.enabled,
        recovery_taken=Counter((each.step, each.result) for each in state.recovery.attempts if each.boot_id == state.boot_id),
    )
