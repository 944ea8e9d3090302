"""What others are told of a gate, for every state of it and of the hardware."""

from __future__ import annotations

import pytest

from tests.core.story import DRIVER, EVENING, GPU, RULES
from xidwatch.core import gate_view
from xidwatch.core.gate_model import Gate, GateState, Lease, Maintenance
from xidwatch.core.model import Condition, Moment, Severity, Status, Subject

LATER = Moment(EVENING.wall + 60, EVENING.mono + 60)
BAD = (Condition(GPU, "GpuLost", Status.TRUE, EVENING, ""),)
UNKNOWN = (Condition(GPU, "GpuLost", Status.UNKNOWN, EVENING, ""),)
WORK = Maintenance(EVENING, EVENING.wall + 1800, "card swap")
GRANTED = Lease("a-000001", LATER)
NEVER = (GateState.STOPPING, GateState.HELD, GateState.PROVING, GateState.LATCHED)


def gate(state: GateState, lease: Lease | None = None) -> Gate:
    return Gate("vllm.service", state, EVENING, lease=lease)


@pytest.mark.parametrize(
    ("states", "against", "maintenance", "expected"),
    [
        ((GateState.RUNNING, GateState.OFF), (), None, True),
        ((GateState.RUNNING, GateState.OFF), BAD, None, False),
        ((GateState.RUNNING, GateState.OFF), UNKNOWN, None, None),
        ((GateState.RUNNING, GateState.OFF), (), WORK, None),
        ((GateState.ADOPTING,), (), None, None),
        (NEVER, (), None, False),
        (NEVER, UNKNOWN, WORK, False),
        ((GateState.STARTING,), (), None, False),
    ],
)
def test_every_state_has_its_answer(
    states: tuple[GateState, ...], against: tuple[Condition, ...], maintenance: Maintenance | None, expected: bool | None
) -> None:
    """Held is held; unknown is never yes."""
    for state in states:
        assert gate_view.may_start(gate(state), against, maintenance, EVENING) is expected


def test_a_granted_start_is_granted_until_its_time() -> None:
    """Or the daemon's own start would be refused by its own condition."""
    starting = gate(GateState.STARTING, GRANTED)
    assert gate_view.may_start(starting, UNKNOWN, None, EVENING) is True
    assert gate_view.may_start(starting, (), None, LATER) is False


def test_only_what_would_stop_it_speaks_against_it() -> None:
    """Of its own hardware, and the worst first."""
    by_type = {rule.type: rule for rule in RULES}
    elsewhere = Condition(Subject("gpu", "0000:99:00.0"), "GpuLost", Status.TRUE, EVENING, "")
    warning = next(rule for rule in RULES if not rule.stops_engine and rule.severity is Severity.WARNING)
    fatal = Condition(DRIVER, "DriverFatalXid", Status.TRUE, EVENING, "")
    good = Condition(GPU, "GpuMissing", Status.FALSE, EVENING, "")
    held = [
        *((condition, by_type[condition.type]) for condition in (elsewhere, *UNKNOWN, fatal, good)),
        (Condition(GPU, warning.type, Status.TRUE, EVENING, ""), warning),
    ]
    assert gate_view.against(held, {GPU, DRIVER}) == (fatal, *UNKNOWN)
