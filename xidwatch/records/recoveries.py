"""What was tried to bring hardware back, as a checkpoint keeps it: a step is taken once in a boot, and a boot outlives many runs.

{"step":"rescan","action":"a-000160","at":"2026-09-17T02:14:21.118Z","at_mono_us":3864000000,"boot_id":"5f0c...",
 "incident":"20260917T021008Z-bus-lost-0f","target":"0000:0f:00.0","result":"ok","detail":"0000:0f:00.0 is back and answers"}
"""

from __future__ import annotations

import msgspec

from xidwatch.clock import iso
from xidwatch.core.recovery_model import Attempt
from xidwatch.records.values import Microseconds, moment, mono_us


class AttemptRecord(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One attempt. Without a result nobody knows how it ended."""

    step: str
    action: str
    at: str
    at_mono_us: Microseconds
    boot_id: str
    incident: str | None = None
    target: str = ""
    result: str = ""
    detail: str = ""

    @classmethod
    def of(cls, attempt: Attempt) -> AttemptRecord:
        """As a record holds it."""
        return cls(
            step=attempt.step,
            action=attempt.action,
            at=iso(attempt.at.wall),
            at_mono_us=mono_us(attempt.at),
            boot_id=attempt.boot_id,
            incident=attempt.incident,
            target=attempt.target,
            result=attempt.result,
            detail=attempt.detail,
        )

    def attempt(self) -> Attempt:
        """Back. Raises ValueError."""
        at = moment(self.at, self.at_mono_us)
        return Attempt(self.step, self.action, at, self.boot_id, self.incident, self.target, self.result, self.detail)
