"""Inference engines: their systemd unit, the processes in its control group, and what their metrics page says.

Law: joins `engine_units`, `engine_processes` and `engine_metrics` into readings about `engine:UNIT`; acts on no engine.

    engine:vllm.service active_state active          systemctl show, one call for all units
    engine:vllm.service invocation_id 3a3b6c...      /run/systemd/units, also while the bus hangs
    engine:vllm.service processes 4                  cgroup.procs, also those that outlived their main process
    engine:vllm.service requests_running 3           http://127.0.0.1:8000/metrics

Each of the three fails by itself. What can hang is bounded: systemd's answer and the metrics pages share the time there is,
the pages are asked all at once, and processes are looked at only through files that take no lock of theirs.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from xidwatch.core.loopback import Endpoint
from xidwatch.core.model import Missing, Subject, Value
from xidwatch.probes import engine_containers, engine_http, engine_metrics, engine_processes, engine_units
from xidwatch.probes.base import Ask, Emit, Probe
from xidwatch.probes.child import Listener
from xidwatch.probes.engine_containers import DOCKER_ROOT, Containers, Wanted
from xidwatch.probes.engine_metrics import Mark
from xidwatch.probes.engine_processes import Group, Waits

SYSTEMD_SHARE = 0.4  # of the time there is for an answer
PROCESSES_SHARE = 0.6  # when the last process has to have been looked at
ALL_SHARE = 0.85  # when the last page has to be there; the rest is for sending what was read

OF_EACH_PROCESS = ("resident_bytes", "processes_uninterruptible", "uninterruptible_seconds", "uninterruptible_thread")
PROCESSES = ("processes", "pids", *OF_EACH_PROCESS)
FACTS = ("load_state", "unit_file_state", "control_group", "server")  # of the inventory

# Why there are no figures, by HTTP status; every other status is no answer to what was asked.
NO_PAGE: Mapping[int, Missing] = {
    401: Missing.DENIED,
    403: Missing.DENIED,
    404: Missing.UNSUPPORTED,  # llama.cpp without --metrics, SGLang without --enable-metrics
    501: Missing.UNSUPPORTED,
    500: Missing.ABSENT,
    502: Missing.ABSENT,
    503: Missing.ABSENT,  # llama.cpp while it loads its model
    504: Missing.ABSENT,
}
OK = 200


@dataclass(slots=True)
class Engine:
    """One engine as configured, and what is remembered of it from tick to tick."""

    unit: str
    endpoint: Endpoint | None = None
    group: Path | None = None
    containers: Wanted = field(default_factory=Wanted)
    waits: Waits = field(default_factory=Waits)
    mark: Mark | None = None
    latest: dict[str, Value] = field(default_factory=dict)

    @property
    def subject(self) -> Subject:
        """By the name of its unit."""
        return Subject("engine", self.unit)


def create(options: Mapping[str, Any]) -> Probe:
    """Options: `engines`, each with `unit` and perhaps `metrics`; `systemctl` and the roots of run, cgroup, proc and docker elsewhere.

    Raises ValueError for metrics that are not on loopback.
    """
    engines = [
        Engine(each["unit"], Endpoint.parse(each["metrics"]) if each.get("metrics") else None) for each in options.get("engines", ())
    ]
    return EngineProbe(
        engines,
        systemctl=str(options.get("systemctl") or engine_units.systemctl()),
        run_root=Path(str(options.get("run_root", "/run"))),
        cgroup_root=Path(str(options.get("cgroup_root", "/sys/fs/cgroup"))),
        proc_root=Path(str(options.get("proc_root", "/proc"))),
        docker_root=Path(str(options.get("docker_root", DOCKER_ROOT))),
    )


class EngineProbe:
    """Readings about `engine:UNIT`."""

    between_seconds: float | None = None

    def __init__(
        self,
        engines: list[Engine],
        *,
        systemctl: str,
        run_root: Path,
        cgroup_root: Path,
        proc_root: Path,
        docker_root: Path = DOCKER_ROOT,
        monotonic: Callable[[], float] = time.monotonic,
        listener: Listener | None = None,
        ask_pages: Callable[..., dict[str, engine_http.Answer]] = engine_http.ask_all,
    ) -> None:
        self._engines = engines
        self._systemctl = systemctl
        self._run_root = run_root
        self._cgroup_root = cgroup_root
        self._proc_root = proc_root
        self._containers = Containers(cgroup_root, docker_root)
        self._monotonic = monotonic
        self._processes_until = 0.0  # monotonic
        self._listener = listener or Listener(engine_units.MOST_BYTES, monotonic=monotonic)
        self._ask_pages = ask_pages

    # ----------------------------------------------------------------------------------------------------- requests

    def sample(self, ask: Ask, emit: Emit) -> None:
        """The unit and the processes of each engine, then what they say of themselves."""
        began = self._monotonic()
        told = self._units(began + SYSTEMD_SHARE * (ask.deadline - began))
        self._processes_until = began + PROCESSES_SHARE * (ask.deadline - began)
        for engine in self._engines:
            self._report_unit(engine, told[engine.unit], emit)
            self._report_processes(engine, ask, emit)
        self._report_metrics(began + ALL_SHARE * (ask.deadline - began), emit)

    def look(self, ask: Ask, emit: Emit) -> None:
        """Nothing: an engine says nothing about the bus."""

    def inventory(self, ask: Ask, emit: Emit) -> None:
        """What changes rarely, as the last sample found it: nothing is asked a second time."""
        for engine in self._engines:
            for quantity in FACTS:
                if quantity in engine.latest:
                    emit.reading(engine.subject, quantity, engine.latest[quantity])

    def between(self) -> None:
        """Nothing."""

    def close(self) -> None:
        """Nothing is held."""

    # -------------------------------------------------------------------------------------------------------- units

    def _units(self, deadline: float) -> dict[str, dict[str, Value]]:
        """What systemd says of each, or why it says nothing."""
        names = [engine.unit for engine in self._engines]
        if not engine_units.is_booted(self._run_root):
            return {name: dict.fromkeys(engine_units.QUANTITIES, Missing.UNSUPPORTED) for name in names}
        answer = self._listener.ask(engine_units.question(self._systemctl, names), deadline)
        if not answer or isinstance(answer, Missing):
            why = answer if isinstance(answer, Missing) else Missing.ABSENT
            return {name: dict.fromkeys(engine_units.QUANTITIES, why) for name in names}
        blocks = engine_units.blocks(answer.decode("utf-8", "replace"))
        for engine in self._engines:
            engine.containers = engine_containers.wanted(blocks.get(engine.unit, {}).get(engine_units.COMMAND, ""))
        return {name: engine_units.readings(blocks.get(name), self._monotonic()) for name in names}

    def _report_unit(self, engine: Engine, values: dict[str, Value], emit: Emit) -> None:
        values["invocation_id"] = engine_units.invocation(self._run_root, engine.unit) or values["invocation_id"]
        told = values["control_group"]
        engine.group = self._group(engine, told)
        if isinstance(told, Missing) and engine.group is not None:
            values["control_group"] = f"/{engine.group.relative_to(self._cgroup_root)}"
        self._tell(engine, values, emit)

    def _group(self, engine: Engine, told: Value) -> Path | None:
        """As systemd says; without its word where it was, or where units are."""
        if not isinstance(told, Missing):
            return engine_processes.at(self._cgroup_root, str(told))
        if engine.group is not None and engine.group.is_dir():
            return engine.group
        return engine_processes.find(self._cgroup_root, engine.unit)

    # ---------------------------------------------------------------------------------------------------- processes

    def _report_processes(self, engine: Engine, ask: Ask, emit: Emit) -> None:
        if str(engine.subject) in ask.skip:
            self._tell(engine, dict.fromkeys(PROCESSES, Missing.NOT_ASKED), emit)
            return
        emit.at(engine.subject)
        group = self._read_group(engine)
        if isinstance(group, Missing):
            self._tell(engine, dict.fromkeys(PROCESSES, group), emit)
            return
        values: dict[str, Value] = {
            "starts_container": int(engine.containers.any),
            "processes": len(group.pids),
            "pids": " ".join(map(str, group.pids)),
        }
        self._tell(engine, values | self._of_each(engine, group), emit)

    def _of_each(self, engine: Engine, group: Group) -> dict[str, Value]:
        """What needed a look at every process; a part of it would pass for all."""
        if not group.whole:
            return dict.fromkeys(OF_EACH_PROCESS, Missing.TIMED_OUT)
        now = self._monotonic()
        longest = engine.waits.look(group.uninterruptible, now)
        return {
            "resident_bytes": group.resident_bytes,
            "processes_uninterruptible": group.processes_uninterruptible,
            "uninterruptible_seconds": 0.0 if longest is None else round(now - engine.waits.since[longest], 1),
            "uninterruptible_thread": "" if longest is None else self._describe(longest[0], *group.uninterruptible[longest]),
        }

    def _read_group(self, engine: Engine) -> Group | Missing:
        try:
            group = self._own_group(engine)
            if not isinstance(group, Missing):
                self._containers.add(group, engine.containers, self._proc_root)
            return group
        except PermissionError:
            return Missing.DENIED
        except (OSError, ValueError):
            return Missing.MALFORMED

    def _own_group(self, engine: Engine) -> Group | Missing:
        if engine.group is None:
            return self._without_group(engine)
        return engine_processes.read(engine.group, self._proc_root, lambda: self._monotonic() >= self._processes_until)

    def _without_group(self, engine: Engine) -> Group | Missing:
        """No group, no process: where units have groups that can be seen from here, and nothing says that this one runs."""
        if not engine_processes.has_units(self._cgroup_root):
            return Missing.UNSUPPORTED
        runs = engine.latest.get("main_pid") not in {0, *Missing} or engine_units.invocation(self._run_root, engine.unit)
        return Missing.ABSENT if runs else Group()

    def _describe(self, thread: int, pid: int, name: str) -> str:
        return f"{thread} {name} {engine_processes.waits_in(self._proc_root, pid, thread)}".rstrip()

    # ------------------------------------------------------------------------------------------------------ metrics

    def _report_metrics(self, deadline: float, emit: Emit) -> None:
        endpoints = {engine.unit: engine.endpoint for engine in self._engines if engine.endpoint is not None}
        answers = self._ask_pages(endpoints, deadline, monotonic=self._monotonic)
        for engine in self._engines:
            if engine.unit in answers:
                self._tell(engine, self._figures(engine, answers[engine.unit]), emit)

    def _figures(self, engine: Engine, answer: engine_http.Answer) -> dict[str, Value]:
        status = answer.status
        if status != OK:
            engine.mark = None
            why = status if isinstance(status, Missing) else NO_PAGE.get(status, Missing.MALFORMED)
            return {"metrics_status": status, **dict.fromkeys(engine_metrics.QUANTITIES, why)}
        page = engine_metrics.read(answer.body)
        before, engine.mark = engine.mark, Mark(self._monotonic(), str(engine.latest.get("invocation_id")), page.values)
        return {
            "metrics_status": status,
            "server": page.server or Missing.UNSUPPORTED,
            **page.values,
            **engine_metrics.rates(before, engine.mark),
        }

    @staticmethod
    def _tell(engine: Engine, values: Mapping[str, Value], emit: Emit) -> None:
        engine.latest.update(values)
        for quantity, value in values.items():
            emit.reading(engine.subject, quantity, value)
