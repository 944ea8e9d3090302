"""What a person may ask of a gate."""

from __future__ import annotations

import pytest

from tests.fakes.clock import FakeClock
from xidwatch.core.gate_model import Gate, GateState
from xidwatch.core.messages import GateReset
from xidwatch.daemon import gates

NOW = FakeClock().now()
GATES = {
    "vllm.service": Gate("vllm.service", GateState.LATCHED, NOW, "4 starts within 1 h"),
    "llama.service": Gate("llama.service", GateState.HELD, NOW, "3 of 4 GPUs are there"),
}


def test_a_latch_is_taken_off_by_somebody() -> None:
    """Who it was is on record."""
    asked = {"unit": "vllm.service", "user": "alice"}
    assert gates.reset(asked, 0, GATES, NOW) == GateReset(NOW, "vllm.service", "alice (uid 0)")
    assert "vllm.service" in gates.was_reset("vllm.service")


@pytest.mark.parametrize(
    ("unit", "said"),
    [
        ("llama.service", "is HELD, not LATCHED.*3 of 4 GPUs are there"),
        ("other.service", r"no engine of this daemon's configuration \(those are: llama\.service, vllm\.service\)"),
        ("", "no engine"),
    ],
)
def test_where_there_is_no_latch_there_is_nothing_to_reset(unit: str, said: str) -> None:
    """And what keeps it from starting is said instead."""
    with pytest.raises(ValueError, match=said):
        gates.reset({"unit": unit}, 0, GATES, NOW)
