"""What lies where a file should be: nothing hangs on it, nothing follows it, and a writer gets past it."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable
from pathlib import Path

import pytest

from xidwatch.records import regular


def make_socket(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))


OBSTACLES: dict[str, Callable[[Path], object]] = {
    "a directory": Path.mkdir,
    "a FIFO": os.mkfifo,
    "a socket": make_socket,
    "a symbolic link": lambda path: path.symlink_to("/dev/zero"),
}


@pytest.mark.parametrize("kind", OBSTACLES)
def test_a_reader_is_told_what_lies_there(tmp_path: Path, kind: str) -> None:
    """It does not wait for the other end of a FIFO, and does not read what a link leads to."""
    OBSTACLES[kind](tmp_path / "x")
    with pytest.raises(regular.NotRegular, match=f"{kind} where a file should be.*x'$"):
        regular.read_bytes(tmp_path / "x")


@pytest.mark.root
def test_a_device_is_not_even_opened(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Opening some devices has consequences."""
    try:
        os.mknod(tmp_path / "x", 0o600 | 0o020000, os.makedev(1, 5))
    except PermissionError:
        pytest.skip("needs the right to make a device")
    opened: list[object] = []
    monkeypatch.setattr(os, "open", lambda *arguments: opened.append(arguments))
    with pytest.raises(regular.NotRegular, match="a device"):
        regular.open_regular(tmp_path / "x", os.O_RDONLY)
    assert not opened


def test_what_takes_the_place_after_the_look_is_not_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A FIFO put there between looking and opening does not block, and is closed again."""
    os.mkfifo(tmp_path / "x")
    monkeypatch.setattr(regular, "obstacle", lambda _: "")
    before = list(Path("/proc/self/fd").iterdir())
    with pytest.raises(regular.NotRegular):
        regular.open_regular(tmp_path / "x", os.O_RDONLY)
    assert len(list(Path("/proc/self/fd").iterdir())) == len(before)


@pytest.mark.parametrize("kind", OBSTACLES)
def test_a_writer_gets_past_it_and_says_so(tmp_path: Path, kind: str) -> None:
    """The obstacle is kept under another name."""
    OBSTACLES[kind](tmp_path / "x")
    remarks: list[str] = []
    os.close(regular.open_own(tmp_path / "x", os.O_WRONLY | os.O_CREAT, remarks=remarks))
    assert (tmp_path / "x").is_file()
    assert regular.obstacle(tmp_path / "x.obstacle-1") == kind
    assert remarks == [f"{tmp_path}/x was {kind}, no file: renamed to x.obstacle-1"]


def test_obstacles_are_counted_and_never_overwritten(tmp_path: Path) -> None:
    """Each gets the next free number; a file, or nothing, is no obstacle; after a hundred it is said that there is no end to it."""
    for number in range(1, regular.MOST_OBSTACLES + 1):
        (tmp_path / "x").mkdir()
        regular.clear(tmp_path / "x")
        assert (tmp_path / f"x.obstacle-{number}").is_dir()
    regular.clear(tmp_path / "x")
    (tmp_path / "x").write_text("kept")
    regular.clear(tmp_path / "x")
    assert (tmp_path / "x").read_text() == "kept"
    (tmp_path / "x").unlink()
    (tmp_path / "x").mkdir()
    with pytest.raises(FileExistsError, match="100 obstacles"):
        regular.clear(tmp_path / "x")


def test_a_folder_gets_its_place_too(tmp_path: Path) -> None:
    """A FIFO where a folder should be goes aside; a folder, a link to one and a link whose disk is not mounted stay."""
    os.mkfifo(tmp_path / "fifo")
    (tmp_path / "folder").mkdir()
    (tmp_path / "link").symlink_to("folder")
    (tmp_path / "unmounted").symlink_to("nowhere")
    for name in ("fifo", "folder", "link", "unmounted", "nothing"):
        regular.clear_for_folder(tmp_path / name)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["fifo.obstacle-1", "folder", "link", "unmounted"]
