"""Compressed logs, told by their first bytes and not by their name; whatever could be unpacked is given out before an error is told.

    1f 8b gzip (several members may follow each other)   fd 37 7a 58 5a 00 xz   42 5a 68 bzip2   28 b5 2f fd zstd

Zstandard is in the standard library from Python 3.14 on. Before, it is the `zstandard` wheel (the extra `[zstd]`) or the program
`zstd`, whichever is there.
"""

from __future__ import annotations

import bz2
import importlib
import lzma
import os
import shutil
import subprocess
import threading
import zlib
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Protocol

LONGEST_MAGIC = 6
OUT_BYTES = 256 * 1024  # unpacked at once: a small file may hold a very large one
WAIT_SECONDS = 5.0  # for a program whose output has ended
_MAGIC = {b"\x1f\x8b": "gzip", b"\xfd7zXZ\x00": "xz", b"BZh": "bzip2", b"\x28\xb5\x2f\xfd": "zstd"}
ZSTD_MISSING = "needs zstd to unpack: install the program (`apt install zstd`) or the extra (`pip install 'xidwatch[zstd]'`)"


class UnpackError(Exception):
    """What is wrong with the stream, in words; everything before that has been given out."""


class _Decompressor(Protocol):
    eof: bool
    unused_data: bytes

    def decompress(self, data: bytes, max_length: int = ...) -> bytes: ...


def kind_of(head: bytes) -> str | None:
    """The format, from the first bytes; None for plain text."""
    return next((kind for magic, kind in _MAGIC.items() if head.startswith(magic)), None)


def unpacked(kind: str, chunks: Iterable[bytes]) -> Iterator[bytes]:
    """The plain bytes. An empty chunk, which says that nothing has come for now, is handed on. Raises UnpackError."""
    if kind == "gzip":
        return _inflated(kind, chunks, _Gzip)
    if kind == "xz":
        return _inflated(kind, chunks, lzma.LZMADecompressor)
    if kind == "bzip2":
        return _inflated(kind, chunks, bz2.BZ2Decompressor)
    if make := _zstd_decompressor():
        return _inflated(kind, chunks, make)
    return _by_program(chunks)


class _Gzip:
    """zlib's decompressor with the manners of the others: it keeps what it could not take yet."""

    def __init__(self) -> None:
        self._inner = zlib.decompressobj(wbits=31)

    @property
    def eof(self) -> bool:
        return self._inner.eof

    @property
    def unused_data(self) -> bytes:
        return self._inner.unused_data

    def decompress(self, data: bytes, max_length: int = 0) -> bytes:
        return self._inner.decompress(self._inner.unconsumed_tail + data, max_length)


def _inflated(kind: str, chunks: Iterable[bytes], make: Callable[[], Any]) -> Iterator[bytes]:
    members = _Members(kind, make)
    for chunk in chunks:
        if chunk:
            yield from members.take(chunk)
        else:
            yield b""
    if members.is_inside:
        raise UnpackError(f"the {kind} stream is cut off")


class _Members:
    """One compressed stream after the other, as `cat a.gz b.gz` joins them; padding of zeros between and behind them."""

    def __init__(self, kind: str, make: Callable[[], Any]) -> None:
        self._kind = kind
        self._make = make
        self._decompressor: _Decompressor = make()
        self.is_inside = False  # so that an end now would be too early

    def take(self, data: bytes) -> Iterator[bytes]:
        """Raises UnpackError."""
        while data:
            if not self.is_inside:
                data = self._begun(data)
            yield from self._unpack(data)
            data = self._decompressor.unused_data if self._decompressor.eof else b""
            if self._decompressor.eof:
                self._decompressor, self.is_inside = self._make(), False

    def _begun(self, data: bytes) -> bytes:
        data = data.lstrip(b"\0")
        self.is_inside = bool(data)
        if data and not any(magic.startswith(data[: len(magic)]) for magic, kind in _MAGIC.items() if kind == self._kind):
            raise UnpackError(f"something that is not {self._kind} follows the {self._kind} stream")
        return data

    def _unpack(self, data: bytes) -> Iterator[bytes]:
        while True:
            try:
                out = self._decompressor.decompress(data, OUT_BYTES)
            except (zlib.error, lzma.LZMAError, OSError, EOFError, ValueError) as error:
                raise UnpackError(f"the {self._kind} stream is damaged ({error})") from error
            if out:
                yield out
            if self._decompressor.eof or len(out) < OUT_BYTES:
                return
            data = b""


def _zstd_decompressor() -> Callable[[], Any] | None:
    try:
        make: Callable[[], Any] = importlib.import_module("compression.zstd").ZstdDecompressor
        return make
    except ImportError:
        pass
    try:
        wheel: Any = importlib.import_module("zstandard")
    except ImportError:
        return None
    return lambda: _ZstdWheel(wheel)


class _ZstdWheel:
    """The wheel's decompressor takes no limit; what it unpacks of one chunk stays within the window of the format."""

    def __init__(self, wheel: Any) -> None:
        self._inner = wheel.ZstdDecompressor().decompressobj()
        self._error = wheel.ZstdError

    @property
    def eof(self) -> bool:
        return bool(self._inner.eof)

    @property
    def unused_data(self) -> bytes:
        return bytes(self._inner.unused_data)

    def decompress(self, data: bytes, _max_length: int = 0) -> bytes:
        if not data:
            return b""
        try:
            return bytes(self._inner.decompress(data))
        except self._error as error:
            raise ValueError(error) from error


def _by_program(chunks: Iterable[bytes]) -> Iterator[bytes]:
    program = shutil.which("zstd")
    if program is None:
        raise UnpackError(ZSTD_MISSING)
    child = subprocess.Popen([program, "-dcq"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    assert child.stdin
    assert child.stdout
    feeder = threading.Thread(target=_feed, args=(child.stdin, chunks), daemon=True)
    feeder.start()
    try:
        while out := os.read(child.stdout.fileno(), OUT_BYTES):
            yield out
        if child.wait(WAIT_SECONDS):
            raise UnpackError("the zstd stream is cut off or damaged")
    finally:
        child.terminate()
        child.stdout.close()
        child.wait(WAIT_SECONDS)
        feeder.join(WAIT_SECONDS)


def _feed(pipe: Any, chunks: Iterable[bytes]) -> None:
    try:
        for chunk in chunks:
            pipe.write(chunk)
        pipe.close()
    except (OSError, ValueError):  # it has ended before its input did
        pass
