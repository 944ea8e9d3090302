"""`xidwatch report`: exit status, formats and what goes to standard error."""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import pytest

from tests.report import nights
from xidwatch.cli import main
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
