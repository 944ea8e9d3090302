"""The hardware under an engine: its GPUs, every port above them, and the driver; what is bad of it, and what is not known.

Law: pure. Reads the roster and the conditions, decides nothing. By place, as the roster has it, for a dead switch renumbers buses.
An engine of which nobody knows the GPUs stands on all of them.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from xidwatch.core import engines
from xidwatch.core.engines import DRIVER as THE_DRIVER
from xidwatch.core.gate_model import Gate, GateSettings, GateState
from xidwatch.core.health import Tracked
from xidwatch.core.messages import ConditionKey
from xidwatch.core.model import Missing, PciAddress, Status, Subject, Value
from xidwatch.core.roster import DRIVER
from xidwatch.core.rules import Rule
from xidwatch.core.state import State

SHOWN = 2  # subjects of one condition that are named; the rest are counted


@dataclass(frozen=True, slots=True)
class Under:
    """`gpus` and `ports`: by place, the subject that conditions and readings of this boot know it as. `known`: these are its own."""

    gpus: Mapping[Subject, Subject]
    ports: Mapping[Subject, Subject]
    known: bool = False
    names: frozenset[Subject] = field(init=False)  # whom a condition has to be about

    def __post_init__(self) -> None:
        object.__setattr__(self, "names", frozenset((*self.gpus.values(), *self.ports.values(), THE_DRIVER)))


def under(state: State, settings: GateSettings, gate: Gate | None = None) -> Under:
    """What this engine stands on: as told or found in this boot, else where it stood when it last ran, else all there is."""
    members = state.roster.members
    managed = [place for place, kept in members.items() if place.kind == "gpu" and kept.get("driver") == DRIVER]
    own = managed + _handed_over(state, managed, gate) if settings.gpus == "all" else _own(state, settings, gate)
    chosen = sorted(own or managed)
    ports = sorted(place for place in members if place.kind == "port" and any(gpu.name.startswith(f"{place.name}/") for gpu in chosen))
    return Under({place: here(state, place) for place in chosen}, {place: here(state, place) for place in ports}, known=bool(own))


def _handed_over(state: State, managed: list[Subject], gate: Gate | None) -> list[Subject]:
    """Where it last ran, and another driver has been bound since: while it is down, fewer than all are no proof of all."""
    if gate is None or gate.gpus_of != "all" or gate.state not in (GateState.HELD, GateState.PROVING, GateState.STARTING):
        return []
    before = (Subject("gpu", place) for place in gate.gpus)
    return [place for place in before if place in state.roster.members and place not in managed]


def setting(settings: GateSettings) -> str:
    """`gpus` in one line, to tell one setting from another."""
    return settings.gpus if isinstance(settings.gpus, str) else " ".join(sorted(str(PciAddress.parse(each)) for each in settings.gpus))


def here(state: State, place: Subject) -> Subject:
    """Its address in this boot, unless somebody else answers there; then, and when it is no member, the place itself."""
    address = state.roster.members.get(place, {}).get("address")
    if not isinstance(address, str) or isinstance(address, Missing) or not address:
        return place
    subject = Subject(place.kind, address)
    chain = state.readings.get(subject, {}).get("chain", place.name)
    return subject if isinstance(chain, Missing) or chain == place.name else place


def _own(state: State, settings: GateSettings, gate: Gate | None) -> list[Subject]:
    """A number that was written down before the buses moved means whom it meant then; one that was never seen means itself."""
    addresses, by = engines.belonging(settings.gpus, state.expected.get(Subject("engine", settings.unit), {}), ())
    remembered = gate.gpus if gate is not None and gate.gpus_of == setting(settings) else ()
    if remembered and (by == "configured" or not addresses):
        return [Subject("gpu", place) for place in remembered]
    members = [(place, str(kept.get("address"))) for place, kept in state.roster.members.items() if place.kind == "gpu"]
    at_home = {address: place for place, address in members if here(state, place) != place}  # others were there in an earlier boot
    places = {address: place for place, address in members} | at_home
    return [places.get(address, Subject("gpu", address)) for address in addresses]


def standing(
    rules: tuple[Rule, ...], conditions: Mapping[ConditionKey, Tracked], names: frozenset[Subject]
) -> tuple[tuple[str, ...], tuple[str, ...], frozenset[Subject]]:
    """What is bad, what is not known (both in words), and who is bad. One that sleeps was left alone on purpose.

    Of one that is known to be bad nothing else has to be known.
    """
    weighty = [rule.type for rule in rules if rule.stops_engine]
    bad: dict[str, list[Subject]] = defaultdict(list)
    unknown: dict[str, list[Subject]] = defaultdict(list)
    for (subject, type_), tracked in conditions.items():
        if subject in names and type_ in weighty:
            if tracked.condition.status is Status.TRUE:
                bad[type_].append(subject)
            elif tracked.condition.status is Status.UNKNOWN and tracked.condition.missing is not Missing.ASLEEP:
                unknown[type_].append(subject)
    lost = tuple(_words(type_, bad[type_]) for type_ in weighty if type_ in bad)
    all_bad = frozenset(subject for subjects in bad.values() for subject in subjects)
    doubts = {type_: [subject for subject in unknown[type_] if subject not in all_bad] for type_ in weighty if type_ in unknown}
    unclear = tuple(f"not known: {_words(type_, subjects)}" for type_, subjects in doubts.items() if subjects)
    return lost, unclear, all_bad


def _words(type_: str, subjects: list[Subject]) -> str:
    shown = sorted(subjects)
    more = f" and {len(shown) - SHOWN} more" if len(shown) > SHOWN else ""
    return f"{type_} {', '.join(str(subject) for subject in shown[:SHOWN])}{more}"


def shared_parent(stands_on: Under, bad: frozenset[Subject]) -> str:
    """The chain of the lowest device that all the bad ones have in common, of one alone its own; "" when only the driver is bad."""
    places = [place for place, subject in (*stands_on.gpus.items(), *stands_on.ports.items()) if subject in bad]
    return "/".join(_common([place.name.split("/") for place in places])) if places else ""


def name_of(stands_on: Under, place: str) -> str:
    """Whom people know to be at this place; "" when nobody is known there."""
    there = (subject for known, subject in (*stands_on.ports.items(), *stands_on.gpus.items()) if known.name == place)
    return next(map(str, there), "")


def _common(chains: list[list[str]]) -> list[str]:
    """Their longest common beginning."""
    common = []
    for parts in zip(*chains, strict=False):
        if len(set(parts)) > 1:
            break
        common.append(parts[0])
    return common


def words(value: Value | None) -> set[str]:
    """Of a list in a reading; none when it did not come."""
    return set(value.split()) if isinstance(value, str) and not isinstance(value, Missing) else set()


def any_of(values: Iterable[Value | None], above: float) -> bool:
    """Whether one that came is above."""
    return any(isinstance(value, int | float) and value > above for value in values)
