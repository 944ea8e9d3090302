"""Sample files: which row goes where, and what a reader makes of what it finds."""

from __future__ import annotations

import os
import re
from datetime import date, timedelta
from pathlib import Path

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from xidwatch.records import Damage, samples
from xidwatch.records.files import LineFiles

BOOT = "5f0c"


def row(time: str, tick: int = 1, boot_id: str = BOOT, **cells: str) -> samples.Row:
    return samples.Row(time=time, boot_id=boot_id, tick=tick, cells=cells)


def write(folder: Path, *rows: samples.Row) -> None:
    """As one recorder would, from its start to its end."""
    folder.mkdir(exist_ok=True)
    lines = LineFiles()
    file = samples.SampleFile(folder, 30.0, lines)
    for each in rows:
        file.append(each)
    lines.sync()
    lines.release()


def names(folder: Path) -> list[str]:
    return [path.name for path in samples.files(folder)]


def test_a_file_looks_as_the_format_says(tmp_path: Path) -> None:
    """Comment, header, then a row a tick; a missing value is an empty cell."""
    full = {"gpu:0000:11:00.0:power_mean_watts": "246.1", "gpu:0000:11:00.0:temperature_celsius": "61"}
    lost = {"gpu:0000:11:00.0:power_mean_watts": "", "gpu:0000:11:00.0:temperature_celsius": ""}
    write(tmp_path, row("2026-09-17T02:09:38.004Z", 119, **full), row("2026-09-17T02:10:08.006Z", 120, **lost))
    assert (tmp_path / "2026-09-17.csv").read_text() == (
        "# xidwatch samples, schema 1, host boot id 5f0c, interval 30 s\n"
        "time,boot_id,tick,gpu:0000:11:00.0:power_mean_watts,gpu:0000:11:00.0:temperature_celsius\n"
        "2026-09-17T02:09:38.004Z,5f0c,119,246.1,61\n"
        "2026-09-17T02:10:08.006Z,5f0c,120,,\n"
    )


def test_a_new_column_opens_the_next_file_with_all_columns(tmp_path: Path) -> None:
    """Columns never disappear within a boot and keep the order in which they were first seen."""
    write(
        tmp_path,
        row("2026-09-17T00:00:00Z", 1, b="1", a="2"),
        row("2026-09-17T00:00:30Z", 2, a="3"),
        row("2026-09-17T00:01:00Z", 3, c="4", a="5"),
        row("2026-09-17T00:01:30Z", 4, b="6"),
    )
    assert names(tmp_path) == ["2026-09-17.csv", "2026-09-17.1.csv"]
    assert [found.cells for path in samples.files(tmp_path) for found in samples.read(path)] == [
        {"b": "1", "a": "2"},
        {"b": "", "a": "3"},
        {"b": "", "a": "5", "c": "4"},
        {"b": "6", "a": "", "c": ""},
    ]


def test_a_new_day_and_a_new_boot_open_files(tmp_path: Path) -> None:
    """A file is of one day and one boot; only a boot forgets columns."""
    write(
        tmp_path,
        row("2026-09-17T23:59:30Z", 1, a="1"),
        row("2026-09-18T00:00:00Z", 2, b="2"),
        row("2026-09-18T00:05:00Z", 1, "0000", c="3"),
    )
    heads = {path.name: samples.read_head(path) for path in samples.files(tmp_path)}
    assert heads == {
        "2026-09-17.csv": samples.Head(BOOT, ("a",), "30"),
        "2026-09-18.csv": samples.Head(BOOT, ("a", "b"), "30"),
        "2026-09-18.1.csv": samples.Head("0000", ("c",), "30"),
    }


def test_another_interval_opens_the_next_file(tmp_path: Path) -> None:
    """What stands above rows is true of all of them, whether the interval changed under way or at a restart; columns stay."""
    quick = msgspec.structs.replace(row("2026-09-17T00:00:30Z", 2, a="3"), interval_s=0.5)
    write(tmp_path, row("2026-09-17T00:00:00Z", 1, a="1", b="2"), quick)
    write(tmp_path, row("2026-09-17T00:00:31Z", 1, a="4"))
    write(tmp_path, row("2026-09-17T00:01:01Z", 2, a="5"))
    heads = [samples.read_head(path) for path in samples.files(tmp_path)]
    assert [head and (head.interval, head.columns) for head in heads] == [(each, ("a", "b")) for each in ("30", "0.5", "30")]


def test_a_successor_goes_on_in_the_same_file(tmp_path: Path) -> None:
    """A restart of the daemon alone opens nothing new and loses no column."""
    write(tmp_path, row("2026-09-17T00:00:00Z", 1, a="1", b="2"))
    write(tmp_path, row("2026-09-17T00:00:30Z", 2, b="3"))
    assert names(tmp_path) == ["2026-09-17.csv"]
    assert [found.cells for found in samples.read(tmp_path / "2026-09-17.csv")] == [{"a": "1", "b": "2"}, {"a": "", "b": "3"}]


def test_the_next_number_is_free_even_when_one_was_removed(tmp_path: Path) -> None:
    """A file that somebody removed does not make the next one collide with a later one."""
    write(tmp_path, *(row(f"2026-09-17T00:0{number}:00Z", number, **{f"c{number}": "1"}) for number in range(3)))
    (tmp_path / "2026-09-17.1.csv").unlink()
    write(tmp_path, row("2026-09-17T01:00:00Z", 1, "0000", a="1"))
    assert names(tmp_path) == ["2026-09-17.csv", "2026-09-17.2.csv", "2026-09-17.3.csv"]


def test_a_file_that_was_begun_in_vain_is_used(tmp_path: Path) -> None:
    """An empty file, or one with half a header, is taken over and gets a whole header."""
    (tmp_path / "2026-09-17.csv").write_text("# xidwatch sam")
    write(tmp_path, row("2026-09-17T00:00:00Z", 1, a="1"))
    assert names(tmp_path) == ["2026-09-17.csv"]
    assert [found.tick for found in samples.read(tmp_path / "2026-09-17.csv")] == [1]
    assert (tmp_path / "2026-09-17.csv.torn").read_text() == "# xidwatch sam\n"


def test_what_is_no_row_is_told_and_the_rest_is_read(tmp_path: Path) -> None:
    """Wrong cells, a time that is none, NULs and a torn end are reported with their line; a foreign file as a whole."""
    write(tmp_path, row("2026-09-17T00:00:00Z", 1, a="1"))
    path = tmp_path / "2026-09-17.csv"
    with path.open("ab") as file:
        file.write(b"x\nsoon,5f0c,2,1\n\xff,\xff,\xff,1\n" + bytes(40) + b"2026-09-17T00:01:30Z,5f0c,3,4\n2026-09-17T00:02:00Z,5f0c,4,5")
    problems: list[Damage] = []
    assert [found.tick for found in samples.read(path, problems)] == [1, 3]
    assert [damage.line for damage in problems] == [4, 5, 6, 8]
    foreign = tmp_path / "2026-09-18.csv"
    foreign.write_text("a,b\n1,2\n")
    assert list(samples.read(foreign, problems)) == []
    assert problems[-1] == Damage(str(foreign), 1, "no header of samples")
    assert list(samples.read(tmp_path / "2026-09-19.csv", problems)) == []
    assert problems[-1].text == "No such file or directory"


def test_a_fifo_among_the_files_is_told_and_holds_nobody(tmp_path: Path) -> None:
    """It is damage to who reads rows, and empty to who counts them."""
    path = tmp_path / "2026-09-17.csv"
    os.mkfifo(path)
    problems: list[Damage] = []
    assert list(samples.read(path, problems)) == []
    assert problems == [Damage(str(path), 0, "a FIFO where a file should be")]
    assert list(samples.times(path)) == []


def test_a_time_that_no_clock_shows_is_damage(tmp_path: Path) -> None:
    """A row of the year 10000, which no reader could print again, is told and the others count."""
    write(tmp_path, row("2026-09-17T00:00:00Z", 1, a="1"))
    path = tmp_path / "2026-09-17.csv"
    with path.open("ab") as file:
        file.write(b"9999-12-31T23:59:59-12:00,5f0c,2,1\n0001-01-01T00:00:00+14:00,5f0c,3,1\n2026-09-17T00:01:30Z,5f0c,4,1\n")
    problems: list[Damage] = []
    assert [found.tick for found in samples.read(path, problems)] == [1, 4]
    assert [damage.line for damage in problems] == [4, 5]


@given(st.dictionaries(st.text(max_size=8), st.text(max_size=12), max_size=5))
def test_any_cell_comes_back_on_one_line(cells: dict[str, str]) -> None:
    """Whatever a driver calls itself, a row is one line, and the cell comes back (line ends and NULs as blanks)."""
    written = samples._line(list(cells.values()) or ["x"])
    assert written.count(b"\n") == 1
    clean = [re.sub(r"[\r\n\0]+", " ", cell) for cell in cells.values()] or ["x"]
    assert samples._cells(written) == clean or clean == [""]


def test_rows_at_the_end_are_known_without_parsing(tmp_path: Path) -> None:
    """Time, boot and tick tell a row that is sent again; a torn one is not known."""
    rows = [row(f"2026-09-17T00:00:{second:02d}Z", second, a='"quoted", with comma') for second in range(3)]
    write(tmp_path, *rows)
    path = tmp_path / "2026-09-17.csv"
    assert {each.identity for each in rows} <= samples.tail_identities(path)
    path.write_bytes(path.read_bytes()[:-1])
    assert rows[2].identity not in samples.tail_identities(path)


def test_files_are_kept_for_400_days(tmp_path: Path) -> None:
    """With a file a day the 401st goes, and only what is exactly a sample file."""
    today = date(2026, 9, 17)
    for age in range(403):
        (tmp_path / f"{today - timedelta(days=age)}.csv").touch()
    (tmp_path / "2020-01-01.csv.torn").touch()
    (tmp_path / "2020-01-01.notes.csv").touch()
    assert [path.name for path in samples.expired(tmp_path, today.isoformat())] == [
        f"{today - timedelta(days=age)}.csv" for age in (402, 401)
    ]


def test_a_clock_that_jumps_ahead_deletes_nothing(tmp_path: Path) -> None:
    """A host that wakes up in the year 2099 still has all its rows."""
    for day in ("2026-09-15", "2026-09-16", "2026-09-17", "2099-01-01"):
        (tmp_path / f"{day}.csv").touch()
    assert samples.expired(tmp_path, "2099-01-01") == []
