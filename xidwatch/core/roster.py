"""Who should be there, from boot to boot: every port, GPU and drive by its place, and what it was known by.

Law: pure. It learns what was seen and forgets nothing by itself: three cards where there were four are never the new normal.
What an operator has accepted it does not even add to: only where a member was seen last, and under which driver, is followed.
What it says about a device is a reading like any other; rules judge it.

Within a boot a device is named by its address, across boots by its place, the kind and the chain (`gpu:0000:00/03.1/00.0/08.0/00.0`).
A device that is not at its place has moved when its serial or UUID is seen elsewhere, or when everything below its root bus is the
same and only that bus has another number.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import TypeGuard

from xidwatch.core.model import HOST, PCI_KINDS, Missing, PciAddress, Readings, Subject, Value

NAMES = ("board", "serial", "uuid")  # what a device is told apart by; the last two not every one has
OWN_NAMES = ("serial", "uuid")  # no two devices share them
# What depends on how the host was set up, may be lost at a reboot, and has to be there again before an engine is started.
KEPT = ("power_limit_watts", "p2p_peers")
DRIVER = "nvidia"
TELLING_DRIVERS = (DRIVER, "nvme")  # bound to one of these a device says who it is, sooner or later
MOST_LANES = 32

Facts = Mapping[str, Value]


@dataclass(frozen=True, slots=True)
class Roster:
    """`members` by place, as it is kept; `facts` and `expected` by subject of this boot, as the rules see them."""

    members: Readings = field(default_factory=dict)  # address, driver, board, serial, uuid, link_width and `KEPT`, as far as they are known
    facts: Readings = field(default_factory=dict)
    expected: Readings = field(default_factory=dict)
    listed: Value = Missing.NOT_ASKED  # how many functions the latest complete list had, or why there is none
    newcomers: frozenset[Subject] = frozenset()  # the places that this run has not known from before
    unmissed: frozenset[Subject] = frozenset()  # under these names, addresses or places, nobody is missed: moved, or not ours to miss
    anew: bool = False  # there is no memory of earlier boots, since somebody took it away: what is here is all that should be
    accepted: bool = False  # an operator has said that these are all

    @property
    def absent(self) -> frozenset[Subject]:
        """The members that are not where they were, whether or not that is known for sure."""
        return frozenset(subject for subject, facts in self.facts.items() if facts.get("present") != 1)

    @property
    def missed(self) -> frozenset[Subject]:
        """The members that are nowhere."""
        return frozenset(subject for subject, facts in self.facts.items() if facts.get("present") == 0)

    def strangers(self, judged: Iterable[Subject], readings: Readings) -> frozenset[Subject]:
        """Those judged by a name under which nobody is and nobody is missed: moved, struck off, or gone and of no concern."""
        if isinstance(self.listed, Missing):
            return frozenset()
        gone = {subject for subject in judged if readings.get(subject, {}).get("present") != 1 and subject not in self.facts}
        return frozenset(gone if self.anew else gone & self.unmissed)


def listing(readings: Readings) -> Value:
    """How many functions the list of PCI devices had, told when it was complete; else why not. Without it nobody is missed."""
    return readings.get(HOST, {}).get("pci_functions", Missing.NOT_ASKED)


def renewed(known: Roster, readings: Readings, inventory: Readings, listed: Value, *, may_learn: bool) -> Roster:
    """After new readings. Widths are learnt only while nothing is wrong (`may_learn`), who is there always."""
    here = _here(readings)
    present = {place: _now(subject, readings, inventory) for place, subject in here.items()}
    members = dict(known.members) if isinstance(listed, Missing) else _after_moves(known.members, present, forget=not known.accepted)
    extra = {place: now for place, now in present.items() if known.accepted and place not in members}
    unmissed = {
        name
        for place, kept in known.members.items()
        if _has_moved(kept, members.get(place), present.get(place))
        for name in _names(place, kept)
    }
    newcomers = known.newcomers | (present.keys() - members.keys() if members else frozenset())  # who is there first is no newcomer
    for place, now in present.items():
        if place in extra:
            continue
        kept = members.get(place, {})
        members[place] = _followed(kept, now) if known.accepted else _learnt(kept, now, may_learn=may_learn)
    facts: dict[Subject, Facts] = {
        here[place]: {"present": 1, **_standing(place, now, members), "in_baseline": 0} for place, now in extra.items()
    }
    unmissed |= {name for place, now in extra.items() for name in _names(place, now)}  # it came without a word, and may go so
    in_baseline: Value = 1 if known.accepted else Missing.UNSUPPORTED
    expected: dict[Subject, Facts] = {}
    for place, kept in members.items():
        standing = _standing(place, kept, members)
        if place in here:
            subject = here[place]
            ours, theirs = _identities(kept, present[place])
            lanes = _capable(place, here, inventory)
            facts[subject] = {"present": 1, "identity": ours, "capable_link_width": lanes, **standing, "in_baseline": in_baseline}
            expected[subject] = {"identity": theirs, **({} if _differ(ours, theirs) else _width(kept))}
        elif not isinstance(listed, Missing) and (standing.get("managed") == 0 or standing.get("gpus_below") == 0):
            unmissed |= _names(place, kept)  # a guest's card, a dock: it may go
        else:
            subject = _name(place, kept, here)
            others = members | extra
            facts[subject] = {"present": _absence(place, others, here, newcomers, listed), **standing, "in_baseline": in_baseline}
            expected[subject] = _width(kept)
    return Roster(members, facts, expected, listed, newcomers, known.unmissed | unmissed, known.anew, known.accepted)


# ---------------------------------------------------------------------------------------------------- who is here now


def _here(readings: Readings) -> dict[Subject, Subject]:
    """Place to subject of every device in the list."""
    return {
        Subject(subject.kind, chain): subject
        for subject, values in readings.items()
        if subject.kind in PCI_KINDS and values.get("present") == 1 and _is_text(chain := values.get("chain"))
    }


def _now(subject: Subject, readings: Readings, inventory: Readings) -> Facts:
    """What is known of it now: the inventory keeps what a device was known by when it last answered."""
    values, facts = readings[subject], inventory.get(subject, {})
    named = {name: facts[name] for name in OWN_NAMES if name in facts}
    told = {name: values[name] for name in ("board", "driver", "link_width", *KEPT) if name in values}
    return {**told, **named, "address": subject.name}


def _is_text(value: object) -> TypeGuard[str]:
    return isinstance(value, str) and not isinstance(value, Missing) and value != ""


def _names(place: Subject, kept: Facts) -> frozenset[Subject]:
    return frozenset((place, Subject(place.kind, str(kept.get("address")))))


def _name(place: Subject, kept: Facts, here: Mapping[Subject, Subject]) -> Subject:
    """Its last address, unless somebody else answers there in this boot: then the place is all that names it."""
    subject = Subject(place.kind, str(kept.get("address", "")))
    return place if subject in here.values() or not _is_address(subject.name) else subject


def _is_address(name: str) -> bool:
    try:
        PciAddress.parse(name)
    except ValueError:
        return False
    return True


# ------------------------------------------------------------------------------------------------- learning and moving


def _followed(kept: Facts, now: Facts) -> dict[str, Value]:
    """Where it is in this boot, and whose it is. On its way out a device is bound to no driver for a moment."""
    return {**kept, "address": now["address"], **({"driver": now["driver"]} if _is_text(now.get("driver")) else {})}


def _learnt(kept: Facts, now: Facts, *, may_learn: bool) -> Facts:
    """What is new about it. Who it is is learnt once: another one in its place is to be noticed, not taken for it."""
    learnt = _followed(kept, now)
    if _differ(*_identities(kept, now)):
        return learnt
    learnt |= {name: now[name] for name in NAMES if name not in kept and _is_text(now.get(name))}
    lanes, before = now.get("link_width"), kept.get("link_width", 0)
    if may_learn and isinstance(lanes, int) and isinstance(before, int) and before < lanes <= MOST_LANES:
        learnt["link_width"] = lanes
    return learnt | {name: now[name] for name in KEPT if may_learn and name not in kept and isinstance(now.get(name), int | float)}


def _after_moves(members: Readings, present: Readings, *, forget: bool) -> dict[Subject, Facts]:
    """The members by where they are now: one that is seen elsewhere under its own name, or below a renumbered root bus, has moved.

    Who has moved is learnt at the new place as any other; not `forget`, and it stays the member that it was, if that place was free.
    """
    after = dict(members)
    elsewhere = {place: _own_names(present, place) for place in present}
    absent = [place for place in members if place not in present]
    strangers = [place for place in present if place not in members]
    for place in absent:
        own = _own_names(members, place)
        seen = [other for other, names in elsewhere.items() if place.kind == other.kind and own & names]
        if seen and forget:
            del after[place]
            continue
        if seen:
            after |= {seen[0]: after.pop(place)} if seen[0] not in after else {}
            continue
        alike = [other for other in strangers if _same_but_root(place, members[place], other, present[other])]
        rivals = [other for other in absent if _same_but_root(other, members[other], place, members[place]) or other == place]
        if len(alike) == 1 and len(rivals) == 1:
            after[alike[0]] = after.pop(place)
    return after


def _has_moved(before: Facts, after: Facts | None, now: Facts | None) -> bool:
    """It is a member no longer under this place, or is there under another address."""
    return after is None or (now is not None and before.get("address") != now["address"])


def _own_names(devices: Readings, place: Subject) -> frozenset[tuple[str, Value]]:
    return frozenset((name, value) for name in OWN_NAMES if _is_text(value := devices[place].get(name)))


def _same_but_root(place: Subject, kept: Facts, other: Subject, now: Facts) -> bool:
    """The same tree below another root bus, and nothing that says it is another device."""
    below = place.name.partition("/")[2], other.name.partition("/")[2]
    same_names = all(kept.get(name) == now.get(name) for name in NAMES if _is_text(kept.get(name)) and _is_text(now.get(name)))
    return place.kind == other.kind and place != other and below[0] == below[1] and _is_text(kept.get("board")) and same_names


# ----------------------------------------------------------------------------------------------- what the rules may see


def _absence(place: Subject, members: Readings, here: Iterable[Subject], newcomers: Collection[Subject], listed: Value) -> Value:
    """0 when it is nowhere. Not known while a newcomer may be it: one of its make that has not said who he is, or with the same tree.

    Where somebody with a name of his own used to be there is no room for doubt: if it is there now, he is missing.
    """
    if isinstance(listed, Missing):
        return listed
    kept = members[place]
    alike = [other for other in here if other.kind == place.kind and members[other].get("board") == kept.get("board")]
    if _own_names(members, place):
        maybe = [other for other in alike if members[other].get("driver") in TELLING_DRIVERS and not _own_names(members, other)]
    else:
        maybe = [other for other in alike if other in newcomers and _same_but_root(place, kept, other, members[other])]
    return Missing.NOT_ASKED if maybe else 0


def _standing(place: Subject, kept: Facts, members: Readings) -> Facts:
    """What follows from who it is and where, whether or not it is there."""
    if place.kind == "gpu":
        return {"managed": int(kept.get("driver") == DRIVER), "link_end": "lower"}
    if place.kind == "port":
        is_lower = place.name.count("/") % 2 == 0  # root port, then upstream and downstream in turn
        return {"gpus_below": _gpus_below(place, members), "link_end": "lower" if is_lower else "upper"}
    return {"link_end": "lower"}


def _gpus_below(port: Subject, members: Readings) -> int:
    below = (kept for place, kept in members.items() if place.kind == "gpu" and place.name.startswith(port.name + "/"))
    return sum(1 for kept in below if kept.get("driver") == DRIVER)


def _width(kept: Facts) -> Facts:
    return {"link_width": kept["link_width"]} if "link_width" in kept else {}


def _capable(place: Subject, here: Mapping[Subject, Subject], inventory: Readings) -> Value:
    """Lanes that both ends can do. What sits on a root bus has no link that anybody could see."""
    above = place.name.rpartition("/")[0]
    if "/" not in above:
        return Missing.UNSUPPORTED
    ends = (here[place], here.get(Subject("port", above)))
    lanes = [inventory.get(end, {}).get("max_link_width", Missing.NOT_ASKED) for end in ends if end is not None]
    lacks = [value for value in lanes if isinstance(value, Missing)]
    if lacks or len(lanes) < len(ends):
        return Missing.UNSUPPORTED if Missing.UNSUPPORTED in lacks or not lacks else lacks[0]
    return min(int(value) for value in lanes)


def _identities(kept: Facts, now: Facts) -> tuple[Value, Value]:
    """Who is there and who was, in the same words: all that is known of both. Of a name not told yet nobody can say that it is the same."""
    common = [name for name in NAMES if _is_text(kept.get(name)) and _is_text(now.get(name))]
    ours, theirs = _told(common, now), _told(common, kept)
    untold = [
        name for name in OWN_NAMES if _is_text(kept.get(name)) and now.get("driver") in TELLING_DRIVERS and not _is_told(now.get(name))
    ]
    return Missing.NOT_ASKED if ours == theirs and (untold or not common) else ours, theirs if common else Missing.NOT_ASKED


def _is_told(value: Value | None) -> bool:
    return _is_text(value) or value is Missing.UNSUPPORTED


def _told(names: Iterable[str], facts: Facts) -> str:
    return ", ".join(f"{name} {facts[name]}" if name in OWN_NAMES else str(facts[name]) for name in names)


def _differ(ours: Value, theirs: Value) -> bool:
    return not isinstance(ours, Missing) and not isinstance(theirs, Missing) and ours != theirs
