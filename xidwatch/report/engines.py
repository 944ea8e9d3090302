"""What the gate did to each engine in an incident, and afterwards until the engine is back: from `gate` records, actions and outcomes.

    {"gate":{"unit":"vllm.service","before":"RUNNING","state":"STOPPING","why":"4 of 4 GPUs lost"}}
    {"action":{"kind":"STOP_ENGINE","for":"g-000131","unit":"vllm.service"}}
    {"outcome":{"for":"a-000132","result":"ok","took_ms":2112}}

Law: reads records, decides nothing. A record that is not understood changes nothing.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from xidwatch.records.journal import Entry
from xidwatch.report import facts
from xidwatch.report.story import Engine, EngineStep

AT_REST = frozenset({"RUNNING", "OFF"})  # nothing more is to be expected of the gate
ENGINE_ACTIONS = {"STOP_ENGINE": "stop", "START_ENGINE": "start"}
MOST_STEPS = 200  # of one engine


@dataclass(slots=True)
class _Track:
    """One engine, as far as it has been read."""

    steps: list[EngineStep] = field(default_factory=list)
    state: str = ""
    since: float = 0.0
    why: str = ""
    left_out: int = 0


@dataclass(slots=True)
class EngineLog:
    """Takes the records of an incident in the order of the files."""

    tracks: dict[str, _Track] = field(default_factory=dict)
    waiting: dict[str, tuple[str, str]] = field(default_factory=dict)  # action -> unit, what

    def take(self, entry: Entry) -> None:
        """One record; what is about no engine is passed over."""
        match entry.kind:
            case "gate":
                self._gate(entry)
            case "action" if facts.text(entry.body, "kind") in ENGINE_ACTIONS:
                unit, what = facts.text(entry.body, "unit"), ENGINE_ACTIONS[facts.text(entry.body, "kind")]
                self.waiting[entry.id] = (unit, what)
                self._add(unit, EngineStep(entry.wall, what, "decided on", ""))
            case "outcome" if facts.text(entry.body, "for") in self.waiting:
                unit, what = self.waiting.pop(facts.text(entry.body, "for"))
                self._add(unit, EngineStep(entry.wall, what, facts.text(entry.body, "result"), facts.text(entry.body, "detail")))

    @property
    def is_settled(self) -> bool:
        """No engine is on its way anywhere."""
        return not self.waiting and all(track.state in AT_REST or not track.state for track in self.tracks.values())

    def engines(self) -> tuple[Engine, ...]:
        """By unit; none to which nothing happened."""
        return tuple(
            Engine(unit, track.state, track.since, track.why, tuple(track.steps), track.left_out)
            for unit, track in sorted(self.tracks.items())
            if track.steps
        )

    def _gate(self, entry: Entry) -> None:
        body = entry.body
        unit, state, why = (facts.text(body, key) for key in ("unit", "state", "why"))
        if not unit or not state:
            return
        track = self.tracks.setdefault(unit, _Track())
        same = state == track.state
        track.since = track.since if same else entry.wall
        track.state, track.why = state, why
        if not same:  # another reason for the same state: the first stays with its step, the latest is how it stands
            self._add(unit, EngineStep(entry.wall, "gate", state, why, facts.text(body, "before")))

    def _add(self, unit: str, step: EngineStep) -> None:
        track = self.tracks.setdefault(unit, _Track())
        if len(track.steps) < MOST_STEPS:
            track.steps.append(step)
        else:
            track.left_out += 1
