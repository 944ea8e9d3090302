"""The rules of the store that are seen better from inside than through a process."""

from __future__ import annotations

import errno
import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.fakes.clock import FakeClock
from xidwatch.clock import iso
from xidwatch.core.model import Action, ActionKind, Incident, Moment, Severity
from xidwatch.records import Damage, baseline, dumps, frames, journal, regular, samples, store
from xidwatch.records.recovery import RecoveredRecord

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
    assert written == store.Written(frozenset(range(198)))
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
    trouble = frames.Trouble(what="journal", errno=errno.ENOSPC, text=f"No space left on device: {path}")
    assert written == store.Written(frozenset({0, 1}), trouble)
    assert opened.write(batch[2:]) == store.Written(frozenset({0, 1, 2}))
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
            assert opened.write([row(1)]).settled == frozenset()
    assert opened.write([row(1)]).settled == {0}
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


def test_a_baseline_of_any_boot_is_told(tmp_path: Path) -> None:
    """Who should be there outlasts boots; a damaged one is reported before all else, and is not taken for none."""
    path = tmp_path / "baseline.json"
    path.write_bytes(baseline.encode(baseline.Baseline(boot_id="0000", time="2026-09-17T00:00:00Z")))
    opened = store.Store(tmp_path, BOOT, 30.0)
    assert opened.open().baseline is not None
    path.write_bytes(baseline.encode(baseline.Baseline(boot_id=BOOT, time="2026-09-17T00:00:00Z")))
    assert opened.open().baseline is not None
    path.write_bytes(b"{")
    found = opened.open()
    assert found.baseline is None
    assert "move it away" in found.damage[0].text


INCIDENT = "20260917T120000Z-gpu-lost-11"


def dump_asked_for(folder: Path) -> store.Store:
    """A journal that ends with the decision to take a dump, and who opens it next."""
    begun = store.Store(folder, BOOT, 30.0)
    begun.open()
    opened = Incident(INCIDENT, Moment(NOON, 1.0), "t-000001", Severity.CRITICAL, frozenset())
    action = Action("a-000003", Moment(NOON, 1.0), ActionKind.TAKE_DUMP, "t-000001", INCIDENT)
    records = [journal.opened(opened, "i-000002", Moment(NOON, 1.0), BOOT), journal.action(action, BOOT)]
    begun.write([frames.decode_frame(frames.journal(number, record)) for number, record in enumerate(records, start=1)])
    begun.close()
    return store.Store(folder, BOOT, 30.0)


def dumps_of(opened: RecoveredRecord) -> int:
    assert opened.incident
    return opened.incident.incident().dumps


def test_a_dump_that_died_with_its_run_counts_as_not_taken(tmp_path: Path) -> None:
    """Asked for, and then killed before it was whole: the next run is told to ask again; a whole one is not asked for twice."""
    successor = dump_asked_for(tmp_path)
    assert dumps_of(successor.open()) == 0
    clock = FakeClock()
    folder = dumps.DumpFolder(tmp_path / dumps.FOLDER / INCIDENT, incident=INCIDENT, boot_id=BOOT, trigger="t-000001", clock=clock)
    assert dumps_of(successor.open()) == 0
    folder.complete()
    assert dumps_of(successor.open()) == 1


def test_a_dump_of_another_boot_is_past_mending(tmp_path: Path) -> None:
    """What the last boot did not get is gone; the rule about dumps in a new boot is the watch's."""
    dump_asked_for(tmp_path)
    assert dumps_of(store.Store(tmp_path, "0000", 30.0).open()) == 1


# --- what somebody else does to the directory


def learnt(number: int) -> frames.Frame:
    return frames.decode_frame(frames.baseline(number, baseline.Baseline(boot_id=BOOT, time="2026-09-17T00:00:00Z")))


def everything(number: int) -> list[frames.Frame]:
    return [note(number), row(number), learnt(number)]


ALL = store.Written(frozenset({0, 1, 2}))


def there(state_dir: Path) -> tuple[list[str], list[int], bool]:
    """What is on record under that path now."""
    problems: list[Damage] = []
    notes = [entry.id for entry in journal.read(state_dir, since=None, problems=problems)]
    rows = [found.tick for path in samples.files(state_dir / "samples") for found in samples.read(path, problems)]
    assert problems == []
    return notes, rows, baseline.read(state_dir / "baseline.json") is not None


def delete(state_dir: Path) -> None:
    shutil.rmtree(state_dir)


def move(state_dir: Path) -> None:
    state_dir.rename(state_dir.with_name("moved"))


def empty(state_dir: Path) -> None:
    for path in state_dir.iterdir():
        shutil.rmtree(path) if path.is_dir() else path.unlink()


def delete_files(state_dir: Path) -> None:
    for path in state_dir.rglob("2026-*"):
        path.unlink()


@pytest.mark.parametrize("happens", [delete, move, empty, delete_files])
def test_a_directory_that_goes_away_is_begun_anew(tmp_path: Path, happens: Callable[[Path], None]) -> None:
    """What is called durable afterwards is under the same path, rows below a header, and it was said what happened."""
    state = tmp_path / "state"
    opened = store.Store(state, BOOT, 30.0)
    opened.open()
    assert opened.write(everything(1)) == ALL
    assert opened.take_remarks() == []
    happens(state)
    assert opened.write(everything(2)) == ALL
    assert there(state) == (["n-000002"], [2], True)
    said = " ".join(opened.take_remarks())
    assert "was deleted" in said
    assert opened.write(everything(3)) == ALL
    assert there(state) == (["n-000002", "n-000003"], [2, 3], True)
    assert opened.take_remarks() == []


def test_a_directory_that_goes_away_during_a_sync_is_begun_anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The whole batch is written again where its path leads now, and the new directory is locked."""
    state = tmp_path / "state"
    opened = store.Store(state, BOOT, 30.0)
    opened.open()
    opened.write(everything(1))
    real = os.fdatasync
    moved = iter([True])

    def sync(descriptor: int) -> None:
        real(descriptor)
        if next(moved, False):
            move(state)

    monkeypatch.setattr(os, "fdatasync", sync)
    assert opened.write([note(2), note(3)]).settled == {0, 1}
    assert there(state) == (["n-000002", "n-000003"], [], False)
    with pytest.raises(BlockingIOError):
        store.Store(state, BOOT, 30.0).open()


def test_a_directory_that_goes_away_all_the_time_is_trouble(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is not tried for ever, and nothing is called durable."""
    opened = store.Store(tmp_path / "state", BOOT, 30.0)
    opened.open()
    monkeypatch.setattr(os, "fdatasync", lambda _: delete(tmp_path / "state"))
    written = opened.write([note(1)])
    assert (written.settled, written.trouble and written.trouble.errno) == (frozenset(), errno.ESTALE)


def test_what_was_found_and_then_deleted_is_written_again(tmp_path: Path) -> None:
    """A record that the predecessor wrote is not called durable when its file went between the look and the sending again."""
    first = store.Store(tmp_path, BOOT, 30.0)
    first.open()
    first.write([note(1), row(1)])
    first.close()
    second = store.Store(tmp_path, BOOT, 30.0)
    second.open()
    delete_files(tmp_path)
    second.write([note(1), row(1)])
    assert there(tmp_path) == (["n-000001"], [1], False)


# --- what lies where a file should be

OBSTACLES = (Path.mkdir, os.mkfifo, lambda path: path.symlink_to("/dev/zero"))
FILES = ("journal/2026-09-17.jsonl", "samples/2026-09-17.csv", "baseline.json", ".baseline.json.tmp")
FOLDERS = ("journal", "samples", "incidents")
IN_THE_WAY = [*((place, make) for place in FILES for make in OBSTACLES), *((place, os.mkfifo) for place in FOLDERS)]


@pytest.mark.parametrize(("place", "make"), IN_THE_WAY)
@pytest.mark.parametrize("when", ["before the start", "in mid-run"])
def test_no_obstacle_stops_a_record(tmp_path: Path, place: str, make: Callable[[Path], object], when: str) -> None:
    """A directory, FIFO or link in the place of a file or a folder is renamed away, and everything is where it belongs."""
    path = tmp_path / place
    opened = store.Store(tmp_path, BOOT, 30.0)
    if when == "in mid-run":
        opened.open()
        shutil.rmtree(path, ignore_errors=True)
    path.parent.mkdir(exist_ok=True)
    make(path)
    if when == "before the start":
        told = opened.open()
        assert all("where a file should be" in damage.text for damage in told.damage)
        assert len(told.damage) == (place in {"journal/2026-09-17.jsonl", "baseline.json"})
    assert opened.write(everything(1)) == ALL
    assert there(tmp_path) == (["n-000001"], [1], True)


@pytest.mark.parametrize("place", ["samples/2026-09-17.csv", "baseline.json", "samples/2026-09-16.csv"])
def test_the_journal_does_not_wait_for_what_cannot_be_cleared_away(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: str) -> None:
    """A mount point, say, cannot be renamed: its own stream waits, in order, and says why; the others go on."""
    opened = store.Store(tmp_path, BOOT, 30.0)
    opened.open()
    (tmp_path / place).mkdir()
    blocked = ("samples" if "samples" in place else "baseline", 1 if "samples" in place else 2)

    def busy(path: Path) -> Path:
        raise OSError(errno.EBUSY, os.strerror(errno.EBUSY), str(path))

    with monkeypatch.context() as broken:
        broken.setattr(regular, "set_aside", busy)
        for number in (1, 2):
            written = opened.write(everything(number))
            assert written.settled == {0, 1, 2} - {blocked[1]}
            assert written.trouble is not None
            assert (written.trouble.what, written.trouble.errno) == (blocked[0], errno.EBUSY)
    assert [entry.id for entry in journal.read(tmp_path, since=None)] == ["n-000001", "n-000002"]
    assert opened.write(everything(3)) == ALL


def test_an_expired_name_that_cannot_be_deleted_keeps_no_other(tmp_path: Path) -> None:
    """A directory among the old sample files does not stop their removal."""
    opened = store.Store(tmp_path, BOOT, 30.0)
    opened.open()
    days = [iso(NOON - 86400 * age)[:10] for age in range(405)]
    for day in days[:-1]:
        (tmp_path / "samples" / f"{day}.csv").touch()
    (tmp_path / "samples" / f"{days[-1]}.csv").mkdir()
    opened.write([note(1)])
    assert len(list((tmp_path / "samples").iterdir())) == 402  # 0 to 400 days old, and that one


# --- a directory that may not be mounted


def test_a_directory_below_a_missing_parent_is_not_made(tmp_path: Path) -> None:
    """A further evidence directory on a stick that is not there does not fill the disk below it."""
    opened = store.Store(tmp_path / "usb" / "xidwatch", BOOT, 30.0, make_parents=False)
    with pytest.raises(FileNotFoundError, match="is it mounted"):
        opened.open()
    assert not list(tmp_path.iterdir())
    (tmp_path / "usb").mkdir()
    opened.open()
    delete(tmp_path / "usb")
    trouble = opened.write([note(1)]).trouble
    assert trouble is not None
    assert (trouble.what, "is it mounted" in trouble.text) == ("state directory", True)
    (tmp_path / "usb").mkdir()
    assert opened.write([note(1)]).settled == {0}


@pytest.mark.root
@pytest.mark.parametrize("below", ["", "xidwatch"])
def test_a_disk_that_is_unmounted_in_mid_run_is_not_replaced_by_the_systems(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, below: str
) -> None:
    """Its directory is not begun anew on the system's disk; when it is mounted again, recording goes on there."""
    stick = tmp_path / "usb"
    stick.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(stick)]
    if subprocess.run(mount, capture_output=True, check=False).returncode:
        pytest.skip("needs the right to mount")
    real = Path.stat
    monkeypatch.setattr(Path, "stat", lambda path, **how: real(tmp_path if path == Path("/") else path, **how))
    opened = store.Store(stick / below, BOOT, 30.0, make_parents=False)
    opened.open()
    assert opened.write([note(1)]).settled == {0}
    subprocess.run(["umount", "-l", str(stick)], check=True)
    trouble = opened.write([note(2)]).trouble
    assert "is it mounted" in (trouble.text if trouble else "")
    assert not list(stick.iterdir())
    subprocess.run(mount, check=True)
    try:
        assert opened.write([note(2)]).settled == {0}
        assert there(stick / below)[0] == ["n-000002"]
        opened.close()
    finally:
        subprocess.run(["umount", "-l", str(stick)], check=True)


def test_a_damaged_baseline_is_kept_beside_the_one_that_takes_its_place(tmp_path: Path) -> None:
    """It may hold an operator's word, and somebody may still read it out of it."""
    (tmp_path / baseline.NAME).write_bytes(b'{"accepted":{"user":"alice"')
    writer = store.Store(tmp_path, "5f0c", 30.0)
    record = writer.open()
    writer.close()
    assert record.baseline is None
    assert (tmp_path / f"{baseline.NAME}.damaged").read_bytes() == b'{"accepted":{"user":"alice"'
    assert any("is kept as" in text for text in writer.take_remarks())
