"""Who holds the NVIDIA driver: before a removal, a reset or a reload, which would wait for them, perhaps for ever and under a global lock.

    /proc/4711/fd/31 -> /dev/nvidia0
    /sys/module/nvidia/refcnt    3        each open node, and each module that uses it
    /sys/module/nvidia/holders/  nvidia_uvm  nvidia_modeset

Looked at by name only: no file of a process is opened that takes the lock of its memory. What cannot be looked at counts as held.

Sources: proc(5); Documentation/ABI/testing/sysfs-module; kernel-open/nvidia/nv-pci.c, nv_pci_remove.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from xidwatch.probes import engine_processes

NODES = "/dev/nvidia"
MODULE = "nvidia"
MODULES = ("nvidia_peermem", "nvidia_uvm", "nvidia_drm", "nvidia_modeset", "nvidia")  # in the order in which they can be unloaded
STUCK = "DZX"  # nobody can end it, or it has ended
# They serve the driver and no work is lost with them; a name in /proc has fifteen characters at most.
DRIVERS_OWN = frozenset({"nvidia-persiste", "nv-fabricmanage", "nv-hostengine"})
MOST_NAMED = 4


@dataclass(frozen=True, slots=True)
class Holder:
    """A process with a node of the driver open; `state` as the kernel has it."""

    pid: int
    name: str
    state: str

    def __str__(self) -> str:
        return f"process {self.pid} ({self.name})"

    @property
    def is_work(self) -> bool:
        """It can be ended, and something is lost with it."""
        return self.state not in STUCK and self.name not in DRIVERS_OWN


def processes(proc_root: Path) -> tuple[list[Holder], list[int]]:
    """Those that hold it, and the numbers of those that could not be looked at: without the first of all others are hidden as well."""
    found, hidden = [], [] if (proc_root / "1").is_dir() else [1]
    for entry in proc_root.iterdir():
        if not entry.name.isdecimal():
            continue
        try:
            holds = _holds(entry / "fd")
        except (FileNotFoundError, ProcessLookupError):  # it has ended
            continue
        except OSError:
            hidden.append(int(entry.name))
            continue
        stat = engine_processes.stat_of(entry / "stat") if holds else None
        if stat is not None:
            found.append(Holder(stat[0], stat[1], stat[2][0]))
        elif holds and entry.exists():
            hidden.append(int(entry.name))
    return sorted(found, key=lambda each: each.pid), sorted(hidden)


def _holds(folder: Path) -> bool:
    for descriptor in os.listdir(folder):  # noqa: PTH208  names alone
        try:
            target = os.readlink(folder / descriptor)  # noqa: PTH115  a text, and no path to be followed
        except FileNotFoundError:  # closed since
            continue
        if target.startswith(NODES):
            return True
    return False


def unseen_uses(sysfs_root: Path, module: str = MODULE) -> int | None:
    """Uses of the module beyond those by other modules: a mapping, an open in the kernel. 0 where it is not loaded, None: not known."""
    folder = sysfs_root / "module" / module
    if not folder.is_dir():
        return 0
    try:
        return int((folder / "refcnt").read_text(encoding="ascii")) - len(users(sysfs_root, module))
    except (OSError, ValueError):
        return None


def users(sysfs_root: Path, module: str = MODULE) -> list[str]:
    """The modules that use it."""
    try:
        return sorted(path.name for path in (sysfs_root / "module" / module / "holders").iterdir())
    except OSError:
        return []


def objection(proc_root: Path, sysfs_root: Path) -> str:
    """Who or what holds the driver, in words; empty when nobody does."""
    found, hidden = processes(proc_root)
    if found:
        more = f" and {len(found) - MOST_NAMED} more" if len(found) > MOST_NAMED else ""
        return f"held by {', '.join(map(str, found[:MOST_NAMED]))}{more}"
    if hidden:
        return f"process {hidden[0]} does not let itself be looked at, and may hold it"
    return next((reason for module in reversed(MODULES) if (reason := _in_use(sysfs_root, module))), "")


def _in_use(sysfs_root: Path, module: str) -> str:
    """Also by who has only the node of a display open, which is nvidia_drm's."""
    uses = unseen_uses(sysfs_root, module)
    if uses is None:
        return f"the use count of the {module} module cannot be read"
    return f"the {module} module is in use {uses} times more than can be seen" if uses > 0 else ""
