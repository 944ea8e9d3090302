"""From the journal back to the state, wherever the journal was cut off."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from xidwatch.core.model import Action, ActionKind, Condition, Incident, KernelEvent, Missing, Moment, Severity, Status, Subject, Transition
from xidwatch.records import Damage, journal, recovery

BOOT, NEXT_BOOT = "boot-a", "boot-b"
NOON = 1789646400.0  # 2026-09-17T12:00:00Z
PORT, GPU, KERNEL = Subject("port", "0000:0f:00.0"), Subject("gpu", "0000:11:00.0"), Subject("kernel")
NAME = "20260917T120003Z-bus-lost-0f"


def at(second: float) -> Moment:
    return Moment(NOON + second, 100.0 + second)


def edge(
    number: int, subject: Subject, type_: str, after: Status, incident: str | None = None, severity: Severity = Severity.ERROR
) -> journal.Record:
    before = Status.FALSE if after is Status.TRUE else Status.TRUE
    change = Transition(f"t-{number:06d}", at(number), subject, type_, before, after, severity, f"reason {number}", incident=incident)
    return journal.transition(change, BOOT)


def kernel(number: int, seq: int) -> journal.Record:
    event = KernelEvent(seq=seq, usec=1, kind="xid", severity=Severity.ERROR, text="x")
    return journal.kernel(event, f"k-{number:06d}", at(number), BOOT)


def note(kind: str, number: int, boot_id: str = BOOT) -> journal.Record:
    return journal.record(kind, f"n-{number:06d}", at(number), boot_id, {"version": "0.1.0", "pid": 1})


OPEN = Incident(NAME, at(3), "t-000003", Severity.ERROR, frozenset({(PORT, "ConfigSpaceAllOnes")}))
NIGHT = [
    note("started", 1),
    kernel(2, 500),
    edge(3, PORT, "ConfigSpaceAllOnes", Status.TRUE, NAME),
    journal.opened(OPEN, "i-000004", at(3), BOOT),
    journal.action(Action("a-000005", at(5), ActionKind.TAKE_DUMP, "t-000003", NAME), BOOT),
    edge(6, GPU, "GpuLost", Status.TRUE, NAME, Severity.CRITICAL),
    edge(7, KERNEL, "KernelLogGap", Status.FALSE, NAME),
    kernel(8, 510),
]


def lines(records: list[journal.Record]) -> bytes:
    return b"".join(msgspec.json.encode(record) + b"\n" for record in records)


def entries(records: list[journal.Record]) -> list[journal.Entry]:
    found = [journal.entry(number, msgspec.json.encode(record)) for number, record in enumerate(records, start=1)]
    return [entry for entry in found if isinstance(entry, journal.Entry)]


def test_transitions_become_conditions_and_an_open_incident() -> None:
    """Every condition has its last status and reason; the incident has its bad members, worst severity and its dump."""
    found = recovery.fold(entries(NIGHT), BOOT)
    assert {key: (c.status, c.reason) for key, c in found.conditions.items()} == {
        (PORT, "ConfigSpaceAllOnes"): (Status.TRUE, "reason 3"),
        (GPU, "GpuLost"): (Status.TRUE, "reason 6"),
        (KERNEL, "KernelLogGap"): (Status.FALSE, "reason 7"),
    }
    assert found.conditions[PORT, "ConfigSpaceAllOnes"].since == at(3)
    assert found.incident == Incident(
        NAME, at(3), "t-000003", Severity.CRITICAL, frozenset({(PORT, "ConfigSpaceAllOnes"), (GPU, "GpuLost")}), last_dump=at(5), dumps=1
    )
    assert (found.kmsg_seq, found.next_id, found.last_boot_id, found.dumps) == (510, 9, BOOT, (NOON + 5,))


def test_a_closed_incident_is_closed() -> None:
    """After `closed` no incident is open, whatever an older name says."""
    over = [*NIGHT, journal.closed(OPEN, "i-000009", at(9), BOOT)]
    assert recovery.fold(entries(over), BOOT).incident is None
    other = Incident("another", at(1), "t-000001", Severity.ERROR, frozenset())
    kept = recovery.fold(entries([*NIGHT, journal.closed(other, "i-000009", at(9), BOOT)]), BOOT).incident
    assert kept is not None


def test_an_edge_whose_opening_was_cut_off_is_an_incident_all_the_same() -> None:
    """The first edge is written before `opened`; when only the edge made it to the disk the incident is not forgotten."""
    found = recovery.fold(entries(NIGHT[:3]), BOOT).incident
    assert found == OPEN


def test_a_checkpoint_replaces_what_came_before_it() -> None:
    """State, incident, position and next id start from the checkpoint; what follows is added."""
    saved = journal.checkpoint(
        "c-000020",
        at(20),
        BOOT,
        conditions=[Condition(GPU, "GpuLost", Status.UNKNOWN, at(19), "no answer", Missing.TIMED_OUT)],
        incident=OPEN,
        kmsg_seq=700,
        next_id=40,
        dumps=(NOON + 5,),
    )
    found = recovery.fold(entries([*NIGHT, saved, edge(41, PORT, "ConfigSpaceAllOnes", Status.FALSE)]), BOOT)
    assert found.conditions[GPU, "GpuLost"] == Condition(GPU, "GpuLost", Status.UNKNOWN, at(19), "no answer", Missing.TIMED_OUT)
    assert set(found.conditions) == {(GPU, "GpuLost"), (PORT, "ConfigSpaceAllOnes")}
    assert (found.incident, found.kmsg_seq, found.next_id, found.dumps) == (OPEN, 700, 42, (NOON + 5,))


def test_another_boot_turns_what_was_seen_into_unknown() -> None:
    """TRUE and FALSE say nothing about a new boot; NOT_APPLICABLE stays, the incident stays open, the position is gone."""
    records = [*NIGHT, edge(9, GPU, "GpuReset", Status.NOT_APPLICABLE)]
    found = recovery.fold(entries(records), NEXT_BOOT)
    unknown = (Status.UNKNOWN, "host restarted; not looked at yet", Missing.NOT_ASKED)
    assert {key[1]: (c.status, c.reason, c.missing) for key, c in found.conditions.items()} == {
        "ConfigSpaceAllOnes": unknown,
        "GpuLost": unknown,
        "KernelLogGap": unknown,
        "GpuReset": (Status.NOT_APPLICABLE, "reason 9", None),
    }
    assert {c.since for c in found.conditions.values()} == {Moment(NOON + 9, 0.0)}
    assert found.incident is not None
    assert (found.incident.id, found.incident.began, found.incident.last_dump, found.incident.dumps) == (
        NAME,
        Moment(NOON + 3, 0.0),
        None,
        1,
    )
    assert (found.kmsg_seq, found.next_id, found.last_boot_id) == (None, 10, BOOT)


def test_an_earlier_boot_in_the_same_journal_is_not_mistaken_for_this_one() -> None:
    """Once this boot has any record, what the boot before saw is UNKNOWN and its kernel sequence numbers do not count."""
    found = recovery.fold(entries([*NIGHT, note("started", 9, NEXT_BOOT)]), NEXT_BOOT)
    assert {c.status for c in found.conditions.values()} == {Status.UNKNOWN}
    assert (found.kmsg_seq, found.last_boot_id) == (None, NEXT_BOOT)
    assert found.incident is not None


@pytest.mark.parametrize(
    ("records", "stopped"),
    [
        ([], None),
        ([note("started", 1)], False),
        ([note("started", 1), note("stopped", 2)], True),
        ([note("started", 1), note("stopped", 2), note("note", 3)], True),
        ([note("started", 1), note("stopped", 2), note("started", 3)], False),
        ([kernel(1, 1)], False),
    ],
)
def test_a_run_that_did_not_take_its_leave_is_noticed(records: list[journal.Record], stopped: bool | None) -> None:
    """Only a `stopped` after the last `started` is a clean end; with no run on record there is nothing to say."""
    assert recovery.fold(entries(records), BOOT).stopped is stopped


def test_a_body_that_is_not_understood_changes_nothing() -> None:
    """A status of a newer version, an empty body or a subject without a kind are passed over."""
    odd = [
        journal.record("transition", "t-000009", at(9), BOOT, {"subject": "gpu:x", "type": "GpuLost", "after": "PERHAPS"}),
        journal.record("transition", "t-000010", at(10), BOOT, {"subject": ":x", "type": "GpuLost", "after": "TRUE"}),
        journal.record("checkpoint", "c-000011", at(11), BOOT, {"conditions": [{"subject": "gpu:x"}]}),
        journal.record("closed", "i-000012", at(12), BOOT, {}),
        journal.record("kernel", "k-000013", at(13), BOOT, {"seq": "many"}),
    ]
    found = recovery.fold(entries([*NIGHT, *odd]), BOOT)
    expected = recovery.fold(entries(NIGHT), BOOT)
    assert (found.conditions, found.incident, found.kmsg_seq) == (expected.conditions, expected.incident, expected.kmsg_seq)
    assert found.next_id == 14


@settings(max_examples=200)
@given(st.integers(0, len(lines(NIGHT))))
def test_cutting_the_journal_anywhere_loses_at_most_the_cut_record(tmp_path_factory: pytest.TempPathFactory, position: int) -> None:
    """Whatever byte the power took last, the whole lines before it give exactly their state, and the cut one is told."""
    path = tmp_path_factory.getbasetemp() / "cut.jsonl"
    content = lines(NIGHT)[:position]
    path.write_bytes(content)
    problems: list[Damage] = []
    found = recovery.fold(journal.read_day(path, problems), BOOT)
    assert found == recovery.fold(entries(NIGHT[: content.count(b"\n")]), BOOT)
    assert len(problems) == (0 if content.endswith(b"\n") or not content else 1)


def test_a_message_carries_everything_there_and_back() -> None:
    """What the recorder tells the loop is what the journal said."""
    found = recovery.fold(entries(NIGHT), BOOT)
    told = recovery.RecoveredRecord.of(found, None, [Damage("x.jsonl", 3, "torn")], 12)
    heard = msgspec.json.decode(msgspec.json.encode(told), type=recovery.RecoveredRecord)
    assert heard.recovered() == found
    assert (heard.damage, heard.took_ms) == ((Damage("x.jsonl", 3, "torn"),), 12)


def stored(folder: Path, day: str, *records: journal.Record) -> None:
    (folder / "journal").mkdir(exist_ok=True)
    (folder / "journal" / f"{day}.jsonl").write_bytes(lines(list(records)))


def test_reading_back_ends_a_file_before_the_last_checkpoint(tmp_path: Path) -> None:
    """A year of journals does not delay a start: older files than that are not opened."""
    saved = journal.checkpoint("c-000020", at(20), BOOT, conditions=[], incident=None, kmsg_seq=None, next_id=21)
    stored(tmp_path, "2026-09-14", note("note", 1))
    stored(tmp_path, "2026-09-15", note("note", 2))
    stored(tmp_path, "2026-09-16", saved)
    stored(tmp_path, "2026-09-17", note("note", 22))
    assert [entry.id for entry in recovery.tail(tmp_path, BOOT, [])] == ["n-000002", "c-000020", "n-000022"]


def test_a_storm_before_a_checkpoint_is_not_kept_in_memory(tmp_path: Path) -> None:
    """Only as many records as may be sent again are held from before it; all that follows it is."""
    saved = journal.checkpoint("c-009000", at(20), BOOT, conditions=[], incident=None, kmsg_seq=None, next_id=9001)
    stored(tmp_path, "2026-09-17", *(note("note", number) for number in range(5000)), saved, note("note", 9001))
    found = recovery.tail(tmp_path, BOOT, [])
    assert [entry.id for entry in found[-3:]] == ["n-004999", "c-009000", "n-009001"]
    assert len(found) == recovery.KEPT_BEFORE_CHECKPOINT + 2


def test_a_clock_that_was_set_does_not_change_the_order(tmp_path: Path) -> None:
    """A boot that began with a wall clock in the year 2000 comes after the boot before it, and in its own order."""
    early = journal.record("note", "n-000011", Moment(946684800.0, 5.0), NEXT_BOOT, {})
    late = journal.record("note", "n-000012", Moment(NOON + 60, 9.0), NEXT_BOOT, {})
    stored(tmp_path, "2000-01-01", early)
    stored(tmp_path, "2026-09-17", note("note", 10), late)
    assert [entry.id for entry in recovery.tail(tmp_path, NEXT_BOOT, [])] == ["n-000010", "n-000011", "n-000012"]


def test_the_running_boot_comes_last_whatever_the_clocks_said(tmp_path: Path) -> None:
    """An earlier boot that believed itself in 2099 does not overrule what this one has seen."""
    stored(tmp_path, "2099-01-01", journal.record("note", "n-000001", Moment(4070908800.0, 5.0), BOOT, {}))
    stored(tmp_path, "2026-09-17", note("note", 2, NEXT_BOOT))
    assert [entry.id for entry in recovery.tail(tmp_path, NEXT_BOOT, [])] == ["n-000001", "n-000002"]


def test_within_a_file_the_order_stands() -> None:
    """A kernel edge carries the kernel's earlier time and is still later than the tick that was written before it."""
    tick = edge(20, PORT, "ConfigSpaceAllOnes", Status.FALSE)
    sudden = journal.transition(
        Transition("t-000021", at(19.5), PORT, "ConfigSpaceAllOnes", Status.FALSE, Status.TRUE, Severity.CRITICAL, "kernel"), BOOT
    )
    assert [entry.id for entry in recovery.in_order([entries([tick, sudden])], BOOT)] == ["t-000020", "t-000021"]
