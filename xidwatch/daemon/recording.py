"""The loop's side of the recorder process: what goes to disk, without ever waiting for a disk.

Everything handed over is numbered and kept until the recorder says it is durable. A recorder that dies is replaced
and gets all that was not; one that hangs on a frozen disk is left alone (a second would hang beside it), the backlog
grows to its bound, and from then on the newest rows and repeats are dropped and counted, edges last of all.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from xidwatch.daemon.channel import Channel
from xidwatch.daemon.loop import Loop, Timer
from xidwatch.daemon.nursery import Nursery
from xidwatch.daemon.processes import Abandoned
from xidwatch.records import frames
from xidwatch.records.baseline import Baseline
from xidwatch.records.recovery import RecoveredRecord
from xidwatch.records.samples import Row

SOFT_LIMIT = 8 * 1024 * 1024  # bytes not yet durable: past this no more rows and log lines
HARD_LIMIT = 16 * 1024 * 1024  # past this not even edges
RESTART_SECONDS = 1.0
RECORDER = "recorder"  # what the process is called
DROPPED = 0  # the number of what was not kept: never durable


@dataclass(frozen=True, slots=True)
class _Kept:
    number: int
    line: bytes
    since: float  # monotonic seconds
    is_journal: bool


@dataclass(slots=True)
class _Waiting:
    number: int
    callback: Callable[[bool], None] | None
    timer: Timer | None = None


class Recording:
    """Numbers, queues and re-sends.

    `on_recovered` comes once per recorder, `on_trouble(text or None)` whenever it changes, `on_dropped(count)` when there is
    room again after so many frames did not fit into the backlog.
    """

    def __init__(
        self,
        loop: Loop,
        nursery: Nursery,
        options: Mapping[str, object],
        on_recovered: Callable[[RecoveredRecord], None],
        on_trouble: Callable[[str | None], None],
    ) -> None:
        self._loop = loop
        self._nursery = nursery
        self._options = options
        self._on_recovered = on_recovered
        self._on_trouble = on_trouble
        self._troubled = False
        self._next = 1
        self._durable_to = 0
        self._journal_to = 0  # of the journal all up to this is durable, even where rows before it are not
        self._unacknowledged: deque[_Kept] = deque()
        self._bytes = 0
        self._in_flight = 0  # of the unacknowledged, counted from the oldest
        self._waiting: deque[_Waiting] = deque()
        self._finishing = False
        self._ended: Callable[[], None] | None = None
        self.on_dropped: Callable[[int], None] = lambda _count: None
        self._dropped = 0  # not told yet
        self.pid = 0
        self.start_ticks = 0
        self._start()

    # ------------------------------------------------------------------------------------------------------- handing over

    def journal(self, record: Mapping[str, object]) -> int:
        """A journal record; the number to wait for."""
        return self._keep(lambda number: frames.journal(number, record), HARD_LIMIT, is_journal=True)

    def sample(self, row: Row) -> int:
        """One CSV row."""
        return self._keep(lambda number: frames.sample(number, row), SOFT_LIMIT)

    def baseline(self, learnt: Baseline) -> int:
        """The provisional baseline, replaced as a whole."""
        return self._keep(lambda number: frames.baseline(number, learnt), SOFT_LIMIT)

    def log(self, priority: int, text: str, fields: Mapping[str, object]) -> None:
        """A line for people (syslog priority 0 to 7). Lost rather than late."""
        if self._channel.queued < SOFT_LIMIT:
            self._channel.send(frames.log(priority, text, fields))

    def publish(self, path: str, text: str) -> None:
        """Replace a small file that need not survive; for a run directory that is no tmpfs."""
        if self._channel.queued < SOFT_LIMIT:
            self._channel.send(frames.publish(path, text))

    def _keep(self, frame_of: Callable[[int], bytes], limit: int, *, is_journal: bool = False) -> int:
        frame = frame_of(self._next)
        if self._bytes + len(frame) > limit:
            self._dropped += 1
            return DROPPED
        number, self._next = self._next, self._next + 1
        self._unacknowledged.append(_Kept(number, frame, self._loop.clock.now().mono, is_journal))
        self._bytes += len(frame)
        self._send()
        return number

    def _send(self) -> None:
        while self._in_flight < min(frames.WINDOW, len(self._unacknowledged)):
            self._channel.send(self._unacknowledged[self._in_flight].line)
            self._in_flight += 1

    # ------------------------------------------------------------------------------------------------------------ durable

    def when_durable(self, number: int, seconds: float, callback: Callable[[bool], None]) -> None:
        """Call once: with True when `number` is on disk, with False when `seconds` pass first or it was dropped."""
        if number <= self._durable_to or self._is_ahead(number):
            callback(number != DROPPED)
            return
        waiting = _Waiting(number, callback)
        waiting.timer = self._loop.after(seconds, lambda: self._settle(waiting, durable=False))
        self._waiting.append(waiting)

    def _settle(self, waiting: _Waiting, *, durable: bool) -> None:
        callback, waiting.callback = waiting.callback, None
        if waiting.timer:
            waiting.timer.cancel()
        if callback:
            callback(durable)

    def _durable(self, number: int) -> None:
        self._durable_to = max(self._durable_to, number)
        while self._unacknowledged and self._unacknowledged[0].number <= number:
            self._bytes -= len(self._unacknowledged.popleft().line)
            self._in_flight -= 1
        while self._waiting and self._waiting[0].number <= number:
            self._settle(self._waiting.popleft(), durable=True)
        self._send()
        if self._dropped and self._bytes < SOFT_LIMIT // 2:
            dropped, self._dropped = self._dropped, 0
            self.on_dropped(dropped)

    def _journal_durable(self, number: int) -> None:
        """Rows or the baseline are in trouble, the journal is not: its frames are neither kept nor waited for."""
        self._journal_to = max(self._journal_to, number)
        gone = {kept.number for kept in self._unacknowledged if kept.is_journal and kept.number <= number}
        self._unacknowledged = deque(kept for kept in self._unacknowledged if kept.number not in gone)
        self._bytes = sum(len(kept.line) for kept in self._unacknowledged)
        self._in_flight -= len(gone)
        settled = [waiting for waiting in self._waiting if waiting.number in gone]
        self._waiting = deque(waiting for waiting in self._waiting if waiting.number not in gone)
        for waiting in settled:
            self._settle(waiting, durable=True)

    def _is_ahead(self, number: int) -> bool:
        return number <= self._journal_to and all(kept.number != number for kept in self._unacknowledged)

    def behind_seconds(self, now: float) -> float:
        """Age of the oldest record that is not durable yet, 0 when all are."""
        return now - self._unacknowledged[0].since if self._unacknowledged else 0.0

    # -------------------------------------------------------------------------------------------------------- the process

    def _start(self) -> None:
        self.request, sock = self._nursery.start("xidwatch.daemon.recorder:main", RECORDER, self._options)
        self.pid = 0
        self._channel = Channel(self._loop, sock, self._line, self._gone, max_line=frames.MAX_LINE)
        self._in_flight = 0
        self._send()

    def started(self, request: int, pid: int, start_ticks: int) -> bool:
        """The nursery says who was born; False when it is not the recorder."""
        if request == self.request:
            self.pid, self.start_ticks = pid, start_ticks
        return request == self.request

    def as_process(self) -> list[Abandoned]:
        """For the successor: it must not fear a recorder stuck on a frozen disk, but it should know of it."""
        return [Abandoned(RECORDER, self.pid, self.start_ticks, 0.0, holds_evidence=True)] if self.pid else []

    def _line(self, line: bytes) -> None:
        try:
            answer = frames.decode_answer(line)
        except ValueError as error:
            self._channel.close()
            self._gone(f"it said {error}")
            return
        if answer.durable is not None:
            if answer.journal_durable is not None:
                self._journal_durable(answer.journal_durable)
            self._durable(answer.durable)
        elif answer.recovered is not None:
            self._tell_trouble(None)
            self._on_recovered(answer.recovered)
        elif answer.about_trouble:
            self._tell_trouble(answer.trouble.text if answer.trouble else None)

    def _tell_trouble(self, text: str | None) -> None:
        if text or self._troubled:
            self._troubled = bool(text)
            self._on_trouble(text)

    def _gone(self, why: str) -> None:
        if self._finishing:
            if self._ended:
                self._ended()
            return
        self._tell_trouble(f"the recorder ended{': ' + why if why else ''}; starting another")
        self._loop.after(RESTART_SECONDS, self._start)

    def finish(self, ended: Callable[[], None]) -> None:
        """Nothing more will come; `ended` is called when the recorder has written all and left."""
        self._finishing = True
        self._ended = ended
        self._channel.finish()
