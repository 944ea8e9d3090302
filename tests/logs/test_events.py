"""From bytes to events: the same log in every wrapping, in any pieces, by either way of looking for needles."""

from __future__ import annotations

import io
import json
import re
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.logs.judge import differs, wrong
from tests.logs.styles import DMESG, EVENTS, RECORDS, STYLES
from xidwatch.cli.decode import as_line, as_object
from xidwatch.config import load_rules, rules_dir
from xidwatch.core.logevents import Decoder, Found
from xidwatch.core.logneedles import NEEDLES
from xidwatch.core.logtext import Assembler
from xidwatch.core.model import Severity
from xidwatch.logs.events import events
from xidwatch.logs.find import Search, by_pattern, search
from xidwatch.logs.texts import as_utf8

XIDS = load_rules(rules_dir(None)).xids
PLAIN = Search(by_pattern(NEEDLES), bytes.count, is_fast=False)
DATA = Path(__file__).parents[1] / "data"
LINES = [json.loads(line) for line in (DATA / "log-lines.jsonl").read_text().splitlines()]
INCIDENTS = sorted((DATA / "incidents").glob("*.log"))
FIRST_EVENTS = json.loads((DATA / "incidents/first-events.json").read_text())


def pieces(data: bytes, size: int) -> Iterator[bytes]:
    return iter([data[at : at + size] for at in range(0, len(data), size)])


def rendered(style: str) -> bytes:
    return b"".join(as_utf8(iter([STYLES[style](RECORDS)])))


def decoded(data: bytes, size: int = 1 << 18) -> list[Found]:
    return [each for found in events(pieces(data, size), PLAIN, XIDS) for each in found]


def line_by_line(data: bytes) -> list[Found]:
    """Every line of it, with no needle looked for: what all other ways have to agree with."""
    assembler, decoder = Assembler(), Decoder(XIDS)
    found: list[Found] = []
    for number, line in enumerate(io.BytesIO(data), 1):
        for record in assembler.feed(number, line.removesuffix(b"\n")):
            found += decoder.feed(record)
    for record in assembler.finish():
        found += decoder.feed(record)
    return found + decoder.finish()


def needles_in(line: bytes) -> list[int]:
    return list(PLAIN.find(line, 0, len(line)))


def facts(found: Iterable[Found]) -> list[tuple[object, ...]]:
    return [(each.event.kind, each.event.xid, str(each.event.pci), each.event.pid, each.event.process) for each in found]


@pytest.mark.parametrize("style", STYLES)
def test_every_style_says_the_same(style: str) -> None:
    """The same events, with device and process, none of them injected, whoever printed the log."""
    found = decoded(rendered(style))
    assert facts(found) == list(EVENTS)
    assert not any(each.event.injected for each in found)
    assert found[4].event.recovery == "Node Reboot Required"


@pytest.mark.parametrize("style", STYLES)
def test_a_place_is_that_of_the_first_line(style: str) -> None:
    """Whoever opens the file at that line sees the event, or the record that it stands in."""
    if "one line" in style:
        assert {each.number for each in decoded(STYLES[style](RECORDS))} == {1}
        return
    text = rendered(style).split(b"\n")
    for each in decoded(b"\n".join(text)):
        record = re.sub(rb"\x1b\[\d*m", b"", b"\n".join(text[each.number - 1 : each.number + 16]))
        words = "fallen off the bus and is" if each.event.xid is None else f"): {each.event.xid}"
        assert words.encode() in record or b"[78," in record


@pytest.mark.parametrize("style", STYLES)
def test_however_it_is_cut(style: str) -> None:
    """Bytes that come one by one, or in any other pieces, change nothing."""
    data = rendered(style)
    whole = decoded(data)
    assert all(decoded(data, size) == whole for size in (1, 13, 80, 4096))
    assert facts(line_by_line(data)) == facts(whole)


@pytest.mark.parametrize("path", INCIDENTS, ids=lambda path: path.stem)
def test_incidents_are_read_alike(path: Path) -> None:
    """A recorded incident gives the same with needles and line by line, and no first event but the one that an honest reader sees."""
    data = path.read_bytes()
    found = decoded(data)
    assert found == line_by_line(data)
    expected = FIRST_EVENTS[path.stem]
    honest = [{**expected, **other} for other in ({}, *expected.get("also", ()))]
    events_seen = [each.event for each in found if not each.event.injected]
    precursor = events_seen[:1]  # right where an honest reader would begin with it
    serious = [event for event in events_seen if event.severity is not Severity.INFO][:1]
    first = [(event.kind, str(event.pci) if event.pci else None) for event in (*precursor, *serious)] or [("none", None)]
    assert {(reading["kind"], reading["pci"]) for reading in honest} & set(first)


@pytest.mark.parametrize("case", LINES, ids=lambda case: case["id"])
def test_lines_seen_in_the_field(case: dict[str, object]) -> None:
    """Each is read as people who know would read it, wherever it was copied from."""
    found = decoded(str(case["line"]).encode())
    assert found == line_by_line(str(case["line"]).encode())
    printed = [as_object(each) for each in found]
    assert [as_line(each) for each in found] == [json.dumps(each) for each in printed]
    assert not wrong(case, printed)
    assert case["role"] != "primary" or not differs(case, printed)


def test_a_needle_stands_in_every_line_that_decides() -> None:
    """A line of the test data that the parser would make an event of is never passed over."""
    for case in LINES:
        assert case["role"] != "primary" or needles_in(case["line"].encode()), case["id"]


@given(st.lists(st.sampled_from([b"\n", b"a\n", b"[1.000001] NVRM: Xid (PCI:0000:0f:00): 79, x\n", b"b"]), max_size=12), st.integers(1, 60))
def test_the_lines_of_each_log_are_counted(lines: list[bytes], size: int) -> None:
    """Read or passed over, with a line break at the end or without."""
    data = b"".join(lines)
    counts: list[int] = []
    for _ in events(pieces(data, size), PLAIN, XIDS, ended=counts.append):
        pass
    assert counts == [len(data.splitlines())]


def test_far_apart_in_a_large_log() -> None:
    """Lines without a needle are passed over and still counted."""
    noise = b"usb 1-1: new high-speed USB device number 2 using xhci_hcd\n" * 10_000
    xid = b"[12345.678901] NVRM: Xid (PCI:0000:0f:00): 79, GPU has fallen off the bus.\n"
    assert [each.number for each in decoded(noise + xid + noise + xid.replace(b"0f", b"10"))] == [10_001, 20_002]


def test_a_flood_is_one_event_with_a_count() -> None:
    """A hundred thousand copies are folded into the first; so are copies whose time goes on."""
    line = b"[12345.678901] NVRM: Xid (PCI:0000:0f:00): 79, GPU has fallen off the bus.\n"
    (found,) = decoded(line * 100_000)
    assert (found.number, found.repeated, found.last_number) == (1, 100_000, 100_000)
    (found,) = decoded(b"".join(b"[%12d.000000] NVRM: Xid (PCI:0000:0f:00): 79, GPU has fallen off the bus.\n" % at for at in range(500)))
    assert (found.repeated, found.time, found.last_time) == (500, "0.000000", "499.000000")


@given(st.lists(st.integers(0, 3), max_size=40), st.integers(1, 200))
def test_floods_are_counted_alike_however_they_are_read(order: list[int], size: int) -> None:
    """Copies that are only counted give what copies that are read give."""
    lines = [
        b"[    1.000000] NVRM: Xid (PCI:0000:0f:00): 79, GPU has fallen off the bus.\n",
        b"[    2.000000] NVRM: Xid (PCI:0000:10:00): 79, GPU has fallen off the bus.\n",
        b"[    3.000000] usb 1-1: new high-speed USB device number 2\n",
        b"[    4.000000] NVRM: Xid (PCI:0000:0f:00): 13, Graphics Exception: ESR 0x1=0x2\n",
    ]
    data = b"".join(lines[which] * 5 for which in order)
    assert decoded(data, size) == line_by_line(data)


def test_the_last_of_a_flood_may_be_the_beginning_of_something_else() -> None:
    """Copies that were only counted end in the line before it."""
    line = b"[12345.678901] NVRM: Xid (PCI:0000:0f:00): 79, GPU has fallen off the bus.\n"
    found = decoded(line * 5000 + b"    says more\n")
    assert found == line_by_line(line * 5000 + b"    says more\n")
    assert [(each.number, each.repeated, each.last_number) for each in found] == [(1, 4999, 4999), (5000, 1, 0)]


def test_a_flood_at_another_time_is_another_one() -> None:
    """Copies are only counted where they say when the one before was."""
    text = b"NVRM: Xid (PCI:0000:0f:00): 79, GPU has fallen off the bus.\n"
    data = (b"[    1.000000] " + text) * 500 + (b"[12345.678901] " + text) * 500
    assert decoded(data) == line_by_line(data)
    assert [(each.number, each.repeated) for each in decoded(data)] == [(1, 500), (501, 500)]


def test_two_events_in_what_somebody_has_joined_are_told_once() -> None:
    """Each, also where there are several ways to join it."""
    found = decoded(
        b"[ 12.0] NVRM: Xid (PCI:0000:12:00): 79, GPU has fallen off\n        the bus.\n    NVRM: Xid (PCI:0000:13:00): 79, x\nhello\n"
    )
    assert [(str(each.event.pci), each.repeated) for each in found] == [("0000:12:00.0", 1), ("0000:13:00.0", 1)]


_SCRAPS = st.sampled_from(
    [line + b"\n" for line in DMESG(RECORDS).splitlines()]
    + [b"\n", b"{\n", b"}\n", b"MESSAGE\n", b"\x1b[31m", b"-- Reboot --\n", b"> ", b"<4>", b"4,1,2,-;", b'{"MESSAGE":', b"  "]
    + [style(RECORDS)[:400] for style in STYLES.values()]
)


@given(st.lists(_SCRAPS | st.binary(max_size=30), max_size=12).map(b"".join), st.integers(1, 300))
def test_any_bytes_give_something_or_nothing(data: bytes, size: int) -> None:
    """Never an exception, and the same in any pieces."""
    assert decoded(data, size) == decoded(data)


@pytest.mark.skipif(not search(NEEDLES).is_fast, reason="hyperscan is not installed, or this processor cannot run it")
@pytest.mark.parametrize("style", STYLES)
def test_hyperscan_finds_the_same(style: str) -> None:
    """The engine and the expression agree on the events of every style."""
    data = rendered(style) * 3
    assert [each for found in events(pieces(data, 100), search(NEEDLES), XIDS) for each in found] == decoded(data)
