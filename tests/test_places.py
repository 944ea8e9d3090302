"""Where things are: the same place for whoever asks, and no other's."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from xidwatch.places import DEFAULT_RUN, DEFAULT_STATE, STATE_FILE, find_run_dir, run_dir


@pytest.mark.parametrize(
    ("state_dir", "uid", "given", "expected"),
    [
        (DEFAULT_STATE, 0, "", DEFAULT_RUN),
        (DEFAULT_STATE, 1000, "", DEFAULT_RUN),  # `xidwatch status` for everyone
        (Path("/srv/x"), 1000, "", Path("/srv/x/run")),
        (Path("/srv/x"), 0, "/run/elsewhere", Path("/run/elsewhere")),
        (Path("/srv/x"), 1000, "/run/a:/run/b", Path("/run/a")),
    ],
)
def test_the_place_follows_from_the_state_directory(
    state_dir: Path, uid: int, given: str, expected: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The service's is the same for everyone who asks; systemd's word counts where it is passed on."""
    monkeypatch.setattr(os, "geteuid", lambda: uid)
    assert run_dir(state_dir, given) == expected


def test_root_has_a_neighbour_of_the_service_for_each_other_state_directory(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """In /run, the same one every time, and one of its own for each; a relative name means the same place."""
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    one, other = run_dir(Path("/srv/x")), run_dir(Path("/srv/y"))
    assert one != other
    assert {one.parent, other.parent} == {DEFAULT_RUN.parent}
    assert one.name.startswith("xidwatch-")
    assert one == run_dir(Path("/srv/x"))
    monkeypatch.chdir(tmp_path)
    assert run_dir(Path("state")) == run_dir(tmp_path / "state")


def test_the_variable_of_another_service_is_not_followed(monkeypatch: pytest.MonkeyPatch) -> None:
    """A command in the unit of an engine inherits the engine's directories."""
    monkeypatch.setenv("RUNTIME_DIRECTORY", "/run/vllm")
    assert run_dir(DEFAULT_STATE) == DEFAULT_RUN


def test_a_reader_finds_the_place_of_another_users_daemon(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Root asks about the daemon of an ordinary user, and the other way round; where there is none, his own would be."""
    assert find_run_dir(tmp_path) == run_dir(tmp_path)
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / STATE_FILE).touch()
    for uid in (0, 1000):
        monkeypatch.setattr(os, "geteuid", lambda uid=uid: uid)
        assert find_run_dir(tmp_path) == tmp_path / "run"
