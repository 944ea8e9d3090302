"""What has to be so before an engine is started again: seen now, of every device, and not merely not known to be otherwise.

Law: pure. Each proof holds, fails, is not known, or does not apply since the hardware cannot report it; a start needs every one to
hold. It proves presence and never power: no idle host can show that a supply will carry the next load.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass

from xidwatch.core import hardware
from xidwatch.core.gate_model import GateSettings
from xidwatch.core.hardware import Under
from xidwatch.core.model import Missing, Moment, Status, Value
from xidwatch.core.recovery import ACTIONS
from xidwatch.core.roster import DRIVER
from xidwatch.core.state import State

NOBODY = (0x0000, 0x0001, 0xFFFF)  # no vendor: nobody answered, or only that he is not ready yet
COLDEST_CELSIUS, HOTTEST_CELSIUS = 0.0, 90.0  # of an idle GPU before its start: GeForce and datacentre parts slow down from 83 to 95
IDLE_GTS = 2.5
SLACK_WATTS = 1.0  # limits are kept in milliwatts and told in either

Facts = Mapping[str, Value]
Found = tuple[str, Status, str]  # name, whether it holds, what was seen


@dataclass(frozen=True, slots=True)
class Proof:
    """One thing that was looked at. `text` says what was seen, and of whom."""

    name: str
    status: Status
    text: str

    @property
    def lacks(self) -> bool:
        """It keeps an engine down."""
        return self.status in (Status.FALSE, Status.UNKNOWN)


def proofs(settings: GateSettings, state: State, under: Under, at: Moment, shared: Collection[str] = ()) -> tuple[Proof, ...]:
    """Of one engine, by the readings of the tick that began at `at`. `shared`: places of GPUs that it never had for itself."""
    return (*_of_host(settings, state, under, at), *_of_gpus(settings, state, under, shared), *_of_ports(state, under))


def lacking(found: tuple[Proof, ...]) -> tuple[str, ...]:
    """In words, what does not hold."""
    return tuple(proof.text for proof in found if proof.lacks)


# ------------------------------------------------------------------------------------------------------------ the host


def obstacles(state: State) -> tuple[str, ...]:
    """Why nothing can be proven at all."""
    return tuple(proof.text for proof in _of_knowledge(state) if proof.lacks)


def _of_knowledge(state: State) -> Iterator[Proof]:
    accepted = state.roster.accepted
    provisional = "the baseline is provisional, and proves nothing: `xidwatch check --accept`"
    yield Proof("baseline", _status(accepted), "the baseline is accepted" if accepted else provisional)
    released = "the NVIDIA driver is not asked since a driver-fatal Xid: reboot, reload its module, or `xidwatch allow-driver`"
    yield Proof("driver", _status(not state.driver_released), released if state.driver_released else "the NVIDIA driver is asked")
    unreadable = state.tally.unreadable
    no_log = f"the kernel log cannot be read: {unreadable}"
    yield Proof("kernel-log", Status.UNKNOWN if unreadable else Status.TRUE, no_log if unreadable else "the kernel log is read")


def _of_host(settings: GateSettings, state: State, under: Under, at: Moment) -> Iterator[Proof]:
    yield from _of_knowledge(state)
    count = len(under.gpus)
    yield Proof("gpus", _status(count > 0), f"{count} GPUs belong to it" if count else "no GPU is known to be its own")
    noisy = [subject for subject, when in state.xid_errors.items() if at.mono - when.mono < settings.settle_seconds]
    own = sorted(subject for subject in noisy if subject in under.names)
    yield Proof("xids", _status(not own), f"a new Xid on {own[0]}" if own else "no new Xid")


# ------------------------------------------------------------------------------------------------------------ the GPUs


def _of_gpus(settings: GateSettings, state: State, under: Under, shared: Collection[str]) -> Iterator[Proof]:
    others = processes_of_engines(state)
    gone = _gone_beside(state, under)
    for place, subject in under.gpus.items():
        kept = state.roster.members.get(place, {})
        values = {**state.readings.get(subject, {}), **state.roster.facts.get(subject, {})}
        expected = {**state.expected.get(subject, {}), **state.roster.expected.get(subject, {})}
        found = [
            *_of_gpu(settings, values, expected, kept),
            _peers(values.get("p2p_peers"), kept.get("p2p_peers"), gone),
            _unused(values.get("compute_pids"), others, shared=place.name in shared),
        ]
        yield from (Proof(name, status, f"{subject}: {text}") for name, status, text in found)


def _of_gpu(settings: GateSettings, values: Facts, expected: Facts, kept: Facts) -> Iterator[Found]:
    get = values.get
    yield _same("present", get("present"), 1, "is in the list of PCI devices", "is not in the list of PCI devices")
    yield _same("identity", get("identity"), expected.get("identity"), "is the one of the baseline", "is not the one of the baseline")
    yield _same("nvml", get("nvml_status"), 0, "answers through the driver", "does not answer through the driver")
    yield _answers(get("config_dword0"), get("board"))
    yield _width(values, expected.get("link_width"))
    yield _recovery(get("recovery_action"))
    yield _limit(settings.power_limit_watts, get("power_limit_watts"), kept.get("power_limit_watts"))
    yield _temperature(get("temperature_celsius"))


def _gone_beside(state: State, under: Under) -> int:
    """How many GPUs of the baseline that are not its own do not answer: nobody can reach those, and that is another engine's trouble."""
    members = state.roster.members
    beside = [place for place, kept in members.items() if place.kind == "gpu" and kept.get("driver") == DRIVER and place not in under.gpus]
    return sum(1 for place in beside if state.readings.get(hardware.here(state, place), {}).get("nvml_status") != 0)


def _of_ports(state: State, under: Under) -> Iterator[Proof]:
    for subject in under.ports.values():
        values = {**state.readings.get(subject, {}), **state.roster.facts.get(subject, {})}
        expected = {**state.expected.get(subject, {}), **state.roster.expected.get(subject, {})}
        found = [
            _same("present", values.get("present"), 1, "is there", "is not there"),
            _answers(values.get("config_dword0"), values.get("board")),
        ]
        if values.get("link_end") == "lower":
            found.append(_width(values, expected.get("link_width")))
        yield from (Proof(name, status, f"{subject}: {text}") for name, status, text in found)


def processes_of_engines(state: State) -> set[str]:
    """Of all that are supervised: their processes may be on a GPU that is shared."""
    return {pid for named in named_by_engines(state) for pid in hardware.words(named)}


def named_by_engines(state: State) -> tuple[Value | None, ...]:
    """What each of them tells of its processes."""
    return tuple(values.get("pids") for subject, values in state.readings.items() if subject.kind == "engine")


# ------------------------------------------------------------------------------------------------------------- a proof


def _status(holds: bool) -> Status:
    return Status.TRUE if holds else Status.FALSE


def _unknown(name: str, value: Value | None, of: str) -> Found:
    return name, Status.UNKNOWN, f"{of} not known ({value if isinstance(value, Missing) else 'never told'})"


def _same(name: str, value: Value | None, wanted: Value | None, good: str, bad: str) -> Found:
    if value is None or isinstance(value, Missing) or wanted is None or isinstance(wanted, Missing):
        return _unknown(name, value if isinstance(value, Missing) or value is None else wanted, name)
    return (name, Status.TRUE, good) if value == wanted else (name, Status.FALSE, bad)


def _answers(word: Value | None, board: Value | None) -> Found:
    """The hardware's own vendor and device. Whoever sleeps is not woken for it: his driver's answer has to do."""
    if word is Missing.ASLEEP:
        return "config-space", Status.NOT_APPLICABLE, "sleeps, and is not woken"
    if not isinstance(word, int):
        return _unknown("config-space", word, "configuration space")
    ids = f"{word & 0xFFFF:04x}:{word >> 16:04x}"
    wanted = board.partition(" ")[0] if isinstance(board, str) and not isinstance(board, Missing) else ids
    holds = word & 0xFFFF not in NOBODY and ids == wanted
    return "config-space", _status(holds), "answers" if holds else f"answers {word:08x}"


def _width(values: Facts, wanted: Value | None) -> Found:
    """A link may rest on fewer lanes at the lowest speed; nvidia-smi's manual allows for that."""
    lanes, speed = values.get("link_width"), values.get("link_gts")
    if not isinstance(wanted, int):
        return "width", Status.NOT_APPLICABLE, "the baseline names no width"
    if lanes is Missing.ASLEEP:
        return "width", Status.NOT_APPLICABLE, "sleeps, and is not woken"
    if not isinstance(lanes, int):
        return _unknown("width", lanes, "lanes")
    if 0 < lanes < wanted and isinstance(speed, int | float) and speed <= IDLE_GTS:
        return "width", Status.NOT_APPLICABLE, f"{lanes} lanes of {wanted}, at rest"
    return "width", _status(lanes >= wanted), f"{lanes} lanes of {wanted}"


def _recovery(action: Value | None) -> Found:
    if action is Missing.UNSUPPORTED or action is None:
        return "recovery-action", Status.NOT_APPLICABLE, "this driver reports no recovery action"
    if isinstance(action, Missing):
        return _unknown("recovery-action", action, "recovery action")
    asked = ACTIONS.get(int(action), f"recovery action {action}") if isinstance(action, int) else str(action)
    return "recovery-action", _status(action == 0), f"the driver asks for: {asked}" if action else "the driver asks for nothing"


def _peers(now: Value | None, before: Value | None, gone: int) -> Found:
    """Who could be reached peer to peer when the baseline was learnt can be reached now, but for those that are gone beside it."""
    if before is None or isinstance(before, Missing):
        return "p2p", Status.NOT_APPLICABLE, "the baseline knows nothing of peer to peer"
    if not isinstance(now, int) or not isinstance(before, int | float):
        return _unknown("p2p", now, "peer-to-peer status")
    return "p2p", _status(now >= before - gone), f"reaches {now} GPUs peer to peer, of {before}"


def _limit(configured: float, limit: Value | None, learnt: Value | None) -> Found:
    """The one that is lost at every reload and reboot, and after a supply trip matters most. A lower one is as good."""
    wanted = configured or learnt
    if wanted is None or isinstance(wanted, Missing):
        return "power-limit", Status.NOT_APPLICABLE, "no power limit is configured or was learnt"
    if not isinstance(limit, int | float):
        return _unknown("power-limit", limit, "enforced power limit")
    return "power-limit", _status(limit <= float(wanted) + SLACK_WATTS), f"limited to {limit:g} W, is to be {float(wanted):g} W"


def _temperature(celsius: Value | None) -> Found:
    if celsius is Missing.UNSUPPORTED:
        return "temperature", Status.NOT_APPLICABLE, "this GPU tells no temperature"
    if not isinstance(celsius, int | float):
        return _unknown("temperature", celsius, "temperature")
    holds = COLDEST_CELSIUS <= celsius <= HOTTEST_CELSIUS
    return "temperature", _status(holds), "temperature is sane" if holds else f"temperature {celsius:g} C"


def _unused(pids: Value | None, engines: set[str], *, shared: bool) -> Found:
    """Nobody is left on it from before; who shared it then, and another supervised engine, may be there."""
    if shared:
        return "memory", Status.NOT_APPLICABLE, "others computed there before as well"
    if pids is Missing.UNSUPPORTED:
        return "memory", Status.NOT_APPLICABLE, "this driver names no processes"
    if isinstance(pids, Missing) or pids is None:
        return _unknown("memory", pids, "its processes")
    left = hardware.words(pids) - engines
    return "memory", _status(not left), f"process {', '.join(sorted(left))} is still on it" if left else "nobody is on it"
