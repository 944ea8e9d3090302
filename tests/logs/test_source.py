"""One log as chunks of text: files, pipes, whatever is in them."""

from __future__ import annotations

import gzip
import os
import random
from pathlib import Path

import pytest

from xidwatch.logs.source import IDLE_SECONDS, Source
from xidwatch.logs.texts import JOURNAL_HINT

LINE = b"[12345.678901] NVRM: Xid (PCI:0000:0f:00): 79, GPU has fallen off the bus.\n"


def joined(source: Source) -> bytes:
    return b"".join(chunk for chunk in source.chunks() if isinstance(chunk, bytes))


def read(path: Path) -> tuple[bytes, list[str]]:
    source = Source(str(path))
    try:
        return joined(source), source.troubles
    finally:
        source.close()


def made(path: Path, data: bytes) -> Path:
    path.write_bytes(data)
    return path


def test_a_file_is_its_bytes(tmp_path: Path) -> None:
    """Whatever their size, with nothing to complain about."""
    for data in (b"", b"x", LINE, LINE * 10_000):
        assert read(made(tmp_path / "log", data)) == (data, [])


def test_a_compressed_file_needs_no_name(tmp_path: Path) -> None:
    """And says how far it is in bytes of the file."""
    path = made(tmp_path / "kern.log.2", gzip.compress(LINE * 1000))
    source = Source(str(path))
    assert joined(source) == LINE * 1000
    assert source.done_bytes == source.total_bytes == path.stat().st_size
    source.close()


@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-le", "utf-16-be", "utf-8-sig"])
def test_wide_text_becomes_narrow(encoding: str, tmp_path: Path) -> None:
    """With a mark at its beginning, or without."""
    text = LINE.decode() * 100
    assert read(made(tmp_path / "log", text.encode(encoding))) == (text.encode(), [])


def test_what_is_not_text_is_said_and_read_all_the_same(tmp_path: Path) -> None:
    """A line of a log may stand between."""
    noise = random.Random(1).randbytes(5000)
    data, troubles = read(made(tmp_path / "log", noise + b"\n" + LINE + noise))
    assert LINE in data
    assert [trouble[:8] for trouble in troubles] == ["not text"]


def test_holes_of_zeros_are_text(tmp_path: Path) -> None:
    """As a log has them after the power went."""
    assert read(made(tmp_path / "log", LINE + bytes(100_000) + LINE))[1] == []


@pytest.mark.parametrize(("head", "said"), [(b"LPKSHHRH", JOURNAL_HINT), (b"PK\x03\x04", "a zip archive, not text: unpack it first")])
def test_files_that_need_another_tool(head: bytes, said: str, tmp_path: Path) -> None:
    """Which one, is said."""
    assert read(made(tmp_path / "log", head + bytes(range(30)) * 100))[1] == [said]


def test_a_stream_that_is_cut_off_gives_what_it_has(tmp_path: Path) -> None:
    """And one trouble."""
    packed = gzip.compress(b"".join(b"%d " % at + LINE for at in range(5000)))
    data, troubles = read(made(tmp_path / "log.gz", packed[: len(packed) // 2]))
    assert data.startswith(b"0 " + LINE)
    assert troubles == ["the gzip stream is cut off: what comes after is not read"]


def test_what_is_no_file_cannot_be_opened(tmp_path: Path) -> None:
    """Neither nothing nor a directory."""
    with pytest.raises(FileNotFoundError):
        Source(str(tmp_path / "missing"))
    with pytest.raises(IsADirectoryError):
        Source(str(tmp_path))


def test_a_pipe_says_when_nothing_comes(tmp_path: Path) -> None:
    """An empty chunk, so that what is known can be given out; then it goes on."""
    assert IDLE_SECONDS < 1
    path = tmp_path / "pipe"
    os.mkfifo(path)
    source = Source(str(path))
    writer = os.open(path, os.O_WRONLY)
    chunks = source.chunks()
    os.write(writer, LINE)
    assert next(chunks) == LINE
    assert next(chunks) == b""
    os.write(writer, LINE)
    os.close(writer)
    assert list(filter(None, chunks)) == [LINE]
    source.close()
