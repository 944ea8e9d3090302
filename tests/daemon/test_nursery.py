"""The nursery as it runs: a real process that bears real children, on a real loop."""

from __future__ import annotations

import json
import os
import select
import signal
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest

from tests.daemon.harness import has_ended
from xidwatch.clock import SystemClock
from xidwatch.daemon import nursery
from xidwatch.daemon.loop import Loop
from xidwatch.daemon.nursery import Nursery
from xidwatch.daemon.processes import start_ticks

PATIENCE_SECONDS = 60.0
ECHOES = "tests.fakes.collectors:echoes"
WORKER = "xidwatch.probes.worker:main"
SCRIPTED: dict[str, object] = {"target": "tests.fakes.probes:crashes", "options": {"when": "/nowhere"}}

pytestmark = pytest.mark.slow


class Ward:
    """A nursery on a loop, who was born in it and who has ended."""

    def __init__(self) -> None:
        self.loop = Loop(SystemClock())
        self.born: dict[int, tuple[int, int]] = {}
        self.ended: list[tuple[int, int]] = []
        self.nursery = Nursery(self.loop, ["xidwatch.probes.worker"], self._born, lambda pid, status: self.ended.append((pid, status)))

    def _born(self, request: int, pid: int, ticks: int) -> None:
        self.born[request] = (pid, ticks)

    def until(self, wanted: Callable[[], object]) -> None:
        deadline = time.monotonic() + PATIENCE_SECONDS
        while not wanted():
            assert time.monotonic() < deadline
            self.loop.turn(0.02)

    def pid_of(self, request: int) -> int:
        self.until(lambda: request in self.born)
        return self.born[request][0]

    def own_pid(self, request: int) -> int:
        """The nursery's, as the parent of a child."""
        with open(f"/proc/{self.pid_of(request)}/stat") as file:  # noqa: PTH123
            return int(file.read().rpartition(")")[2].split()[1])


@pytest.fixture
def ward() -> Iterator[Ward]:
    """With SIGCHLD as the daemon has it: children are reaped by the kernel."""
    before = signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    ward = Ward()
    try:
        yield ward
    finally:
        ward.nursery.close()
        ward.loop._selector.close()
        signal.signal(signal.SIGCHLD, before)


def line(sock: socket.socket) -> bytes:
    """One line from a child, b"" when it has ended without one."""
    sock.setblocking(False)
    data = b""
    while not data.endswith(b"\n"):
        assert select.select([sock], [], [], PATIENCE_SECONDS)[0]
        more = sock.recv(4096)
        if not more:
            break
        data += more
    return data


def ask(sock: socket.socket) -> dict[str, object]:
    """One request to a worker, and the last line of its answer."""
    sock.send(b'{"ask": 1, "what": "look", "deadline_ms": 1000}\n')
    return dict(json.loads(line(sock)))


def test_a_child_is_born_named_and_its_end_is_told(ward: Ward) -> None:
    """It gets its channel as descriptor 3 and nothing else that was open; who it is comes at once, its exit status when it leaves."""
    request, sock = ward.nursery.start(ECHOES, "echo", {"n": 1})
    with sock:
        assert line(sock) == b"('socket', {'n': 1}, [0, 1, 2, 3])\n"
        ward.until(lambda: ward.ended)
        pid, ticks = ward.born[request]
        assert ticks > 0
        assert ward.ended == [(pid, 7)]


def test_a_child_that_cannot_even_begin_ends_and_no_other_with_it(ward: Ward) -> None:
    """A module that is not there is the child's end: status 1, an empty channel, and a nursery that goes on."""
    _, nobody = ward.nursery.start("xidwatch.nowhere:main", "nobody", {})
    _, sock = ward.nursery.start(WORKER, "worker", SCRIPTED)
    with nobody, sock:
        assert line(nobody) == b""
        assert ask(sock)["done"]
        ward.until(lambda: [status for _, status in ward.ended] == [1])


def test_children_outlive_their_nursery(ward: Ward) -> None:
    """When it is killed they serve on, another bears those to come, and a request that was lost ends as a closed channel."""
    first, sock = ward.nursery.start(WORKER, "worker", SCRIPTED)
    with ExitStack() as open_:
        open_.enter_context(sock)
        old = ward.own_pid(first)
        os.kill(old, signal.SIGKILL)
        assert has_ended(old, PATIENCE_SECONDS)
        _, lost = ward.nursery.start(WORKER, "lost", SCRIPTED)
        open_.enter_context(lost)
        ward.loop.turn(1.0)
        assert line(lost) == b""
        second, another = ward.nursery.start(WORKER, "worker", SCRIPTED)
        open_.enter_context(another)
        assert ward.own_pid(second) != old
        assert ask(sock)["done"]
        assert ask(another)["done"]


def test_one_that_has_been_stopped_is_replaced(ward: Ward, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its children serve on; the child it owed ends unborn, after the patience for an answer; the next is born elsewhere."""
    with ExitStack() as open_:
        first, sock = ward.nursery.start(WORKER, "worker", SCRIPTED)
        open_.enter_context(sock)
        stopped = ward.own_pid(first)
        os.kill(stopped, signal.SIGSTOP)
        monkeypatch.setattr(nursery, "ANSWER_SECONDS", 0.3)
        _, owed = ward.nursery.start(WORKER, "owed", SCRIPTED)
        open_.enter_context(owed)
        ward.until(lambda: has_ended(stopped, 0))
        assert line(owed) == b""
        ward.loop.turn(1.0)  # its end is seen
        monkeypatch.undo()
        second, another = ward.nursery.start(WORKER, "worker", SCRIPTED)
        open_.enter_context(another)
        assert ward.own_pid(second) != stopped
        assert ask(sock)["done"]
        assert ask(another)["done"]


def test_it_ignores_what_is_meant_for_the_daemon_and_leaves_with_it(ward: Ward) -> None:
    """TERM, INT and HUP to the whole group leave it standing; end of input does not. A child of its own takes TERM."""
    request, sock = ward.nursery.start(WORKER, "worker", SCRIPTED)
    with sock:
        own, child = ward.own_pid(request), ward.pid_of(request)
        for signum in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            os.kill(own, signum)
        assert ask(sock)["done"]
        os.kill(child, signal.SIGTERM)
        ward.until(lambda: (child, 0) in ward.ended)
        assert start_ticks(own) is not None
        ward.nursery.close()
        assert has_ended(own, PATIENCE_SECONDS)


def test_a_child_that_cannot_be_forked_is_one_child_less(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """No memory, too many tasks: its channel ends, the reason is on standard error, and the nursery goes on."""

    def refuse() -> int:
        raise BlockingIOError(11, "Resource temporarily unavailable")

    monkeypatch.setattr(os, "fork", refuse)
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    channel, child_end = socket.socketpair()
    with ours, theirs, channel:
        socket.send_fds(ours, [json.dumps({"start": 1, "target": WORKER, "name": "pci", "options": {}}).encode()], [child_end.fileno()])
        child_end.close()
        assert nursery._serve(theirs)
        assert line(channel) == b""
    assert "pci cannot be started: [Errno 11] Resource temporarily unavailable" in capsys.readouterr().err
