"""All of the state directory that the recorder writes, and the rules that make every record durable exactly once.

Law: one thread, no queue, no log. Frames go in, in order; out comes how many of them are on the disk and what is in
the way of the rest. Whoever calls keeps the rest and calls again.
"""

from __future__ import annotations

import fcntl
import os
import re
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec

from xidwatch.clock import iso
from xidwatch.records import Damage, RecordError, baseline, dumps, files, journal, recovery, samples
from xidwatch.records.frames import WINDOW, Frame, Trouble
from xidwatch.records.recovery import RecoveredRecord

MOST_DAMAGE = 100  # places told to the loop; a file of rubbish has more
_DAY = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}")


@dataclass(frozen=True, slots=True)
class Written:
    """What became of a batch: so many of its first frames are settled, and why it went no further.

    `refused`: frames that no disk would take (a row without a day), told once and settled.
    """

    settled: int
    trouble: Trouble | None
    refused: tuple[str, ...] = ()


class _Identity(msgspec.Struct, frozen=True):
    """Which record it is. The id alone would not do: a run that could not read its past counts from 1 again."""

    id: str = ""
    boot_id: str = ""
    time: str = ""


class Store:
    """The writer of a state directory. Only one at a time: the directory itself is locked while it lives."""

    def __init__(self, state_dir: Path, boot_id: str, interval_s: float) -> None:
        self._root = state_dir
        self._boot_id = boot_id
        self._files = files.LineFiles()
        self._samples = samples.SampleFile(state_dir / samples.FOLDER, interval_s, self._files)
        self._seen: set[object] = set()
        self._fresh = 0  # frames settled since the start
        self._day = ""
        self._lock: int | None = None

    def open(self) -> RecoveredRecord:
        """Lock the directory and read back what is in it. Raises OSError; BlockingIOError while another recorder has it."""
        began = time.monotonic()
        files.make_folder(self._root)
        self._lock_root()
        for name in (journal.FOLDER, samples.FOLDER, dumps.FOLDER):
            files.make_folder(self._root / name)
        damage: list[Damage] = []
        entries = recovery.tail(self._root, self._boot_id, damage)
        self._remember(entries)
        found = recovery.fold(entries, self._boot_id)
        learnt = self._baseline(damage)
        took_ms = round((time.monotonic() - began) * 1000)
        return RecoveredRecord.of(found, learnt, damage[:MOST_DAMAGE], took_ms)

    def write(self, batch: Sequence[Frame]) -> Written:
        """Write frames in order, then make them durable together. Never raises OSError."""
        refused: list[str] = []
        settled, trouble = self._put_all(batch, refused)
        try:
            self._files.sync()
        except OSError as error:
            settled, trouble = 0, explain(_what(batch[0]), error)
        if trouble:
            self._files.release()
            self._samples.release()
        self._settle(settled)
        return Written(settled, trouble, tuple(refused) if settled else ())

    def _put_all(self, batch: Sequence[Frame], refused: list[str]) -> tuple[int, Trouble | None]:
        for index, frame in enumerate(batch):
            try:
                self._put(frame)
            except OSError as error:
                return index, explain(_what(frame), error)
            except ValueError as error:
                refused.append(str(error))
        return len(batch), None

    def close(self) -> None:
        """Let go of the files and of the directory."""
        self._files.release()
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    def publish(self, path: str, text: str) -> Trouble | None:
        """Replace a small file, not durably."""
        try:
            files.replace(Path(path), text.encode(), mode=0o644, durable=False)
        except OSError as error:
            return explain("publish", error)
        return None

    def _lock_root(self) -> None:
        if self._lock is None:
            self._lock = os.open(self._root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise BlockingIOError(error.errno, "another recorder is still writing here", str(self._root)) from error
        except OSError:  # a filesystem without locks: better unlocked than unrecorded
            pass

    def _remember(self, entries: list[journal.Entry]) -> None:
        """What need not be written again when it is sent again, because it is on the disk for sure."""
        rows = samples.files(self._root / samples.FOLDER)[-2:]
        try:
            for path in (*journal.days(self._root)[-2:], *rows):
                files.make_durable(path)
        except OSError:  # then it is written again: twice is better than not at all
            return
        self._seen.update(_Identity(entry.id, entry.boot_id, entry.time) for entry in entries[-WINDOW:])
        for path in rows:
            self._seen.update(samples.tail_identities(path))

    def _baseline(self, damage: list[Damage]) -> baseline.Baseline | None:
        try:
            learnt = baseline.read(self._root / baseline.NAME)
        except RecordError as error:
            damage.append(Damage(str(error.path), 0, f"{error.text} ({error.hint})"))
            return None
        return learnt if learnt and learnt.boot_id == self._boot_id else None

    def _put(self, frame: Frame) -> None:
        if frame.sample is not None:
            if frame.sample.identity not in self._seen:
                self._samples.append(frame.sample)
        elif bytes(frame.baseline):
            files.replace(self._root / baseline.NAME, bytes(frame.baseline) + b"\n")
        else:
            self._put_record(bytes(frame.journal))

    def _put_record(self, record: bytes) -> None:
        identity = _identity(record)
        if identity.id and identity in self._seen:
            return
        # A record that tells no day is kept all the same.
        day = identity.time[:10] if _DAY.match(identity.time) else iso(time.time())[:10]
        self._files.append(self._root / journal.FOLDER / f"{day}.jsonl", record + b"\n")
        if day > self._day:
            self._day = day
            self._expire(day)

    def _expire(self, day: str) -> None:
        try:
            for path in samples.expired(self._root / samples.FOLDER, day):
                path.unlink()
        except (OSError, ValueError):  # the next day tries again
            pass

    def _settle(self, count: int) -> None:
        # A successor is sent what its predecessor had not called durable, at most a window of it, before anything new.
        self._fresh += count
        if self._fresh > WINDOW:
            self._seen.clear()


def _identity(record: bytes) -> _Identity:
    try:
        return msgspec.json.decode(record, type=_Identity)
    except (msgspec.MsgspecError, RecursionError):
        return _Identity()


def _what(frame: Frame) -> str:
    if frame.sample is not None:
        return "samples"
    return "baseline" if bytes(frame.baseline) else "journal"


def explain(what: str, error: OSError) -> Trouble:
    """An OSError in the words of the protocol."""
    where = f": {error.filename}" if error.filename else ""
    return Trouble(what=what, errno=error.errno or 0, text=f"{error.strerror or error}{where}")
