"""Lines over a socket that may be full, torn, flooded or gone."""

from __future__ import annotations

import socket
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.fakes.clock import FakeClock
from xidwatch.daemon.channel import Channel
from xidwatch.daemon.loop import Loop


class Rig:
    """A channel on a loop, and the other side as a plain socket."""

    def __init__(self, max_line: int = 1000) -> None:
        self.loop = Loop(FakeClock())
        ours, self.other = socket.socketpair()
        self.other.setblocking(False)
        self.lines: list[bytes] = []
        self.ends: list[str] = []
        self.channel = Channel(self.loop, ours, self.lines.append, self.ends.append, max_line=max_line)

    def turns(self, count: int = 3) -> None:
        for _ in range(count):
            self.loop.turn(0)

    def heard(self) -> bytes:
        """What has arrived on the other side; `<end>` where nothing more can come."""
        heard = b""
        try:
            while chunk := self.other.recv(1 << 20):
                heard += chunk
        except BlockingIOError:
            return heard
        return heard + b"<end>"

    def close(self) -> None:
        self.channel.close()
        self.other.close()


@pytest.fixture
def rig() -> Iterator[Rig]:
    rig = Rig()
    yield rig
    rig.close()


@given(st.lists(st.binary(max_size=30).filter(lambda line: b"\n" not in line), max_size=8), st.integers(1, 40))
def test_lines_arrive_whole_however_they_are_cut(lines: list[bytes], size: int) -> None:
    """In order, without their newline, the empty ones too."""
    rig = Rig()
    stream = b"".join(line + b"\n" for line in lines)
    for start in range(0, len(stream), size):
        rig.other.send(stream[start : start + size])
        rig.turns(1)
    assert rig.lines == lines
    assert rig.ends == []
    rig.close()


def test_the_end_is_told_once_and_after_the_last_line(rig: Rig) -> None:
    """With no reason where the other side simply left."""
    rig.other.send(b"last\n")
    rig.other.close()
    rig.turns()
    assert (rig.lines, rig.ends) == ([b"last"], [""])
    assert not rig.channel.open
    rig.channel.send(b"too late\n")
    assert rig.channel.queued == 0
    assert rig.ends == [""]


def test_half_a_line_at_the_end_is_no_line(rig: Rig) -> None:
    """It is the reason instead."""
    rig.other.send(b'whole\n{"ask":1,"rea')
    rig.other.close()
    rig.turns()
    assert rig.lines == [b"whole"]
    assert rig.ends == ['half a line: b\'{"ask":1,"rea\'']


@pytest.mark.parametrize("ending", [b"", b"\n", b"\nmore\n"])
def test_a_line_that_is_too_long_ends_it(ending: bytes) -> None:
    """Whether or not its end has come, in one piece or in many; nothing behind it is heard."""
    rig = Rig(max_line=10)
    rig.other.send(b"0123456789\n" + b"x" * 11 + ending)
    rig.turns()
    assert rig.lines == [b"0123456789"]
    assert rig.ends == ["a line of more than 10 bytes"]
    rig.close()


def test_a_flood_is_read_a_piece_a_turn(rig: Rig) -> None:
    """The others get their turn in between."""
    rig.other.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 20)
    rig.other.send(b"y\n" * 50_000)
    rig.turns(1)
    assert 0 < len(rig.lines) < 50_000
    rig.turns(10)
    assert len(rig.lines) == 50_000


def test_sending_to_one_that_does_not_read_never_waits(rig: Rig) -> None:
    """What does not fit is queued and counted, and goes out in order as there is room."""
    sent = [b"%06d" % number + b"z" * 994 + b"\n" for number in range(1000)]
    for line in sent:
        rig.channel.send(line)
    queued = rig.channel.queued
    assert 0 < queued < sum(map(len, sent))
    heard = b""
    for _ in range(100):
        heard += rig.heard()
        rig.turns(1)
    assert heard == b"".join(sent)
    assert rig.channel.queued == 0


def test_finish_is_heard_behind_all_that_was_said(rig: Rig) -> None:
    """What is queued still goes out first; what the other side says after that is still heard."""
    sent = [b"q" * 999 + b"\n"] * 1000
    for line in sent:
        rig.channel.send(line)
    rig.channel.finish()
    rig.channel.send(b"after the end\n")
    heard = b""
    while not heard.endswith(b"<end>"):
        heard += rig.heard()
        rig.turns(1)
    assert heard == b"".join(sent) + b"<end>"
    rig.other.send(b"goodbye\n")
    rig.turns()
    assert (rig.lines, rig.ends) == ([b"goodbye"], [])


def test_finish_with_nothing_queued_is_heard_at_once(rig: Rig) -> None:
    """And a second time changes nothing."""
    rig.channel.finish()
    rig.channel.finish()
    assert rig.heard() == b"<end>"


def test_what_was_said_before_leaving_is_heard_even_if_writing_fails_first(rig: Rig) -> None:
    """An answer that came before its sender died counts; the end is told once, by reading, and never from within `send`."""
    rig.other.send(b"my last answer\n")
    rig.other.close()
    rig.channel.send(b"anybody?\n")
    rig.channel.send(b"anybody?\n")
    assert (rig.lines, rig.ends, rig.channel.queued) == ([], [], 0)
    rig.turns()
    assert (rig.lines, rig.ends) == ([b"my last answer"], [""])


def test_one_that_leaves_without_reading_has_simply_left(rig: Rig) -> None:
    """The kernel calls that a reset; what it had said is heard all the same."""
    rig.channel.send(b"unread\n")
    rig.other.send(b"bye\n")
    rig.other.close()
    rig.turns()
    assert (rig.lines, rig.ends) == ([b"bye"], [""])


def test_closing_it_at_a_line_leaves_the_rest_unsaid() -> None:
    """The owner has let go: neither further lines nor an end."""
    loop = Loop(FakeClock())
    ours, other = socket.socketpair()
    lines: list[bytes] = []

    def take(line: bytes) -> None:
        lines.append(line)
        channel.close()

    channel = Channel(loop, ours, take, pytest.fail)
    other.send(b"one\ntwo\n")
    other.close()
    loop.turn(0)
    loop.turn(0)
    channel.close()
    assert lines == [b"one"]
