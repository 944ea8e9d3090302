"""Power over time as it is kept: columns that forget nothing they should not, and say where nothing is known."""

from __future__ import annotations

import csv
from itertools import accumulate

from hypothesis import given
from hypothesis import strategies as st

from xidwatch.core.model import Subject
from xidwatch.core.power import Stretch, TraceSource
from xidwatch.records import power_trace
from xidwatch.records.power_trace import Columns, csv_text, iso_us

GPU = Subject("gpu", "0000:11:00.0")
EPOCH_US = 1_796_061_974_058_302


def stretch(*offsets_us: int, after: int | None = None, source: TraceSource = TraceSource.BUFFER) -> Stretch:
    """Samples at these offsets, each drawing as many milliwatts as it is late; `after`: offset of the one before."""
    stamps = tuple(EPOCH_US + offset for offset in offsets_us)
    return Stretch(GPU, source, stamps, tuple(offsets_us), 0 if after is None else EPOCH_US + after)


def kept(*stretches: Stretch) -> Columns:
    columns = Columns()
    for one in stretches:
        columns.add(one)
    return columns


def told(columns: Columns) -> list[tuple[int, str]]:
    """Offset and source of every row; the draw of each sample is checked to be its own."""
    rows = [row.split(",") for row in columns.rows(GPU.name)]
    stamps = {iso_us(stamp): stamp - EPOCH_US for stamp in columns.stamps_us}
    assert {gpu for _, gpu, _, _ in rows} == {GPU.name}
    assert all(watts == f"{stamps[time] / 1000:.3f}" for time, _, watts, _ in rows if watts)
    return [(stamps[time], source if watts else f"({source})") for time, _, watts, source in rows]


def test_stretches_that_follow_each_other_are_one_trace() -> None:
    """Each names the last of the one before: nothing lies between them, and nothing is said to."""
    assert told(kept(stretch(20, 40), stretch(60, 80, after=40))) == [(20, "buffer"), (40, "buffer"), (60, "buffer"), (80, "buffer")]


def test_what_lies_between_two_stretches_that_do_not_follow_is_a_gap() -> None:
    """From the last sample known to the next one; what came before the first is no gap, for nobody looked."""
    for between in (stretch(60, after=50), stretch(60)):
        assert told(kept(stretch(20, 40), between)) == [(20, "buffer"), (40, "buffer"), (40, "(gap)"), (60, "buffer")]
    singles = [stretch(20), stretch(60), stretch(100)]
    assert told(kept(*singles)) == [(20, "buffer"), (20, "(gap)"), (60, "buffer"), (60, "(gap)"), (100, "buffer")]


def test_a_new_worker_reads_again_what_is_known_already() -> None:
    """Its first drain holds all of the buffer: each stamp is kept once, and where they overlap nothing is missing."""
    assert told(kept(stretch(20, 40), stretch(20, 40, 60))) == [(20, "buffer"), (40, "buffer"), (60, "buffer")]
    assert told(kept(stretch(20, 40), stretch(20, 40))) == [(20, "buffer"), (40, "buffer")]


def test_a_clock_set_back_is_said_and_its_samples_are_kept() -> None:
    """Their stamps are earlier than what is known, and they are no repetition: the newest there is has an earlier stamp."""
    columns = kept(stretch(8_000_020, 8_000_040), stretch(20, 40), stretch(60, after=40))
    assert told(columns) == [
        (8_000_020, "buffer"),
        (8_000_040, "buffer"),
        (8_000_040, "(clock_set_back)"),
        (20, "buffer"),
        (40, "buffer"),
        (60, "buffer"),
    ]


def test_a_buffer_that_fills_again_is_no_clock_set_back() -> None:
    """Its newest sample may be a few milliseconds older than the poll before: that one is left out, and what follows is no earlier."""
    polled = stretch(500_000, source=TraceSource.POLL_INSTANT)
    assert told(kept(polled, stretch(490_000), stretch(510_000, after=490_000))) == [
        (500_000, "poll_instant"),
        (500_000, "(gap)"),
        (510_000, "buffer"),
    ]


def test_a_poll_is_marked_as_what_it_is() -> None:
    """No sample of the sensor passes for one of the buffer, and no average for an instant."""
    polled = [stretch(at, after=before, source=TraceSource.POLL_INSTANT) for at, before in ((500, None), (1000, 500))]
    average = stretch(1500, source=TraceSource.POLL_AVERAGE)
    assert [row for row in told(kept(stretch(20), *polled, average)) if "gap" not in row[1]] == [
        (20, "buffer"),
        (500, "poll_instant"),
        (1000, "poll_instant"),
        (1500, "poll_average"),
    ]


def test_what_is_forgotten_is_the_oldest_and_no_gap() -> None:
    """A trace begins where it begins."""
    columns = kept(stretch(20, 40), stretch(80))
    columns.forget(2)
    assert told(columns) == [(80, "buffer")]


@given(st.lists(st.tuples(st.integers(1, 10**12), st.integers(0, 2**32 - 1), st.integers(0, 255)), max_size=20))
def test_columns_come_back_as_they_were_packed(samples: list[tuple[int, int, int]]) -> None:
    """Whatever is in them; the text is fit for JSON."""
    columns = Columns()
    for stamp, (_, milliwatts, mark) in zip(accumulate(step for step, _, _ in samples), samples, strict=True):
        columns.stamps_us.append(stamp)
        columns.milliwatts.append(milliwatts)
        columns.marks.append(mark)
    packed = columns.pack()
    assert all(text.isascii() for text in packed.values())
    assert Columns.unpack(packed) == columns


def test_packed_columns_are_little_endian_on_every_machine() -> None:
    """One sample, written out; the sources keep their numbers, for what is on a disk outlives the program."""
    assert kept(Stretch(GPU, TraceSource.POLL_AVERAGE, (1,), (2,))).pack() == {
        "stamps_us": "AQAAAAAAAAA=",
        "milliwatts": "AgAAAA==",
        "marks": "Ag==",
    }
    assert power_trace.SOURCES == (TraceSource.BUFFER, TraceSource.POLL_INSTANT, TraceSource.POLL_AVERAGE)


def test_the_csv_is_the_one_of_the_docstring() -> None:
    """Microseconds, watts to the milliwatt, one GPU after the other, and a line for every row."""
    stamps = (1789611007974058, 1789611007998775)
    trace = kept(
        Stretch(GPU, TraceSource.BUFFER, stamps, (698773, 557394)), Stretch(GPU, TraceSource.BUFFER, (1789611012014014,), (215186,))
    )
    text = "\n".join(csv_text({GPU.name: trace.pack()}))
    assert [f"    {line}" for line in text.splitlines()] == [
        line for line in (power_trace.__doc__ or "").splitlines() if "," in line and line[:4] == "    "
    ]


def test_a_long_trace_is_told_whole_and_in_chunks() -> None:
    """Thousands of rows of two GPUs, none of them lost where a chunk ends."""
    trace = kept(stretch(*range(1, 2001)))
    chunks = list(csv_text({"0000:11:00.0": trace.pack(), "0000:12:00.0": trace.pack()}))
    rows = list(csv.DictReader("\n".join(chunks).splitlines()))
    assert [row["gpu"] for row in rows] == ["0000:11:00.0"] * 2000 + ["0000:12:00.0"] * 2000
    assert [row["watts"] for row in rows[:2000]] == [f"{number / 1000:.3f}" for number in range(1, 2001)]
    assert len(chunks) > 4
