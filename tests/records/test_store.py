"""The rules of the store that are seen better from inside than through a process."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from xidwatch.clock import iso
from xidwatch.core.model import Moment
from xidwatch.records import baseline, frames, journal, samples, store

BOOT = "5f0c"
NOON = 1789646400.0  # 2026-09-17T12:00:00Z


def note(number: int, wall: float = NOON) -> frames.Frame:
    return frames.decode_frame(frames.journal(number, journal.record("note", f"n-{number:06d}", Moment(wall, 1.0), BOOT, {})))


def row(number: int, time: str = "2026-09-17T12:00:00Z") -> frames.Frame:
    return frames.decode_frame(frames.sample(number, samples.Row(time=time, boot_id=BOOT, tick=number, cells={"a": "1"})))


def test_a_batch_costs_one_sync_per_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """However many frames wait, each touched file is synced once."""
    opened = store.Store(tmp_path, BOOT, 30.0)
    opened.open()
    synced: list[str] = []
    monkeypatch.setattr(os, "fdatasync", lambda descriptor: synced.append(Path(f"/proc/self/fd/{descriptor}").readlink().name))
    written = opened.write([frame for number in range(1, 100) for frame in (note(number), row(number))])
    assert written == store.Written(198, None)
    assert sorted(synced) == ["2026-09-17.csv", "2026-09-17.jsonl"]


def test_what_was_written_before_the_trouble_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The frames up to the refused one are durable and acknowledged; the rest waits, in order."""
    opened = store.Store(tmp_path, BOOT, 30.0)
    opened.open()
    real = os.write

    def full(descriptor: int, data: bytes) -> int:
        if b"n-000003" in bytes(data):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return real(descriptor, data)

    batch = [note(number) for number in range(1, 6)]
    with monkeypatch.context() as broken:
        broken.setattr(os, "write", full)
        written = opened.write(batch)
    path = tmp_path / "journal" / "2026-09-17.jsonl"
    assert written == store.Written(2, frames.Trouble(what="journal", errno=errno.ENOSPC, text=f"No space left on device: {path}"))
    assert opened.write(batch[2:]) == store.Written(3, None)
    assert [entry.id for entry in journal.read_day(path)] == [f"n-{number:06d}" for number in range(1, 6)]


def test_a_header_that_was_never_durable_is_written_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """When the first row of a file could not be synced, the file begins anew: header and row, once."""
    opened = store.Store(tmp_path, BOOT, 30.0)
    opened.open()

    def broken_sync(_: int) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    with monkeypatch.context() as broken:
        broken.setattr(os, "fdatasync", broken_sync)
        for _ in range(3):
            assert opened.write([row(1)]).settled == 0
    assert opened.write([row(1)]).settled == 1
    [path] = (tmp_path / "samples").iterdir()
    problems: list[object] = []
    assert [found.tick for found in samples.read(path, problems)] == [1]  # type: ignore[arg-type]
    assert problems == []


def test_what_cannot_be_synced_at_the_start_is_not_believed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Records that a predecessor left in the page cache only are written again: twice is better than not at all."""
    first = store.Store(tmp_path, BOOT, 30.0)
    first.open()
    first.write([note(1)])
    first.close()
    second = store.Store(tmp_path, BOOT, 30.0)

    def broken_sync(_: int) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    with monkeypatch.context() as broken:
        broken.setattr(os, "fdatasync", broken_sync)
        second.open()
    second.write([note(1)])
    assert [entry.id for entry in journal.read(tmp_path, since=None)] == ["n-000001", "n-000001"]


def test_old_samples_go_when_a_day_begins(tmp_path: Path) -> None:
    """Once a day, and only beyond 400 days."""
    opened = store.Store(tmp_path, BOOT, 30.0)
    opened.open()
    opened.write([note(1)])
    days = [iso(NOON - 86400 * age)[:10] for age in range(403)]
    for day in days:
        (tmp_path / "samples" / f"{day}.csv").touch()
    opened.write([note(2)])
    assert len(list((tmp_path / "samples").iterdir())) == 403
    opened.write([note(3, NOON + 86400)])
    assert len(list((tmp_path / "samples").iterdir())) == 400


def test_only_this_boots_baseline_is_told(tmp_path: Path) -> None:
    """One of another boot says nothing about these addresses; a damaged one is reported, not taken for none."""
    path = tmp_path / "baseline.json"
    path.write_bytes(baseline.encode(baseline.Baseline(boot_id="0000", time="2026-09-17T00:00:00Z")))
    opened = store.Store(tmp_path, BOOT, 30.0)
    assert opened.open().baseline is None
    path.write_bytes(baseline.encode(baseline.Baseline(boot_id=BOOT, time="2026-09-17T00:00:00Z")))
    assert opened.open().baseline is not None
    path.write_bytes(b"{")
    found = opened.open()
    assert found.baseline is None
    assert "move it away" in found.damage[0].text
