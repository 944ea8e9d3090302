"""What the gate did, as a report tells it: until the engine is back, in words and for programs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tests.report import nights
from tests.report.nights import wall
from tests.report.test_load import case_of, told
from xidwatch.records.journal import Entry
from xidwatch.report import json, text
from xidwatch.report.engines import MOST_STEPS, EngineLog


def lines_of(state_dir: Path) -> str:
    return "\n".join(line.text for line in text.report(told(state_dir)))


def gate(number: int, unit: str, state: str) -> Entry:
    body = {"unit": unit, "state": state, "before": "", "why": "x"}
    return Entry(
        line=1, id=f"g-{number}", time="", wall=float(number), mono_us=number, boot_id="5f0c", kind="gate", body=body, incident=None
    )


def test_an_engine_is_followed_until_it_is_back(tmp_path: Path) -> None:
    """Beyond the end of the incident, over a reboot, and not a step further; another reason for the same state is no step."""
    (engine,) = case_of(nights.engine_stopped(tmp_path)).engines
    assert (engine.unit, engine.state, engine.since) == ("vllm.service", "RUNNING", wall("02:28:40.001"))
    assert [(step.what, step.word) for step in engine.steps] == [
        ("gate", "STOPPING"),
        ("stop", "decided on"),
        ("stop", "leftovers"),
        ("gate", "HELD"),
        ("gate", "PROVING"),
        ("start", "decided on"),
        ("gate", "STARTING"),
        ("start", "ready"),
        ("gate", "RUNNING"),
    ]


def test_an_engine_that_is_not_back_is_told_as_it_stands(tmp_path: Path) -> None:
    """At the last record of it; the timeline ends with the incident all the same."""
    case = case_of(nights.engine_stopped(tmp_path, back=False))
    assert [(engine.state, engine.why) for engine in case.engines] == [("OFF", "stopped by somebody else")]
    assert case.ended == wall("02:25:31.100")
    assert max(event.wall for event in case.events) <= wall("02:25:31.100")


def test_the_section_says_how_it_stands_and_how_it_came_to_that(tmp_path: Path) -> None:
    """A line a step; the same steps stand in the timeline among everything else."""
    page = lines_of(nights.engine_stopped(tmp_path))
    section = page.partition("WHAT THE GATE DID")[2].partition("\n\n")[0]
    assert "vllm.service: RUNNING since 02:28:40" in section
    assert "02:10:08.650  STOPPING (was RUNNING): 4 of 4 GPUs lost" in section
    assert "02:10:20.700  stop: leftovers: 4711 VLLM::Worker_TP0, state D in uvm_va_space" in section
    assert "02:28:40.000  start: ready" in section
    timeline = page.partition("TIMELINE")[2].partition("WHAT THE GATE DID")[0]
    assert "vllm.service RUNNING -> STOPPING: 4 of 4 GPUs lost" in timeline
    assert "STOP_ENGINE vllm.service: leftovers in 12049 ms" in timeline


def test_programs_get_the_same(tmp_path: Path) -> None:
    """Under `engine`; an incident in which nothing was done to any has an empty list."""
    plain: Any = json.document(told(nights.engine_stopped(tmp_path / "a")))
    (engine,) = plain["engine"]
    assert (engine["unit"], engine["state"], engine["since"]) == ("vllm.service", "RUNNING", "2026-09-17T02:28:40.001Z")
    assert engine["steps"][0] == {
        "time": "2026-09-17T02:10:08.650Z",
        "what": "gate",
        "word": "STOPPING",
        "why": "4 of 4 GPUs lost",
        "before": "RUNNING",
    }
    assert json.document(told(nights.supply_trip(tmp_path / "b")))["engine"] == []
    assert json.document(told(nights.quiet(tmp_path / "c")))["engine"] == []


def test_nothing_was_done_is_no_section(tmp_path: Path) -> None:
    """Nothing is claimed of a gate that nobody has."""
    assert "WHAT THE GATE DID" not in lines_of(nights.supply_trip(tmp_path))


def test_a_record_that_is_not_understood_changes_nothing() -> None:
    """Of another version, or damaged."""
    log = EngineLog()
    for unit, state in (("", "HELD"), ("vllm.service", "")):
        log.take(gate(1, unit, state))
    assert log.engines() == ()
    assert log.is_settled


def test_a_gate_that_never_rests_is_bounded() -> None:
    """What is left out is counted, and how it stands is still known."""
    log = EngineLog()
    for number in range(MOST_STEPS + 50):
        log.take(gate(number, "vllm.service", "HELD" if number % 2 else "PROVING"))
    (engine,) = log.engines()
    assert (len(engine.steps), engine.left_out, engine.state) == (MOST_STEPS, 50, "HELD")
    assert not log.is_settled
