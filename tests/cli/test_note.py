"""`xidwatch note` and `xidwatch allow-driver`: a person's word to the running daemon."""

from __future__ import annotations

import os
import tempfile
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from xidwatch import cli
from xidwatch.clock import SystemClock
from xidwatch.daemon.control import NAME, Control
from xidwatch.daemon.loop import Loop

Answer = Callable[[Mapping[str, Any], int], Mapping[str, object]]


@contextmanager
def daemon(folder: Path, answer: Answer) -> Iterator[None]:
    """A loop in a thread, with nothing but a control socket."""
    loop = Loop(SystemClock())
    control = Control(loop, folder / NAME, answer)
    read, write = os.pipe()
    with os.fdopen(read) as wake:
        loop.watch(wake, loop.stop)
        thread = threading.Thread(target=loop.run)
        thread.start()
        yield
        os.write(write, b"x")
        thread.join(timeout=60)
    os.close(write)
    control.close()


@pytest.fixture
def place(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The run directory, whatever the state directory is; its name is short, as that of a socket has to be."""
    with tempfile.TemporaryDirectory(prefix="xw") as folder:
        monkeypatch.setattr("xidwatch.places.run_dir", lambda _state_dir: Path(folder))
        yield Path(folder)


def test_words_arrive_as_one_text(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The answer is for people, and stands on standard error."""
    heard: list[Mapping[str, Any]] = []

    def note(request: Mapping[str, Any], _uid: int) -> Mapping[str, object]:
        heard.append(request)
        return {"ok": True, "text": "noted"}

    with daemon(place, note):
        assert cli.main(["note", "swapped", "the riser", "of card 2"]) == 0
        assert cli.main(["allow-driver", "reloaded", "the", "module"]) == 0
    assert heard == [{"do": "note", "text": "swapped the riser of card 2"}, {"do": "allow-driver", "text": "reloaded the module"}]
    assert capsys.readouterr() == ("", "xidwatch: noted\nxidwatch: noted\n")


def test_what_the_shell_typed_in_another_encoding_still_arrives(place: Path) -> None:
    """A byte that is no UTF-8 becomes a replacement character, and no traceback."""
    heard: list[str] = []

    def note(request: Mapping[str, Any], _uid: int) -> Mapping[str, object]:
        heard.append(request["text"])
        return {"ok": True}

    with daemon(place, note):
        assert cli.main(["note", "L\udcfcfter"]) == 0
    assert heard == ["L�fter"]


def test_a_refusal_is_passed_on(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """In the daemon's words, and not with success."""

    def refuse(_request: Mapping[str, Any], _uid: int) -> Mapping[str, object]:
        raise ValueError("a text is needed, for whoever reads the journal later")

    with daemon(place, refuse):
        assert cli.main(["note", "x"]) == 69
    assert capsys.readouterr().err == "xidwatch: a text is needed, for whoever reads the journal later\n"


def test_without_a_daemon_it_is_said_where_one_was_looked_for(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Both when there is no socket and when nobody listens at it any more."""
    for why in ("no such file or directory", "connection refused"):
        assert cli.main(["note", "hello"]) == 69
        assert capsys.readouterr().err == (
            f"xidwatch: no daemon for /var/lib/xidwatch answers at {place}: {why}. Is it running? `xidwatch status` tells\n"
        )
        with daemon(place, lambda *_: {}):
            (place / NAME).rename(place / "kept")
        (place / "kept").rename(place / NAME)


def test_one_who_may_not_is_told_so(place: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """Permission, and not absence."""

    def denied(*_: object) -> Mapping[str, object]:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr("xidwatch.daemon.control.ask", denied)
    assert cli.main(["note", "hello"]) == 69
    assert capsys.readouterr().err == f"xidwatch: {place}: permission denied. Only root may tell the service something\n"
