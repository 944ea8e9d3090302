"""systemctl, bounded: no call here waits for systemd, for a job, or for a disk that systemctl is read from.

    systemctl stop --no-block vllm.service        queued, and asked after with `show`: the blocking form waits as long as the job does
    systemctl show --property=... -- vllm.service

Sources: systemctl(1); the blocking form waits up to twice TimeoutStopSec and more.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from xidwatch.core.model import Missing, Value
from xidwatch.probes import engine_units
from xidwatch.probes.child import Listener

CALL_SECONDS = 10.0
NOT_TO_START = ("disabled", "masked", "masked-runtime")
NOT_LOADED = ("not-found", "masked", "error", "bad-setting")
DOWN = ("inactive", "failed")

Values = Mapping[str, Value]


@dataclass(slots=True)
class Units:
    """One systemd. `monotonic` and `command` can be others in tests."""

    command: str = field(default_factory=engine_units.systemctl)
    monotonic: Callable[[], float] = time.monotonic
    _listener: Listener = field(init=False)

    def __post_init__(self) -> None:
        self._listener = Listener(engine_units.MOST_BYTES, monotonic=self.monotonic)

    def queue(self, verb: str, unit: str) -> bool:
        """Ask for a job, or whatever the verb does. False when systemctl did not come back; how the job ends is asked with `look`."""
        words = [self.command, verb, "--no-block", "--no-ask-password", "--", unit]
        return not isinstance(self._listener.ask(words, self.monotonic() + CALL_SECONDS), Missing)

    def look(self, unit: str) -> Values:
        """The unit's properties as quantities of the engine probe; all of them missing when systemd does not answer."""
        answer = self._listener.ask(engine_units.question(self.command, [unit]), self.monotonic() + CALL_SECONDS)
        if isinstance(answer, Missing):
            return dict.fromkeys(engine_units.QUANTITIES, answer)
        properties = engine_units.blocks(answer.decode("utf-8", "replace")).get(unit)
        return engine_units.readings(properties, self.monotonic())


def is_down(values: Values) -> bool:
    """It does not run, as systemd says; what did not come says nothing."""
    return values.get("active_state") in DOWN or values.get("load_state") == "not-found"


def forbidden(values: Values) -> str:
    """Why it must not be started; "" when it may."""
    load, state = values.get("load_state"), values.get("unit_file_state")
    if load in NOT_LOADED:
        return f"systemd says of its unit: {load}"
    return f"its unit is {state}" if state in NOT_TO_START else ""


def control_group(values: Values) -> str:
    """Its path below the hierarchy; "" when it has none."""
    group = values.get("control_group")
    return group if isinstance(group, str) and not isinstance(group, Missing) else ""


def how_it_ended(values: Values) -> str:
    """For people: `failed (exit-code, status 1)`."""
    parts = [str(values[name]) for name in ("result",) if name in values and not isinstance(values[name], Missing)]
    status = values.get("exit_status")
    if isinstance(status, int) and values.get("exit_code") in (1, 2, 3):
        parts.append(f"{'status' if values.get('exit_code') == 1 else 'signal'} {status}")
    return f"{values.get('active_state')} ({', '.join(parts)})" if parts else str(values.get("active_state"))
