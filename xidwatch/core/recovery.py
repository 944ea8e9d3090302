"""What could bring lost hardware back, and what stands in the way of each now. Advice, nothing is done.

Least invasive first, but what the driver asks for before all: what is less than that is known not to help, and says so.

Law: pure. The order, and what helps when, are those of the drivers' and the kernel's own documentation: a GPU that fell off the bus is
never re-attached by its driver; a removal waits for ever, under a global lock, while a process holds the device; nothing but a reload
of the modules or a reboot clears what the driver calls fatal; and no software gives power to a device that has none.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass

from xidwatch.core.model import PCI_KINDS, Condition, Missing, Readings, Status, Subject, Value

ALL_ONES = ("ConfigSpaceAllOnes",)
OFF_THE_BUS = frozenset({"ConfigSpaceAllOnes", "GpuMissing", "PortMissing", "GpuLost"})
UNLISTED = frozenset({"GpuMissing", "PortMissing", "DriveMissing"})  # of them the kernel has no file left
# What the driver can ask for: the numbers of NVML's recovery_action (field 230, nvmlDeviceGpuRecoveryAction_t), the words of Xid 154.
ACTIONS = {
    1: "GPU Reset Required",
    2: "Node Reboot Required",
    3: "Drain P2P",
    4: "Drain and Reset",
    5: "Recover IMEX Domain",
    6: "Bus Reset",
    7: "System Reboot",
}
# The step that each of them means, the weightiest first, as the driver itself has them; of several GPUs the weightiest counts.
LEADS = {
    "Node Reboot Required": "reboot",
    "System Reboot": "reboot",
    "Bus Reset": "bus-reset",
    "GPU Reset Required": "gpu-reset",
    "PF FLR": "gpu-reset",  # as some drivers word it
    "Drain and Reset": "drain",
    "Drain P2P": "drain-p2p",
    "Recover IMEX Domain": "imex",
}
NONE_ASKED = ("", "None")
LESS_THAN = {"gpu-reset": ("rescan",), "bus-reset": ("rescan",), "drain": ("rescan",)}  # of the steps by software; to a reboot all are
# What the driver asks for that is no step by software here: what it is, and how it is done.
DRAINS = {
    "drain": (
        "let the work on it run out, then reset it",
        "take the engine out of its balancer, stop it once it is idle; then the GPU reset",
    ),
    "drain-p2p": ("stop its peer-to-peer traffic", "stop what uses it and its peers, then see what the driver asks for next"),
    "imex": ("recover the IMEX domain", "on every node of the domain: systemctl restart nvidia-imex; no GPU is to be reset for it"),
}
MOST_NAMED = 4


@dataclass(frozen=True, slots=True)
class Situation:
    """What matters to the ladder. `top`: the topmost device that is bad; `above`: what it hangs on and still answers, None for nobody.

    `listed`: whether the kernel still lists `top`. `holders`: processes that hold the GPUs, `stuck`: those of them that cannot be ended.
    `reboot`: why nothing less helps; `power`: why no software does. Each "" where nothing says so. `asked`: what the driver asks for,
    in its words, and which GPUs these are about.
    """

    top: Subject | None
    above: Subject | None = None
    slot: str = ""
    off_the_bus: bool = True
    listed: bool = True
    holders: tuple[str, ...] = ()
    stuck: tuple[str, ...] = ()
    reboot: str = ""
    power: str = ""
    asked: tuple[str, str] = ("", "")

    @property
    def lead(self) -> str:
        """The step that comes first; "" where nobody asks for one, or it cannot reach what has no power or has left the bus."""
        step = "reboot" if self.reboot else LEADS.get(self.asked[0], "")
        is_out_of_reach = bool(self.power) or (step == "gpu-reset" and self.off_the_bus)
        return "" if is_out_of_reach else step


@dataclass(frozen=True, slots=True)
class Rung:
    """One step of the ladder. `how`: what to type or do; `blocked`: what stands in its way, empty for nothing that is known."""

    key: str
    what: str
    how: str
    blocked: tuple[str, ...] = ()


def ladder(now: Situation) -> tuple[Rung, ...]:
    """All that applies here, what is asked for first, then in this order; none when nothing is bad."""
    if now.top is None:
        return ()
    held = (f"held by {_named(now.holders)}",) if now.holders else ()
    stuck = (f"cannot be ended: {_named(now.stuck)}",) if now.stuck else ()
    less = (f"less than a reboot does not help: {now.reboot}",) if now.reboot else ()
    dark = (f"no software gives it power: {now.power}",) if now.power else ()
    in_the_way = (*stuck, *held, *less, *dark)
    rungs = [Rung("stop", "stop whatever uses the GPUs", "the engines, and nvidia-persistenced", stuck)]
    rungs += [Rung(*_of_driver(now))] if now.lead in DRAINS else []
    rungs += [Rung(key, what, how, (*in_the_way, *_too_little(now, key), *also)) for key, what, how, also in _by_software(now)]
    rungs += [
        Rung("reboot", f"warm reboot{_since(now)}", "sync, then systemctl reboot (the shutdown itself may hang in the driver)", dark),
        Rung("power-cycle", "off and on again", "poweroff, then power on (by hand, BMC or a timer that has been tried before)"),
        Rung("mains", "without mains for half a minute", "at the supply or the outlet: a tripped supply may latch until then"),
    ]
    return tuple(sorted(rungs, key=lambda rung: rung.key != now.lead))


def _of_driver(now: Situation) -> tuple[str, str, str]:
    what, how = DRAINS[now.lead]
    return now.lead, f"{what} ({_asks(now)})", how


def _since(now: Situation) -> str:
    return f", for less does not help ({now.reboot})" if now.lead == "reboot" else ""


def _too_little(now: Situation, key: str) -> tuple[str, ...]:
    """Of a step by software that is less than the one that is asked for."""
    return (f"less than that does not help: {_asks(now)}",) if key in LESS_THAN.get(now.lead, ()) else ()


def _asks(now: Situation) -> str:
    words, whose = now.asked
    return f"the driver asks for {words!r} ({whose})"


def _by_software(now: Situation) -> Iterator[tuple[str, str, str, tuple[str, ...]]]:
    assert now.top is not None
    device = f"/sys/bus/pci/devices/{now.top.name}"
    rescan = "echo 1 > /sys/bus/pci/rescan"
    if now.listed:
        yield "rescan", f"PCI removal of {now.top.name} and rescan", f"echo 1 > {device}/remove; {rescan}", ()
    else:
        yield "remove", f"PCI removal of {now.top.name}", "", ("it is not listed any more: rescan alone",)
        yield "rescan", "PCI rescan", rescan, ()
    if now.above is not None:
        bridge = f"/sys/bus/pci/devices/{now.above.name}"
        yield "bus-reset", f"reset of the bus below {now.above.name}", f"echo 1 > {bridge}/reset_subordinate (recent kernels)", ()
    if now.slot:
        slot = f"/sys/bus/pci/slots/{now.slot}/power"
        yield "slot-power", f"power of slot {now.slot} off and on", f"echo 0 > {slot}; echo 1 > {slot} (where it has a switch for it)", ()
    gone = ("it is off the bus, where the driver cannot reach it",) if now.off_the_bus else ()
    yield "gpu-reset", "GPU reset by the driver", "nvidia-smi --gpu-reset -i UUID (not offered on every board)", gone
    modules = "rmmod nvidia_uvm nvidia_drm nvidia_modeset nvidia; modprobe nvidia (never with a display on it)"
    yield "module-reload", "reload of the NVIDIA modules", modules, ()


def words(rungs: Collection[Rung]) -> tuple[str, ...]:
    """A line each, for people."""
    return tuple(f"{rung.what}: {_blocked(rung) or rung.how}" for rung in rungs)


def _blocked(rung: Rung) -> str:
    return f"blocked: {'; '.join(rung.blocked)}" if rung.blocked else ""


def _named(several: Collection[str]) -> str:
    names = list(several)
    more = f" and {len(names) - MOST_NAMED} more" if len(names) > MOST_NAMED else ""
    return ", ".join(names[:MOST_NAMED]) + more


# ------------------------------------------------------------------------------------------------------- what is seen now


def situation(
    under: Collection[Subject],
    bad: Collection[Condition],
    readings: Readings,
    places: Mapping[Subject, str],
    *,
    holders: str,
    leftovers: tuple[str, ...],
    told: Mapping[Subject, str] | None = None,
) -> Situation:
    """From what is TRUE under an engine. `places`: chains from the root; `holders`: numbers of processes, with blanks between.

    `told`: what the last Xid 154 of each GPU asks for. What cannot be read of dead hardware blocks nothing: it is no evidence.
    """
    there = [condition for condition in bad if condition.status is Status.TRUE and condition.subject in under]
    asked = _asked(under, readings, told or {})
    devices = [condition.subject for condition in there if condition.subject.kind in PCI_KINDS]
    devices += [subject for subject in asked if subject.kind in PCI_KINDS]
    if not devices:
        return Situation(None, stuck=leftovers)
    top = min(devices, key=lambda subject: (len(places.get(subject, "/" * 99)), subject))
    above = _above(top, places)
    gone = any(condition.type in OFF_THE_BUS and condition.subject.kind in PCI_KINDS for condition in there)
    return Situation(
        top=top,
        above=above,
        slot=_text(readings.get(top, {}).get("slot")),
        off_the_bus=gone,
        listed=not any(condition.type in UNLISTED and condition.subject == top for condition in there),
        holders=tuple(f"process {pid}" for pid in holders.split()),
        stuck=leftovers,
        reboot=_reboot(asked, there, leftovers),
        power=_power(top, above, there, readings),
        asked=_weightiest(asked),
    )


def _asked(under: Collection[Subject], readings: Readings, told: Mapping[Subject, str]) -> dict[Subject, str]:
    """What the driver asks for, of whom, in its words: as it says now, else as it said last."""
    found = {}
    for subject in sorted(under):
        action = readings.get(subject, {}).get("recovery_action")
        words = ACTIONS.get(action, "" if action == 0 else f"action {action}") if isinstance(action, int) else told.get(subject, "")
        if words not in NONE_ASKED:
            found[subject] = words
    return found


def _weightiest(asked: Mapping[Subject, str]) -> tuple[str, str]:
    order = [words for words in LEADS if words in asked.values()]
    return (order[0], _named([subject.name for subject, words in asked.items() if words == order[0]])) if order else ("", "")


def _above(top: Subject, places: Mapping[Subject, str]) -> Subject | None:
    chain = places.get(top, "").rpartition("/")[0]
    ports = (subject for subject, place in sorted(places.items()) if place == chain and subject.kind == "port")
    return next(ports, None) if chain else None


def _reboot(asked: Mapping[Subject, str], there: list[Condition], leftovers: tuple[str, ...]) -> str:
    """What the driver will think of next is not known to be less."""
    wanted = {subject.name: words for subject, words in asked.items() if LEADS.get(words, "reboot") == "reboot"}
    if wanted:
        return f"the driver asks for {', '.join(sorted({repr(words) for words in wanted.values()}))} ({_named(wanted)})"
    fatal = (condition.reason for condition in there if condition.type == "DriverFatalXid")
    said = next((reason for reason in fatal if "reboot" in reason.lower()), "")
    if said:
        return f"the driver asks for a reboot ({said})"
    if any(condition.type == "DriverFatalXid" and condition.subject.kind == "driver" for condition in there):
        return "the driver as a whole has failed fatally"
    return "processes are stuck in the driver" if leftovers else ""


def _power(top: Subject, above: Subject | None, there: list[Condition], readings: Readings) -> str:
    """All ones below a link that is down: power, cable or connector. Without a reading of the link nothing is claimed."""
    silent = any(condition.subject == top and condition.type in ALL_ONES for condition in there)
    width = readings.get(above, {}).get("link_width") if above else None
    if silent and above and width == 0:
        return f"{top.name} answers nothing and the link of {above.name} above it is down: power, cable or connector"
    return ""


def _text(value: Value | None) -> str:
    return value if isinstance(value, str) and not isinstance(value, Missing) else ""
