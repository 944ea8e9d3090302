"""Timers in order, and callbacks that pull the ground from under each other."""

from __future__ import annotations

import os
import signal
import socket
import threading
from collections.abc import Iterator

import pytest

from tests.fakes.clock import FakeClock
from xidwatch.clock import SystemClock
from xidwatch.daemon.loop import Loop, Throttle

Pair = tuple[socket.socket, socket.socket]


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def loop(clock: FakeClock) -> Loop:
    return Loop(clock)


def pair() -> Pair:
    """Two ends, the first of them with something to read."""
    ours, theirs = socket.socketpair()
    theirs.send(b"x")
    return ours, theirs


@pytest.fixture
def pairs() -> Iterator[list[Pair]]:
    made = [pair() for _ in range(3)]
    yield made
    for end in (end for both in made for end in both):
        end.close()


# --- timers


def test_timers_fire_in_the_order_of_their_times(loop: Loop, clock: FakeClock) -> None:
    """Those of one time in the order in which they were set, and none before its time."""
    said: list[str] = []
    for name, seconds in (("third", 2.0), ("first", 1.0), ("second", 1.0), ("never", 9.0)):
        loop.after(seconds, lambda name=name: said.append(name))  # type: ignore[misc]
    clock.advance(0.5)
    loop.turn(0)
    assert said == []
    clock.advance(2)
    loop.turn(0)
    assert said == ["first", "second", "third"]


def test_a_timer_fires_once(loop: Loop, clock: FakeClock) -> None:
    """At an absolute time, or soon after it."""
    said: list[float] = []
    loop.at(clock.mono - 5, lambda: said.append(clock.mono))
    loop.turn(0)
    loop.turn(0)
    assert said == [clock.mono]


def test_a_cancelled_timer_does_not_fire(loop: Loop, clock: FakeClock) -> None:
    """Not even when an earlier one of the same turn cancels it; cancelling twice is once."""
    said: list[str] = []
    late = loop.after(1.0, lambda: said.append("late"))
    loop.after(0.5, late.cancel)
    loop.after(2.0, lambda: said.append("other"))
    clock.advance(3)
    loop.turn(0)
    late.cancel()
    assert said == ["other"]


def test_a_timer_set_by_a_timer_waits_for_the_next_turn(loop: Loop) -> None:
    """A callback that goes on and on starves nobody."""
    turns: list[int] = []

    def again() -> None:
        turns.append(1)
        loop.after(0.0, again)

    again()
    for _ in range(3):
        loop.turn(0)
    assert len(turns) == 4


def test_run_sleeps_until_the_next_timer_and_ends_after_stop() -> None:
    """Callbacks of the turn under way are finished."""
    loop = Loop(SystemClock())
    said: list[str] = []
    loop.after(10.0, lambda: said.append("much later")).cancel()
    loop.after(0.01, loop.stop)
    loop.after(0.01, lambda: said.append("same turn"))
    loop.run()
    assert said == ["same turn"]


def test_a_signal_does_not_disturb_the_wait() -> None:
    """The selector waits on, and the timer is on time."""
    loop = Loop(SystemClock())
    old = signal.signal(signal.SIGUSR1, lambda *_: None)
    try:
        loop.after(0.05, loop.stop)
        threading.Timer(0.01, os.kill, (os.getpid(), signal.SIGUSR1)).start()
        loop.run()
    finally:
        signal.signal(signal.SIGUSR1, old)


# --- descriptors


def test_what_can_be_read_is_read(loop: Loop, pairs: list[Pair]) -> None:
    """Again in every turn until it is read; watching again replaces who is called."""
    said: list[str] = []
    ours = pairs[0][0]
    loop.watch(ours, lambda: said.append("old"))
    loop.turn(0)
    loop.watch(ours, lambda: said.append(ours.recv(1).decode()))
    loop.turn(0)
    loop.turn(0)
    assert said == ["old", "x"]


def test_writing_is_called_only_where_asked_for_and_first(loop: Loop, pairs: list[Pair]) -> None:
    """Before reading, since reading may end it."""
    said: list[str] = []
    ours = pairs[0][0]
    loop.watch(ours, lambda: said.append("read"), lambda: said.append("write"))
    loop.turn(0)
    loop.watch(ours, lambda: said.append("read"))
    loop.turn(0)
    assert said == ["write", "read", "read"]


def test_a_forgotten_source_is_not_called_in_the_same_turn(loop: Loop, pairs: list[Pair]) -> None:
    """Two that are readable at once and forget each other: exactly one is called, for reading as for writing."""
    (one, _), (two, _), _ = pairs
    for asked in ("read", "write"):
        said: list[str] = []

        def call(name: str, other: socket.socket, said: list[str] = said) -> None:
            said.append(name)
            loop.forget(other)

        def first() -> None:
            call("one", two)

        def second() -> None:
            call("two", one)

        nothing = bool
        loop.watch(one, *((first,) if asked == "read" else (nothing, first)))
        loop.watch(two, *((second,) if asked == "read" else (nothing, second)))
        loop.turn(0)
        assert len(said) == 1, asked
        loop.forget(one)
        loop.forget(two)


class Numbered:
    """A source that keeps its number after it is closed, as a plain descriptor does."""

    def __init__(self, descriptor: int) -> None:
        self.descriptor = descriptor

    def fileno(self) -> int:
        return self.descriptor


def test_a_number_given_to_another_in_the_same_turn_calls_neither_by_mistake(loop: Loop) -> None:
    """Closed, and the number given to a new source: the event was the old one's, and the new one has its own in the next turn."""
    ours, theirs = pair()
    more, other = pair()
    source = Numbered(ours.detach())
    said: list[str] = []

    def swap() -> None:
        said.append("swap")
        loop.forget(more)
        loop.forget(source)
        os.dup2(more.fileno(), source.descriptor)
        loop.watch(Numbered(source.descriptor), lambda: said.append("new"))

    loop.watch(more, swap)
    loop.watch(source, swap)
    loop.turn(0)
    assert said == ["swap"]
    loop.turn(0)
    assert said == ["swap", "new"]
    loop.forget(source)
    os.close(source.descriptor)
    for end in (theirs, more, other):
        end.close()


def test_a_source_replaced_in_the_same_turn_is_called_as_it_is_now(loop: Loop, pairs: list[Pair]) -> None:
    """Not by the callback of before."""
    (one, _), (two, _), _ = pairs
    said: list[str] = []

    def renew() -> None:
        said.append("before")
        for source in (one, two):
            loop.watch(source, lambda: said.append("after"))

    loop.watch(one, renew)
    loop.watch(two, renew)
    loop.turn(0)
    assert said == ["before", "after"]


def test_forgetting_what_is_not_watched_is_nothing(loop: Loop, pairs: list[Pair]) -> None:
    """Nor is forgetting what is closed already."""
    ours = pairs[0][0]
    loop.forget(ours)
    loop.watch(ours, lambda: pytest.fail("forgotten"))
    ours.close()
    loop.forget(ours)
    loop.forget(ours)
    loop.turn(0)


# --- storms


def test_a_storm_takes_a_fifth_of_the_time_and_its_end_is_not_missed(loop: Loop, clock: FakeClock) -> None:
    """The first call without delay, then one after each pause of four times its cost, the last when all is over."""
    calls: list[float] = []

    def show() -> None:
        calls.append(clock.now().mono - began)
        clock.advance(0.125)  # what it costs

    throttle = Throttle(loop, show)
    began = clock.now().mono
    for _ in range(8):
        throttle.soon()
        clock.advance(0.125)
        loop.turn(0)
    clock.advance(1)
    loop.turn(0)
    assert calls == [0.0, 0.625, 1.25]


def test_what_is_done_now_is_not_done_again_later(loop: Loop, clock: FakeClock) -> None:
    """A tick has shown everything: the call that was put off is not needed any more."""
    calls: list[str] = []

    def show() -> None:
        calls.append("shown")
        clock.advance(0.125)

    throttle = Throttle(loop, show)
    throttle.now()
    throttle.soon()
    throttle.now()
    clock.advance(5)
    loop.turn(0)
    assert calls == ["shown", "shown"]


def test_after_a_quiet_moment_there_is_no_delay(loop: Loop, clock: FakeClock) -> None:
    """The edge that matters is the first."""
    calls: list[str] = []
    throttle = Throttle(loop, lambda: calls.append("shown"))
    throttle.soon()
    clock.advance(1)
    throttle.soon()
    assert calls == ["shown", "shown"]
