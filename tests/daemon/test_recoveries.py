"""The loop's side of recovery, with the test in the place of the worker."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.fakes.nursery import Child, Stage
from xidwatch.config import RecoveryConfig
from xidwatch.core.model import Action, ActionKind
from xidwatch.core.recovery_model import RecoveryStep
from xidwatch.daemon.processes import Abandoned
from xidwatch.daemon.recoveries import SPARE_SECONDS, STEP_SECONDS, Recovery, recovery_settings

CARD = "0000:12:00.0"


class Desk:
    """What was put on record, and what does not come back."""

    def __init__(self, stage: Stage) -> None:
        self.stage = stage
        self.outcomes: list[tuple[str, str, str]] = []
        self.stuck: list[Abandoned] = []
        self.against = ""
        self.recovery = Recovery(
            stage.loop, stage.nursery, "/sys", (Path("/evidence"),), Path("/marks"), self._hindrance, self.stuck.append, self._outcome
        )

    def _hindrance(self, _: Action) -> str:
        return self.against

    def _outcome(self, action: Action, result: str, _took_ms: int, detail: str) -> None:
        self.outcomes.append((action.id, result, detail))

    def does(self, *, durable: bool = True, name: str = "a-000001") -> None:
        action = Action(name, self.stage.clock.now(), ActionKind.RECOVER, "t-000001", step="rescan", target=CARD)
        self.recovery.carry_out(action, durable)
        self.stage.turn()

    def child(self) -> Child:
        return self.stage.nursery.children[-1]

    def says(self, **message: object) -> None:
        self.child().says(message)
        self.stage.turn()


@pytest.fixture
def desk() -> Iterator[Desk]:
    with Stage() as stage:
        yield Desk(stage)


def test_a_step_is_a_process_and_its_word_the_outcome(desk: Desk) -> None:
    """It is told what to do, to whom, by when, and where the records are that have to outlive a reboot."""
    desk.does()
    wanted = {"do": "rescan", "target": CARD, "within_s": STEP_SECONDS, "sysfs": "/sys", "evidence": ["/evidence"]}
    assert desk.child().options == {**wanted, "mark": f"/marks/recovery-{desk.stage.clock.boot_id}"}
    desk.says(result="ok", detail=f"{CARD} is back and answering")
    assert desk.outcomes == [("a-000001", "ok", f"{CARD} is back and answering")]
    assert desk.child().is_let_go()


def test_nothing_begins_before_the_decision_is_on_disk(desk: Desk) -> None:
    """It might be taken twice."""
    desk.does(durable=False)
    assert desk.stage.nursery.children == []
    ((_, result, detail),) = desk.outcomes
    assert (result, "not on disk" in detail) == ("refused", True)


def test_nothing_begins_that_something_has_come_up_against(desk: Desk) -> None:
    """While its record was written."""
    desk.against = "the host is in maintenance"
    desk.does()
    assert desk.stage.nursery.children == []
    assert desk.outcomes == [("a-000001", "refused", "the host is in maintenance")]


def test_one_at_a_time(desk: Desk) -> None:
    """Whoever asks."""
    desk.does()
    desk.does(name="a-000002")
    assert [(name, result) for name, result, _ in desk.outcomes] == [("a-000002", "refused")]
    assert len(desk.stage.nursery.children) == 1


def test_a_worker_that_ends_without_a_word_has_failed(desk: Desk) -> None:
    """What it has done is not known, so that it counts."""
    desk.does()
    desk.child().dies()
    desk.stage.turn()
    assert [result for _, result, _ in desk.outcomes] == ["failed"]


def test_a_worker_that_talks_rubbish_has_failed(desk: Desk) -> None:
    """Once."""
    desk.does()
    desk.child().raw(b"not json\n")
    desk.stage.turn()
    assert [result for _, result, _ in desk.outcomes] == ["failed"]


def test_what_does_not_come_back_is_left_and_never_killed(desk: Desk) -> None:
    """It may stand in the driver, or under a lock that all PCI devices share."""
    desk.does()
    assert desk.recovery.started(1, 4711, 5000)
    desk.stage.passes(STEP_SECONDS + SPARE_SECONDS + 1.0)
    assert [result for _, result, _ in desk.outcomes] == ["timeout"]
    (stuck,) = desk.stuck
    assert (stuck.pid, stuck.at, stuck.holds_driver) == (4711, CARD, True)


def test_a_daemon_that_leaves_says_that_nobody_hears_how_it_ends(desk: Desk) -> None:
    """And a second word about it changes nothing."""
    desk.recovery.finish()
    desk.does()
    desk.recovery.finish()
    desk.recovery.finish()
    assert [result for _, result, _ in desk.outcomes] == ["left"]


def test_settings_are_what_is_switched_on_in_its_order() -> None:
    """Nothing by default, and nothing for a single tick."""
    assert recovery_settings(RecoveryConfig(), once=False).enabled == ()
    chosen = RecoveryConfig(allow_reboot=True, rescan=True, wait="3m", reboot_after="20m", reboot_window="2d")
    found = recovery_settings(chosen, once=False)
    assert found.enabled == (RecoveryStep.RESCAN, RecoveryStep.REBOOT)
    assert (found.wait_seconds, found.reboot_after_seconds, found.reboot_window_seconds) == (180.0, 1200.0, 2 * 86400.0)
    assert recovery_settings(chosen, once=True).enabled == ()
