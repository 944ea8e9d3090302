"""The report for programs: the same facts, with the keys that the project's interface names.

    {"incident": {"id": "20260917T021008Z-gpu-lost-11", "state": "closed", "first_event": {"kind": "xid", "pci": "0000:11:00.0"}, ...},
     "subjects": [...], "timeline": [...], "observations": [...],
     "engine": [{"unit": "vllm.service", "state": "HELD", "steps": [...]}], "missing": [...], "dumps": [...]}

`findings` is not among them: no cause is concluded yet, and an empty list would say that there was nothing to find. `engine` is empty
where nothing was done to any. `incident.hardware` is true or null, never false: the records cannot rule hardware out.
"""

from __future__ import annotations

import json
from collections.abc import Sequence

from xidwatch.clock import iso
from xidwatch.core.model import Subject
from xidwatch.records.dumps import Part
from xidwatch.report.story import Case, Dump, Engine, EngineStep, Event, Observation, Story, Unseen

Plain = dict[str, object]


def document(told: Story, all_cases: Sequence[Story] = ()) -> Plain:
    """One report; with more than one of `all_cases`, also `incidents`, each with the same keys."""
    plain = _story(told)
    if len(all_cases) > 1:
        plain["incidents"] = [_story(each) for each in all_cases]
        plain["incidents_left_out"] = len(told.others) + 1 - len(all_cases)
    return plain


def dumps(plain: Plain) -> str:
    """For people who look at it, one key a line."""
    return json.dumps(plain, indent=1)


def _story(told: Story) -> Plain:
    case = told.case
    damage: list[Plain] = [{"what": f"{place.path}:{place.line}", "why": place.text, "from": None, "to": None} for place in told.damage]
    plain: Plain = {"incident": None, "subjects": [], "timeline": [], "observations": [], "engine": []}
    if case is not None:
        plain = {
            "incident": _incident(case),
            "subjects": [*_subjects(case.victims, "victim"), *_subjects(case.bystanders, "bystander")],
            "timeline": [_event(event) for event in case.events],
            "observations": [_observation(seen) for seen in case.observations],
            "engine": [_engine(engine) for engine in case.engines],
        }
    plain["missing"] = [*(_unseen(lack) for lack in told.unseen), *damage]
    plain["dumps"] = [_dump(dump) for dump in case.dumps] if case else []
    if case is None:
        plain["notes"] = [{"time": iso(note.wall), "text": note.text} for note in told.notes]
        plain["notes_left_out"] = told.notes_left_out
    plain["records"] = _records(told)
    return plain


def _incident(case: Case) -> Plain:
    first = case.first_event
    return {
        "id": case.id,
        "boot_id": case.boot_id,
        "began": iso(case.began),
        "not_before": _time(case.not_before),
        "ended": _time(case.ended),
        "state": case.state,
        "severity": case.severity,
        "first_event": {"kind": first.kind, "pci": first.pci} if first else None,
        "hardware": case.hardware,
        "timeline_left_out": case.events_left_out,
    }


def _subjects(subjects: Sequence[Subject], role: str) -> list[Plain]:
    return [{"pci": str(subject.pci), "kind": subject.kind, "role": role} for subject in subjects]


def _event(event: Event) -> Plain:
    plain: Plain = {
        "time": iso(event.wall),
        "source": event.source,
        "boot": event.boot_id,
        "kind": event.kind,
        "pci": event.pci,
        "severity": event.severity,
        "text": event.text,
    }
    more: Plain = {
        "subject": str(event.subject) if event.subject else None,
        "before": event.before,
        "status": event.status,
        "not_before": _time(event.not_before),
        "injected": event.injected or None,
        "repeated": event.repeated if event.repeated > 1 else None,
        "first_bad": event.first_bad or None,
    }
    return plain | {key: value for key, value in more.items() if value is not None}


def _observation(seen: Observation) -> Plain:
    return {
        "subject": str(seen.subject),
        "pci": str(seen.subject.pci) if seen.subject.pci else None,
        "type": seen.type,
        "severity": seen.severity,
        "from": iso(seen.began),
        "not_before": _time(seen.not_before),
        "reason": seen.reason,
        "evidence": [seen.evidence],
        "times": seen.times,
        "status": seen.status,
        "since": iso(seen.since),
        "status_reason": seen.why_now,
    }


def _engine(engine: Engine) -> Plain:
    return {
        "unit": engine.unit,
        "state": engine.state or None,
        "since": iso(engine.since) if engine.state else None,
        "why": engine.why,
        "steps": [_step(step) for step in engine.steps],
        "steps_left_out": engine.left_out,
    }


def _step(step: EngineStep) -> Plain:
    plain: Plain = {"time": iso(step.wall), "what": step.what, "word": step.word, "why": step.why}
    return plain | {"before": step.before} if step.before else plain


def _unseen(lack: Unseen) -> Plain:
    plain: Plain = {"what": lack.what, "why": lack.why, "from": _time(lack.began), "to": _time(lack.ended)}
    return plain | {"times": lack.times} if lack.times > 1 else plain


def _dump(dump: Dump) -> Plain:
    plain: Plain = {"folder": dump.folder, "state": dump.state, "drill": dump.drill, "parts": [_part(part) for part in dump.parts]}
    return plain | {"trouble": dump.trouble} if dump.trouble else plain


def _part(part: Part) -> Plain:
    plain: Plain = {
        "name": part.name,
        "stage": part.stage,
        "status": part.status,
        "started": part.started,
        "took_ms": part.took_ms,
        "bytes": part.bytes,
    }
    return plain | {"note": part.note} if part.note else plain


def _records(told: Story) -> Plain:
    cover = told.coverage
    events = [{"kind": each.kind, "xid": each.xid, "count": each.count, "last": iso(each.last)} for each in cover.kernel_counts]
    return {
        "state_dir": told.state_dir,
        "replayed": told.replayed or None,
        "since": _time(cover.since),
        "first": _time(cover.first),
        "last": _time(cover.last),
        "records": cover.records,
        "boots": cover.boots,
        "runs": cover.runs,
        "ticks": cover.ticks,
        "ended_cleanly": cover.ends_cleanly,
        "kernel_events": events,
        "conditions_without_incident": [_observation(seen) for seen in told.alone],
    }


def _time(wall: float | None) -> str | None:
    return iso(wall) if wall is not None else None
