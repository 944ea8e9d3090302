"""Stretches of power over time: what is said of their pieces."""

from __future__ import annotations

import pytest

from xidwatch.core.model import Subject
from xidwatch.core.power import Stretch, TraceSource

WHOLE = Stretch(Subject("gpu", "0000:11:00.0"), TraceSource.BUFFER, (10, 20, 30, 40, 50), (1, 2, 3, 4, 5), 7)


@pytest.mark.parametrize("most", [1, 2, 3, 5, 100])
def test_pieces_are_the_whole_and_each_says_what_it_follows(most: int) -> None:
    """No sample is lost or twice, however it is cut; the first follows what the whole follows."""
    pieces = list(WHOLE.pieces(most))
    assert [len(piece.stamps_us) for piece in pieces[:-1]] == [most] * (len(pieces) - 1)
    assert tuple(stamp for piece in pieces for stamp in piece.stamps_us) == WHOLE.stamps_us
    assert tuple(draw for piece in pieces for draw in piece.milliwatts) == WHOLE.milliwatts
    assert [piece.after_us for piece in pieces] == [7, *(piece.stamps_us[-1] for piece in pieces[:-1])]
    assert {(piece.subject, piece.source) for piece in pieces} == {(WHOLE.subject, WHOLE.source)}


def test_only_the_buffer_passes_for_whole() -> None:
    """The words in a file outlive the program: an average is called one, and no poll is called a buffer."""
    assert [str(source) for source in TraceSource] == ["buffer", "poll_instant", "poll_average"]
