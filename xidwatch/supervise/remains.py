"""What an engine leaves behind: processes that outlive SIGKILL, a port that is still held, shared memory.

    /proc/4711/task/4890/stat    4890 (VLLM::Worker TP) D 1 ...
    /proc/4711/task/4890/wchan   os_acquire_rwlock_write
    /proc/4711/task/4890/stack   [<0>] os_acquire_rwlock_write+0x35/0x50 [nvidia]
    /proc/net/tcp                  0: 0100007F:1F40 00000000:0000 0A ...    0A: listens
    /dev/shm                     psm_4f2a91c0  vllm_shm_...  nccl-XYZ  sem.mp-abc

It is said and never removed: whose it is may have changed since. Like the probe, it opens nothing that takes the lock of a
process's memory; the stack is read of a process that does not die, and of nobody else.

Sources: proc(5); CPython, Lib/multiprocessing/{shared_memory,synchronize}.py; NCCL, src/transport/shm.cc.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from pathlib import Path

from xidwatch.probes import engine_processes

SHARED_MEMORY = re.compile(r"(psm_|vllm|VLLM|nccl|sem\.mp-|sglang|torch_)")
LISTENS = "0A"
MOST_NAMED = 16
MOST_FRAMES = 8
_FRAME = re.compile(r"\[<[0-9a-f]+>\] ([\w.]+)\+")


def describe(pids: Iterable[int], proc_root: Path) -> tuple[str, ...]:
    """A line for people about each process that is still there: its name, its state, and where in the kernel it is."""
    lines = []
    for pid in list(pids)[:MOST_NAMED]:
        own = engine_processes.stat_of(proc_root / str(pid) / "stat")
        if own is not None and own[2][0] not in "ZX":
            lines.append(_line(pid, own[1], own[2][0], proc_root))
    return tuple(lines)


def _line(pid: int, name: str, state: str, proc_root: Path) -> str:
    thread, stands = _worst_thread(pid, proc_root) or (pid, state)
    where = engine_processes.waits_in(proc_root, pid, thread)
    stack = _stack(proc_root / str(pid) / "task" / str(thread) / "stack")
    of = f" thread {thread}" if thread != pid else ""
    return f"process {pid} ({name}){of} state {stands}" + (f" in {where}" if where else "") + (f": {' < '.join(stack)}" if stack else "")


def _worst_thread(pid: int, proc_root: Path) -> tuple[int, str] | None:
    """The one in uninterruptible sleep, else the one that runs: a driver that spins is not asleep."""
    try:
        threads = sorted((proc_root / str(pid) / "task").iterdir())[: engine_processes.MOST_THREADS]
    except OSError:
        return None
    states = {stat[0]: stat[2][0] for thread in threads if (stat := engine_processes.stat_of(thread / "stat"))}
    return next(((thread, letter) for letter in "DR" for thread, state in states.items() if state == letter), None)


def _stack(path: Path) -> list[str]:
    try:
        text = path.read_text(encoding="ascii", errors="replace")
    except OSError:  # it has ended, or may not be read by us
        return []
    return _FRAME.findall(text)[:MOST_FRAMES]


def living(pids: Iterable[int], proc_root: Path) -> list[int]:
    """Those that are more than a zombie."""
    stats = ((pid, engine_processes.stat_of(proc_root / str(pid) / "stat")) for pid in pids)
    return [pid for pid, stat in stats if stat is not None and stat[2][0] not in "ZX"]


def held_ports(ports: Iterable[int], proc_root: Path) -> list[int]:
    """Those of the ports that somebody listens on."""
    wanted = set(ports)
    if not wanted:
        return []
    held: set[int] = set()
    for name in ("tcp", "tcp6"):
        try:
            lines = (proc_root / "net" / name).read_text(encoding="ascii", errors="replace").splitlines()[1:]
        except OSError:
            continue
        fields = (line.split() for line in lines)
        held |= {int(each[1].rpartition(":")[2], 16) for each in fields if len(each) > 3 and each[3] == LISTENS}
    return sorted(wanted & held)


def shared_memory(uid: int, folder: Path) -> tuple[int, int]:
    """How many segments such as engines make belong to the user, and their bytes."""
    count = size = 0
    try:
        entries = list(os.scandir(folder))
    except OSError:
        return 0, 0
    for entry in entries:
        try:
            stat = entry.stat(follow_symlinks=False)
        except OSError:
            continue
        if SHARED_MEMORY.match(entry.name) and stat.st_uid == uid:
            count, size = count + 1, size + stat.st_size
    return count, size
