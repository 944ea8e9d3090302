"""From the journal back to the state, wherever the journal was cut off."""

from __future__ import annotations

import json
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


POISON = [
    {"mono_us": 10**400},
    {"mono_us": -1},
    {"mono_us": 2**60},
    {"time": "9999-12-31T23:59:59.9999999-12:00"},
    {"time": "0001-01-01T00:00:00+14:00"},
    {"time": "9999-12-31T23:59:59Z"},
    {"boot_id": "\ud800"},
    {"kernel": {"seq": 2**63}},
    {"kernel": {"seq": -1}},
    {"kernel": {"seq": 10**400}},
    {"checkpoint": {"conditions": [], "incident": None, "kmsg_seq": 2**63, "next_id": 1}},
    {"checkpoint": {"conditions": [], "incident": None, "kmsg_seq": None, "next_id": 2**63}},
    {"checkpoint": {"conditions": [], "incident": None, "kmsg_seq": None, "next_id": -5}},
    {"checkpoint": {"conditions": [], "incident": None, "kmsg_seq": None, "next_id": 1, "dumps": ["9999-12-31T23:59:59-12:00"]}},
    {"checkpoint": {"conditions": [{"subject": "gpu:x", "type": "T", "status": "TRUE", "since": "0001-01-01T00:00:00+14:00",
                                    "since_mono_us": 1, "reason": ""}], "incident": None, "kmsg_seq": None, "next_id": 1}},
    {"checkpoint": {"conditions": [{"subject": "gpu:x", "type": "T", "status": "TRUE", "since": "2026-09-17T00:00:00Z",
                                    "since_mono_us": 10**400, "reason": ""}], "incident": None, "kmsg_seq": None, "next_id": 1}},
]  # fmt: skip


@pytest.mark.parametrize("poison", POISON, ids=[repr(poison)[:60] for poison in POISON])
def test_a_poisoned_line_is_damage_and_all_others_count(tmp_path: Path, poison: dict[str, object]) -> None:
    """Numbers and times that nothing real shows stop nobody: the line is told with its place, and the state is that of the others."""
    line = {**journal.record("note", "p-000001", at(4), BOOT, {}), **poison}
    if len(poison.keys() & set(journal.KINDS)):
        del line["note"]
    content = lines(NIGHT[:4]) + json.dumps(line).encode() + b"\n" + lines(NIGHT[4:])
    (tmp_path / "journal").mkdir()
    (tmp_path / "journal" / "2026-09-17.jsonl").write_bytes(content)
    problems: list[Damage] = []
    found = recovery.fold(recovery.tail(tmp_path, BOOT, problems), BOOT, problems)
    assert found == recovery.fold(entries(NIGHT), BOOT)
    assert [(Path(damage.path).name, damage.line) for damage in problems] == [("2026-09-17.jsonl", 5)]
    told = msgspec.json.encode(recovery.RecoveredRecord.of(found, None, problems, 1))
    assert msgspec.json.decode(told, type=recovery.RecoveredRecord).recovered() == found


NUMBERS = st.integers() | st.sampled_from([2**53, 2**63, 2**64, -(2**63), 10**400, 10**15])
TIMES = st.sampled_from(
    ["9999-12-31T23:59:59.9999999-12:00", "0001-01-01T00:00:00+14:00", "2026-09-17T00:00:00Z", "1970-01-01T00:00:00+01:00"]
)
SCALARS = st.none() | st.booleans() | NUMBERS | st.floats() | st.text(max_size=5) | TIMES
WORDS = st.sampled_from([
    "conditions", "incident", "kmsg_seq", "next_id", "dumps", "subject", "type", "after", "status", "since", "since_mono_us",
    "reason", "seq", "trigger", "severity", "kind", "id", "began", "began_mono_us", "members", "last_dump", "last_dump_mono_us",
])  # fmt: skip
VALUES = SCALARS | st.sampled_from(["TRUE", "error", "TAKE_DUMP", "gpu:x", "i-000001"])
JSON = st.recursive(VALUES, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(WORDS, inner, max_size=8), max_leaves=20)
CONDITION = st.fixed_dictionaries(
    {
        "subject": st.just("gpu:x"),
        "type": st.just("T"),
        "status": st.just("TRUE"),
        "since": TIMES | JSON,
        "since_mono_us": NUMBERS,
        "reason": VALUES,
    }
)
CHECKPOINT = st.fixed_dictionaries(
    {"conditions": st.lists(CONDITION, max_size=2) | JSON, "incident": JSON, "kmsg_seq": NUMBERS | JSON, "next_id": NUMBERS | JSON},
    optional={"dumps": st.lists(TIMES, max_size=2) | JSON},
)
ENVELOPE = {
    "id": st.sampled_from(["t-000001", "t-999999999999999", "t-9999999999999999"]) | JSON,
    "time": TIMES | JSON,
    "boot_id": st.sampled_from([BOOT, NEXT_BOOT]) | JSON,
    "mono_us": NUMBERS | JSON,
}
BODIES: dict[str, st.SearchStrategy[object]] = {
    "incident": st.just("i-000001") | JSON,
    "checkpoint": CHECKPOINT,
    **dict.fromkeys(("transition", "opened", "closed", "action", "kernel", "note"), JSON),
}


@settings(max_examples=400, deadline=None)
@given(st.lists(st.fixed_dictionaries(ENVELOPE, optional=BODIES), max_size=4))
def test_no_line_of_json_stops_a_start(tmp_path_factory: pytest.TempPathFactory, found: list[dict[str, object]]) -> None:
    """Whatever stands under the keys of a record, reading, folding and telling it to the loop never raise."""
    path = tmp_path_factory.getbasetemp() / "any" / "journal" / "2026-09-17.jsonl"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"".join(json.dumps(each).encode() + b"\n" for each in found))
    problems: list[Damage] = []
    for since in (None, NOON):
        list(journal.read(path.parent.parent, since=since, problems=problems))
    recovered = recovery.fold(recovery.tail(path.parent.parent, BOOT, problems), BOOT, problems)
    told = msgspec.json.encode(recovery.RecoveredRecord.of(recovered, None, problems, 1))
    assert msgspec.json.decode(told, type=recovery.RecoveredRecord).recovered().next_id == recovered.next_id


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
