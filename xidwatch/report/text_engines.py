"""What the gate did, in words: how each engine stands, and how it came to that.

vllm.service: HELD since 02:10:21: 4 of 4 GPUs lost
02:10:09.120  STOPPING (was RUNNING): 4 of 4 GPUs lost
02:10:21.101  stop: ok
"""

from __future__ import annotations

from xidwatch.report import words
from xidwatch.report.lines import Line, Style, heading, paragraph
from xidwatch.report.story import Case, Engine, EngineStep

MOST_STEPS = 40
WORRYING = frozenset({"STOPPING", "HELD", "LATCHED"})
GOOD_WORDS = frozenset({"ok", "ready", "decided on"})


def engines(case: Case) -> list[Line]:
    """The section; none where nothing was done to any."""
    if not case.engines:
        return []
    lines = heading("WHAT THE GATE DID")
    for engine in case.engines:
        lines += _engine(engine, case.began)
    return lines


def _engine(engine: Engine, began: float) -> list[Line]:
    state = f"{engine.state} since {words.stamp(engine.since, near=began)}" if engine.state else "no word of its gate is on record"
    why = f": {words.clean(engine.why)}" if engine.why else ""
    lines = paragraph(f"{words.clean(engine.unit)}: {words.clean(state)}{why}", "bad" if engine.state in WORRYING else "", most=4)
    left_out = engine.left_out + max(0, len(engine.steps) - MOST_STEPS)
    for step in engine.steps[:MOST_STEPS]:
        lines += paragraph(f"{words.clock(step.wall)}  {_step(step)}", _style(step), indent="    ", hanging=" " * 18, most=3)
    return [*lines, Line(f"    ... {left_out} more, see --format json", "dim")] if left_out else lines


def _step(step: EngineStep) -> str:
    why = f": {words.clean(step.why)}" if step.why else ""
    if step.what != "gate":
        return f"{step.what}: {words.clean(step.word)}{why}"
    was = f" (was {words.clean(step.before)})" if step.before and step.before != step.word else ""
    return f"{words.clean(step.word)}{was}{why}"


def _style(step: EngineStep) -> Style:
    if step.what == "gate":
        return "warn" if step.word in WORRYING else ""
    return "" if step.word in GOOD_WORDS else "warn"
