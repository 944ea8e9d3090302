"""CPU time of a tick: every process of a real daemon that ticks as often as it may, beside a naive script that does the same reads."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from bench.daemon import CHECKOUT, Daemon, Place, place, running
from bench.figures import Figure
from bench.host import Host
from bench.options import Options
from bench.processes import cpu_by_name, cpu_seconds, spent

NAME = "ticks"
INTERVAL_SECONDS = 0.2
HOSTS = (Host(1), Host(4), Host(8), Host(16), Host(4, 10))


def run(options: Options) -> list[Figure]:
    """A line for each size of host: milliseconds of CPU a tick in sum, made up of each process's."""
    hosts = (Host(real=True),) if options.real else HOSTS
    return [_measure(host, options.window_seconds) for host in hosts]


def _measure(host: Host, seconds: float) -> Figure:
    with place() as where, running(where, host, interval=f"{INTERVAL_SECONDS}s") as daemon:
        daemon.wait_ready()
        if daemon.tree is None:
            parts, ticks = _over(daemon, seconds)
            ratio = None
        else:
            with _naive(where, daemon.tree.root, host) as peer:
                parts, ticks = _over(daemon, seconds)
                ratio = sum(parts.values()) / peer.milliseconds_a_row()
    return Figure(NAME, str(host), sum(parts.values()), "ms", ratio=ratio, peer="naive script", parts=parts, note=f"n={ticks}")


def _over(daemon: Daemon, seconds: float) -> tuple[dict[str, float], int]:
    """Milliseconds a tick by process, and over how many ticks. Both ends lie in the quiet between two ticks."""
    pids = daemon.processes()
    first, before = _quiet(daemon), cpu_by_name(pids)
    time.sleep(seconds)
    last, after = _quiet(daemon), cpu_by_name(pids)
    return {name: 1000 * used / (last - first) for name, used in spent(before, after).items()}, last - first


def _quiet(daemon: Daemon) -> int:
    """The number of the tick that is over, what it has set off included."""
    number = daemon.wait_next_tick()
    time.sleep(INTERVAL_SECONDS / 4)
    return number


class _Peer:
    def __init__(self, pid: int, rows: Path) -> None:
        self._pid = pid
        self._rows = rows
        self._before = (self._count(), cpu_seconds(pid))

    def _count(self) -> int:
        return self._rows.read_bytes().count(b"\n")

    def milliseconds_a_row(self) -> float:
        """Since this object was made."""
        count, seconds = self._count(), cpu_seconds(self._pid)
        return 1000 * (seconds - self._before[1]) / (count - self._before[0])


@contextmanager
def _naive(where: Place, sysfs: Path, host: Host) -> Iterator[_Peer]:
    rows = where.disk / "naive.csv"
    command = [sys.executable, "-m", "bench.naive", str(sysfs), str(host.gpus), str(INTERVAL_SECONDS), str(rows)]
    process = subprocess.Popen(command, cwd=CHECKOUT)
    try:
        time.sleep(2.0)  # it has started and written its first rows
        yield _Peer(process.pid, rows)
    finally:
        process.terminate()
        process.wait()
