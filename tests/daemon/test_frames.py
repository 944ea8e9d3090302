"""JSON lines between the loop and its own processes."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from xidwatch.daemon import frames
from xidwatch.daemon.frames import FrameError

TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
PLAIN = st.recursive(st.none() | st.booleans() | st.integers(-(2**63), 2**63 - 1) | TEXT, lambda inner: st.lists(inner, max_size=3))


@given(st.dictionaries(TEXT, PLAIN, max_size=5))
def test_a_message_comes_back_from_one_line(message: dict[str, object]) -> None:
    """Whatever is in it, line breaks included."""
    line = frames.encode(message)
    assert line.endswith(b"\n")
    assert line.count(b"\n") == 1
    assert frames.decode(line) == message


@pytest.mark.parametrize("line", [b"", b"[]", b"null", b"{", b"\xff", b'{"a":"\xff"}', b'{"a":1}{', b'{"a":' + b"[" * 5000])
def test_what_is_no_object_is_called_so(line: bytes) -> None:
    """One kind of error, a ValueError, which quotes no more than the beginning."""
    with pytest.raises(FrameError, match="not a frame") as refused:
        frames.decode(line)
    assert isinstance(refused.value, ValueError)
    assert len(str(refused.value)) < 400
