"""Asking, deadlines, giving up and starting over, with the test in the place of every worker process."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping

import pytest

from tests.fakes.nursery import Child, Stage
from xidwatch.core.model import Missing, Subject
from xidwatch.core.power import Stretch
from xidwatch.daemon import channel, processes, workers
from xidwatch.daemon.processes import Abandoned
from xidwatch.daemon.workers import LEAVING_SECONDS, MOST_ABANDONED, TRACE_BURST, Ask, ProbeSpec, Workers

PORTS = tuple(f"port:0000:0{n}:00.0" for n in range(6))
GPU = "gpu:0000:11:00.0"
DEADLINE = 1.0
FIRST_NVML = 60.0
SPECS = (
    ProbeSpec("pci", "pci:create", deadline_seconds=DEADLINE, first_deadline_seconds=DEADLINE),
    ProbeSpec("nvml", "nvml:create", deadline_seconds=DEADLINE, first_deadline_seconds=FIRST_NVML, holds_driver=True),
)


def reading(ask: int, subject: str, value: object = 0xC0101000, quantity: str = "config_dword0") -> dict[str, object]:
    return {"ask": ask, "reading": {"subject": subject, "quantity": quantity, "value": value}}


def at(ask: int, subject: str) -> dict[str, object]:
    return {"ask": ask, "at": subject}


def done(ask: int, took_ms: int = 7) -> dict[str, object]:
    return {"ask": ask, "done": True, "took_ms": took_ms}


def trace(first_us: int = 1000, count: int = 2, ask: int = 0) -> dict[str, object]:
    steps = [20_000] * (count - 1)
    found = {"subject": GPU, "source": "buffer", "first_us": first_us, "steps_us": steps, "milliwatts": [250_000] * count}
    return {"ask": ask, "trace": found}


TRACE: dict[str, object] = {"subject": GPU, "source": "buffer", "first_us": 1000, "milliwatts": [1, 2]}


class Pool:
    """The pool under test, and the processes that are alive as far as it can see."""

    def __init__(self, stage: Stage, alive: dict[int, int], adopted: tuple[Abandoned, ...] = ()) -> None:
        self.stage = stage
        self.alive = alive
        self.traced: list[Stretch] = []
        self.workers = Workers(stage.loop, stage.nursery, SPECS, adopted=adopted, on_trace=self.traced.append)

    @property
    def children(self) -> list[Child]:
        return self.stage.nursery.children

    def ask(self, probe: str = "pci", what: str = "sample", seconds: float = DEADLINE) -> list[Ask]:
        """Ask, and see every new child born. What is returned holds the answer once it has ended."""
        answers: list[Ask] = []
        known = len(self.children)
        self.workers.ask(probe, what, self.stage.now + seconds, answers.append)
        for child in self.children[known:]:
            self.born(child)
        self.stage.turn()
        return answers

    def born(self, child: Child) -> None:
        pid = 1000 + child.request
        self.alive[pid] = pid * 10
        assert self.workers.started(child.request, pid, pid * 10)

    def gets_stuck(self, subject: str, probe: str = "pci") -> list[Ask]:
        """A request that hangs at a subject until its deadline has passed."""
        answers = self.ask(probe)
        child = self.children[-1]
        child.says(at(child.hears()[-1]["ask"], subject))
        self.stage.turn()
        self.stage.passes(DEADLINE)
        return answers


@pytest.fixture
def alive(monkeypatch: pytest.MonkeyPatch) -> dict[int, int]:
    """Process number to start time, of the processes there are."""
    table: dict[int, int] = {}
    monkeypatch.setattr(processes, "start_ticks", table.get)
    monkeypatch.setattr(os, "kill", lambda _pid, _signum: None)
    return table


@pytest.fixture
def stage() -> Iterator[Stage]:
    with Stage() as stage:
        yield stage


@pytest.fixture
def pool(stage: Stage, alive: dict[int, int]) -> Pool:
    return Pool(stage, alive)


def ends(answers: list[Ask]) -> list[tuple[str, str]]:
    return [(ask.ended, ask.why) for ask in answers]


def values(ask: Ask) -> Mapping[str, Mapping[str, object]]:
    return {str(subject): found for subject, found in ask.readings.items()}


# --- an answer


def test_an_answer_is_its_readings_and_its_end(pool: Pool) -> None:
    """Readings of one request are gathered until it says that it is done."""
    answers = pool.ask()
    (child,) = pool.children
    assert child.hears() == [{"ask": 1, "what": "sample", "deadline_ms": 1000}]
    missing = {"ask": 1, "reading": {"subject": PORTS[1], "quantity": "config_dword0", "missing": "ASLEEP"}}
    child.says(at(1, PORTS[0]), reading(1, PORTS[0]), missing)
    pool.stage.turn()
    assert answers == []
    child.says(done(1, took_ms=17))
    pool.stage.turn()
    assert ends(answers) == [("done", "")]
    assert values(answers[0]) == {PORTS[0]: {"config_dword0": 0xC0101000}, PORTS[1]: {"config_dword0": Missing.ASLEEP}}
    assert (answers[0].took_ms, answers[0].at) == (17, PORTS[0])


def test_a_probe_that_cannot_answer_says_why(pool: Pool) -> None:
    """A failure of the source as a whole is an answer, with its name and its text, and the worker serves on."""
    answers = pool.ask()
    pool.children[0].says({"ask": 1, "failed": {"type": "NVMLError_DriverNotLoaded", "text": "Driver Not Loaded"}})
    pool.stage.turn()
    assert ends(answers) == [("failed", "Driver Not Loaded")]
    assert answers[0].failure == "NVMLError_DriverNotLoaded"
    pool.ask()
    assert len(pool.children) == 1


@pytest.mark.parametrize(
    "line",
    [
        b"not json\n",
        b"\xff\xfe\n",
        b"[1]\n",
        b'{"ask": 2, "done": true}\n',
        b'{"ask": 1}\n',
        b'{"ask": 1, "reading": {"subject": "port:0000:01:00.0", "quantity": "command"}}\n',
        b'{"ask": 1, "reading": {"subject": "", "quantity": "command", "value": 1}}\n',
        b"x" * (channel.MAX_LINE + 1),
    ],
    ids=["no-json", "no-text", "no-object", "not-open", "says-nothing", "no-value", "no-subject", "too-long"],
)
def test_what_breaks_the_protocol_ends_the_worker_and_not_what_was_learnt(pool: Pool, line: bytes) -> None:
    """Rubbish is told as rubbish; the readings before it count, and its speaker is let go."""
    answers = pool.ask()
    (child,) = pool.children
    child.says(reading(1, PORTS[0]))
    child.raw(line)
    pool.stage.turn()
    assert [ask.ended for ask in answers] == ["garbage"]
    assert values(answers[0]) == {PORTS[0]: {"config_dword0": 0xC0101000}}
    assert child.is_let_go()


def test_an_answer_to_nothing_ends_the_worker(pool: Pool) -> None:
    """A worker that speaks unasked is replaced at the next request."""
    pool.ask()
    child = pool.children[0]
    child.says(done(1))
    pool.stage.turn()
    child.says(done(1))
    pool.stage.turn()
    assert child.is_let_go()
    assert ends(pool.ask()) == [("timeout", "process 1001 of this probe has not ended and does not say where it is")]
    del pool.alive[1001]
    pool.ask()
    assert len(pool.children) == 2


def test_a_flood_is_cut_off(pool: Pool, monkeypatch: pytest.MonkeyPatch) -> None:
    """An answer may be so long and no longer, however well formed its lines."""
    monkeypatch.setattr(workers, "MAX_ANSWER", 1000)
    answers = pool.ask()
    pool.children[0].says(*[reading(1, PORTS[0])] * 20)
    pool.stage.turn()
    assert ends(answers) == [("garbage", "more than 1000 bytes in answer to one request")]


# --- what is said unasked


def test_a_trace_is_taken_before_amidst_and_after_an_answer(pool: Pool) -> None:
    """Nobody asked for it; the answer is none the poorer, and the worker serves on."""
    answers = pool.ask("nvml")
    (child,) = pool.children
    child.says(trace(1000), reading(1, GPU, 231.4, "power_mean_watts"), trace(2000), done(1), trace(3000))
    pool.stage.turn()
    child.says(trace(4000))
    pool.stage.turn()
    assert ends(answers) == [("done", "")]
    assert values(answers[0]) == {GPU: {"power_mean_watts": 231.4}}
    assert [stretch.stamps_us for stretch in pool.traced] == [(first, first + 20_000) for first in (1000, 2000, 3000, 4000)]
    pool.ask("nvml")
    assert len(pool.children) == 1


def test_a_trace_from_a_worker_that_is_late_counts_and_is_no_answer(pool: Pool) -> None:
    """It was written before the call that does not return; its sender is as late as before."""
    pool.ask("nvml")
    pool.children[0].says(done(1))
    pool.stage.turn()
    answers = pool.ask("nvml")
    pool.stage.passes(DEADLINE)
    pool.children[0].says(trace())
    pool.stage.turn()
    assert len(pool.traced) == 1
    assert ends(answers) == [("timeout", "no answer before the deadline")]
    pool.stage.passes(1.0)
    assert pool.workers.stuck_seconds("nvml", pool.stage.now) >= 1.0


@pytest.mark.parametrize("line", [trace(ask=1), {"ask": 0, "trace": {"subject": GPU}}, {"ask": 0, "trace": {**TRACE, "steps_us": [0]}}])
def test_a_trace_that_is_none_is_rubbish(pool: Pool, line: dict[str, object]) -> None:
    """As the answer to a request, without its numbers, or with stamps that stand still."""
    answers = pool.ask("nvml")
    pool.children[0].says(line)
    pool.stage.turn()
    assert [how for how, _ in ends(answers)] == ["garbage"]
    assert pool.traced == []


def test_a_flood_of_traces_is_cut_off(pool: Pool) -> None:
    """However well formed: what it may say at once is more than a socket holds back, and then it is out."""
    answers = pool.ask("nvml")
    (child,) = pool.children
    line = len(json.dumps(trace(count=900)))
    for _ in range(2 * int(TRACE_BURST) // line):
        if child_is_heard(pool, child):
            child.says(trace(count=900))
            pool.stage.turn()
    assert [how for how, _ in ends(answers)] == ["garbage"]
    assert len(pool.traced) * line <= TRACE_BURST


def child_is_heard(pool: Pool, child: Child) -> bool:
    """Nobody reads any more what was left behind says."""
    child.hears()
    return not child.told_to_leave


def test_a_steady_trace_is_no_flood(pool: Pool) -> None:
    """Sixteen GPUs at 50 Hz for minutes of the clock, in one breath each half second."""
    pool.ask("nvml")
    (child,) = pool.children
    lines = [trace(count=25)] * 16
    for _ in range(250):
        child.says(*lines)
        pool.stage.passes(0.5)
    assert len(pool.traced) == 250 * 16
    assert child_is_heard(pool, child)


def test_a_worker_that_dies_is_told_apart_from_one_that_talks_rubbish(pool: Pool) -> None:
    """Its end in the middle of an answer is a crash, also when it had not yet read all it was sent; its last words are heard."""
    answers = pool.ask()
    pool.children[0].says(reading(1, PORTS[0]))
    pool.children[0].dies()  # its request lies unread: reading here gives ECONNRESET
    pool.stage.turn()
    assert ends(answers) == [("crashed", "the worker process ended")]
    assert values(answers[0]) == {PORTS[0]: {"config_dword0": 0xC0101000}}


def test_last_words_are_heard_when_the_next_request_finds_nobody(pool: Pool) -> None:
    """A worker may answer and leave; a request sent before that was noticed does not swallow the answer."""
    first = pool.ask()
    second: list[Ask] = []
    child = pool.children[0]
    child.hears()
    child.says(done(1))
    child.dies()
    pool.workers.ask("pci", "look", pool.stage.now + DEADLINE, second.append)
    pool.stage.turn()
    assert ends(first) == [("done", "")]
    assert ends(second) == [("crashed", "the worker process ended")]


# --- waiting


def test_one_request_is_under_way_at_a_time(pool: Pool) -> None:
    """What is asked in the meantime waits, and of two that want the same the newer one is enough."""
    first, old, look, new = pool.ask(), pool.ask(), pool.ask(what="look"), pool.ask()
    (child,) = pool.children
    assert [request["ask"] for request in child.hears()] == [1]
    assert ends(old) == [("not-asked", "overtaken by a newer request")]
    child.says(done(1))
    pool.stage.turn()
    assert [(request["ask"], request["what"]) for request in child.hears()] == [(3, "look")]
    child.says(done(3))
    pool.stage.turn()
    child.says(done(4))
    pool.stage.turn()
    assert [ends(answers) for answers in (first, look, new)] == [[("done", "")]] * 3


def test_a_request_whose_deadline_passes_while_it_waits_is_not_sent(pool: Pool) -> None:
    """Nobody wants its answer any more."""
    pool.ask("nvml")
    waiting = pool.ask("nvml", "look", seconds=0.5)
    pool.stage.passes(0.5)
    assert ends(waiting) == [("timeout", "no answer before the deadline")]
    (child,) = pool.children
    child.hears()
    child.says(done(1))
    pool.stage.turn()
    assert child.hears() == []


def test_the_first_answer_may_take_longer_before_it_counts_as_late(pool: Pool) -> None:
    """The asker goes on at the deadline; the worker is not called stuck while its first call may still be starting the driver."""
    answers = pool.ask("nvml")
    pool.stage.passes(DEADLINE)
    assert ends(answers) == [("timeout", "no answer before the deadline")]
    assert pool.workers.stuck_seconds("nvml", pool.stage.now) == 0
    pool.stage.passes(FIRST_NVML)
    pool.stage.passes(2.0)
    assert pool.workers.stuck_seconds("nvml", pool.stage.now) == 2.0


def test_what_comes_after_the_deadline_is_not_taken_for_a_fresh_answer(pool: Pool) -> None:
    """A late worker comes back and serves on; its late readings go nowhere."""
    answers = pool.gets_stuck(PORTS[0], "nvml")
    pool.stage.passes(FIRST_NVML)
    (child,) = pool.children
    child.says(reading(1, PORTS[0]), done(1))
    pool.stage.turn()
    assert (ends(answers), values(answers[0])) == ([("timeout", "no answer before the deadline")], {})
    assert pool.workers.stuck_seconds("nvml", pool.stage.now) == 0
    again = pool.ask("nvml")
    child.says(reading(2, PORTS[0]), done(2))
    pool.stage.turn()
    assert values(again[0]) == {PORTS[0]: {"config_dword0": 0xC0101000}}
    assert len(pool.children) == 1


# --- replacing


def test_a_late_worker_is_replaced_when_it_is_wanted_again(pool: Pool) -> None:
    """Not at its deadline: it may come back. The replacement is told what to leave out."""
    pool.gets_stuck(PORTS[2])
    assert len(pool.children) == 1
    pool.ask()
    first, second = pool.children
    assert first.is_let_go()
    assert second.hears()[0]["skip"] == [PORTS[2]]
    assert pool.workers.stuck_seconds("pci", pool.stage.now + 3.0) == 3.0


def test_what_is_free_again_is_no_longer_left_out(pool: Pool) -> None:
    """When the stuck process has ended its subject is read again, by the worker that serves."""
    pool.gets_stuck(PORTS[2])
    pool.ask()
    child = pool.children[-1]
    child.says(done(child.hears()[0]["ask"]))
    pool.stage.turn()
    del pool.alive[1001]
    pool.workers.tend()
    pool.ask()
    assert "skip" not in child.hears()[0]
    assert pool.workers.abandoned == []


def test_a_worker_that_does_not_say_where_it_is_stuck_is_not_replaced(pool: Pool) -> None:
    """Its replacement would walk into the same trap."""
    pool.ask()
    pool.stage.passes(DEADLINE)
    answers = pool.ask()
    assert ends(answers) == [("timeout", "process 1001 of this probe has not ended and does not say where it is")]
    assert len(pool.children) == 1


def test_no_more_than_three_are_left_behind(pool: Pool) -> None:
    """Then the probe is not served until one of them has ended."""
    for port in PORTS[:MOST_ABANDONED]:
        pool.gets_stuck(port)
    answers = pool.ask()
    assert ends(answers) == [("timeout", f"{MOST_ABANDONED} processes are stuck already; none is added")]
    assert len(pool.children) == MOST_ABANDONED
    del pool.alive[1002]
    pool.workers.tend()
    pool.ask()
    assert pool.children[-1].hears()[0]["skip"] == [PORTS[0], PORTS[2]]


def test_a_driver_holder_is_never_replaced_while_it_lives(pool: Pool) -> None:
    """Late or told to leave, as long as its process is there no other is started."""
    pool.gets_stuck("gpu:0000:11:00.0", "nvml")
    pool.stage.passes(FIRST_NVML)
    assert ends(pool.ask("nvml")) == [("timeout", "still waiting for the answer to an earlier request")]
    pool.workers.release("nvml")
    assert ends(pool.ask("nvml")) == [("timeout", "process 1001 of this probe still holds the driver")]
    assert len(pool.children) == 1
    del pool.alive[1001]
    pool.ask("nvml")
    assert len(pool.children) == 2


def test_a_released_worker_gives_what_it_has_and_leaves(pool: Pool) -> None:
    """Whoever waits for it is told that it was let go, not that it was too slow; nobody asks it again by mistake."""
    answers, queued = pool.ask("nvml"), pool.ask("nvml", "look")
    (child,) = pool.children
    child.says(reading(1, "gpu:0000:11:00.0"))
    pool.stage.turn()
    pool.workers.release("nvml")
    assert [ends(found) for found in (answers, queued)] == [[("not-asked", "the worker was told to leave")]] * 2
    assert values(answers[0]) == {"gpu:0000:11:00.0": {"config_dword0": 0xC0101000}}
    assert child.is_let_go()


def test_one_given_up_before_it_was_born_is_looked_after_once_it_is(pool: Pool) -> None:
    """The nursery's word may come late; then the process is left behind like any other."""
    pool.workers.ask("pci", "sample", pool.stage.now + DEADLINE, lambda _ask: None)
    pool.children[0].raw(b"rubbish\n")
    pool.stage.turn()
    assert pool.workers.abandoned == []
    pool.born(pool.children[0])
    assert [(process.name, process.pid) for process in pool.workers.abandoned] == [("pci", 1001)]
    assert not pool.workers.started(99, 1, 1)


# --- those who were before, and those who leave


def test_what_a_predecessor_left_stuck_counts_as_ones_own(stage: Stage, alive: dict[int, int]) -> None:
    """Its time goes on, its subject is left out, and a driver holder among them keeps its place."""
    alive.update({11: 110, 12: 120})
    pci = Abandoned("pci", 11, 110, stage.now - 40.0, PORTS[3], adopted=True)
    nvml = Abandoned("nvml", 12, 120, stage.now - 30.0, "gpu:0000:11:00.0", holds_driver=True, adopted=True)
    pool = Pool(stage, alive, (pci, nvml))
    assert [pool.workers.stuck_seconds(name, stage.now) for name in ("pci", "nvml")] == [40.0, 30.0]
    pool.ask()
    assert pool.children[0].hears()[0]["skip"] == [PORTS[3]]
    assert ends(pool.ask("nvml")) == [("timeout", "process 12 of this probe still holds the driver")]


def test_the_successor_is_told_of_everybody(pool: Pool) -> None:
    """Who serves, who is left behind, since when and where."""
    pool.gets_stuck(PORTS[2])
    late = pool.stage.now
    pool.ask()
    pool.ask("nvml")
    told = {(process.name, process.pid, process.since, process.at) for process in pool.workers.living()}
    assert told == {("pci", 1001, late, PORTS[2]), ("pci", 1002, 0.0, ""), ("nvml", 1003, 0.0, "")}


def test_a_call_under_way_is_waited_for_until_it_counts_as_late(pool: Pool) -> None:
    """On leaving, a worker in the middle of an answer is expected for as long as its answer was; one that is idle for a moment."""
    pool.ask()
    pool.children[0].says(done(1))
    pool.ask("nvml")
    assert pool.workers.is_in_driver()
    pool.workers.finish()
    assert all(child.is_let_go() for child in pool.children)
    assert pool.workers.is_in_driver()
    del pool.alive[1001]
    pool.workers.tend()
    pool.stage.passes(LEAVING_SECONDS + 1.0)
    assert pool.workers.leaving()
    pool.stage.passes(FIRST_NVML)
    assert not pool.workers.leaving()
    assert not pool.workers.is_in_driver()
    assert pool.workers.stuck_seconds("nvml", pool.stage.now) > 0


def test_a_stuck_worker_is_not_waited_for(pool: Pool) -> None:
    """It has had its time."""
    pool.gets_stuck(PORTS[0])
    pool.workers.finish()
    assert not pool.workers.leaving()


def test_a_change_is_told(stage: Stage, alive: dict[int, int]) -> None:
    """The list for the successor is renewed when somebody is born, gets late, comes back or leaves."""
    told: list[int] = []
    pool = Pool(stage, alive)
    pool.workers = Workers(stage.loop, stage.nursery, SPECS, on_change=lambda: told.append(len(told)))
    changes = []
    for happens in (lambda: pool.ask("nvml"), lambda: stage.passes(FIRST_NVML), lambda: _answer(pool), pool.workers.finish):
        before = len(told)
        happens()
        changes.append(len(told) > before)
    assert changes == [True] * 4


def _answer(pool: Pool) -> None:
    pool.children[0].says(done(1))
    pool.stage.turn()


def test_subjects_are_understood(pool: Pool) -> None:
    """Readings are kept by subject and not by text."""
    answers = pool.ask()
    pool.children[0].says(reading(1, PORTS[0]), done(1))
    pool.stage.turn()
    assert list(answers[0].readings) == [Subject("port", "0000:00:00.0")]
