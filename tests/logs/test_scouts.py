"""Large files that several processes search: what is found is what who reads alone finds, whatever becomes of them."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.daemon.harness import has_ended
from tests.logs.styles import RECORDS, STYLES
from xidwatch.config import load_rules, rules_dir
from xidwatch.core import logscan
from xidwatch.core.logblocks import LONGEST_LINE, Block
from xidwatch.core.logevents import Found
from xidwatch.core.logneedles import NEEDLES
from xidwatch.logs import scouts
from xidwatch.logs import source as source_module
from xidwatch.logs.events import events
from xidwatch.logs.find import Search, by_pattern, search
from xidwatch.logs.scouts import LEAST_STRETCHES, PIECE_BYTES, STRETCH_BYTES
from xidwatch.logs.source import Source

XIDS = load_rules(rules_dir(None)).xids
PLAIN = Search(by_pattern(NEEDLES), bytes.count, is_fast=False)
FAST = search(NEEDLES)
NOISE = b"usb 1-1: new high-speed USB device number 2 using xhci_hcd\n"
XID = b"[12345.678901] NVRM: Xid (PCI:0000:0f:00): 79, GPU has fallen off the bus.\n"
LEAST_BYTES = LEAST_STRETCHES * STRETCH_BYTES
ENOUGH = LEAST_BYTES + PIECE_BYTES + 4321  # for the first chunk, which tells what the file is, and a rest

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="one processor: nobody but the reader searches"),
]


def children(pid: int) -> list[int]:
    """Of a process with one thread, also those that have ended and are waited for (proc(5))."""
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def open_files() -> int:
    """How many this process has."""
    return len(list(Path("/proc/self/fd").iterdir()))


def filled(*parts: bytes, to: int = ENOUGH) -> bytes:
    """The parts, far from each other and in that order, with noise between them."""
    gap = NOISE * ((to - sum(map(len, parts))) // (len(parts) + 1) // len(NOISE))
    data = gap + b"".join(part + gap for part in parts)
    return data + NOISE * ((to - len(data)) // len(NOISE))


def opened(path: Path, how: Search | None) -> Source:
    """`how`: with scouts; None: to be read alone."""
    source = Source(str(path))
    if how:
        source.begin(how)
    return source


def read(path: Path, how: Search | None) -> tuple[list[Found], list[int], int]:
    """Events, lines, and how many bytes were searched by others."""
    source, by_others = opened(path, how), 0

    def noted() -> Iterator[bytes | Block]:
        nonlocal by_others
        for chunk in source.chunks():
            by_others += 0 if isinstance(chunk, bytes) else chunk.fresh_bytes
            yield chunk

    lines: list[int] = []
    try:
        found = [each for several in events(noted(), how or PLAIN, XIDS, ended=lines.append) for each in several]
        assert source.done_bytes == path.stat().st_size
        return found, lines, by_others
    finally:
        source.close()


def agree(path: Path, data: bytes, how: Search) -> int:
    """Read alone and with scouts, it says the same. Gives how many bytes they searched."""
    path.write_bytes(data)
    alone, together = read(path, None), read(path, how)
    assert together[:2] == alone[:2]
    return together[2]


@pytest.mark.parametrize("how", [PLAIN, FAST], ids=["by expression", "the best there is"])
def test_it_is_found_as_by_one(how: Search, tmp_path: Path) -> None:
    """Events anywhere, across the ends of chunks and stretches too, and as many lines."""
    data = bytearray(filled())
    random_ = random.Random(1)
    borders = [PIECE_BYTES * number for number in (1, 2, 5, 9, 33)]
    for at in [random_.randrange(ENOUGH - 200) for _ in range(40)] + [border - 20 for border in borders]:
        data[at : at + len(XID) + 1] = b"\n" + XID
    assert agree(tmp_path / "log", bytes(data), how) > LEAST_BYTES - LONGEST_LINE


def test_a_record_goes_on_in_the_next_chunk(tmp_path: Path) -> None:
    """Of several lines, of which only the first has a needle, at each place that it may be cut at."""
    block = (
        b"[   10.000001] NVRM: The NVIDIA GPU 0000:0f:00.0\n"
        b"[   10.000002] NVRM: (PCI ID: 10de:2204) installed in this system has\n"
        b"[   10.000003] NVRM: fallen off the bus and is not responding to commands.\n"
    )
    data = bytearray(NOISE * (ENOUGH // len(NOISE)))
    for number, cut in enumerate(range(10, len(block), 11), 1):
        at = number * PIECE_BYTES - cut
        data[at : at + len(block) + 1] = b"\n" + block
    assert agree(tmp_path / "log", bytes(data), FAST)


def test_long_lines_and_needles_without_number(tmp_path: Path) -> None:
    """A line over several pieces, one that begins in one stretch and ends in the next, more needles than lines of other logs."""
    long = b"x" * PIECE_BYTES * 3 + b" " + XID
    data = bytearray(filled(b"Xid (\n" * 50_000, long, XID, long, b"NVRM Xid ( " * 50_000 + XID, XID))
    data[STRETCH_BYTES * 2 - 1000 : STRETCH_BYTES * 2 - 1000 + len(long) + 1] = b"\n" + long
    assert agree(tmp_path / "log", bytes(data), FAST) > LEAST_BYTES - LONGEST_LINE


def test_from_a_line_on_that_is_too_long_it_is_read_by_one(tmp_path: Path) -> None:
    """Who reads in order knows how to cut it. What is before it has been searched."""
    too_long = b"y" * (LONGEST_LINE + PIECE_BYTES) + b" " + XID
    by_others = agree(tmp_path / "log", filled(XID, XID, too_long, XID, to=4 * LEAST_BYTES), FAST)
    assert LEAST_BYTES < by_others < 3 * LEAST_BYTES


def test_from_what_is_no_text_on_it_is_read_by_one(tmp_path: Path) -> None:
    """Who says so."""
    path = tmp_path / "log"
    noise = b"".join(random.Random(1).randbytes(5000) + b"\n" for _ in range(400))
    assert LEAST_BYTES < agree(path, filled(XID, XID, noise, XID, to=4 * LEAST_BYTES), FAST) < 3 * LEAST_BYTES
    source = opened(path, FAST)
    assert len(list(source.chunks())) > 1
    assert [trouble[:8] for trouble in source.troubles] == ["not text"]
    source.close()


def test_the_last_line_need_not_end(tmp_path: Path) -> None:
    """Wherever the last stretch ends."""
    for size in (LEAST_BYTES - 1, LEAST_BYTES, LEAST_BYTES + 1):
        data = filled(XID, to=size + PIECE_BYTES)[: size + PIECE_BYTES - len(XID)] + XID.rstrip()
        agree(tmp_path / "log", data, FAST)


_LINES = st.sampled_from(
    [line + b"\n" for style in STYLES.values() for line in style(RECORDS).splitlines()] + [NOISE, XID, XID * 9, b"\n", b"z" * 900, b"\0\n"]
)


@settings(deadline=None, max_examples=40)
@given(st.lists(_LINES, min_size=40, max_size=120).map(b"".join), st.sampled_from((90, 400)), st.sampled_from((300, 1000)))
def test_however_small_the_pieces_are(data: bytes, piece: int, stretch: int) -> None:
    """Records of several lines, in any style of log, that go on in the next piece or the next stretch."""
    with pytest.MonkeyPatch.context() as patch, TemporaryDirectory() as folder:
        patch.setattr(source_module, "READ_BYTES", 200)
        patch.setattr(logscan, "PASTE_BYTES", 100)
        for name, size in (("PIECE_BYTES", piece), ("STRETCH_BYTES", stretch), ("SHORT_BYTES", 20)):
            patch.setattr(scouts, name, size)
        path = Path(folder) / "log"
        path.write_bytes(data)
        alone, together = read(path, None), read(path, PLAIN)
        assert together[:2] == alone[:2]


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

    before = open_files(), children(os.getpid())
    monkeypatch.setattr(os, "fork", refused)
    assert agree(tmp_path / "log", filled(XID), FAST) == 0
    assert (open_files(), children(os.getpid())) == before


def test_a_scout_that_dies_costs_nothing(tmp_path: Path) -> None:
    """From where it was on, the log is read and searched in order."""
    path = tmp_path / "log"
    path.write_bytes(XID * (4 * LEAST_BYTES // len(XID)))  # more to tell than there is room for: it waits to be listened to
    before = children(os.getpid())
    source = opened(path, FAST)
    kinds: list[bool] = []

    def struck() -> Iterator[bytes | Block]:
        for chunk in source.chunks():
            kinds.append(isinstance(chunk, bytes))
            if len(kinds) == 10:
                os.kill(next(child for child in children(os.getpid()) if child not in before), signal.SIGKILL)
            yield chunk

    found = [each for several in events(struck(), FAST, XIDS) for each in several]
    source.close()
    assert found == read(path, None)[0]
    assert (kinds[0], kinds[9], kinds[-1]) == (True, False, True)
    assert children(os.getpid()) == before


def test_what_a_scout_cannot_do_is_met_by_the_reader(tmp_path: Path) -> None:
    """A search that fails everywhere is told where it is asked for; one that fails in the scouts alone costs nothing."""
    here = os.getpid()

    def fails_elsewhere(data: bytes, start: int, end: int) -> list[int]:
        if os.getpid() != here:
            raise MemoryError
        return list(PLAIN.find(data, start, end))

    assert agree(tmp_path / "log", filled(XID), Search(fails_elsewhere, bytes.count, is_fast=False)) == 0


def test_a_file_that_becomes_shorter_ends_there(tmp_path: Path) -> None:
    """Also when what is not there any more had been searched: what is there is read, and nothing is complained about."""
    path = tmp_path / "log"
    path.write_bytes(filled(*[XID] * 400))
    source = opened(path, FAST)
    blocks = iter(source.chunks())
    chunks = [next(blocks) for _ in range(3)]
    os.truncate(path, LEAST_BYTES // 2)
    found = [each for several in events([*chunks, *blocks], FAST, XIDS) for each in several]
    alone = read(path, None)[0]
    assert [(each.number, each.repeated) for each in found] == [(each.number, each.repeated) for each in alone]
    assert source.troubles == []
    source.close()


def test_a_piece_that_cannot_be_read_is_complained_about(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Once: what a bad block holds was searched before, and is not to be had now."""
    path = tmp_path / "log"
    path.write_bytes(filled(XID, XID))
    source = opened(path, FAST)

    def bad(_fd: int, _bytes: int, _at: int) -> bytes:
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(os, "pread", bad)
    assert [each for several in events(source.chunks(), FAST, XIDS) for each in several] == []
    assert source.troubles == ["reading failed: input/output error"]
    source.close()


def test_what_has_been_added_is_read(tmp_path: Path) -> None:
    """Behind what was there when it was opened."""
    path = tmp_path / "log"
    path.write_bytes(filled(XID))
    source = opened(path, FAST)
    with path.open("ab") as log:
        log.write(XID)
    found = [each for several in events(source.chunks(), FAST, XIDS) for each in several]
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
    before = open_files(), children(os.getpid())
    source = opened(path, FAST)
    assert len(children(os.getpid())) > len(before[1])
    assert isinstance(next(iter(source.chunks())), bytes)
    source.close()
    assert (open_files(), children(os.getpid())) == before


def test_they_go_with_a_reader_that_was_killed(tmp_path: Path) -> None:
    """Nobody told them to: nobody listens any more."""
    path = tmp_path / "log"
    distinct = [XID.replace(b"12345", b"%5d" % at).replace(b"0f", b"%02x" % (at % 32)) for at in range(4000)]
    path.write_bytes(filled(*distinct, to=4 * LEAST_BYTES))
    reader = subprocess.Popen([sys.executable, "-m", "xidwatch", "decode", "--json", str(path)], stdout=subprocess.PIPE)
    assert reader.stdout
    assert reader.stdout.readline()  # it has more to say than a pipe holds, and will wait
    scouting = children(reader.pid)
    reader.kill()
    reader.wait(timeout=60)
    reader.stdout.close()
    assert len(scouting) >= 2
    assert all(has_ended(each, 60) for each in scouting)
