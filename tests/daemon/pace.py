"""What the machine gave a daemon and its children: for how long they wanted a processor and had none.

A promise about time is judged by this. What a busy machine takes is not the daemon's lateness, and what it does not take is. Beside
each daemon runs a process that copies the kernel's own accounts every 50 ms, a line a look: wall time, and seconds by name, of a
process (`daemon`, `pci`, `recorder`) the time it was ready to run and waited (proc(5), schedstat), and as `stolen` what the machine
below took from this one (/proc/stat). They are sums: a look that comes late itself misses nothing.

    [1796103074.218, {"stolen": 0.0, "daemon": 0.012, "nursery": 0.001, "pci": 0.031}]

    with Pace(pid, folder / "pace.jsonl") as pace:
        ...
        pace.held_up(begin, end, "daemon", "pci")
"""

from __future__ import annotations

import json
import os
import select
import subprocess
import sys
import time
from bisect import bisect_left, bisect_right
from collections import defaultdict
from contextlib import suppress
from pathlib import Path

LOOK_MS = 50
STEAL_FIELD = 8  # of the line `cpu` in /proc/stat, in clock ticks
STOLEN = "stolen"


class Pace:
    """Begun with the daemon; it ends by itself with it."""

    def __init__(self, pid: int, path: Path) -> None:
        self._path = path
        path.touch()
        self._times: list[float] = []
        self._accounts: list[dict[str, float]] = []
        self._process = subprocess.Popen([sys.executable, "-I", "-S", __file__, str(pid), str(path)], stdin=subprocess.DEVNULL)

    def held_up(self, begin: float, end: float, *names: str) -> float:
        """Seconds that the machine took from these processes from one wall time to the other, or a look more at either end."""
        times, accounts = self._read()
        if not times or times[-1] < begin:
            return 0.0
        before, after = bisect_right(times, begin) - 1, min(bisect_left(times, end), len(times) - 1)
        then, now = accounts[max(before, 0)], accounts[after]
        return sum(now.get(name, 0.0) - then.get(name, 0.0) for name in (STOLEN, *names))

    def _read(self) -> tuple[list[float], list[dict[str, float]]]:
        """All it has written so far."""
        lines = self._path.read_bytes().splitlines()
        for line in lines[len(self._times) :]:
            wall, account = json.loads(line)
            self._times.append(wall)
            self._accounts.append(account)
        return self._times, self._accounts

    def close(self) -> None:
        """The daemon has ended."""
        self._process.wait(60)


# ------------------------------------------------------------------------------------------------ the process beside it


class _Family:
    """A daemon and all that descend from it, also what has been orphaned since it was first seen."""

    def __init__(self, daemon: int) -> None:
        self._daemon = daemon
        self._seen: dict[int, float] = {daemon: 0.0}
        self._waited: defaultdict[str, float] = defaultdict(float)

    def look(self) -> dict[str, float]:
        """Seconds waited by name, of the living and the dead."""
        for pid in [*self._seen]:
            self._find_children(pid)
        for pid in [*self._seen]:
            try:
                waited = int(Path(f"/proc/{pid}/schedstat").read_text().split()[1]) / 1e9
                name = self._name(pid)
            except (OSError, IndexError):  # gone, or a kernel that keeps no such accounts
                del self._seen[pid]
                continue
            self._waited[name] += waited - self._seen[pid]
            self._seen[pid] = waited
        return {STOLEN: _stolen_seconds(), **self._waited}

    def _find_children(self, pid: int) -> None:
        with suppress(OSError):
            for task in os.listdir(f"/proc/{pid}/task"):  # noqa: PTH208  names
                for child in Path(f"/proc/{pid}/task/{task}/children").read_text().split():
                    self._seen.setdefault(int(child), 0.0)

    def _name(self, pid: int) -> str:
        if pid == self._daemon:
            return "daemon"
        comm = Path(f"/proc/{pid}/comm").read_text().strip()
        return comm.removeprefix("xw-") if comm.startswith("xw-") else "nursery"


def _stolen_seconds() -> float:
    return int(Path("/proc/stat").read_text().split(maxsplit=STEAL_FIELD + 1)[STEAL_FIELD]) / os.sysconf("SC_CLK_TCK")


def watch(pid: int, path: Path) -> None:
    """Until the daemon has ended, and once more."""
    family = _Family(pid)
    idle = select.poll()
    try:
        idle.register(os.pidfd_open(pid), select.POLLIN)
    except ProcessLookupError:
        return
    descriptor = os.open(path, os.O_WRONLY | os.O_APPEND)
    ended = False
    while not ended:
        ended = bool(idle.poll(LOOK_MS))
        os.write(descriptor, (json.dumps([time.time(), family.look()]) + "\n").encode())


if __name__ == "__main__":
    watch(int(sys.argv[1]), Path(sys.argv[2]))
