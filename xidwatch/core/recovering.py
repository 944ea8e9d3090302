"""Recovery by itself: which step that an operator has switched on is due, and what speaks against each. Nothing is, by default.

Law: pure. One step at a time, each at most once in a boot, whatever came of it; a reboot at most once for an incident, and once within
its window. Nothing is done in maintenance, on what is merely not known, before the evidence is written, or while an engine lives on it.
What helps when, and what blocks it, is the ladder's (`recovery`); who holds a device is looked at once more by whoever takes the step.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace

from xidwatch.core import engines, hardware, recovery, supervision, tally
from xidwatch.core.gate_model import Gate, GateSettings, GateState
from xidwatch.core.health import Tracked
from xidwatch.core.messages import ConditionKey, Input, RecoveryEnded, SampleTaken, Supervised
from xidwatch.core.model import PCI_KINDS, Action, ActionKind, Condition, KernelEvent, Missing, Moment, Status, Subject
from xidwatch.core.recovery import Situation
from xidwatch.core.recovery_model import (
    FAILED,
    LEFT,
    NOTHING_DONE,
    OK,
    TIMEOUT,
    UNABLE,
    WHOLE_HOST,
    Attempt,
    Outlook,
    PutOff,
    Recoveries,
    RecoveryStep,
)
from xidwatch.core.rules import Rule
from xidwatch.core.state import State, Step

REBOOT = RecoveryStep.REBOOT
AT_REST = frozenset({GateState.HELD, GateState.OFF, GateState.LATCHED})
ALL_ONES = 0xFFFFFFFF
UNHEARD = frozenset({"", LEFT})  # how they ended
LONGEST_STEP_SECONDS = 900.0  # a step that an earlier run began may be under way for so long
FIRST_PUT_OFF_SECONDS, LONGEST_PUT_OFF_SECONDS = 300.0, 3600.0
MOST_ATTEMPTS = 20

Conditions = Mapping[ConditionKey, Tracked]
Places = Mapping[Subject, str]


# ------------------------------------------------------------------------------------------------------------ the watch


def turn(now: Step, given: Input, at: Moment | None) -> None:
    """After an input: what is switched on and was tried is taken over, a step that has ended is noted, and one that is due is asked for."""
    match given:
        case Supervised():
            now.change(recovery=replace(now.state.recovery, settings=given.recovery, knows_past=given.knows_past, attempts=given.attempts))
        case RecoveryEnded():
            now.change(recovery=_ended(now.state.recovery, given))
        case SampleTaken() if at is not None:
            _ask(now, at)


def note(now: Step, events: Iterable[KernelEvent]) -> None:
    """What nothing less than a reboot undoes: the driver says so, perhaps long after its first word, or a processor does not come back."""
    for event in events:
        asks = event.kind == "uvm_fatal" or "reboot" in (event.recovery or "").lower()
        if not event.injected and (asks or (event.kind == "lockup" and "hard" in event.text.lower())):
            now.change(recovery=replace(now.state.recovery, terminal=event.text))


def _ask(now: Step, at: Moment) -> None:
    """The driver is let go first: removal, reset and reload would wait for ever for our own handle."""
    due = _due(now.rules, now.state, now.conditions, at)
    if due is None:
        return
    outlook, gate = due
    name, cause = now.id("a"), gate.told or (now.state.incident.trigger if now.state.incident else gate.unit)
    incident = now.state.incident.id if now.state.incident else None
    attempt = Attempt(outlook.step, name, at, now.state.boot_id, incident, outlook.target)
    known = now.state.recovery
    now.change(recovery=replace(known, attempts=_kept((*known.attempts, attempt), now.state.boot_id), under_way=name))
    if outlook.step is not REBOOT and not now.state.driver_released:
        now.out.append(Action(now.id("a"), at, ActionKind.RELEASE_DRIVER, name))
    now.out.append(Action(name, at, ActionKind.RECOVER, cause, incident, step=outlook.step, target=outlook.target))


def _kept(attempts: tuple[Attempt, ...], boot_id: str) -> tuple[Attempt, ...]:
    """Of other boots only reboots matter."""
    return tuple(each for each in attempts if each.boot_id == boot_id or each.step == REBOOT)[-MOST_ATTEMPTS:]


def _ended(known: Recoveries, given: RecoveryEnded) -> Recoveries:
    """Where nothing was done it may be tried again: later and later, or, where it cannot be done at all, in the next run."""
    if given.action != known.under_way:
        return known
    own = next(each for each in known.attempts if each.action == given.action)
    others = tuple(each for each in known.attempts if each is not own)
    if given.result not in NOTHING_DONE:
        told = replace(own, result=given.result, detail=given.detail)
        return replace(known, attempts=(*others, told), under_way="", rested=given.at.mono)
    known = replace(known, attempts=others, under_way="")
    if given.result == UNABLE:
        return replace(known, unable={**known.unable, own.step: given.detail or "it cannot be done here"})
    times = known.put_off[own.step].times + 1 if own.step in known.put_off else 1
    pause = min(FIRST_PUT_OFF_SECONDS * 2.0 ** (times - 1), LONGEST_PUT_OFF_SECONDS)
    return replace(known, put_off={**known.put_off, own.step: PutOff(given.at.mono + pause, times, given.detail)})


def renews_driver(state: State, given: RecoveryEnded) -> bool:
    """Whether all that the kernel log has accused has been put on the bus anew: then what it said is about a device that was another.

    Nothing is well because of that. It is not known, until the driver has answered for it.
    """
    own = next((each for each in state.recovery.attempts if each.action == given.action), None)
    if own is None or given.result != OK or own.step == REBOOT:
        return False
    places = engines.places(state.readings, state.roster.members)
    slots = [device.name for device, values in state.readings.items() if own.target and values.get("slot") == own.target]
    names = slots if own.step == RecoveryStep.SLOT_POWER else own.target.split()
    outside = {each for each in tally.accused(state.tally) if each != engines.DRIVER and not _is_at(each, names, places)}
    return own.step == RecoveryStep.MODULE_RELOAD or not outside


def hindrance(rules: tuple[Rule, ...], state: State, action: Action, at: Moment) -> str:
    """What has come up against a step since it was decided on; "" for nothing."""
    others = tuple(each for each in state.recovery.attempts if each.action != action.id)
    before = replace(state, recovery=replace(state.recovery, attempts=others, under_way=""))
    found = [each for _, several in _held(rules, before, before.conditions, at) for each in several if each.step == action.step]
    wanted = [each for each in found if each.target == action.target]
    if any(not each.against for each in wanted):
        return ""
    return next((each.against[0] for each in wanted), "no engine is held for this any more")


# ------------------------------------------------------------------------------------------------------ what is due


def _due(rules: tuple[Rule, ...], state: State, conditions: Conditions, at: Moment) -> tuple[Outlook, Gate] | None:
    """The first step, of the first engine in need of one, against which nothing speaks."""
    if not state.recovery.settings.enabled:
        return None
    for gate, outlooks in _held(rules, state, conditions, at):
        for each in outlooks:
            if not each.against:
                return each, gate
    return None


def outlooks(rules: tuple[Rule, ...], state: State, at: Moment) -> tuple[Outlook, ...]:
    """Every step that is switched on, as it stands for the first engine that is held for its hardware; for views."""
    for _, found in _held(rules, state, state.conditions, at):
        return found
    steps = state.recovery.settings.enabled
    return tuple(Outlook(step, against=(_done(state, step) or "no engine is held for its hardware",)) for step in steps)


def _held(rules: tuple[Rule, ...], state: State, conditions: Conditions, at: Moment) -> Iterator[tuple[Gate, tuple[Outlook, ...]]]:
    weighty = {rule.type for rule in rules if rule.stops_engine}
    bad = [tracked.condition for (_, type_), tracked in conditions.items() if type_ in weighty and tracked.condition.status is Status.TRUE]
    places = engines.places(state.readings, state.roster.members)
    for engine in state.engines:
        gate = state.gates.get(engine.unit)
        if gate is None or gate.state is not GateState.HELD:
            continue
        under = hardware.under(state, engine, gate).names
        pids = state.readings.get(Subject("engine", engine.unit), {}).get("pids")
        holders = pids if isinstance(pids, str) and not isinstance(pids, Missing) else ""
        found = recovery.situation(under, bad, state.readings, places, holders=holders, leftovers=gate.leftovers, told=state.tally.asked)
        own = [each for each in bad if each.subject in under]
        if own:
            against = (*_of_the_host(state, at), *_of_the_engine(state, engine, gate, at))
            yield gate, tuple(_outlook(step, state, engine, found, own, places, against, at) for step in state.recovery.settings.enabled)


def _outlook(
    step: RecoveryStep,
    state: State,
    engine: GateSettings,
    found: Situation,
    bad: list[Condition],
    places: Places,
    against: tuple[str, ...],
    at: Moment,
) -> Outlook:
    """One step: what it would be done to, then everything in its way, the most lasting first."""
    tops = _tops(bad, places)
    rung = next((each for each in recovery.ladder(found) if each.key == step), None)
    objections = [_done(state, step)]
    objections += rung.blocked if rung else [] if step is REBOOT else ["it does not apply here"]
    objections += [*_of_step(step, state, bad, found.top, tops, places), *_of_others(step, state, engine, tops, places)]
    objections += _of_reboot(state, at) if step is REBOOT else _of_processes(state, engine)
    objections += [*against, *_of_time(state, step, at)]
    return Outlook(step, _target(step, found, tops), tuple(dict.fromkeys(filter(None, objections))))


def _tops(bad: list[Condition], places: Places) -> tuple[Subject, ...]:
    """The PCI devices that are bad, without those below another one that is."""
    devices = {each.subject: places.get(each.subject, each.subject.name) for each in bad if each.subject.kind in PCI_KINDS}
    return tuple(sorted(own for own, place in devices.items() if not any(place.startswith(f"{above}/") for above in devices.values())))


def _target(step: RecoveryStep, found: Situation, tops: tuple[Subject, ...]) -> str:
    """Addresses, the name of a slot, a module, or "" for the host; a device that only its place names has no address to act on."""
    if step is RecoveryStep.MODULE_RELOAD:
        return engines.DRIVER.name
    if step is RecoveryStep.SLOT_POWER:
        return found.slot
    return "" if step is REBOOT else " ".join(each.name for each in tops if "/" not in each.name)


def _is_at(subject: Subject, names: list[str], places: Places) -> bool:
    """It is one of these, or below one."""
    above = [place for device, place in places.items() if device.name in names]
    own = places.get(subject, subject.name)
    return subject.name in names or any(own == place or own.startswith(f"{place}/") for place in above)


# ------------------------------------------------------------------------------------------------ what speaks against it


def _done(state: State, step: RecoveryStep) -> str:
    """Once in a boot, also when nobody knows what came of it; what cannot be done here is not asked for again."""
    for each in state.recovery.attempts:
        if each.step == step and each.boot_id == state.boot_id:
            return f"done in this boot ({each.result or 'how it ended is not on record'})"
    return state.recovery.unable.get(step, "")


def _of_the_host(state: State, at: Moment) -> Iterator[str]:
    known = state.recovery
    if not known.knows_past:
        yield "the journal could not be read: nobody knows what was tried before"
    if known.under_way:
        yield "a step is under way"
    if state.maintenance is not None:
        yield "the host is in maintenance"
    if state.incident is None or not state.incident.dumps:
        yield "there is no evidence of it yet"
    elif state.dumping:
        yield "evidence is being written"
    here = [each for each in known.attempts if each.boot_id == state.boot_id and each.action != known.under_way]
    if any(each.step == REBOOT and each.result != FAILED for each in here):
        yield "the host has been told to reboot"
    if any(each.result in UNHEARD and at.mono - each.at.mono < LONGEST_STEP_SECONDS for each in here):
        yield "a step that an earlier run began may still be under way"


def _of_the_engine(state: State, engine: GateSettings, gate: Gate, at: Moment) -> Iterator[str]:
    if engine.unit in state.opened:
        yield f"an operator has opened the gate of {engine.unit}"
    waited = at.mono - max(gate.since.mono, state.recovery.rested, *(each.at.mono for each in _here(state)), 0.0)
    if waited < state.recovery.settings.wait_seconds:
        yield "waiting: it may come back by itself, and evidence is worth more than a minute"


def _here(state: State) -> list[Attempt]:
    return [each for each in state.recovery.attempts if each.boot_id == state.boot_id]


def _of_processes(state: State, engine: GateSettings) -> Iterator[str]:
    """Its control group is known to be empty, or a removal would wait for ever."""
    unit = supervision.of_either(state, engine)
    if unit is None or unit.processes is None:
        yield f"it is not known whether {engine.unit} is down"
    elif not unit.is_down or unit.processes:
        yield f"{engine.unit} is not down"


def _of_step(
    step: RecoveryStep, state: State, bad: list[Condition], top: Subject | None, tops: tuple[Subject, ...], places: Places
) -> Iterator[str]:
    """What only this step needs. A step that did not return may hold the kernel's lock of all PCI devices."""
    if step is not REBOOT and any(each.result == TIMEOUT for each in _here(state)):
        yield "an earlier step has not returned, and may hold what this one would wait for"
    if step is not REBOOT and state.recovery.terminal:
        yield f"less than a reboot does not help: {state.recovery.terminal}"
    if step is RecoveryStep.SLOT_POWER and tops != (top,):
        yield "more is gone than what sits in this slot, or something else"
    if step is RecoveryStep.GPU_RESET and any("/" in each.name for each in tops):
        yield "what is gone has no address"
    if step is RecoveryStep.GPU_RESET and any(each.kind != "gpu" for each in tops):
        yield "what is gone is no GPU"
    if step in (RecoveryStep.RESCAN, RecoveryStep.SLOT_POWER):
        yield from _well_below(state, bad, tops, places)
    if step is RecoveryStep.RESCAN:
        unlisted = {each.subject for each in bad if each.type in recovery.UNLISTED}
        yield from filter(None, (_silent(each, state) for each in tops if each not in unlisted))


def _well_below(state: State, bad: list[Condition], tops: tuple[Subject, ...], places: Places) -> Iterator[str]:
    """GPUs that would go with a port and are not known to be gone: nobody has accused them. One behind a silent port is as gone as that."""
    names, accused = [each.name for each in tops], {each.subject for each in bad}
    for gpu in sorted(each for each in places if each.kind == "gpu" and each in state.readings and each not in accused):
        if _is_at(gpu, names, places) and state.readings[gpu].get("config_dword0") is not Missing.BEHIND_DEAD_PARENT:
            yield f"{gpu.name} would go with it, and is not known to be gone"


def _silent(device: Subject, state: State) -> str:
    """A rescan reads the first dword of whoever may be there, and takes all ones for nobody."""
    word = state.readings.get(device, {}).get("config_dword0")
    if word == ALL_ONES:
        return f"{device.name} answers nothing, and a rescan finds only what answers"
    return "" if isinstance(word, int) else f"it is not known whether {device.name} answers"


def _of_others(step: RecoveryStep, state: State, own: GateSettings, tops: tuple[Subject, ...], places: Places) -> Iterator[str]:
    """Other engines on the same hardware, or on the same host where all of it is touched, have to be known to be down."""
    names = [each.name for each in tops]
    for other in state.engines:
        if other.unit == own.unit:
            continue
        gate = state.gates.get(other.unit)
        stands_on = hardware.under(state, other, gate)
        if step not in WHOLE_HOST and not any(_is_at(each, names, places) for each in stands_on.names):
            continue
        unit = supervision.of_either(state, other)
        if gate is None or gate.state not in AT_REST or unit is None or not unit.is_down or (unit.processes != 0 and step is not REBOOT):
            yield f"{other.unit} is not known to be down"


def _of_reboot(state: State, at: Moment) -> Iterator[str]:
    """Once for an incident, which goes on over boots until it is over; once within the window; and never on a host that just came up.

    The last needs no record: a host whose records do not last reboots no faster than somebody can log in.
    """
    settings = state.recovery.settings
    earlier = [each for each in state.recovery.attempts if each.step == REBOOT]
    if state.incident is not None and any(each.incident == state.incident.id for each in earlier):
        yield "the host has been rebooted for this incident before"
    if any(each.at.wall > at.wall - settings.reboot_window_seconds for each in earlier):  # also one that the clock puts into the future
        yield f"the host has been rebooted within {settings.reboot_window_seconds:g} s"
    if at.mono < settings.reboot_after_seconds:
        yield f"the host has been up for less than {settings.reboot_after_seconds:g} s"
    for engine in state.engines:
        gate, unit = state.gates.get(engine.unit), supervision.of_either(state, engine)
        if unit is None or not unit.is_down:
            yield f"it is not known whether {engine.unit} is down" if unit is None else f"{engine.unit} is not down"
        elif unit.processes != 0 and not (gate is not None and gate.leftovers):
            yield f"{engine.unit} may have processes that can be ended"
        if gate is not None and gate.state is GateState.HELD and at.mono - gate.since.mono < settings.reboot_after_seconds:
            yield f"less than {settings.reboot_after_seconds:g} s since {engine.unit} is held"


def _of_time(state: State, step: RecoveryStep, at: Moment) -> Iterator[str]:
    put_off = state.recovery.put_off.get(step)
    if put_off is not None and at.mono < put_off.until:
        yield f"refused when it was about to be taken: {put_off.why}"
