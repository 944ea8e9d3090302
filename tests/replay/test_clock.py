"""Time that goes when it is told to, and a loop that never waits for it."""

from __future__ import annotations

import socket

from xidwatch.replay.clock import OwnTime, VirtualClock, VirtualLoop


def test_timers_fire_at_their_times_and_nobody_waits() -> None:
    """Time jumps from one to the next; what is due at the end itself is left for afterwards."""
    clock = VirtualClock("boot", 1000.0)
    loop = VirtualLoop(clock)
    fired: list[float] = []
    for seconds in (3600.0, 5.0, 7200.0):
        loop.after(seconds, lambda: fired.append(clock.mono()))
    loop.run_until(7200.0)
    assert (fired, clock.mono(), clock.wall()) == ([5.0, 3600.0], 7200.0, 8200.0)
    loop.settle()
    assert fired[-1] == 7200.0
    loop.close()


def test_what_is_ready_comes_before_time_passes() -> None:
    """An answer that lies in a socket is older than any timer."""
    clock = VirtualClock("boot", 0.0)
    loop = VirtualLoop(clock)
    ours, theirs = socket.socketpair()
    order: list[str] = []
    loop.watch(ours, lambda: order.append(f"read {ours.recv(8).decode()} at {clock.mono():g}"))

    def fired() -> None:
        order.append("timer")
        theirs.send(b"second")

    loop.after(1.0, fired)
    theirs.send(b"first")
    loop.run_until(2.0)
    assert order == ["read first at 0", "timer", "read second at 1"]
    loop.close()
    ours.close()
    theirs.close()


def test_the_wall_clock_can_be_set_and_the_other_cannot() -> None:
    """As on a host."""
    clock = VirtualClock("boot", 1000.0)
    clock.go_to(10.0)
    clock.set_wall(-500.0)
    clock.go_to(5.0)
    assert (clock.mono(), clock.wall()) == (10.0, 510.0)


def test_a_child_waits_alone() -> None:
    """Its own time runs ahead; the loop's stays."""
    clock = VirtualClock("boot", 1000.0)
    own = OwnTime(clock)
    own.sleep(0.1)
    assert (own.mono(), own.wall(), clock.mono()) == (0.1, 1000.1, 0.0)


def test_the_pace_is_told_every_stretch() -> None:
    """So that somebody can watch it at any speed."""
    stretches: list[float] = []
    clock = VirtualClock("boot", 0.0, stretches.append)
    loop = VirtualLoop(clock)
    loop.after(3.0, lambda: None)
    loop.run_until(10.0)
    assert stretches == [3.0, 7.0]
    loop.close()
