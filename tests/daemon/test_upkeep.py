"""Maintenance: begun by somebody's word, ended by itself, and followed by what has changed."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from typing import Any

import pytest

from tests.fakes.clock import FakeClock
from xidwatch.core.comparison import Here
from xidwatch.core.gate_model import Maintenance
from xidwatch.core.messages import MaintenanceSet
from xidwatch.core.model import Readings, Subject
from xidwatch.daemon.scribe import Scribe
from xidwatch.daemon.upkeep import PATIENT_TICKS, Upkeep

GPU = Subject("gpu", "0000:11:00.0")
ON = {"do": "maintenance-on", "for": "30m", "reason": "driver upgrade", "user": "alice"}
OFF = {"do": "maintenance-off", "user": "bob"}


class World:
    """What the daemon would know, and what it is told."""

    def __init__(self) -> None:
        self.clock = FakeClock()
        self.maintenance: Maintenance | None = None
        self.facts: Readings = {GPU: {"uuid": "GPU-1"}}
        self.taken: list[MaintenanceSet] = []
        self.notes: list[str] = []
        self.is_current = self.is_listed = True
        self.asked = 0
        numbers = itertools.count(1)
        scribe = Scribe(self, self.clock, lambda letter: f"{letter}-{next(numbers)}")  # type: ignore[arg-type]
        self.upkeep = Upkeep(self.clock, scribe, self, lambda: (self.maintenance, Here(self.facts, self.is_listed)), self.take)  # type: ignore[arg-type]

    def take(self, given: MaintenanceSet) -> None:
        self.taken.append(given)
        self.maintenance = given.maintenance

    def journal(self, record: Mapping[str, Any]) -> tuple[int, ...]:
        self.notes.append(record["note"]["text"])
        return (1,)

    def log(self, *_: object) -> None:
        pass

    def want(self) -> None:
        self.asked += 1

    def ask(self, request: Mapping[str, object]) -> str:
        return str(self.upkeep.answer(request, 0)["text"])


@pytest.fixture
def world() -> World:
    return World()


def test_it_begins_with_a_reason_and_an_end(world: World) -> None:
    """Who asked is what the kernel says, beside what the command says."""
    said = world.ask(ON)
    (given,) = world.taken
    assert given.maintenance == Maintenance(world.clock.now(), world.clock.now().wall + 1800, "driver upgrade", "alice (uid 0)")
    assert "until 2026-09-17T02:40:08.412Z" in said
    assert "in maintenance until 2026-09-17T02:40:08.412Z (driver upgrade)" in world.upkeep.refusal()


@pytest.mark.parametrize("changes", [{"for": "soon"}, {"for": "0s"}, {"for": "25h"}, {"for": ""}, {"reason": " "}, {"reason": ""}])
def test_what_has_no_end_or_no_reason_is_refused(world: World, changes: Mapping[str, str]) -> None:
    """Nothing begins."""
    with pytest.raises(ValueError, match=r"duration|more than nothing|a reason"):
        world.ask({**ON, **changes})
    assert world.taken == []


def test_it_ends_by_itself_at_the_first_tick_after_its_time(world: World) -> None:
    """Not before; then the driver may be asked again, and everybody is."""
    world.ask(ON)
    world.clock.advance(1799)
    world.upkeep.tick()
    assert world.upkeep.refusal()
    world.clock.advance(1)
    world.upkeep.tick()
    assert world.upkeep.refusal() == ""
    assert world.taken[-1].maintenance is None
    assert world.asked == 1


def test_it_is_ended_by_a_word(world: World) -> None:
    """Only where it is on."""
    world.ask(ON)
    world.ask(OFF)
    assert world.taken[-1].maintenance is None
    assert world.taken[-1].by == "bob (uid 0)"
    with pytest.raises(ValueError, match="not in maintenance"):
        world.ask(OFF)


def test_it_can_be_made_longer(world: World) -> None:
    """It is the same maintenance: what is compared in the end is what was there before its beginning."""
    world.ask(ON)
    began = world.clock.now()
    world.facts = {}
    world.clock.advance(600)
    world.ask(ON)
    assert world.maintenance is not None
    assert (world.maintenance.began, world.maintenance.until) == (began, world.clock.now().wall + 1800)
    world.ask(OFF)
    world.upkeep.tick()
    assert world.notes == ["after maintenance: gpu:0000:11:00.0 is not there any more (GPU-1)."]


def test_what_has_changed_is_said_once_everybody_has_answered(world: World) -> None:
    """And once only."""
    world.ask(ON)
    world.facts = {GPU: {"uuid": "GPU-9"}}
    world.is_current = False
    world.ask(OFF)
    world.upkeep.tick()
    assert world.notes == []
    world.is_current = True
    world.upkeep.tick()
    world.upkeep.tick()
    assert world.notes == ["after maintenance: gpu:0000:11:00.0: uuid was GPU-1 and is GPU-9."]


def test_who_does_not_answer_again_is_not_waited_for_for_ever(world: World) -> None:
    """After ten ticks the rest is compared, and that somebody is missing is said."""
    world.is_current = False
    world.ask(ON)
    world.ask(OFF)
    for _ in range(PATIENT_TICKS):
        world.upkeep.tick()
    (said,) = world.notes
    assert said.startswith("after maintenance: nobody and nothing in the inventory has changed. Not everybody has answered")


@pytest.mark.parametrize("late", ["when it begins", "when it ends"])
def test_at_a_tick_without_the_list_of_devices_nobody_is_new_or_gone(world: World, late: str) -> None:
    """A probe that came too late on a busy host: the next tick says who is there."""
    there = world.facts
    for when, order in (("when it begins", ON), ("when it ends", OFF)):
        world.facts, world.is_listed = ({}, False) if when == late else (there, True)
        world.ask(order)
        world.upkeep.tick()
        world.facts, world.is_listed = there, True
        world.upkeep.tick()
    assert world.notes == ["after maintenance: nobody and nothing in the inventory has changed."]


def test_where_no_list_of_devices_ever_comes_they_are_not_compared(world: World) -> None:
    """That it is so is said."""
    world.is_listed = False
    world.ask(ON)
    world.upkeep.tick()
    world.facts = {}
    world.ask(OFF)
    world.upkeep.tick()
    (said,) = world.notes
    assert said.startswith("after maintenance: nobody and nothing in the inventory has changed. Not everybody has answered")


def test_one_that_was_begun_in_an_earlier_run_goes_on(world: World) -> None:
    """With the inventory of this one to compare with."""
    world.maintenance = Maintenance(world.clock.now(), world.clock.now().wall + 60, "card swap")
    world.upkeep.tick()
    world.clock.advance(60)
    world.facts = {}
    world.upkeep.tick()
    world.upkeep.tick()
    assert world.notes == ["after maintenance: gpu:0000:11:00.0 is not there any more (GPU-1)."]


@pytest.mark.parametrize("step", [3600.0, -10 * 3600.0, 74 * 365 * 86400.0])
def test_a_clock_that_is_set_neither_ends_it_nor_makes_it_last(world: World, step: float) -> None:
    """Half an hour is half an hour: acting on a host that is still worked on does harm, and so does never acting again."""
    world.ask(ON)
    world.clock.set_by = step
    world.upkeep.tick()
    assert world.upkeep.refusal()
    world.clock.advance(1800)
    world.upkeep.tick()
    assert world.upkeep.refusal() == ""


def test_one_of_an_earlier_run_lasts_a_day_at_most(world: World) -> None:
    """Its end may have been reckoned by a clock that stood decades ahead."""
    world.maintenance = Maintenance(world.clock.now(), world.clock.now().wall + 74 * 365 * 86400.0, "card swap")
    world.upkeep.tick()
    world.clock.advance(24 * 3600)
    world.upkeep.tick()
    assert world.upkeep.refusal() == ""
