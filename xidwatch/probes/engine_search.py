"""Which services look like inference engines: once, for an operator who writes a configuration. Acts on none of them.

    /proc/4711/cgroup       0::/system.slice/vllm.service                  the unit; v1: 1:name=systemd:/system.slice/vllm.service
    /proc/4711/stat         4711 (vllm) S 1 ...
    /proc/4711/cmdline      /opt/venv/bin/python3 /opt/venv/bin/vllm serve model --port 8000
    /proc/4711/fd/21     -> socket:[48311]
    /proc/net/tcp           0: 0100007F:1F40 00000000:0000 0A ... 48311    state 0A listens

`cmdline` takes the lock of the process's memory, and whoever asks for it waits behind a thread that is stuck holding it: it is read
of processes alone that could be engines by their name or hold a GPU, and none of whose threads is in uninterruptible sleep. This
runs in a worker that may be lost all the same.
Sources: proc(5); include/net/tcp_states.h; the engines' own documentation for their command lines and default ports.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any

from xidwatch.core.model import Missing, Subject, Value
from xidwatch.probes.base import Ask, Emit, Probe
from xidwatch.probes.engine_processes import stat_of

LISTENS = "0A"
MOST_PROCESSES = 8192
MOST_DESCRIPTORS = 4096
MOST_BYTES = 64 * 1024  # of a command line
REACHABLE = ("00000000", "0100007F", "0" * 32, "00000000000000000000000001000000", "0000000000000000FFFF00000100007F")  # any, or loopback

_PORT = re.compile(r"--port[= ](\d{1,5})(?= |$)")
_COULD_BE = re.compile(r"(?i)python|vllm|sglang|llama|uvicorn")


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of engine, as `engine_metrics` calls it; `port` is what it serves at unless told otherwise."""

    server: str
    command: re.Pattern[str]
    port: int


KINDS = (
    Kind("vllm", re.compile(r"(?:^|[ /])vllm (?:serve|launch)\b|vllm\.entrypoints|(?:^| )VLLM::"), 8000),
    Kind("sglang", re.compile(r"sglang\.launch_server|(?:^|[ /])sglang serve\b|(?:^| )sglang::"), 30000),
    Kind("llama.cpp", re.compile(r"(?:^|[ /])llama-server\b|llama_cpp\.server"), 8080),
)


@dataclass(slots=True)
class Found:
    """One service. `commands` are those of its healthy processes that may have one worth reading."""

    pids: list[int] = field(default_factory=list)
    commands: list[str] = field(default_factory=list)
    holds_gpu: bool = False


def create(options: Mapping[str, Any]) -> Probe:
    """Options: `gpu_pids`, the processes that the driver names; `proc_root` for another place."""
    return EngineSearch(Path(options.get("proc_root", "/proc")), frozenset(options.get("gpu_pids", ())))


class EngineSearch:
    """Answers `inventory` alone, with readings about `engine:UNIT`."""

    between_seconds: float | None = None

    def __init__(self, proc_root: Path, gpu_pids: frozenset[int], *, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._proc = proc_root
        self._gpu_pids = gpu_pids
        self._monotonic = monotonic

    def sample(self, ask: Ask, emit: Emit) -> None:
        """Nothing."""

    def look(self, ask: Ask, emit: Emit) -> None:
        """Nothing."""

    def inventory(self, ask: Ask, emit: Emit) -> None:
        """Every service that holds a GPU or runs what looks like an engine: its processes, its kind, and where it serves."""
        listening = _listening(self._proc)
        for unit, found in sorted(self._services(ask, emit).items()):
            kind = next((kind for kind in KINDS if any(kind.command.search(command) for command in found.commands)), None)
            if kind is None and not found.holds_gpu:
                continue
            emit.at(Subject("engine", unit))
            readings: dict[str, Value] = {
                "pids": " ".join(map(str, found.pids)),
                "server": kind.server if kind else Missing.UNSUPPORTED,
                "serving_port": self._port(found, kind, listening),
            }
            for quantity, value in readings.items():
                emit.reading(Subject("engine", unit), quantity, value)

    def between(self) -> None:
        """Nothing."""

    def close(self) -> None:
        """Nothing is held."""

    def _services(self, ask: Ask, emit: Emit) -> dict[str, Found]:
        services: dict[str, Found] = {}
        for pid in _numbers(self._proc)[:MOST_PROCESSES]:
            if self._monotonic() >= ask.deadline:
                break
            unit = unit_of(self._proc / str(pid) / "cgroup")
            stat = stat_of(self._proc / str(pid) / "stat") if unit else None
            if not unit or stat is None:
                continue
            found = services.setdefault(unit, Found())
            found.pids.append(pid)
            found.holds_gpu = found.holds_gpu or pid in self._gpu_pids
            if pid in self._gpu_pids or _COULD_BE.search(stat[1]):
                emit.at(Subject("engine", unit))
                found.commands.append(self._command(pid) or stat[1])
        return services

    def _command(self, pid: int) -> str:
        """Its words with blanks between them; empty while any of its threads is stuck, or it has ended."""
        folder = self._proc / str(pid)
        try:
            states = [stat_of(thread / "stat") for thread in (folder / "task").iterdir()]
            if not states or any(stat is None or stat[2][0] not in "SRI" for stat in states):
                return ""
            with (folder / "cmdline").open("rb") as file:
                return file.read(MOST_BYTES).replace(b"\0", b" ").decode("utf-8", "replace").strip()
        except OSError:
            return ""

    def _port(self, found: Found, kind: Kind | None, listening: Mapping[str, int]) -> Value:
        """What its command names, else the usual one, else the only one: and it has to listen there."""
        ports = {listening[inode] for pid in found.pids for inode in _sockets(self._proc / str(pid) / "fd") if inode in listening}
        named = [int(port) for command in found.commands for port in _PORT.findall(command)]
        for port in (*named, *([kind.port] if kind else [])):
            if port in ports:
                return port
        return ports.pop() if len(ports) == 1 else Missing.ABSENT


def unit_of(path: Path) -> str:
    """The service of the system that a process belongs to; empty for a user's own, a container's scope, or none."""
    try:
        lines = path.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return ""
    for line in lines:
        _, _, rest = line.partition(":")
        controllers, _, group = rest.partition(":")
        if controllers not in ("", "name=systemd"):
            continue
        parts = group.split("/")
        if any(part.startswith("user@") or part.endswith(".scope") for part in parts):
            return ""
        return next((part for part in parts if part.endswith(".service")), "")
    return ""


def _numbers(folder: Path) -> list[int]:
    return sorted(int(entry.name) for entry in folder.iterdir() if entry.name.isdecimal())


def _sockets(folder: Path) -> Iterator[str]:
    try:
        for link in islice(folder.iterdir(), MOST_DESCRIPTORS):
            target = str(link.readlink())
            if target.startswith("socket:["):
                yield target[8:-1]
    except OSError:  # it has ended, or one of them was closed meanwhile: what was seen is enough for a guess
        return


def _listening(proc_root: Path) -> dict[str, int]:
    """Inode to port of every TCP socket that listens where loopback reaches it."""
    found: dict[str, int] = {}
    for name in ("tcp", "tcp6"):
        try:
            lines = (proc_root / "net" / name).read_text(encoding="ascii", errors="replace").splitlines()[1:]
        except OSError:
            continue
        for words in map(str.split, lines):
            if len(words) > 9 and words[3] == LISTENS and words[1].partition(":")[0] in REACHABLE:
                found[words[9]] = int(words[1].partition(":")[2], 16)
    return found
