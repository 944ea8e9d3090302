"""What was tried to bring hardware back, out of the journal: what may not be tried again is never forgotten."""

from __future__ import annotations

from dataclasses import replace

import msgspec
import pytest

from tests.records.test_recovery import BOOT, NAME, NEXT_BOOT, at, edge, entries, note
from xidwatch.core.model import Action, ActionKind, Outcome, Status, Subject
from xidwatch.core.recovery_model import Attempt
from xidwatch.records import journal, recovery
from xidwatch.records.recoveries import AttemptRecord
from xidwatch.records.recovery import RecoveredRecord

STEP = Action("a-000010", at(10), ActionKind.RECOVER, "t-000003", NAME, step="rescan", target="0000:0f:00.0")
TAKEN = Attempt("rescan", "a-000010", at(10), BOOT, NAME, "0000:0f:00.0")
NIGHT = [note("started", 1), edge(3, Subject("port", "0000:0f:00.0"), "ConfigSpaceAllOnes", Status.TRUE, NAME)]


def outcome(result: str, detail: str = "") -> journal.Record:
    return journal.outcome(Outcome("o-000012", at(12), STEP.id, result, 1200, detail), BOOT)


def folded(*records: journal.Record, boot_id: str = BOOT) -> tuple[Attempt, ...]:
    return recovery.fold(entries([*NIGHT, *records]), boot_id).attempts


def checkpoint(*attempts: Attempt) -> journal.Record:
    return journal.checkpoint("r-000020", at(20), BOOT, conditions=[], incident=None, kmsg_seq=None, next_id=21, attempts=attempts)


def test_a_decision_is_an_attempt_before_anybody_knows_how_it_ended() -> None:
    """The daemon may have been killed between the two, and then it counts as done."""
    assert folded(journal.action(STEP, BOOT)) == (TAKEN,)


@pytest.mark.parametrize("result", ["ok", "failed", "timeout", "left", "something a newer version says"])
def test_its_outcome_belongs_to_it(result: str) -> None:
    """Whatever it says."""
    assert folded(journal.action(STEP, BOOT), outcome(result, "why")) == (replace(TAKEN, result=result, detail="why"),)


@pytest.mark.parametrize("result", ["refused", "unable"])
def test_what_was_not_done_is_no_attempt(result: str) -> None:
    """It may be tried in this boot."""
    assert folded(journal.action(STEP, BOOT), outcome(result)) == ()


def test_attempts_outlive_a_checkpoint_and_a_boot() -> None:
    """Also where the checkpoint is of a version that knows of none."""
    assert folded(checkpoint(TAKEN)) == (TAKEN,)
    assert folded(journal.action(STEP, BOOT), checkpoint()) == (TAKEN,)
    assert folded(journal.action(STEP, BOOT), checkpoint(replace(TAKEN, result="ok"))) == (replace(TAKEN, result="ok"),)
    assert folded(journal.action(STEP, BOOT), note("started", 30, NEXT_BOOT), boot_id=NEXT_BOOT) == (TAKEN,)


def test_a_record_gives_back_what_it_was_made_of() -> None:
    """In the checkpoint, and on the way from the recorder to the loop."""
    for attempt in (TAKEN, Attempt("reboot", "a-1", at(1), BOOT, None, "", "ok", "told")):
        assert msgspec.json.decode(msgspec.json.encode(AttemptRecord.of(attempt)), type=AttemptRecord).attempt() == attempt
    found = recovery.fold(entries([*NIGHT, journal.action(STEP, BOOT)]), BOOT)
    told = msgspec.json.decode(msgspec.json.encode(RecoveredRecord.of(found, None, (), 1)), type=RecoveredRecord)
    assert told.recovered().attempts == (TAKEN,)
