"""What a dump gets when the disk is already gone: bounded, and as readable as the files it stands in for."""

from __future__ import annotations

import csv
import json
import os
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from tests.fakes.clock import BOOT_ID, FakeClock
from xidwatch.core.model import HOST, KERNEL, KernelMessage, Missing, Readings, Sample, Subject
from xidwatch.daemon import memory
from xidwatch.daemon.kernel_log import KernelLog
from xidwatch.daemon.memory import KERNEL_CHARACTERS, KERNEL_RECORDS, ROWS, Memory, cells

GPU = Subject("gpu", "0000:11:00.0")
PORT = Subject("port", "0000:0f:00.0")
TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=40)


def sample(tick: int = 1, readings: Readings | None = None) -> Sample:
    return Sample(tick, FakeClock().now(), BOOT_ID, readings or {})


def message(seq: int, text: str = "NVRM: something", flags: str = "-") -> KernelMessage:
    return KernelMessage(seq=seq, usec=seq * 1000, facility=0, level=4, flags=flags, text=text)


# --- rows


def test_cells_are_printed_as_the_row_has_them() -> None:
    """GPUs first, hexadecimal where that is how people read it, empty for missing, no inventory facts, and what nobody knows last."""
    readings: Readings = {
        KERNEL: {"xid_lines_45s": 0},
        HOST: {"load_1m": 0.25},
        Subject("unheard", "of"): {"load_1m": 1.5},
        Subject("rail", "psu1_12v"): {"volts": 12.096, "nominal_volts": 12.0},
        PORT: {"config_dword0": 0x1000C010, "command": 0x547, "driver": "pcieport"},
        GPU: {"power_mean_watts": 246.1, "temperature_celsius": Missing.DEVICE_LOST},
    }
    assert cells(readings) == {
        "gpu:0000:11:00.0:power_mean_watts": "246.1",
        "gpu:0000:11:00.0:temperature_celsius": "",
        "port:0000:0f:00.0:config_dword0": "1000c010",
        "port:0000:0f:00.0:command": "0547",
        "host:load_1m": "0.25",
        "kernel:xid_lines_45s": "0",
        "rail:psu1_12v:volts": "12.096",
        "unheard:of:load_1m": "1.5",
    }
    kinds = [column.partition(":")[0] for column in cells(readings)]
    assert list(dict.fromkeys(kinds)) == ["gpu", "port", "rail", "host", "kernel", "unheard"]


@given(st.lists(st.dictionaries(TEXT, TEXT, min_size=1, max_size=4), min_size=1, max_size=6))
def test_the_rows_are_csv_whatever_is_in_them(rows: list[dict[str, str]]) -> None:
    """A line is a row: the csv module reads as many as were added, and every cell but for line breaks."""
    kept = Memory()
    for tick, row in enumerate(rows):
        kept.add_row(sample(tick), row)
    text = kept.samples_text()
    lines = text.split("\n")[:-1]
    read = list(csv.reader(f"{line}\n" for line in lines))
    assert len(read) == len(lines)
    found = [row for row in read if row[0] != "time"]
    assert [row[2] for row in found] == [str(tick) for tick in range(len(rows))]
    assert [row[3:] for row in found] == [[memory._BREAKS.sub(" ", cell) for cell in row.values()] for row in rows]


def test_the_order_of_columns_is_not_that_of_the_answers() -> None:
    """Sometimes one probe answers first, sometimes another: rows under one header must agree all the same."""
    gpu = Subject("gpu", "0000:11:00.0")
    nvml, pci = {"temperature_celsius": 61, "power_mean_watts": 231.4}, {"config_dword0": 0x220410DE, "link_width": 16}
    one_way, other_way = {HOST: {"load_1m": 0.5}, gpu: {**nvml, **pci}}, {gpu: {**pci, **nvml}, HOST: {"load_1m": 0.5}}
    assert list(cells(one_way)) == list(cells(other_way))
    assert list(cells(one_way))[:2] == [f"{gpu}:power_mean_watts", f"{gpu}:temperature_celsius"]


def test_a_change_of_columns_starts_a_new_header() -> None:
    """And only a change does."""
    kept = Memory()
    for tick, row in enumerate(({"a": "1"}, {"a": "2"}, {"a": "3", "b": "4"}, {"a": "5"})):
        kept.add_row(sample(tick), row)
    stamp = f"2026-09-17T02:10:08.412Z,{BOOT_ID}"
    assert kept.samples_text().splitlines() == [
        "time,boot_id,tick,a",
        f"{stamp},0,1",
        f"{stamp},1,2",
        "time,boot_id,tick,a,b",
        f"{stamp},2,3,4",
        "time,boot_id,tick,a",
        f"{stamp},3,5",
    ]


def test_only_the_latest_rows_are_kept() -> None:
    """An hour of them; the header is one string for all."""
    kept = Memory()
    for tick in range(ROWS + 50):
        kept.add_row(sample(tick), {"a": str(tick)})
    lines = kept.samples_text().splitlines()
    assert len(lines) == ROWS + 1
    assert lines[1].endswith(",50,50")
    assert len({id(header) for header, _ in kept._rows}) == 1


def test_nothing_yet_is_an_empty_text() -> None:
    """A dump right after the start is honest about it."""
    assert Memory().samples_text() == Memory().kernel_text() == ""
    assert Memory().inventory_text() == "{}\n"


# --- kernel records


def test_kernel_records_are_bounded_in_number_and_in_size() -> None:
    """The latest stay; one that is larger than all is not kept either."""
    kept = Memory()
    for seq in range(KERNEL_RECORDS + 10):
        kept.add_kernel(message(seq))
    lines = kept.kernel_text().splitlines()
    assert len(lines) == KERNEL_RECORDS
    assert lines[0].startswith("4,10,10000,-;")
    for seq in range(30):
        kept.add_kernel(message(seq, "x" * 60_000))
    assert len(kept.kernel_text()) < KERNEL_CHARACTERS * 1.01
    kept.add_kernel(message(1, "x" * (KERNEL_CHARACTERS + 1)))
    assert kept.kernel_text() == ""
    kept.add_kernel(message(2))
    assert kept.kernel_text().count("\n") == 1


def test_a_record_looks_as_the_device_gives_it() -> None:
    """Line breaks, control bytes, other alphabets and the backslash escaped as the kernel does."""
    kept = Memory()
    kept.add_kernel(message(358, "NVRM: a\nb\tc\\d é", "c"))
    assert kept.kernel_text() == "4,358,358000,c;NVRM: a\\x0ab\\x09c\\x5cd \\xc3\\xa9\n"


def test_records_come_back_through_the_reader_of_the_device(tmp_path: Path) -> None:
    """What was read from /dev/kmsg and put into a dump is read from there just the same."""
    texts = ["NVRM: Xid (PCI:0000:0f:00): 79, GPU has fallen off the bus.", "two\nlines", "\\x0a is no line break", "\x1b[31m ümlaut", ""]
    messages = tuple(
        KernelMessage(seq=seq, usec=seq * 7, facility=seq % 3, level=seq % 8, flags="-", text=text) for seq, text in enumerate(texts, 1)
    )
    kept = Memory()
    for each in messages:
        kept.add_kernel(each)
    path = tmp_path / "020-kernel.txt"
    path.write_text(kept.kernel_text())
    log = KernelLog(os.open(path, os.O_RDONLY))
    batch = log.read()
    log.close()
    assert batch.messages == messages
    assert (batch.lost, batch.malformed) == (0, 0)


# --- inventory


def test_the_inventory_says_what_is_missing_and_why() -> None:
    """As JSON for people."""
    kept = Memory()
    kept.inventory = {GPU: {"uuid": "GPU-1", "serial": Missing.UNSUPPORTED}}
    assert json.loads(kept.inventory_text()) == {"gpu:0000:11:00.0": {"uuid": "GPU-1", "serial": {"missing": "UNSUPPORTED"}}}
