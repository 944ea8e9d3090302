"""The real engine probe and the real worker of the supervisor, at the units of a fixture in place of this host's.

Law: joins parts; what they are told comes from `units`.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from xidwatch.core.loopback import Endpoint
from xidwatch.probes import engine, engine_units
from xidwatch.probes.base import Probe
from xidwatch.probes.child import Listener
from xidwatch.replay.strand import Pause
from xidwatch.replay.units import Units
from xidwatch.supervise.readiness import Pages, Ready
from xidwatch.supervise.service import Service
from xidwatch.supervise.starting import Start
from xidwatch.supervise.stopping import Stop

Monotonic = Callable[[], float]


class Systemctl(Listener):
    """The command, without a process."""

    def __init__(self, units: Units, monotonic: Monotonic) -> None:
        super().__init__(engine_units.MOST_BYTES, monotonic=monotonic)
        self._units = units

    def ask(self, words: Sequence[str], deadline: float) -> bytes:
        """What it writes."""
        return self._units.systemctl(words)


@dataclass(frozen=True, slots=True)
class StagePages(Pages):
    """The pages of a unit, without a server."""

    serves: Callable[[], bool] = lambda: False

    def ask(self, deadline: float, monotonic: Monotonic = time.monotonic) -> Ready:
        """All of them answer, or none; at once."""
        name = "health" if self.health else "metrics"
        if not self.serves():
            return Ready(ready=False, words=f"{name} page: nobody answers")
        said = [f"{name} page: 200" if self.health or self.metrics else "", "one token" if self.probe else ""]
        return Ready(ready=True, words="; ".join(filter(None, said)))


def probe(units: Units, options: Mapping[str, Any], monotonic: Monotonic) -> Probe:
    """As `engine.create`."""
    return engine.EngineProbe(
        [engine.Engine(each["unit"], Endpoint.parse(each["metrics"]) if each.get("metrics") else None) for each in options["engines"]],
        systemctl="systemctl",
        run_root=units.run_root,
        cgroup_root=units.cgroup_root,
        proc_root=units.proc_root,
        monotonic=monotonic,
        listener=Systemctl(units, monotonic),
        ask_pages=units.pages,
    )


def work(
    units: Units, job: Mapping[str, Any], monotonic: Monotonic, on_shown: Callable[[Mapping[str, object]], None], pause: Pause
) -> dict[str, object]:
    """As `worker.work`: what became of a stop or a start."""
    listener = Systemctl(units, monotonic)
    unit = str(job["unit"])
    roots = {"cgroup_root": units.cgroup_root, "proc_root": units.proc_root}
    service = Service(unit, on_shown, systemctl="systemctl", **roots, monotonic=monotonic, listener=listener)
    health, metrics, probed = (str(job.get(name, "")) for name in ("health", "metrics", "probe"))
    pages = StagePages(health, metrics, probed, serves=lambda: units.serves(unit))
    deadline = monotonic() + float(job["within_s"])
    if job["do"] == "stop":
        return asdict(Stop(service, deadline, monotonic, pause, pages.ports, units.shared_memory).run())
    return asdict(Start(service, pages, deadline, monotonic, pause, bool(job.get("enabled_only", True))).run())
