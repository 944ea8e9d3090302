"""Kill a process with SIGKILL at the n-th write below some folders from now on: `kill_at_write.py PID N FOLDER...`.

Says in /run/rig/armed when it counts, and in /run/rig/killed at which file it struck.
"""

import ctypes
import os
import signal
import struct
import sys
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from types import TracebackType
from typing import Self

TOLD = Path("/run/rig")
MODIFIED, MOVED_TO, CREATED = 0x2, 0x80, 0x100  # <sys/inotify.h>
EVENTS = MODIFIED | MOVED_TO | CREATED
_HEADER = struct.Struct("iIII")  # watch, mask, cookie, bytes of name


class Changes:
    """What is written below some folders, by inotify: one descriptor. A folder that appears below a watched one is watched from then on."""

    def __init__(self) -> None:
        self._libc = ctypes.CDLL(None)
        self._descriptor = self._libc.inotify_init1(os.O_CLOEXEC)
        self._folders: dict[int, Path] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, _type: type[BaseException] | None, _error: BaseException | None, _where: TracebackType | None) -> None:
        os.close(self._descriptor)

    def watch(self, *tops: str | Path) -> None:
        """Files and folders, these with all folders below them. Watching again what is watched changes nothing."""
        for top in map(Path, tops):
            for folder in (top, *(path for path in top.rglob("*") if path.is_dir())):
                number = self._libc.inotify_add_watch(self._descriptor, os.fsencode(folder), EVENTS)
                self._folders[number] = folder

    def __iter__(self) -> Iterator[Path]:
        """What is written, one entry an event, without end."""
        while True:
            yield from self._read()

    def _read(self) -> list[Path]:
        data = os.read(self._descriptor, 1 << 16)
        found: list[Path] = []
        while data:
            number, _mask, _cookie, size = _HEADER.unpack_from(data)
            name = os.fsdecode(data[_HEADER.size : _HEADER.size + size].rstrip(b"\0"))
            data = data[_HEADER.size + size :]
            path = self._folders.get(number, Path()) / name
            found.append(path)
            if path.is_dir():
                self.watch(path)
        return found


def main(pid: int, count: int, folders: list[str]) -> None:
    """Counts, strikes and tells."""
    TOLD.mkdir(exist_ok=True)
    with Changes() as changes:
        changes.watch(*folders)
        (TOLD / "armed").touch()
        path = next(islice(changes, count - 1, None))
        os.kill(pid, signal.SIGKILL)
        (TOLD / "killed").write_text(str(path))


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), sys.argv[3:])
