"""All of the state directory that the recorder writes, and the rules that make every record durable exactly once.

Law: one thread, no queue, no log. Frames go in, in order; out comes which of them are on the disk and what is in the
way of the rest. Whoever calls keeps the rest and calls again. Order holds within a stream (journal, samples, baseline).
"""

from __future__ import annotations

import errno
import fcntl
import os
import re
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import msgspec

from xidwatch.clock import iso
from xidwatch.records import Damage, RecordError, baseline, dumps, files, journal, recovery, regular, samples
from xidwatch.records.frames import WINDOW, Frame, Trouble
from xidwatch.records.recovery import Recovered, RecoveredRecord
from xidwatch.records.streams import Stream, explain

MOST_DAMAGE = 100  # places told to the loop; a file of rubbish has more
_DAY = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}")


@dataclass(frozen=True, slots=True)
class Written:
    """What became of a batch: which places in it are settled, and what is in the way of the others (the journal's first).

    `refused`: frames that no disk would take (a row without a day), told once and settled.
    """

    settled: frozenset[int]
    trouble: Trouble | None = None
    refused: tuple[str, ...] = ()


class _Identity(msgspec.Struct, frozen=True):
    """Which record it is. The id alone would not do: a run that could not read its past counts from 1 again."""

    id: str = ""
    boot_id: str = ""
    time: str = ""


class Store:
    """The writer of a state directory. Only one at a time: the directory itself is locked while it lives.

    Not `make_parents`: a directory whose parent is not there is not made (it may not be mounted).
    """

    def __init__(self, state_dir: Path, boot_id: str, interval_s: float, *, make_parents: bool = True) -> None:
        self._root = state_dir
        self._boot_id = boot_id
        self._make_parents = make_parents
        self._remarks: list[str] = []
        self._seen: set[object] = set()
        rows = files.LineFiles(self._remarks)
        self._records = files.LineFiles(self._remarks)
        self._samples = samples.SampleFile(state_dir / samples.FOLDER, interval_s, rows)
        shared = self._hold_root, self._seen.clear, self._remarks
        self._streams = (  # in this order: an edge is to wait for nothing
            Stream("journal", self._put_record, *shared, self._records),
            Stream("samples", self._put_row, *shared, rows, self._samples.release),
            Stream("baseline", self._put_baseline, *shared),
        )
        self._seen_in: dict[Path, files.Identity] = {}
        self._fresh = 0  # frames settled since the start
        self._day = ""
        self._lock: int | None = None

    def open(self) -> RecoveredRecord:
        """Lock the directory and read back what is in it. Raises OSError; BlockingIOError while another recorder has it."""
        began = time.monotonic()
        self._hold_root()
        files.make_subfolder(self._root / journal.FOLDER, self._remarks)
        for name in (samples.FOLDER, dumps.FOLDER):
            self._try_folder(self._root / name)
        damage = recovery.passed_over(self._root, iso(time.time())[:10])
        learnt = self._baseline(damage)
        entries = recovery.tail(self._root, self._boot_id, damage)
        self._remember(entries)
        found = self._as_dumped(recovery.fold(entries, self._boot_id, damage))
        took_ms = round((time.monotonic() - began) * 1000)
        return RecoveredRecord.of(found, learnt, damage[:MOST_DAMAGE], took_ms)

    def write(self, batch: Sequence[Frame]) -> Written:
        """Write frames, each stream in order, and make them durable together. Never raises OSError."""
        settled: set[int] = set()
        refused: list[str] = []
        troubles: list[Trouble] = []
        for stream in self._streams:
            places = [place for place, frame in enumerate(batch) if frame.stream == stream.name]
            if not places:
                continue
            result = stream.write([batch[place] for place in places])
            settled.update(places[: result.count])
            refused += result.refused
            if result.trouble:
                troubles.append(result.trouble)
        self._settle(len(settled))
        return Written(frozenset(settled), troubles[0] if troubles else None, tuple(refused))

    def take_remarks(self) -> list[str]:
        """What people should know since the last call: what was in the way, and what somebody else deleted."""
        taken = list(dict.fromkeys(self._remarks))
        self._remarks.clear()
        return taken

    def close(self) -> None:
        """Let go of the files and of the directory."""
        self._let_go()
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    def publish(self, path: str, text: str) -> Trouble | None:
        """Replace a small file, not durably."""
        place = Path(path)
        try:
            if not place.parent.is_dir():  # somebody deleted it: people still want to know
                files.make_folder(place.parent, parents=False)
                place.parent.chmod(0o755)
            files.replace(place, text.encode(), mode=0o644, durable=False, remarks=self._remarks)
        except OSError as error:
            return explain("publish", error)
        return None

    def _as_dumped(self, found: Recovered) -> Recovered:
        """A dump that this boot's journal asks for and that is not whole died with its run: it counts as not taken."""
        incident = found.incident
        if incident is None or not incident.dumps or found.last_boot_id != self._boot_id or self._has_dump(incident.id):
            return found
        return replace(found, incident=replace(incident, dumps=0))

    def _has_dump(self, incident: str) -> bool:
        try:
            return dumps.load(self._root / dumps.FOLDER / incident).state == "complete"
        except OSError:
            return False

    # --------------------------------------------------------------------------------------------------- the directory

    def _hold_root(self) -> None:
        """The lock is on the directory that the path names now; one that was deleted or moved is begun anew. Raises OSError."""
        held = None if self._lock is None else files.identity_of(os.fstat(self._lock))
        if held and held == self._root_now():
            self._doubt_what_was_seen()
            return
        if held and not self._make_parents and self._is_unmounted(held):
            raise FileNotFoundError(errno.ENOENT, "no longer on its own disk; is it mounted?", str(self._root))
        files.make_folder(self._root, parents=self._make_parents)
        lock = self._locked_root()
        if self._lock is not None:
            os.close(self._lock)
            self._remarks.append(f"{self._root} was deleted, moved or mounted over; it is begun anew, what was in it is not there")
            self._let_go()
            self._seen.clear()
        self._lock = lock

    def _root_now(self) -> files.Identity | None:
        try:
            return files.identity_of(self._root.stat())
        except (FileNotFoundError, NotADirectoryError):
            return None

    def _is_unmounted(self, held: files.Identity) -> bool:
        """It was on a disk of its own, and what is there now is on the system's."""
        now = next(place for place in (self._root, *self._root.parents) if place.exists()).stat().st_dev
        return now != held[0] and now == Path("/").stat().st_dev

    def _locked_root(self) -> int:
        descriptor = os.open(self._root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            os.close(descriptor)
            raise BlockingIOError(error.errno, "another recorder is still writing here", str(self._root)) from error
        except OSError:  # a filesystem without locks: better unlocked than unrecorded
            pass
        return descriptor

    def _try_folder(self, folder: Path) -> None:
        try:
            files.make_subfolder(folder, self._remarks)
        except OSError as error:  # whoever writes there tries again; the journal does not wait for it
            self._remarks.append(explain("", error).text)

    def _let_go(self) -> None:
        for stream in self._streams:
            stream.let_go()

    # ------------------------------------------------------------------------------------------------ what is there

    def _remember(self, entries: list[journal.Entry]) -> None:
        """What need not be written again when it is sent again, because it is on the disk for sure."""
        try:
            rows = [path for path in samples.files(self._root / samples.FOLDER)[-2:] if not regular.obstacle(path)]
            days = [path for path in journal.days(self._root)[-2:] if not regular.obstacle(path)]
            seen_in = {path: files.make_durable(path) for path in (*days, *rows)}
            identities = [samples.tail_identities(path) for path in rows]
        except OSError:  # then it is written again: twice is better than not at all
            return
        self._seen_in = seen_in
        self._seen.update(_Identity(entry.id, entry.boot_id, entry.time) for entry in entries[-WINDOW:])
        self._seen.update(*identities)

    def _doubt_what_was_seen(self) -> None:
        if self._seen and any(files.identity(path) != found for path, found in self._seen_in.items()):
            self._seen.clear()

    def _baseline(self, damage: list[Damage]) -> baseline.Baseline | None:
        try:
            learnt = baseline.read(self._root / baseline.NAME)
        except RecordError as error:
            damage.append(Damage(str(error.path), 0, f"{error.text} ({error.hint})"))
            self._keep_damaged(self._root / baseline.NAME)
            return None
        return learnt

    def _keep_damaged(self, path: Path) -> None:
        """It will be written anew, and may hold an operator's word."""
        copy = path.with_name(f"{path.name}.damaged")
        try:
            files.replace(copy, regular.read_bytes(path), remarks=self._remarks)
        except OSError:  # no file, or no room: it is said to be damaged all the same
            return
        self._remarks.append(f"{path} is damaged; what it held is kept as {copy}")

    # ----------------------------------------------------------------------------------------------------- one frame

    def _put_row(self, frame: Frame) -> None:
        if frame.sample is not None and frame.sample.identity not in self._seen:
            self._samples.append(frame.sample)

    def _put_baseline(self, frame: Frame) -> None:
        files.replace(self._root / baseline.NAME, bytes(frame.baseline) + b"\n", remarks=self._remarks)

    def _put_record(self, frame: Frame) -> None:
        record = bytes(frame.journal)
        identity = _identity(record)
        if identity.id and identity in self._seen:
            return
        # A record that tells no day is kept all the same.
        day = identity.time[:10] if _DAY.match(identity.time) else iso(time.time())[:10]
        self._records.append(self._root / journal.FOLDER / f"{day}.jsonl", record + b"\n")
        if day > self._day:
            self._day = day
            self._expire(day)

    def _expire(self, day: str) -> None:
        try:
            expired = samples.expired(self._root / samples.FOLDER, day)
        except (OSError, ValueError):  # the next day tries again
            return
        for path in expired:
            try:
                path.unlink()
            except OSError:  # a directory, say: no reason to keep the others
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
