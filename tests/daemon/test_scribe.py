"""What is written down, and what a person gets to read of it."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from typing import Any

import pytest

from tests.fakes.clock import BOOT_ID, FakeClock
from xidwatch.core.gate_model import Gate, GateMoved, GateState
from xidwatch.core.messages import Closed, Gap, KernelRecord, Learnt, Opened, Output, Row
from xidwatch.core.model import Action, ActionKind, Incident, KernelEvent, Sample, Severity, Status, Subject, Transition
from xidwatch.daemon.scribe import CRITICAL, INFO, NOTICE, WARNING, Scribe

NOW = FakeClock().now()
PORT = Subject("port", "0000:0f:00.0")
INCIDENT = Incident("20260917T021008Z-bus-lost-0f", NOW, "t-000001", Severity.CRITICAL, frozenset())
ACTION = Action("a-000002", NOW, ActionKind.TAKE_DUMP, "t-000001", INCIDENT.id)
RUNNING, HELD = GateState.RUNNING, GateState.HELD


def moved(before: GateState, after: GateState) -> GateMoved:
    return GateMoved("e-000001", NOW, before, Gate("vllm.service", after, NOW, "GpuLost gpu:0000:11:00.0"))


class Evidence:
    """Keeps what it is given, and numbers the records."""

    def __init__(self) -> None:
        self.records: list[Mapping[str, Any]] = []
        self.said: list[tuple[int, str, Mapping[str, object]]] = []

    def journal(self, record: Mapping[str, object]) -> tuple[int, ...]:
        self.records.append(record)
        return (len(self.records),)

    def log(self, priority: int, text: str, fields: Mapping[str, object]) -> None:
        self.said.append((priority, text, fields))


@pytest.fixture
def evidence() -> Evidence:
    return Evidence()


@pytest.fixture
def scribe(evidence: Evidence) -> Scribe:
    numbers = itertools.count(7)
    return Scribe(evidence, FakeClock(), lambda letter: f"{letter}-{next(numbers):06d}")  # type: ignore[arg-type]


def edge(after: Status, severity: Severity = Severity.CRITICAL) -> Transition:
    return Transition("t-000001", NOW, PORT, "ConfigSpaceAllOnes", Status.FALSE, after, severity, "config_dword0 ffffffff")


def event(severity: Severity = Severity.CRITICAL, *, repeated: int = 1, injected: bool = False) -> KernelEvent:
    return KernelEvent(9, 0, "xid", severity, "NVRM: Xid 79", xid=79, repeated=repeated, injected=injected)


WRITTEN: dict[str, tuple[Output, str, list[tuple[int, str]]]] = {
    "bad edge": (
        edge(Status.TRUE),
        "transition",
        [(CRITICAL, "ConfigSpaceAllOnes TRUE port:0000:0f:00.0 (was FALSE): config_dword0 ffffffff")],
    ),
    "other edge": (
        edge(Status.UNKNOWN),
        "transition",
        [(NOTICE, "ConfigSpaceAllOnes UNKNOWN port:0000:0f:00.0: config_dword0 ffffffff")],
    ),
    "action": (ACTION, "action", []),
    "event": (KernelRecord("k-000001", NOW, event()), "kernel", [(NOTICE, "kernel log: NVRM: Xid 79")]),
    "small event": (KernelRecord("k-000001", NOW, event(Severity.INFO)), "kernel", []),
    "repeats": (KernelRecord("k-000001", NOW, event(repeated=5)), "kernel", [(NOTICE, "kernel log: NVRM: Xid 79 (and 5 times more)")]),
    "injected": (
        KernelRecord("k-000001", NOW, event(injected=True)),
        "kernel",
        [(NOTICE, "kernel log: injected by a process, not acted on: NVRM: Xid 79")],
    ),
    "gate closes": (moved(RUNNING, HELD), "gate", [(WARNING, "vllm.service RUNNING -> HELD: GpuLost gpu:0000:11:00.0")]),
    "gate opens": (moved(HELD, RUNNING), "gate", [(NOTICE, "vllm.service HELD -> RUNNING: GpuLost gpu:0000:11:00.0")]),
    "another reason": (moved(HELD, HELD), "gate", [(NOTICE, "vllm.service HELD: GpuLost gpu:0000:11:00.0")]),
    "more is known of it": (moved(RUNNING, RUNNING), "gate", []),
    "gap": (Gap("g-000001", NOW, "kmsg", 311), "gap", [(WARNING, "311 records of kmsg are missing from the journal")]),
    "opened": (Opened("i-000001", NOW, INCIDENT), "opened", [(CRITICAL, f"incident {INCIDENT.id} opened")]),
    "closed": (
        Closed("i-000001", NOW, INCIDENT),
        "closed",
        [(NOTICE, f"incident {INCIDENT.id} closed: all it was about is good again")],
    ),
}


@pytest.mark.parametrize(("output", "kind", "said"), WRITTEN.values(), ids=WRITTEN)
def test_an_output_is_a_record_and_where_it_matters_a_line(
    output: Output, kind: str, said: list[tuple[int, str]], scribe: Scribe, evidence: Evidence
) -> None:
    """The record has the output's own id; the caller gets what to wait for."""
    assert scribe.output(output) == (1,)
    scribe.tell([output])
    (record,) = evidence.records
    assert kind in record
    assert record["id"] == output.id  # type: ignore[union-attr]
    assert [(priority, text) for priority, text, _ in evidence.said] == said


def test_rows_and_the_baseline_are_no_journal_records(scribe: Scribe, evidence: Evidence) -> None:
    """There is nothing to wait for."""
    assert scribe.output(Row(Sample(1, NOW, BOOT_ID, {}))) == ()
    assert scribe.output(Learnt(NOW, {})) == ()
    assert evidence.records == []
    assert evidence.said == []


def test_a_bad_edge_can_be_found_by_machines(scribe: Scribe, evidence: Evidence) -> None:
    """What it is about stands in fields of its own."""
    scribe.tell([edge(Status.TRUE)])
    assert evidence.said[0][2] == {"event": "transition", "subject": "port:0000:0f:00.0", "condition": "ConfigSpaceAllOnes"}


def test_edges_to_anything_but_true_are_told_together(scribe: Scribe, evidence: Evidence) -> None:
    """A line for what they share, below those to TRUE."""
    scribe.tell([edge(Status.UNKNOWN), edge(Status.UNKNOWN), edge(Status.TRUE)])
    assert [(priority, text.count("port:0000:0f:00.0")) for priority, text, _ in evidence.said] == [(CRITICAL, 1), (NOTICE, 2)]


def test_a_kernel_line_is_told_above_what_it_brought(scribe: Scribe, evidence: Evidence) -> None:
    """Of each line its own edges, though on record they stand before it."""
    outputs: list[Output] = [
        edge(Status.TRUE),
        Opened("i-000001", NOW, INCIDENT),
        KernelRecord("k-000001", NOW, event()),
        ACTION,
        edge(Status.TRUE, Severity.WARNING),
        KernelRecord("k-000002", NOW, event(Severity.ERROR)),
    ]
    scribe.tell(outputs)
    assert [fields["event"] for _, _, fields in evidence.said] == ["kernel", "transition", "opened", "kernel", "transition"]
    assert [priority for priority, _, _ in evidence.said if priority == WARNING] == [WARNING]
    assert evidence.records == []


def test_what_no_step_has_brought_is_recorded_and_told(scribe: Scribe, evidence: Evidence) -> None:
    """As one that has."""
    scribe.note(Gap("g-000001", NOW, "kmsg", 311))
    assert [record["id"] for record in evidence.records] == ["g-000001"]
    assert [text for _, text, _ in evidence.said] == ["311 records of kmsg are missing from the journal"]


@pytest.mark.parametrize(("result", "priority"), [("ok", INFO), ("timeout", WARNING), ("failed", WARNING)])
def test_an_outcome_names_its_action(result: str, priority: int, scribe: Scribe, evidence: Evidence) -> None:
    """With how long it took, and what was not as it should be."""
    scribe.outcome(ACTION, result, 212, "040-config-space.txt timeout" if result != "ok" else "")
    (record,) = evidence.records
    assert record["id"] == "o-000007"
    assert record["outcome"]["for"] == ACTION.id
    ((said, text, _),) = evidence.said
    assert said == priority
    assert text.startswith(f"TAKE_DUMP for t-000001: {result} in 212 ms")
    assert ("040-config-space" in text) is (result != "ok")


def test_what_cannot_be_seen_is_said_once(scribe: Scribe, evidence: Evidence) -> None:
    """To the person and to the journal; again only after it has been otherwise."""
    scribe.say("nvml", "no NVIDIA driver")
    scribe.say("nvml", "no NVIDIA driver")
    scribe.say("hwmon", "no sensors")
    assert [text for _, text, _ in evidence.said] == ["no NVIDIA driver", "no sensors"]
    assert [record["note"] for record in evidence.records] == [
        {"remark": "nvml", "text": "no NVIDIA driver"},
        {"remark": "hwmon", "text": "no sensors"},
    ]
    scribe.unsay("nvml")
    scribe.unsay("never said")
    scribe.say("nvml", "no NVIDIA driver")
    assert len(evidence.said) == 3
    assert {priority for priority, _, _ in evidence.said} == {WARNING}
