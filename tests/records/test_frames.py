"""What the loop and the recorder say to each other."""

from __future__ import annotations

import json

import pytest

from xidwatch.records import frames, recovery
from xidwatch.records.frames import Answer, Trouble


def test_a_record_travels_byte_for_byte() -> None:
    """The recorder writes what was sent, whatever keys a newer loop put into it."""
    line = frames.journal(17, {"v": 9, "id": "x-1", "new": {"a": [1.5, None]}})
    frame = frames.decode_frame(line)
    assert (frame.n, bytes(frame.journal), frame.for_files) == (17, b'{"v":9,"id":"x-1","new":{"a":[1.5,null]}}', True)


def test_only_what_must_be_durable_is_for_files() -> None:
    """Log lines and publications have no number and no acknowledgement."""
    assert not frames.decode_frame(frames.log(6, "text", {"tick": 1})).for_files
    assert not frames.decode_frame(frames.publish("/run/x", "{}")).for_files
    assert not frames.decode_frame(b'{"n":3}').for_files


@pytest.mark.parametrize("line", [b"", b"[]", b"\xff", b'{"n":"x"}', b'{"n":1,"sample":{}}', b"[" * 100_000])
def test_what_is_no_frame_is_a_value_error(line: bytes) -> None:
    """The complaint shows the beginning of the line."""
    with pytest.raises(ValueError, match="b'"):
        frames.decode_frame(line)
    with pytest.raises(ValueError, match="b'"):
        frames.decode_answer(line if line != b'{"n":"x"}' and b"sample" not in line else b"1")


def test_the_end_of_a_trouble_is_not_silence() -> None:
    """`null` says that it works again, which is another thing than saying nothing about it."""
    begun = Answer(trouble=Trouble(what="journal", errno=28, text="No space left on device: /x"))
    assert frames.decode_answer(frames.answer(begun)) == begun
    assert frames.answer(Answer(trouble=None)) == b'{"trouble":null}\n'
    assert frames.decode_answer(b'{"trouble":null}').trouble is None
    assert [frames.decode_answer(line).about_trouble for line in (b'{"trouble":null}', b'{"durable":18}')] == [True, False]


def test_what_may_be_sent_again_is_remembered() -> None:
    """A start remembers at least as many records as may have been on their way."""
    assert recovery.KEPT_BEFORE_CHECKPOINT >= frames.WINDOW


def test_a_stream_is_cut_into_lines() -> None:
    """However it arrives; the unfinished rest is kept."""
    lines = frames.Lines()
    assert lines.feed(b"one\ntw") == [b"one"]
    assert lines.feed(b"o") == []
    assert lines.feed(b"\n\nthr") == [b"two", b""]
    assert lines.half == b"thr"


def test_a_line_without_end_does_not_grow_without_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """Beyond the limit it is thrown away up to its end; the next line is read."""
    monkeypatch.setattr(frames, "MAX_LINE", 1000)
    lines = frames.Lines()
    for _ in range(50):
        assert lines.feed(b"x" * 500) == []
        assert len(lines.half) <= 1000
    [bad, good] = lines.feed(b'\n{"durable":1}\n')
    assert bad.startswith(b"x")
    assert frames.decode_answer(good).durable == 1


def test_what_is_no_text_is_written_as_escapes() -> None:
    """The name of a file may be any bytes, and one that nobody can name must not end the daemon that speaks of it."""
    told = frames.decode_frame(frames.journal(1, {"note": {"text": "open-\udcff.json", "items": ["\udc80"]}}))
    assert json.loads(bytes(told.journal)) == {"note": {"text": "open-\\udcff.json", "items": ["\\udc80"]}}
    assert rb"\\udcff" in frames.log(4, "\udcff", {"unit": "\udcff"})
