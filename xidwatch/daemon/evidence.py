"""One recorder for each evidence directory, handled as one.

A second directory on another device is for the night in which the first one's disk dies with the GPUs: every record
and every dump goes to both, and what is on either is durable. The first directory is the state directory; only when it
does not say what it holds in time is another believed about the past.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path

from xidwatch.daemon.loop import Loop
from xidwatch.daemon.nursery import Nursery
from xidwatch.daemon.processes import Abandoned
from xidwatch.daemon.recording import Recording
from xidwatch.records.baseline import Baseline
from xidwatch.records.recovery import RecoveredRecord
from xidwatch.records.samples import Row

Numbers = tuple[int, ...]  # of one record, in each recorder's own count


class Evidence:
    """`on_recovered` comes from the first directory; `on_trouble(directory, text or None)`, `on_dropped(directory, frames)` from any."""

    def __init__(
        self,
        loop: Loop,
        nursery: Nursery,
        directories: tuple[Path, ...],
        options: Mapping[str, object],
        on_recovered: Callable[[RecoveredRecord], None],
        on_trouble: Callable[[Path, str | None], None],
        on_dropped: Callable[[Path, int], None],
    ) -> None:
        self.directories = directories
        self._on_recovered = on_recovered
        self._found: dict[Path, RecoveredRecord] = {}
        self._recorders: dict[Path, Recording] = {}
        for directory in directories:
            # A further one must not be made from nothing: it would be the mount point of a disk that is not there.
            mine = {**options, "state_dir": str(directory), "make_parents": directory == directories[0]}
            recovered, trouble = self._listeners(directory, on_trouble)
            self._recorders[directory] = recorder = Recording(loop, nursery, mine, recovered, trouble)
            recorder.on_dropped = partial(on_dropped, directory)

    def _listeners(
        self, directory: Path, on_trouble: Callable[[Path, str | None], None]
    ) -> tuple[Callable[[RecoveredRecord], None], Callable[[str | None], None]]:
        def recovered(record: RecoveredRecord) -> None:
            self._found[directory] = record
            if directory == self.directories[0]:
                self._on_recovered(record)

        return recovered, lambda text: on_trouble(directory, text)

    @property
    def _first(self) -> Recording:
        return self._recorders[self.directories[0]]

    def second_best(self) -> RecoveredRecord | None:
        """What another directory says about the past, when the first does not answer: the one that knows most."""
        return max(self._found.values(), key=lambda record: record.next_id, default=None)

    # ---------------------------------------------------------------------------------------------------- handing over

    def journal(self, record: Mapping[str, object]) -> Numbers:
        """A journal record; what to wait for."""
        return tuple(recorder.journal(record) for recorder in self._recorders.values())

    def sample(self, row: Row) -> None:
        """One CSV row."""
        for recorder in self._recorders.values():
            recorder.sample(row)

    def baseline(self, learnt: Baseline) -> None:
        """The provisional baseline."""
        for recorder in self._recorders.values():
            recorder.baseline(learnt)

    def log(self, priority: int, text: str, fields: Mapping[str, object]) -> None:
        """A line for people; there is one log."""
        self._first.log(priority, text, fields)

    def publish(self, path: str, text: str) -> None:
        """A small file that need not survive."""
        self._first.publish(path, text)

    def when_durable(self, numbers: Numbers, seconds: float, callback: Callable[[bool], None]) -> None:
        """Call once: True as soon as one directory has it, False when none has in time."""
        waiting = list(numbers)

        def answered(durable: bool) -> None:
            if not waiting:
                return
            waiting.pop()
            if durable:
                waiting.clear()
            if durable or not waiting:
                callback(durable)

        for recorder, number in zip(self._recorders.values(), numbers, strict=True):
            recorder.when_durable(number, seconds, answered)

    def when_first_durable(self, numbers: Numbers, seconds: float, callback: Callable[[bool], None]) -> None:
        """Call once: whether the first has it in time, which a successor believes about the past."""
        self._first.when_durable(numbers[0], seconds, callback)

    def when_everywhere(self, numbers: Numbers, seconds: float, callback: Callable[[list[Path]], None]) -> None:
        """Call once, when every directory has it or has not had it in time: with those that have not."""
        waiting = list(self.directories)
        lacking: list[Path] = []

        def answered(directory: Path, durable: bool) -> None:
            waiting.remove(directory)
            lacking.extend([] if durable else [directory])
            if not waiting:
                callback(lacking)

        for directory, number in zip(self.directories, numbers, strict=True):
            self._recorders[directory].when_durable(number, seconds, partial(answered, directory))

    # ------------------------------------------------------------------------------------------------------- processes

    def started(self, request: int, pid: int, start_ticks: int) -> bool:
        """The nursery says who was born; False when it is no recorder."""
        return any(recorder.started(request, pid, start_ticks) for recorder in self._recorders.values())

    def as_processes(self) -> list[Abandoned]:
        """For the successor."""
        return [process for recorder in self._recorders.values() for process in recorder.as_process()]

    def behind_seconds(self, now: float) -> dict[str, float]:
        """Age of the oldest record not yet durable, by recorder: `recorder`, `recorder-2`, ..."""
        return {
            "recorder" if number == 1 else f"recorder-{number}": recorder.behind_seconds(now)
            for number, recorder in enumerate(self._recorders.values(), start=1)
        }

    def finish(self, ended: Callable[[], None]) -> None:
        """Nothing more will come; `ended` is called when all recorders have written all and left."""
        waiting = list(self._recorders.values())

        def one_ended() -> None:
            waiting.pop()
            if not waiting:
                ended()

        for recorder in self._recorders.values():
            recorder.finish(one_ended)
