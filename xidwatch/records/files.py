"""Writing so that what was written is there after the power went.

Two shapes cover every format: a file that only grows by whole lines (`LineFiles`), and a small file that is replaced
as a whole (`replace`). The rules they keep, each from a measured or documented loss:

- a new name is on the disk only after fsync of its *folder*; an appended line after fdatasync (it includes the size);
- one `write` per line, so that a torn tail is at most one line; a line without its newline was never finished;
- after a failed fsync the kernel calls the lost pages clean, so a second fsync proves nothing: the lines have to be
  written again, from the last length that was known to be durable (fsync(2); "fsyncgate", LWN 752063);
- a descriptor outlives its name: what is written into a deleted or moved file is gone with it, without an error
  (unlink(2)). So nothing counts as durable that is not in the file that its path names now.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec

from xidwatch.records import regular
from xidwatch.records.regular import FILE_MODE

FOLDER_MODE = 0o700
OPEN_FILES = 2  # of each kind: today's, and yesterday's around midnight
SCAN_BYTES = 64 * 1024
GONE = "was deleted or replaced; a new file is begun"
CUT = "was cut short by another process; what was to be added is added again"
GROWN = "was written to by another process; its end is looked at again"

Identity = tuple[int, int]  # device and inode


class Changed(OSError):
    """Somebody else did something to a file while it was written: none of what was not durable may be believed."""

    def __init__(self, path: Path, text: str) -> None:
        super().__init__(errno.ESTALE, text, str(path))


_careless = False


@contextmanager
def careless() -> Iterator[None]:
    """Nothing waits for a disk, nothing is durable: for a replay, whose records can be had again at any time."""
    global _careless  # noqa: PLW0603  it goes for all writers of the process, which is the replay's alone
    before, _careless = _careless, True
    try:
        yield
    finally:
        _careless = before


def sync(descriptor: int) -> None:
    """Make a file durable, its size and times too. Raises OSError."""
    if not _careless:
        os.fsync(descriptor)


def sync_data(descriptor: int) -> None:
    """Make a file's content and length durable. Raises OSError."""
    if not _careless:
        os.fdatasync(descriptor)


def fsync_folder(folder: Path) -> None:
    """Make the names in a folder durable. Raises OSError."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        sync(descriptor)
    finally:
        os.close(descriptor)


def make_folder(folder: Path, *, parents: bool = True) -> None:
    """Create a folder (0700) and its parents, durably; one that is there is left as it is. Raises OSError.

    Not `parents` creates the last component alone: below a mount point without its disk nothing is to be made.
    """
    if folder.is_dir():
        return
    if parents:
        make_folder(folder.parent)
    elif not folder.parent.is_dir():
        raise FileNotFoundError(errno.ENOENT, "no such directory; is it mounted?", str(folder.parent))
    folder.mkdir(mode=FOLDER_MODE, exist_ok=True)
    fsync_folder(folder.parent)


def make_subfolder(folder: Path, remarks: list[str] | None = None) -> None:
    """Create a folder of our own inside one that is there; what is in its way is set aside. Raises OSError."""
    regular.clear_for_folder(folder, remarks)
    make_folder(folder, parents=False)


def replace(
    path: Path, data: bytes, *, mode: int = FILE_MODE, durable: bool = True, alone: bool = True, remarks: list[str] | None = None
) -> None:
    """Put `data` in the place of a file: a reader sees the old content or the new, never half of one.

    Not `durable` leaves out every fsync, for a tmpfs or where the content is worthless after a crash. Not `alone`: other processes
    may be at the same file; each writes beside it under a name of its own, and the last to be done has the place. What is no file
    is set aside, and `remarks` says so. Raises OSError; Changed when it is not there after all.
    """
    if not alone:
        clear_stale(path)
    beside = path.with_name(f".{path.name}.tmp") if alone else _beside(path, os.getpid())
    descriptor = _open_afresh(beside, mode, remarks)
    try:
        os.fchmod(descriptor, mode)
        write_all(descriptor, data)
        if durable:
            sync(descriptor)
        regular.clear(path, remarks)
        beside.rename(path)
        if durable:
            fsync_folder(path.parent)
            _require_named(path, descriptor)
    finally:
        os.close(descriptor)


def clear_stale(path: Path) -> None:
    """Take away what processes that are gone have left beside a file that several write. Raises OSError."""
    for found in path.parent.iterdir():
        writer = found.name.removeprefix(f".{path.name}.").removesuffix(".tmp")
        if writer.isdecimal() and found == _beside(path, int(writer)) and not lives(int(writer)):
            found.unlink(missing_ok=True)


def _beside(path: Path, writer: int) -> Path:
    return path.with_name(f".{path.name}.{writer}.tmp")


def lives(pid: int) -> bool:
    """Signal 0 asks without sending; EPERM is an answer too, and works where /proc hides other users' processes."""
    try:
        os.kill(pid, 0)
    except (ProcessLookupError, OverflowError):  # the latter: no number of a process
        return False
    except OSError:
        return True
    return True


def _open_afresh(path: Path, mode: int, remarks: list[str] | None) -> int:
    """A file that nobody else has open or linked: what a crash left under this name goes first."""
    try:
        path.unlink()
    except FileNotFoundError:
        pass
    except OSError:  # a directory: EISDIR here, EPERM elsewhere (unlink(2))
        regular.clear(path, remarks)
    return regular.open_regular(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)


def make_durable(path: Path) -> Identity:
    """Sync what somebody else wrote into a file; which file that was. Raises OSError."""
    descriptor = regular.open_regular(path, os.O_RDONLY)
    try:
        sync_data(descriptor)
        return identity_of(os.fstat(descriptor))
    finally:
        os.close(descriptor)


def identity(path: Path) -> Identity | None:
    """Which file a path names now; None when it names none. Raises OSError."""
    try:
        return identity_of(path.lstat())
    except (FileNotFoundError, NotADirectoryError):
        return None


def identity_of(status: os.stat_result) -> Identity:
    """What tells a file from every other that is there now."""
    return status.st_dev, status.st_ino


def _require_named(path: Path, descriptor: int) -> None:
    if identity(path) != identity_of(os.fstat(descriptor)):
        raise Changed(path, GONE)


def write_all(descriptor: int, data: bytes) -> None:
    """Write every byte; a disk that takes only some of them is asked again, so that it names its reason. Raises OSError."""
    view = memoryview(data)
    while view:
        written = os.write(descriptor, view)
        if written == 0:
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        view = view[written:]


class _Open(msgspec.Struct):
    descriptor: int
    end: int  # bytes of whole lines
    durable: int  # bytes known to be on the disk
    touched: bool = False


class LineFiles:
    """Files that only grow, by whole lines; of each there is one writer at a time.

    After any OSError the owner calls `release` and later writes the lines that were not durable again: a file is then
    opened anew and cut back to its durable length, so nothing is doubled, whatever the failed attempt left in it.
    `Changed` asks for the same; that file is then taken as it is found. `remarks` gets what people should know.
    """

    def __init__(self, remarks: list[str] | None = None) -> None:
        self._open: dict[Path, _Open] = {}
        self._durable: dict[Path, tuple[Identity, int]] = {}  # which file, bytes: as known when it was released
        self._remarks = remarks

    def length(self, path: Path) -> int:
        """Bytes of whole lines, after opening the file (creating it, repairing its tail). Raises Changed and OSError."""
        return self._file(path).end

    def have_folder(self, folder: Path) -> None:
        """Create the folder of the files where it is not there. Raises OSError."""
        make_subfolder(folder, self._remarks)

    def append(self, path: Path, lines: bytes) -> None:
        """Add whole lines, all or nothing; durable only after `sync`. Raises Changed, and OSError that names the path."""
        file = self._file(path)
        try:
            write_all(file.descriptor, lines)
        except OSError as error:
            self._take_back(file)
            raise OSError(error.errno, error.strerror, str(path)) from error
        file.end += len(lines)
        file.touched = True

    def sync(self) -> None:
        """One fdatasync for every file touched since the last call. Raises Changed, and OSError that names the path."""
        for path, file in list(self._open.items()):
            if not file.touched:
                continue
            try:
                sync_data(file.descriptor)
            except OSError as error:
                raise OSError(error.errno, error.strerror, str(path)) from error
            self._require_unchanged(path, file)
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
        if known and not known.touched:  # else it was looked at when this batch began, and will be when it is synced
            self._require_unchanged(path, known)
        return known or self._open_anew(path)

    def _open_anew(self, path: Path) -> _Open:
        self.have_folder(path.parent)
        descriptor = regular.open_own(path, os.O_RDWR | os.O_APPEND | os.O_CREAT, FILE_MODE, self._remarks)
        try:
            self._cut_to_durable(path, descriptor)
            end = repair_tail(descriptor, path, self._remarks)
            fsync_folder(path.parent)
        except OSError as error:
            os.close(descriptor)
            raise OSError(error.errno, error.strerror, str(path)) from error
        self._open[path] = _Open(descriptor, end, end)
        return self._open[path]

    def _cut_to_durable(self, path: Path, descriptor: int) -> None:
        status = os.fstat(descriptor)
        found, durable = self._durable.pop(path, ((0, 0), 0))
        if found == identity_of(status) and durable < status.st_size:
            os.ftruncate(descriptor, durable)

    def _require_unchanged(self, path: Path, file: _Open) -> None:
        size = os.fstat(file.descriptor).st_size
        try:
            _require_named(path, file.descriptor)
            if size < file.end:
                raise Changed(path, CUT)
            if size > file.end and not file.touched:
                raise Changed(path, GROWN)
        except Changed:
            self._close(path)
            del self._durable[path]  # a later file may have the inode of the deleted one, and none of its bytes
            raise

    def _take_back(self, file: _Open) -> None:
        try:
            os.ftruncate(file.descriptor, file.end)
        except OSError:  # then it is cut when the file is opened again
            pass

    def _close(self, path: Path) -> None:
        file = self._open.pop(path)
        status = os.fstat(file.descriptor)  # kept in memory for an open file: does not fail with its disk
        self._durable[path] = (identity_of(status), file.durable)
        try:
            os.close(file.descriptor)
        except OSError:  # the descriptor is free all the same (close(2)), and what is not durable is written again
            pass


def repair_tail(descriptor: int, path: Path, remarks: list[str] | None = None) -> int:
    """Cut off a last line that has no newline; returns the length that is left. Raises OSError.

    Unless it is nothing but NULs (blocks that a crash left unwritten) it is kept beside, in `<name>.torn`.
    """
    size = os.fstat(descriptor).st_size
    whole = _end_of_last_line(descriptor, size)
    if whole == size:
        return size
    torn = os.pread(descriptor, size - whole, whole).strip(b"\0")
    if torn:
        _keep(path.with_name(path.name + ".torn"), torn + b"\n", remarks)
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


def _keep(path: Path, data: bytes, remarks: list[str] | None) -> None:
    descriptor = regular.open_own(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, FILE_MODE, remarks)
    try:
        write_all(descriptor, data)
        sync(descriptor)
    finally:
        os.close(descriptor)
