"""The process of one step: it says what came of it, leaves with its daemon before it has begun, and finishes after that."""

from __future__ import annotations

import json
import signal
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from xidwatch.supervise import recovery_worker
from xidwatch.supervise.recovery import STEPS, Host, Refused, Unable

JOB = {"do": "rescan", "target": "0000:12:00.0", "within_s": 5.0, "sysfs": "/elsewhere", "evidence": ["/evidence"]}


@pytest.fixture(autouse=True)
def mark(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where it says that it was taken."""
    monkeypatch.setitem(JOB, "mark", str(tmp_path / "recovery-boot"))
    return tmp_path / "recovery-boot-rescan"


@pytest.fixture(autouse=True)
def term() -> Iterator[None]:
    """What this very process does about TERM is as before."""
    before = signal.getsignal(signal.SIGTERM)
    yield
    signal.signal(signal.SIGTERM, before)


def run(monkeypatch: pytest.MonkeyPatch, step: object, *, is_heard: bool = True) -> list[dict[str, object]]:
    monkeypatch.setitem(STEPS, "rescan", step)
    ours, theirs = socket.socketpair()
    with ours, theirs:
        if not is_heard:
            ours.shutdown(socket.SHUT_WR)
        recovery_worker.main(theirs, JOB)
        theirs.shutdown(socket.SHUT_WR)
        return [json.loads(line) for line in ours.makefile("rb")]


def test_it_says_what_came_of_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """In one line, of the host and target that it was given."""
    seen: list[tuple[str, str]] = []

    def step(host: Host, target: str) -> tuple[str, str]:
        seen.append((str(host.sysfs), target))
        host.begun()
        return "ok", "done"

    assert run(monkeypatch, step) == [{"result": "ok", "detail": "done"}]
    assert seen == [("/elsewhere", "0000:12:00.0")]


@pytest.mark.parametrize(("objection", "result"), [(Refused("held"), "refused"), (Unable("the sandbox"), "unable")])
def test_what_was_not_done_is_told_from_what_failed(monkeypatch: pytest.MonkeyPatch, objection: Exception, result: str) -> None:
    """Not now, and not here."""

    def step(_host: Host, _target: str) -> tuple[str, str]:
        raise objection

    assert run(monkeypatch, step) == [{"result": result, "detail": str(objection)}]


@pytest.mark.parametrize("waits", [False, True])
def test_nothing_is_begun_for_a_daemon_that_has_left(monkeypatch: pytest.MonkeyPatch, waits: bool) -> None:
    """Its successor may have decided something else by now."""
    done: list[str] = []

    def step(host: Host, _target: str) -> tuple[str, str]:
        if waits:
            host.pause(5.0)
        host.begun()
        done.append("done")
        return "ok", ""

    assert run(monkeypatch, step, is_heard=False) == []
    assert done == []


def test_what_has_begun_is_finished_whoever_dies_and_whatever_it_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """A device that was removed is scanned for."""
    done: list[str] = []
    ours, theirs = socket.socketpair()

    def step(host: Host, _target: str) -> tuple[str, str]:
        host.begun()
        ours.close()
        signal.raise_signal(signal.SIGTERM)
        host.pause(0.0)
        done.append("scanned")
        return "ok", ""

    monkeypatch.setitem(STEPS, "rescan", step)
    with theirs:
        recovery_worker.main(theirs, JOB)
    assert done == ["scanned"]


def begins(host: Host, _target: str) -> tuple[str, str]:
    host.begun()
    return "ok", "done"


def test_a_step_is_taken_once_in_a_boot_whatever_became_of_the_journal(monkeypatch: pytest.MonkeyPatch, mark: Path) -> None:
    """By whichever daemon; another step has a mark of its own."""
    assert run(monkeypatch, begins)[0]["result"] == "ok"
    assert mark.exists()
    (second,) = run(monkeypatch, begins)
    assert (second["result"], "has been taken in this boot" in str(second["detail"])) == ("unable", True)
    monkeypatch.setitem(STEPS, "slot-power", begins)
    ends: list[tuple[str, str]] = [recovery_worker.work({**JOB, "do": "slot-power"}, lambda _: None, lambda: None)]
    assert ends == [("ok", "done")]


def test_a_step_that_cannot_be_marked_is_not_taken(monkeypatch: pytest.MonkeyPatch, mark: Path) -> None:
    """The next run would take it again."""
    mark.parent.rename(mark.parent.with_name("gone"))
    (said,) = run(monkeypatch, begins)
    assert (said["result"], "nothing would show" in str(said["detail"])) == ("unable", True)


def test_what_was_refused_leaves_no_mark(monkeypatch: pytest.MonkeyPatch, mark: Path) -> None:
    """It was not taken."""

    def step(_host: Host, _target: str) -> tuple[str, str]:
        raise Refused("held")

    assert run(monkeypatch, step)[0]["result"] == "refused"
    assert not mark.exists()
