"""The loop's side of stops and starts, with the test in the place of the worker."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.fakes.nursery import Child, Stage
from xidwatch.config import EngineConfig
from xidwatch.core.messages import EngineSeen, EngineStarted, EngineStopped
from xidwatch.core.model import Action, ActionKind
from xidwatch.daemon.processes import Abandoned
from xidwatch.daemon.supervisor import SPARE_SECONDS, Supervisor, Told

ENGINE = EngineConfig(
    unit="vllm.service",
    probe="http://127.0.0.1:8000/v1",
    api_key_file="/etc/xidwatch/vllm.key",
    after_incident_unit="vllm-gentle.service",
    stop_within="2m",
    ready_within="15m",
)
STOP_SECONDS = 120.0


class Desk:
    """A supervisor, what it has told the watch, and what it has put on record."""

    def __init__(self, stage: Stage) -> None:
        self.stage = stage
        self.told: list[Told] = []
        self.outcomes: list[tuple[str, str, str]] = []
        self.stuck: list[Abandoned] = []
        self.supervisor = Supervisor(stage.loop, stage.nursery, self.told.append, self.stuck.append)

    def does(self, kind: ActionKind, unit: str = ENGINE.unit, name: str = "a-000001") -> Child:
        action = Action(name, self.stage.clock.now(), kind, "e-000001", unit=unit)
        self.supervisor.carry_out(action, ENGINE, lambda result, _took, detail: self.outcomes.append((name, result, detail)))
        self.stage.turn()
        return self.stage.nursery.children[-1]

    def says(self, child: Child, **message: object) -> None:
        child.says(message)
        self.stage.turn()


@pytest.fixture
def desk() -> Iterator[Desk]:
    with Stage() as stage:
        yield Desk(stage)


def test_a_stop_is_told_to_the_watch_and_put_on_record(desk: Desk) -> None:
    """With everybody who is left, in words."""
    child = desk.does(ActionKind.STOP_ENGINE)
    assert (child.options["do"], child.options["unit"], child.options["within_s"]) == ("stop", "vllm.service", STOP_SECONDS)
    desk.says(child, result="leftovers", detail="result timeout", leftovers=["process 4711 (python3) state D"])
    (told,) = desk.told
    assert isinstance(told, EngineStopped)
    assert (told.unit, told.action, told.result, told.leftovers) == (
        "vllm.service",
        "a-000001",
        "leftovers",
        ("process 4711 (python3) state D",),
    )
    assert desk.outcomes == [("a-000001", "leftovers", "result timeout; process 4711 (python3) state D")]
    assert child.is_let_go()


def test_a_stand_in_is_started_for_its_engine(desk: Desk) -> None:
    """It need not be enabled; the gate is that of the engine."""
    child = desk.does(ActionKind.START_ENGINE, "vllm-gentle.service")
    assert (child.options["unit"], child.options["enabled_only"], child.options["probe"]) == ("vllm-gentle.service", False, ENGINE.probe)
    assert child.options["api_key_file"] == ENGINE.api_key_file
    desk.says(child, seen={"active_state": "active"})
    desk.says(child, result="ready", detail="one token of tiny in 0.03 s", invocation_id="bbbb")
    seen, started = desk.told
    assert isinstance(seen, EngineSeen)
    assert isinstance(started, EngineStarted)
    assert (seen.unit, seen.values) == ("vllm-gentle.service", {"active_state": "active"})
    assert (started.unit, started.result, started.invocation_id) == ("vllm.service", "ready", "bbbb")
    assert desk.outcomes == [("a-000001", "ok", "one token of tiny in 0.03 s")]


def test_its_own_unit_has_to_be_enabled(desk: Desk) -> None:
    """The worker looks once more, at the last moment."""
    assert desk.does(ActionKind.START_ENGINE).options["enabled_only"] is True


@pytest.mark.parametrize("raw", [b"", b"not a frame\n", b"[]\n"])
def test_a_worker_that_dies_or_raves_has_failed(desk: Desk, raw: bytes) -> None:
    """The action has an outcome whatever becomes of its process."""
    child = desk.does(ActionKind.STOP_ENGINE)
    child.raw(raw)
    child.dies()
    desk.stage.turn()
    assert [(type(told).__name__, told.result) for told in desk.told if isinstance(told, EngineStopped)] == [("EngineStopped", "failed")]
    assert [result for _, result, _ in desk.outcomes] == ["failed"]


def test_a_worker_that_does_not_answer_is_let_go_and_remembered(desk: Desk) -> None:
    """Whoever looks at processes may be stuck as they are."""
    child = desk.does(ActionKind.STOP_ENGINE)
    assert desk.supervisor.started(child.request, 4711, 99)
    assert not desk.supervisor.started(child.request + 1, 4712, 99)
    desk.stage.passes(STOP_SECONDS + SPARE_SECONDS - 1)
    assert not desk.told
    desk.stage.passes(2)
    assert [each.pid for each in desk.stuck] == [4711]
    assert [result for _, result, _ in desk.outcomes] == ["timeout"]
    assert len(desk.told) == 1


def test_what_is_decided_later_counts(desk: Desk) -> None:
    """A start under way is left to itself when the hardware goes; its answer comes too late to be heard."""
    first = desk.does(ActionKind.START_ENGINE, name="a-000001")
    second = desk.does(ActionKind.STOP_ENGINE, name="a-000002")
    assert first.is_let_go()
    assert desk.outcomes == [("a-000001", "overtaken", "something else was decided meanwhile")]
    desk.says(second, result="ok")
    assert [told.action for told in desk.told if isinstance(told, EngineStopped)] == ["a-000002"]


def test_workers_leave_with_the_daemon(desk: Desk) -> None:
    """Engines go on: the next run looks at what came of it."""
    child = desk.does(ActionKind.STOP_ENGINE)
    desk.supervisor.finish()
    desk.stage.turn()
    assert child.is_let_go()
    assert [result for _, result, _ in desk.outcomes] == ["left"]
    assert not desk.told
