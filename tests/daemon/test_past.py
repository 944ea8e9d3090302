"""What earlier runs have left on record, and whether that is all of it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from xidwatch.daemon import past
from xidwatch.records import Damage, journal, recovery, store
from xidwatch.records.recovery import RecoveredRecord

BOOT = "5f0c1d5e-0000-4000-8000-000000000001"


def read_back(state_dir: Path) -> RecoveredRecord:
    """As a recorder does at its start."""
    damage: list[Damage] = []
    found = recovery.fold(recovery.tail(state_dir, BOOT, damage), BOOT, damage)
    return RecoveredRecord.of(found, None, damage, 0)


def day(state_dir: Path, *lines: bytes, name: str = "2026-09-17") -> Path:
    """One day of a journal."""
    path = state_dir / journal.FOLDER / f"{name}.jsonl"
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(b"".join(lines))
    return path


def line(name: str, **body: object) -> bytes:
    """A record as it stands in a file."""
    head = {"id": name, "time": "2026-09-17T02:14:21.118Z", "mono_us": 1000, "boot_id": BOOT}
    return json.dumps({**head, **body}).encode() + b"\n"


STEP = line("a-000002", action={"kind": "RECOVER", "step": "rescan", "target": "0000:12:00.0"})


def test_nothing_on_record_is_a_whole_past(tmp_path: Path) -> None:
    """A new host has none; one that did not answer is another matter."""
    assert past.is_whole(read_back(tmp_path))
    assert not past.is_whole(None)


@pytest.mark.parametrize("cut", [b'{"id":"a-0000', b'{"id":"a-0000\n', b"\0" * 512 + b"\n"])
def test_what_a_crash_has_cut_was_never_acted_on(tmp_path: Path, cut: bytes) -> None:
    """It was on no disk. What is before it is read."""
    day(tmp_path, STEP, cut)
    record = read_back(tmp_path)
    assert record.damage
    assert [each.step for each in record.attempts] == ["rescan"]
    assert past.is_whole(record)


def test_a_decision_that_is_not_understood_makes_it_a_part_only(tmp_path: Path) -> None:
    """Nobody knows what it was about."""
    day(tmp_path, line("a-000002", action={"kind": "RECOVER", "step": 7}))
    assert not past.is_whole(read_back(tmp_path))


def test_a_file_that_is_refused_makes_it_a_part_only(tmp_path: Path) -> None:
    """A decision may be in it: a link that leads nowhere, or a bad block."""
    path = day(tmp_path, STEP)
    path.rename(path.with_name("kept"))
    path.symlink_to("nowhere")
    record = read_back(tmp_path)
    assert record.attempts == ()
    assert not past.is_whole(record)


def test_a_clock_that_was_set_back_makes_it_a_part_only(tmp_path: Path) -> None:
    """What is written now goes into the file of a day that nobody gets to read back. Of one day to come that is not so."""
    for name, is_whole in (("2026-09-17", True), ("9998-01-01", True), ("9998-01-02", False)):
        day(tmp_path, STEP, name=name)
        opened = store.Store(tmp_path, BOOT, 30.0)
        assert past.is_whole(opened.open()) is is_whole
        opened.close()


def test_damage_beside_the_journal_is_no_damage_to_it(tmp_path: Path) -> None:
    """A baseline that cannot be read says nothing about steps."""
    found = recovery.fold([], BOOT)
    assert past.is_whole(RecoveredRecord.of(found, None, [Damage(str(tmp_path / "baseline.json"), 0, "cut")], 0))
