"""Every engine's gate within the watch: what each sees of units and hardware, what moves, and what that asks for.

Law: pure, one turn at a time. The gate decides (`gate`); here is only what it is shown, and what becomes of its word. While the
host is in maintenance no gate is moved.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

from xidwatch.core import gate, hardware, proof
from xidwatch.core.gate import Effect
from xidwatch.core.gate_events import Seen, Unit
from xidwatch.core.gate_model import Gate, GateMoved, GateSettings, GateState
from xidwatch.core.hardware import Under
from xidwatch.core.messages import (
    DumpEnded,
    EngineSeen,
    EngineStarted,
    EngineStopped,
    GateReset,
    GatesOpened,
    Input,
    MaintenanceSet,
    SampleTaken,
    Supervised,
)
from xidwatch.core.model import Action, ActionKind, Missing, Moment, Subject, Value
from xidwatch.core.state import State, Step

UP = ("active", "reloading", "refreshing")
DOWN = ("inactive", "failed")
NOT_LOADED = ("not-found", "masked", "error", "bad-setting")
WITH_THE_HOST = ("enabled", "enabled-runtime")
NOT_TO_START = {"disabled": "its unit is disabled", "masked": "its unit is masked", "masked-runtime": "its unit is masked"}
BUSY_RATIO = 0.2  # of the time, a kernel ran on one of its GPUs

Values = Mapping[str, Value]


def begin(now: Step, given: Supervised) -> None:
    """Engines that are new are adopted, those that are known stay as they are, the others are nobody's business any more."""
    kept = {**now.state.gates, **{each.unit: gate.restored(each, given.boot_id) for each in given.gates}}
    gates = {engine.unit: kept.get(engine.unit) or _new(engine, given) for engine in given.engines}
    maintenance = given.maintenance or now.state.maintenance
    now.change(engines=given.engines, gates=gates, boot_id=given.boot_id, maintenance=maintenance)


def _new(engine: GateSettings, given: Supervised) -> Gate:
    return Gate(engine.unit, GateState.ADOPTING, given.at, "not looked at yet", boot_id=given.boot_id)


def note_xid(now: Step, subject: Subject, at: Moment) -> None:
    """The driver has told of an error: what it was said of has to be quiet for a while before it is proven."""
    if now.state.gates:
        now.change(xid_errors={**now.state.xid_errors, subject: at})


def turn(now: Step, given: Input, at: Moment | None) -> None:
    """After an input: every gate sees what there is to see, and moves as far as it does."""
    if at is None:
        return
    _remember(now, given, at)
    for engine in now.state.engines if now.state.gates else ():
        is_latched = now.state.gates[engine.unit].state is GateState.LATCHED
        if now.state.maintenance is None or (is_latched and isinstance(given, GateReset)):  # an operator may leave that at any time
            _turn_one(now, engine, given, at)


def _remember(now: Step, given: Input, at: Moment) -> None:
    match given:
        case Supervised():
            begin(now, given)
        case EngineSeen(unit=unit, values=values):
            subject = Subject("engine", unit)
            now.change(readings={**now.state.readings, subject: {**now.state.readings.get(subject, {}), **values}})
        case GatesOpened(units=units):
            now.change(opened=units)
        case DumpEnded(incident=incident):
            now.change(dumping=now.state.dumping - {incident})
        case MaintenanceSet(maintenance=None):  # nobody knows what has been done to them meanwhile
            for each in tuple(now.state.gates.values()):
                _put(now, gate.after_maintenance(each, at), each, at)


def _turn_one(now: Step, engine: GateSettings, given: Input, at: Moment) -> None:
    before = now.state.gates[engine.unit]
    seen = look(now, engine, given, at)
    after, effect = gate.step(engine, before, seen)
    if effect is Effect.NOTHING:
        _put(now, after, before, at)
        return
    kind = ActionKind.STOP_ENGINE if effect is Effect.STOP else ActionKind.START_ENGINE
    name = now.id("a")
    after = replace(after, asked=name) if effect is Effect.STOP else gate.granted(engine, after, name, at)
    moved = _put(now, after, before, at)
    now.out.append(Action(name, at, kind, moved, after.incident, _acted_on(now.state, engine, after, effect)))


def _put(now: Step, after: Gate, before: Gate, at: Moment) -> str:
    """The gate as it is now; the id of the record of it, which is a new one when there is something to record."""
    is_news = _as_told(after) != _as_told(before)
    after = replace(after, told=now.id("e") if is_news else before.told)
    now.change(gates={**now.state.gates, after.unit: after})
    if is_news:
        now.out.append(GateMoved(after.told, at, before.state, after))
    return after.told


def _as_told(of: Gate) -> Gate:
    """Without what nobody needs to know of later."""
    return replace(of, busy_wall=0.0, holds_since=None, asked="", told="")


# --------------------------------------------------------------------------------------------------- what a gate is shown


def look(now: Step, engine: GateSettings, given: Input, at: Moment) -> Seen:
    """Everything that may move the gate of one engine, at this input."""
    state = now.state
    own = state.gates[engine.unit]
    stands_on = hardware.under(state, engine, own)
    lost, unclear, bad = hardware.standing(now.rules, now.conditions, stands_on.names)
    is_tick = isinstance(given, SampleTaken) and at.mono > own.since.mono
    seen_now = of_either(state, engine) if is_tick or _is_about(given, engine) else None
    stopped, started, reset_by = _answers(given, own)
    parent = hardware.shared_parent(stands_on, bad)
    return Seen(
        at=at,
        boot_id=state.boot_id,
        unit=seen_now,
        lost=lost,
        unclear=(*unclear, *_unclear(state, stands_on)),
        parent=parent,
        parent_name=hardware.name_of(stands_on, parent),
        incident=state.incident.id if state.incident else None,
        is_well=is_tick and not lost and not unclear and not _unlisted(state, stands_on),
        evidence_due=bool(state.dumping),
        proofs_lacking=_lacking(state, engine, stands_on, at, seen_now) if is_tick and own.state is GateState.PROVING else None,
        is_busy=isinstance(given, SampleTaken) and _is_busy(state, engine, stands_on),
        stop_result=stopped,
        start_result=started,
        reset_by=reset_by,
        overridden=engine.unit in state.opened,
        stands_on=_settled(engine, stands_on) if is_tick else None,
        shared=_shared(state, engine, stands_on) if is_tick else None,
    )


def _is_about(given: Input, engine: GateSettings) -> bool:
    """What an earlier look has seen of a unit moves nothing: it may have changed a moment later, by our own hand."""
    return isinstance(given, EngineSeen) and given.unit in (engine.unit, engine.after_incident_unit)


def _unclear(state: State, stands_on: Under) -> Iterator[str]:
    """What has to be known before there is anything to prove."""
    if _unlisted(state, stands_on):
        yield "not known: which GPUs there are"
    if state.recovery.under_way:
        yield "hardware is being recovered: a step is under way"
    yield from proof.obstacles(state)


def _unlisted(state: State, stands_on: Under) -> bool:
    return not stands_on.gpus and isinstance(state.roster.listed, Missing)


def _lacking(state: State, engine: GateSettings, stands_on: Under, at: Moment, seen_now: Unit | None) -> tuple[str, ...]:
    found = proof.proofs(engine, state, stands_on, at, state.gates[engine.unit].shared)
    unit_lacks = () if seen_now is not None else ("systemd does not say how its unit is",)
    return (*unit_lacks, *proof.lacking(found))


def _settled(engine: GateSettings, stands_on: Under) -> tuple[tuple[str, ...], str] | None:
    is_whole = stands_on.known and all("/" in place.name for place in stands_on.gpus)
    return (tuple(place.name for place in stands_on.gpus), hardware.setting(engine)) if is_whole else None


def _shared(state: State, engine: GateSettings, stands_on: Under) -> tuple[str, ...] | None:
    """Where somebody computes who is no engine of ours; None when that could not be seen of all.

    Of one that starts a container and has no process on any GPU itself, that is the container, which is not known by its name.
    """
    if not all(isinstance(each, str) and not isinstance(each, Missing) for each in proof.named_by_engines(state)):
        return None  # its own processes would pass for somebody else's
    own = proof.processes_of_engines(state)
    told = {place.name: state.readings.get(subject, {}).get("compute_pids") for place, subject in stands_on.gpus.items()}
    if not all(isinstance(pids, str) and not isinstance(pids, Missing) for pids in told.values()):
        return None
    units = [state.readings.get(Subject("engine", name), {}) for name in (engine.unit, engine.after_incident_unit)]
    starts_container = any(values.get("starts_container") == 1 for values in units)
    itself = {pid for values in units for pid in hardware.words(values.get("pids"))}
    if starts_container and not any(hardware.words(pids) & itself for pids in told.values()):
        return ()
    return tuple(place for place, pids in told.items() if hardware.words(pids) - own)


def _answers(given: Input, own: Gate) -> tuple[tuple[str, str, tuple[str, ...]] | None, tuple[str, str, str] | None, str]:
    """What an input says to this gate and no other: of its own stop, of its own start, of an operator."""
    match given:
        case EngineStopped(unit=name, action=action) if name == own.unit and action == own.asked:
            return (given.result, given.detail, given.leftovers), None, ""
        case EngineStarted(unit=name, action=action) if name == own.unit and own.lease is not None and action == own.lease.action:
            return None, (given.result, given.detail, given.invocation_id), ""
        case GateReset(unit=name, by=by) if name == own.unit:
            return None, None, by
    return None, None, ""


def unit(values: Values) -> Unit | None:
    """What the engine probe says of a unit; None when it does not say how it is."""
    load, active = values.get("load_state"), values.get("active_state")
    processes = values.get("processes")
    left = processes if isinstance(processes, int) else None
    if load in NOT_LOADED:
        return Unit(runs=False, forbidden=f"systemd says of its unit: {load}", processes=left)
    if not isinstance(active, str) or isinstance(active, Missing):
        return None
    file_state = _text(values.get("unit_file_state"))
    return Unit(
        runs=active in UP,
        moves=active if active not in (*UP, *DOWN) else "",
        invocation_id=_text(values.get("invocation_id")),
        restarts=_number(values.get("restarts")),
        how=_how(values) if active in DOWN else "",
        forbidden=NOT_TO_START.get(file_state, ""),
        enabled=file_state in WITH_THE_HOST,
        on_demand=file_state not in ("", *WITH_THE_HOST, *NOT_TO_START),
        processes=left,
    )


def of_either(state: State, engine: GateSettings) -> Unit | None:
    """Of the engine's own unit, or of its stand-in while that runs. A stand-in that is not known may run: then nobody knows."""
    own = unit(state.readings.get(Subject("engine", engine.unit), {}))
    if not engine.after_incident_unit or own is None or own.runs:
        return own
    other = unit(state.readings.get(Subject("engine", engine.after_incident_unit), {}))
    if other is None:
        return None
    if other.runs or other.moves:
        return other
    both = None if own.processes is None or other.processes is None else own.processes + other.processes
    return replace(own, processes=both)


def _acted_on(state: State, engine: GateSettings, own: Gate, effect: Effect) -> str:
    """The unit that is stopped or started: the stand-in while that runs, and after an incident."""
    stand_in = engine.after_incident_unit
    if not stand_in:
        return engine.unit
    other = unit(state.readings.get(Subject("engine", stand_in), {}))
    is_there = other is not None and (not other.is_down or bool(other.processes))
    return stand_in if (is_there if effect is Effect.STOP else own.incident is not None) else engine.unit


def _how(values: Values) -> str:
    """How it came not to run. Systemd forgets when a unit was left that has not run in this boot."""
    if values.get("result") == "exec-condition":
        return "skipped"
    if isinstance(values.get("state_seconds", Missing.ABSENT), Missing):
        return ""
    is_clean = values.get("active_state") == "inactive" and values.get("result") == "success"
    return "stopped" if is_clean else "ended"


def _is_busy(state: State, engine: GateSettings, stands_on: Under) -> bool:
    units = (engine.unit, engine.after_incident_unit)
    requests = [state.readings.get(Subject("engine", name), {}).get("requests_running") for name in units]
    gpus = [state.readings.get(subject, {}).get("utilisation_ratio") for subject in stands_on.gpus.values()]
    return hardware.any_of(requests, 0) or hardware.any_of(gpus, BUSY_RATIO)


def _text(value: Value | None) -> str:
    return value if isinstance(value, str) and not isinstance(value, Missing) else ""


def _number(value: Value | None) -> int:
    return value if isinstance(value, int) else 0
