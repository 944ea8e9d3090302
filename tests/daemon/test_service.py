"""What the daemon does between a step of the watch and the world."""

from __future__ import annotations

from collections import Counter
from types import SimpleNamespace
from typing import Any, cast

import pytest

from tests.core.engine_story import SETTINGS, Night, unit
from tests.core.story import RULES
from xidwatch.core.gate_model import GateSettings, GateState
from xidwatch.core.messages import SampleTaken, Supervised
from xidwatch.core.model import Sample, Subject
from xidwatch.daemon.service import Daemon


@pytest.mark.parametrize("engines", [1, 64])
def test_gates_that_move_together_are_shown_once(engines: int) -> None:
    """One picture has them all: the loop does not stand still for seconds because many engines lose one switch."""
    units = [f"engine-{number}.service" for number in range(engines)]
    night = Night(SETTINGS)
    for name in units:
        night.readings[Subject("engine", name)] = unit()
    night.give(Supervised(night.now, night.boot_id, tuple(GateSettings(name, gpus="all") for name in units)))
    pictures: list[dict[str, GateState]] = []
    nothing = SimpleNamespace(tell=lambda _: None, output=lambda _: (1,), soon=lambda: None, carry_out=lambda *_: None, write=lambda: None)
    run: Any = SimpleNamespace(_conditions=RULES, _state=night.state, scribe=nothing, _hands=nothing, _showing=nothing, baselines=nothing)
    run._entered = {state: Counter[str]() for state in GateState}
    run._row = lambda _: None
    run.show = lambda: pictures.append({name: gate.state for name, gate in run._state.gates.items()})
    night.wait(30.0)
    Daemon.take(cast("Daemon", run), SampleTaken(Sample(9, night.now, night.boot_id, night.readings)))
    assert pictures == [dict.fromkeys(units, GateState.RUNNING)]
    assert run._entered[GateState.RUNNING] == dict.fromkeys(units, 1)
