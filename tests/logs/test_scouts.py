"""Large files that several processes search: what is found is what who reads alone finds, whatever becomes of them."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from xidwatch.config import load_rules, rules_dir
from xidwatch.core.logevents import Found
from xidwatch.core.logneedles import NEEDLES
from xidwatch.core.logscan import LONGEST_LINE, Searched
from xidwatch.logs import scouts
from xidwatch.logs.events import events
from xidwatch.logs.find import Search, by_pattern, search
from xidwatch.logs.scouts import CHUNK_BYTES, LEAST_STRETCHES, MOST_OFFSETS, STRETCH
from xidwatch.logs.source import Source

XIDS = load_rules(rules_dir(None)).xids
PLAIN = Search(by_pattern(NEEDLES), bytes.count, is_fast=False)
FAST = search(NEEDLES)
NOISE = b"usb 1-1: new high-speed USB device number 2 using xhci_hcd\n"
XID = b"[12345.678901] NVRM: Xid (PCI:0000:0f:00): 79, GPU has fallen off the bus.\n"
LEAST_BYTES = LEAST_STRETCHES * STRETCH * CHUNK_BYTES
ENOUGH = LEAST_BYTES + CHUNK_BYTES + 4321  # for the first chunk, which tells what the file is, and a rest

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="one processor: nobody but the reader searches"),
]


def filled(*parts: bytes, to: int = ENOUGH) -> bytes:
    """The parts, far from each other and in that order, with noise between them."""
    gap = NOISE * ((to - sum(map(len, parts))) // (len(parts) + 1) // len(NOISE))
    data = gap + b"".join(part + gap for part in parts)
    return data + NOISE * ((to - len(data)) // len(NOISE))


def read(path: Path, how: Search | None) -> tuple[list[Found], list[int], int]:
    """Events, lines, and how many chunks came searched. `how`: with scouts; None: alone."""
    source = Source(str(path))
    came: list[bytes | Searched] = []

    def noted(chunks: Iterator[bytes | Searched]) -> Iterator[bytes | Searched]:
        for chunk in chunks:
            came.append(chunk)
            yield chunk

    lines: list[int] = []
    try:
        chunks: Iterator[bytes | Searched] = source.chunks(how) if how else source.chunks()
        found = [each for several in events(noted(chunks), how or PLAIN, XIDS, ended=lines.append) for each in several]
        assert source.done_bytes == path.stat().st_size
        return found, lines, sum(isinstance(chunk, Searched) for chunk in came)
    finally:
        source.close()


def agree(path: Path, data: bytes, how: Search) -> int:
    """Read alone and with scouts, it says the same. Gives how many chunks they searched."""
    path.write_bytes(data)
    alone, together = read(path, None), read(path, how)
    assert together[:2] == alone[:2]
    return together[2]


@pytest.mark.parametrize("how", [PLAIN, FAST], ids=["by expression", "the best there is"])
def test_it_is_found_as_by_one(how: Search, tmp_path: Path) -> None:
    """Events anywhere, across the ends of chunks and stretches too, and as many lines."""
    data = bytearray(filled())
    random_ = random.Random(1)
    borders = [CHUNK_BYTES * number for number in (1, 2, 5, 9, 33)]
    for at in [random_.randrange(ENOUGH - 200) for _ in range(40)] + [border - 20 for border in borders]:
        data[at : at + len(XID) + 1] = b"\n" + XID
    assert agree(tmp_path / "log", bytes(data), how) == LEAST_STRETCHES * STRETCH


def test_a_record_goes_on_in_the_next_chunk(tmp_path: Path) -> None:
    """Of several lines, of which only the first has a needle, at each place that it may be cut at."""
    block = (
        b"[   10.000001] NVRM: The NVIDIA GPU 0000:0f:00.0\n"
        b"[   10.000002] NVRM: (PCI ID: 10de:2204) installed in this system has\n"
        b"[   10.000003] NVRM: fallen off the bus and is not responding to commands.\n"
    )
    data = bytearray(NOISE * (ENOUGH // len(NOISE)))
    for number, cut in enumerate(range(10, len(block), 11), 1):
        at = number * CHUNK_BYTES - cut
        data[at : at + len(block) + 1] = b"\n" + block
    assert agree(tmp_path / "log", bytes(data), FAST)


def test_lines_without_an_end_and_needles_without_number(tmp_path: Path) -> None:
    """A line over several chunks, one that is too long, a chunk with more needles than anybody counts, no line's end at the end."""
    over_several, too_long = b"x" * CHUNK_BYTES * 2 + b" " + XID, b"y" * (LONGEST_LINE + CHUNK_BYTES) + b" " + XID
    crowded = b"Xid\n" * (MOST_OFFSETS * 3)
    assert agree(tmp_path / "log", filled(over_several, XID, too_long, XID, crowded, XID) + XID.rstrip(), FAST)


def test_every_line_is_an_event(tmp_path: Path) -> None:
    """The same ones, folded and counted."""
    assert agree(tmp_path / "log", XID * (ENOUGH // len(XID)), FAST)


def test_what_is_small_or_packed_is_read_by_one(tmp_path: Path) -> None:
    """It is over before they have begun; text in UTF-16 is read in order, too."""
    assert agree(tmp_path / "small", filled(XID, to=LEAST_BYTES), FAST) == 0
    assert agree(tmp_path / "wide", filled(XID).decode().encode("utf-16"), FAST) == 0


def test_one_processor_is_for_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody is started that would only take turns."""
    monkeypatch.setattr(os, "sched_getaffinity", lambda _pid: {0})
    assert agree(tmp_path / "log", filled(XID), FAST) == 0


def test_no_further_process_is_to_be_had(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Then one does it alone, and nothing is left of the attempt."""
    fork, times = os.fork, iter([True, False])

    def refused() -> int:
        if next(times):
            return fork()
        raise BlockingIOError(11, "Resource temporarily unavailable")

    me = psutil.Process()
    before = me.num_fds(), me.children()
    monkeypatch.setattr(os, "fork", refused)
    assert agree(tmp_path / "log", filled(XID), FAST) == 0
    assert (me.num_fds(), me.children()) == before


def test_a_scout_that_dies_costs_nothing(tmp_path: Path) -> None:
    """From where it was on, the log is read and searched in order."""
    path = tmp_path / "log"
    path.write_bytes(filled(*[XID] * 20, to=4 * LEAST_BYTES))
    source, me = Source(str(path)), psutil.Process()
    before = me.children()
    kinds: list[type] = []

    def struck(chunks: Iterator[bytes | Searched]) -> Iterator[bytes | Searched]:
        for chunk in chunks:
            kinds.append(type(chunk))
            if len(kinds) == 10:
                next(child for child in me.children() if child not in before).send_signal(signal.SIGKILL)
            yield chunk

    found = [each for several in events(struck(source.chunks(FAST)), FAST, XIDS) for each in several]
    source.close()
    assert found == read(path, None)[0]
    assert kinds[9] is Searched
    assert kinds[-1] is bytes
    assert me.children() == before


def test_what_a_scout_cannot_do_is_met_by_the_reader(tmp_path: Path) -> None:
    """A search that fails everywhere is told where it is asked for; one that fails in the scouts alone costs nothing."""
    here = os.getpid()

    def fails_elsewhere(data: bytes, start: int, end: int) -> list[int]:
        if os.getpid() != here:
            raise MemoryError
        return list(PLAIN.find(data, start, end))

    assert agree(tmp_path / "log", filled(XID), Search(fails_elsewhere, bytes.count, is_fast=False)) == 0


def test_a_file_that_becomes_shorter_ends_there(tmp_path: Path) -> None:
    """As it does for who reads alone: what was there is in, and nothing is complained about."""
    path = tmp_path / "log"
    path.write_bytes(filled(XID, XID))
    source = Source(str(path))
    chunks = source.chunks(FAST)
    first = next(chunks)
    os.truncate(path, LEAST_BYTES // 2)
    assert isinstance(first, bytes)
    read_bytes = len(first) + sum(len(chunk if isinstance(chunk, bytes) else chunk.data) for chunk in chunks)
    assert read_bytes == LEAST_BYTES // 2
    assert source.troubles == []
    source.close()


def test_what_has_been_added_is_read(tmp_path: Path) -> None:
    """Behind what was there when it was opened."""
    path = tmp_path / "log"
    path.write_bytes(filled(XID))
    source = Source(str(path))
    with path.open("ab") as log:
        log.write(XID)
    found = [each for several in events(source.chunks(FAST), FAST, XIDS) for each in several]
    source.close()
    assert found == read(path, None)[0]
    assert found[0].repeated == 2


def test_standard_input_begins_where_it_stands(tmp_path: Path) -> None:
    """A file on it, of which somebody has read some already."""
    path = tmp_path / "log"
    path.write_bytes(filled(XID, XID.replace(b"0f", b"10"), to=4 * LEAST_BYTES))
    with path.open("rb") as log:
        log.seek(2 * LEAST_BYTES)
        done = subprocess.run([sys.executable, "-m", "xidwatch", "decode", "--json", "-"], stdin=log, capture_output=True, check=True)
    assert done.stdout.count(b"\n") == 1
    assert b'"pci": "0000:10:00.0"' in done.stdout


def test_whoever_has_seen_enough_leaves_nobody_behind(tmp_path: Path) -> None:
    """However much is left to search."""
    path = tmp_path / "log"
    path.write_bytes(filled(XID))
    me = psutil.Process()
    before = me.num_fds(), me.children()
    chunks = scouts.searched(fd := os.open(path, os.O_RDONLY), 0, ENOUGH, FAST)
    assert isinstance(next(chunks), Searched)
    assert len(me.children()) > len(before[1])
    chunks.close()  # type: ignore[attr-defined]
    os.close(fd)
    assert (me.num_fds(), me.children()) == before


def test_they_go_with_a_reader_that_was_killed(tmp_path: Path) -> None:
    """Nobody told them to: nobody listens any more."""
    path = tmp_path / "log"
    distinct = [XID.replace(b"12345", b"%5d" % at).replace(b"0f", b"%02x" % (at % 32)) for at in range(4000)]
    path.write_bytes(filled(*distinct, to=4 * LEAST_BYTES))
    reader = psutil.Popen([sys.executable, "-m", "xidwatch", "decode", "--json", str(path)], stdout=subprocess.PIPE)
    assert reader.stdout.readline()  # it has more to say than a pipe holds, and will wait
    children = reader.children()
    reader.send_signal(signal.SIGKILL)
    gone, alive = psutil.wait_procs(children, timeout=60)
    reader.wait()
    reader.stdout.close()
    assert (len(gone) >= 2, alive) == (True, [])
