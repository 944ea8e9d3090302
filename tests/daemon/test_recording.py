"""Handing over to the recorder without ever waiting for it, with the test in the recorder's place."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.fakes.nursery import Child, Stage
from xidwatch.daemon import recording
from xidwatch.daemon.recording import DROPPED, RESTART_SECONDS, Recording
from xidwatch.records import baseline, frames
from xidwatch.records.recovery import RecoveredRecord
from xidwatch.records.samples import Row

EMPTY: dict[str, object] = {"conditions": [], "incident": None, "kmsg_seq": None, "next_id": 5, "last_boot_id": None, "stopped": None}


class Desk:
    """The loop's side under test, what it told, and the recorders it has asked for."""

    def __init__(self, stage: Stage) -> None:
        self.stage = stage
        self.recovered: list[RecoveredRecord] = []
        self.troubles: list[str | None] = []
        self.dropped: list[int] = []
        self.recording = Recording(stage.loop, stage.nursery, {"log": "plain"}, self.recovered.append, self.troubles.append)
        self.recording.on_dropped = self.dropped.append

    @property
    def recorder(self) -> Child:
        """The latest."""
        return self.stage.nursery.children[-1]

    def note(self, text: str = "x") -> int:
        return self.recording.journal({"id": "r-000001", "note": {"text": text}})

    def row(self, tick: int = 1) -> int:
        return self.recording.sample(Row(time="2026-09-17T02:10:08.412Z", boot_id="b", tick=tick, cells={"host:load_1m": "0.2"}))

    def durable(self, number: int) -> None:
        self.recorder.says({"durable": number})
        self.stage.turn()

    def received(self) -> list[int]:
        """The numbers of the frames that reached the recorder since the last look."""
        self.stage.turn()
        return [frame["n"] for frame in self.recorder.hears()]


@pytest.fixture
def desk() -> Iterator[Desk]:
    with Stage() as stage:
        yield Desk(stage)


def test_everything_is_numbered_and_sent_in_order(desk: Desk) -> None:
    """Journal records, rows and the baseline share one count; lines for people have none."""
    assert (desk.recorder.target, desk.recorder.options) == ("xidwatch.daemon.recorder:main", {"log": "plain"})
    learnt = baseline.learnt(desk.stage.clock.now(), "b", {}, {}, {})
    numbers = [desk.note(), desk.row(), desk.recording.baseline(learnt)]
    desk.recording.log(6, "tick 1", {"tick": "1"})
    desk.recording.publish("/run/x/state.json", "{}")
    desk.stage.turn()
    sent = desk.recorder.hears()
    assert numbers == [1, 2, 3]
    assert [(frame["n"], next(key for key in frame if key != "n")) for frame in sent] == [
        (1, "journal"), (2, "sample"), (3, "baseline"), (0, "log"), (0, "publish"),
    ]  # fmt: skip


def test_who_waits_for_durability_is_told_once(desk: Desk) -> None:
    """When the recorder says so, or when the time is up; what comes later changes nothing."""
    told: list[tuple[str, bool]] = []
    first, second = desk.note(), desk.note()
    desk.recording.when_durable(first, 2.0, lambda durable: told.append(("first", durable)))
    desk.recording.when_durable(second, 2.0, lambda durable: told.append(("second", durable)))
    desk.durable(first)
    assert told == [("first", True)]
    desk.stage.passes(2.0)
    assert told == [("first", True), ("second", False)]
    desk.durable(second)
    assert len(told) == 2


def test_what_is_on_the_disk_already_need_not_be_waited_for(desk: Desk) -> None:
    """Asking late is no reason to be told late."""
    told: list[bool] = []
    number = desk.note()
    desk.durable(number)
    desk.recording.when_durable(number, 2.0, told.append)
    assert told == [True]


def test_rows_that_cannot_be_written_hold_up_no_record(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    """While the samples are in trouble the journal's records are acknowledged, make room, and are not sent to a successor again."""
    monkeypatch.setattr(frames, "WINDOW", 3)
    told: list[bool] = []
    stuck, first = desk.row(), desk.note()
    desk.recording.when_durable(first, 2.0, told.append)
    further = [desk.note() for _ in range(3)]
    assert desk.received() == [stuck, first, further[0]]
    desk.recorder.says({"durable": stuck - 1, "journal_durable": further[0]})
    desk.stage.turn()
    assert told == [True]
    desk.recording.when_durable(further[0], 2.0, told.append)
    assert told == [True, True]
    assert desk.received() == further[1:]
    desk.recorder.dies()
    desk.stage.turn()
    desk.stage.passes(RESTART_SECONDS)
    assert desk.received() == [stuck, *further[1:]]


def test_no_more_than_a_window_is_on_its_way(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    """The rest waits here, where it can be bounded; each acknowledgement lets as many follow."""
    monkeypatch.setattr(frames, "WINDOW", 3)
    for _ in range(7):
        desk.note()
    assert desk.received() == [1, 2, 3]
    desk.durable(2)
    assert desk.received() == [4, 5]
    desk.durable(5)
    assert desk.received() == [6, 7]
    assert desk.recording.behind_seconds(desk.stage.now + 4.0) == 4.0
    desk.durable(7)
    assert desk.recording.behind_seconds(desk.stage.now + 4.0) == 0.0


def test_a_successor_gets_all_that_was_not_durable(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    """In the old order and before anything new, within its own window; waiting for durability goes on."""
    monkeypatch.setattr(frames, "WINDOW", 3)
    told: list[bool] = []
    for _ in range(5):
        desk.note()
    desk.recording.when_durable(4, 10.0, told.append)
    desk.durable(1)
    desk.recorder.dies()
    desk.stage.turn()
    desk.note()
    assert len(desk.stage.nursery.children) == 1
    desk.stage.passes(RESTART_SECONDS)
    assert len(desk.stage.nursery.children) == 2
    assert desk.received() == [2, 3, 4]
    desk.durable(4)
    assert desk.received() == [5, 6]
    assert told == [True]


def test_a_death_is_a_trouble_that_ends_with_the_successors_first_word(desk: Desk) -> None:
    """Each change is told once; a recorder that never had trouble is not told to be over it."""
    desk.recorder.says({"recovered": EMPTY}, {"trouble": None})
    desk.stage.turn()
    assert (desk.troubles, [record.next_id for record in desk.recovered]) == ([], [5])
    desk.recorder.dies()
    desk.stage.turn()
    desk.stage.passes(RESTART_SECONDS)
    desk.recorder.says({"recovered": EMPTY})
    desk.stage.turn()
    assert desk.troubles == ["the recorder ended; starting another", None]
    desk.recorder.says({"trouble": {"what": "journal", "errno": 28, "text": "No space left on device"}}, {"trouble": None})
    desk.stage.turn()
    assert desk.troubles[2:] == ["No space left on device", None]


def test_one_that_talks_rubbish_is_replaced(desk: Desk) -> None:
    """The daemon does not die of a line it cannot read."""
    desk.recorder.raw(b"{]\n")
    desk.stage.turn()
    assert desk.recorder.is_let_go()
    assert (desk.troubles[0] or "").startswith("the recorder ended: it said ")
    desk.stage.passes(RESTART_SECONDS)
    assert len(desk.stage.nursery.children) == 2


def test_a_full_backlog_drops_rows_before_edges_and_counts_them(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    """What does not fit is never called durable; how much it was is told when there is room again."""
    told: list[bool] = []
    monkeypatch.setattr(recording, "SOFT_LIMIT", 1000)
    monkeypatch.setattr(recording, "HARD_LIMIT", 2000)
    while desk.note("x" * 100) and desk.recording._bytes < 1000:
        pass
    assert desk.row() == DROPPED
    last = desk.note("an edge")
    assert last != DROPPED
    while number := desk.note("x" * 100):
        last = number
    desk.recording.when_durable(DROPPED, 2.0, told.append)
    assert (told, desk.dropped) == ([False], [])
    desk.durable(last)
    assert desk.dropped == [2]
    assert desk.row() == last + 1
    desk.durable(last + 1)
    assert desk.dropped == [2]


def test_lines_for_people_are_lost_rather_than_late(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    """While the recorder does not read, they are not piled up without bound; records are, up to their own bound."""
    monkeypatch.setattr(recording, "SOFT_LIMIT", 100_000)
    for _ in range(3000):
        desk.recording.log(6, "x" * 200, {})
    assert desk.recording._channel.queued < 110_000
    assert desk.note() != DROPPED
    texts: list[dict[str, Any]] = []
    for _ in range(50):
        desk.stage.turn()
        texts += desk.recorder.hears()
    assert texts[-1]["n"] == 1


def test_its_leave_is_waited_for(desk: Desk) -> None:
    """At the end everything is sent, then the end of input, and the recorder's own end is told; none takes its place."""
    ended: list[bool] = []
    desk.note()
    desk.recording.finish(lambda: ended.append(True))
    assert desk.received() == [1]
    assert desk.recorder.told_to_leave
    assert ended == []
    desk.recorder.dies()
    desk.stage.turn()
    desk.stage.passes(2 * RESTART_SECONDS)
    assert (ended, desk.troubles, len(desk.stage.nursery.children)) == ([True], [], 1)


def test_the_successor_is_told_who_holds_evidence(desk: Desk) -> None:
    """By number and beginning, and that it is not to be killed."""
    assert desk.recording.as_process() == []
    assert not desk.recording.started(99, 1, 1)
    assert desk.recording.started(desk.recorder.request, 4711, 47110)
    (process,) = desk.recording.as_process()
    assert (process.name, process.pid, process.start_ticks, process.holds_evidence) == ("recorder", 4711, 47110, True)
