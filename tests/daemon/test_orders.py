"""Orders that opened a gate past the daemon: on record once, and cleared away when they are over."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest

from tests.fakes.clock import BOOT_ID, FakeClock
from xidwatch.daemon.orders import Orders
from xidwatch.daemon.rundir import RunDir
from xidwatch.daemon.scribe import Scribe
from xidwatch.records import order
from xidwatch.records.order import Order

UNIT = "vllm.service"


class World:
    """A run directory in memory, and a journal that is listened to."""

    def __init__(self, folder: Path) -> None:
        self.clock = FakeClock()
        self.rundir = RunDir(folder)
        self.notes: list[str] = []
        self.on_record: Callable[[], object] = lambda: None  # what somebody else does just then
        numbers = itertools.count(1)
        self.scribe = Scribe(self, self.clock, lambda letter: f"{letter}-{next(numbers)}")  # type: ignore[arg-type]
        self.orders = Orders(self.rundir, self.clock, self.scribe)

    def journal(self, record: Mapping[str, Any]) -> tuple[int, ...]:
        self.notes.append(record["note"]["text"])
        self.on_record()
        return (1,)

    def log(self, *_: object) -> None:
        pass

    def give(self, seconds: float, boot_id: str = BOOT_ID) -> Order:
        until_ms = int((self.clock.mono + seconds) * 1000)
        given = Order(
            unit=UNIT, boot_id=boot_id, until_mono_ms=until_ms, until="03:10", at="02:10", reason="broken daemon", by="alice (uid 0)"
        )
        order.write(self.rundir.path, given)
        return given


@pytest.fixture
def world() -> Iterator[World]:
    with TemporaryDirectory(dir="/dev/shm") as folder:
        world = World(Path(folder) / "run")
        yield world
        world.rundir.release()


def test_an_order_is_journalled_once(world: World) -> None:
    """By the daemon that finds it, in whatever tick, and by no other."""
    world.give(3600)
    for _ in range(3):
        world.orders.look()
    who = "by order of alice (uid 0), given at 02:10: broken daemon"
    assert world.notes == [f"the gate of vllm.service is open until 03:10, whatever is known of the hardware, {who}"]
    assert world.orders.in_force.keys() == {UNIT}


def test_an_order_that_is_over_is_cleared_away(world: World) -> None:
    """Its end needs no record, which stands in its beginning."""
    world.give(60)
    world.orders.look()
    world.clock.advance(60)
    world.orders.look()
    assert world.orders.in_force == {}
    assert list(order.units(world.rundir.path)) == []
    assert len(world.notes) == 1


def test_one_that_came_and_went_without_a_daemon_is_journalled_all_the_same(world: World) -> None:
    """As what it was."""
    world.give(-1)
    world.orders.look()
    world.orders.look()
    assert world.notes == ["the gate of vllm.service was open until 03:10 by order of alice (uid 0), given at 02:10: broken daemon"]
    assert list(order.units(world.rundir.path)) == []


def test_one_taken_back_is_journalled_as_that(world: World) -> None:
    """Beside the record of its beginning."""
    given = world.give(3600)
    world.orders.look()
    order.write(world.rundir.path, given.taken_back("02:20"))
    world.orders.look()
    world.orders.look()
    assert len(world.notes) == 2
    assert "was open until 02:20, when the order was taken back" in world.notes[1]
    assert list(order.units(world.rundir.path)) == []


def test_one_taken_back_while_it_is_journalled_stays_taken_back(world: World) -> None:
    """The daemon writes no order, so it cannot undo one; the end is journalled like the beginning."""
    given = world.give(3600)
    world.on_record = lambda: order.write(world.rundir.path, given.taken_back("02:20"))
    world.orders.look()
    world.on_record = lambda: None
    found = order.read(world.rundir.path, UNIT)
    assert found is not None
    assert found.withdrawn
    world.orders.look()
    assert world.orders.in_force == {}
    assert len(world.notes) == 2


def test_a_daemon_leaves_the_file_of_an_order_as_it_is(world: World) -> None:
    """To the byte and the inode: it belongs to who gave it."""
    world.give(3600)
    place = order.place(world.rundir.path, UNIT)
    before = (place.read_bytes(), place.stat().st_ino)
    world.orders.look()
    assert (place.read_bytes(), place.stat().st_ino) == before


def test_a_successor_journals_nothing_twice(world: World) -> None:
    """But a new order, though it says almost the same."""
    world.give(3600)
    world.orders.look()
    later = Orders(world.rundir, world.clock, world.scribe)
    later.look()
    assert len(world.notes) == 1
    assert later.in_force.keys() == {UNIT}
    world.give(7200)
    later.look()
    assert len(world.notes) == 2


def test_one_that_cannot_be_marked_is_journalled_once_all_the_same(world: World) -> None:
    """By this daemon, which remembers."""
    place = order.place(world.rundir.path, UNIT)
    place.parent.mkdir(exist_ok=True)
    place.with_name(f".{place.name}.journalled.tmp").mkdir()
    world.give(3600)
    world.orders.look()
    world.orders.look()
    assert len(world.notes) == 1


def test_one_that_may_not_be_believed_is_said_once_and_left(world: World) -> None:
    """Somebody should look at it."""
    world.give(3600)
    order.place(world.rundir.path, UNIT).chmod(0o666)
    world.orders.look()
    world.orders.look()
    (said,) = world.notes
    assert "does not count" in said
    assert world.orders.in_force == {}


def test_a_run_directory_on_a_disk_is_not_looked_at(world: World) -> None:
    """The loop waits for none."""
    world.rundir.in_memory = False
    world.give(3600)
    world.orders.look()
    assert world.notes == []
