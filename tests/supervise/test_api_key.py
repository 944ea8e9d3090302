"""The key of an engine's API, from its file."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from xidwatch.supervise.api_key import MOST_BYTES, NoKey, read


@pytest.mark.parametrize("text", ["sesame", "sesame\n", "\n  sesame\t\r\nanother\n"])
def test_it_is_the_first_line_that_holds_anything(tmp_path: Path, text: str) -> None:
    """However it was written there."""
    path = tmp_path / "key"
    path.write_text(text)
    assert read(path) == "sesame"


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (b"", "is empty"),
        (b" \n\n", "is empty"),
        (b"ses ame\n", "its first line is no key"),
        (b"ses\0ame\n", "its first line is no key"),
        ("sesäme\n".encode(), "its first line is no key"),
        (b"x" * MOST_BYTES, "its first line is no key"),
    ],
)
def test_what_is_no_key_is_not_quoted(tmp_path: Path, data: bytes, why: str) -> None:
    """It may be one with a slip of the pen in it."""
    path = tmp_path / "key"
    path.write_bytes(data)
    with pytest.raises(NoKey) as raised:
        read(path)
    assert str(raised.value) == f"{path}: {why}"


def test_a_file_that_cannot_be_read_says_why(tmp_path: Path) -> None:
    """Missing, or a folder."""
    with pytest.raises(NoKey, match="no such file or directory"):
        read(tmp_path / "missing")
    with pytest.raises(NoKey, match="is a directory"):
        read(tmp_path)


def test_nobody_waits_for_a_pipe(tmp_path: Path) -> None:
    """With nobody at its other end it is empty."""
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(NoKey, match="is empty"):
        read(tmp_path / "pipe")
