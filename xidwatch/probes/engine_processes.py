"""The processes of a unit, by its control group: how many, how large, and which of their threads do not come back.

    /sys/fs/cgroup/system.slice/vllm.service/cgroup.procs   4711      below it likewise; cgroup v1: systemd/, both at once: unified/
    /proc/4711/stat         4711 (VLLM::Worker TP) S 1 4711 ... 24: resident pages
    /proc/4711/task/4890/stat   4890 (pt_nccl_watchdg) D 1 ...  22: start time, in ticks since boot
    /proc/4711/task/4890/wchan  os_acquire_rwlock_write

Nothing else of a process is opened. `cmdline`, `environ`, `maps`, `smaps` and `exe` take the lock of its memory, and whoever
asks for them waits behind a thread that is stuck holding it.

Sources: proc(5); Documentation/admin-guide/cgroup-v2.rst; fs/proc/base.c, fs/proc/array.c.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path

HIERARCHIES = ("", "unified", "systemd")  # v2; both at once; v1
MOST_SLICES = 2048
MOST_GROUPS = 512
MOST_PROCESSES = 2048
MOST_THREADS = 16384
PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")

Thread = tuple[int, int]  # number and start time, which together name one


@dataclass(slots=True)
class Group:
    """What was found in a control group. Not `whole`: there was no time to look at each process."""

    pids: list[int] = field(default_factory=list)
    resident_bytes: int = 0
    uninterruptible: dict[Thread, tuple[int, str]] = field(default_factory=dict)  # process and name of each
    whole: bool = True

    @property
    def processes_uninterruptible(self) -> int:
        """Processes with such a thread."""
        return len({pid for pid, _ in self.uninterruptible.values()})

    def join(self, other: Group) -> None:
        """Both are one from here on."""
        self.pids = sorted({*self.pids, *other.pids})
        self.resident_bytes += other.resident_bytes
        self.uninterruptible |= other.uninterruptible
        self.whole = self.whole and other.whole


@dataclass(slots=True)
class Waits:
    """Since when each thread has been found in uninterruptible sleep, at every look."""

    since: dict[Thread, float] = field(default_factory=dict)  # monotonic

    def look(self, found: Mapping[Thread, object], now: float) -> Thread | None:
        """The one that has been so for longest."""
        self.since = {thread: self.since.get(thread, now) for thread in found}
        return min(self.since, key=lambda thread: (self.since[thread], thread), default=None)


def find(cgroup_root: Path, unit: str) -> Path | None:
    """The control group of a unit that systemd cannot be asked about: units stand in slices, and slices in slices."""
    for hierarchy in HIERARCHIES:
        for place in slices(cgroup_root / hierarchy):
            if (place / unit / "cgroup.procs").exists():
                return place / unit
    return None


def at(cgroup_root: Path, control_group: str) -> Path | None:
    """The same by its path within the hierarchy, as systemd gives it."""
    places = (cgroup_root / hierarchy / control_group.strip("/") for hierarchy in HIERARCHIES)
    return next((place for place in places if (place / "cgroup.procs").exists()), None)


def slices(root: Path) -> Iterator[Path]:
    """A hierarchy's own group and its slices, outer ones first."""
    waiting, seen = [root], 0
    while waiting and seen < MOST_SLICES:
        place = waiting.pop(0)
        seen += 1
        yield place
        try:
            waiting += sorted(Path(entry.path) for entry in os.scandir(place) if entry.name.endswith(".slice") and entry.is_dir())
        except OSError:
            continue  # gone since it was listed


def read(group: Path, proc_root: Path, is_late: Callable[[], bool] = lambda: False) -> Group:
    """Everything in a control group and below it. Raises OSError when it cannot be read; one that is not there is empty."""
    found = Group(_members(group))
    for pid in found.pids:
        if is_late():
            found.whole = False
            break
        _add(found, pid, proc_root / str(pid))
    return found


def _members(top: Path) -> list[int]:
    pids: set[int] = set()
    for folder, below, _ in islice(os.walk(top), MOST_GROUPS):
        below.sort()
        pids |= _numbers(Path(folder) / "cgroup.procs")
    return sorted(pids - {0})[:MOST_PROCESSES]  # 0: in a pid namespace of its own that is not below ours


def _numbers(path: Path) -> set[int]:
    try:
        return {int(word) for word in path.read_text(encoding="ascii").split()}
    except FileNotFoundError:
        return set()
    except OSError as error:
        if error.errno in {19, 95}:  # ENODEV: removed while it was open; EOPNOTSUPP: a threaded group, counted with its parent
            return set()
        raise


def _add(found: Group, pid: int, folder: Path) -> None:
    own = stat_of(folder / "stat")
    if own is None:  # ended since, or hidden from us
        return
    found.resident_bytes += int(own[2][21]) * PAGE_BYTES
    try:
        threads = sorted((folder / "task").iterdir())
    except OSError:
        return
    for thread in threads[:MOST_THREADS]:
        stat = stat_of(thread / "stat")
        if stat is not None and stat[2][0] == "D":
            found.uninterruptible[stat[0], int(stat[2][19])] = (pid, stat[1])


def stat_of(path: Path) -> tuple[int, str, list[str]] | None:
    """Number, name, and the fields from the state on; None when it has ended. A name may hold blanks and parentheses."""
    try:
        text = path.read_bytes().decode("utf-8", "replace")
    except OSError:
        return None
    number, _, rest = text.partition(" (")
    name, _, fields = rest.rpartition(") ")
    words = fields.split()
    if not number.isdecimal() or len(words) < 22:
        return None
    return int(number), "".join(sign if sign.isprintable() else "?" for sign in name), words


def waits_in(proc_root: Path, pid: int, thread: int) -> str:
    """The kernel function a thread waits in; empty when the kernel does not tell (0: it runs, or we may not know)."""
    try:
        text = (proc_root / str(pid) / "task" / str(thread) / "wchan").read_text(encoding="ascii", errors="replace").strip()
    except OSError:
        return ""
    return "" if text == "0" else text


def has_units(cgroup_root: Path) -> bool:
    """Whether the groups of units can be seen from here at all; in a container only its own can."""
    return any((cgroup_root / hierarchy / "system.slice").is_dir() for hierarchy in HIERARCHIES)
