"""Dump folders: consistent at every moment, and readable whatever became of them."""

from __future__ import annotations

import errno
import hashlib
import os
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from xidwatch.core.model import Moment
from xidwatch.records import dumps

NAME = "20260917T021008Z-bus-lost-0f"


class Clock:
    """Every look takes 3 ms."""

    boot_id = "5f0c"

    def __init__(self) -> None:
        self.looks = 0

    def now(self) -> Moment:
        self.looks += 1
        return Moment(1789646400.0, 100.0 + self.looks * 0.003)


def begin(root: Path, trigger: str = "t-000123") -> dumps.DumpFolder:
    return dumps.DumpFolder(root / NAME, incident=NAME, boot_id="5f0c", trigger=trigger, clock=Clock())


def on_disk(root: Path) -> dumps.Manifest:
    return msgspec.json.decode((root / NAME / "manifest.json").read_bytes(), type=dumps.Manifest)


def test_a_dump_looks_as_the_format_says(tmp_path: Path) -> None:
    """Parts with size, digest and duration, in order; the folder and its files are private."""
    dump = begin(tmp_path)
    dump.write_part("010-samples.csv", 1, [b"time", b",tick\n"])
    dump.note_part("310-nvml.json", 2, "stuck", "no answer for 5 s", Moment(1789646400.0, 95.0))
    assert dump.complete() == on_disk(tmp_path)
    assert msgspec.json.decode((tmp_path / NAME / "manifest.json").read_bytes()) == {
        "v": 1,
        "incident": NAME,
        "boot_id": "5f0c",
        "trigger": "t-000123",
        "drill": False,
        "state": "complete",
        "parts": [
            {
                "name": "010-samples.csv",
                "stage": 1,
                "started": "2026-09-17T12:00:00.000Z",
                "took_ms": 3,
                "status": "ok",
                "bytes": 10,
                "sha256": hashlib.sha256(b"time,tick\n").hexdigest(),
            },
            {
                "name": "310-nvml.json",
                "stage": 2,
                "started": "2026-09-17T12:00:00.000Z",
                "took_ms": 5009,
                "status": "stuck",
                "bytes": 0,
                "note": "no answer for 5 s",
            },
        ],
    }
    assert (tmp_path / NAME).stat().st_mode & 0o777 == 0o700
    assert {path.stat().st_mode & 0o777 for path in (tmp_path / NAME).iterdir()} == {0o600}


def test_a_part_is_durable_before_the_manifest_names_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The order is: the file, its name, the new manifest, the new manifest's name. At every step the old manifest is whole."""
    dump = begin(tmp_path)
    steps: list[str] = []
    real = os.fsync

    def watched(descriptor: int) -> None:
        steps.append(f"{Path(f'/proc/self/fd/{descriptor}').readlink().name} {len(on_disk(tmp_path).parts)}")
        real(descriptor)

    monkeypatch.setattr(os, "fsync", watched)
    dump.write_part("010-samples.csv", 1, [b"x"])
    assert steps == ["010-samples.csv 0", f"{NAME} 0", ".manifest.json.tmp 0", f"{NAME} 1"]


@pytest.mark.parametrize(
    ("error", "status"),
    [
        (TimeoutError("5 s"), "timeout"),
        (FileNotFoundError(errno.ENOENT, "No such file", "/sys/x"), "absent"),
        (PermissionError(errno.EACCES, "Permission denied", "/sys/x"), "failed"),
        (ValueError("odd"), "failed"),
    ],
)
def test_a_source_that_fails_keeps_what_came_before(tmp_path: Path, error: Exception, status: str) -> None:
    """Half a part is evidence: it stays, with its size, its digest and the reason for its end; the next part follows."""

    def source() -> Iterator[bytes]:
        yield b"half"
        raise error

    dump = begin(tmp_path)
    part = dump.write_part("040-config-space.txt", 1, source())
    assert (part.status, part.bytes, part.sha256) == (status, 4, hashlib.sha256(b"half").hexdigest())
    assert str(error) in part.note
    assert (tmp_path / NAME / part.name).read_bytes() == b"half"
    dump.write_part("050-next.txt", 1, [])
    assert [found.name for found in on_disk(tmp_path).parts] == ["040-config-space.txt", "050-next.txt"]


def test_a_disk_that_takes_half_a_chunk_is_told_truly(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The size is what lies there, and no digest is claimed for bytes that are not whole."""
    dump = begin(tmp_path)
    real = os.write
    sizes = iter([2])

    def full(descriptor: int, data: bytes) -> int:
        size = next(sizes, None)
        if size is None:
            monkeypatch.undo()
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return real(descriptor, bytes(data)[:size])

    monkeypatch.setattr(os, "write", full)
    part = dump.write_part("010-samples.csv", 1, [b"abcd"])
    assert (part.status, part.bytes, part.sha256) == ("failed", 2, None)
    assert "No space left" in part.note


def test_a_further_dump_overwrites_nothing(tmp_path: Path) -> None:
    """Its parts get the next free names and their own trigger; the manifest still begins with the first dump's."""
    first = begin(tmp_path)
    first.write_part("010-samples.csv", 1, [b"first"])
    first.complete()
    second = begin(tmp_path, trigger="t-000150")
    assert on_disk(tmp_path).state == "writing"
    second.write_part("010-samples.csv", 1, [b"second"])
    second.write_part("010-samples.csv", 1, [b"third"])
    manifest = second.complete()
    assert [(part.name, part.trigger) for part in manifest.parts] == [
        ("010-samples.csv", None),
        ("010-samples.2.csv", "t-000150"),
        ("010-samples.3.csv", "t-000150"),
    ]
    assert manifest.trigger == "t-000123"
    assert (tmp_path / NAME / "010-samples.csv").read_bytes() == b"first"
    assert (tmp_path / NAME / "010-samples.2.csv").read_bytes() == b"second"


@pytest.mark.parametrize("name", ["samples.csv", "10-x.csv", "010-x", "010-../x.csv", "010-X.csv", "/010-x.csv", "010-x.csv\n"])
def test_a_name_that_is_none_is_refused(tmp_path: Path, name: str) -> None:
    """Part names sort by number and lead nowhere else."""
    with pytest.raises(ValueError, match="NNN-name"):
        begin(tmp_path).write_part(name, 1, [])


@pytest.mark.parametrize("manifest", [None, b"", b'{"v":1,"incident":"x","par', b"\xff", b"[]"])
def test_a_folder_without_a_whole_manifest_is_listed(tmp_path: Path, manifest: bytes | None) -> None:
    """What lies there is shown as of unknown status, and nothing raises."""
    dump = begin(tmp_path)
    dump.write_part("010-samples.csv", 1, [b"12345"])
    if manifest is None:
        (tmp_path / NAME / "manifest.json").unlink()
    else:
        (tmp_path / NAME / "manifest.json").write_bytes(manifest)
    found = dumps.load(tmp_path / NAME)
    assert (found.incident, found.state) == (NAME, "unknown")
    assert [(part.name, part.status, part.bytes) for part in found.parts] == [("010-samples.csv", "unknown", 5)]


def test_a_part_the_manifest_does_not_know_yet_is_listed(tmp_path: Path) -> None:
    """A crash between a part and its line in the manifest hides nothing; a newer version's keys are no damage."""
    begin(tmp_path).write_part("010-samples.csv", 1, [b"x"])
    (tmp_path / NAME / "020-kernel.txt").write_bytes(b"abc")
    path = tmp_path / NAME / "manifest.json"
    path.write_bytes(path.read_bytes().replace(b'{"incident"', b'{"new":[1],"incident"', 1))
    assert [(part.name, part.status) for part in dumps.load(tmp_path / NAME).parts] == [
        ("010-samples.csv", "ok"),
        ("020-kernel.txt", "unknown"),
    ]


def test_what_is_no_manifest_stops_neither_reader_nor_dump(tmp_path: Path) -> None:
    """A FIFO in its place is set aside by the writer; a part with a time beyond every calendar is listed."""
    folder = tmp_path / NAME
    folder.mkdir()
    os.mkfifo(folder / "manifest.json")
    (folder / "010-samples.csv").write_bytes(b"x")
    assert dumps.load(folder).state == "unknown"
    os.utime(folder / "010-samples.csv", (1 << 40, 1 << 40))
    dump = dumps.DumpFolder(folder, incident=NAME, boot_id="5f0c", trigger="t-000123", clock=Clock())
    dump.complete()
    assert [(part.name, part.status) for part in dumps.load(folder).parts] == [("010-samples.csv", "unknown")]
    assert dumps.load(folder).state == "complete"


def test_folders_are_listed_oldest_first(tmp_path: Path) -> None:
    """The name begins with the UTC time; no folder is no incident."""
    assert dumps.folders(tmp_path) == []
    for name in ("20260918T000000Z-b", "20260917T000000Z-a"):
        (tmp_path / "incidents" / name).mkdir(parents=True)
    assert [path.name for path in dumps.folders(tmp_path)] == ["20260917T000000Z-a", "20260918T000000Z-b"]
