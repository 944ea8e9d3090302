"""`xidwatch check --accept`: the difference to the baseline first, then a person's word, and nothing that has not been shown."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.test_init import GPU, Host
from tests.daemon.harness import Rig
from tests.fakes.nvml_library import NvmlLibrary
from xidwatch.cli import main
from xidwatch.records import baseline

pytestmark = pytest.mark.slow


@pytest.fixture
def host(tmp_path: Path, nvml_library: NvmlLibrary, monkeypatch: pytest.MonkeyPatch) -> Iterator[Host]:
    """Four GPUs below a switch, a driver in C, and no daemon."""
    monkeypatch.setenv("SUDO_USER", "alice")
    for name, value in nvml_library.environment.items():
        monkeypatch.setenv(name, value)
    host = Host(tmp_path, nvml_library)
    host.write(host.config)
    yield host
    host.kernel.close()


def accept(host: Host, *words: str) -> int:
    return main(["check", "--accept", "--config", str(host.config), "--state-dir", str(host.state), *words])


def says(monkeypatch: pytest.MonkeyPatch, word: str) -> None:
    """A person at a terminal."""
    monkeypatch.setattr("sys.stdin.isatty", lambda: True, raising=False)
    monkeypatch.setattr("sys.stderr.isatty", lambda: True, raising=False)
    monkeypatch.setattr("sys.stdin.readline", lambda: f"{word}\n", raising=False)


def test_the_first_time_everything_is_new_and_somebody_is_asked(
    host: Host, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Whoever is not there, or says no, accepts nothing."""
    assert accept(host) == 2
    assert "nobody is there to be asked" in capsys.readouterr().err
    says(monkeypatch, "n")
    assert accept(host) == 2
    shown = capsys.readouterr().out
    assert shown.startswith("GPUs: 4\n")
    assert shown.count(" is new (") == 14
    assert baseline.read(host.state / baseline.NAME) is None
    says(monkeypatch, "y")
    assert accept(host) == 0
    assert host.baseline().accepted
    assert host.notes() == ["baseline accepted: 4 GPUs, 9 ports, 1 drive"]


def test_what_is_unchanged_is_not_accepted_again(host: Host, capsys: pytest.CaptureFixture[str]) -> None:
    """Its word stands."""
    assert accept(host, "--yes") == 0
    first = host.baseline().accepted
    assert accept(host, "--yes") == 0
    out, err = capsys.readouterr()
    assert out.endswith("nobody and nothing is other than the baseline says\n")
    assert "already, and unchanged" in err
    assert host.baseline().accepted == first


def test_a_card_that_has_gone_is_shown_and_not_accepted_in_passing(host: Host, capsys: pytest.CaptureFixture[str]) -> None:
    """As `init` refuses it, whatever is answered; to begin anew is a decision of its own, and is named."""
    assert accept(host, "--yes") == 0
    host.tree.remove(GPU)
    host.library.remove(2)
    capsys.readouterr()
    assert accept(host, "--yes") == 2
    out, err = capsys.readouterr()
    assert "is not there any more" in out
    assert f"stands against accepting this: gpu:{GPU}: GpuMissing TRUE" in err
    assert "xidwatch init --only baseline --force" in err
    assert len([place for place in host.baseline().members if place.startswith("gpu:")]) == 4
    assert host.init("--only", "baseline", "--force") == 0
    assert len([place for place in host.baseline().members if place.startswith("gpu:")]) == 3


def test_a_device_that_has_come_is_shown_and_accepted_by_a_word(host: Host, capsys: pytest.CaptureFixture[str]) -> None:
    """Nothing else having changed; the old baseline is kept beside the new."""
    assert accept(host, "--yes") == 0
    host.tree.nvme("0000:21:00.0", host.tree.bridge("0000:00:05.1", secondary=0x21))
    capsys.readouterr()
    assert accept(host, "--yes") == 0
    assert " is new (" in capsys.readouterr().out
    assert len(host.copies(host.state / baseline.NAME)) == 1
    assert accept(host, "--yes") == 0
    assert "already, and unchanged" in capsys.readouterr().err


def test_what_stands_against_it_is_not_asked_about(host: Host, capsys: pytest.CaptureFixture[str]) -> None:
    """A dead switch is nobody's baseline, whatever is answered."""
    host.tree.die("0000:0f:00.0")
    assert accept(host, "--yes") == 2
    assert "stands against accepting this" in capsys.readouterr().err
    assert baseline.read(host.state / baseline.NAME) is None


def test_a_damaged_baseline_is_said_and_left(host: Host, capsys: pytest.CaptureFixture[str]) -> None:
    """Nobody knows what it said."""
    host.state.mkdir(parents=True)
    (host.state / baseline.NAME).write_text("{")
    assert accept(host, "--yes") == 69
    assert "damaged" in capsys.readouterr().err


def test_a_running_daemon_is_told(tmp_path: Path, nvml_library: NvmlLibrary, monkeypatch: pytest.MonkeyPatch) -> None:
    """It asks no hardware a second time."""
    with Rig(tmp_path) as rig:
        monkeypatch.setattr("xidwatch.cli.init_source.find_run_dir", lambda _state: rig.run_dir)
        daemon = rig.start(rig.pci(), rig.driver(nvml_library))
        daemon.until("the names of all", lambda: _named(rig.state_dir))
        daemon.settle()
        opened = nvml_library.count("nvmlInitWithFlags")
        assert main(["check", "--accept", "--yes", "--state-dir", str(rig.state_dir), "--config", str(rig.folder / "none.toml")]) == 0
        daemon.until("accepted", lambda: not daemon.state()["baseline"]["provisional"])
        assert nvml_library.count("nvmlInitWithFlags") == opened
        assert daemon.terminate()[0] == 0


def _named(state_dir: Path) -> bool:
    found = baseline.read(state_dir / baseline.NAME)
    return found is not None and sum("uuid" in kept for kept in found.members.values()) == 4
