"""A clock that stands still until it is told to move."""

from __future__ import annotations

from xidwatch.core.model import Moment

WALL = 1789611008.412  # 2026-09-17T02:10:08.412Z
MONO = 3611.0
BOOT_ID = "5f0c2d1e-0000-4000-8000-000000000001"


class FakeClock:
    """Both clocks of one boot, an hour after it began."""

    def __init__(self, mono: float = MONO) -> None:
        self.boot_id = BOOT_ID
        self.mono = mono
        self.set_by = 0.0  # seconds by which somebody has set the wall clock

    def now(self) -> Moment:
        """Whatever it was set to."""
        return Moment(WALL + self.set_by + self.mono - MONO, self.mono)

    def advance(self, seconds: float) -> None:
        """Both clocks together."""
        self.mono += seconds
