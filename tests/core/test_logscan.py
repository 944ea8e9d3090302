"""Blocks cut out of chunks, and the lines in them numbered."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from xidwatch.core.logblocks import CONTEXT_BYTES, LONGEST_LINE, Cutter


@given(st.lists(st.binary(max_size=50)))
def test_blocks_are_the_chunks_again(chunks: list[bytes]) -> None:
    """Nothing is lost and nothing comes twice; all but the last end with a line."""
    cutter = Cutter()
    blocks = [block for chunk in chunks if (block := cutter.cut(chunk))]
    assert all(block.data.endswith(b"\n") for block in blocks)
    last = cutter.cut(b"", last=True)
    assert b"".join(block.data[block.fresh :] for block in (*blocks, *([last] if last else []))) == b"".join(chunks)


def test_what_was_there_is_kept_for_a_while() -> None:
    """Whole lines of it, and no more than is needed to find the beginning of a record."""
    cutter = Cutter()
    for _ in range(100):
        block = cutter.cut(b"a line of a kernel log\n" * 100)
        assert block
        assert block.data[: block.fresh].endswith((b"", b"\n"))
        assert block.fresh <= CONTEXT_BYTES


def test_a_line_without_an_end_does_not_grow_for_ever() -> None:
    """A file of one line is read in pieces."""
    cutter = Cutter()
    blocks = [cutter.cut(b"x" * 1000) for _ in range(3 * LONGEST_LINE // 1000)]
    assert max(len(block.data) for block in blocks if block) < 2 * LONGEST_LINE
