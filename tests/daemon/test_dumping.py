"""The loop's side of dumps, with the test in the place of every dump worker."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.fakes.nursery import Child, Stage
from xidwatch.core.model import Subject
from xidwatch.core.power import Stretch, TraceSource
from xidwatch.daemon import dumping
from xidwatch.daemon.dumping import STAGE_ONE_SECONDS, STANDBY_SECONDS, DumpResult, Dumps
from xidwatch.daemon.memory import Memory

JOB = {"folder": "/var/lib/xidwatch/incidents/x", "incident": "x", "parts": []}


class Desk:
    """Dumps under test and their results."""

    def __init__(self, stage: Stage) -> None:
        self.stage = stage
        self.dumps = Dumps(stage.loop, stage.nursery)
        self.results: list[DumpResult] = []

    @property
    def children(self) -> list[Child]:
        return self.stage.nursery.children

    def take(self) -> Child:
        """Start a dump; who works on it."""
        standby = self.children[-1]
        self.dumps.take(JOB, self.results.append)
        self.stage.turn()
        return standby

    def says(self, child: Child, *messages: dict[str, object]) -> None:
        child.says(*messages)
        self.stage.turn()

    def dies(self, child: Child) -> None:
        child.dies()
        self.stage.turn()


@pytest.fixture
def desk() -> Iterator[Desk]:
    with Stage() as stage:
        yield Desk(stage)


def part(name: str, status: str = "ok") -> dict[str, object]:
    return {"part": name, "status": status, "took_ms": 3}


DONE: dict[str, object] = {"done": True, "parts": 2}


def test_a_dump_worker_stands_ready_and_the_next_takes_its_place(desk: Desk) -> None:
    """It has imported what it needs before there is anything to do: the disk may be gone by then."""
    (standby,) = desk.children
    preload = ["xidwatch.records.power_trace:csv_text", "xidwatch.probes.pci:config_space_text"]
    assert (standby.target, standby.options["preload"]) == ("xidwatch.daemon.forensics:main", preload)
    assert desk.take() is standby
    assert standby.hears() == [JOB]
    assert len(desk.children) == 2
    assert desk.dumps.is_running()
    desk.stage.passes(0.25)
    desk.says(standby, part("010-samples.csv"), part("040-config-space.txt"), DONE)
    assert desk.results == [DumpResult("ok", 250, {"010-samples.csv": "ok", "040-config-space.txt": "ok"})]
    assert standby.is_let_go()
    assert not desk.dumps.is_running()


def test_a_part_that_is_not_whole_makes_a_dump_partial(desk: Desk) -> None:
    """The collector that could not be ended is named, so that it is looked after."""
    stuck: dict[str, object] = {"stuck": {"pid": 4711, "start_ticks": 47110, "name": "040-config-space.txt"}}
    desk.says(desk.take(), part("010-samples.csv"), stuck, part("040-config-space.txt", "stuck"), DONE)
    (result,) = desk.results
    assert (result.result, result.parts["040-config-space.txt"]) == ("partial", "stuck")
    assert [(process.pid, process.start_ticks, process.at) for process in result.stuck] == [(4711, 47110, "040-config-space.txt")]


def test_two_dumps_are_two_processes(desk: Desk) -> None:
    """The second does not wait for the first."""
    first, second = desk.take(), desk.take()
    assert first is not second
    desk.says(second, DONE)
    assert (len(desk.results), desk.dumps.is_running()) == (1, True)
    desk.says(first, DONE)
    assert (len(desk.results), desk.dumps.is_running()) == (2, False)


def test_one_that_takes_too_long_is_no_longer_waited_for(desk: Desk) -> None:
    """What it had done by then is told; it goes on by itself, and its end changes nothing."""
    child = desk.take()
    desk.says(child, part("010-samples.csv"))
    desk.stage.passes(STAGE_ONE_SECONDS)
    assert desk.results == [DumpResult("timeout", 30000, {"010-samples.csv": "ok"})]
    assert not child.is_let_go()
    desk.says(child, DONE)
    assert len(desk.results) == 1


def test_a_standby_that_dies_is_replaced_but_not_in_a_frenzy(desk: Desk) -> None:
    """One that cannot live costs a process a second, no more."""
    for count in range(1, 4):
        assert len(desk.children) == count
        desk.dies(desk.children[-1])
        assert len(desk.children) == count
        desk.stage.passes(STANDBY_SECONDS)


def test_an_edge_without_a_standby_gets_a_process_at_once(desk: Desk) -> None:
    """Between the death of one standby and the birth of the next evidence is not made to wait."""
    desk.dies(desk.children[0])
    desk.take()
    assert desk.children[1].hears() == [JOB]
    desk.stage.passes(STANDBY_SECONDS)
    assert len(desk.children) == 3


def test_a_death_on_the_way_is_followed_by_one_more_attempt(desk: Desk) -> None:
    """Also when the standby was dead already and nobody had noticed. What the first had reported stays reported."""
    child = desk.take()
    desk.says(child, part("010-samples.csv"))
    desk.dies(child)
    second = desk.children[1]
    assert (desk.results, second.hears()) == ([], [JOB])
    desk.says(second, part("010-samples.2.csv"), DONE)
    assert [(result.result, list(result.parts)) for result in desk.results] == [("ok", ["010-samples.csv", "010-samples.2.csv"])]

    desk.children[-1].dies()
    desk.take()
    assert desk.children[-2].hears() == [JOB]


def test_a_second_death_is_a_failed_dump(desk: Desk) -> None:
    """There is no third attempt, and no callback but one."""
    desk.dies(desk.take())
    desk.dies(desk.children[1])
    assert [result.result for result in desk.results] == ["failed"]
    desk.stage.passes(STAGE_ONE_SECONDS)
    assert len(desk.results) == 1


def test_rubbish_counts_as_a_death(desk: Desk) -> None:
    """The daemon does not die of it."""
    child = desk.take()
    child.raw(b"rubbish\n")
    desk.stage.turn()
    assert child.is_let_go()
    assert desk.children[1].hears() == [JOB]


def test_on_leaving_only_the_idle_go_home(desk: Desk) -> None:
    """A dump under way is finished; none is prepared any more."""
    child = desk.take()
    desk.dumps.finish()
    assert desk.children[-1].is_let_go()
    assert not child.is_let_go()
    desk.stage.passes(STANDBY_SECONDS)
    desk.says(child, DONE)
    assert [result.result for result in desk.results] == ["ok"]
    assert len(desk.children) == 2


# --- what is to be written


def test_a_job_has_what_was_in_memory_before_what_asks_hardware() -> None:
    """Power over time goes as it is kept, and is made into text by whoever writes it; the bus is asked last."""
    memory = Memory()
    memory.power.add(Stretch(Subject("gpu", "0000:11:00.0"), TraceSource.BUFFER, (1_796_061_974_058_302,), (698_773,)))
    job = dumping.job(memory, "x", "5f0c", "t-000123", "/sys")
    parts = job["parts"]
    assert isinstance(parts, list)
    names = ["010-samples.csv", "015-power-trace.csv", "020-kernel.txt", "030-inventory.json", "040-config-space.txt"]
    assert [part["name"] for part in parts] == names
    assert (parts[1]["collect"], parts[1]["with"]) == ("xidwatch.records.power_trace:csv_text", [memory.power.packed()])
    assert (job["incident"], job["boot_id"], job["trigger"]) == ("x", "5f0c", "t-000123")


def test_no_power_is_no_empty_part() -> None:
    """A host without a GPU has lost nothing."""
    parts = dumping.job(Memory(), "x", "5f0c", "t-000123", "/sys")["parts"]
    assert isinstance(parts, list)
    assert "015-power-trace.csv" not in [part["name"] for part in parts]
