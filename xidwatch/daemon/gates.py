"""What a person asks of a gate through the control socket.

-> {"do": "gate-reset", "unit": "vllm.service", "user": "alice"}
<- {"ok": true, "text": "vllm.service is out of LATCHED: ..."}
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from xidwatch.core.gate_model import Gate, GateState
from xidwatch.core.messages import GateReset
from xidwatch.core.model import Moment

MOST_CHARACTERS = 64  # of a user's name


def reset(request: Mapping[str, Any], uid: int, gates: Mapping[str, Gate], now: Moment) -> GateReset:
    """What the watch is to be told. Raises ValueError where there is nothing to reset."""
    unit = str(request.get("unit", ""))
    gate = gates.get(unit)
    if gate is None:
        known = f" (those are: {', '.join(sorted(gates))})" if gates else ""
        raise ValueError(f"{unit!r} is no engine of this daemon's configuration{known}")
    if gate.state is not GateState.LATCHED:
        raise ValueError(f"{unit} is {gate.state}, not LATCHED: there is nothing to reset. {gate.why}".strip())
    user = str(request.get("user", ""))[:MOST_CHARACTERS]
    return GateReset(now, unit, f"{user} (uid {uid})" if user else f"uid {uid}")


def was_reset(unit: str) -> str:
    """For the person who asked."""
    return f"{unit} is out of LATCHED: it starts once its hardware has been proven. `xidwatch gate --wait 10m {unit}` waits for that"
