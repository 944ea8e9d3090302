"""Collectors for a dump, each named for what it does. They run in a child of the dump worker."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path


def speaks(*lines: str) -> Iterator[str]:
    """Says these lines."""
    yield from lines


def fails(line: str) -> Iterator[str]:
    """Says one line and breaks down."""
    yield line
    os._exit(3)


def hangs(line: str) -> Iterator[str]:
    """Says one line and nothing more, deaf to TERM."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    yield line
    while True:
        signal.pause()


def waits(gate: str) -> Iterator[str]:
    """Says one line, waits until somebody has opened and closed the FIFO, and says another."""
    yield "before"
    Path(gate).read_bytes()
    yield "after"


def never_ends() -> Iterator[str]:
    """Goes on and on."""
    while True:
        yield "x" * 1023


def creates(path: str) -> Iterator[str]:
    """Says one line and creates a file: on a frozen filesystem that is uninterruptible sleep."""
    yield "before"
    os.close(os.open(path, os.O_CREAT | os.O_WRONLY))


def echoes(channel: object, options: object) -> None:
    """A child of the nursery that is no probe: says what it was given, then leaves with 7."""
    descriptors = os.listdir("/proc/self/fd")  # noqa: PTH208  names, one of them of the listing itself
    still_open = sorted(int(name) for name in descriptors if os.path.lexists(f"/proc/self/fd/{name}"))
    os.write(3, repr((type(channel).__name__, options, still_open)).encode() + b"\n")
    raise SystemExit(7)
