"""A clock that goes only when it is told to, and a loop that tells it."""

from __future__ import annotations

import socket
from collections.abc import Callable

from xidwatch.core.model import Moment
from xidwatch.daemon.loop import Loop

MOST_TURNS = 100_000  # at one instant: more is a loop that keeps itself busy


class VirtualClock:
    """Both clocks of one boot. `boots_at`: the wall clock at monotonic 0. The wall clock may be set, the other never goes back."""

    def __init__(self, boot_id: str, boots_at: float, pace: Callable[[float], None] = lambda _seconds: None) -> None:
        self.boot_id = boot_id
        self._ahead = boots_at
        self._mono = 0.0
        self._pace = pace

    def now(self) -> Moment:
        """As it stands."""
        return Moment(wall=self._ahead + self._mono, mono=self._mono)

    def mono(self) -> float:
        """Monotonic seconds."""
        return self._mono

    def wall(self) -> float:
        """Wall seconds."""
        return self._ahead + self._mono

    def go_to(self, mono: float) -> None:
        """Forward to this monotonic time; a time that has passed changes nothing. `pace` is called with the seconds between."""
        if mono > self._mono:
            self._pace(mono - self._mono)
            self._mono = mono

    def set_wall(self, by_seconds: float) -> None:
        """Somebody sets the clock."""
        self._ahead += by_seconds


class OwnTime:
    """The time of one child: where it waits, it is ahead of the clock by what it has waited, and nobody else waits with it."""

    def __init__(self, clock: VirtualClock) -> None:
        self._clock = clock
        self.boot_id = clock.boot_id
        self.waited = 0.0  # seconds, in the request under way

    def now(self) -> Moment:
        """Both clocks."""
        return Moment(self.wall(), self.mono())

    def mono(self) -> float:
        """Monotonic seconds, as a probe asks for them."""
        return self._clock.mono() + self.waited

    def wall(self) -> float:
        """Wall seconds, as a probe asks for them."""
        return self._clock.wall() + self.waited

    def sleep(self, seconds: float) -> None:
        """What a probe that waits does here."""
        self.waited += seconds


class VirtualLoop(Loop):
    """The daemon's loop. What is ready is served; when nothing is, time jumps to the next timer."""

    def __init__(self, clock: VirtualClock) -> None:
        super().__init__(clock)
        self._virtual = clock

    def run_until(self, mono: float) -> None:
        """Everything that is due before this monotonic time; then it is that time."""
        at_once = 0
        while (due := self._settled()) is not None and due < mono:
            at_once = 0 if due > self._virtual.mono() else at_once + 1
            self._virtual.go_to(due)
            self._fire_due()
            if at_once > MOST_TURNS:
                raise self._restless()
        self._virtual.go_to(mono)

    def settle(self) -> None:
        """Everything that is ready, and all that is due by now."""
        while (due := self._settled()) is not None and due <= self._virtual.mono():
            self._fire_due()

    def _settled(self) -> float | None:
        """When the next timer is due, after everything that is ready has been served."""
        for _ in range(MOST_TURNS):
            if not self._serve(0.0):
                return self._next_due()
        raise self._restless()

    def _restless(self) -> RuntimeError:
        return RuntimeError(f"the loop does not come to rest at {self._virtual.mono():g} s after boot")

    def close(self) -> None:
        """Nobody turns it any more; what it still watches is closed, as the end of the process would."""
        for key in list(self._selector.get_map().values()):
            if isinstance(key.fileobj, socket.socket):
                key.fileobj.close()
        self._selector.close()
