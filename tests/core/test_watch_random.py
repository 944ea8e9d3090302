"""The watch under anything that can happen, in any order: what must hold whatever comes."""

from __future__ import annotations

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from tests.core.story import (
    ALL_ONES,
    BOARDS,
    CHAINS,
    DISK,
    DOWNSTREAM,
    GPU,
    GPUS,
    NVML,
    REBOOT_ASKED,
    RULES,
    SWITCH,
    UVM_FATAL,
    Story,
    xid,
)
from xidwatch.core import watch
from xidwatch.core.incidents import DUMPS_PER_DAY
from xidwatch.core.messages import Closed, ConditionKey, KernelRecord, Learnt, Opened, Output, Row
from xidwatch.core.model import Action, ActionKind, Missing, Moment, Severity, Status, Subject, Transition, Value

OPENING = frozenset(chosen.type for chosen in RULES if chosen.opens_incident)
GOOD = (Status.FALSE, Status.NOT_APPLICABLE)
SUBJECTS = (SWITCH, GPU, GPUS[1], DISK, NVML, Subject("gpu", "no address"), Subject("nonsense", "x"))
QUANTITIES: dict[str, st.SearchStrategy[Value]] = {
    "config_dword0": st.sampled_from((ALL_ONES, 0x1000C010, 0xFFFF0001)),
    "command": st.sampled_from([0, 0x0507]),
    "secondary_bus": st.sampled_from([0, 0x10]),
    "driver": st.sampled_from(["nvidia", "vfio-pci", ""]),
    "nvml_status": st.sampled_from([0, 15, 16]),
    "present": st.sampled_from([0, 1]),
    "chain": st.sampled_from([CHAINS[GPU], "0000:00/1f.0/00.0"]),
    "board": st.sampled_from([BOARDS["gpu"], "10de:2684"]),
    "link_width": st.sampled_from([0, 4, 16]),
    "aer_fatal": st.sampled_from([0, 1, 7]),
    "aer_correctable": st.sampled_from([0, 5000]),
    "stuck_seconds": st.sampled_from([0.0, 50.0]),
}
ODD: st.SearchStrategy[Value] = st.one_of(
    st.sampled_from(Missing), st.sampled_from(["", "rubbish", -1, 10**30, float("nan"), float("inf")])
)
LINES = (xid(GPU, 79), xid(GPUS[1], 79), xid(GPU, 154, REBOOT_ASKED), UVM_FATAL, xid(GPU, 31, "fault"), "usb 1-1: new device")


class AnyNight(RuleBasedStateMachine):
    """What was written down is replayed beside the watch and compared with what it holds."""

    def __init__(self) -> None:
        super().__init__()
        self.story = Story()
        self.replayed: dict[ConditionKey, Status] = {}
        self.members: set[ConditionKey] = set()
        self.known: set[str] = set()
        self.bad_edges: set[str] = set()  # to TRUE, of a condition that opens incidents
        self.last_number = 0
        self.open: str | None = None
        self.dumps = 0

    # ------------------------------------------------------------------------------------------------ what can happen

    @initialize()
    def a_quiet_start(self) -> None:
        self.check(self.story.ticks(2))

    @rule(subject=st.sampled_from(SUBJECTS), data=st.data())
    def a_reading_changes(self, subject: Subject, data: st.DataObject) -> None:
        name = data.draw(st.sampled_from(sorted(QUANTITIES)))
        value: Value = data.draw(st.one_of(QUANTITIES[name], ODD))
        self.story.set(subject, {name: value})

    @rule()
    def the_switch_goes(self) -> None:
        self.story.lose_switch()

    @rule()
    def all_is_well_again(self) -> None:
        self.story.mend()

    @rule(subject=st.sampled_from(SUBJECTS))
    def a_thing_is_not_reported_any_more(self, subject: Subject) -> None:
        self.story.readings.pop(subject, None)

    @rule(uuid=st.sampled_from(["GPU-1", "GPU-2", Missing.NOT_ASKED]), lanes=st.sampled_from([8, 16]))
    def the_inventory_is_told(self, uuid: Value, lanes: int) -> None:
        self.check(self.story.inventory({GPU: {"uuid": uuid, "max_link_width": lanes}, DOWNSTREAM: {"max_link_width": 16}}))

    @rule(after=st.sampled_from([5.0, 30.0, 90.0]), count=st.integers(1, 4))
    def ticks(self, after: float, count: int) -> None:
        for _ in range(count):
            self.check(self.story.tick(after))

    @rule()
    def a_look(self) -> None:
        for subject in self.story.readings:
            for name in ("config_dword0", "command"):
                self.story.readings[subject].setdefault(name, Missing.NOT_ASKED)
        self.check(self.story.wait(0.2).look())

    @rule(
        texts=st.lists(st.sampled_from(LINES), min_size=1, max_size=6),
        facility=st.sampled_from([0, 0, 0, 1]),
        age=st.sampled_from([0, 500]),
    )
    def the_kernel_speaks(self, texts: list[str], facility: int, age: int) -> None:
        now = self.story.wait(0.5).now
        before = {key: tracked.condition for key, tracked in self.story.state.conditions.items()}
        out = self.story.kernel(*texts, facility=facility, at=Moment(now.wall - age, now.mono - age))
        if facility:
            assert all(isinstance(output, KernelRecord) for output in out)
            assert before == {key: tracked.condition for key, tracked in self.story.state.conditions.items()}
        self.check(out)

    @rule(lost=st.integers(1, 500))
    def records_are_lost(self, lost: int) -> None:
        self.check(self.story.kernel(lost=lost))

    @rule()
    def the_log_is_lost(self) -> None:
        self.check(self.story.no_kernel_log())

    @rule()
    def the_driver_is_renewed(self) -> None:
        self.check(self.story.renew_driver())

    @rule(step=st.sampled_from([-7200.0, 7200.0]))
    def the_wall_clock_is_set(self, step: float) -> None:
        self.story.now = Moment(self.story.now.wall + step, self.story.now.mono)

    @rule(new_boot=st.booleans())
    def it_is_restarted(self, new_boot: bool) -> None:
        held = self.story.state
        self.story = self.story.restart(new_boot=new_boot)
        if new_boot:
            self.replayed = dict.fromkeys(self.replayed, Status.UNKNOWN)
        else:
            assert self.story.state.driver_released or not any(
                key[1] == "DriverFatalXid" and tracked.condition.status is Status.TRUE for key, tracked in held.conditions.items()
            )
            out = self.story.kernel(*LINES, history=True)
            assert out == []

    # ----------------------------------------------------------------------------------------------- what must hold

    def check(self, out: list[Output]) -> None:
        """In the order in which it is written down."""
        for output in out:
            self.check_number(output)
            match output:
                case Transition():
                    self.check_edge(output)
                case Opened(incident=incident):
                    assert self.open is None
                    assert incident.trigger in self.bad_edges
                    self.open = incident.id
                case Action():
                    self.check_action(output)
                case Closed(incident=incident):
                    assert incident.id == self.open
                    assert all(self.replayed[key] in GOOD for key in incident.members)
                    self.open, self.members = None, set()
        self.check_conditions()

    def check_number(self, output: Output) -> None:
        if isinstance(output, Row | Learnt):
            return
        number = int(output.id.partition("-")[2])
        assert number > self.last_number
        self.last_number = number
        self.known.add(output.id)

    def check_edge(self, edge: Transition) -> None:
        key = (edge.subject, edge.type)
        assert edge.before is self.replayed.get(key, Status.UNKNOWN)
        assert edge.after is not edge.before
        if edge.not_before is not None:
            assert edge.after is Status.TRUE
        self.replayed[key] = edge.after
        if edge.after is Status.TRUE and edge.type in OPENING:
            self.bad_edges.add(edge.id)
        if edge.after is Status.TRUE and edge.incident is not None:
            self.members.add(key)

    def check_action(self, action: Action) -> None:
        assert action.cause in self.known or action.cause.startswith("seq-")
        if action.kind is ActionKind.TAKE_DUMP:
            assert action.incident == self.open
            self.dumps += 1

    def check_conditions(self) -> None:
        held = {key: tracked.condition.status for key, tracked in self.story.state.conditions.items()}
        for key in held.keys() - self.replayed.keys():
            assert held[key] is not Status.TRUE  # the first look is quiet only when there is nothing to tell
            self.replayed[key] = held[key]
        assert held == self.replayed

    @invariant()
    def the_incident_is_the_one_on_record(self) -> None:
        incident = self.story.state.incident
        assert (incident.id if incident else None) == self.open
        assert (set(incident.members) if incident else set()) == self.members

    @invariant()
    def what_is_bad_has_an_incident(self) -> None:
        if any(status is Status.TRUE and key[1] in OPENING for key, status in self.replayed.items()):
            assert self.open is not None
            assert watch.verdict(RULES, self.story.state) in ("failed", "degraded")

    @precondition(lambda self: self.dumps > DUMPS_PER_DAY)
    @invariant()
    def dumps_are_bounded(self) -> None:
        raise AssertionError(f"{self.dumps} dumps within a day")

    @invariant()
    def what_is_bad_is_not_called_healthy(self) -> None:
        remarks = {chosen.type for chosen in RULES if chosen.severity is Severity.INFO}
        if any(status is Status.TRUE and key[1] not in remarks for key, status in self.replayed.items()):
            assert watch.verdict(RULES, self.story.state) != "healthy"


AnyNight.TestCase.settings = settings(max_examples=60, stateful_step_count=40)
test_whatever_happens = AnyNight.TestCase
