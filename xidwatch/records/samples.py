"""One CSV row a tick, in a file per UTC day.

    # xidwatch samples, schema 1, host boot id 5f0c..., interval 30 s
    time,boot_id,tick,gpu:0000:11:00.0:power_mean_watts,gpu:0000:11:00.0:temperature_celsius
    2026-09-17T02:09:38.004Z,5f0c...,119,246.1,61
    2026-09-17T02:10:08.006Z,5f0c...,120,,

An empty cell is a missing value; its reason is in the journal. A new day, boot, column or interval opens the next file
(`2026-09-17.csv`, `2026-09-17.1.csv`, ...). Within a boot columns never disappear and keep their order.
"""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import date, timedelta
from itertools import islice
from pathlib import Path
from typing import BinaryIO

import msgspec

from xidwatch.clock import from_iso
from xidwatch.records import Damage, note, regular
from xidwatch.records.files import LineFiles
from xidwatch.records.values import wall_time

FOLDER = "samples"
SCHEMA = 1
KEEP_DAYS = 400
FIXED = ("time", "boot_id", "tick")
TAIL_BYTES = 1024 * 1024
_NAME = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}(?:\.(?P<number>[1-9][0-9]*))?\.csv")
_TIME = re.compile(r"^\d{4}-\d\d-\d\dT[\d:.]+Z$")
_COMMENT = re.compile(r"^# xidwatch samples, schema \d+, host boot id (?P<boot_id>[^,\n]*)(?:, interval (?P<interval>[^ ,\n]*) s)?")

Identity = tuple[str, str, str]  # time, boot id, tick: what tells one row from every other


class Row(msgspec.Struct, frozen=True, kw_only=True):
    """One tick. `time` is ISO 8601 UTC; `cells` are printed values by column, empty where one is missing.

    `interval_s`: the time from tick to tick as set now, for the head of the file; 0 where that is not told.
    """

    time: str
    boot_id: str
    tick: int
    cells: Mapping[str, str]
    interval_s: float = 0.0

    @property
    def wall(self) -> float:
        """Seconds since the epoch."""
        return from_iso(self.time)

    @property
    def identity(self) -> Identity:
        """The fixed cells as printed."""
        return self.time, self.boot_id, str(self.tick)


class Head(msgspec.Struct, frozen=True):
    """What stands above the rows. `columns` without the fixed ones; `interval` in seconds, as printed."""

    boot_id: str
    columns: tuple[str, ...]
    interval: str = ""


# ------------------------------------------------------------------------------------------------------------- writing


class SampleFile:
    """Puts rows where they belong, through `LineFiles`; any OSError passes through and nothing is half done."""

    def __init__(self, folder: Path, interval_s: float, files: LineFiles) -> None:
        self._folder = folder
        self._interval_s = interval_s
        self._files = files
        self._path: Path | None = None
        self._day = ""
        self._head = Head("", ())

    def append(self, row: Row) -> None:
        """Durable only after the `sync` of its `LineFiles`. Raises OSError; ValueError for a time that names no day."""
        path = self._file_for(row)
        fixed = [row.time, row.boot_id, str(row.tick)]
        self._files.append(path, _line([*fixed, *(row.cells.get(column, "") for column in self._head.columns)]))

    def release(self) -> None:
        """Believe nothing about the files any more: they are looked at again before the next row."""
        self._path = None

    def _file_for(self, row: Row) -> Path:
        day = date.fromisoformat(row.time[:10]).isoformat()
        if self._path is None:
            self._resume(row.boot_id)
        known = self._head.columns if self._head.boot_id == row.boot_id else ()
        columns = tuple(dict.fromkeys((*known, *row.cells)))
        head = Head(row.boot_id, columns, f"{row.interval_s or self._interval_s:g}")
        if self._path is None or (self._day, self._head) != (day, head):
            self._begin(day, head)
        assert self._path is not None
        return self._path

    def _resume(self, boot_id: str) -> None:
        """Go on in the latest file, where it is of this boot; opening it first repairs its tail."""
        self._files.have_folder(self._folder)
        latest = files(self._folder)[-1:]
        if not latest or self._files.length(latest[0]) == 0:
            return
        head = read_head(latest[0])
        if head and head.boot_id == boot_id:
            self._path, self._day, self._head = latest[0], latest[0].name[:10], head

    def _begin(self, day: str, head: Head) -> None:
        path = self._free_name(day)
        comment = f"# xidwatch samples, schema {SCHEMA}, host boot id {head.boot_id}, interval {head.interval} s\n"
        self._path = None
        self._files.append(path, comment.encode() + _line([*FIXED, *head.columns]))
        self._path, self._day, self._head = path, day, head

    def _free_name(self, day: str) -> Path:
        latest = [path for path in files(self._folder) if path.name.startswith(day)][-1:]
        if not latest:
            return self._folder / f"{day}.csv"
        if self._files.length(latest[0]) == 0:  # begun in vain: the disk was full
            return latest[0]
        return self._folder / f"{day}.{_number(latest[0]) + 1}.csv"


def _line(cells: list[str]) -> bytes:
    out = io.StringIO()
    # A line of the file is a row, always: that is what makes a torn one recognisable.
    csv.writer(out, lineterminator="\n").writerow([re.sub(r"[\r\n\0]+", " ", cell) for cell in cells])
    return out.getvalue().encode("utf-8", "replace")


def text(columns: Sequence[str], lines: Iterable[Sequence[str]]) -> str:
    """Names and rows as they stand in a file, for who passes them on."""
    return b"".join(_line(list(cells)) for cells in (columns, *lines)).decode()


def expired(folder: Path, today: str) -> list[Path]:
    """Files older than 400 days, never touching the latest 400 days that have any: a clock that jumps ahead deletes nothing."""
    found = files(folder)
    kept_anyway = set(sorted({path.name[:10] for path in found})[-KEEP_DAYS:])
    oldest = (date.fromisoformat(today) - timedelta(days=KEEP_DAYS)).isoformat()
    return [path for path in found if path.name[:10] < oldest and path.name[:10] not in kept_anyway]


# ------------------------------------------------------------------------------------------------------------- reading


def files(folder: Path) -> list[Path]:
    """The sample files in a folder, oldest first; none where there is no folder. Raises OSError when it may not be read."""
    try:
        found = [path for path in folder.iterdir() if _NAME.fullmatch(path.name)]
    except FileNotFoundError:
        return []
    return sorted(found, key=lambda path: (path.name[:10], _number(path)))


def _number(path: Path) -> int:
    match = _NAME.fullmatch(path.name)
    return int(match["number"] or 0) if match else 0


def read_head(path: Path) -> Head | None:
    """What stands above the rows; None where that is not whole. Raises OSError."""
    with regular.reading(path) as file:
        return _head(file.readline(), file.readline())


def _head(comment: bytes, names: bytes) -> Head | None:
    match = _COMMENT.match(comment.decode("utf-8", "replace"))
    columns = tuple(_cells(names))
    if not match or not names.endswith(b"\n") or columns[:3] != FIXED:
        return None
    return Head(match["boot_id"], columns[3:], match["interval"] or "")


def read(path: Path, problems: list[Damage] | None = None) -> Iterator[Row]:
    """The rows of one file. What is no row goes to `problems`; a file that cannot be read ends there."""
    try:
        with regular.reading(path) as file:
            yield from _rows(file, path, problems)
    except OSError as error:
        note(problems, path, 0, error.strerror or str(error))


def cells_of(told: str) -> Iterator[list[str]]:
    """Every whole line's cells, names of columns included."""
    return (_cells(raw) for raw in io.BytesIO(told.encode()) if raw.endswith(b"\n"))


def from_text(told: str, name: str, problems: list[Damage] | None = None) -> Iterator[Row]:
    """The rows of a dump's part, which has no comment above; where its columns change, their names stand again."""
    head: Head | None = None
    for number, raw in enumerate(io.BytesIO(told.encode()), start=1):
        cells = _cells(raw)
        if tuple(cells[:3]) == FIXED:
            head = Head("", tuple(cells[3:]))
            continue
        found = _row(raw, head) if head else "no header of samples"
        if isinstance(found, Row):
            yield found
        else:
            note(problems, Path(name), number, found)


def _rows(file: BinaryIO, path: Path, problems: list[Damage] | None) -> Iterator[Row]:
    head = _head(file.readline(), file.readline())
    if head is None:
        note(problems, path, 1, "no header of samples")
        return
    for number, raw in enumerate(file, start=3):
        found = _row(raw, head)
        if isinstance(found, Row):
            yield found
        else:
            note(problems, path, number, found)


def _row(raw: bytes, head: Head) -> Row | str:
    if not raw.endswith(b"\n"):
        return "no end of line: cut off while it was written"
    cells = _cells(raw)
    if len(cells) != len(head.columns) + 3:
        return f"{len(cells)} cells, not {len(head.columns) + 3}: {raw[:80]!r}"
    try:
        row = Row(time=cells[0], boot_id=cells[1], tick=int(cells[2]), cells=dict(zip(head.columns, cells[3:], strict=True)))
        wall_time(row.time)
    except (ValueError, OverflowError) as error:
        return f"not a row: {error}"
    return row


def _cells(raw: bytes) -> list[str]:
    try:
        return next(csv.reader([raw.decode("utf-8", "replace").replace("\0", "").rstrip("\r\n")]), [])
    except csv.Error:  # a cell beyond the reader's limit: no row of ours
        return []


def times(path: Path) -> Iterator[str]:
    """When each row was taken, as printed, without parsing the rest of it; none in what is no file. Raises OSError."""
    if regular.obstacle(path):  # `read` tells of it
        return
    with regular.reading(path) as file:
        for raw in islice(file, 2, None):
            printed = raw[: raw.find(b",")].decode("ascii", "replace")
            if raw.endswith(b"\n") and _TIME.match(printed):
                yield printed


def tail_identities(path: Path) -> set[Identity]:
    """Which rows the end of a file holds, without parsing them: the fixed cells are never quoted. Raises OSError."""
    with regular.reading(path) as file:
        size = file.seek(0, io.SEEK_END)
        file.seek(max(0, size - TAIL_BYTES))
        lines = file.read().split(b"\n")[:-1]
    fixed = (line.decode("utf-8", "replace").split(",", 3)[:3] for line in lines)
    return {(cells[0], cells[1], cells[2]) for cells in fixed if len(cells) == 3}
