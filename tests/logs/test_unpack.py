"""Compressed logs, whole, joined, cut off and damaged."""

from __future__ import annotations

import bz2
import gzip
import lzma
import shutil
import subprocess
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path

import pytest

from xidwatch.logs import unpack
from xidwatch.logs.unpack import ZSTD_MISSING, UnpackError, kind_of, unpacked

TEXT = b"".join(b"[%12.6f] usb 1-1: new high-speed USB device number %d\n" % (at / 7, at * 7919 % 127) for at in range(4_000))
PACK: dict[str, Callable[[bytes], bytes]] = {"gzip": gzip.compress, "bzip2": bz2.compress, "xz": lzma.compress}


def zstd(data: bytes) -> bytes:
    program = shutil.which("zstd")
    if program is None:
        pytest.skip("the program zstd is not installed")
    return subprocess.run([program, "-cq"], input=data, stdout=subprocess.PIPE, check=True).stdout


def pieces(data: bytes, size: int = 1000) -> Iterator[bytes]:
    return (data[at : at + size] for at in range(0, len(data), size))


def told(kind: str, packed: bytes) -> tuple[bytes, str]:
    """What came out before the error, and the error."""
    out = bytearray()
    try:
        for chunk in unpacked(kind, pieces(packed)):
            out += chunk
    except UnpackError as error:
        return bytes(out), str(error)
    return bytes(out), ""


@pytest.fixture(params=[*PACK, "zstd"])
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@cache
def packed(kind: str, data: bytes = TEXT) -> bytes:
    return zstd(data) if kind == "zstd" else PACK[kind](data)


def test_the_first_bytes_tell(kind: str) -> None:
    """Not the name."""
    assert kind_of(packed(kind)) == kind
    assert kind_of(TEXT) is None


def test_what_was_packed_comes_out(kind: str) -> None:
    """In pieces of a bounded size."""
    assert told(kind, packed(kind)) == (TEXT, "")
    assert max(map(len, unpacked(kind, pieces(packed(kind, TEXT * 3), 1 << 18)))) <= 2 * unpack.OUT_BYTES or kind == "zstd"


def test_several_streams_in_one_file(kind: str) -> None:
    """As `cat a.gz b.gz` makes it."""
    assert told(kind, packed(kind) + packed(kind)) == (TEXT + TEXT, "")


def test_a_stream_that_is_cut_off(kind: str) -> None:
    """Gives what was there, and says that it is not all."""
    half = packed(kind)
    out, error = told(kind, half[: len(half) * 2 // 3])
    assert TEXT.startswith(out)
    assert "cut off" in error
    assert kind in ("bzip2", "zstd") or len(out) > 20_000  # these unpack by large blocks


def test_a_stream_that_is_damaged(kind: str) -> None:
    """Gives what stood before the damage, as far as the format tells."""
    data = bytearray(packed(kind))
    middle = len(data) // 2
    data[middle : middle + 64] = bytes(64)
    _, error = told(kind, bytes(data))
    assert "damaged" in error or "cut off" in error


@pytest.mark.parametrize("kind", PACK)
def test_something_else_behind_a_stream(kind: str) -> None:
    """Zeros are padding; anything else is said."""
    assert told(kind, packed(kind) + bytes(5000)) == (TEXT, "")
    out, error = told(kind, packed(kind) + b"not packed")
    assert (out, "follows" in error) == (TEXT, True)


def test_nothing_for_now_is_handed_on() -> None:
    """Whoever waits for a pipe is told that nothing has come."""
    data = packed("gzip")
    assert b"" in list(unpacked("gzip", iter([data[:100], b"", data[100:]])))


def test_without_zstd_it_is_said_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    """The program or the extra."""
    monkeypatch.setattr(unpack, "_zstd_decompressor", lambda: None)
    monkeypatch.setattr(shutil, "which", lambda _: None)
    assert told("zstd", b"\x28\xb5\x2f\xfd") == (b"", ZSTD_MISSING)


def test_the_program_zstd_is_used_where_the_library_is_not(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """With the same result, whole and cut off."""
    data = packed("zstd")
    monkeypatch.setattr(unpack, "_zstd_decompressor", lambda: None)
    assert told("zstd", data) == (TEXT, "")
    assert "cut off or damaged" in told("zstd", data[: len(data) // 2])[1]
