"""One unit as systemd has it, and the few things that are said to systemd about it.

Law: says and shows; when to say what is decided elsewhere. Every question is bounded, and nothing is ever waited for without end:
orders are `--no-block`, and what came of them is looked at.

    Id=vllm.service
    ActiveState=deactivating
    Job=4711                    empty or 0 when systemd has nothing more to do with it
    Result=exec-condition       its own condition said no
    UID=[not set]

Sources: systemctl(1), org.freedesktop.systemd1(5).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from xidwatch.core.model import Missing
from xidwatch.probes import engine_containers, engine_processes, engine_units
from xidwatch.probes.child import Listener
from xidwatch.probes.engine_containers import Containers, Wanted
from xidwatch.probes.engine_processes import Group

FLAGS = {"start": ["--no-block"], "stop": ["--no-block"], "kill": ["--signal=TERM"]}  # kill: the whole control group, by default
ANSWER_SECONDS = 10.0  # process 1 may have a hundred units to stop first
PROPERTIES = (
    "Id", "Names", "LoadState", "UnitFileState", "ActiveState", "SubState", "Result", "InvocationID", "ControlGroup", "Job",
    "ConditionResult", "NRestarts", "ExecMainStatus", "UID", engine_units.COMMAND,
)  # fmt: skip
DOWN = ("inactive", "failed")
CGROUPS, PROC = Path("/sys/fs/cgroup"), Path("/proc")


@dataclass(frozen=True, slots=True)
class Shown:
    """What systemd says of a unit at one instant; empty where it says nothing."""

    load_state: str
    file_state: str
    active_state: str
    sub_state: str
    result: str
    invocation_id: str
    control_group: str
    has_job: bool
    condition_holds: bool
    restarts: int
    exit_status: str
    uid: int

    @property
    def is_down(self) -> bool:
        """Neither running nor about to; systemd is done with it."""
        return self.active_state in DOWN and not self.has_job

    @property
    def was_refused(self) -> bool:
        """Its own condition said no: skipped, not failed. After a restart of systemd's it is that one which was refused: it ran before."""
        skipped = self.result == "exec-condition" or not self.condition_holds
        return self.active_state == "inactive" and skipped and not self.restarts

    def __str__(self) -> str:
        """For people: `failed (failed), result timeout, after a restart by systemd`."""
        result = f", result {self.result}" if self.result not in {"", "success"} else ""
        status = f", exit status {self.exit_status}" if self.exit_status not in {"", "0"} else ""
        again = ", after a restart by systemd" if self.restarts else ""
        return f"{self.active_state} ({self.sub_state}){result}{status}{again}"


class Service:
    """A unit by its name. `on_shown` gets it as it is whenever that is news, in the quantities of the engine probe.

    Other places than the host's own: `systemctl`, `cgroup_root`, `proc_root`; `listener`: another way to ask.
    """

    def __init__(
        self,
        unit: str,
        on_shown: Callable[[Mapping[str, object]], None] = lambda _: None,
        *,
        systemctl: str = "",
        cgroup_root: Path = CGROUPS,
        proc_root: Path = PROC,
        monotonic: Callable[[], float] = time.monotonic,
        listener: Listener | None = None,
    ) -> None:
        self.unit = unit
        self.proc_root = proc_root
        self._systemctl = systemctl or engine_units.systemctl()
        self._cgroup_root = cgroup_root
        self._monotonic = monotonic
        self._on_shown = on_shown
        self._told: Mapping[str, object] = {}
        self._listener = listener or Listener(engine_units.MOST_BYTES, monotonic=monotonic, hears_errors=True)
        self._group: Path | None = None
        self._containers = Containers(cgroup_root)
        self._wanted = Wanted()

    def show(self) -> Shown | None:
        """None when systemd does not answer."""
        words = [self._systemctl, "show", "--no-pager", f"--property={','.join(PROPERTIES)}", "--", self.unit]
        answer = self._listener.ask(words, self._monotonic() + ANSWER_SECONDS)
        if isinstance(answer, Missing):
            return None
        told = engine_units.blocks(answer.decode("utf-8", "replace")).get(self.unit)
        if told is None:
            return None
        shown = _read(told)
        self._wanted = engine_containers.wanted(told.get(engine_units.COMMAND, ""))
        if shown.control_group:
            self._group = engine_processes.at(self._cgroup_root, shown.control_group) or self._group
        self._tell(shown)
        return shown

    def order(self, verb: str) -> str:
        """`start`, `stop`, `kill` (by TERM) or `reset-failed`, without waiting for what comes of it; systemd's objection, "" for none."""
        answer = self._listener.ask([self._systemctl, verb, *FLAGS.get(verb, ()), "--", self.unit], self._monotonic() + ANSWER_SECONDS)
        if isinstance(answer, Missing):
            return f"systemd did not answer to `{verb}`"
        return " ".join(answer.decode("utf-8", "replace").split())

    def processes(self) -> list[int]:
        """What lives in its control group, or in the one it had, and in its containers'. Raises OSError.

        Systemd forgets the name of a group before it is empty.
        """
        group = self._group if self._group is not None else engine_processes.find(self._cgroup_root, self.unit)
        found = engine_processes.read(group, self.proc_root) if group is not None else Group()
        self._containers.add(found, self._wanted, self.proc_root)
        return found.pids

    def _tell(self, shown: Shown) -> None:
        values = {
            "load_state": shown.load_state,
            "unit_file_state": shown.file_state,
            "active_state": shown.active_state,
            "sub_state": shown.sub_state,
            "result": shown.result,
            "invocation_id": shown.invocation_id,
            "restarts": shown.restarts,
        }
        if values != self._told:
            self._told = values
            pids = self.processes()
            self._on_shown({**values, "processes": len(pids), "pids": " ".join(map(str, pids))})


def _read(told: Mapping[str, str]) -> Shown:
    restarts, uid = told.get("NRestarts", ""), told.get("UID", "")
    return Shown(
        load_state=told.get("LoadState", ""),
        file_state=told.get("UnitFileState", ""),
        active_state=told.get("ActiveState", ""),
        sub_state=told.get("SubState", ""),
        result=told.get("Result", ""),
        invocation_id=told.get("InvocationID", ""),
        control_group=told.get("ControlGroup", ""),
        has_job=told.get("Job", "") not in {"", "0"},
        condition_holds=told.get("ConditionResult", "yes") != "no",
        restarts=int(restarts) if restarts.isdecimal() else 0,
        exit_status=told.get("ExecMainStatus", ""),
        uid=int(uid) if uid.isdecimal() else 0,
    )
