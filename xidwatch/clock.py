"""The clock as a parameter, so that a recorded night can be replayed and no test has to wait."""

from __future__ import annotations

import math
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Protocol

from xidwatch.core.model import Moment

BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


class Clock(Protocol):
    """Both clocks of the host, and which boot they belong to."""

    @property
    def boot_id(self) -> str:
        """Of the running kernel, 32 hex digits with dashes."""

    def now(self) -> Moment:
        """Both clocks, read together."""


class SystemClock:
    """The real one."""

    def __init__(self) -> None:
        self.boot_id = BOOT_ID.read_text().strip()

    def now(self) -> Moment:
        """CLOCK_REALTIME and CLOCK_MONOTONIC."""
        return Moment(wall=time.time(), mono=time.monotonic())


def iso(wall: float) -> str:
    """ISO 8601 UTC with milliseconds, as every record prints it: `2026-09-17T02:10:08.412Z`."""
    whole = math.floor(wall * 1000)  # cut off, never rounded into the future
    moment = datetime.fromtimestamp(whole // 1000, UTC) + timedelta(milliseconds=whole % 1000)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def from_iso(text: str) -> float:
    """The inverse of `iso`; any ISO 8601 time with a zone, since one without would be read as local time. Raises ValueError."""
    found = datetime.fromisoformat(text)
    if found.tzinfo is None:
        raise ValueError(f"no time zone: {text!r}")
    return found.timestamp()
