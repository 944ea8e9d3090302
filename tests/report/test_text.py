"""The report for people: every night as a page that is read and kept.

XIDWATCH_BLESS=1 pytest tests/report/test_text.py     writes golden/*.txt anew; then read the diff
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.report import nights
from tests.report.nights import GPUS, LOST, SWITCH, Pen
from xidwatch.core.model import Severity, Status, Subject
from xidwatch.report import ledger, load, text
from xidwatch.report.lines import NARROWEST, WIDEST, WIDTH, paragraph, wrapped

GOLDEN = Path(__file__).parent / "golden"
NIGHTS = (nights.supply_trip, nights.quiet, nights.torn, nights.two, nights.sampled, nights.many, nights.uneasy)
BLESS = bool(os.environ.get("XIDWATCH_BLESS"))


def page(state_dir: Path, wanted: str = "", *, since: float | None = None, width: int = WIDTH) -> str:
    book = ledger.read(state_dir, wanted, since)
    lines = text.report(load.story(state_dir, book, load.choose(book, wanted)), width)
    assert [line.text for line in lines if len(line.text) > width and str(state_dir) not in line.text] == []
    return "".join(f"{line.text}\n" for line in lines)


@pytest.mark.parametrize("build", NIGHTS, ids=lambda build: build.__name__)
def test_the_page_is_as_it_was_blessed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, build: Callable[[Path], Path]) -> None:
    """Word for word; a change is read in the diff of the golden file before it is blessed."""
    monkeypatch.chdir(tmp_path)  # a relative place: its length, and so the line breaks, are the same everywhere
    found = page(build(Path("STATE")))
    kept = GOLDEN / f"{build.__name__}.txt"
    if BLESS:
        kept.write_text(found)
    assert found == kept.read_text()


def test_records_of_rubbish_are_no_quiet_night(tmp_path: Path) -> None:
    """Where nothing could be read, nothing is said to be covered."""
    (tmp_path / "journal").mkdir()
    (tmp_path / "journal" / f"{nights.DAY}.jsonl").write_bytes(b"rubbish\n" * 100)
    found = page(tmp_path)
    assert "not one record could be read" in found
    assert "11 more damaged places" in found


def test_no_sign_of_foreign_hand_reaches_the_terminal(tmp_path: Path) -> None:
    """Escape sequences in kernel lines and notes are printed as text."""
    pen = Pen(tmp_path)
    nights.begin(pen)
    nights.fall(pen)
    pen.record("02:10:09", "note", text="\x1b]0;owned\x07\r\u202e", uid=0)
    found = page(pen.finish())
    assert all(sign.isprintable() or sign == "\n" for sign in found)
    assert "\\x1b]0;owned\\x07" in found


def test_a_first_look_that_is_bad_claims_no_beginning(tmp_path: Path) -> None:
    """Without a good look before, it may have begun earlier, and that is said."""
    pen = Pen(tmp_path)
    trigger = pen.edge("02:10:08", SWITCH, "ConfigSpaceAllOnes", before=Status.UNKNOWN, reason=nights.ALL_ONES, incident=nights.SAMPLED)
    pen.opened("02:10:08", nights.SAMPLED, trigger)
    assert "it was not seen good before" in page(pen.finish())


def test_edges_that_are_alike_in_one_instant_are_folded(tmp_path: Path) -> None:
    """Nine ports in one look are one line with a count; the first bad one keeps its own."""
    pen = Pen(tmp_path)
    ports = [Subject("port", f"0000:{bus:02x}:00.0") for bus in range(0x10, 0x1A)]
    for port in ports:
        pen.edge("02:10:08", port, "ConfigSpaceAllOnes", reason=nights.ALL_ONES, since="02:09:38")
    rows = [line for line in page(pen.finish()).splitlines() if " watch " in line]
    assert len(rows) == 2
    assert "TRUE: port 0000:10:00.0" in rows[0]
    assert "TRUE: 9 ports" in rows[1]


def test_a_long_timeline_leaves_out_its_middle(tmp_path: Path) -> None:
    """The beginning and the end are shown, and how many lines were not."""
    pen = Pen(tmp_path)
    pen.edge("02:10:08", GPUS[0], "GpuLost", reason="nvml_status 15", since="02:09:38")
    for index in range(300):
        pen.kernel("02:10:09", 1000 + index, f"NVRM: line {index}.", kind="gsp")
    found = page(pen.finish())
    assert "... 231 more, see --format json" in found
    assert "line 0." in found
    assert "line 150." not in found
    assert "line 299." in found


def test_an_action_without_outcome_says_so(tmp_path: Path) -> None:
    """What was decided and not finished is told, not left out."""
    assert "TAKE_DUMP: no outcome on record" in page(nights.sampled(tmp_path))


def test_repeats_are_told_as_repeats(tmp_path: Path) -> None:
    """A kernel record that came again is not shown as a second event."""
    pen = Pen(tmp_path)
    pen.edge("02:10:08", GPUS[0], "GpuLost", reason="nvml_status 15", since="02:09:38")
    pen.kernel("02:10:09", 5, "NVRM: the same.", kind="gsp")
    pen.kernel("02:10:38", 5, "NVRM: the same.", kind="gsp", repeated=1)
    pen.kernel("02:11:08", 5, "NVRM: the same.", kind="gsp", repeated=7)
    found = page(pen.finish())
    assert "once more since: NVRM: the same." in found
    assert "7 times more since: NVRM: the same." in found


def test_the_evidence_of_a_dump_cut_short_is_called_incomplete(tmp_path: Path) -> None:
    """A manifest that still says `writing` is one that nobody finished."""
    pen = Pen(tmp_path)
    pen.edge("02:10:08", GPUS[0], "GpuLost", reason="nvml_status 15", since="02:09:38")
    pen.dump(LOST, complete=False)
    assert "INCOMPLETE" in page(pen.finish())


def test_a_paragraph_is_shortened_to_so_many_lines() -> None:
    """The last line that is shown says that there was more, within the width."""
    for width, most in ((WIDTH, 2), (WIDEST, 2), (NARROWEST, 3)):
        lines = wrapped(paragraph("word " * 200, most=2), width)
        assert len(lines) == most
        assert lines[-1].text.endswith(" ...")
        assert all(len(line.text) <= width for line in lines)


@pytest.mark.parametrize("width", [NARROWEST, 79, WIDEST])
@pytest.mark.parametrize("build", NIGHTS, ids=lambda build: build.__name__)
def test_a_page_says_the_same_at_any_width(tmp_path: Path, build: Callable[[Path], Path], width: int) -> None:
    """No line is wider than asked for, but for a path; and the words are those of the usual width."""
    build(tmp_path)
    assert page(tmp_path, width=width).split() == page(tmp_path).split()


def test_a_path_is_never_broken(tmp_path: Path) -> None:
    """It is there to be copied."""
    nights.sampled(tmp_path)
    found = page(tmp_path, width=NARROWEST)
    assert f"records in\n{tmp_path}\n" in found or f"records in {tmp_path}" in found
    assert f"  {tmp_path}/incidents/{nights.SAMPLED}/:" in found


def test_notes_are_shown_where_there_is_no_incident(tmp_path: Path) -> None:
    """With their day, and with how many more there are."""
    pen = Pen(tmp_path)
    pen.started("02:00:00")
    for minute in range(22):
        pen.record(f"02:{minute:02}:30", "note", text=f"note {minute} \x1b[2J", uid=0)
    found = page(pen.finish())
    assert "NOTES\n  ... 2 older, see the journal\n  2026-09-17 02:02:30  note 2 \\x1b[2J\n" in found


@pytest.mark.parametrize("falls", [True, False])
def test_a_replay_says_so_before_anything_else(tmp_path: Path, *, falls: bool) -> None:
    """With an incident and without: nobody drives to a host on the strength of somebody else's night."""
    pen = Pen(tmp_path)
    pen.started("01:10:05", replayed="a-night\x1b[2J")
    if falls:
        nights.fall(pen)
    head = page(pen.finish()).partition("\nWHAT")[0]
    assert "REPLAYED from a-night\\x1b[2J: so it was then and there" in head


def test_of_many_conditions_without_an_incident_the_gravest_are_shown(tmp_path: Path) -> None:
    """What still stands first; the rest is counted."""
    pen = Pen(tmp_path)
    pen.started("02:00:00")
    for number in range(20):
        severity = Severity.ERROR if number == 19 else Severity.WARNING
        pen.edge(f"02:{number:02}:30", Subject("rail", f"r{number}"), "RailGone", reason="present 0", incident=None, severity=severity)
    pen.edge("02:30:00", Subject("rail", "r18"), "RailGone", Status.FALSE, before=Status.TRUE, incident=None)
    found = page(pen.finish()).partition("OPENED NO INCIDENT\n")[2].splitlines()
    assert found[0].startswith("  RailGone, error: rail r19, seen at 2026-09-17 02:19:30, still so at the last record: present 0")
    assert "  ... 8 more, see --format json" in found
    assert not any("r18" in line for line in found)


def test_a_time_after_all_records_is_said_to_be_one(tmp_path: Path) -> None:
    """Nothing is said to be covered, counted or good then."""
    found = page(nights.quiet(tmp_path), since=nights.wall("03:00:00"))
    assert "Nothing is on record after 2026-09-17 03:00:00; the last record is of 2026-09-17 02:00:45." in found
    assert "tick" not in found
    assert "no lack" not in found
