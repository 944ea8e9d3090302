"""From the kernel log's descriptor to events for the watch, a bounded number of records a turn."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from xidwatch.core.kernel import Parser, XidRule, is_driver_load
from xidwatch.core.messages import DriverRenewed, Input, KernelLogUnreadable, KernelRead
from xidwatch.core.model import KernelEvent, KernelMessage, Missing, Moment
from xidwatch.daemon.kernel_log import Batch, KernelLog
from xidwatch.daemon.loop import Loop, Timer

RECORDS_PER_TURN = 256
TURNS_TO_CATCH_UP = 32  # 8,192 records, about a tenth of a second; the rest comes in turns of the loop


class KernelSense:
    """Reads, parses, and tells `on_input`; every record also goes to `on_message`, for the ring that dumps are made from.

    `lost` counts records that were never seen or could not be read. `on_closed(why)` is called if the log ends under way.
    """

    def __init__(
        self, loop: Loop, xids: Mapping[int, XidRule], on_message: Callable[[KernelMessage], None], on_input: Callable[[Input], None]
    ) -> None:
        self._loop = loop
        self._on_message = on_message
        self._on_input = on_input
        self._log: KernelLog | None = None
        self._path = ""
        self._history_until: int | None = None
        self._first = True  # no record has been seen yet
        self._live = False  # all that was there at the start has been read
        self._again: Timer | None = None
        self.on_closed: Callable[[str], None] = lambda _why: None
        self.parser = Parser(xids)
        self.lost = 0

    def open(self, path: str, history_until: int | None) -> str:
        """Start reading at the oldest record; those up to `history_until` were dealt with by a predecessor. Returns why not, or nothing."""
        self._path = path
        self._history_until = history_until
        try:
            self._log = KernelLog.open(path)
        except PermissionError:
            self._on_input(KernelLogUnreadable(Missing.DENIED))
            return f"{path}: permission denied. Xid lines cannot be seen. Run as root (CAP_SYSLOG), or set kernel.dmesg_restrict=0"
        except OSError as error:
            self._on_input(KernelLogUnreadable(Missing.ABSENT))
            return f"{path}: {error.strerror}. Xid lines cannot be seen. Is /dev/kmsg there (containers need it bound in)?"
        try:
            self._loop.watch(self._log, self._read)
        except OSError:  # epoll takes no regular file and no directory
            self.close()
            self._on_input(KernelLogUnreadable(Missing.UNSUPPORTED))
            return f"{path}: cannot be followed. Xid lines cannot be seen. kernel_log has to name the log device or a pipe, not a file"
        return ""

    def catch_up(self) -> None:
        """What is there already, before the first tick; the rest of an endless flood comes in turns of the loop."""
        for _ in range(TURNS_TO_CATCH_UP):
            if not self._turn():
                return
        self._again = self._loop.after(0.0, self._read_more)

    def close(self) -> None:
        """No more."""
        if self._again:
            self._again.cancel()
            self._again = None
        if self._log is not None:
            self._loop.forget(self._log)
            self._log.close()
            self._log = None

    def _read(self) -> None:
        if self._again is None and self._turn():  # one continuation at a time: a flood gets its share of each turn and no more
            self._again = self._loop.after(0.0, self._read_more)

    def _read_more(self) -> None:
        self._again = None
        self._read()

    def _turn(self) -> bool:
        if self._log is None:
            return False
        batch = self._log.read(RECORDS_PER_TURN)
        self._take(batch)
        self._live = self._live or not batch.more
        if batch.closed:
            self.close()
            self._on_input(KernelLogUnreadable(Missing.ABSENT))
            self.on_closed(f"{self._path}: {batch.error or 'end of file'}. Xid lines cannot be seen from here on")
        return batch.more and self._log is not None

    def _take(self, batch: Batch) -> None:
        now = self._loop.clock.now()
        lost = batch.lost + batch.malformed + self._lost_before(batch.messages)
        self.lost += lost
        events: list[tuple[Moment, KernelEvent]] = []
        history = False
        for message in batch.messages:
            self._on_message(message)
            was, history = history, self._is_history(message)
            if was != history and events:
                self._tell(events, message.seq - 1, now, history=was)
                events = []
            at = now if self._live else written_at(message, now)
            if message.from_kernel and is_driver_load(message.text) and not history:
                self._tell(events, message.seq, now, history=False)
                events = []
                self._on_input(DriverRenewed(at, message.text))
            events += [(at, event) for event in self.parser.feed(message)]
        if lost or batch.messages:
            self._tell(events, batch.messages[-1].seq if batch.messages else None, now, lost=lost, history=history)

    def _is_history(self, message: KernelMessage) -> bool:
        """Dealt with by a predecessor. Only the backlog can be: a position beyond it is damage, and must not blind this run."""
        return not self._live and self._history_until is not None and message.seq <= self._history_until

    def _lost_before(self, messages: tuple[KernelMessage, ...]) -> int:
        """At the very first record: how many the ring has dropped since a predecessor last said how far it had come."""
        if not self._first or not messages:
            return 0
        self._first = False
        return max(0, messages[0].seq - self._history_until - 1) if self._history_until is not None else 0

    def _tell(
        self, events: list[tuple[Moment, KernelEvent]], last_seq: int | None, now: Moment, *, lost: int = 0, history: bool = False
    ) -> None:
        self._on_input(KernelRead(tuple(events), last_seq, now, lost, history))


def written_at(message: KernelMessage, now: Moment) -> Moment:
    """When a record of the backlog was written, by its own stamp: approximate, since that clock drifts and stops in suspend.

    A record that is read as it comes was written now, whatever its stamp says after a year of drift.
    """
    age = max(0.0, now.mono - message.usec / 1e6)
    return Moment(now.wall - age, now.mono - age)
