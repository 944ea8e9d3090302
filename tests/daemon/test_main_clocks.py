"""Somebody sets the clock: back by an hour, ahead by a day or a year. Times that count are monotonic, and nothing is lost.

A host that was suspended shows the same as one whose clock was set ahead: neither CLOCK_MONOTONIC nor the kernel log's stamps
count while it sleeps, so ticks go on where they were. What the fake clock cannot show is how devices come back.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from datetime import timedelta
from itertools import chain, groupby, pairwise
from pathlib import Path

import msgspec
import pytest

from tests.daemon.harness import Rig, numbers
from xidwatch.clock import from_iso, iso
from xidwatch.records import dumps, journal, samples

INTERVAL_SECONDS = 0.5
SWITCH = "0000:0f:00.0"
HOUR = timedelta(hours=1).total_seconds()
DAY = timedelta(days=1).total_seconds()

pytestmark = pytest.mark.slow


@pytest.fixture
def rig(tmp_path: Path) -> Iterator[Rig]:
    with Rig(tmp_path) as rig:
        yield rig


class Wall:
    """The wall clock of the daemons, as somebody sets it."""

    def __init__(self, rig: Rig) -> None:
        self.path = rig.folder / "shift"
        self.set_to(0.0)

    def set_to(self, seconds: float) -> None:
        """Off by so much from now on."""
        self._write(f"{seconds}")

    def runs_at(self, rate: float) -> float:
        """It gains so many seconds a second from now on; what it shows now."""
        self._write(f"0 {rate} {time.monotonic()}")
        return time.time()

    def _write(self, text: str) -> None:
        beside = self.path.with_suffix(".new")
        beside.write_text(text)
        beside.rename(self.path)


@pytest.fixture
def wall(rig: Rig) -> Wall:
    return Wall(rig)


def with_time(row: samples.Row, wall: float) -> samples.Row:
    """As this machine's clock would have dated it."""
    return msgspec.structs.replace(row, time=iso(wall))


def assert_on_time(rig: Rig, rows: list[samples.Row], jump: float) -> None:
    """Over all runs, but for the one jump each tick begins half a second after the one before; no number is left out."""
    now = time.time()
    rows = [with_time(row, min(row.wall, row.wall - jump, key=lambda wall: abs(now - wall))) for row in rows]
    assert all(after.tick in (1, before.tick + 1) for before, after in pairwise(rows))
    begins = [number for number, row in enumerate(rows) if row.tick == 1]
    for begin, end in pairwise([*begins, len(rows)]):
        assert rig.most_late(rows[begin:end], INTERVAL_SECONDS) < 0.5


def opened(rig: Rig) -> list[str | None]:
    return [entry.incident for entry in rig.journal() if entry.kind == "opened"]


@pytest.mark.parametrize("jump", [-HOUR, DAY], ids=["an-hour-back", "a-day-ahead-or-asleep"])
def test_a_jump_in_the_midst_of_an_incident_changes_nothing_but_the_dates(rig: Rig, wall: Wall, jump: float) -> None:
    """Ticks keep their times, the incident stays the one it was and closes, and a successor knows it; every row can be read."""
    rules = rig.rules(ConfigSpaceAllOnes={"clear": "1s"})
    first = rig.start(rig.pci(), rig.host(), rules_dir=rules, wall_shift=wall.path)
    first.settle()
    rig.tree.die(SWITCH)
    first.line("TAKE_DUMP .* ok")
    incident = first.until("an incident is open", lambda: first.state()["incident"])
    wall.set_to(jump)
    first.ticks_more(2)
    assert first.state()["incident"] == incident
    first.kill()

    second = rig.start(rig.pci(), rig.host(), rules_dir=rules, wall_shift=wall.path)
    second.tick(2)
    second.until_condition("ConfigSpaceAllOnes", f"port:{SWITCH}", "TRUE")
    assert second.state()["incident"] == incident
    rig.tree.recover(SWITCH)
    second.line("incident .* closed")
    second.ticks_more(1)
    assert second.terminate()[0] == 0

    entries, rows = rig.journal(), rig.rows()
    days = [list(day) for _, day in groupby(rows, key=lambda row: row.time[:10])]
    assert_on_time(rig, list(chain.from_iterable(days if jump > 0 else reversed(days))), jump)
    assert sorted(numbers(entries)) == list(range(1, len(entries) + 1))
    assert opened(rig) == [incident]
    assert len(dumps.folders(rig.state_dir)) == 1
    assert {row.time[:10] for row in rows} == {path.name[:10] for path in samples.files(rig.state_dir / samples.FOLDER)}
    assert {path.name[:10] for path in journal.days(rig.state_dir)} == {entry.time[:10] for entry in entries}
    assert {row.tick for row in rows} >= set(range(1, max(first.tick_lines())))


@pytest.mark.parametrize("rate", [-0.4, 0.4], ids=["slow", "fast"])
def test_a_clock_that_is_slewed_moves_no_tick(rig: Rig, wall: Wall, rate: float) -> None:
    """A thousand times as hard as NTP does: a tick is half a second of the other clock, whatever this one makes of it; hold times too."""
    rules = rig.rules(ConfigSpaceAllOnes={"clear": "1s"})
    running = rig.start(rig.pci(), rig.host(), rules_dir=rules, wall_shift=wall.path)
    running.settle()
    begun = wall.runs_at(rate)
    from_then = running.ticks_more(1)
    rig.tree.die(SWITCH)
    running.line("incident .* opened")
    rig.tree.recover(SWITCH)
    running.line("incident .* closed")
    running.ticks_more(1)
    assert running.terminate()[0] == 0
    rows = [row for row in rig.rows() if row.tick >= from_then]
    assert [row.tick for row in rows] == list(range(from_then, from_then + len(rows)))
    assert rig.most_late([with_time(row, (row.wall + rate * begun) / (1 + rate)) for row in rows], INTERVAL_SECONDS) < 0.5
    ends = {name: next(entry.wall for entry in rig.journal() if entry.kind == name) for name in ("opened", "closed")}
    assert ends["closed"] - ends["opened"] > (1 + rate) * 1.0 - INTERVAL_SECONDS
    assert len(opened(rig)) == 1


def test_a_clock_set_ahead_and_back_uses_up_no_dumps(rig: Rig, wall: Wall) -> None:
    """Dumps dated by a clock that was a year ahead are not counted as today's for a year: the next incident has its dump."""
    rules = rig.rules(ConfigSpaceAllOnes={"clear": "400ms"})
    running = rig.start(rig.pci(), rig.host(), rules_dir=rules, wall_shift=wall.path, patience={"xidwatch.core.incidents:DUMPS_PER_DAY": 2})
    running.settle()
    for shift in (365 * DAY, 365 * DAY, 0.0):
        wall.set_to(shift)
        heard = len(running.lines)
        rig.tree.die(SWITCH)
        running.line("TAKE_DUMP .* ok", after=heard)
        rig.tree.recover(SWITCH)
        running.line("incident .* closed", after=heard)
    assert running.terminate()[0] == 0
    assert len(dumps.folders(rig.state_dir)) == 3


def test_what_is_shown_since_when_is_never_in_the_future(rig: Rig, wall: Wall) -> None:
    """After a jump back the state file is dated now, and whoever reads its age reads it from the clock nobody can set."""
    running = rig.start(rig.pci(), rig.host(), wall_shift=wall.path)
    running.settle()
    before = running.state()
    wall.set_to(-HOUR)
    running.ticks_more(2)
    after = running.state()
    assert from_iso(before["time"]) - from_iso(after["time"]) == pytest.approx(HOUR, abs=30)
    assert 0 < after["mono_ms"] - before["mono_ms"] < 30_000
    assert running.metrics()["xidwatch_sample_age_seconds"] < 2 * INTERVAL_SECONDS
    assert running.terminate()[0] == 0
