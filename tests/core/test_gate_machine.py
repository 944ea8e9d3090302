"""The gate by chance: whatever happens to hardware, units, clocks and daemons, what is promised of it holds.

What is promised is judged here by other means than the gate's own: by what was put into the story.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, precondition, rule

from tests.core.engine_story import ENGINE, SETTINGS, START, STOP, UNIT, Night, card, orders, unit
from tests.core.story import ALL_ONES, GPUS, RULES, healthy, xid
from xidwatch.core.gate_model import GateMoved, GateState
from xidwatch.core.messages import EngineStarted, EngineStopped, GateReset, Output
from xidwatch.core.model import Missing, Moment, Status

MOST_STARTS, WINDOW_SECONDS, SETTLE_SECONDS = 2, 3600.0, 60.0
CHANCE = replace(SETTINGS, most_starts=MOST_STARTS, window_seconds=WINDOW_SECONDS, settle_seconds=SETTLE_SECONDS, ready_seconds=90.0)
UNITS = st.sampled_from([
    unit(), unit(invocation_id="run-8"), unit(invocation_id="run-9", restarts=1), unit("activating"), unit("deactivating"),
    unit("inactive"), unit("inactive"), unit("inactive"), unit("failed", result="exit-code"), unit("inactive", result="exec-condition"),
    unit("inactive", processes=1), unit("inactive", processes=Missing.DENIED), unit("inactive", unit_file_state="disabled"),
    dict.fromkeys(unit(), Missing.TIMED_OUT),
])  # fmt: skip
LACKS = ("config_dword0", "nvml_status", "power_limit_watts", "link_width", "temperature_celsius", "compute_pids")


class GateMachine(RuleBasedStateMachine):
    """`good_since`: the first of the ticks in a row, up to now, at which all was as on a good day."""

    def __init__(self) -> None:
        super().__init__()
        self.night = Night(CHANCE)
        self.good_since: float | None = None
        self.may_stop = False  # hardware was lost, or a start went wrong
        self.granted: list[float] = []  # that came to nothing, or are under way
        self.is_under_way = False
        self.fatal = False

    # ------------------------------------------------------------------------------------------------------ the world

    @rule(count=st.integers(1, 5), after=st.sampled_from([5.0, 30.0, 30.0, 90.0]))
    def time_passes(self, count: int, after: float) -> None:
        for _ in range(count):
            self._judge(self.night.tick(after), is_tick=True)

    @rule(found=UNITS)
    def systemd_says(self, found: dict[str, object]) -> None:
        self.night.readings[ENGINE] = dict(found)  # type: ignore[arg-type]

    @rule(between=st.booleans())
    def it_is_looked_at(self, *, between: bool) -> None:
        self._judge(self.night.seen() if between else self.night.look())

    @rule(which=st.integers(0, 3), quantity=st.sampled_from(LACKS))
    def a_reading_does_not_come(self, which: int, quantity: str) -> None:
        self.night.set(GPUS[which], {quantity: Missing.TIMED_OUT})

    @rule(which=st.integers(0, 3), number=st.sampled_from([13, 31, 43, 45, 94]))
    def an_application_fails(self, which: int, number: int) -> None:
        self.good_since = None
        self._judge(self.night.kernel(xid(GPUS[which], number, "an application's doing")))

    @rule(which=st.integers(0, 3), facility=st.sampled_from([0, 1]))
    def a_card_falls_off(self, which: int, facility: int) -> None:
        if facility == 0:
            self.may_stop = self.fatal = True
            self.good_since = None
        self._judge(self.night.kernel(xid(GPUS[which], 79), facility=facility))

    @rule(look=st.booleans())
    def the_switch_goes(self, *, look: bool) -> None:
        self.may_stop = True
        self.night.lose_switch()
        if look:
            self.good_since = None
            self._judge(self.night.look())

    @rule(which=st.integers(0, 3))
    def a_card_answers_nothing(self, which: int) -> None:
        self.may_stop = True
        self.night.set(GPUS[which], {"config_dword0": ALL_ONES})

    @rule(renew=st.booleans(), down=st.booleans())
    def all_is_mended(self, *, renew: bool, down: bool) -> None:
        self.night.readings = {**self.night.readings, **healthy()}
        for gpu in GPUS:
            self.night.set(gpu, card(compute_pids=""))
        if down:
            self.night.readings[ENGINE] = unit("inactive")
        if renew:
            self.fatal = False
            self._judge(self.night.renew_driver())

    # ------------------------------------------------------------------------------------------------------ the daemon

    @precondition(lambda self: self.night.state.incident is not None)
    @rule()
    def stage_one_is_over(self) -> None:
        self._judge(self.night.dumped())

    @rule(result=st.sampled_from(["ok", "ok", "leftovers", "timeout", "failed"]), old=st.booleans())
    def the_stop_is_over(self, result: str, *, old: bool) -> None:
        action = "a-000001" if old else self.night.gate.asked
        left = ("101 VLLM::Worker D",) if result == "leftovers" else ()
        self._judge(self.night.give(EngineStopped(self.night.wait(1.0).now, UNIT, action, result, leftovers=left)))

    @rule(result=st.sampled_from(["ready", "ready", "refused", "failed", "not-ready", "timeout"]), old=st.booleans())
    def the_start_is_over(self, result: str, *, old: bool) -> None:
        lease = self.night.gate.lease
        action = "a-000002" if old or lease is None else lease.action
        self.may_stop = self.may_stop or result != "ready"
        self._judge(self.night.give(EngineStarted(self.night.wait(1.0).now, UNIT, action, result, invocation_id="run-8")))

    @rule(new_boot=st.booleans(), told=st.booleans())
    def another_run_begins(self, *, new_boot: bool, told: bool) -> None:
        """It may be that the last word of its predecessor never reached the disk."""
        if not told:
            self._forget_the_last_move()
        self.night = self.night.again(new_boot=new_boot)
        assert self.night.gate.lease is None
        assert self.night.at not in (GateState.STARTING, GateState.PROVING, GateState.RUNNING)
        self.good_since, self.may_stop = None, True
        if new_boot:
            self.night.name_all()
        self.fatal = self.fatal and not new_boot
        self._judge(self.night.out)

    def _forget_the_last_move(self) -> None:
        told = [output.gate for output in self.night.out if isinstance(output, GateMoved)]
        if len(told) > 1 and told[-1].state is not GateState.LATCHED and len(told[-2].starts) >= len(told[-1].starts):
            self.night.state = replace(self.night.state, gates={UNIT: told[-2]})

    # ---------------------------------------------------------------------------------------------------- the operator

    @rule()
    def an_operator_resets(self) -> None:
        if self.night.at is GateState.LATCHED:
            self.granted.clear()
            self.is_under_way = False
        self._judge(self.night.give(GateReset(self.night.now, UNIT, "alice")), reset=True)

    @rule(on=st.booleans())
    def maintenance(self, *, on: bool) -> None:
        self.good_since = None
        self._judge(self.night.maintenance(1800.0 if on else None))

    @rule(on=st.booleans())
    def a_gate_is_opened_by_hand(self, *, on: bool) -> None:
        self._judge(self.night.open_by_hand(*([UNIT] if on else [])))

    # ------------------------------------------------------------------------------------------------------- promises

    def _judge(self, outputs: Iterable[Output], *, is_tick: bool = False, reset: bool = False) -> None:
        outputs = list(outputs)
        now = self.night.now
        if is_tick:
            self.good_since = (self.good_since or now.mono) if self._is_good_day() else None
        for order in orders(outputs):
            assert self.night.state.maintenance is None
            assert not self.night.state.opened
            self._judge_order(order == START, now)
        for output in outputs:
            self._note_success(output)
            if isinstance(output, GateMoved) and output.before is GateState.LATCHED:
                assert reset or output.gate.state is GateState.LATCHED
        assert (self.night.at is GateState.STARTING) == (self.night.gate.lease is not None)

    def _note_success(self, output: Output) -> None:
        """A start that has come to something is not counted here, whatever is lost later."""
        if not isinstance(output, GateMoved) or output.gate.state is not GateState.RUNNING:
            return
        if self.is_under_way and output.before in (GateState.STARTING, GateState.ADOPTING):
            self.granted.pop()
        self.is_under_way = False

    def _judge_order(self, is_start: bool, now: Moment) -> None:
        if not is_start:
            assert self.may_stop
            return
        assert self.good_since is not None
        assert now.mono - self.good_since >= SETTLE_SECONDS
        self.granted = [wall for wall in self.granted if now.wall - wall < WINDOW_SECONDS] + [now.wall]
        self.is_under_way = True
        assert len(self.granted) <= MOST_STARTS

    def _is_good_day(self) -> bool:
        """By the readings of this tick alone, and by what the rules hold against anything."""
        readings, good = self.night.readings, healthy()
        cards = all(readings[gpu].get(name) == value for gpu in GPUS for name, value in (good[gpu] | card(compute_pids="")).items())
        ports = all(
            readings[subject].get(name) == value for subject in good if subject.kind == "port" for name, value in good[subject].items()
        )
        engine = readings[ENGINE]
        down = engine.get("active_state") in ("inactive", "failed") and engine.get("processes") == 0
        enabled = engine.get("unit_file_state") == "enabled"
        stopping = {each.type for each in RULES if each.stops_engine}
        held = [tracked.condition for (_, type_), tracked in self.night.state.conditions.items() if type_ in stopping]
        quiet = all(condition.status in (Status.FALSE, Status.NOT_APPLICABLE) for condition in held)
        return cards and ports and down and enabled and quiet and not self.fatal


TestGate = pytest.mark.slow(GateMachine.TestCase)
TestGate.settings = settings(max_examples=40, stateful_step_count=40, deadline=None)


def test_a_stop_is_asked_for_by_name() -> None:
    """The promises above are about these very words."""
    assert STOP[1] == START[1] == UNIT
