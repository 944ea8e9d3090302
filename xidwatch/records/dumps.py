"""A dump: a folder of forensic parts, each its own file and durable before the next one starts.

    incidents/20260917T021008Z-bus-lost-0f/010-samples.csv
    incidents/20260917T021008Z-bus-lost-0f/040-config-space.txt
    incidents/20260917T021008Z-bus-lost-0f/manifest.json

    {"v":1,"incident":"20260917T021008Z-bus-lost-0f","boot_id":"5f0c...","trigger":"t-000123","drill":false,"state":"complete",
     "parts":[{"name":"010-samples.csv","stage":1,"started":"...","took_ms":3,"status":"ok","bytes":81234,"sha256":"..."},
              {"name":"310-nvml.json","stage":2,"started":"...","took_ms":5000,"status":"timeout","bytes":0}]}

The manifest is replaced after every part, never changed in place: at any moment it describes exactly the parts that
were durable before it. A reader that finds none, or half a one, still lists what lies in the folder.
"""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import msgspec

from xidwatch.clock import Clock, iso
from xidwatch.core.model import Moment
from xidwatch.records import files, regular

FOLDER = "incidents"
MANIFEST = "manifest.json"
VERSION = 1
PART_NAME = re.compile(r"[0-9]{3}-[a-z0-9]+(?:-[a-z0-9]+)*(?:\.[0-9]+)?\.[a-z0-9]+")

PartStatus = Literal["ok", "timeout", "stuck", "absent", "failed", "unknown"]


class Part(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One file, or the lack of one. `bytes` is required: a part of 0 bytes says so."""

    name: str
    stage: int
    started: str
    took_ms: int
    status: PartStatus
    bytes: int
    sha256: str | None = None
    note: str = ""
    trigger: str | None = None  # of a further dump into the same folder; else the manifest's


class Manifest(msgspec.Struct, frozen=True, kw_only=True):
    """`state`: writing, complete, or unknown where no whole manifest was found."""

    incident: str
    boot_id: str
    trigger: str
    v: int = VERSION
    drill: bool = False
    state: str = "writing"
    parts: tuple[Part, ...] = ()


@dataclass(frozen=True, slots=True)
class _Written:
    size: int
    sha256: str
    status: PartStatus
    note: str


class Stuck(TimeoutError):
    """Raised by a source whose process was told to end at the deadline and is still there."""


class DumpFolder:
    """The writer, used by one dump worker. Any call may block for ever on a dying disk; every OSError of the disk passes through."""

    def __init__(self, folder: Path, *, incident: str, boot_id: str, trigger: str, clock: Clock, drill: bool = False) -> None:
        """Create the folder (0700) durably, or go on in one that an earlier dump of the same incident began."""
        files.make_folder(folder)
        self.folder = folder
        self._clock = clock
        self._trigger = trigger
        earlier = load(folder)
        fresh = Manifest(incident=incident, boot_id=boot_id, trigger=trigger, drill=drill, parts=earlier.parts)
        self.manifest = fresh if earlier.state == "unknown" else msgspec.structs.replace(earlier, state="writing")
        self._store()

    def write_part(self, name: str, stage: int, chunks: Iterable[bytes]) -> Part:
        """Write a part as its source gives it; durable, and in the manifest, on return.

        A source that raises ends the part, with what came before it kept: TimeoutError makes it `timeout`, Stuck `stuck`,
        FileNotFoundError `absent`, anything else `failed`. Nothing is overwritten: a name that is taken gets a number.
        Raises ValueError for a name that is not NNN-name.ext.
        """
        began = self._clock.now()
        free = self._free_name(name)
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW
        descriptor = os.open(self.folder / free, flags, regular.FILE_MODE)
        try:
            written = _write(descriptor, chunks)
            files.sync(descriptor)
        finally:
            os.close(descriptor)
        files.fsync_folder(self.folder)
        return self._add(free, stage, began, written)

    def note_part(self, name: str, stage: int, status: PartStatus, note: str, began: Moment) -> Part:
        """Say that a part could not be had: nothing was written. `began`: when it was tried."""
        return self._add(self._free_name(name), stage, began, _Written(0, "", status, note))

    def complete(self) -> Manifest:
        """Every part that was planned has been tried."""
        self.manifest = msgspec.structs.replace(self.manifest, state="complete")
        self._store()
        return self.manifest

    def _add(self, name: str, stage: int, began: Moment, written: _Written) -> Part:
        part = Part(
            name=name,
            stage=stage,
            started=iso(began.wall),
            took_ms=max(0, round((self._clock.now().mono - began.mono) * 1000)),
            status=written.status,
            bytes=written.size,
            sha256=written.sha256 or None,
            note=written.note,
            trigger=self._trigger if self._trigger != self.manifest.trigger else None,
        )
        self.manifest = msgspec.structs.replace(self.manifest, parts=(*self.manifest.parts, part))
        self._store()
        return part

    def _free_name(self, name: str) -> str:
        if not PART_NAME.fullmatch(name):
            raise ValueError(f"not a part's name: {name!r} (expected NNN-name.ext)")
        stem, _, extension = name.rpartition(".")
        taken = {part.name for part in self.manifest.parts} | {path.name for path in self.folder.iterdir()}
        number = 1
        while name in taken:
            number += 1
            name = f"{stem}.{number}.{extension}"
        return name

    def _store(self) -> None:
        files.replace(self.folder / MANIFEST, msgspec.json.encode(self.manifest) + b"\n")


def _write(descriptor: int, chunks: Iterable[bytes]) -> _Written:
    digest = hashlib.sha256()
    size = 0
    status: PartStatus = "ok"
    note = ""
    try:
        for chunk in chunks:
            files.write_all(descriptor, chunk)
            digest.update(chunk)
            size += len(chunk)
    except Exception as error:  # noqa: BLE001  whatever the source does, what came before it is evidence
        status, note = _why(error), f"{type(error).__name__}: {error}"
    on_disk = os.fstat(descriptor).st_size  # more than `size` when the disk took half a chunk
    return _Written(on_disk, digest.hexdigest() if on_disk == size else "", status, note)


def _why(error: Exception) -> PartStatus:
    if isinstance(error, Stuck):
        return "stuck"
    if isinstance(error, TimeoutError):
        return "timeout"
    return "absent" if isinstance(error, FileNotFoundError) else "failed"


# ------------------------------------------------------------------------------------------------------------- reading


def folders(state_dir: Path) -> list[Path]:
    """Every incident's folder, oldest first (the name begins with its UTC time)."""
    root = state_dir / FOLDER
    return sorted(path for path in root.iterdir() if path.is_dir()) if root.is_dir() else []


def load(folder: Path) -> Manifest:
    """The manifest, with files it does not mention added as `unknown`. Content never raises; OSError passes through."""
    manifest = _manifest(folder / MANIFEST) or Manifest(incident=folder.name, boot_id="", trigger="", state="unknown")
    mentioned = {part.name for part in manifest.parts}
    strays = (path for path in sorted(folder.iterdir()) if PART_NAME.fullmatch(path.name) and path.name not in mentioned)
    return msgspec.structs.replace(manifest, parts=(*manifest.parts, *map(_stray, strays)))


def plain(manifest: Manifest) -> dict[str, Any]:
    """As it stands in its file."""
    found: dict[str, Any] = msgspec.to_builtins(manifest)
    return found


def _manifest(path: Path) -> Manifest | None:
    try:
        return msgspec.json.decode(regular.read_bytes(path), type=Manifest)
    except (FileNotFoundError, regular.NotRegular, msgspec.MsgspecError, RecursionError):
        return None


def _stray(path: Path) -> Part:
    status = path.lstat()
    return Part(name=path.name, stage=0, started=_printed(status.st_mtime), took_ms=0, status="unknown", bytes=status.st_size)


def _printed(wall: float) -> str:
    try:
        return iso(wall)
    except (ValueError, OverflowError, OSError):  # a file can be given any time, beyond the year 9999 too
        return ""
