"""systemd of a fixture: its units, the processes of each in folders, and `systemctl` and metrics pages as the real ones are asked.

    unit vllm.service pids=4700,4711,4712 gpus=0000:11:00.0,0000:12:00.0    host.txt: what runs when it runs; `gate=no` asks no gate
    unit vllm.service active requests_running=3                             timeline.txt: it is so, whoever did it
    unit vllm.service start                                                 somebody, or the boot, starts it: its gate is asked first
    engine vllm.service leftovers stop=20s start=90s                        how it takes it from here on

An engine is active at once and serves after `start`; the last of its processes sit on its GPUs, one on each. A boot ends all of them.

Law: what is asked is answered, what is told happens, at the time of the fixture; nothing here knows why. Nothing of this host is asked.
Sources: systemctl(1), org.freedesktop.systemd1(5), systemd.kill(5), systemd.service(5) on ExecCondition=; proc(5).
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from xidwatch.core.loopback import Endpoint
from xidwatch.core.model import Missing
from xidwatch.core.rules import seconds
from xidwatch.probes.engine_http import Answer
from xidwatch.probes.engine_processes import PAGE_BYTES
from xidwatch.probes.engine_units import CHANGED
from xidwatch.replay.clock import VirtualClock
from xidwatch.replay.script import Words

SLICE = "system.slice"
NAME = "VLLM::Worker_TP"
STUCK_IN = "os_acquire_rwlock_write"  # where processes wait that a driver does not let go
RESIDENT_BYTES = 2**30
NEXT_RUN = 1000  # another run has other numbers
FAILS_AFTER, KILLED_AFTER = 5.0, 90.0  # seconds; the latter is systemd's own default for TimeoutStopSec=
NEVER = float("inf")


@dataclass(frozen=True, slots=True)
class Phase:
    """How systemd shows a unit. `lives`: its processes are there; `has_job`: systemd is at it."""

    active: str
    sub: str
    result: str = "success"
    code: int = 0  # CLD_EXITED 1, CLD_KILLED 2
    status: int = 0
    lives: bool = False
    has_job: bool = False


UNTOUCHED, ACTIVE, STOPPING, STOPPED, FAILED, KILLED, SKIPPED = "untouched", "active", "stopping", "stopped", "failed", "killed", "skipped"
PHASES = {
    UNTOUCHED: Phase("inactive", "dead"),
    ACTIVE: Phase("active", "running", lives=True),
    STOPPING: Phase("deactivating", "stop-sigterm", lives=True, has_job=True),
    STOPPED: Phase("inactive", "dead", code=1),
    FAILED: Phase("failed", "failed", "exit-code", 1, 1),
    KILLED: Phase("failed", "failed", "timeout", 2, 9),
    SKIPPED: Phase("inactive", "dead", "exec-condition", 1, 2),
}
FACTS = (ACTIVE, STOPPED, FAILED, SKIPPED)  # what a timeline may say of one
WELL, IGNORES_STOP, LEFTOVERS, FAILS_TO_START, NEVER_READY = "well", "ignores-stop", "leftovers", "fails-to-start", "never-ready"
TEMPERS = (WELL, IGNORES_STOP, LEFTOVERS, FAILS_TO_START, NEVER_READY)
FIGURES = {"requests_running": "num_requests_running", "requests_waiting": "num_requests_waiting", "kv_cache": "kv_cache_usage_perc"}
SETTABLE = ("pids", "gpus", "gate", "file_state", *FIGURES)


@dataclass(slots=True)
class Unit:
    """One unit. `since`: monotonic, when it came to its phase; `serves_from`: when it answers; `later`: what it comes to by itself."""

    name: str
    pids: tuple[int, ...] = ()
    gpus: tuple[str, ...] = ()
    file_state: str = "enabled"
    gated: bool = True
    temper: str = WELL
    start_seconds: float = 40.0
    stop_seconds: float = 2.0
    figures: dict[str, str] = field(default_factory=dict)
    phase: str = UNTOUCHED
    since: float = 0.0
    run: int = 0
    serves_from: float = NEVER
    later: tuple[float, str] | None = None
    stuck: tuple[int, ...] = ()

    @property
    def lives(self) -> tuple[int, ...]:
        """The processes that are there, with those that do not end."""
        own = tuple(pid + NEXT_RUN * (self.run - 1) for pid in self.pids) if PHASES[self.phase].lives else ()
        return (*self.stuck, *(pid for pid in own if pid not in self.stuck))

    def on(self, gpu: str) -> tuple[int, ...]:
        """Those of them on this GPU: of a run its last, one to each of its GPUs in their order."""
        if gpu not in self.gpus:
            return ()
        place = len(self.gpus) - self.gpus.index(gpu)
        return tuple(pid for pid in self.lives if len(self.pids) >= place and (pid - self.pids[-place]) % NEXT_RUN == 0)


class Units:
    """All of them, below `place`. `may_start`: what a unit's own condition says of it."""

    def __init__(self, place: Path) -> None:
        self.run_root, self.cgroup_root, self.proc_root = place / "run", place / "cgroup", place / "proc"
        self.shared_memory = place / "shm"
        self.may_start: Callable[[str], bool] = lambda _unit: True
        self._units: dict[str, Unit] = {}
        self._clock = VirtualClock("", 0.0)
        self._boots = 0

    def begin(self, clock: VirtualClock) -> None:
        """A boot: nothing has run yet."""
        self._clock = clock
        self._boots += 1
        for unit in self._units.values():
            unit.run, unit.stuck, unit.figures = 0, (), {}
            self._enter(unit, UNTOUCHED)

    # --------------------------------------------------------------------------------------------------- what is told

    def add(self, line: Words, gpus: Sequence[str]) -> None:
        """A line of host.txt; on all of the host's GPUs, unless it says which."""
        _, name = line.words
        for folder in (self.run_root / "systemd/system", self.cgroup_root / SLICE):
            folder.mkdir(parents=True, exist_ok=True)
        self._units[name] = Unit(name, gpus=tuple(gpus))
        self._set(self._units[name], line)

    def tell(self, line: Words) -> None:
        """`unit NAME [active|stopped|failed|skipped|start|stop] ...`. Raises ValueError."""
        name, *said = line.words
        unit = self._known(name)
        for word in said:
            if word in FACTS:
                self._run(unit, serves_after=0.0) if word == ACTIVE else self._enter(unit, word)
            elif word in _ORDERS:
                _ORDERS[word](self, unit)
            else:
                raise ValueError(f"{word}: a unit can be {', '.join(FACTS)}; or somebody may {', '.join(_ORDERS)} it")
        self._set(unit, line)

    def temper(self, line: Words) -> None:
        """`engine NAME [well|ignores-stop|leftovers|fails-to-start|never-ready] [stop=2s] [start=40s]`. Raises ValueError."""
        name, *said = line.words
        unit = self._known(name)
        for word in said:
            if word not in TEMPERS:
                raise ValueError(f"{word}: an engine can be {', '.join(TEMPERS)}")
            unit.temper = word
        for option, duration in line.options.items():
            if option not in ("start", "stop"):
                raise ValueError(f"{option}: not known; there are start and stop")
            setattr(unit, f"{option}_seconds", seconds(duration))

    def _set(self, unit: Unit, line: Words) -> None:
        for option, text in line.options.items():
            if option in FIGURES:
                unit.figures[option] = text
            elif option == "pids":
                unit.pids = tuple(int(word) for word in text.split(","))
            elif option == "gpus":
                unit.gpus = tuple(text.split(","))
            elif option == "gate":
                unit.gated = text != "no"
            elif option == "file_state":
                unit.file_state = text
            else:
                raise ValueError(f"{option}: not known; a unit has {', '.join(SETTABLE)}")

    def _known(self, name: str) -> Unit:
        if name not in self._units:
            raise ValueError(f"no `unit {name}` in host.txt")
        return self._units[name]

    # ------------------------------------------------------------------------------------------------- what becomes of it

    def _look(self, name: str) -> Unit | None:
        """As it is now."""
        unit = self._units.get(name)
        if unit and unit.later and unit.later[0] <= self._clock.mono():
            self._enter(unit, unit.later[1])
        return unit

    def _enter(self, unit: Unit, phase: str, later: tuple[float, str] | None = None) -> None:
        was = unit.lives
        if phase == KILLED and unit.temper == LEFTOVERS:
            unit.stuck = was[-1:]
        unit.phase, unit.since, unit.later = phase, self._clock.mono(), later
        unit.serves_from = NEVER if phase != ACTIVE else unit.serves_from
        self._write(unit, was)

    def _start(self, unit: Unit) -> None:
        """As systemd does: what runs is left alone, and its condition is asked first."""
        if PHASES[unit.phase].lives:
            return
        if unit.gated and not self.may_start(unit.name):
            self._enter(unit, SKIPPED)
            return
        later = (self._clock.mono() + FAILS_AFTER, FAILED) if unit.temper == FAILS_TO_START else None
        self._run(unit, NEVER if unit.temper in (FAILS_TO_START, NEVER_READY) else unit.start_seconds, later)

    def _run(self, unit: Unit, serves_after: float, later: tuple[float, str] | None = None) -> None:
        unit.run += 1
        unit.figures = {}
        unit.serves_from = self._clock.mono() + serves_after
        self._enter(unit, ACTIVE, later)

    def _stop(self, unit: Unit) -> None:
        if unit.phase == ACTIVE:
            after = KILLED_AFTER if unit.temper == IGNORES_STOP else unit.stop_seconds
            ends = STOPPED if unit.temper not in (IGNORES_STOP, LEFTOVERS) else KILLED
            self._enter(unit, STOPPING, (self._clock.mono() + after, ends))

    def _forget(self, unit: Unit) -> None:
        if unit.phase in (FAILED, KILLED):
            self._enter(unit, UNTOUCHED)

    def _write(self, unit: Unit, before: tuple[int, ...]) -> None:
        """Its control group, and a folder for each process."""
        group = self.cgroup_root / SLICE / unit.name
        lives = unit.lives
        for pid in before:
            if pid not in lives:
                shutil.rmtree(self.proc_root / str(pid), ignore_errors=True)
        for pid in lives:
            self._write_process(pid, is_stuck=pid in unit.stuck)
        if lives:
            group.mkdir(parents=True, exist_ok=True)
            (group / "cgroup.procs").write_text("".join(f"{pid}\n" for pid in lives))
        else:
            shutil.rmtree(group, ignore_errors=True)

    def _write_process(self, pid: int, *, is_stuck: bool) -> None:
        folder = self.proc_root / str(pid) / "task" / str(pid)
        folder.mkdir(parents=True, exist_ok=True)
        fields = ["0"] * 50
        fields[0], fields[21] = "D" if is_stuck else "S", str(RESIDENT_BYTES // PAGE_BYTES)
        for place in (folder.parent.parent, folder):
            (place / "stat").write_text(f"{pid} ({NAME}) {' '.join(fields)}\n")
        (folder / "wchan").write_text(STUCK_IN if is_stuck else "0")

    # -------------------------------------------------------------------------------------------------- what is asked

    def systemctl(self, words: Sequence[str]) -> bytes:
        """`systemctl show -- A B`, or an order about one."""
        verb, *rest = words[1:]
        names = rest[rest.index("--") + 1 :]
        if verb == "show":
            return "\n\n".join(self._shown(name) for name in names).encode()
        unit = self._look(names[0])
        if unit is None:
            return f"Unit {names[0]} not found.".encode()
        _ORDERS[verb](self, unit)
        return b""

    def _shown(self, name: str) -> str:
        unit = self._look(name)
        shown = self._properties(unit) if unit else {"LoadState": "not-found", "ActiveState": "inactive", "SubState": "dead"}
        return "\n".join(f"{key}={value}" for key, value in {"Id": name, "Names": name, **shown}.items())

    def _properties(self, unit: Unit) -> Mapping[str, object]:
        phase = PHASES[unit.phase]
        return {
            "LoadState": "loaded",
            "UnitFileState": unit.file_state,
            "ActiveState": phase.active,
            "SubState": phase.sub,
            "InvocationID": f"{self._boots:016x}{unit.run:016x}" if unit.run else "",
            "MainPID": unit.lives[0] if phase.lives and unit.lives else 0,
            "ControlGroup": f"/{SLICE}/{unit.name}" if unit.lives else "",
            "NRestarts": 0,
            "Result": phase.result,
            "ExecMainCode": phase.code,
            "ExecMainStatus": phase.status,
            "Job": 1 if phase.has_job else "",
            "ConditionResult": "yes",
            "UID": 0,
            CHANGED: round(unit.since * 1e6) if unit.phase != UNTOUCHED else 0,
        }

    def serves(self, name: str) -> bool:
        """Whether its pages answer."""
        unit = self._look(name)
        return unit is not None and unit.phase == ACTIVE and unit.serves_from <= self._clock.mono()

    def pages(self, endpoints: Mapping[str, Endpoint], _deadline: float, **_: object) -> dict[str, Answer]:
        """The metrics page of each unit."""
        return {name: Answer(200, self._page(self._units[name])) if self.serves(name) else Answer(Missing.ABSENT) for name in endpoints}

    @staticmethod
    def _page(unit: Unit) -> bytes:
        figures = {"requests_running": "0", "requests_waiting": "0", **unit.figures}
        return "".join(f'vllm:{FIGURES[name]}{{engine="0"}} {text}\n' for name, text in figures.items()).encode()

    def holders(self, gpu: str) -> list[int]:
        """The processes on a GPU."""
        return [pid for name in self._units if (unit := self._look(name)) for pid in unit.on(gpu)]


_ORDERS: dict[str, Callable[[Units, Unit], None]] = {
    "start": Units._start,  # noqa: SLF001
    "stop": Units._stop,  # noqa: SLF001
    "kill": lambda _units, _unit: None,  # who is left there waits in the kernel
    "reset-failed": Units._forget,  # noqa: SLF001
}
