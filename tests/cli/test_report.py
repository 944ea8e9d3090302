"""`xidwatch report`: exit status, formats and what goes to standard error."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

import pytest

from tests.report import nights
from xidwatch.cli import main
from xidwatch.cli import report as command
from xidwatch.cli.report import when


def report(state_dir: Path, *arguments: str) -> int:
    return main(["--state-dir", str(state_dir), "report", *arguments])


@pytest.mark.parametrize(
    ("build", "status"),
    [(nights.supply_trip, 0), (nights.quiet, 0), (nights.torn, 2), (nights.sampled, 2), (nights.two, 2)],
    ids=lambda value: getattr(value, "__name__", str(value)),
)
def test_the_exit_status_is_how_the_incident_stands(tmp_path: Path, build: object, status: int, capsys: pytest.CaptureFixture[str]) -> None:
    """Over or none is 0, open and critical is 2; the page goes to standard output and nothing else does."""
    assert callable(build)
    build(tmp_path)
    assert report(tmp_path) == status
    shown = capsys.readouterr()
    assert "WHAT COULD NOT BE SEEN" in shown.out
    assert "\x1b" not in shown.out
    assert shown.err == ""


def test_no_records_is_66_with_what_to_do(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A person is told how records come to be."""
    assert report(tmp_path) == 66
    shown = capsys.readouterr()
    assert shown.out == ""
    assert "xidwatch run" in shown.err


def test_an_unknown_incident_is_66_with_those_known(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The ids on record are listed, the latest first."""
    nights.two(tmp_path)
    assert report(tmp_path, "2025") == 66
    assert capsys.readouterr().err.split()[-2:] == [nights.LOST, nights.EARLIER]


def test_json_is_one_document(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """All incidents when none is named, only the one that is."""
    nights.two(tmp_path)
    assert report(tmp_path, "--format", "json") == 2
    assert len(json.loads(capsys.readouterr().out)["incidents"]) == 2
    assert report(tmp_path, "20260917T0142", "--format", "json") == 0
    named = json.loads(capsys.readouterr().out)
    assert named["incident"]["id"] == nights.EARLIER
    assert "incidents" not in named


def test_a_report_changes_nothing(tmp_path: Path) -> None:
    """It works on evidence: not a byte and not a name differs afterwards."""
    nights.supply_trip(tmp_path)
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    report(tmp_path)
    assert {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()} == before


def test_a_time_may_be_a_day_a_time_or_a_while_ago() -> None:
    """Without a zone it is UTC; anything else is refused with what was expected."""
    assert when("2026-09-17") == nights.wall("00:00:00")
    assert when("2026-09-17T02:10") == when("2026-09-17 02:10Z") == nights.wall("02:10:00")
    assert when("2026-09-17T04:10+02:00") == nights.wall("02:10:00")
    assert when("2h") - when("1h") == pytest.approx(-3600, abs=5)
    with pytest.raises(argparse.ArgumentTypeError, match="expected"):
        when("yesterday")


def test_an_open_incident_is_never_hidden(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """However late the time asked for: it is not over. An id is told whatever the time."""
    nights.two(tmp_path)
    assert report(tmp_path, "--since", "1m") == 2
    assert nights.LOST in capsys.readouterr().out
    assert report(tmp_path, nights.EARLIER, "--since", "1m") == 0
    assert nights.EARLIER in capsys.readouterr().out


def test_a_time_in_the_future_is_no_failure(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Nothing is on record then, and that is all that is said."""
    nights.quiet(tmp_path)
    assert report(tmp_path, "--since", "9999-01-01") == 0
    assert "Nothing is on record after 9999-01-01 00:00:00" in capsys.readouterr().out


@pytest.mark.parametrize("form", ["text", "json"])
def test_a_full_standard_output_is_74(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], form: str
) -> None:
    """Said in one line; and nothing is left behind that would fail once more at exit."""
    nights.quiet(tmp_path)
    with Path("/dev/full").open("w") as full:
        monkeypatch.setattr(sys, "stdout", full)
        assert report(tmp_path, "--format", form) == 74
        full.flush()
    assert capsys.readouterr().err == "xidwatch: the report could not be written: no space left on device\n"


def test_a_closed_standard_output_is_74(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """Python has none at all then."""
    nights.quiet(tmp_path)
    monkeypatch.setattr(sys, "stdout", None)
    assert report(tmp_path) == 74
    assert capsys.readouterr().err == "xidwatch: the report could not be written: standard output is closed\n"


@pytest.mark.parametrize(
    ("columns", "width"), [("", 100), ("0", 100), ("wide", 100), ("40", 60), ("72", 72), ("500", 120), ("9" * 9999, 120)]
)
def test_the_width_is_what_columns_asks_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], columns: str, width: int
) -> None:
    """Within reason; where it says nothing, the usual one."""
    monkeypatch.chdir(tmp_path)
    nights.torn(Path("s"))
    monkeypatch.setenv("COLUMNS", columns)
    report(Path("s"))
    widest = max(len(line) for line in capsys.readouterr().out.splitlines() if str(tmp_path) not in line)
    assert width - 8 <= widest <= width


def test_the_help_tells_every_exit_status_and_option(capsys: pytest.CaptureFixture[str]) -> None:
    """What a script has to know is in `--help`."""
    with pytest.raises(SystemExit):
        main(["report", "--help"])
    shown = capsys.readouterr().out
    for code in (0, 1, 2, 3, command.EX_NOINPUT, command.EX_IOERR):
        assert f"\n  {code:<4}" in shown
    assert "text, for people" in " ".join(shown.split())
