"""Write the edge, then act, then write the outcome; with the test in the place of workers, recorders and dump workers."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pytest

from tests.fakes.nursery import Child, Stage
from xidwatch.core.messages import DumpEnded, DumpFailed, Input, Looked, RecoveryEnded
from xidwatch.core.model import Action, ActionKind, Readings, Subject
from xidwatch.daemon import acting
from xidwatch.daemon.acting import DURABLE_SECONDS, LOOK_SECONDS, PARTING_SECONDS, RECORD_LATE, RECOVERY_DURABLE_SECONDS, Hands, followed_by
from xidwatch.daemon.dumping import DumpResult, Dumps
from xidwatch.daemon.evidence import Evidence, Numbers
from xidwatch.daemon.workers import ProbeSpec, Workers

DEADLINE = 1.0
SPECS = (
    ProbeSpec("pci", "pci:create", looks=True),
    ProbeSpec("nvml", "nvml:create", deadline_seconds=DEADLINE, first_deadline_seconds=DEADLINE, holds_driver=True),
)
GPU = Subject("gpu", "0000:11:00.0")
STUCK = "nvml is in a driver call that does not return; it leaves when it does"


class Disk(Evidence):
    """Stands for the recorders: a record is durable when the test says so, or late."""

    def __init__(self, stage: Stage) -> None:
        self._stage = stage
        self._waiting: list[Callable[[bool], None]] = []

    def when_durable(self, numbers: Numbers, seconds: float, callback: Callable[[bool], None]) -> None:
        assert (numbers, seconds) in (((7,), DURABLE_SECONDS), ((7,), RECOVERY_DURABLE_SECONDS))
        self.patience = seconds
        self._waiting.append(callback)

    def when_first_durable(self, numbers: Numbers, seconds: float, callback: Callable[[bool], None]) -> None:
        assert seconds == RECOVERY_DURABLE_SECONDS
        self.when_durable(numbers, seconds, callback)

    def answers(self, *, durable: bool) -> None:
        self._waiting.pop()(durable)
        self._stage.turn()


class Desk:
    """Hands under test, what they reported, and what a look and a parting brought."""

    def __init__(self, stage: Stage, specs: tuple[ProbeSpec, ...] = SPECS, directories: int = 1) -> None:
        self.stage = stage
        self.disk = Disk(stage)
        self.workers = Workers(stage.loop, stage.nursery, specs)
        dumps = Dumps(stage.loop, stage.nursery)
        self.outcomes: list[tuple[str, int, str]] = []
        self.inputs: list[Input] = []
        self.partings: list[Readings] = []
        self.engines: list[tuple[ActionKind, str]] = []
        self.recoveries: list[tuple[str, bool]] = []
        jobs: list[Mapping[str, object]] = [{"folder": str(Path("/evidence") / str(n))} for n in range(directories)]
        self.hands = Hands(
            stage.loop,
            self.workers,
            self.disk,
            dumps,
            lambda _: jobs,
            self._outcome,
            self.inputs.append,
            self.partings.append,
            lambda action, detail: self.engines.append((action.kind, detail)),
            lambda action, durable: self.recoveries.append((action.step, durable)),
        )

    def _outcome(self, _action: Action, result: str, took_ms: int, detail: str) -> None:
        self.outcomes.append((result, took_ms, detail))

    def does(self, kind: ActionKind) -> None:
        self.hands.carry_out(Action("a-000002", self.stage.clock.now(), kind, "t-000001", "x"), (7,))
        self.stage.turn()

    def serving(self) -> Child:
        """An NVML worker in the middle of a sample."""
        self.workers.ask("nvml", "sample", self.stage.now + DEADLINE, lambda _ask: None)
        return self.child("nvml")[-1]

    def child(self, name: str) -> list[Child]:
        return [child for child in self.stage.nursery.children if child.name == name]

    def says(self, child: Child, *messages: Mapping[str, object]) -> None:
        child.says(*messages)
        self.stage.turn()


@pytest.fixture
def stage() -> Iterator[Stage]:
    with Stage() as stage:
        yield stage


@pytest.fixture
def desk(stage: Stage) -> Desk:
    return Desk(stage)


def reading(ask: int, value: int) -> dict[str, object]:
    return {"ask": ask, "reading": {"subject": str(GPU), "quantity": "config_dword0", "value": value}}


def done(ask: int) -> dict[str, object]:
    return {"ask": ask, "done": True}


@pytest.mark.parametrize(("durable", "detail"), [(True, ""), (False, RECORD_LATE)])
def test_nothing_is_done_before_its_record_has_had_its_chance(desk: Desk, durable: bool, detail: str) -> None:
    """An action waits for its record; when that is late it goes ahead, and the outcome says so."""
    (standby,) = desk.child("dump")
    desk.does(ActionKind.TAKE_DUMP)
    assert standby.hears() == []
    desk.disk.answers(durable=durable)
    assert standby.hears() == [{"folder": "/evidence/0"}]
    desk.says(standby, {"done": True, "parts": 0})
    assert desk.outcomes == [("ok", 0, detail)]


@pytest.mark.parametrize("durable", [True, False])
def test_a_recovery_waits_longer_for_its_record_and_is_told_whether_it_is_there(desk: Desk, durable: bool) -> None:
    """Others go ahead without; whoever carries this one out does not."""
    desk.hands.carry_out(Action("a-000002", desk.stage.clock.now(), ActionKind.RECOVER, "t-000001", "x", step="rescan"), (7,))
    assert (desk.recoveries, desk.disk.patience) == ([], RECOVERY_DURABLE_SECONDS)
    desk.disk.answers(durable=durable)
    assert desk.recoveries == [("rescan", durable)]


def test_a_recovery_is_refused_while_a_dump_is_written(desk: Desk) -> None:
    """It would destroy what the dump is about."""
    desk.does(ActionKind.TAKE_DUMP)
    desk.disk.answers(durable=True)
    desk.does(ActionKind.RECOVER)
    desk.disk.answers(durable=True)
    ((result, _, detail),) = desk.outcomes
    assert (desk.recoveries, result, "a dump is being written" in detail) == ([], "refused", True)


def test_the_watch_hears_of_a_recovery_and_of_a_dump_what_came_of_it(stage: Stage) -> None:
    """Of others somebody else tells it."""
    now = stage.clock.now()
    told = {kind: list(followed_by(Action("a-1", now, kind, "t-1", "x"), now, "failed", "why")) for kind in ActionKind}
    assert told[ActionKind.RECOVER] == [RecoveryEnded(now, "a-1", "failed", "why")]
    assert told[ActionKind.TAKE_DUMP] == [DumpEnded(now, "x", "failed"), DumpFailed("x")]
    assert [kind for kind, inputs in told.items() if not inputs] == [each for each in ActionKind if each not in ("RECOVER", "TAKE_DUMP")]


def test_a_look_waits_for_nothing(desk: Desk) -> None:
    """Four bytes a device are read at once, by those who can look; what they saw is an input, and how it went an outcome."""
    desk.does(ActionKind.LOOK)
    (pci,) = desk.child("pci")
    assert [(request["what"], request["deadline_ms"]) for request in pci.hears()] == [("look", LOOK_SECONDS * 1000)]
    desk.says(pci, reading(1, 0xFFFFFFFF), done(1))
    (seen,) = desk.inputs
    assert isinstance(seen, Looked)
    assert seen.readings == {GPU: {"config_dword0": 0xFFFFFFFF}}
    assert desk.outcomes == [("ok", 0, "")]


def test_a_look_that_gets_no_answer_says_so_and_keeps_what_came(desk: Desk) -> None:
    """The first half of an answer is still what was seen."""
    desk.does(ActionKind.LOOK)
    desk.says(desk.child("pci")[0], reading(1, 0xFFFFFFFF))
    desk.stage.passes(LOOK_SECONDS)
    assert len(desk.inputs) == 1
    assert desk.outcomes == [("timeout", 2000, "no answer before the deadline")]


def test_without_anybody_who_can_look_nothing_was_seen(stage: Stage) -> None:
    """The outcome does not call that ok."""
    desk = Desk(stage, SPECS[1:])
    desk.does(ActionKind.LOOK)
    assert [result for result, _, _ in desk.outcomes] == ["not-asked"]


def test_a_released_worker_parts_with_what_it_knows(desk: Desk) -> None:
    """It is asked for its last readings, then let go."""
    nvml = desk.serving()
    desk.says(nvml, done(1))
    nvml.hears()
    desk.does(ActionKind.RELEASE_DRIVER)
    desk.disk.answers(durable=True)
    assert [request["what"] for request in nvml.hears()] == ["look"]
    desk.says(nvml, reading(2, 5), done(2))
    assert desk.partings == [{GPU: {"config_dword0": 5}}]
    assert nvml.is_let_go()
    assert desk.outcomes == [("ok", 0, "")]


def test_a_worker_that_does_not_part_in_time_is_let_go_all_the_same(desk: Desk) -> None:
    """A call under way may be the one that never returns."""
    nvml = desk.serving()
    desk.does(ActionKind.RELEASE_DRIVER)
    desk.disk.answers(durable=True)
    desk.stage.passes(PARTING_SECONDS)
    assert nvml.is_let_go()
    assert desk.outcomes == [("ok", 1000, "")]


def test_a_stuck_worker_is_let_go_and_nobody_says_that_it_has_left(desk: Desk) -> None:
    """When it comes back it finds the end of input, and not a next request."""
    nvml = desk.serving()
    desk.stage.passes(DEADLINE)
    desk.stage.passes(0.5)
    desk.does(ActionKind.RELEASE_DRIVER)
    desk.disk.answers(durable=False)
    assert nvml.is_let_go()
    assert desk.outcomes == [("timeout", 0, f"{RECORD_LATE}; {STUCK}")]


def test_where_nobody_holds_the_driver_that_is_said(desk: Desk) -> None:
    """No worker, nothing to release."""
    desk.does(ActionKind.RELEASE_DRIVER)
    desk.disk.answers(durable=True)
    assert desk.outcomes == [("ok", 0, "no worker held the driver")]


def test_every_evidence_directory_gets_a_dump_and_the_action_one_outcome(stage: Stage) -> None:
    """The worst of the results, the longest of the times, and each part that is not whole."""
    desk = Desk(stage, directories=2)
    desk.does(ActionKind.TAKE_DUMP)
    desk.disk.answers(durable=True)
    first, second = desk.child("dump")[:2]
    assert [child.hears() for child in (first, second)] == [[{"folder": "/evidence/0"}], [{"folder": "/evidence/1"}]]
    stuck = {"stuck": {"pid": 4711, "start_ticks": 47110, "name": "040-a.txt"}}
    desk.says(first, {"part": "010-a.csv", "status": "ok"}, {"done": True})
    assert desk.outcomes == []
    stage.passes(0.25)
    desk.says(second, {"part": "010-a.csv", "status": "ok"}, stuck, {"part": "040-a.txt", "status": "stuck"}, {"done": True})
    assert desk.outcomes == [("partial", 250, "040-a.txt stuck")]
    assert [process.pid for process in desk.workers.abandoned] == [4711]


@pytest.mark.parametrize(
    ("results", "together"),
    [
        (("ok", "ok"), "ok"),
        (("ok", "failed"), "partial"),  # asking again would fill the good directory with the same evidence
        (("partial", "timeout"), "partial"),
        (("failed", "failed"), "failed"),
        (("failed", "timeout"), "timeout"),  # one is still at it: no second is to be put beside it
    ],
)
def test_a_dump_has_failed_only_when_no_directory_has_it(results: tuple[str, str], together: str) -> None:
    """Only then is it asked for again."""
    told = acting._together([DumpResult(result, 10, {}) for result in results], "")
    assert told[0] == together
    assert told[2] == ("" if together == "ok" else f"not in {sum(r in ('failed', 'timeout') for r in results)} of 2 evidence directories")


@pytest.mark.parametrize("kind", [ActionKind.STOP_ENGINE, ActionKind.START_ENGINE])
def test_an_engine_is_touched_when_that_is_on_record(stage: Stage, kind: ActionKind) -> None:
    """And all the same when the disk does not take it, with a word about it."""
    desk = Desk(stage)
    desk.does(kind)
    assert not desk.engines
    desk.disk.answers(durable=True)
    desk.does(kind)
    desk.disk.answers(durable=False)
    assert desk.engines == [(kind, ""), (kind, RECORD_LATE)]
