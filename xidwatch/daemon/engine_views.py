"""What the state file, the metrics and a person at `status` are shown of each engine: what was seen of it, and what its gate says."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from xidwatch.clock import iso
from xidwatch.config import EngineConfig
from xidwatch.core import engines as core_engines
from xidwatch.core import gate_events, gate_view, hardware, recovery, watch
from xidwatch.core.gate_model import Gate, GateState
from xidwatch.core.model import Condition, Missing, Moment, Subject, Value
from xidwatch.core.rules import Rule
from xidwatch.core.watch import State
from xidwatch.records.order import Order
from xidwatch.records.state import EngineState

NOT_PROVEN = "nothing is proven yet"
UNSEEN = f"{NOT_PROVEN}: systemd has not been heard on its unit (is `probes.engine` enabled?)"
HELD_BACK = frozenset({GateState.STOPPING, GateState.HELD, GateState.PROVING, GateState.LATCHED})  # when it matters what could help


def shown(
    configured: Collection[EngineConfig], rules: tuple[Rule, ...], state: State, now: Moment, orders: Mapping[str, Order]
) -> dict[str, EngineState]:
    """By unit."""
    everything = [subject.name for subject in state.readings.keys() | state.expected.keys() if subject.kind == "gpu"]
    conditions = watch.conditions_with_severity(rules, state)
    places = core_engines.places(state.readings, state.roster.members)
    settings = {each.unit: each for each in state.engines}
    found = {}
    for each in configured:
        subject = Subject("engine", each.unit)
        values = state.readings.get(subject, {})
        unit = "/".join(filter(None, (_word(values, "active_state"), _word(values, "sub_state"))))
        gate, asked = state.gates.get(each.unit), settings.get(each.unit)
        stands_on = hardware.under(state, asked, gate) if asked is not None else None
        gpus, by = core_engines.belonging(each.gpus, state.expected.get(subject, {}), everything)
        if not gpus and stands_on is not None and stands_on.known:  # in this boot nobody has seen it run
            gpus, by = tuple(sorted(gpu.name for gpu in stands_on.gpus.values())), "before"
        seen = EngineState(
            unit=unit,
            invocation_id=_word(values, "invocation_id"),
            gpus=gpus,
            gpus_by=by,
            order=_order(orders, each.unit),
            stand_in=each.after_incident_unit,
        )
        found[each.unit] = seen
        if gate is not None and stands_on is not None:
            against = gate_view.against(conditions, stands_on.names)
            rungs = _rungs(gate, against, stands_on.names, state, places)
            found[each.unit] = _with_gate(seen, gate, against, state, now, rungs)
    return found


def _with_gate(
    seen: EngineState, gate: Gate, against: tuple[Condition, ...], state: State, now: Moment, rungs: tuple[str, ...]
) -> EngineState:
    may = gate_view.may_start(gate, against, state.maintenance, now)
    return EngineState(
        state=gate.state,
        since=iso(gate.since.wall),
        may_start=may,
        why=(_held_for(gate) if may or gate.state in HELD_BACK else "") or _why(may, against, state, heard=bool(seen.unit)) or gate.why,
        lease=iso(gate.lease.until.wall) if gate.lease else None,
        unit=seen.unit,
        invocation_id=seen.invocation_id,
        gpus=seen.gpus,
        gpus_by=seen.gpus_by,
        order=seen.order,
        recovery=rungs,
        stand_in=seen.stand_in,
    )


def _held_for(gate: Gate) -> str:
    """Of one that is latched also what became of the processes that outlived its stop; else they are in its reason."""
    return "; ".join(filter(None, (gate.why, gate_events.survivors(gate) if gate.state is GateState.LATCHED else "")))


def _why(may: bool | None, against: tuple[Condition, ...], state: State, *, heard: bool) -> str:
    if may:
        return ""
    if may is None and state.maintenance is not None:
        return f"in maintenance until {iso(state.maintenance.until)}: {state.maintenance.reason}"
    if against:
        worst = against[0]
        more = f", and {len(against) - 1} more" if len(against) > 1 else ""
        return f"{worst.type} {worst.status} {worst.subject}: {worst.reason}{more}"
    return "" if may is not None else NOT_PROVEN if heard else UNSEEN


def _rungs(
    gate: Gate, against: tuple[Condition, ...], under: Collection[Subject], state: State, places: Mapping[Subject, str]
) -> tuple[str, ...]:
    """What could bring its hardware back, while it is held for that."""
    if gate.state not in HELD_BACK:
        return ()
    holders = _word(state.readings.get(Subject("engine", gate.unit), {}), "pids")
    found = recovery.situation(under, against, state.readings, places, holders=holders, leftovers=gate.leftovers, told=state.tally.asked)
    return recovery.words(recovery.ladder(found))


def _order(orders: Mapping[str, Order], unit: str) -> str | None:
    return orders[unit].until if unit in orders else None


def _word(values: Mapping[str, Value], quantity: str) -> str:
    value = values.get(quantity, Missing.NOT_ASKED)
    return "" if isinstance(value, Missing) else str(value)
