"""Whether what is here may be accepted as what should be, and what an operator ought to know before he says so.

Law: pure. An accepted baseline proves something later only if all was well when it was accepted: every device answered, every
source was heard, nothing was missed. What stands against it is said; there is no way round it but to mend that, or the rule.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from xidwatch.core import edges, roster, rules
from xidwatch.core.expression import Facts
from xidwatch.core.model import HOST, PCI_KINDS, Missing, Readings, Severity, Status, Subject, Value
from xidwatch.core.roster import DRIVER, Roster
from xidwatch.core.rules import Rule
from xidwatch.core.state import State

BY_BASELINE = frozenset({"present", "identity", "in_baseline"})  # a condition on these compares with who should be there
NEEDED = ("pci", "nvml")  # sources without which nobody can say who is there; the latter where the driver has a GPU


@dataclass(frozen=True, slots=True)
class Offer:
    """What would be accepted. `obstacles`: why not; `remarks`: what is worth a look before.

    `absent`: the places of members that are not seen there. `not_reported`: by place, what its hardware or driver does not tell.
    `not_managed`: by address, why its owner is somebody else.
    """

    roster: Roster
    obstacles: tuple[str, ...]
    remarks: tuple[str, ...]
    absent: frozenset[Subject]
    not_reported: Mapping[Subject, tuple[str, ...]]
    not_managed: Mapping[str, str]


def candidate(state: State, *, anew: bool) -> Roster:
    """Who should be there if that were accepted: with `anew` whoever is here, else all who are known."""
    before = Roster(anew=True) if anew else replace(state.roster, accepted=False, members=_unset(state.roster.members))
    given = state.readings, state.inventory, state.roster.listed
    known = roster.renewed(before, *given, may_learn=anew or state.incident is None)
    return roster.renewed(replace(known, accepted=True, newcomers=frozenset()), *given, may_learn=False)


def _unset(members: Readings) -> Readings:
    """Without what depends on how the host is set up: accepted is what is so now."""
    return {place: {name: value for name, value in kept.items() if name not in roster.KEPT} for place, kept in members.items()}


def offer(conditions: tuple[Rule, ...], state: State, inventory: Readings, *, anew: bool) -> Offer:
    """With the readings of one moment, and every rule judged by them as if it had been accepted. `inventory`: of everything."""
    known = candidate(state, anew=anew)
    judged = list(_judged(conditions, replace(state, roster=known)))
    bad = [text for rule, status, text in judged if status is Status.UNKNOWN or _stands_against(rule)]
    obstacles = [*_of_sources(state, known), *_of_gpus(state, known), *bad]
    if state.incident is not None and not anew:
        obstacles.append(f"incident {state.incident.id} is open; `xidwatch report` tells what it is about")
    worth = [text for rule, status, text in judged if status is Status.TRUE and not _stands_against(rule)]
    not_reported, not_managed = _not_reported(state.readings, inventory, known), _not_managed(state.readings, inventory)
    absent = frozenset(place for place, kept in known.members.items() if {place, _subject(place, kept)} & known.absent)
    return Offer(known, tuple(dict.fromkeys(obstacles)), tuple(worth), absent, not_reported, not_managed)


def _subject(place: Subject, kept: Mapping[str, Value]) -> Subject:
    return Subject(place.kind, str(kept.get("address")))


def _not_managed(readings: Readings, inventory: Readings) -> dict[str, str]:
    """GPUs that are somebody else's to judge."""
    found = {
        subject.name: why
        for subject, values in sorted(readings.items())
        if subject.kind == "gpu" and values.get("present") == 1 and (why := _why_not_managed(values.get("driver")))
    }
    divided = {
        subject.name: "divided into MIG instances, which are not watched one by one"
        for subject, facts in sorted(inventory.items())
        if facts.get("mig_mode") == 1 and subject.name not in found
    }
    virtual = inventory.get(HOST, {}).get("virtual_functions", "")
    functions = () if isinstance(virtual, Missing) else str(virtual).split()
    return found | divided | dict.fromkeys(functions, "a virtual function (SR-IOV, vGPU)")


def _why_not_managed(driver: Value | None) -> str:
    if driver is None or isinstance(driver, Missing) or driver == DRIVER:
        return ""
    if not driver:
        return "no driver is bound to it"
    return f"given to virtual machines ({driver})" if "vfio" in str(driver) else f"bound to {driver}"


# ------------------------------------------------------------------------------------------------ what stands against it


def _of_sources(state: State, known: Roster) -> Iterator[str]:
    if isinstance(known.listed, Missing):
        yield f"the list of PCI devices did not come ({known.listed}), so nobody can say who is there"
    ours = any(facts.get("managed") == 1 for subject, facts in known.facts.items() if subject.kind == "gpu")
    for name in NEEDED if ours else NEEDED[:1]:
        values = state.readings.get(Subject("probe", name), {})
        if values.get("success") != 1:
            yield f"{name} did not answer in full"
    if state.driver_released:
        yield "the NVIDIA driver is not asked since a driver-fatal Xid; `xidwatch allow-driver` after a reset or a reload"


def _of_gpus(state: State, known: Roster) -> Iterator[str]:
    gpus = [subject for subject, facts in known.facts.items() if subject.kind == "gpu" and facts.get("managed") == 1]
    if not gpus and not isinstance(known.listed, Missing):
        yield "no GPU of the nvidia driver is here: a baseline without one would prove nothing"
    for gpu in sorted(gpus):
        if known.facts[gpu].get("present") == 1 and not _is_named(state, gpu):
            yield f"GPU {gpu.name} has told neither UUID nor serial, so that it could not be told from another"


def _is_named(state: State, gpu: Subject) -> bool:
    facts = state.inventory.get(gpu, {})
    return any(not isinstance(facts.get(name, Missing.NOT_ASKED), Missing) for name in roster.OWN_NAMES)


def _judged(conditions: tuple[Rule, ...], state: State) -> Iterator[tuple[Rule, Status, str]]:
    """What the rules say at this instant of what is here and of whom they miss, without waiting for any time to pass."""
    here = {subject for subject, values in state.readings.items() if subject.kind in PCI_KINDS and values.get("present", 1) == 1}
    drivers = {key[0] for key in state.conditions if key[0].kind == "driver"}
    theirs = {subject for subject, facts in state.roster.facts.items() if facts.get("managed") == 0}
    for subject in sorted((here | drivers | state.roster.facts.keys()) - theirs):
        for rule in (rule for rule in conditions if subject.kind in rule.when):
            judged = rules.judge(rule, subject.kind, Facts(edges.facts(state, subject), edges.expected(state, subject)))
            unknown = judged.status is Status.UNKNOWN and judged.missing is not Missing.ASLEEP and rule.severity is Severity.CRITICAL
            if (unknown and subject not in state.roster.missed) or judged.status is Status.TRUE:
                yield rule, judged.status, f"{subject}: {rule.type} {judged.status}: {judged.reason}"


def _stands_against(rule: Rule) -> bool:
    """It is bad, or says that somebody is not who or where he should be."""
    names = {name for expression in rule.when.values() for name in expression.names}
    return rule.severity.rank >= Severity.ERROR.rank or bool(names & BY_BASELINE)


def _not_reported(readings: Readings, inventory: Readings, known: Roster) -> dict[Subject, tuple[str, ...]]:
    """What will be NOT_APPLICABLE of each member: its hardware, its driver or its firmware does not tell."""
    found = {}
    for place, kept in known.members.items():
        subject = _subject(place, kept)
        values = {**readings.get(subject, {}), **inventory.get(subject, {})}
        names = sorted(name for name, value in values.items() if value is Missing.UNSUPPORTED)
        if names:
            found[place] = tuple(names)
    return found
