"""The hardware under an engine: its GPUs, every port above them, and the driver; what is bad of it, and what is not known.

Law: pure. Reads the roster and the conditions, decides nothing. An engine of which nobody knows the GPUs stands on all of them.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from xidwatch.core import engines
from xidwatch.core.health import Tracked
from xidwatch.core.messages import ConditionKey
from xidwatch.core.model import Missing, Readings, Status, Subject, Value
from xidwatch.core.roster import DRIVER
from xidwatch.core.rules import Rule
from xidwatch.core.state import State

SHOWN = 2  # subjects of one condition that are named; the rest are counted


@dataclass(frozen=True, slots=True)
class Under:
    """Places as the roster has them; `names` are all the subjects by which conditions may speak of them."""

    gpus: tuple[Subject, ...]
    ports: tuple[Subject, ...]
    names: frozenset[Subject]


def under(state: State, configured: str | tuple[str, ...], unit: str) -> Under:
    """What this engine stands on."""
    members = state.roster.members
    managed = [place for place, kept in members.items() if place.kind == "gpu" and kept.get("driver") == DRIVER]
    everything = [str(members[place].get("address", "")) for place in managed]
    addresses, _ = engines.belonging(configured, state.expected.get(Subject("engine", unit), {}), everything)
    chosen = [place for place in managed if members[place].get("address") in addresses] if addresses else managed
    strangers = [Subject("gpu", address) for address in addresses if address not in everything]
    ports = [place for place in members if place.kind == "port" and any(gpu.name.startswith(place.name + "/") for gpu in chosen)]
    names = {name for place in (*chosen, *ports) for name in (place, here(members, place))}
    drivers = {subject for subject, _ in state.conditions if subject.kind == "driver"}
    return Under(tuple(sorted((*chosen, *strangers))), tuple(sorted(ports)), frozenset(names | drivers | set(strangers)))


def here(members: Readings, place: Subject) -> Subject:
    """By its address in this boot; itself when it is none of the members."""
    address = members.get(place, {}).get("address")
    return Subject(place.kind, str(address)) if isinstance(address, str) and not isinstance(address, Missing) and address else place


def standing(
    rules: tuple[Rule, ...], conditions: Mapping[ConditionKey, Tracked], names: frozenset[Subject]
) -> tuple[tuple[str, ...], tuple[str, ...], frozenset[Subject]]:
    """What is bad, what is not known (both in words), and who is bad. One that sleeps was left alone on purpose."""
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
    unclear = tuple(f"not known: {_words(type_, unknown[type_])}" for type_ in weighty if type_ in unknown)
    return lost, unclear, frozenset(subject for subjects in bad.values() for subject in subjects)


def _words(type_: str, subjects: list[Subject]) -> str:
    shown = sorted(subjects)
    more = f" and {len(shown) - SHOWN} more" if len(shown) > SHOWN else ""
    return f"{type_} {', '.join(str(subject) for subject in shown[:SHOWN])}{more}"


def shared_parent(members: Readings, bad: frozenset[Subject]) -> str:
    """The chain of the lowest device that all the bad GPUs have above them, of one its own; "" when no GPU is among them."""
    chains = [place.name.split("/") for place in members if place.kind == "gpu" and bad & {place, here(members, place)}]
    return "/".join(_common(chains)) if chains else ""


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
