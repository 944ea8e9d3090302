"""One thread, one selector, one heap of timers. Callbacks are short and never wait.

The loop opens no file, asks no driver and writes to nothing that can block: whoever registers here gives it a
non-blocking descriptor and does a bounded piece of work per call, so that a flood on one never starves the others.
"""

from __future__ import annotations

import heapq
import itertools
import selectors
from collections.abc import Callable
from typing import Protocol

from xidwatch.clock import Clock

READABLE, WRITABLE = 0, 1  # places in what the selector keeps for us


class HasFileno(Protocol):
    """Anything a selector can watch."""

    def fileno(self) -> int:
        """The descriptor."""


class Timer:
    """A callback at an absolute monotonic time. `cancel` is idempotent."""

    __slots__ = ("callback", "mono")

    def __init__(self, mono: float, callback: Callable[[], None]) -> None:
        self.mono = mono
        self.callback: Callable[[], None] | None = callback

    def cancel(self) -> None:
        """It will not fire."""
        self.callback = None


class Loop:
    """`run` turns until `stop`. Every turn: due timers, then whatever is readable or writable."""

    def __init__(self, clock: Clock) -> None:
        self.clock = clock
        self._selector = selectors.DefaultSelector()
        self._timers: list[tuple[float, int, Timer]] = []
        self._order = itertools.count()
        self._running = False

    def at(self, mono: float, callback: Callable[[], None]) -> Timer:
        """Call once, at or soon after this monotonic time (seconds)."""
        timer = Timer(mono, callback)
        heapq.heappush(self._timers, (mono, next(self._order), timer))
        return timer

    def after(self, seconds: float, callback: Callable[[], None]) -> Timer:
        """Call once, this long from now."""
        return self.at(self.clock.now().mono + seconds, callback)

    def watch(self, source: HasFileno, readable: Callable[[], None], writable: Callable[[], None] | None = None) -> None:
        """Call when the descriptor can be read (and, where asked for, written). Watching again replaces."""
        events = selectors.EVENT_READ | (selectors.EVENT_WRITE if writable else 0)
        if self._known(source):
            self._selector.modify(source, events, (readable, writable))
        else:
            self._selector.register(source, events, (readable, writable))

    def forget(self, source: HasFileno) -> None:
        """Before closing it."""
        if self._known(source):
            self._selector.unregister(source)

    def _known(self, source: HasFileno) -> bool:
        try:
            self._selector.get_key(source)
        except (KeyError, ValueError):
            return False
        return True

    def run(self) -> None:
        """Until `stop`."""
        self._running = True
        while self._running:
            self.turn(self._patience())

    def stop(self) -> None:
        """After the callback under way."""
        self._running = False

    def turn(self, timeout: float | None) -> None:
        """One round, waiting at most `timeout` seconds (None: as long as it takes) for something to happen."""
        self._serve(timeout)
        self._fire_due()

    def _serve(self, timeout: float | None) -> bool:
        """Whatever is ready; whether anything was."""
        ready = self._selector.select(timeout)
        for key, events in ready:
            for kind, index in ((selectors.EVENT_WRITE, WRITABLE), (selectors.EVENT_READ, READABLE)):
                if events & kind and (callback := self._callback(key, index)):
                    callback()
        return bool(ready)

    def _callback(self, key: selectors.SelectorKey, index: int) -> Callable[[], None] | None:
        """Who is to be called now. An earlier callback of this turn may have forgotten the source, or given its number to another."""
        now = self._selector.get_map().get(key.fd)
        if now is None or now.fileobj is not key.fileobj:
            return None
        callback: Callable[[], None] | None = now.data[index]
        return callback

    def _patience(self) -> float | None:
        due = self._next_due()
        return None if due is None else max(0.0, due - self.clock.now().mono)

    def _next_due(self) -> float | None:
        while self._timers and self._timers[0][2].callback is None:
            heapq.heappop(self._timers)
        return self._timers[0][0] if self._timers else None

    def _fire_due(self) -> None:
        now = self.clock.now().mono
        due = []
        while self._timers and self._timers[0][0] <= now:
            due.append(heapq.heappop(self._timers)[2])
        for timer in due:
            callback, timer.callback = timer.callback, None
            if callback:
                callback()


class Throttle:
    """Calls at once, and in a storm so seldom that it takes no more than a fifth of the time."""

    PAUSES_PER_CALL = 4.0  # the pause after a call, in durations of that call

    def __init__(self, loop: Loop, callback: Callable[[], None]) -> None:
        self._loop = loop
        self._callback = callback
        self._not_before = float("-inf")
        self._later: Timer | None = None

    def soon(self) -> None:
        """Now, or when the pause is over."""
        if self._loop.clock.now().mono >= self._not_before:
            self.now()
        elif self._later is None:
            self._later = self._loop.at(self._not_before, self.now)

    def now(self) -> None:
        """Whatever the pause; what was put off is done with it."""
        if self._later:
            self._later.cancel()
            self._later = None
        began = self._loop.clock.now().mono
        self._callback()
        ended = self._loop.clock.now().mono
        self._not_before = ended + self.PAUSES_PER_CALL * (ended - began)
