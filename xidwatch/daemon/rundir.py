"""/run/xidwatch: what is true now, for everyone to read and for a successor to find.

As a service this is a tmpfs, and the loop writes there itself. An ordinary user's run directory lies under the state
directory, on a disk: then the recorder writes for the loop, since the loop never waits for a disk.
"""

from __future__ import annotations

import fcntl
import os
import re
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from xidwatch.places import STATE_FILE, find_run_dir, run_dir
from xidwatch.records import regular
from xidwatch.records import state as state_record
from xidwatch.records.state import Child, StateFile

__all__ = ["AlreadyRunning", "RunDir", "find_run_dir", "is_in_memory", "run_dir"]

STATE = STATE_FILE
CHILDREN = "children.json"
METRICS_PORT = "metrics.port"
LOCK = "lock"
MEMORY_FILESYSTEMS = ("tmpfs", "ramfs")

_OCTAL = re.compile(r"\\([0-7]{3})")  # blank, tab, line break and backslash in a mount point


class AlreadyRunning(Exception):
    """Another daemon holds this run directory."""


def is_in_memory(path: Path) -> bool:
    """Does the directory lie on a filesystem that cannot hang? From /proc/self/mountinfo, proc(5)."""
    found, filesystem = Path("/"), ""
    for line in Path("/proc/self/mountinfo").read_text(errors="surrogateescape").splitlines():
        before, _, after = line.partition(" - ")
        mount = Path(_OCTAL.sub(lambda escaped: chr(int(escaped[1], 8)), before.split()[4]))
        if path.is_relative_to(mount) and mount.is_relative_to(found):  # the deepest, and of those on one point the last
            found, filesystem = mount, after.split()[0]
    return filesystem in MEMORY_FILESYSTEMS


class RunDir:
    """One daemon's hold on the directory, until its process ends. Creating it takes the lock; raises AlreadyRunning or OSError.

    `publish(path, text)` is the recorder's way to write a file, set by the daemon, and used where the loop must not: where the
    directory is not `in_memory`.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        path.mkdir(parents=True, exist_ok=True, mode=0o755)
        self.in_memory = is_in_memory(path.resolve())
        self._lock = regular.open_own(path / LOCK, os.O_RDWR | os.O_CREAT, 0o644)
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            holder = os.pread(self._lock, 32, 0).decode(errors="replace").strip()
            raise AlreadyRunning(f"another xidwatch (pid {holder}) runs with {path}") from error
        os.ftruncate(self._lock, 0)
        os.pwrite(self._lock, f"{os.getpid()}\n".encode(), 0)
        self.publish: Callable[[str, str], None] = lambda _path, _text: None

    def release(self) -> None:
        """Let another have it, as the end of the process would."""
        os.close(self._lock)

    def children(self, boot_id: str) -> tuple[Child, ...]:
        """What a predecessor of this boot wrote about its workers."""
        return state_record.read_children(self.path / CHILDREN, boot_id)

    def write_children(self, children: tuple[Child, ...], boot_id: str) -> None:
        """For the successor: who lives, and where it is stuck."""
        self._write(CHILDREN, state_record.encode_children(children, boot_id))

    def write_state(self, state: StateFile) -> None:
        """The verdict and what it rests on."""
        self._write(STATE, state_record.encode(state))

    def write_metrics_port(self, port: int | None) -> None:
        """The port really listened on, for whoever asked for port 0."""
        self._write(METRICS_PORT, f"{port or ''}\n".encode())

    def _write(self, name: str, data: bytes) -> None:
        if self.in_memory:
            with suppress(OSError):  # a full /run: the next write says the same again
                state_record.write_atomic(self.path / name, data)
        else:
            self.publish(str(self.path / name), data.decode())
