"""Journal records: what is written, and what a reader makes of what it finds."""

from __future__ import annotations

from pathlib import Path

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from xidwatch.clock import from_iso
from xidwatch.core.messages import Closed, Gap, KernelRecord, Opened, Row
from xidwatch.core.model import (
    Action,
    ActionKind,
    Incident,
    KernelEvent,
    Missing,
    Moment,
    Outcome,
    PciAddress,
    Sample,
    Severity,
    Status,
    Subject,
    Transition,
)
from xidwatch.records import Damage, journal

BOOT = "5f0c"
AT = Moment(from_iso("2026-09-17T02:10:08.412Z"), 3611.004211)
PORT = Subject("port", "0000:0f:00.0")
NAME = "20260917T021008Z-bus-lost-0f"
EDGE = Transition(
    id="t-000123",
    at=AT,
    subject=PORT,
    type="ConfigSpaceAllOnes",
    before=Status.FALSE,
    after=Status.TRUE,
    severity=Severity.CRITICAL,
    reason="dword0 ffffffff twice",
    not_before=Moment(from_iso("2026-09-17T02:09:38.004Z"), 3580.6),
    incident=NAME,
)
XID = KernelEvent(
    seq=90412, usec=3611004211, kind="xid", severity=Severity.CRITICAL, text="NVRM: Xid ...", xid=79, pci=PciAddress.parse("0000:11:00.0")
)


def plain(record: object) -> object:
    return msgspec.json.decode(msgspec.json.encode(record))


def test_a_transition_looks_as_the_format_says() -> None:
    """Envelope, kind, body and incident have the names and shapes that other programs rely on."""
    assert plain(journal.transition(EDGE, BOOT)) == {
        "v": 1,
        "id": "t-000123",
        "time": "2026-09-17T02:10:08.412Z",
        "boot_id": "5f0c",
        "mono_us": 3611004211,
        "transition": {
            "subject": "port:0000:0f:00.0",
            "type": "ConfigSpaceAllOnes",
            "before": "FALSE",
            "after": "TRUE",
            "not_before": "2026-09-17T02:09:38.004Z",
            "severity": "critical",
            "reason": "dword0 ffffffff twice",
        },
        "incident": NAME,
    }


def test_a_kernel_event_prints_only_what_is_set() -> None:
    """Absent fields are left out; a sequence number of 0 and an Xid are facts."""
    body = plain(journal.kernel(XID, "k-000126", AT, BOOT)["kernel"])
    assert body == {
        "seq": 90412,
        "usec": 3611004211,
        "kind": "xid",
        "severity": "critical",
        "text": "NVRM: Xid ...",
        "xid": 79,
        "pci": "0000:11:00.0",
        "repeated": 1,
    }
    first = KernelEvent(seq=0, usec=0, kind="mce", severity=Severity.ERROR, text="", injected=True, pid=0)
    assert plain(journal.kernel(first, "k-1", AT, BOOT)["kernel"]) == {
        "seq": 0, "usec": 0, "kind": "mce", "severity": "error", "text": "", "injected": True, "pid": 0, "repeated": 1,
    }  # fmt: skip


def test_every_output_of_the_watch_has_its_record() -> None:
    """What is to be kept in the journal gets a record of its kind, with the id it was given; rows go elsewhere."""
    incident = Incident(NAME, AT, "t-000123", Severity.CRITICAL, frozenset())
    outputs: tuple[Transition | Action | KernelRecord | Gap | Opened | Closed, ...] = (
        EDGE,
        Action("a-000124", AT, ActionKind.TAKE_DUMP, "t-000123", NAME),
        KernelRecord("k-000126", AT, XID),
        Gap("g-000127", AT, "kmsg", 311),
        Opened("i-000128", AT, incident),
        Closed("i-000129", AT, incident),
    )
    records = [journal.from_output(output, BOOT) for output in outputs]
    kinds = ("transition", "action", "kernel", "gap", "opened", "closed")
    assert [record and (record["id"], next(kind for kind in journal.KINDS if kind in record)) for record in records] == [
        (output.id, kind) for output, kind in zip(outputs, kinds, strict=True)
    ]
    assert journal.from_output(Row(Sample(1, AT, BOOT, {})), BOOT) is None


def test_bodies_of_decisions_and_gaps() -> None:
    """Actions, outcomes, gaps, lacks and inventories carry what the format names."""
    taken = Action("a-000124", AT, ActionKind.TAKE_DUMP, "t-000123")
    assert plain(journal.action(taken, BOOT)["action"]) == {"kind": "TAKE_DUMP", "for": "t-000123"}
    done = Outcome("o-000125", AT, "a-000124", "ok", 212)
    assert journal.outcome(done, BOOT)["outcome"] == {"for": "a-000124", "result": "ok", "took_ms": 212}
    assert journal.gap("kmsg", 311, "g-1", AT, BOOT)["gap"] == {"source": "kmsg", "lost": 311}
    back = journal.missing("gpu:0000:11:00.0", "power_mean_watts", None, "m-1", AT, BOOT)
    assert back["missing"] == {"subject": "gpu:0000:11:00.0", "quantity": "power_mean_watts", "reason": None}
    facts = journal.inventory({PORT: {"slot": Missing.ABSENT, "vendor": 0x1000}}, "v-1", AT, BOOT)
    assert facts["inventory"] == {"port:0000:0f:00.0": {"slot": {"missing": "ABSENT"}, "vendor": 4096}}


def written(folder: Path, *lines: bytes, day: str = "2026-09-17") -> Path:
    path = folder / "journal" / f"{day}.jsonl"
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(b"".join(lines))
    return path


def line(record: object) -> bytes:
    return msgspec.json.encode(record) + b"\n"


def test_what_was_written_is_read(tmp_path: Path) -> None:
    """A record comes back with its line, both clocks, its kind, body and incident."""
    path = written(tmp_path, line(journal.transition(EDGE, BOOT)))
    problems: list[Damage] = []
    [entry] = journal.read_day(path, problems)
    assert (entry.line, entry.id, entry.kind, entry.boot_id, entry.incident) == (1, "t-000123", "transition", BOOT, NAME)
    assert entry.at == AT
    assert entry.body["after"] == "TRUE"
    assert problems == []


def test_damage_is_reported_and_the_rest_is_read(tmp_path: Path) -> None:
    """Foreign lines, NULs, a record of no kind and a torn last line are told with their place; nothing raises."""
    good = line(journal.gap("kmsg", 1, "g-1", AT, BOOT))
    path = written(
        tmp_path,
        b"hello\n", b"[1]\n", b"\xff\xfe\n", b"[" * 100_000 + b"\n", b"\n", bytes(300) + good,
        b'{"id":"x","time":"2026-09-17T00:00:00Z"}\n', b'{"id":"x","time":"soon","gap":{}}\n', good, good[:-1],
    )  # fmt: skip
    problems: list[Damage] = []
    assert [entry.line for entry in journal.read_day(path, problems)] == [6, 9]
    assert [damage.line for damage in problems] == [1, 2, 3, 4, 6, 7, 8, 10]
    assert {damage.path for damage in problems} == {str(path)}
    assert "NUL" in problems[4].text
    assert "cut off" in problems[7].text


def test_a_newer_version_is_read_as_far_as_it_is_known(tmp_path: Path) -> None:
    """Unknown keys in the envelope and unknown kinds are no damage."""
    path = written(
        tmp_path,
        b'{"v":2,"host":{"name":"a"},"id":"g-1","time":"2026-09-17T00:00:00Z","boot_id":"b","gap":{"source":"kmsg","lost":1,"why":"x"}}\n',
        b'{"v":2,"id":"z-1","time":"2026-09-17T00:00:00Z","verdict":{"is":"new"}}\n',
    )
    problems: list[Damage] = []
    found = list(journal.read_day(path, problems))
    assert [(entry.kind, entry.body) for entry in found] == [("gap", {"source": "kmsg", "lost": 1, "why": "x"}), ("verdict", {"is": "new"})]
    assert problems == []


def test_reading_since_a_time_leaves_older_records_out(tmp_path: Path) -> None:
    """Days before are not opened, records before are not given; foreign files in the folder are ignored."""
    for day in ("2026-09-15", "2026-09-16", "2026-09-17"):
        at = Moment(from_iso(f"{day}T12:00:00Z"), 1.0)
        written(
            tmp_path, *(line(journal.gap("kmsg", hour, f"g-{day}", Moment(at.wall + 3600 * hour, 1.0), BOOT)) for hour in range(2)), day=day
        )
    (tmp_path / "journal" / "2026-09-17.jsonl.torn").write_text("x")
    (tmp_path / "journal" / "2026-09-15.jsonl").write_text("not to be opened")
    problems: list[Damage] = []
    found = list(journal.read(tmp_path, since=from_iso("2026-09-16T12:30:00Z"), problems=problems))
    assert [entry.time for entry in found] == ["2026-09-16T13:00:00.000Z", "2026-09-17T12:00:00.000Z", "2026-09-17T13:00:00.000Z"]
    assert problems == []


def test_no_journal_is_an_empty_one(tmp_path: Path) -> None:
    """A state directory that never recorded anything has no records, and that is no error."""
    assert list(journal.read(tmp_path / "nowhere", since=None)) == []


@given(st.lists(st.binary(max_size=60), max_size=8))
def test_no_content_ever_raises(lines: list[bytes]) -> None:
    """Any bytes at all give records or say what is wrong."""
    for text in lines:
        assert isinstance(journal.entry(1, text), journal.Entry | str)
