"""Who this daemon is: facts about its own process that go into records. A parameter, as the clock is."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Self

from xidwatch import __version__


@dataclass(frozen=True, slots=True)
class Oneself:
    """`by_systemd`: it was started as a service. `is_root`: nothing is denied to it. `replays`: this fixture, and no host of its own."""

    pid: int
    by_systemd: bool
    is_root: bool
    replays: str = ""

    @classmethod
    def here(cls) -> Self:
        """This process."""
        return cls(os.getpid(), "NOTIFY_SOCKET" in os.environ, os.geteuid() == 0)

    def introduced(self, settings: Mapping[str, object]) -> Mapping[str, object]:
        """How a run begins its records; a replay says that it is one."""
        mark = {"replayed": self.replays} if self.replays else {}
        return {"version": __version__, "pid": self.pid, "settings": settings, **mark}
