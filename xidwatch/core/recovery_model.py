"""The words of recovery by itself: which steps there are, what an operator has switched on, what has been tried.

Law: immutable values, no behaviour. Which step is due is `recovering`, what could help at all is `recovery`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from xidwatch.core.model import Moment


class RecoveryStep(StrEnum):
    """What can be switched on, least invasive first; the values are the keys of the ladder's rungs."""

    RESCAN = "rescan"  # PCI removal, where it is still listed, and rescan
    SLOT_POWER = "slot-power"  # power of its slot off and on
    GPU_RESET = "gpu-reset"  # by the driver
    MODULE_RELOAD = "module-reload"  # of the NVIDIA modules
    REBOOT = "reboot"  # warm


WHOLE_HOST = frozenset({RecoveryStep.MODULE_RELOAD, RecoveryStep.REBOOT})

# How a step ends. Refused and unable: nothing was done, so that it does not count as tried.
OK, FAILED, TIMEOUT, LEFT, REFUSED, UNABLE = "ok", "failed", "timeout", "left", "refused", "unable"
NOTHING_DONE = frozenset({REFUSED, UNABLE})


@dataclass(frozen=True, slots=True)
class RecoverySettings:
    """What an operator has switched on, in the order of `RecoveryStep`. Seconds."""

    enabled: tuple[RecoveryStep, ...] = ()
    wait_seconds: float = 120.0  # hardware has been gone for so long before the first step, and gets so long after each
    reboot_after_seconds: float = 900.0  # it has been gone, and the host up, for so long before a reboot
    reboot_window_seconds: float = 86400.0  # one reboot within it


@dataclass(frozen=True, slots=True)
class Attempt:
    """One step that was decided on, in whatever boot. `result` "": how it ended is not on record, which counts as done."""

    step: str
    action: str  # id of the RECOVER action
    at: Moment
    boot_id: str
    incident: str | None = None
    target: str = ""
    result: str = ""
    detail: str = ""


@dataclass(frozen=True, slots=True)
class PutOff:
    """A step that was refused when it was about to be taken: `times` in a row, and not again before `until` (monotonic)."""

    until: float
    times: int
    why: str


@dataclass(frozen=True, slots=True)
class Recoveries:
    """All that is remembered. `knows_past`: whether the journal could be read; without it nothing is done."""

    settings: RecoverySettings = field(default_factory=RecoverySettings)
    knows_past: bool = False
    attempts: tuple[Attempt, ...] = ()
    under_way: str = ""  # id of the action, while a step is being taken
    rested: float = float("-inf")  # monotonic time at which the last step ended
    put_off: Mapping[str, PutOff] = field(default_factory=dict)  # by step
    terminal: str = ""  # what the kernel log has said in this boot after which nothing less than a reboot helps
    unable: Mapping[str, str] = field(default_factory=dict)  # by step: why it cannot be taken in this run


@dataclass(frozen=True, slots=True)
class Outlook:
    """One step that is switched on: what it would be done to, and what speaks against it now; due when nothing does."""

    step: RecoveryStep
    target: str = ""
    against: tuple[str, ...] = ()
