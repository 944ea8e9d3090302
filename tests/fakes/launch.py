"""Start the real daemon with probes of the test's choosing: `python -m tests.fakes.launch SETTINGS.json`.

    {"state_dir": "...", "run_dir": "...", "config": {"interval": "0.5s"}, "config_path": null, "rules_dir": "...", "once": false,
     "specs": [{"name": "host", "target": "xidwatch.probes.host:create"}],
     "uevents": "/tmp/.../uevents",
     "patience": {"xidwatch.daemon.main:DRIVER_CALL_SECONDS": 1.0}, "wall_shift": "...", "kernel_trouble": "...", "boot_id": "..."}

`uevents` is a pipe that stands in for the kernel's announcements (`tests.fakes.uevents`). `patience` replaces constants that a
test would otherwise have to sit out, in the daemon's own process only. `wall_shift` names a file: by so many seconds its wall
clock is off, from when the file has them on, and by so many more a second from a monotonic time on (`-0.5 0.02 1234.5`).
`kernel_trouble` names one that says how reading the kernel log fails (`tests.fakes.kernel_log`). `boot_id` is that of another boot.
"""

from __future__ import annotations

import importlib
import json
import resource
import sys
from collections.abc import Mapping
from pathlib import Path

from tests.fakes.kernel_log import failing
from tests.fakes.uevents import piped
from xidwatch.clock import SystemClock
from xidwatch.config import load_rules, parse_config, rules_dir
from xidwatch.core.model import Moment
from xidwatch.daemon.main import run
from xidwatch.daemon.settings import Settings
from xidwatch.daemon.workers import ProbeSpec


def main(path: str) -> int:
    """The exit status of the daemon."""
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))  # one of the probes aborts on purpose
    given = json.loads(Path(path).read_text())
    _replace(given.get("patience", {}))
    if "wall_shift" in given:
        _replace({"xidwatch.daemon.main:SystemClock": lambda: _ShiftedClock(Path(given["wall_shift"]))})
    if "boot_id" in given:
        _replace({"xidwatch.daemon.main:SystemClock": lambda: _of_boot(given["boot_id"])})
    if "kernel_trouble" in given:
        _replace({"xidwatch.daemon.kernel_sense:KernelLog": failing(Path(given["kernel_trouble"]))})
    if given.get("uevents"):
        _replace({"xidwatch.daemon.announcements:Uevents": piped(given["uevents"])})
    settings = Settings(
        state_dir=Path(given["state_dir"]),
        run_dir=Path(given["run_dir"]),
        config=parse_config(given["config"]),
        rules=load_rules(rules_dir(Path(given["rules_dir"]) if given.get("rules_dir") else None)),
        config_path=Path(given["config_path"]) if given.get("config_path") else None,
        once=given.get("once", False),
        specs=tuple(ProbeSpec(**spec) for spec in given["specs"]),
    )
    return run(settings)


class _ShiftedClock(SystemClock):
    """A wall clock that somebody sets; nobody can set the other."""

    def __init__(self, shift: Path) -> None:
        super().__init__()
        self._shift = shift

    def now(self) -> Moment:
        """Both clocks, the wall clock off by what the file says."""
        now = super().now()
        shift, rate, since = (*map(float, self._shift.read_text().split()), 0.0, 0.0)[:3]
        return Moment(now.wall + shift + rate * (now.mono - since), now.mono)


def _of_boot(boot_id: str) -> SystemClock:
    clock = SystemClock()
    clock.boot_id = boot_id
    return clock


def _replace(given: Mapping[str, object]) -> None:
    for place, value in given.items():
        module, _, name = place.partition(":")
        assert hasattr(importlib.import_module(module), name), place
        setattr(importlib.import_module(module), name, value)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
