"""Writing so that it is there after a crash: what files look like after every kind of failure."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from xidwatch.records import files


def test_lines_survive_a_failed_sync_exactly_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What was written but not synced is cut off when the file is opened again, so writing it again doubles nothing."""
    path = tmp_path / "x.jsonl"
    lines = files.LineFiles()
    lines.append(path, b"one\n")
    lines.sync()
    lines.append(path, b"two\n")
    with monkeypatch.context() as broken:
        broken.setattr(os, "fdatasync", _fail)
        with pytest.raises(OSError, match=r"x\.jsonl"):
            lines.sync()
    lines.release()
    lines.append(path, b"two\n")
    lines.sync()
    assert path.read_bytes() == b"one\ntwo\n"


def test_a_partial_write_leaves_no_trace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A disk that takes half a line and then refuses leaves the file as it was before."""
    path = tmp_path / "x.jsonl"
    lines = files.LineFiles()
    lines.append(path, b"one\n")
    real = os.write
    taken = iter([2])

    def half(descriptor: int, data: bytes) -> int:
        size = next(taken, None)
        return _fail() if size is None else real(descriptor, bytes(data)[:size])

    with monkeypatch.context() as broken:
        broken.setattr(os, "write", half)
        with pytest.raises(OSError, match=r"x\.jsonl"):
            lines.append(path, b"two\n")
    assert path.read_bytes() == b"one\n"


def test_a_partial_write_that_cannot_be_taken_back_is_cut_later(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where even truncating fails, the half line goes when the file is opened again, and nothing is kept as torn."""
    path = tmp_path / "x.jsonl"
    lines = files.LineFiles()
    lines.append(path, b"one\n")
    lines.sync()
    real = os.write
    taken = iter([2])

    def half(descriptor: int, data: bytes) -> int:
        size = next(taken, None)
        return _fail() if size is None else real(descriptor, bytes(data)[:size])

    with monkeypatch.context() as broken:
        broken.setattr(os, "write", half)
        broken.setattr(os, "ftruncate", _fail)
        with pytest.raises(OSError, match=r"x\.jsonl"):
            lines.append(path, b"two\n")
    assert path.read_bytes() == b"one\ntw"
    lines.release()
    lines.append(path, b"two\n")
    assert path.read_bytes() == b"one\ntwo\n"
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize(
    ("content", "kept", "torn"),
    [
        (b"", b"", None),
        (b"one\n", b"one\n", None),
        (b"one\ntw", b"one\n", b"tw\n"),
        (b"tw", b"", b"tw\n"),
        (b"one\n" + bytes(5000), b"one\n", None),
        (b"one\ntw" + bytes(70000), b"one\n", b"tw\n"),
        (b"one\n" + b"x" * 200_000, b"one\n", b"x" * 200_000 + b"\n"),
    ],
)
def test_a_torn_tail_is_cut_off_and_kept_beside(tmp_path: Path, content: bytes, kept: bytes, torn: bytes | None) -> None:
    """Whatever a crash left after the last newline goes to `.torn`, except NULs, which say nothing."""
    path = tmp_path / "x.csv"
    path.write_bytes(content)
    assert files.LineFiles().length(path) == len(kept)
    assert path.read_bytes() == kept
    beside = tmp_path / "x.csv.torn"
    assert (beside.read_bytes() if beside.exists() else None) == torn


def test_few_files_stay_open(tmp_path: Path) -> None:
    """A recorder that runs for a year does not hold every day's file."""
    lines = files.LineFiles()
    before = open_files()
    for day in range(20):
        lines.append(tmp_path / f"{day}.jsonl", b"x\n")
        lines.sync()
    assert open_files() - before == files.OPEN_FILES
    lines.append(tmp_path / "0.jsonl", b"y\n")
    assert (tmp_path / "0.jsonl").read_bytes() == b"x\ny\n"
    lines.release()
    assert open_files() == before


def test_a_link_is_not_followed(tmp_path: Path) -> None:
    """A name that somebody turned into a link does not lead the recorder elsewhere; the link goes aside and the line into a file."""
    (tmp_path / "x.jsonl").symlink_to(tmp_path / "elsewhere")
    remarks: list[str] = []
    files.LineFiles(remarks).append(tmp_path / "x.jsonl", b"x\n")
    assert not (tmp_path / "elsewhere").exists()
    assert (tmp_path / "x.jsonl").read_bytes() == b"x\n"
    assert ["was a symbolic link" in remark for remark in remarks] == [True]


def delete(path: Path) -> None:
    path.unlink()


def move(path: Path) -> None:
    path.rename(path.with_name("moved"))


def put_another(path: Path) -> None:
    path.rename(path.with_name("moved"))
    path.write_bytes(b"another\n")


def delete_folder(path: Path) -> None:
    path.unlink()
    path.parent.rmdir()


@pytest.mark.parametrize("happens", [delete, move, put_another, delete_folder])
@pytest.mark.parametrize("when", ["before the line", "before the sync", "during the sync"])
def test_nothing_is_durable_that_is_not_in_the_file_of_that_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, happens: Callable[[Path], None], when: str
) -> None:
    """A file that is deleted, moved or replaced under its writer is noticed; written again, the line is in the file that is there."""
    path = tmp_path / "journal" / "x.jsonl"
    lines = files.LineFiles()
    path.parent.mkdir()
    lines.append(path, b"one\n")
    lines.sync()
    if when == "before the line":
        happens(path)
        with pytest.raises(files.Changed, match="was deleted or replaced; a new file is begun"):
            lines.append(path, b"two\n")
    else:
        lines.append(path, b"two\n")
        with monkeypatch.context() as during:
            if when == "during the sync":
                during.setattr(os, "fdatasync", lambda _: happens(path))
            else:
                happens(path)
            with pytest.raises(files.Changed):
                lines.sync()
    lines.append(path, b"two\n")
    lines.sync()
    assert path.read_bytes().splitlines()[-1:] == [b"two"]
    assert path.read_bytes() in (b"two\n", b"another\ntwo\n")


def test_a_later_file_is_not_cut_to_the_length_of_a_deleted_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A filesystem gives an inode again: what was durable in the file before says nothing about this one."""
    path = tmp_path / "x.jsonl"
    lines = files.LineFiles()
    lines.append(path, b"one\n")
    lines.sync()
    path.unlink()
    with pytest.raises(files.Changed):
        lines.append(path, b"two\n")
    path.write_bytes(b"a longer line\n")
    monkeypatch.setattr(files, "identity_of", lambda _: (1, 1))
    lines.append(path, b"two\n")
    assert path.read_bytes() == b"a longer line\ntwo\n"


def test_a_file_that_is_cut_short_gets_its_lines_again(tmp_path: Path) -> None:
    """What was added and not synced when somebody truncated the file is not called durable."""
    path = tmp_path / "x.jsonl"
    lines = files.LineFiles()
    lines.append(path, b"one\n")
    os.truncate(path, 0)
    with pytest.raises(files.Changed, match="was cut short"):
        lines.sync()
    lines.append(path, b"one\n")
    lines.sync()
    os.truncate(path, 0)
    with pytest.raises(files.Changed, match="was cut short"):
        lines.append(path, b"two\n")
    lines.append(path, b"two\n")
    lines.sync()
    assert path.read_bytes() == b"two\n"


def test_a_line_does_not_join_the_half_line_of_another_writer(tmp_path: Path) -> None:
    """Who else writes into the file costs no record: the end is repaired before the next line."""
    path = tmp_path / "x.jsonl"
    lines = files.LineFiles()
    lines.append(path, b"one\n")
    lines.sync()
    with path.open("ab") as file:
        file.write(b"whole\nhalf")
    with pytest.raises(files.Changed, match="was written to by another"):
        lines.append(path, b"two\n")
    lines.append(path, b"two\n")
    lines.sync()
    assert path.read_bytes() == b"one\nwhole\ntwo\n"
    assert (tmp_path / "x.jsonl.torn").read_bytes() == b"half\n"


@pytest.mark.parametrize("name", [".x.json.tmp", "x.json"])
@pytest.mark.parametrize("make", [Path.mkdir, os.mkfifo, lambda path: path.symlink_to("/dev/zero")])
def test_replacing_gets_past_whatever_is_in_the_way(tmp_path: Path, name: str, make: Callable[[Path], object]) -> None:
    """A directory, a FIFO or a link under either name costs nothing but a remark."""
    make(tmp_path / name)
    files.replace(tmp_path / "x.json", b"new")
    assert (tmp_path / "x.json").read_bytes() == b"new"
    assert not (tmp_path / "x.json").is_symlink()


def test_a_stale_file_beside_is_not_written_into(tmp_path: Path) -> None:
    """Somebody may hold it open, or have linked it to another name."""
    (tmp_path / ".x.json.tmp").write_bytes(b"stale")
    os.link(tmp_path / ".x.json.tmp", tmp_path / "other")
    files.replace(tmp_path / "x.json", b"new")
    assert (tmp_path / "other").read_bytes() == b"stale"


def test_a_replaced_file_is_where_its_name_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One whose folder was moved away in between is not called durable."""
    (tmp_path / "state").mkdir()
    real = files.fsync_folder

    def moved(folder: Path) -> None:
        folder.rename(tmp_path / "moved")
        folder.mkdir()
        real(folder)

    monkeypatch.setattr(files, "fsync_folder", moved)
    with pytest.raises(files.Changed):
        files.replace(tmp_path / "state" / "x.json", b"new")


def test_below_a_missing_mount_point_nothing_is_made(tmp_path: Path) -> None:
    """Only the last component is created, and never a parent."""
    with pytest.raises(FileNotFoundError, match=r"is it mounted.*usb'"):
        files.make_folder(tmp_path / "usb" / "xidwatch", parents=False)
    assert not list(tmp_path.iterdir())
    (tmp_path / "usb").mkdir()
    files.make_folder(tmp_path / "usb" / "xidwatch", parents=False)
    assert (tmp_path / "usb" / "xidwatch").is_dir()


def test_replacing_leaves_the_old_content_when_it_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A disk that refuses the new content leaves the old one in place."""
    path = tmp_path / "baseline.json"
    files.replace(path, b"old")
    monkeypatch.setattr(os, "fsync", _fail)
    with pytest.raises(OSError, match="Input/output"):
        files.replace(path, b"new")
    assert path.read_bytes() == b"old"


def test_a_new_name_is_made_durable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Both a new folder and a replaced file end with fsync of the folder that holds the name."""
    synced: list[str] = []
    monkeypatch.setattr(os, "fsync", lambda descriptor: synced.append(str(Path(f"/proc/self/fd/{descriptor}").readlink())))
    files.make_folder(tmp_path / "a" / "b")
    files.replace(tmp_path / "a" / "b" / "x", b"data")
    inside = str(tmp_path / "a" / "b")
    assert synced == [str(tmp_path), str(tmp_path / "a"), f"{inside}/.x.tmp", inside]


def open_files() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


def _fail(*_: object) -> int:
    raise OSError(errno.EIO, os.strerror(errno.EIO))
