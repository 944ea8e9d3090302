"""Whatever a night brings: the journal it leaves, read back, is the state that wrote it, and a cut costs the cut record alone."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.core.story import GPU, GPUS, REBOOT_ASKED, UVM_FATAL, Story, xid
from xidwatch.core.messages import Output
from xidwatch.core.model import Missing, Status
from xidwatch.records import Damage, journal, recovery

BOOT = "5f0c0000-0000-4000-8000-000000000001"
HAPPENS: dict[str, Callable[[Story], object]] = {
    "tick": lambda story: story.tick(),
    "ticks": lambda story: story.ticks(4),
    "look": lambda story: story.wait(0.2).look(),
    "switch lost": lambda story: story.lose_switch(),
    "mended": lambda story: story.mend(),
    "one lost": lambda story: story.set(GPU, {"nvml_status": 15}),
    "no answer": lambda story: story.set(GPUS[1], {"nvml_status": Missing.TIMED_OUT}),
    "Xid 79": lambda story: story.wait(0.5).kernel(xid(GPU, 79)),
    "Xid 31": lambda story: story.wait(0.5).kernel(xid(GPUS[2], 31, "fault")),
    "Xid 154": lambda story: story.wait(0.5).kernel(xid(GPUS[1], 154, REBOOT_ASKED), UVM_FATAL),
    "lost records": lambda story: story.kernel(lost=3),
    "driver renewed": lambda story: story.renew_driver(),
    "an hour": lambda story: story.wait(3600.0),
    "checkpoint": lambda _story: None,  # by the teller
}


def night(happens: list[str]) -> tuple[Story, bytes]:
    """The story and its journal. The first tick is followed by a checkpoint, as the daemon's is."""
    story = Story()
    lines: list[bytes] = []

    def write(record: journal.Record | None) -> None:
        if record is not None:
            lines.append(json.dumps(record).encode() + b"\n")

    for what in ["tick", "checkpoint", *happens]:
        told = len(story.out)
        HAPPENS[what](story)
        new: list[Output] = story.out[told:]
        for output in new:
            write(journal.from_output(output, BOOT))
        if what == "checkpoint":
            write(checkpoint(story))
    return story, b"".join(lines)


def checkpoint(story: Story) -> journal.Record:
    """The whole state, as the daemon writes it down."""
    state = story.state
    conditions = [tracked.condition for tracked in state.conditions.values()]
    held = {"incident": state.incident, "kmsg_seq": state.tally.last_seq, "next_id": state.next_id, "dumps": state.dumps}
    return journal.checkpoint(f"r-{state.next_id:06d}", story.now, BOOT, conditions=conditions, **held)  # type: ignore[arg-type]


def read(path: Path, content: bytes) -> tuple[recovery.Recovered, list[Damage]]:
    path.write_bytes(content)
    problems: list[Damage] = []
    return recovery.fold(journal.read_day(path, problems), BOOT, problems), problems


@pytest.mark.slow
@settings(max_examples=60, deadline=None)
@given(happens=st.lists(st.sampled_from(sorted(HAPPENS)), max_size=25), cut=st.floats(0.0, 1.0))
def test_a_journal_read_back_is_the_state_that_wrote_it(tmp_path_factory: pytest.TempPathFactory, happens: list[str], cut: float) -> None:
    """Conditions, the open incident with all that belongs to it, and the dumps; cut anywhere, only the cut record is lost."""
    path = tmp_path_factory.getbasetemp() / "random.jsonl"
    story, content = night(happens)
    found, problems = read(path, content)
    assert problems == []
    held = {key: tracked.condition.status for key, tracked in story.state.conditions.items()}
    assert {key: condition.status for key, condition in found.conditions.items()}.items() <= held.items()
    assert {key for key, status in held.items() if status is Status.TRUE} <= found.conditions.keys()
    incident = story.state.incident
    assert (found.incident and found.incident.id) == (incident and incident.id)
    assert (found.incident and (found.incident.trigger, set(found.incident.members))) == (
        incident and (incident.trigger, set(incident.members))
    )
    assert len(found.dumps) == len(story.state.dumps)
    assert found.next_id - story.state.next_id in (0, 1)  # no number is given twice; the last checkpoint of a night took one more

    whole = content[: int(len(content) * cut)]
    after, damage = read(path, whole)
    before, _ = read(path, whole[: whole.rfind(b"\n") + 1])
    assert after == before
    assert len(damage) == (1 if whole and not whole.endswith(b"\n") else 0)
