"""The control socket: who may say what to the daemon, and what becomes of those who say nothing."""

from __future__ import annotations

import os
import socket
import tempfile
import threading
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.fakes.clock import FakeClock
from xidwatch.daemon import control
from xidwatch.daemon.control import CLIENT_SECONDS, MOST_CLIENTS, NAME, Control, ask
from xidwatch.daemon.frames import FrameError
from xidwatch.daemon.loop import Loop


class Rig:
    """A control socket on a loop that turns as long as somebody waits for an answer."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.clock = FakeClock()
        self.loop = Loop(self.clock)
        self.requests: list[tuple[Mapping[str, Any], int]] = []
        self.answer: Mapping[str, object] = {"ok": True, "text": "noted"}
        self.control = Control(self.loop, folder / NAME, self._handle)

    def _handle(self, request: Mapping[str, Any], uid: int) -> Mapping[str, object]:
        self.requests.append((request, uid))
        if request.get("do") != "note":
            raise ValueError(f"no such request: {request.get('do')!r}")
        return self.answer

    def turns(self, count: int = 3) -> None:
        for _ in range(count):
            self.loop.turn(0)

    def client(self) -> socket.socket:
        sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        sock.settimeout(5)
        sock.connect(str(self.folder / NAME))
        self.turns(1)
        return sock

    def serve(self, work: Callable[[], object]) -> list[object]:
        """Do it in a thread, and turn the loop until it is done; what it returned or raised."""
        results: list[object] = []

        def run() -> None:
            try:
                results.append(work())
            except (OSError, ValueError) as error:
                results.append(error)

        thread = threading.Thread(target=run)
        thread.start()
        while thread.is_alive():
            self.loop.turn(0.01)
        return results


@pytest.fixture
def rig() -> Iterator[Rig]:
    with tempfile.TemporaryDirectory(prefix="xw") as folder:  # the name of a socket has to be short
        rig = Rig(Path(folder))
        yield rig
        rig.control.close()


def test_a_request_gets_one_reply(rig: Rig) -> None:
    """Who asks is known from the kernel, whatever the request says."""
    (reply,) = rig.serve(lambda: ask(rig.folder, {"do": "note", "text": "swapped the riser", "uid": 4711}))
    assert reply == {"ok": True, "text": "noted"}
    assert rig.requests == [({"do": "note", "text": "swapped the riser", "uid": 4711}, os.geteuid())]


@pytest.mark.root
def test_the_uid_of_another_is_seen_as_it_is(rig: Rig) -> None:
    """The largest there is included: it is no negative number."""
    (rig.folder / NAME).chmod(0o666)
    rig.folder.chmod(0o711)
    largest = 2**32 - 2
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.setuid(largest)
            with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as sock:
                sock.connect(str(rig.folder / NAME))
                sock.sendall(b'{"do":"note"}\n')
                os.write(write, b"x")
        finally:
            os._exit(0)
    assert os.read(read, 1) == b"x"
    rig.turns()
    os.waitpid(child, 0)
    os.close(read)
    os.close(write)
    assert [uid for _, uid in rig.requests] == [largest]


def test_only_the_owner_may_connect(rig: Rig) -> None:
    """The socket is 0600 from its first moment, whatever the umask was, and the umask is as before."""
    assert (rig.folder / NAME).stat().st_mode & 0o777 == 0o600
    before = os.umask(0o022)
    os.umask(before)
    assert before != 0o177


@pytest.mark.parametrize(
    ("line", "said"),
    [
        (b'{"do":"reset-everything"}', "no such request: 'reset-everything'"),
        (b"{}", "no such request: None"),
        (b"[]", "not a frame"),
        (b"note hello", "not a frame"),
        (b'{"do":' + b"[" * 5000, "not a frame"),
    ],
)
def test_what_cannot_be_done_is_said(rig: Rig, line: bytes, said: str) -> None:
    """And the daemon lives on."""
    with rig.client() as client:
        client.sendall(line + b"\n")
        rig.turns()
        reply = client.recv(4096)
    assert reply.startswith(b'{"ok":false')
    assert said.encode() in reply


def test_one_request_a_connection(rig: Rig) -> None:
    """After the reply the daemon hangs up."""
    with rig.client() as client:
        client.sendall(b'{"do":"note"}\n{"do":"note"}\n')
        rig.turns()
        assert client.recv(4096) == b'{"ok":true,"text":"noted"}\n'
        assert client.recv(4096) == b""
    assert len(rig.requests) == 1


def test_a_line_that_never_ends_is_hung_up_on(rig: Rig) -> None:
    """Without a reply; nothing of it is kept."""
    with rig.client() as client:
        client.setblocking(False)
        hung_up = False
        while not hung_up:
            try:
                client.send(b"x" * 8192)
            except BlockingIOError:
                pass
            except OSError:
                hung_up = True
            rig.turns(1)
    assert rig.requests == []
    assert rig.control._clients == set()


def test_clients_are_bounded_in_number(rig: Rig) -> None:
    """One too many is hung up on; when one leaves there is room again."""
    clients = [rig.client() for _ in range(MOST_CLIENTS + 1)]
    assert clients[-1].recv(1) == b""
    clients[0].close()
    rig.turns()
    with rig.client() as another:
        another.sendall(b'{"do":"note"}\n')
        rig.turns()
        assert another.recv(4096).startswith(b'{"ok":true')
    for client in clients:
        client.close()


def test_a_client_that_says_nothing_is_hung_up_on(rig: Rig) -> None:
    """After ten seconds, and not before."""
    with rig.client() as silent:
        rig.clock.advance(CLIENT_SECONDS - 0.1)
        rig.turns()
        assert len(rig.control._clients) == 1
        rig.clock.advance(0.2)
        rig.turns()
        assert silent.recv(1) == b""
    assert rig.control._clients == set()


def test_a_client_that_goes_without_a_word_is_forgotten(rig: Rig) -> None:
    """Also one that does not wait for its reply."""
    rig.client().close()
    rig.turns()
    hasty = rig.client()
    hasty.sendall(b'{"do":"note"}\n')
    hasty.close()
    rig.turns()
    assert len(rig.requests) == 1
    assert rig.control._clients == set()


def test_the_name_of_a_dead_predecessor_is_taken_over(rig: Rig) -> None:
    """A killed daemon leaves its socket behind."""
    second = Control(rig.loop, rig.folder / NAME, lambda *_: {"ok": True, "text": "second"})
    (reply,) = rig.serve(lambda: ask(rig.folder, {"do": "note"}))
    assert reply == {"ok": True, "text": "second"}
    second.close()
    assert not (rig.folder / NAME).exists()
    second.close()


def test_nobody_there_is_an_error_and_no_wait(tmp_path: Path, rig: Rig) -> None:
    """No socket, one that nobody listens to, or a daemon that hangs up."""
    with pytest.raises(FileNotFoundError):
        ask(tmp_path, {"do": "note"})
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as deaf:
        path = rig.folder / "deaf"
        path.mkdir()
        deaf.bind(str(path / NAME))
        with pytest.raises(ConnectionRefusedError):
            ask(path, {"do": "note"})
        deaf.listen(1)
        with pytest.raises(TimeoutError):
            ask(path, {"do": "note"}, seconds=0.05)
    crowd = [rig.client() for _ in range(MOST_CLIENTS)]
    (result,) = rig.serve(lambda: ask(rig.folder, {"do": "note"}))
    assert isinstance(result, FrameError | OSError)
    for client in crowd:
        client.close()


def test_a_place_where_no_socket_can_be_raises(rig: Rig) -> None:
    """A name that is too long, a folder that is not there; the umask is restored."""
    before = os.umask(0o022)
    os.umask(before)
    for path in (rig.folder / ("x" * 120), rig.folder / "nowhere" / NAME):
        with pytest.raises(OSError, match=r"too long|No such file"):
            Control(rig.loop, path, lambda *_: {})
    after = os.umask(before)
    assert after == before
    assert control.UCRED.size == 12


def test_a_long_reply_arrives_whole_and_a_second_request_is_not_heard(rig: Rig) -> None:
    """What a baseline holds is more than a socket takes at once."""
    text = "x" * 1_000_000
    rig.answer = {"ok": True, "text": text}
    (reply,) = rig.serve(lambda: ask(rig.folder, {"do": "note", "text": "long"}))
    assert reply == {"ok": True, "text": text}
    client = rig.client()
    client.sendall(b'{"do":"note"}\n{"do":"note"}\n')
    rig.turns()
    client.sendall(b'{"do":"note"}\n')
    rig.turns()
    assert len(rig.requests) == 2
    client.close()
