"""Gates and maintenance in the journal, and back again."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from xidwatch.core.gate_model import Gate, GateMoved, GateState, Lease, Loss, Maintenance
from xidwatch.core.messages import Maintained
from xidwatch.core.model import Moment
from xidwatch.records import Damage, journal, recovery
from xidwatch.records.gates import GateRecord, MaintenanceRecord
from xidwatch.records.journal import Entry

BOOT, NEXT_BOOT = "boot-a", "boot-b"
NOON = 1789646400.0  # 2026-09-17T12:00:00Z
AT = Moment(NOON, 100.0)
FULL = Gate(
    unit="vllm.service",
    state=GateState.HELD,
    since=AT,
    why="ConfigSpaceAllOnes port:0000:0f:00.0",
    invocation_id="3a3b",
    boot_id=BOOT,
    incident="20260917T120003Z-bus-lost-0f",
    starts=(NOON - 60.0, NOON - 30.0),
    served=NOON - 90.0,
    start_said="start: failed",
    losses=(Loss(NOON - 5.0, "0000:00/03.1/00.0"), Loss(NOON - 1.0, "")),
    relapses=2,
    not_before=NOON + 120.0,
    leftovers=("101 VLLM::Worker D nvidia_poll",),
    asked_again=2,
    ask_after=NOON + 1200.0,
    by_itself=True,
    owed=True,
    gpus=("0000:00/03.1/00.0/08.0/00.0",),
    gpus_of="found",
    shared=("0000:00/03.1/00.0/08.0/00.0",),
)
ON = Maintenance(AT, NOON + 1800.0, "card swap", "alice (uid 0)")


def entry(record: journal.Record) -> Entry:
    found = journal.entry(1, msgspec.json.encode(record))
    assert isinstance(found, Entry)
    return found


def moved(gate: Gate, number: int = 7, boot_id: str = BOOT) -> journal.Record:
    record = journal.from_output(GateMoved(f"e-{number:06d}", AT, GateState.STOPPING, gate), boot_id)
    assert record is not None
    return record


def checkpoint(**changes: Any) -> journal.Record:
    return journal.checkpoint("r-000009", AT, BOOT, conditions=[], incident=None, kmsg_seq=1, next_id=10, **changes)


def test_a_gate_comes_back_whole_from_one_record() -> None:
    """The last record of it says all; it belongs to the incident it was stopped for."""
    found = entry(moved(FULL))
    assert (found.kind, found.incident, found.body["before"]) == ("gate", FULL.incident, "STOPPING")
    assert recovery.fold([found], BOOT).gates == (FULL,)


@given(st.sampled_from(GateState), st.floats(0.0, 4e9), st.lists(st.floats(0.0, 4e9), max_size=4), st.text(max_size=20))
def test_any_gate_comes_back(state: GateState, wall: float, starts: list[float], why: str) -> None:
    """To the millisecond, which is what a time is told in."""
    gate = Gate("x.service", state, Moment(round(wall, 3), 1.5), why, starts=tuple(round(each, 3) for each in starts))
    back = GateRecord.of(gate).gate()
    assert back.since.wall == pytest.approx(gate.since.wall, abs=0.002)
    assert back.starts == pytest.approx(gate.starts, abs=0.002)
    assert replace(back, since=gate.since, starts=gate.starts) == gate


def test_a_lease_is_told_and_does_not_outlive_its_run() -> None:
    """No start is granted twice."""
    gate = replace(FULL, state=GateState.STARTING, lease=Lease("a-000006", Moment(NOON + 900.0, 1000.0)))
    assert entry(moved(gate)).body["lease_until"] == "2026-09-17T12:15:00.000Z"
    assert recovery.fold([entry(moved(gate))], BOOT).gates[0].lease is None


def test_a_checkpoint_holds_every_gate_and_maintenance() -> None:
    """What came before it counts no more."""
    other = replace(FULL, unit="llama.service", state=GateState.OFF)
    stale = entry(moved(replace(FULL, unit="gone.service")))
    found = recovery.fold([stale, entry(checkpoint(engines=(FULL, other), maintenance=ON))], BOOT)
    assert found.gates == (FULL, other)
    assert found.maintenance == ON


def test_the_last_word_counts() -> None:
    """A move behind a checkpoint, and a maintenance that is over."""
    running = replace(FULL, state=GateState.RUNNING)
    over = journal.from_output(Maintained("e-000011", AT, None, "alice"), BOOT)
    assert over is not None
    found = recovery.fold([entry(checkpoint(engines=(FULL,), maintenance=ON)), entry(moved(running)), entry(over)], BOOT)
    assert (found.gates, found.maintenance) == ((running,), None)


def test_a_checkpoint_of_an_older_version_knows_no_gates() -> None:
    """And is none the worse for it."""
    record = checkpoint()
    body = record["checkpoint"]
    assert isinstance(body, dict)
    del body["gates"], body["maintenance"]
    problems: list[Damage] = []
    assert recovery.fold([entry(record)], BOOT, problems).gates == ()
    assert problems == []


def test_a_record_that_is_not_understood_opens_nothing() -> None:
    """A state of a newer version, a time that is none: said, and what was known before stands."""
    problems: list[Damage] = []
    latched = replace(FULL, state=GateState.LATCHED)
    broken = [entry(moved(replace(FULL, state=GateState.RUNNING))) for _ in range(2)]
    broken[0].body["state"] = "WIDE_OPEN"
    broken[1].body["since"] = "yesterday"
    assert recovery.fold([entry(moved(latched)), *broken], BOOT, problems).gates == (latched,)
    assert len(problems) == 2


def test_gates_outlive_a_reboot_as_they_were() -> None:
    """What a new boot makes of them is the watch's to say."""
    started = entry(journal.record("started", "r-000020", Moment(NOON + 60.0, 5.0), NEXT_BOOT, {}))
    assert recovery.fold([entry(moved(FULL)), started], NEXT_BOOT).gates == (FULL,)


def test_gates_reach_the_loop() -> None:
    """Through the message that the recorder sends."""
    found = recovery.fold([entry(checkpoint(engines=(FULL,), maintenance=ON))], BOOT)
    told = msgspec.json.encode(recovery.RecoveredRecord.of(found, None, (), 1))
    back = msgspec.json.decode(told, type=recovery.RecoveredRecord).recovered()
    assert (back.gates, back.maintenance) == ((FULL,), ON)


def test_maintenance_that_is_over_has_no_end() -> None:
    """None is a record too."""
    assert MaintenanceRecord.of(None, "alice").maintenance() is None
    assert MaintenanceRecord.of(ON).maintenance() == ON


def test_only_an_operator_leaves_a_latch() -> None:
    """A run for which the disk was too slow knew of none, and moved what it took for a new engine: the latch stands."""
    latched = replace(FULL, state=GateState.LATCHED)
    blind = replace(FULL, state=GateState.HELD, losses=(), starts=())
    late = [entry(moved(blind)), entry(checkpoint(engines=(blind,))), entry(moved(replace(blind, state=GateState.PROVING)))]
    assert recovery.fold([entry(moved(latched)), *late], BOOT).gates == (latched,)
    reset = journal.from_output(GateMoved("e-000008", AT, GateState.LATCHED, blind), BOOT)
    assert reset is not None
    assert recovery.fold([entry(moved(latched)), entry(reset), *late[1:]], BOOT).gates == (replace(blind, state=GateState.PROVING),)
