"""Work that waits within itself, turned by hand."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from xidwatch.replay.strand import Pause, Strand


class Timers:
    """Every pause that was asked for, and what is to follow it."""

    def __init__(self) -> None:
        self.set: list[tuple[float, Callable[[], None]]] = []

    def after(self, seconds: float, then: Callable[[], None]) -> None:
        self.set.append((seconds, then))


@pytest.fixture
def timers() -> Timers:
    """None set."""
    return Timers()


def test_it_goes_from_pause_to_pause(timers: Timers) -> None:
    """Nothing happens before it is told to go on, and then as much as there is up to the next pause."""
    done: list[str] = []

    def work(pause: Pause) -> None:
        done.append("begun")
        pause(2.0)
        done.append("ended")

    strand = Strand(work, timers.after)
    assert done == []
    strand.go_on()
    assert (done, [seconds for seconds, _ in timers.set]) == (["begun"], [2.0])
    timers.set[0][1]()
    assert done == ["begun", "ended"]
    strand.go_on()
    assert done == ["begun", "ended"]


def test_what_is_cut_goes_no_further(timers: Timers) -> None:
    """Its pause ends it, and what it cleans up is cleaned up; a timer that still comes changes nothing."""
    done: list[str] = []

    def work(pause: Pause) -> None:
        try:
            pause(1.0)
            done.append("never")
        finally:
            done.append("cleaned")

    strand = Strand(work, timers.after)
    strand.go_on()
    strand.end()
    assert done == ["cleaned"]
    timers.set[0][1]()
    assert done == ["cleaned"]


def test_what_has_not_begun_never_does(timers: Timers) -> None:
    """Cut before its first turn."""
    done: list[str] = []
    strand = Strand(lambda _pause: done.append("begun"), timers.after)
    strand.end()
    strand.go_on()
    assert done == []


def test_what_it_raises_is_raised_where_it_is_turned(timers: Timers) -> None:
    """A mistake in it must not vanish with its thread."""

    def work(_pause: Pause) -> None:
        raise ValueError("no such unit")

    with pytest.raises(ValueError, match="no such unit"):
        Strand(work, timers.after).go_on()
