"""Work that waits within itself, on the loop: it goes on only while the loop waits for it, so that everything has one order.

    strand = Strand(lambda pause: Stop(service, deadline, clock.mono, pause).run(), loop.after)
    strand.go_on()                      as far as its first pause; from there the loop's timers take it on
    strand.end()                        its pause raises Cut; nothing of it is left

Law: a thread, of which never two run at once.
"""

from __future__ import annotations

import threading
from collections.abc import Callable

Pause = Callable[[float], None]


class Cut(Exception):
    """Raised in a pause: nobody listens any more."""


class Strand:
    """`after(seconds, then)` sets a timer. What the work raises is raised by `go_on`."""

    def __init__(self, work: Callable[[Pause], None], after: Callable[[float, Callable[[], None]], object]) -> None:
        self._work = work
        self._after = after
        self._theirs, self._ours = threading.Semaphore(0), threading.Semaphore(0)
        self._cut = self._over = False
        self._failure: BaseException | None = None
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def go_on(self) -> None:
        """As far as its next pause, or its end."""
        if self._over:
            return
        self._theirs.release()
        self._ours.acquire()
        if self._failure:
            failure, self._failure = self._failure, None
            raise failure

    def end(self) -> None:
        """Once and for all. From within the work it is the next pause that ends it."""
        self._cut = True
        if threading.current_thread() is not self._thread:
            self.go_on()

    def _run(self) -> None:
        self._theirs.acquire()
        try:
            if not self._cut:
                self._work(self._pause)
        except Cut:
            pass
        except BaseException as failure:  # noqa: BLE001  handed over, whatever it is
            self._failure = failure
        self._over = True
        self._ours.release()

    def _pause(self, seconds: float) -> None:
        if not self._cut:
            self._after(seconds, self.go_on)
            self._ours.release()
            self._theirs.acquire()
        if self._cut:
            raise Cut
