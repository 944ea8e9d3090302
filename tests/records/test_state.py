"""The files under /run: what others may believe, and what a successor adopts."""

from __future__ import annotations

import os
from pathlib import Path

import msgspec
import pytest

from xidwatch.records import RecordError, state

BOOT = "5f0c"
SEEN = {
    "since": None,
    "unit": "",
    "invocation_id": "",
    "gpus": ["0000:11:00.0"],
    "gpus_by": "",
    "order": None,
    "recovery": [],
    "stand_in": "",
}
NOW = state.StateFile(
    boot_id=BOOT,
    mono_ms=3_620_011,
    verdict="failed",
    since="2026-09-17T02:10:08Z",
    conditions=(state.ConditionState(subject="gpu:0000:11:00.0", type="GpuLost", status="TRUE", since="2026-09-17T02:10:08Z"),),
    engines={"vllm.service": state.EngineState(state="HELD", may_start=False, why="4 of 4 GPUs lost", gpus=("0000:11:00.0",))},
    tick=120,
    probes={"nvml": state.ProbeState(success=False, stuck_s=12.5)},
)


def test_what_is_written_is_what_the_format_says(tmp_path: Path) -> None:
    """Names and shapes bind; the file is readable by everyone and comes back as it was."""
    path = tmp_path / "state.json"
    state.write_atomic(path, state.encode(NOW))
    plain = msgspec.json.decode(path.read_bytes())
    assert {key: plain[key] for key in ("v", "boot_id", "mono_ms", "verdict", "since", "conditions", "engines")} == {
        "v": 1,
        "boot_id": BOOT,
        "mono_ms": 3620011,
        "verdict": "failed",
        "since": "2026-09-17T02:10:08Z",
        "conditions": [{"subject": "gpu:0000:11:00.0", "type": "GpuLost", "status": "TRUE", "since": "2026-09-17T02:10:08Z"}],
        "engines": {"vllm.service": {"state": "HELD", "may_start": False, "why": "4 of 4 GPUs lost", "lease": None, **SEEN}},
    }
    assert plain["probes"] == {"nvml": {"success": False, "stuck_s": 12.5}}
    assert path.stat().st_mode & 0o777 == 0o644
    assert state.read(path) == NOW
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize(
    ("age_ms", "boot_id", "expected"),
    [
        (0, BOOT, "fresh"),
        (90_000, BOOT, "fresh"),
        (90_001, BOOT, "stale"),
        (-1, BOOT, "stale"),
        (0, "0000", "other boot"),
    ],
)
def test_an_old_state_is_not_believed(age_ms: int, boot_id: str, expected: str) -> None:
    """Three intervals is the limit; one from another boot, or from the future, is never fresh."""
    assert state.freshness(NOW, NOW.mono_ms + age_ms, boot_id) == expected


def test_a_newer_version_is_read(tmp_path: Path) -> None:
    """Keys that are not known are ignored, those that are not there get their defaults."""
    (tmp_path / "state.json").write_text('{"v":2,"boot_id":"b","mono_ms":1,"verdict":"healthy","moon":"full"}')
    found = state.read(tmp_path / "state.json")
    assert (found.verdict, found.conditions, found.interval_s) == ("healthy", (), 30.0)


@pytest.mark.parametrize(("content", "text"), [(None, "no state file"), (b"", "damaged"), (b'{"v":1}', "damaged"), (b"\xff", "damaged")])
def test_no_state_is_an_error_with_a_hint(tmp_path: Path, content: bytes | None, text: str) -> None:
    """Absent or damaged: the path, what is wrong and what to do about it."""
    path = tmp_path / "state.json"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(RecordError, match=text) as raised:
        state.read(path)
    assert raised.value.path == path
    assert "xidwatch" in raised.value.hint


def test_nobody_waits_for_a_fifo(tmp_path: Path) -> None:
    """`status` says what lies there, a successor has no children to adopt."""
    os.mkfifo(tmp_path / "state.json")
    os.mkfifo(tmp_path / "children.json")
    with pytest.raises(RecordError, match="a FIFO where a file should be"):
        state.read(tmp_path / "state.json")
    assert state.read_children(tmp_path / "children.json", BOOT) == ()
    assert state.read_children(tmp_path / "nothing.json", BOOT) == ()


def test_children_are_adopted_within_a_boot_only() -> None:
    """A successor gets what was alive; process numbers of another boot mean nothing, and rubbish is left out."""
    children = (
        state.Child(pid=4711, start_ticks=182739, name="pci", at="port:0000:0f:00.0", since_mono=3611.2),
        state.Child(pid=4712, start_ticks=182740, name="nvml"),
    )
    data = state.encode_children(children, BOOT)
    assert state.decode_children(data, BOOT) == children
    assert state.decode_children(data, "0000") == ()
    assert state.decode_children(data.replace(b"4711", b'"x"'), BOOT) == children[1:]
    for rubbish in (b"", b"[]", b"\xff", data[:-5]):
        assert state.decode_children(rubbish, BOOT) == ()


def test_a_file_of_any_size_keeps_nobody_waiting(tmp_path: Path) -> None:
    """An engine that starts waits for what is read of it; who reads the children is the daemon that starts."""
    for name in (state.NAME, state.CHILDREN_NAME):
        with (tmp_path / name).open("wb") as file:
            file.truncate(state.MOST_BYTES + 1)
    with pytest.raises(RecordError, match="larger than any daemon writes it"):
        state.read(tmp_path / state.NAME)
    assert state.read_children(tmp_path / state.CHILDREN_NAME, "boot-a") == ()
