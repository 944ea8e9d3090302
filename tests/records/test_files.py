"""Writing so that it is there after a crash: what files look like after every kind of failure."""

from __future__ import annotations

import errno
import os
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
    """A name that somebody turned into a link does not lead the recorder elsewhere."""
    (tmp_path / "x.jsonl").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(OSError, match="symbolic links"):
        files.LineFiles().append(tmp_path / "x.jsonl", b"x\n")
    assert not (tmp_path / "elsewhere").exists()


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
