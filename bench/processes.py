"""CPU time and memory of the daemon's processes, by the names that its design gives them."""

from __future__ import annotations

import time

import psutil

MIB = 1024 * 1024
CPUCLOCK_PROCESS = 2  # scheduler time of all threads, ended ones too; the id that clock_getcpuclockid(3) builds


def family(pid: int) -> dict[str, int]:
    """Name to pid: `loop` is the process itself, `nursery` its child, and the nursery's children are called `xw-NAME`."""
    found = {"loop": pid}
    for nursery in psutil.Process(pid).children():
        found["nursery"] = nursery.pid
        found |= {child.name().removeprefix("xw-"): child.pid for child in nursery.children()}
    return found


def cpu_seconds(pid: int) -> float:
    """Since its start, exact to the scheduler's nanoseconds (/proc/PID/stat counts in 10 ms). Raises OSError when it is gone."""
    return time.clock_gettime((~pid << 3) | CPUCLOCK_PROCESS)


def cpu_by_name(pids: dict[str, int]) -> dict[str, float]:
    """Seconds."""
    return {name: cpu_seconds(pid) for name, pid in pids.items()}


def spent(before: dict[str, float], after: dict[str, float]) -> dict[str, float]:
    """Seconds between two readings of the same processes. Raises KeyError when one is another: then nothing was measured."""
    return {name: after[name] - before[name] for name in before}


def memory_mib(pids: dict[str, int]) -> tuple[dict[str, float], float]:
    """Proportional set size by name (a page shared by n counts 1/n, /proc/PID/smaps_rollup), and in sum what is nobody else's."""
    full = {name: psutil.Process(pid).memory_full_info() for name, pid in pids.items()}
    return {name: info.pss / MIB for name, info in full.items()}, sum(info.uss for info in full.values()) / MIB


def family_mib(pid: int) -> float:
    """What a process holds, and its descendants beside what they share with others; 0 when it is gone."""
    try:
        process = psutil.Process(pid)
        below = process.children(recursive=True)
        return (process.memory_info().rss + sum(child.memory_full_info().uss for child in below)) / MIB
    except (psutil.NoSuchProcess, psutil.ZombieProcess):
        return 0.0
