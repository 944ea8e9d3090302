"""Where in a block of bytes a needle stands: by a regular expression and `bytes.find`, or by hyperscan where it is installed.

Both find the same lines. An engine for many patterns is ten times as fast and needs instructions that not every processor has:
without them it dies of SIGILL, which nothing in Python can catch, so /proc/cpuinfo is asked before it is loaded. Lines are then
counted by stringzilla, which chooses its instructions itself, or by Python where that is missing.
"""

from __future__ import annotations

import importlib
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from xidwatch.core.logblocks import Count, Finder

CPUINFO = Path("/proc/cpuinfo")
NEEDED_FLAGS = frozenset({"ssse3", "sse4_2", "popcnt", "avx2"})
# Characters that are rare in a kernel's log, the rarest first. The expression engine skips to the next of a set of characters
# quickly, so a needle is looked for by its rarest one.
_RARE = "XVQZ#'KYUWHGJBFMDR("
_LITERAL_SIGNS = 1  # bytes.find looks for a single one with memchr, thirty times as fast as for several
MOST_AT_ONCE = 4096  # needles, before the rest of the line they stand in is passed over: it may be a megabyte of nothing else


@dataclass(frozen=True, slots=True)
class Search:
    """How a log is looked through."""

    find: Finder
    count: Count
    is_fast: bool  # with hyperscan


def search(needles: Iterable[bytes], *, fast: bool = True) -> Search:
    """The best there is here. `fast`: with hyperscan if it is there and would run."""
    needles = tuple(dict.fromkeys(needles))
    engine = _hyperscan(needles) if fast and can_run_hyperscan() else None
    return Search(engine, _counter(), is_fast=True) if engine else Search(by_pattern(needles), bytes.count, is_fast=False)


def can_run_hyperscan(cpuinfo: Path = CPUINFO) -> bool:
    """Whether every processor has what the wheel is built for."""
    try:
        lines = cpuinfo.read_text(errors="replace").splitlines()
    except OSError:
        return False
    flags = [set(line.partition(":")[2].split()) for line in lines if line.startswith("flags")]
    return bool(flags) and all(flags_of_one >= NEEDED_FLAGS for flags_of_one in flags)


def by_pattern(needles: Iterable[bytes]) -> Finder:
    """With what Python has: one expression for the needles that hold a rare character, one pass for each of the others."""
    branches: list[bytes] = []
    alone: list[bytes] = []
    for needle in needles:
        if needle.startswith(b"\x1b"):
            alone.append(needle[:_LITERAL_SIGNS])
        elif at := _rarest(needle):
            branches.append(_around(needle, at - 1))
        else:
            alone.append(needle)
    expression = re.compile(b"|".join(branches)) if branches else None

    def find(data: bytes, start: int, end: int) -> list[int]:
        offsets = [match.start() for match in expression.finditer(data, start, end)] if expression else []
        for needle in alone:
            at = data.find(needle, start, end)
            while at >= 0:
                offsets.append(at)
                line_end = data.find(b"\n", at, end)
                at = data.find(needle, line_end, end) if line_end >= 0 else -1
        offsets.sort()
        return offsets

    return find


def _rarest(needle: bytes) -> int:
    """The place of its rarest character, from 1; 0 when none of them is rare."""
    places = (needle.find(sign.encode()) + 1 for sign in _RARE)
    return next((place for place in places if place), 0)


def _around(needle: bytes, at: int) -> bytes:
    """An expression that begins with one character and looks back for what stands before it."""
    before, sign, behind = needle[:at], needle[at : at + 1], needle[at + 1 :]
    back = b"(?<=" + re.escape(before + sign) + b")" if before else b""
    return re.escape(sign) + back + re.escape(behind)


def _counter() -> Count:
    """`bytes.count`, or what does the same four times as fast: with hyperscan, counting lines is else most of the work."""
    try:
        count: Count = importlib.import_module("stringzilla").count
        return count if count(b"\n\n\n.\n", b"\n", 1, 4) == 2 else bytes.count  # its arguments have changed before
    except (ImportError, OSError, AttributeError, TypeError, ValueError):
        return bytes.count


def _hyperscan(needles: Sequence[bytes]) -> Finder | None:
    try:
        hyperscan: Any = importlib.import_module("hyperscan")
        database = hyperscan.Database()
        many = len(needles)
        literals = [needle[:_LITERAL_SIGNS] if needle.startswith(b"\x1b") else needle for needle in needles]
        database.compile(expressions=literals, ids=list(range(many)), elements=many, flags=[0] * many, literal=True)
        scratch = hyperscan.Scratch(database)
    except (ImportError, OSError, AttributeError, TypeError, RuntimeError, ValueError):
        return None

    def find(data: bytes, start: int, end: int) -> list[int]:
        offsets: list[int] = []
        view = memoryview(data)
        while start < end:
            try:
                database.scan(view[start:end], match_event_handler=_into(offsets, start), scratch=scratch)
                break
            except hyperscan.ScanTerminated:
                start = data.find(b"\n", offsets[-1], end) + 1 or end
        return offsets

    return find


def _into(offsets: list[int], start: int) -> Callable[[int, int, int, int, object], bool]:
    """What the engine calls for each needle; it stops when told that there are enough."""
    enough = len(offsets) + MOST_AT_ONCE

    def found(_id: int, _from: int, to: int, _flags: int, _context: object) -> bool:
        offsets.append(start + to - 1)
        return len(offsets) >= enough

    return found
