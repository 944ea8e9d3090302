"""What others are told of a gate: may this engine be started now, by anybody?

Law: pure. `None` is an answer, and means that nobody knows.
"""

from __future__ import annotations

from collections.abc import Collection

from xidwatch.core.gate_model import Gate, GateState, Maintenance
from xidwatch.core.model import Condition, Missing, Moment, Status, Subject
from xidwatch.core.rules import Rule

CLOSED = frozenset({GateState.STOPPING, GateState.HELD, GateState.PROVING, GateState.LATCHED})


def against(conditions: Collection[tuple[Condition, Rule]], hardware: Collection[Subject]) -> tuple[Condition, ...]:
    """What is TRUE or UNKNOWN of the hardware under an engine, and would stop it if it were true; what is bad first."""
    held = [condition for condition, rule in conditions if rule.stops_engine and condition.subject in hardware]
    worth = [condition for condition in held if condition.status is Status.TRUE or _is_doubt(condition)]
    return tuple(sorted(worth, key=lambda condition: (condition.status is not Status.TRUE, condition.subject, condition.type)))


def may_start(gate: Gate, against: Collection[Condition], maintenance: Maintenance | None, now: Moment) -> bool | None:
    """A start that was granted is granted, whatever else is unknown; what is held is held, also while somebody works on the host."""
    if gate.state in CLOSED:
        return False
    if maintenance is not None or gate.state is GateState.ADOPTING:
        return None
    if gate.state is GateState.STARTING:
        return gate.lease is not None and now.mono < gate.lease.until.mono
    if any(condition.status is Status.TRUE for condition in against):
        return False
    return None if against else True


def _is_doubt(condition: Condition) -> bool:
    """One that sleeps was left alone on purpose."""
    return condition.status is Status.UNKNOWN and condition.missing is not Missing.ASLEEP
