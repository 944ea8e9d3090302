"""Several evidence directories handled as one."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from xidwatch.daemon import evidence
from xidwatch.daemon.evidence import Evidence
from xidwatch.records.recovery import RecoveredRecord

FIRST, SECOND = Path("/first"), Path("/second")


class FakeRecording:
    """Stands for one recorder process: numbers what it is given, becomes durable when the test says so."""

    made: list[FakeRecording]

    def __init__(self, _loop: object, _nursery: object, options: Mapping[str, object], recovered: Any, trouble: Any) -> None:
        self.options = options
        self.directory = Path(str(options["state_dir"]))
        self.on_dropped: Callable[[int], None] = lambda _count: None
        self.recovered, self.trouble = recovered, trouble
        self.records: list[Mapping[str, object]] = []
        self.logged: list[str] = []
        self.waiting: list[Callable[[bool], None]] = []
        self.ended: Callable[[], None] | None = None
        FakeRecording.made.append(self)

    def journal(self, record: Mapping[str, object]) -> int:
        self.records.append(record)
        return len(self.records)

    def log(self, _priority: int, text: str, _fields: Mapping[str, object]) -> None:
        self.logged.append(text)

    def when_durable(self, _number: int, _seconds: float, callback: Callable[[bool], None]) -> None:
        self.waiting.append(callback)

    def behind_seconds(self, _now: float) -> float:
        return 1.0 if self.directory == FIRST else 7.0

    def finish(self, ended: Callable[[], None]) -> None:
        self.ended = ended


class Rig:
    """An Evidence over two fake recorders, and what it told."""

    def __init__(self) -> None:
        FakeRecording.made = []
        self.past: list[RecoveredRecord] = []
        self.troubles: list[tuple[Path, str | None]] = []
        unused: Any = None  # the fake recorders need neither loop nor nursery
        self.dropped: list[tuple[Path, int]] = []
        self.evidence = Evidence(
            unused,
            unused,
            (FIRST, SECOND),
            {},
            self.past.append,
            lambda directory, text: self.troubles.append((directory, text)),
            lambda directory, count: self.dropped.append((directory, count)),
        )
        self.first, self.second = FakeRecording.made


@pytest.fixture
def rig(monkeypatch: pytest.MonkeyPatch) -> Rig:
    """Two directories."""
    monkeypatch.setattr(evidence, "Recording", FakeRecording)
    return Rig()


def found(next_id: int) -> RecoveredRecord:
    """What a recorder says about the past."""
    return RecoveredRecord(conditions=(), incident=None, kmsg_seq=None, next_id=next_id, last_boot_id=None, stopped=None)


def test_every_record_goes_to_every_directory_and_log_lines_to_one(rig: Rig) -> None:
    """The log is for people, who need it once."""
    rig.evidence.journal({"id": "t-000001"})
    rig.evidence.log(6, "tick 1", {})
    assert rig.first.records == rig.second.records == [{"id": "t-000001"}]
    assert (rig.first.logged, rig.second.logged) == (["tick 1"], [])


def test_a_record_is_durable_as_soon_as_one_directory_has_it(rig: Rig) -> None:
    """The other may hang on a dead disk for ever; its late word changes nothing."""
    said: list[bool] = []
    rig.evidence.when_durable(rig.evidence.journal({}), 2.0, said.append)
    rig.second.waiting[0](True)
    assert said == [True]
    rig.first.waiting[0](False)
    assert said == [True]


def test_a_record_is_late_only_when_no_directory_has_it_in_time(rig: Rig) -> None:
    """One that gives up leaves the other its chance."""
    said: list[bool] = []
    rig.evidence.when_durable(rig.evidence.journal({}), 2.0, said.append)
    rig.first.waiting[0](False)
    assert said == []
    rig.second.waiting[0](False)
    assert said == [False]


def test_what_a_successor_has_to_find_is_durable_in_the_first_directory(rig: Rig) -> None:
    """That one is believed about the past, whatever the other has."""
    said: list[bool] = []
    rig.evidence.when_first_durable(rig.evidence.journal({}), 30.0, said.append)
    assert rig.second.waiting == []
    rig.first.waiting[0](False)
    assert said == [False]


def test_where_a_record_is_not_is_told_when_all_have_had_their_time(rig: Rig) -> None:
    """By directory: that one has it is not enough for whoever asks for all of them."""
    said: list[list[Path]] = []
    rig.evidence.when_everywhere(rig.evidence.journal({}), 2.0, said.append)
    rig.first.waiting[0](True)
    assert said == []
    rig.second.waiting[0](False)
    assert said == [[SECOND]]
    rig.evidence.when_everywhere(rig.evidence.journal({}), 2.0, said.append)
    for recorder in (rig.second, rig.first):
        recorder.waiting[1](True)
    assert said[1] == []


def test_the_past_is_taken_from_the_first_directory(rig: Rig) -> None:
    """A stick that was unplugged for a week answers sooner and knows less."""
    rig.second.recovered(found(5))
    assert rig.past == []
    rig.first.recovered(found(900))
    assert rig.past == [found(900)]


def test_another_directory_is_believed_when_the_first_does_not_answer(rig: Rig) -> None:
    """Its disk hangs; the second one's journal is better than nothing."""
    assert rig.evidence.second_best() is None
    rig.second.recovered(found(5))
    assert rig.evidence.second_best() == found(5)


def test_each_directory_is_watched_by_its_own_name(rig: Rig) -> None:
    """So that the stuck one can be told from the good one."""
    assert rig.evidence.behind_seconds(0.0) == {"recorder": 1.0, "recorder-2": 7.0}
    rig.second.trouble("No space left on device")
    assert rig.troubles == [(SECOND, "No space left on device")]


def test_what_a_directory_never_got_is_told_with_its_name(rig: Rig) -> None:
    """The other may have it."""
    rig.second.on_dropped(12)
    assert rig.dropped == [(SECOND, 12)]


def test_only_the_state_directory_is_made_from_nothing(rig: Rig) -> None:
    """A further one lies on a disk of its own, and a disk that is not mounted must not be invented on the first."""
    assert (rig.first.options["make_parents"], rig.second.options["make_parents"]) == (True, False)


def test_the_end_is_told_when_all_recorders_have_left(rig: Rig) -> None:
    """Not before: the last may still be writing."""
    ends: list[str] = []
    rig.evidence.finish(lambda: ends.append("ended"))
    assert rig.first.ended is not None
    assert rig.second.ended is not None
    rig.second.ended()
    assert ends == []
    rig.first.ended()
    assert ends == ["ended"]
