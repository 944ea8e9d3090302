"""Writing so that what was written is there after the power went.

Two shapes cover every format: a file that only grows by whole lines (`LineFiles`), and a small file that is replaced
as a whole (`replace`). The rules they keep, each from a measured or documented loss:

- a new name is on the disk only after fsync of its *folder*; an appended line after fdatasync (it includes the size);
- one `write` per line, so that a torn tail is at most one line; a line without its newline was never finished;
- after a failed fsync the kernel calls the lost pages clean, so a second fsync proves nothing: the lines have to be
  written again, from the last length that was known to be durable (fsync(2); "fsyncgate", LWN 752063).
"""

from __future__ import annotations

import errno
import os
from dataclasses import dataclass
from pathlib import Path

FOLDER_MODE = 0o700  # records can hold secrets
FILE_MODE = 0o600
OPEN_FILES = 4  # today's journal and samples, and yesterday's around midnight
SCAN_BYTES = 64 * 1024


def fsync_folder(folder: Path) -> None:
    """Make the names in a folder durable. Raises OSError."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def make_folder(folder: Path) -> None:
    """Create a folder (0700) and its parents, durably; one that is there is left as it is. Raises OSError."""
    if folder.is_dir():
        return
    make_folder(folder.parent)
    folder.mkdir(mode=FOLDER_MODE, exist_ok=True)
    fsync_folder(folder.parent)


def replace(path: Path, data: bytes, *, mode: int = FILE_MODE, durable: bool = True) -> None:
    """Put `data` in the place of a file: a reader sees the old content or the new, never half of one.

    Not `durable` leaves out every fsync, for a tmpfs or where the content is worthless after a crash. Raises OSError.
    """
    beside = path.with_name(f".{path.name}.tmp")
    flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC | os.O_NOFOLLOW
    descriptor = os.open(beside, flags, mode)
    try:
        os.fchmod(descriptor, mode)
        write_all(descriptor, data)
        if durable:
            os.fsync(descriptor)
    finally:
        os.close(descriptor)
    beside.rename(path)
    if durable:
        fsync_folder(path.parent)


def make_durable(path: Path) -> None:
    """Sync what somebody else wrote into a file. Raises OSError."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fdatasync(descriptor)
    finally:
        os.close(descriptor)


def write_all(descriptor: int, data: bytes) -> None:
    """Write every byte; a disk that takes only some of them is asked again, so that it names its reason. Raises OSError."""
    view = memoryview(data)
    while view:
        written = os.write(descriptor, view)
        if written == 0:
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        view = view[written:]


@dataclass(slots=True)
class _Open:
    descriptor: int
    end: int  # bytes of whole lines
    durable: int  # bytes known to be on the disk
    touched: bool = False


class LineFiles:
    """Files that only grow, by whole lines; of each there is one writer at a time.

    After any OSError the owner calls `release` and later writes the lines that were not durable again: a file is then
    opened anew and cut back to its durable length, so nothing is doubled, whatever the failed attempt left in it.
    """

    def __init__(self) -> None:
        self._open: dict[Path, _Open] = {}
        self._durable: dict[Path, tuple[int, int, int]] = {}  # device, inode, bytes: as known when it was released

    def length(self, path: Path) -> int:
        """Bytes of whole lines, after opening the file (creating it, repairing its tail). Raises OSError."""
        return self._file(path).end

    def append(self, path: Path, lines: bytes) -> None:
        """Add whole lines, all or nothing; durable only after `sync`. Raises OSError that names the path."""
        file = self._file(path)
        try:
            write_all(file.descriptor, lines)
        except OSError as error:
            self._take_back(file)
            raise OSError(error.errno, error.strerror, str(path)) from error
        file.end += len(lines)
        file.touched = True

    def sync(self) -> None:
        """One fdatasync for every file touched since the last call. Raises OSError that names the path."""
        for path, file in self._open.items():
            if not file.touched:
                continue
            try:
                os.fdatasync(file.descriptor)
            except OSError as error:
                raise OSError(error.errno, error.strerror, str(path)) from error
            file.durable = file.end
            file.touched = False
        while len(self._open) > OPEN_FILES:
            self._close(next(iter(self._open)))

    def release(self) -> None:
        """Let go of every file, remembering how much of each is durable."""
        for path in list(self._open):
            self._close(path)

    def _file(self, path: Path) -> _Open:
        known = self._open.get(path)
        if known:
            return known
        flags = os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
        descriptor = os.open(path, flags, FILE_MODE)
        try:
            self._cut_to_durable(path, descriptor)
            end = repair_tail(descriptor, path)
            fsync_folder(path.parent)
        except OSError as error:
            os.close(descriptor)
            raise OSError(error.errno, error.strerror, str(path)) from error
        self._open[path] = _Open(descriptor, end, end)
        return self._open[path]

    def _cut_to_durable(self, path: Path, descriptor: int) -> None:
        status = os.fstat(descriptor)
        device, inode, durable = self._durable.get(path, (0, 0, 0))
        if (device, inode) == (status.st_dev, status.st_ino) and durable < status.st_size:
            os.ftruncate(descriptor, durable)
        self._durable.pop(path, None)

    def _take_back(self, file: _Open) -> None:
        try:
            os.ftruncate(file.descriptor, file.end)
        except OSError:  # then it is cut when the file is opened again
            pass

    def _close(self, path: Path) -> None:
        file = self._open.pop(path)
        status = os.fstat(file.descriptor)  # kept in memory for an open file: does not fail with its disk
        self._durable[path] = (status.st_dev, status.st_ino, file.durable)
        try:
            os.close(file.descriptor)
        except OSError:  # the descriptor is free all the same (close(2)), and what is not durable is written again
            pass


def repair_tail(descriptor: int, path: Path) -> int:
    """Cut off a last line that has no newline; returns the length that is left. Raises OSError.

    Unless it is nothing but NULs (blocks that a crash left unwritten) it is kept beside, in `<name>.torn`.
    """
    size = os.fstat(descriptor).st_size
    whole = _end_of_last_line(descriptor, size)
    if whole == size:
        return size
    torn = os.pread(descriptor, size - whole, whole).strip(b"\0")
    if torn:
        _keep(path.with_name(path.name + ".torn"), torn + b"\n")
    os.ftruncate(descriptor, whole)
    return whole


def _end_of_last_line(descriptor: int, size: int) -> int:
    end = size
    while end > 0:
        start = max(0, end - SCAN_BYTES)
        newline = os.pread(descriptor, end - start, start).rfind(b"\n")
        if newline >= 0:
            return start + newline + 1
        end = start
    return 0


def _keep(path: Path, data: bytes) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, FILE_MODE)
    try:
        write_all(descriptor, data)
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
