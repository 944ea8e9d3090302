"""A host on paper, told as stories: what happens goes into the watch, what comes out is kept.

The host is the one every part is judged by: a switch (`0f`) with four GPUs below it, and an NVMe drive elsewhere.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path

from xidwatch.core import watch
from xidwatch.core.kernel import Parser, xid_rules
from xidwatch.core.messages import (
    Closed,
    DriverRenewed,
    Gap,
    Input,
    Inventoried,
    KernelLogUnreadable,
    KernelRead,
    KernelRecord,
    Learnt,
    Looked,
    Opened,
    Output,
    Restored,
    SampleTaken,
)
from xidwatch.core.model import (
    HOST,
    Action,
    ActionKind,
    Condition,
    Incident,
    KernelMessage,
    Missing,
    Moment,
    Sample,
    Status,
    Subject,
    Transition,
    Value,
)
from xidwatch.core.rules import load
from xidwatch.core.watch import State

ROOT = Path(__file__).parents[2]
RULES = load(tomllib.loads((ROOT / "rules/conditions.toml").read_text()))
XIDS = xid_rules(tomllib.loads((ROOT / "rules/xid.toml").read_text()))

SWITCH = Subject("port", "0000:0f:00.0")
DOWNSTREAM = Subject("port", "0000:10:08.0")
GPUS = tuple(Subject("gpu", f"0000:{bus:02x}:00.0") for bus in (0x11, 0x12, 0x13, 0x14))
GPU = GPUS[0]
DISK = Subject("nvme", "0000:41:00.0")
DRIVER = Subject("driver", "nvidia")
KERNEL = Subject("kernel")
NVML = Subject("probe", "nvml")
PCI = Subject("probe", "pci")

# Where they are, whatever the buses are called in this boot.
CHAINS = {
    SWITCH: "0000:00/03.1/00.0",
    DOWNSTREAM: "0000:00/03.1/00.0/08.0",
    DISK: "0000:00/01.1/00.0",
    **{gpu: f"0000:00/03.1/00.0/{8 + n:02x}.0/00.0" for n, gpu in enumerate(GPUS)},
}
BOARDS = {"port": "1000:c010", "gpu": "10de:2204 1043:87c5", "nvme": "144d:a80a 144d:a801"}

ALL_ONES: int = 0xFFFFFFFF
LINK: Mapping[str, Value] = {"link_width": 16, "link_gts": 16.0}
SILENT: Mapping[str, Value] = {"command": Missing.DEVICE_LOST, "link_width": Missing.DEVICE_LOST}
BEHIND: Mapping[str, Value] = {
    "config_dword0": Missing.BEHIND_DEAD_PARENT,
    "command": Missing.BEHIND_DEAD_PARENT,
    "link_width": Missing.BEHIND_DEAD_PARENT,
}
EVENING = Moment(wall=1_789_610_000.0, mono=5_000.0)  # 2026-09-17T01:53:20Z, 83 minutes after boot
INTERVAL = 30.0

Readings = dict[Subject, dict[str, Value]]


def healthy() -> Readings:
    """What a tick brings while nothing is wrong."""
    bridge: dict[str, Value] = {"config_dword0": 0xC0101000, "command": 0x0547, **LINK, "driver": "pcieport"}
    card: dict[str, Value] = {"config_dword0": 0x220410DE, "command": 0x0507, **LINK, "driver": "nvidia", "nvml_status": 0}
    host: Readings = {
        SWITCH: bridge | {"secondary_bus": 0x10, "subordinate_bus": 0x14},
        DOWNSTREAM: bridge | {"secondary_bus": 0x11, "subordinate_bus": 0x11},
        DISK: {"config_dword0": 0xA80A144D, "command": 0x0506, "link_width": 4, "link_gts": 16.0, "driver": "nvme"},
        NVML: {"success": 1, "answering": 1, "stuck_seconds": 0.0},
        PCI: {"success": 1, "answering": 1, "stuck_seconds": 0.0},
    }
    host |= {gpu: dict(card) for gpu in GPUS}
    return {subject: listed(subject) | values for subject, values in host.items()} | {HOST: {"pci_functions": len(CHAINS)}}


def listed(subject: Subject) -> dict[str, Value]:
    """What the list of PCI devices and the kernel's counters say of a function, in whatever state it is."""
    if subject not in CHAINS:
        return {}
    counters: dict[str, Value] = {"aer_correctable": 0, "aer_nonfatal": 0, "aer_fatal": 0, "aer_native": 1}
    return {"present": 1, "chain": CHAINS[subject], "board": BOARDS[subject.kind], **counters}


def xid(gpu: Subject, number: int, said: str = "GPU has fallen off the bus.") -> str:
    """The line the driver prints."""
    return f"NVRM: Xid (PCI:{gpu.name.removesuffix('.0')}): {number}, pid='<unknown>', name=<unknown>, {said}"


UVM_FATAL = "NVRM: nvGpuOpsReportFatalError: uvm encountered global fatal error 0x60, requiring os reboot to recover."
REBOOT_ASKED = "GPU recovery action changed from 0x0 (None) to 0x2 (Node Reboot Required)"


class Story:
    """Time passes only by `wait` and `ticks`; every method returns the outputs of its own step."""

    def __init__(self, at: Moment = EVENING, state: State | None = None, readings: Readings | None = None) -> None:
        self.now = at
        self.state = state or State()
        self.readings = readings if readings is not None else healthy()
        self.out: list[Output] = []
        self.tick_number = 0
        self.seq = 90_000
        self._parser = Parser(XIDS)

    # ------------------------------------------------------------------------------------------------- what happens

    def wait(self, seconds: float) -> Story:
        """Both clocks go on."""
        self.now = Moment(self.now.wall + seconds, self.now.mono + seconds)
        return self

    def set(self, subject: Subject, values: Mapping[str, Value]) -> Story:
        """From now on this is what is read."""
        self.readings[subject] = {**self.readings.get(subject, {}), **values}
        return self

    def lose_switch(self) -> Story:
        """The whole GPU side stops answering."""
        self.set(
            SWITCH, {"config_dword0": ALL_ONES, **SILENT, "secondary_bus": Missing.DEVICE_LOST, "subordinate_bus": Missing.DEVICE_LOST}
        )
        below = {**BEHIND, "secondary_bus": Missing.BEHIND_DEAD_PARENT, "subordinate_bus": Missing.BEHIND_DEAD_PARENT}
        self.set(DOWNSTREAM, below)
        for gpu in GPUS:
            self.set(gpu, {**BEHIND, "nvml_status": Missing.TIMED_OUT})
        return self

    def mend(self, *subjects: Subject) -> Story:
        """These (or all) read as on a good day again."""
        self.readings.update({subject: values for subject, values in healthy().items() if not subjects or subject in subjects})
        return self

    # ----------------------------------------------------------------------------------------------- what is learnt

    def give(self, given: Input) -> list[Output]:
        """Any input."""
        self.state, outputs = watch.step(RULES, self.state, given)
        self.out += outputs
        return list(outputs)

    def tick(self, after: float = INTERVAL) -> list[Output]:
        """The next tick, one interval on."""
        self.wait(after)
        self.tick_number += 1
        readings = {subject: dict(values) for subject, values in self.readings.items()}
        return self.give(SampleTaken(Sample(self.tick_number, self.now, "boot", readings)))

    def ticks(self, count: int) -> list[Output]:
        """Several, one after the other."""
        return [output for _ in range(count) for output in self.tick()]

    def look(self, *subjects: Subject) -> list[Output]:
        """An immediate look at the first dwords: registers only."""
        names = ("present", "chain", "board", "driver", "config_dword0", "command", "secondary_bus", "subordinate_bus")
        seen: Readings = {} if subjects else {HOST: dict(self.readings.get(HOST, {}))}
        seen |= {
            subject: {name: self.readings[subject][name] for name in names if name in self.readings[subject]}
            for subject in subjects or tuple(self.readings)
            if subject.kind in ("port", "gpu", "nvme")
        }
        return self.give(Looked(self.now, seen))

    def inventory(self, facts: Mapping[Subject, Mapping[str, Value]]) -> list[Output]:
        """Who they are, as far as they could be asked."""
        return self.give(Inventoried(self.now, {subject: dict(values) for subject, values in facts.items()}))

    def take_out(self, *subjects: Subject) -> Story:
        """These are not in the list of PCI devices any more."""
        for subject in subjects:
            del self.readings[subject]
        return self

    def kernel(self, *texts: str, facility: int = 0, history: bool = False, lost: int = 0, at: Moment | None = None) -> list[Output]:
        """Records of the kernel log, a microsecond apart, read at once."""
        events = []
        for text in texts:
            self.seq += 1
            message = KernelMessage(self.seq, int(self.now.mono * 1e6) + self.seq, facility, 4, "-", text)
            events += [(at or self.now, event) for event in self._parser.feed(message)]
        return self.give(KernelRead(tuple(events), self.seq, self.now, lost, history))

    def no_kernel_log(self, why: Missing = Missing.DENIED) -> list[Output]:
        """There is none to follow."""
        return self.give(KernelLogUnreadable(why))

    def renew_driver(self) -> list[Output]:
        """The module is loaded anew, or the operator allows it to be asked."""
        return self.give(DriverRenewed(self.now, "the nvidia module was loaded"))

    def restart(self, *, new_boot: bool = False) -> Story:
        """A successor that knows what the journal holds; after a reboot, only that it knows nothing."""
        held = {key: tracked.condition for key, tracked in self.state.conditions.items()}
        at = Moment(self.now.wall + 120.0, 60.0) if new_boot else self.now
        after = Story(at, readings=self.readings)
        incident = self.state.incident
        if new_boot:
            held = {key: _unseen(condition) for key, condition in held.items()}
            incident = None if incident is None else _of_last_boot(incident)
        else:
            after.seq = self.seq
        expected = {} if new_boot else self.state.expected
        inventory = {} if new_boot else self.state.inventory
        known = self.state.roster
        after.give(Restored(held, incident, self.state.next_id, expected, self.state.dumps, known.members, inventory, known.accepted))
        return after

    # ------------------------------------------------------------------------------------------------- what is held

    def status(self, subject: Subject, type_: str) -> Status | None:
        """Of one condition, None when nobody has judged it."""
        tracked = self.state.conditions.get((subject, type_))
        return tracked.condition.status if tracked else None

    def condition(self, subject: Subject, type_: str) -> Condition:
        """One condition."""
        return self.state.conditions[subject, type_].condition

    @property
    def verdict(self) -> str:
        """The host in one word."""
        return watch.verdict(RULES, self.state)


def _unseen(condition: Condition) -> Condition:
    return Condition(condition.subject, condition.type, Status.UNKNOWN, Moment(0.0, 0.0), "host restarted", Missing.NOT_ASKED)


def _of_last_boot(incident: Incident) -> Incident:
    return replace(incident, began=Moment(incident.began.wall, 0.0), last_dump=None)


# ------------------------------------------------------------------------------------------------------ what came out


def edges(outputs: Iterable[Output]) -> list[tuple[str, str, Status]]:
    """Transitions as (subject, type, after)."""
    return [(str(output.subject), output.type, output.after) for output in outputs if isinstance(output, Transition)]


def bad(outputs: Iterable[Output]) -> list[Transition]:
    """The transitions to TRUE."""
    return [output for output in outputs if isinstance(output, Transition) and output.after is Status.TRUE]


def asked(outputs: Iterable[Output], kind: ActionKind) -> list[Action]:
    """The actions of one kind."""
    return [output for output in outputs if isinstance(output, Action) and output.kind is kind]


def dumps(outputs: Iterable[Output]) -> list[Action]:
    """The dumps asked for."""
    return asked(outputs, ActionKind.TAKE_DUMP)


def records(outputs: Iterable[Output]) -> list[KernelRecord]:
    """The kernel events written down."""
    return [output for output in outputs if isinstance(output, KernelRecord)]


def opened(outputs: Iterable[Output]) -> list[Opened]:
    """The incidents that began."""
    return [output for output in outputs if isinstance(output, Opened)]


def closed(outputs: Iterable[Output]) -> list[Closed]:
    """The incidents that ended."""
    return [output for output in outputs if isinstance(output, Closed)]


def gaps(outputs: Iterable[Output]) -> list[Gap]:
    """What was not written down."""
    return [output for output in outputs if isinstance(output, Gap)]


def learnt(outputs: Iterable[Output]) -> list[Learnt]:
    """The baselines."""
    return [output for output in outputs if isinstance(output, Learnt)]
