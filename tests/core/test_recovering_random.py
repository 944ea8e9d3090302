"""Recovery by chance: whatever happens to hardware, units, people and daemons, what is promised of it holds.

What is promised is judged here by what was put into the story, and not by what the watch keeps of it.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, precondition, rule

from tests.core.engine_story import ENGINE, UNIT, unit
from tests.core.story import ALL_ONES, GPUS, healthy, xid
from tests.core.test_recovering import AFTER, EVERYTHING, REBOOT, WAIT, WINDOW, Morning
from xidwatch.core.gate_model import GateState
from xidwatch.core.messages import EngineStopped, GatesOpened, Output, RecoveryEnded, Restored, Supervised
from xidwatch.core.model import Action, ActionKind, Missing, Moment, Status
from xidwatch.core.recovery_model import NOTHING_DONE, Attempt, RecoverySettings
from xidwatch.core.state import State

SWITCHED_ON = RecoverySettings(EVERYTHING, WAIT, AFTER, WINDOW)
DOWN = unit("inactive")
UNITS = st.sampled_from([
    DOWN, DOWN, DOWN, DOWN, unit(), unit("activating"), unit("failed"), unit("inactive", processes=1),
    unit("inactive", processes=Missing.DENIED), dict.fromkeys(unit(), Missing.TIMED_OUT),
])  # fmt: skip
RESULTS = st.sampled_from(["ok", "failed", "timeout", "left", "refused", "unable"])


class RecoveryMachine(RuleBasedStateMachine):
    """`attempts`: what a journal would hold. `due_dumps`: those asked for of which nobody has said how they ended."""

    def __init__(self) -> None:
        super().__init__()
        self.night = Morning(*EVERYTHING)
        self.night.lose_card()
        self.attempts: list[Attempt] = []
        self.under_way = ""
        self.due_dumps = 0
        self.maintenance = self.opened = False
        self.knows_past = True
        self.unable: set[str] = set()
        self.boots = 0

    # ------------------------------------------------------------------------------------------------------ the world

    @rule(after=st.sampled_from([30.0, 60.0, 300.0]))
    def time_passes(self, after: float) -> None:
        for _ in range(3):
            self._judge(self.night.tick(after))

    @rule()
    def nothing_speaks_against_it_for_a_while(self) -> None:
        """But what has been done before: or chance alone would hardly ever come so far."""
        self.night.readings = {**self.night.readings, **healthy(), ENGINE: dict(DOWN)}
        self.somebody_works_on_the_host(on=False)
        self.somebody_opens_the_gate(on=False)
        self._judge(self.night.kernel(xid(GPUS[0], 79)))
        if self.night.at is GateState.STOPPING:
            self.the_stop_is_over(left=False)
        if self.night.state.incident is not None:
            self.stage_one_is_over()
        for _ in range(4):
            self._judge(self.night.tick(300.0))

    @rule(found=UNITS)
    def systemd_says(self, found: dict[str, object]) -> None:
        self.night.readings[ENGINE] = dict(found)  # type: ignore[arg-type]

    @rule(which=st.integers(0, 3), number=st.sampled_from([79, 79, 119, 154]))
    def a_card_falls_off(self, which: int, number: int) -> None:
        self._judge(self.night.kernel(xid(GPUS[which], number)))

    @rule(silent=st.booleans())
    def a_card_answers_nothing(self, *, silent: bool) -> None:
        self.night.set(GPUS[0], {"config_dword0": ALL_ONES if silent else Missing.TIMED_OUT})

    @rule(look=st.booleans())
    def the_switch_goes(self, *, look: bool) -> None:
        self.night.lose_switch()
        if look:
            self._judge(self.night.look())

    @rule()
    def what_is_on_the_bus_answers_again(self) -> None:
        self.night.readings = {**self.night.readings, **healthy()}

    # ---------------------------------------------------------------------------------------------------- the daemon

    @precondition(lambda self: self.night.state.incident is not None)
    @rule()
    def stage_one_is_over(self) -> None:
        self.due_dumps = 0
        self._judge(self.night.dumped())

    @precondition(lambda self: self.night.at is GateState.STOPPING)
    @rule(left=st.booleans())
    def the_stop_is_over(self, *, left: bool) -> None:
        action, result = self.night.gate.asked, "leftovers" if left else "ok"
        self.night.readings[ENGINE] = unit("inactive", processes=int(left))
        self._judge(self.night.give(EngineStopped(self.night.wait(1.0).now, UNIT, action, result, leftovers=("101 D",) if left else ())))

    @precondition(lambda self: self.under_way)
    @rule(result=RESULTS)
    def the_step_is_over(self, result: str) -> None:
        own = self.attempts.pop()
        if result not in NOTHING_DONE:
            self.attempts.append(replace(own, result=result))
        if result == "unable":
            self.unable.add(own.step)
        action, self.under_way = self.under_way, ""
        self._judge(self.night.give(RecoveryEnded(self.night.wait(1.0).now, action, result)))

    @rule(new_boot=st.booleans(), knows=st.sampled_from([True, True, True, False]))
    def another_run_takes_over(self, *, new_boot: bool, knows: bool) -> None:
        """After a kill between two records, or a boot; some cannot read what came before."""
        night, before = self.night, self.night.state
        if new_boot:
            self.boots += 1
            night.boot_id, night.now = f"boot-{self.boots}", Moment(night.now.wall + 120.0, 60.0)
        held = {} if new_boot else {key: tracked.condition for key, tracked in before.conditions.items()}
        incident = None if before.incident is None else replace(before.incident, last_dump=None)
        known = before.roster
        night.state = State()
        self.due_dumps, self.under_way, self.knows_past, self.opened = 0, "", knows, False
        self.unable.clear()
        restored = Restored(held, incident, before.next_id, {}, (), known.members, before.inventory, known.accepted)
        self._judge(night.give(restored))
        gates = tuple(before.gates.values()) if knows else ()
        attempts = tuple(self.attempts) if knows else ()
        supervised = Supervised(night.now, night.boot_id, (night.settings,), gates, before.maintenance, SWITCHED_ON, attempts, knows)
        self._judge(night.give(supervised))

    # ---------------------------------------------------------------------------------------------------- the people

    @rule(on=st.booleans())
    def somebody_works_on_the_host(self, *, on: bool) -> None:
        self.maintenance = on
        self._judge(self.night.maintenance(36000.0 if on else None))

    @rule(on=st.booleans())
    def somebody_opens_the_gate(self, *, on: bool) -> None:
        self.opened = on
        self._judge(self.night.give(GatesOpened(self.night.now, frozenset({UNIT} if on else ()))))

    @rule()
    def somebody_renews_the_driver(self) -> None:
        self._judge(self.night.renew_driver())

    # ----------------------------------------------------------------------------------------------- what is promised

    def _judge(self, outputs: Iterable[Output]) -> None:
        for output in outputs:
            if isinstance(output, Action) and output.kind is ActionKind.TAKE_DUMP:
                self.due_dumps += 1
            if isinstance(output, Action) and output.kind is ActionKind.RECOVER:
                self._allowed(output)
                self.attempts.append(
                    Attempt(output.step, output.id, output.at, self.night.boot_id, output.incident, output.target, detail="here")
                )
                self.under_way = output.id

    def _allowed(self, step: Action) -> None:
        assert not self.under_way, "two at a time"
        assert self.knows_past, "what came before is not known"
        assert not self.maintenance, "in maintenance"
        assert not self.opened, "an operator has opened it"
        assert not self.due_dumps, "the evidence is still being written"
        assert step.step not in self.unable, "it cannot be done here"
        assert self.night.at is GateState.HELD
        here = [each for each in self.attempts if each.boot_id == self.night.boot_id]
        assert step.step not in [each.step for each in here], "twice in a boot"
        assert REBOOT not in [each.step for each in here], "on the way down"
        found = self.night.readings[ENGINE]
        assert found["active_state"] in ("inactive", "failed"), "it is not known to be down"
        conditions = self.night.state.conditions.values()
        assert any(each.condition.status is Status.TRUE for each in conditions), "nothing is known to be gone"
        if step.step == REBOOT:
            self._reboot_allowed(step)
        else:
            assert found["processes"] == 0, "somebody lives on it"
            dead = self.night.readings[GPUS[0]].get("config_dword0")
            assert step.step != "rescan" or GPUS[0].name not in step.target.split() or (isinstance(dead, int) and dead != ALL_ONES)

    def _reboot_allowed(self, step: Action) -> None:
        earlier = [each for each in self.attempts if each.step == REBOOT]
        assert step.incident not in [each.incident for each in earlier], "twice for an incident"
        assert all(step.at.wall - each.at.wall >= WINDOW for each in earlier), "twice within the window"
        assert step.at.mono >= AFTER, "on a host that has just come up"


TestRecoveryByChance = pytest.mark.slow(RecoveryMachine.TestCase)
TestRecoveryByChance.settings = settings(max_examples=60, stateful_step_count=25, deadline=None)
