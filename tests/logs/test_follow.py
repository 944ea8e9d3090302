"""A log that grows, is rotated, truncated, absent and back again; the clock is turned by the test."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable
from pathlib import Path

import pytest

from xidwatch.logs.follow import Followed

ONE, TWO, THREE = b"one\n", b"two\n", b"three\n"


def followed(path: Path, *changes: Callable[[], object]) -> tuple[list[bytes | None], Followed]:
    """What is read when these things happen, one in each wait."""
    waiting = deque(changes)

    def wait() -> None:
        waiting.popleft()()

    source = Followed(str(path), wait)
    seen: list[bytes | None] = []
    try:
        seen.extend(chunk for chunk in source.chunks() if chunk != b"")
    except IndexError:  # nothing more happens
        source.close()
    return seen, source


def appended(path: Path, data: bytes) -> Callable[[], object]:
    def append() -> None:
        with path.open("ab") as file:
            file.write(data)

    return append


@pytest.fixture
def log(tmp_path: Path) -> Path:
    path = tmp_path / "kern.log"
    path.write_bytes(ONE)
    return path


def test_what_is_added_is_read(log: Path) -> None:
    """From the beginning of the file on."""
    seen, _ = followed(log, appended(log, TWO), lambda: None, appended(log, THREE), lambda: None)
    assert seen == [ONE, TWO, THREE]


def test_a_rotated_file_is_read_to_its_end_first(log: Path) -> None:
    """What was written to the old file after it was moved is not lost; then the new one begins at line 1."""

    def rotate() -> None:
        old = log.rename(log.with_suffix(".1"))
        log.write_bytes(THREE)
        appended(old, TWO)()

    assert followed(log, rotate, lambda: None)[0] == [ONE, TWO, None, THREE]


def test_a_truncated_file_is_begun_again(log: Path) -> None:
    """And that is said: what stood there in between may be lost."""
    seen, source = followed(log, appended(log, TWO), lambda: log.write_bytes(b"3\n"), lambda: None)
    assert seen == [ONE, TWO, None, b"3\n"]
    assert source.troubles == ["the file was truncated: read again from its beginning"]


def test_a_file_that_is_gone_may_come_back(log: Path) -> None:
    """Until then nothing happens, and nothing is given up."""
    seen, source = followed(log, log.unlink, lambda: None, lambda: log.write_bytes(TWO), lambda: None)
    assert seen == [ONE, None, TWO]
    assert source.troubles == []


def test_a_pipe_ends_with_its_writer(tmp_path: Path) -> None:
    """It stands in for /dev/kmsg, which never ends."""
    path = tmp_path / "pipe"
    os.mkfifo(path)
    source = Followed(str(path))
    writer = os.open(path, os.O_WRONLY)
    os.write(writer, ONE)
    chunks = source.chunks()
    assert next(chunks) == ONE
    assert next(chunks) == b""
    os.close(writer)
    assert list(chunks) == []
    source.close()


def test_what_is_not_there_cannot_be_followed(tmp_path: Path) -> None:
    """At the beginning it has to be there."""
    with pytest.raises(FileNotFoundError):
        Followed(str(tmp_path / "missing"))
    with pytest.raises(IsADirectoryError):
        Followed(str(tmp_path))
