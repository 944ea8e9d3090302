"""Needles: found by what Python has, and by hyperscan only where it cannot kill the process."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from xidwatch.core.logneedles import NEEDLES
from xidwatch.logs.find import MOST_AT_ONCE, by_pattern, can_run_hyperscan, search

BEST = search(NEEDLES)  # made once: hyperscan takes a tenth of a second to compile
_WORDS = st.sampled_from([*NEEDLES, b"\n", b" ", b"NVR", b"Xid", b"kernel: ", b"\x1b"])


def lines_with(offsets: list[int], data: bytes) -> set[int]:
    return {data.count(b"\n", 0, offset) for offset in offsets}


@given(st.lists(_WORDS, max_size=30).map(b"".join))
def test_the_lines_are_those_of_a_plain_search(data: bytes) -> None:
    """In ascending order, whatever stands in the needles: signs of expressions, no rare character, an escape alone."""
    plain = re.compile(b"|".join(re.escape(needle[:1] if needle.startswith(b"\x1b") else needle) for needle in NEEDLES))
    offsets = list(by_pattern(NEEDLES)(data, 0, len(data)))
    assert offsets == sorted(offsets)
    expected = lines_with([match.start() for match in plain.finditer(data)], data)
    assert lines_with(offsets, data) == expected
    assert lines_with(list(BEST.find(data, 0, len(data))), data) == expected


@given(st.lists(_WORDS, max_size=30).map(b"".join), st.integers(0, 60), st.integers(0, 60))
def test_lines_are_counted_alike(data: bytes, start: int, end: int) -> None:
    """By whoever counts, between any two places of a block."""
    start, end = min(start, len(data)), min(end, len(data))
    assert BEST.count(data, b"\n", min(start, end), max(start, end)) == data[min(start, end) : max(start, end)].count(b"\n")


def test_what_has_been_looked_at_is_not_looked_at_again() -> None:
    """Offsets are those of the whole block, from a place in it on."""
    data = b"NVRM: x\nNVRM: y\n\x1b[32m\n"
    for find in (by_pattern(NEEDLES), BEST.find):
        assert lines_with(list(find(data, 8, len(data))), data) == {1, 2}


def test_a_line_of_nothing_but_needles_is_not_told_ten_thousand_times() -> None:
    """Whoever reads takes the whole line at the first of them; the lines behind are found all the same."""
    data = b"\x1b" * 3 * MOST_AT_ONCE + b"\nnothing\nNVRM: x\n" + b"NVRM: y\n" * 2 * MOST_AT_ONCE
    for find in (by_pattern(NEEDLES), BEST.find):
        offsets = list(find(data, 0, len(data)))
        assert len(offsets) <= 4 * MOST_AT_ONCE
        assert lines_with(offsets[-2:], data) == {2 * MOST_AT_ONCE + 1, 2 * MOST_AT_ONCE + 2}
        assert 2 in lines_with(offsets[: MOST_AT_ONCE + 1], data)


@pytest.mark.parametrize(
    ("cpuinfo", "runs"),
    [
        ("flags\t\t: fpu sse2 ssse3 sse4_2 popcnt avx2\n" * 2, True),
        ("flags\t\t: fpu sse2 ssse3 sse4_2 popcnt avx2\nflags\t\t: fpu sse2\n", False),
        ("flags\t\t: fpu sse2\n", False),
        ("Features\t: fp asimd\n", False),
        ("", False),
    ],
)
def test_the_processor_is_asked_first(cpuinfo: str, runs: bool, tmp_path: Path) -> None:
    """A missing instruction would kill the process; a processor that does not tell is not trusted."""
    path = tmp_path / "cpuinfo"
    path.write_text(cpuinfo)
    assert can_run_hyperscan(path) is runs
    assert not can_run_hyperscan(tmp_path / "missing")


def test_it_can_be_done_without() -> None:
    """On request the engine is not even looked for."""
    assert not search(NEEDLES, fast=False).is_fast
