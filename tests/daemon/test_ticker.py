"""When ticks happen, whom they ask, and what they hand over."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

import pytest

from tests.fakes.nursery import Stage
from xidwatch.core.model import Missing, Moment, Subject
from xidwatch.core.ticks import Answer
from xidwatch.daemon.ticker import Ticker
from xidwatch.daemon.workers import Ask, Workers

INTERVAL = 30.0
DEADLINES = {"pci": 4.0, "host": 2.0}
SUBJECT = Subject("host")


class Asked(Workers):
    """Stands for the pool: keeps what it was asked, answers when the test says so, or at the deadline."""

    def __init__(self, stage: Stage) -> None:
        self.stage = stage
        self.asks: list[Ask] = []
        self.tended = 0

    def ask(self, probe: str, what: str, deadline: float, on_end: Callable[[Ask], None]) -> None:
        ask = Ask(len(self.asks) + 1, probe, what, self.stage.now, deadline, on_end)
        self.asks.append(ask)
        self.stage.loop.at(deadline, lambda: ask.end("timeout", "no answer before the deadline"))

    def tend(self) -> None:
        self.tended += 1

    def answer(self) -> None:
        """All that is open, in full."""
        for ask in self.asks:
            ask.readings = ask.readings or {SUBJECT: {"load_1m": 0.5}}
            ask.end("done")


class Ticks:
    """A ticker and what it told: number, time since the first tick, how each probe's request ended."""

    def __init__(self, stage: Stage, deadlines: Mapping[str, float] = DEADLINES) -> None:
        self.stage = stage
        self.workers = Asked(stage)
        self.refusals: dict[str, str] = {}
        self.told: list[tuple[int, float, dict[str, str]]] = []
        self.answers: Mapping[str, Answer] = {}
        self.began = stage.now
        self.ticker = Ticker(stage.loop, self.workers, deadlines, INTERVAL, lambda: self.refusals, self._tick)

    def _tick(self, number: int, at: Moment, answers: Mapping[str, Answer]) -> None:
        self.told.append((number, at.mono - self.began, {name: answer.ended for name, answer in answers.items()}))
        self.answers = answers

    def passes(self, seconds: float, step: float = 0.5) -> None:
        """Time goes by in small steps, as it does."""
        for _ in range(round(seconds / step)):
            self.stage.passes(step)

    def times(self) -> list[float]:
        return [at for _, at, _ in self.told]


@pytest.fixture
def ticks() -> Iterator[Ticks]:
    with Stage() as stage:
        yield Ticks(stage)


ALL_DONE = {"pci": "done", "host": "done"}


def test_the_first_tick_is_at_once_and_over_when_all_have_answered(ticks: Ticks) -> None:
    """Nobody is waited for longer than it takes."""
    ticks.ticker.begin()
    assert [(ask.probe, ask.what, ask.deadline - ask.begun) for ask in ticks.workers.asks] == [
        ("pci", "sample", 4.0),
        ("host", "sample", 2.0),
    ]
    ticks.workers.asks[1].end("done")
    assert ticks.told == []
    ticks.workers.asks[0].end("done")
    assert ticks.told == [(1, 0.0, ALL_DONE)]


def test_a_tick_is_over_at_the_last_deadline_at_the_latest(ticks: Ticks) -> None:
    """What has come counts; who has not answered is in it as such."""
    ticks.ticker.begin()
    ticks.workers.asks[0].readings = {SUBJECT: {"load_1m": 0.5}}
    ticks.passes(2.0)
    ticks.passes(1.5)
    assert ticks.told == []
    ticks.passes(0.5)
    assert ticks.told == [(1, 0.0, {"host": "timeout", "pci": "timeout"})]
    assert ticks.answers["pci"].readings == {SUBJECT: {"load_1m": 0.5}}
    assert ticks.answers["pci"].why == "no answer before the deadline"


def test_a_look_renews_what_was_said_before_it(ticks: Ticks) -> None:
    """A device dies while the tick waits for another probe: the tick tells what it is like now, and nothing that nobody asked for."""
    ticks.ticker.begin()
    port, other = Subject("port", "0000:0f:00.0"), Subject("port", "0000:00:01.1")
    ticks.workers.asks[0].readings = {port: {"config_dword0": 0xC0101000, "driver": "pcieport"}, other: {"config_dword0": 0x14531022}}
    ticks.workers.asks[0].end("done")
    gpu = Subject("gpu", "0000:11:00.0")
    ticks.ticker.renew({port: {"config_dword0": 0xFFFFFFFF, "link_width": 63}, gpu: {"config_dword0": Missing.BEHIND_DEAD_PARENT}})
    ticks.workers.asks[1].end("done")
    ticks.ticker.renew({other: {"config_dword0": 0xFFFFFFFF}})  # too late for this tick
    assert ticks.answers["pci"].readings == {
        port: {"config_dword0": 0xFFFFFFFF, "driver": "pcieport"},
        other: {"config_dword0": 0x14531022},
    }


def test_slow_answers_do_not_shift_the_next_tick(ticks: Ticks) -> None:
    """Times are counted from the first tick, not from the last."""
    ticks.ticker.begin()
    ticks.passes(100.0)
    assert ticks.times() == [0.0, 30.0, 60.0, 90.0]
    assert ticks.ticker.missed == 0


def test_ticks_that_were_overslept_are_left_out_and_counted(ticks: Ticks) -> None:
    """After a stop of the whole process the next tick is on the old plan; nothing is made up for in a burst."""
    ticks.ticker.begin()
    ticks.workers.answer()
    ticks.stage.passes(95.0)
    ticks.workers.answer()
    ticks.passes(30.0)
    ticks.workers.answer()
    assert ticks.times() == [0.0, 95.0, 120.0]
    assert [number for number, _, _ in ticks.told] == [1, 2, 3]
    assert ticks.ticker.missed == 2


def test_a_tick_that_began_late_is_over_before_the_next_begins(ticks: Ticks) -> None:
    """The loop was held up until shortly before the next tick: its deadline comes early, and its row is not lost to the next one."""
    ticks.ticker.begin()
    ticks.workers.answer()
    ticks.stage.passes(INTERVAL + 28.0)
    ticks.passes(10.0)
    assert [(number, at) for number, at, _ in ticks.told] == [(1, 0.0), (2, INTERVAL + 28.0), (3, 2 * INTERVAL)]
    assert ticks.told[1][2] == {"pci": "timeout", "host": "timeout"}


def test_who_is_not_to_be_asked_is_not_asked_and_says_why(ticks: Ticks) -> None:
    """A released driver stays out of the tick, and the answer in its place tells the reason."""
    ticks.refusals["pci"] = "released"
    ticks.ticker.begin()
    assert [ask.probe for ask in ticks.workers.asks] == ["host"]
    ticks.workers.answer()
    assert ticks.told == [(1, 0.0, {"pci": "not-asked", "host": "done"})]
    assert ticks.answers["pci"].why == "released"
    assert ticks.workers.tended == 1


def test_without_anybody_to_ask_a_tick_is_a_tick() -> None:
    """Every probe refused: the row is still written, and on time."""
    with Stage() as stage:
        ticks = Ticks(stage, {"nvml": 5.0})
        ticks.refusals["nvml"] = "released"
        ticks.ticker.begin()
        ticks.passes(INTERVAL)
        assert ticks.times() == [0.0, 30.0]


@pytest.mark.parametrize(
    ("changed_at", "interval", "next_tick"),
    [
        pytest.param(10.0, 60.0, 60.0, id="longer"),
        pytest.param(10.0, 20.0, 20.0, id="shorter"),
        pytest.param(10.0, 5.0, 10.0, id="already-due"),
        pytest.param(2.0, 1.0, 4.0, id="not-into-the-open-tick"),
    ],
)
def test_a_new_interval_counts_from_the_last_tick(ticks: Ticks, changed_at: float, interval: float, next_tick: float) -> None:
    """It takes effect at once and not after the old one; a tick under way keeps its deadlines."""
    ticks.ticker.begin()
    ticks.passes(changed_at)
    ticks.ticker.change({"pci": 0.8, "host": 0.8}, interval)
    ticks.stage.turn()
    ticks.passes(130.0)
    assert ticks.told[0][1:] == (0.0, {"host": "timeout", "pci": "timeout"})
    assert ticks.times()[1:3] == [next_tick, next_tick + interval]


def test_after_the_end_nothing_comes(ticks: Ticks) -> None:
    """The tick under way is dropped, no other is planned, and a change of settings does not revive it."""
    ticks.ticker.begin()
    ticks.ticker.end()
    ticks.workers.answer()
    ticks.ticker.change(DEADLINES, 1.0)
    ticks.passes(60.0)
    assert ticks.told == []
