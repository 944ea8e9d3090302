"""Who this daemon is: facts about its own process that go into records. A parameter, as the clock is."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Self


@dataclass(frozen=True, slots=True)
class Oneself:
    """`by_systemd`: it was started as a service. `is_root`: nothing is denied to it."""

    pid: int
    by_systemd: bool
    is_root: bool

    @classmethod
    def here(cls) -> Self:
        """This process."""
        return cls(os.getpid(), "NOTIFY_SOCKET" in os.environ, os.geteuid() == 0)
