"""`xidwatch replay`: what it prints, where it writes, and what it refuses."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.replay.stage import SWITCH, XID, write
from xidwatch.cli import main

DIES = f"+60s die {SWITCH}\n+0s lost gpus\n+15s end\n"
KMSG = XID.format(seq=1, usec=85_020_000)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A night on which a switch dies."""
    return write(tmp_path / "night", DIES, kmsg=KMSG)


def test_the_night_is_told_and_can_be_looked_at(folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Lines with the time of the night; then report and status work on what it left."""
    state_dir = str(tmp_path / "state")
    assert main(["replay", str(folder), "--state-dir", state_dir]) == 0
    told = capsys.readouterr()
    assert "00:01:25Z incident 20260102T000125Z-gpu-lost-11 opened" in told.out
    assert "tick 1" not in told.out
    assert f"xidwatch report --state-dir {state_dir}" in told.err
    assert main(["report", "--state-dir", state_dir]) == 2
    assert main(["status", "--state-dir", state_dir]) == 2
    assert "replayed from night" in capsys.readouterr().out
    assert "xidwatch_incident_open 1.0" in (tmp_path / "state/run/metrics.txt").read_text()


def test_it_ends_where_it_is_told_to(folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Before the loss all was well; ticks are shown on request."""
    assert main(["replay", str(folder), "--state-dir", str(tmp_path / "state"), "--until", "00:01:00", "--ticks"]) == 0
    told = capsys.readouterr()
    assert "00:00:25Z tick 1" in told.out
    assert "2026-01-02T00:01:00.000Z: healthy at its end" in told.err


def test_at_a_given_speed_it_takes_its_time(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Sixty times as fast as the night."""
    waited: list[float] = []
    monkeypatch.setattr("xidwatch.cli.replay.time.sleep", waited.append)
    assert main(["replay", str(folder), "--state-dir", str(tmp_path / "state"), "--speed", "60", "--until", "+60s"]) == 0
    assert sum(waited) == pytest.approx(1.0)


def test_without_a_place_it_makes_one(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Never the host's own records."""
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    assert main(["replay", str(folder)]) == 0
    (made,) = tmp_path.glob("xidwatch-replay-*")
    assert str(made) in capsys.readouterr().err
    assert (made / "journal").is_dir()


def test_a_directory_with_something_in_it_is_refused(folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Nothing replayed is to lie among what was seen."""
    (tmp_path / "state").mkdir()
    (tmp_path / "state/journal").mkdir()
    assert main(["replay", str(folder), "--state-dir", str(tmp_path / "state")]) == 73
    assert "not empty" in capsys.readouterr().err


def test_no_such_fixture(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Is said with what was looked for, and with what a fixture is."""
    (tmp_path / "empty").mkdir()
    for name, why in (("nothing", "there is no such folder"), ("empty", "it has no such file in it")):
        assert main(["replay", str(tmp_path / name), "--state-dir", str(tmp_path / "state")]) == 66
        said = capsys.readouterr().err
        assert f"{name}/timeline.txt: {why}. A fixture is a folder with host.txt, timeline.txt and" in said
        assert "fixtures/" in said
    assert not (tmp_path / "state").exists()


def test_a_time_that_is_none(folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Is wrong usage, as with every other option."""
    assert main(["replay", str(folder), "--state-dir", str(tmp_path / "state"), "--until", "noon"]) == 64
    assert "--until: 'noon' is no time" in capsys.readouterr().err


@pytest.mark.parametrize("speed", ["0", "-1", "fast", "inf", "nan"])
def test_no_speed(folder: Path, speed: str) -> None:
    """A usage error."""
    with pytest.raises(SystemExit) as caught:
        main(["replay", str(folder), "--speed", speed])
    assert caught.value.code == 64
