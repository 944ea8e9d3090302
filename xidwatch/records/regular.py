"""Opening files, and nothing else: what lies where a file should be neither hangs a process nor leads it elsewhere.

    mkfifo journal/2026-09-17.jsonl            a plain open for reading waits for a writer, for ever
    ln -s /etc/shadow baseline.json            a plain open follows it
    mknod baseline.json c 10 130               /dev/watchdog: merely opening it starts a countdown to a reset

So the kind is looked at before the file is opened, and again once it is (open(2): O_NOFOLLOW, and O_NONBLOCK, which
means nothing to a regular file). A writer does not stop at an obstacle: it is renamed away, never removed.
"""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path
from typing import BinaryIO

FILE_MODE = 0o600  # records can hold secrets
MOST_OBSTACLES = 100  # of one name; whoever makes more than that is not to be outlasted
_KINDS = {
    stat.S_IFDIR: "a directory",
    stat.S_IFIFO: "a FIFO",
    stat.S_IFSOCK: "a socket",
    stat.S_IFLNK: "a symbolic link",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
}


class NotRegular(OSError):
    """Something lies there, and it is no file. It was not opened, or closed again before a byte was read or written."""

    def __init__(self, path: Path, kind: str) -> None:
        super().__init__(errno.EINVAL, f"{kind} where a file should be", str(path))


def obstacle(path: Path) -> str:
    """What lies there in place of a file (`a FIFO`); "" for a regular file and for nothing at all. Raises OSError."""
    try:
        return _kind(path.lstat())
    except FileNotFoundError:
        return ""


def _kind(status: os.stat_result) -> str:
    return "" if stat.S_ISREG(status.st_mode) else _KINDS.get(stat.S_IFMT(status.st_mode), "something")


def open_regular(path: Path, flags: int, mode: int = FILE_MODE) -> int:
    """A descriptor of a regular file, close-on-exec; never waits for a peer. Raises NotRegular and OSError."""
    kind = obstacle(path)
    if kind:
        raise NotRegular(path, kind)
    descriptor = os.open(path, flags | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, mode)
    kind = _kind(os.fstat(descriptor))
    if kind:
        os.close(descriptor)
        raise NotRegular(path, kind)
    return descriptor


def open_own(path: Path, flags: int, mode: int = FILE_MODE, remarks: list[str] | None = None) -> int:
    """The same for the one who writes it: an obstacle is set aside, and `remarks` says so. Raises OSError."""
    clear(path, remarks)
    return open_regular(path, flags, mode)


def reading(path: Path) -> BinaryIO:
    """A regular file, to be read and closed by the caller. Raises NotRegular and OSError."""
    return os.fdopen(open_regular(path, os.O_RDONLY), "rb")


def read_bytes(path: Path, most: int = -1) -> bytes:
    """The whole content of a regular file; OSError (EFBIG) when that is more than `most` bytes. Raises NotRegular and OSError."""
    with reading(path) as file:
        if 0 <= most < os.fstat(file.fileno()).st_size:
            raise OSError(errno.EFBIG, os.strerror(errno.EFBIG), str(path))
        return file.read(most)


def clear(path: Path, remarks: list[str] | None = None) -> None:
    """Make room for a file: what is none is renamed to `<name>.obstacle-N`. Raises OSError where that cannot be done."""
    kind = obstacle(path)
    if kind:
        _tell(remarks, f"{path} was {kind}, no file: renamed to {set_aside(path).name}")


def clear_for_folder(path: Path, remarks: list[str] | None = None) -> None:
    """Make room for a folder. A link that leads nowhere stays: what it leads to may not be mounted yet. Raises OSError."""
    if os.path.lexists(path) and not path.is_symlink() and not path.is_dir():
        _tell(remarks, f"{path} was no directory: renamed to {set_aside(path).name}")


def set_aside(path: Path) -> Path:
    """Rename to the first free `<name>.obstacle-N`. Raises OSError."""
    for number in range(1, MOST_OBSTACLES + 1):
        aside = path.with_name(f"{path.name}.obstacle-{number}")
        if not os.path.lexists(aside):
            return path.rename(aside)
    raise FileExistsError(errno.EEXIST, f"{MOST_OBSTACLES} obstacles were set aside already", str(path))


def _tell(remarks: list[str] | None, text: str) -> None:
    if remarks is not None:
        remarks.append(text)
