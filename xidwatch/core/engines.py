"""Which GPUs an engine uses: found while all is well, because a driver that has lost a GPU cannot tell afterwards.

Law: pure. Joins what two probes saw at the same tick: the processes of the unit's control group, and those that NVML names
for each GPU. Both count in the daemon's own pid namespace, so a container's processes are found under their numbers on the
host. `/dev/nvidiaN` held open would say too much: a process that only asks NVML, as NCCL does, holds the nodes of all GPUs.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from xidwatch.core.model import Missing, PciAddress, Readings, Subject, Value

DRIVER = Subject("driver", "nvidia")
READY = 200  # metrics_status of an engine that serves


def used(engine: Mapping[str, Value], readings: Readings) -> tuple[str, ...]:
    """Addresses of the GPUs that have a process of this engine, by what was read at one tick."""
    pids = _words(engine.get("pids"))
    return tuple(
        sorted(subject.name for subject, values in readings.items() if subject.kind == "gpu" and pids & _words(values.get("compute_pids")))
    )


def learnt(engine: Mapping[str, Value], readings: Readings, expected: Mapping[str, Value]) -> Mapping[str, Value]:
    """What is to be remembered of an engine from now on; empty when that is nothing new.

    Within one run of the unit the set only grows: a worker that has died still used its GPU. Another run may use fewer, which
    counts as soon as it serves; before that it has merely not come that far.
    """
    invocation = engine.get("invocation_id", Missing.NOT_ASKED)
    known = expected.get("invocation_id")
    now, before = set(used(engine, readings)), set(gpus(expected))
    if not now or isinstance(invocation, Missing):
        return {}
    if invocation != known and (now >= before or _is_whole(engine, readings)):
        return {"gpus": " ".join(sorted(now)), "invocation_id": invocation}
    if now <= before:
        return {}
    return {"gpus": " ".join(sorted(now | before)), "invocation_id": known or invocation}


def gpus(expected: Mapping[str, Value]) -> tuple[str, ...]:
    """Addresses as remembered."""
    return tuple(sorted(_words(expected.get("gpus"))))


def belonging(configured: str | tuple[str, ...], expected: Mapping[str, Value], everything: Iterable[str]) -> tuple[tuple[str, ...], str]:
    """The GPUs of an engine, and who says so: what is configured outranks what was found. Nothing, when nobody knows yet."""
    if configured == "all":
        return tuple(sorted(everything)), "configured"
    if not isinstance(configured, str):
        return tuple(sorted(str(PciAddress.parse(each)) for each in configured)), "configured"
    known = gpus(expected)
    return known, "found" if known else ""


def places(readings: Readings, members: Readings) -> dict[Subject, str]:
    """Of every PCI device its chain from the root: of one that is seen as it is now, of one that is missed as it was."""
    kept = {Subject(place.kind, str(facts.get("address"))): place.name for place, facts in members.items() if facts.get("address")}
    chains = ((subject, values.get("chain", Missing.NOT_ASKED)) for subject, values in readings.items())
    seen = {subject: str(chain) for subject, chain in chains if not isinstance(chain, Missing)}
    return kept | seen


def _is_whole(engine: Mapping[str, Value], readings: Readings) -> bool:
    """It serves, and every GPU has told its processes: what is not in use now is not used."""
    told = [values.get("compute_pids", Missing.NOT_ASKED) for subject, values in readings.items() if subject.kind == "gpu"]
    return engine.get("metrics_status") == READY and not any(isinstance(each, Missing) for each in told)


def _words(value: Value | None) -> set[str]:
    return set(value.split()) if isinstance(value, str) and not isinstance(value, Missing) else set()
