"""What `init` has found, as a table to be held against what is in the machine.

    GPUs: 3 of 4
      0000:11:00.0  NVIDIA GeForce RTX 3090  slot 4  x16  GPU-5f0c...
      0000:12:00.0  NOT HERE  NVIDIA GeForce RTX 3090  slot 5  x16  GPU-77a1...
    not reported by GPUs, hence not applicable: recovery_action, serial

Reads an offer, judges nothing.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence

from xidwatch.core.model import Missing, Readings, Subject, Value
from xidwatch.core.roster import DRIVER
from xidwatch.core.suspects import EngineSuspect
from xidwatch.records.offer import Offered
from xidwatch.report.words import clean

Facts = Mapping[str, Value]


def table(offered: Offered, engines: Sequence[EngineSuspect]) -> list[str]:
    """GPUs first, since they are what is counted."""
    members, inventory = offered.baseline.readings_members(), offered.baseline.readings_inventory()
    lines = list(_gpus(offered, members, inventory))
    for address, why in sorted(offered.baseline.not_managed.items()):
        lines.append(f"  {address}  not managed: {clean(why)}")
    lines += _ports(offered, members, inventory)
    lines += _drives(offered, members, inventory)
    lines += _not_reported(offered)
    lines += [f"engines: {len(engines)}", *(f"  {clean(each.unit)}  {clean(each.why)}" for each in engines)] if engines else []
    if offered.rails:
        lines.append(f"inputs that could be supply rails: {len(offered.rails)}")
        lines += [f"  {clean(rail.chip)} {rail.input}  {rail.nominal_volts:g} V?  {clean(rail.why)}" for rail in offered.rails]
    return lines


def count(offered: Offered) -> int:
    """GPUs of the nvidia driver that should be here."""
    return len(_managed(offered.baseline.readings_members()))


def _managed(members: Readings) -> list[tuple[Subject, Facts]]:
    return [(place, kept) for place, kept in sorted(members.items()) if place.kind == "gpu" and kept.get("driver") == DRIVER]


def _how_many(offered: Offered, places: Collection[Subject]) -> str:
    """`4`, or `3 of 4`."""
    here = sum(1 for place in places if str(place) not in offered.absent)
    return f"{here}" if here == len(places) else f"{here} of {len(places)}"


def _gpus(offered: Offered, members: Readings, inventory: Readings) -> Iterator[str]:
    managed = _managed(members)
    yield f"GPUs: {_how_many(offered, [place for place, _ in managed])}"
    yield from (_device(offered, place, kept, inventory) for place, kept in managed)


def _ports(offered: Offered, members: Readings, inventory: Readings) -> Iterator[str]:
    """Switches one by one, by the port that they begin with; of the others, who is missing."""
    ports = [place for place in sorted(members) if place.kind == "port"]
    switches = {place for place in ports if _facts(place, members[place], inventory).get("port_type") == "upstream"}
    if ports:
        yield f"PCIe ports: {_how_many(offered, ports)}, of which begin a switch: {len(switches)}"
    for place in ports:
        if place in switches or str(place) in offered.absent:
            yield _device(offered, place, members[place], inventory)


def _drives(offered: Offered, members: Readings, inventory: Readings) -> Iterator[str]:
    drives = [place for place in sorted(members) if place.kind == "nvme"]
    if drives:
        yield f"drives: {_how_many(offered, drives)}"
        yield from (_device(offered, place, members[place], inventory) for place in drives)


def _device(offered: Offered, place: Subject, kept: Facts, inventory: Readings) -> str:
    """One line: address, name, slot, lanes, power limit, what it is told apart by."""
    facts = _facts(place, kept, inventory)
    name = _text(facts, "name") or _text(kept, "board")
    slot, lanes, most = _text(facts, "slot"), kept.get("link_width"), facts.get("max_link_width")
    of = f" of x{most}" if isinstance(most, int) and most != lanes else ""
    limit = kept.get("power_limit_watts")
    words = [
        _text(kept, "address"),
        "NOT HERE" if str(place) in offered.absent else "",
        name,
        f"slot {slot}" if slot else "",
        f"x{lanes}{of}" if isinstance(lanes, int) and lanes else "",
        f"limited to {limit:g} W" if isinstance(limit, int | float) else "",
        _text(kept, "uuid"),
        f"serial {_text(kept, 'serial')}" if _text(kept, "serial") else "",
    ]
    return "  " + "  ".join(clean(word) for word in words if word)


def _facts(place: Subject, kept: Facts, inventory: Readings) -> Facts:
    return inventory.get(Subject(place.kind, str(kept.get("address"))), {})


def _text(facts: Facts, name: str) -> str:
    value = facts.get(name, Missing.NOT_ASKED)
    return "" if isinstance(value, Missing) else str(value)


def _not_reported(offered: Offered) -> Iterator[str]:
    """What no GPU tells, and what only some do not."""
    gpus = {place: frozenset(names) for place, names in offered.baseline.not_reported.items() if place.startswith("gpu:")}
    if gpus:
        names = sorted(frozenset[str]().union(*gpus.values()))
        some = {name: sum(name in lacks for lacks in gpus.values()) for name in names}
        told = (name if some[name] == count(offered) else f"{name} (of {some[name]})" for name in names)
        yield f"not reported by GPUs, hence not applicable: {', '.join(told)}"
