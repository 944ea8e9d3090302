"""An operator's order to let an engine start, whatever the gate says: the way past a broken or missing daemon.

    /run/xidwatch/open-vllm.service.json      (one line, 0644; it lies where only root writes, and is gone with the boot)

    {"v":1,"unit":"vllm.service","boot_id":"5f0c...","until_mono_ms":7220011,"until":"2026-09-17T04:10:08.412Z",
     "at":"2026-09-17T03:10:08.412Z","reason":"the daemon does not start","by":"alice (uid 0)","withdrawn":""}

    /run/xidwatch/open-vllm.service.json.journalled      (the digest of that order: a daemon has written it into the journal)

It is over at a monotonic time, which nobody can set, or when it is taken back (`withdrawn`: at that time); one that is over stays there
until a daemon has journalled that. The order is written by who gives it or takes it back and by nobody else, the mark only by a daemon:
two writers of one file would undo each other's word.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Collection, Iterator
from pathlib import Path

import msgspec

from xidwatch.records import RecordError, files, regular

VERSION = 1
PREFIX, SUFFIX, MARK = "open-", ".json", ".journalled"
WORLD_READABLE = 0o644
OTHERS_WRITE = stat.S_IWGRP | stat.S_IWOTH
MOST_BYTES = 64 * 1024
MOST_ORDERS = 64  # engines of one host, and then some


class Order(msgspec.Struct, frozen=True, kw_only=True):
    """Until when (monotonic milliseconds of that boot, and UTC for people), why, and by whose word."""

    unit: str
    boot_id: str
    until_mono_ms: int
    until: str
    at: str
    reason: str
    by: str
    v: int = VERSION
    withdrawn: str = ""

    def holds(self, now_mono_ms: int, boot_id: str) -> bool:
        """Whether it still counts."""
        return self.boot_id == boot_id and now_mono_ms < self.until_mono_ms and not self.withdrawn

    def taken_back(self, at: str) -> Order:
        """The same, no longer in force."""
        return msgspec.structs.replace(self, withdrawn=at)

    @property
    def digest(self) -> str:
        """The same for the same words."""
        from hashlib import sha256  # noqa: PLC0415  it loads a library, and only a daemon asks for it

        return sha256(msgspec.json.encode(self)).hexdigest()


def place(run_dir: Path, unit: str) -> Path:
    """Where the order for a unit is."""
    return run_dir / f"{PREFIX}{unit}{SUFFIX}"


def write(run_dir: Path, order: Order) -> None:
    """Put it in force, in the place of an earlier one; of several given at once the last. It is not to outlive the boot. Raises OSError."""
    run_dir.mkdir(parents=True, exist_ok=True, mode=0o755)
    files.replace(place(run_dir, order.unit), msgspec.json.encode(order) + b"\n", mode=WORLD_READABLE, durable=False, alone=False)


def read(run_dir: Path, unit: str) -> Order | None:
    """None when there is none. Raises RecordError when it may not be believed: others could have written it, or it is damaged."""
    path = place(run_dir, unit)
    try:
        found = msgspec.json.decode(_trusted(path), type=Order)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise RecordError(path, error.strerror or str(error), "`xidwatch gate --open-for` writes it anew") from error
    except (msgspec.MsgspecError, RecursionError) as error:
        raise RecordError(path, f"damaged: {error}", "`xidwatch gate --open-for` writes it anew") from error
    if found.unit != unit:
        raise RecordError(path, f"is an order for {found.unit!r}", "`xidwatch gate --open-for` writes it anew")
    return found


def mark(run_dir: Path, order: Order) -> None:
    """It is on record, for the daemons to come. Raises OSError."""
    files.replace(_mark(run_dir, order.unit), order.digest.encode() + b"\n", mode=WORLD_READABLE, durable=False)


def is_marked(run_dir: Path, order: Order) -> bool:
    """Whether a daemon has put it on record. A mark that could be anybody's is none: told twice is better than not at all."""
    try:
        return _trusted(_mark(run_dir, order.unit)).strip() == order.digest.encode()
    except OSError:
        return False


def remove(run_dir: Path, unit: str) -> None:
    """It is over, and that is on record. Raises OSError."""
    files.clear_stale(place(run_dir, unit))
    place(run_dir, unit).unlink(missing_ok=True)
    _mark(run_dir, unit).unlink(missing_ok=True)


def units(run_dir: Path, first: Collection[str] = ()) -> Iterator[str]:
    """For which there is a file, believable or not, at most `MOST_ORDERS`: those that are `first` before all others. Raises OSError."""
    found = (path.name.removeprefix(PREFIX).removesuffix(SUFFIX) for path in run_dir.glob(f"{PREFIX}*{SUFFIX}"))
    yield from sorted(found, key=lambda unit: (unit not in first, unit))[:MOST_ORDERS]


def _mark(run_dir: Path, unit: str) -> Path:
    path = place(run_dir, unit)
    return path.with_name(f"{path.name}{MARK}")


def _trusted(path: Path) -> bytes:
    """What lies there, if its owner is root or who reads it, and nobody else could have written it. Raises OSError."""
    with regular.reading(path) as file:
        status = os.fstat(file.fileno())
        if status.st_uid not in (0, os.geteuid()) or status.st_mode & OTHERS_WRITE:
            raise PermissionError(0, "could have been written by anybody, so it does not count", str(path))
        return file.read(MOST_BYTES)
