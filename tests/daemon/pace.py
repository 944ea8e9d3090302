"""What the machine gave a daemon and its children: for how long they wanted a processor and had none.

A promise about time is judged by this. What a busy machine takes is not the daemon's lateness, and what it does not take is. Beside
each daemon runs a process that copies the kernel's own accounts every 50 ms, a line a look: monotonic time, and seconds by name.
Of a process (`daemon`, `pci`, `recorder`, and `test`) that is how long it was ready to run and waited (proc(5), schedstat); `stolen`
is what the machine below took from this one (/proc/stat), `disk` how long anybody waited for one (/proc/pressure/io). They are sums:
a look that comes late itself misses nothing.

    [38435.128, {"stolen": 0.0, "disk": 0.31, "daemon": 0.012, "nursery": 0.001, "pci": 0.031, "test": 0.2}]
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
STOLEN, DISK, TEST = "stolen", "disk", "test"


class Pace:
    """Begun with the daemon; it ends by itself with it. Times are monotonic."""

    def __init__(self, pid: int, path: Path) -> None:
        self._path = path
        path.touch()
        self._times: list[float] = []
        self._accounts: list[dict[str, float]] = []
        self._process = subprocess.Popen([sys.executable, "-I", "-S", __file__, str(pid), str(path)], stdin=subprocess.DEVNULL)

    def held_up(self, begin: float, end: float, *names: str) -> float:
        """Seconds that the machine took from these (from all, and their disks, without names), or a look more at either end."""
        self._read()
        if not self._times or self._times[-1] < begin:
            return 0.0
        before, after = bisect_right(self._times, begin) - 1, min(bisect_left(self._times, end), len(self._times) - 1)
        then, now = self._accounts[max(before, 0)], self._accounts[after]
        return sum(now.get(name, 0.0) - then.get(name, 0.0) for name in {STOLEN, *(names or now)})

    @property
    def until(self) -> float:
        """When it looked last."""
        self._read()
        return self._times[-1] if self._times else 0.0

    def _read(self) -> None:
        """All it has written so far."""
        for line in self._path.read_bytes().splitlines()[len(self._times) :]:
            mono, account = json.loads(line)
            self._times.append(mono)
            self._accounts.append(account)

    def close(self) -> None:
        """The daemon has ended."""
        self._process.wait(60)


# ------------------------------------------------------------------------------------------------ the process beside it


class _Family:
    """A daemon and all that descend from it, also what has been orphaned since it was first seen."""

    def __init__(self, daemon: int, test: int) -> None:
        self._names = {daemon: "daemon", test: TEST}
        self._daemon = daemon
        self._seen: dict[int, float] = {daemon: 0.0, test: 0.0}
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
        return {STOLEN: _stolen_seconds(), DISK: _disk_seconds(), **self._waited}

    def _find_children(self, pid: int) -> None:
        if self._names.get(pid) == TEST:
            return
        with suppress(OSError):
            for task in os.listdir(f"/proc/{pid}/task"):  # noqa: PTH208  names
                for child in Path(f"/proc/{pid}/task/{task}/children").read_text().split():
                    self._seen.setdefault(int(child), 0.0)

    def _name(self, pid: int) -> str:
        if pid in self._names:
            return self._names[pid]
        comm = Path(f"/proc/{pid}/comm").read_text().strip()
        return comm.removeprefix("xw-") if comm.startswith("xw-") else "nursery"


def _stolen_seconds() -> float:
    return int(Path("/proc/stat").read_text().split(maxsplit=STEAL_FIELD + 1)[STEAL_FIELD]) / os.sysconf("SC_CLK_TCK")


def _disk_seconds() -> float:
    try:
        return int(Path("/proc/pressure/io").read_text().split()[4].removeprefix("total=")) / 1e6
    except OSError:  # a kernel that does not tell
        return 0.0


def watch(pid: int, path: Path) -> None:
    """Until the daemon has ended, and once more."""
    family = _Family(pid, os.getppid())
    idle = select.poll()
    try:
        idle.register(os.pidfd_open(pid), select.POLLIN)
    except ProcessLookupError:
        return
    descriptor = os.open(path, os.O_WRONLY | os.O_APPEND)
    ended = False
    while not ended:
        ended = bool(idle.poll(LOOK_MS))
        os.write(descriptor, (json.dumps([time.monotonic(), family.look()]) + "\n").encode())


if __name__ == "__main__":
    watch(int(sys.argv[1]), Path(sys.argv[2]))
