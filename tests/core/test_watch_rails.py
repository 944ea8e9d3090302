"""Supply rails on paper: a sag and its return, a step of the converter, a sensor that goes, and pins that nobody judges."""

from __future__ import annotations

from tests.core.story import RULES, Story, healthy
from xidwatch.core.messages import Learnt
from xidwatch.core.model import Missing, Status, Subject, Transition, Value
from xidwatch.core.watch import verdict

RAIL = Subject("rail", "psu1_12v")
PIN = Subject("chip", "nct6798@platform/nct6775.656/in5")
STEP = 0.096  # volts: one step of an 8 mV converter behind a divider by twelve
GOOD: dict[str, Value] = {"present": 1, "volts": 12.096, "nominal_volts": 12.0, "tolerance_ratio": 0.05}
GONE: dict[str, Value] = {"present": 0, "volts": Missing.ABSENT}


def begun() -> Story:
    """A host with one named rail and one pin that leads nowhere, two good ticks old."""
    story = Story(readings=healthy() | {RAIL: dict(GOOD), PIN: {"pin_volts": 2.04, "alarm": 1}})
    story.ticks(2)
    return story


def status(story: Story, type_: str) -> Status:
    return story.state.conditions[RAIL, type_].condition.status


def edges(story: Story) -> list[tuple[str, Status]]:
    return [(out.type, out.after) for out in story.out if isinstance(out, Transition)]


def test_a_sag_is_an_edge_at_the_second_tick_and_over_when_it_has_lasted() -> None:
    """Eight per cent for three ticks, then good; evidence, so nothing is opened and nothing dumped."""
    story = begun().set(RAIL, {"volts": 11.04})
    story.tick()
    assert status(story, "RailOutOfRange") is Status.FALSE
    story.tick()
    assert status(story, "RailOutOfRange") is Status.TRUE
    assert story.state.conditions[RAIL, "RailOutOfRange"].condition.reason == "volts 11.04, nominal_volts 12, tolerance_ratio 0.05"
    assert verdict(RULES, story.state) == "degraded"
    story.tick()
    story.set(RAIL, GOOD).ticks(2)
    assert status(story, "RailOutOfRange") is Status.TRUE
    story.tick()
    assert status(story, "RailOutOfRange") is Status.FALSE
    assert edges(story) == [("RailOutOfRange", Status.TRUE), ("RailOutOfRange", Status.FALSE)]
    assert story.state.incident is None
    assert verdict(RULES, story.state) == "healthy"


def test_one_step_of_the_converter_over_the_limit_and_back_is_no_edge() -> None:
    """However long it goes on."""
    story = begun()
    for tick in range(20):
        story.set(RAIL, {"volts": 11.424 - (tick % 2) * STEP}).tick()
    assert edges(story) == []


def test_while_it_is_out_of_range_a_step_back_is_not_the_end() -> None:
    """It has to have been good for a minute."""
    story = begun().set(RAIL, {"volts": 11.328})
    story.ticks(2)
    for tick in range(20):
        story.set(RAIL, {"volts": 11.424 - (tick % 2) * STEP}).tick()
    assert edges(story) == [("RailOutOfRange", Status.TRUE)]


def test_too_much_is_out_of_range_too_also_below_zero() -> None:
    """Of either sign."""
    for volts, nominal in ((12.7, 12.0), (-12.7, -12.0), (-11.3, -12.0)):
        story = begun().set(RAIL, {"volts": volts, "nominal_volts": nominal})
        story.ticks(2)
        assert status(story, "RailOutOfRange") is Status.TRUE
    story = begun().set(RAIL, {"volts": -12.1, "nominal_volts": -12.0})
    story.ticks(2)
    assert status(story, "RailOutOfRange") is Status.FALSE


def test_a_rail_that_does_not_answer_is_unknown_and_never_good() -> None:
    """The sensor is there, its reading is not."""
    story = begun().set(RAIL, {"volts": Missing.TIMED_OUT})
    story.tick()
    assert status(story, "RailOutOfRange") is Status.UNKNOWN
    assert status(story, "RailGone") is Status.FALSE
    assert verdict(RULES, story.state) == "unknown"


def test_a_rail_that_was_there_and_is_not_is_gone() -> None:
    """At the second tick, for a module that is loaded again is away for a moment; back after two good ones."""
    story = begun().set(RAIL, GONE)
    story.tick()
    assert status(story, "RailGone") is Status.FALSE
    story.tick()
    assert status(story, "RailGone") is Status.TRUE
    assert story.state.incident is None
    story.set(RAIL, GOOD).ticks(2)
    assert status(story, "RailGone") is Status.FALSE


def test_a_successor_knows_that_it_was_there() -> None:
    """What was learnt is on record; a new boot begins anew."""
    story = begun()
    assert RAIL in next(out.expected for out in reversed(story.out) if isinstance(out, Learnt))
    after = story.restart().set(RAIL, GONE)
    after.ticks(2)
    assert status(after, "RailGone") is Status.TRUE
    later = story.restart(new_boot=True).set(RAIL, GONE)
    later.ticks(2)
    assert status(later, "RailGone") is Status.UNKNOWN


def test_a_rail_that_never_was_there_is_unknown() -> None:
    """A word in the configuration is no evidence that there was anything."""
    story = Story(readings=healthy() | {RAIL: {**GOOD, **GONE}})
    story.ticks(4)
    assert status(story, "RailGone") is status(story, "RailOutOfRange") is Status.UNKNOWN
    assert edges(story) == []


def test_a_pin_nobody_has_named_is_never_judged() -> None:
    """Whatever it shows, and whatever its alarm says."""
    story = begun()
    for volts in (0.0, 4.08, Missing.MALFORMED):
        story.set(PIN, {"pin_volts": volts, "alarm": 1}).ticks(3)
    assert not [key for key in story.state.conditions if key[0].kind == "chip"]
    assert verdict(RULES, story.state) == "healthy"
