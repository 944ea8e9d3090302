"""What an engine leaves behind: processes that no signal ends, a port that is still held, names in /dev/shm.

    /proc/4711/stat    4711 (VLLM::Worker TP) D ...      uninterruptible sleep, or R for ever inside the driver
    /proc/4711/stack   [<0>] os_acquire_rwlock_write+0x35/0x50 [nvidia]     root only; the topmost lines say where
    /dev/shm/psm_4b1e2f90, nccl-AbCdEf, torch_4711_..., sem.mp-...           shared memory of Python, NCCL and PyTorch

Nothing is removed: whose it is cannot be told for sure.
Sources: proc(5), shm_overview(7); CPython multiprocessing.shared_memory, NCCL's shmutils, PyTorch's torch_shm_manager.
"""

from __future__ import annotations

import socket
import time
from collections.abc import Callable
from pathlib import Path

from xidwatch.core.loopback import Endpoint
from xidwatch.probes import engine_processes

CGROUPS = Path("/sys/fs/cgroup")
PROC = Path("/proc")
SHARED_MEMORY = Path("/dev/shm")  # noqa: S108  looked at, never written
NAMES = ("psm_", "nccl-", "torch_", "sem.mp-", "sem.loky-", "vllm", "sglang")
MOST_NAMED = 8
STACK_LINES = 6
ENDING_SECONDS = 2.0  # a process that was killed is in its group until it has been reaped
POLL_SECONDS = 0.1
CONNECT_SECONDS = 0.5


def processes(group: str, *, cgroups: Path = CGROUPS, proc: Path = PROC) -> tuple[str, ...]:
    """A line for each process still in a control group; a group that is not there has none. Raises OSError when it cannot be read."""
    place = engine_processes.at(cgroups, group) if group else None
    if place is None:
        return ()
    return tuple(line for pid in engine_processes.read(place, proc).pids if (line := _process(pid, proc)))


def that_stay(
    group: str, *, monotonic: Callable[[], float] = time.monotonic, sleep: Callable[[float], None] = time.sleep
) -> tuple[str, ...]:
    """The same, when those that are only about to end have had the time for it."""
    end = monotonic() + ENDING_SECONDS
    left = processes(group)
    while left and monotonic() < end:
        sleep(POLL_SECONDS)
        left = processes(group)
    return left


def _process(pid: int, proc: Path) -> str:
    stat = engine_processes.stat_of(proc / str(pid) / "stat")
    if stat is None or stat[2][0] in "ZX":
        return ""
    waits = engine_processes.waits_in(proc, pid, pid)
    stack = _stack(proc / str(pid) / "stack")
    where = f", stack {' < '.join(stack)}" if stack else f", in {waits}" if waits else ""
    return f"process {pid} ({stat[1]}) in state {stat[2][0]}{where}"


def _stack(path: Path) -> list[str]:
    """The kernel functions it is in, innermost first; none where the kernel does not tell."""
    try:
        lines = path.read_text(encoding="ascii", errors="replace").splitlines()
    except OSError:
        return []
    return [line.partition("] ")[2].partition("+")[0] for line in lines[:STACK_LINES] if "+" in line]


def port(endpoint: Endpoint) -> str:
    """Whether somebody still listens where the engine did; "" when nobody does."""
    family = socket.AF_INET6 if ":" in endpoint.host else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as sock:
        sock.settimeout(CONNECT_SECONDS)
        try:
            sock.connect((endpoint.host, endpoint.port))
        except OSError:
            return ""
    return f"port {endpoint.port} is still held"


def shared_memory(place: Path = SHARED_MEMORY) -> str:
    """Names that engines leave there; "" when there are none. They may belong to another engine that is well."""
    try:
        names = sorted(path.name for path in place.iterdir() if path.name.startswith(NAMES))
    except OSError:
        return ""
    more = f" and {len(names) - MOST_NAMED} more" if len(names) > MOST_NAMED else ""
    return f"in {place}: {', '.join(names[:MOST_NAMED])}{more}" if names else ""
