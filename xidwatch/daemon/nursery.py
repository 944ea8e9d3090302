"""The process that starts processes.

Starting a program reads the disk, and the caller waits for it: neither is for the loop, least of all on the night the
disk dies. So one small process, started first, imports all that a worker, a recorder or a dump worker will ever need,
touches no driver, and from then on forks them on request: no disk, no import, a few milliseconds.

    -> {"start": 7, "target": "xidwatch.probes.worker:main", "name": "pci", "options": {...}}   + one end of a socket pair
    <- {"started": 7, "pid": 4711, "start_ticks": 182739}
    <- {"exited": 4711, "status": -6}
    <- {"refused": 8}                                       there was no memory for it, say

A child gets `target(channel, options)`. The nursery ignores SIGTERM and leaves when the daemon does. One that answers nothing
(somebody has stopped it) is ended by force, for it holds no driver; its children live on, and those it owed end unborn.
"""

from __future__ import annotations

import gc
import importlib
import json
import os
import selectors
import signal
import socket
import sys
import traceback
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from xidwatch.daemon.loop import Loop
from xidwatch.daemon.processes import comm, end_now, start_ticks

MAX_MESSAGE = 64 * 1024
ANSWER_SECONDS = 20.0  # a request is answered in milliseconds; only the first waits for imports, perhaps from a busy disk


class Nursery:
    """The loop's side. Requests go out at once; `on_started(id, pid, start_ticks)` and `on_exited(pid, status)` come later."""

    def __init__(
        self,
        loop: Loop,
        preload: Sequence[str],
        on_started: Callable[[int, int, int], None],
        on_exited: Callable[[int, int], None],
    ) -> None:
        self._loop = loop
        self._preload = tuple(preload)
        self._on_started = on_started
        self._on_exited = on_exited
        self._next = 1
        self._answered = 0  # the highest number that was
        self._sock = self._launch()

    def start(self, target: str, name: str, options: Mapping[str, object]) -> tuple[int, socket.socket]:
        """Ask for a child; returns the request's id and our end of its channel, usable at once."""
        ours, theirs = socket.socketpair()
        number, self._next = self._next, self._next + 1
        message = json.dumps({"start": number, "target": target, "name": name, "options": options}).encode()
        try:
            socket.send_fds(self._sock, [message], [theirs.fileno()])
        except OSError:  # it died since the last turn: end of file will be seen; this child is never born
            pass
        theirs.close()
        asked = self._pid, self._ticks
        self._loop.after(ANSWER_SECONDS, lambda: self._end_if_silent(number, *asked))
        return number, ours

    def _end_if_silent(self, number: int, pid: int, ticks: int | None) -> None:
        """Then end of file comes, and another is launched."""
        if number > self._answered and pid == self._pid and start_ticks(pid) == ticks is not None:
            end_now(pid)

    def close(self) -> None:
        """The nursery leaves; children that still run are on their own."""
        self._loop.forget(self._sock)
        self._sock.close()

    def _launch(self) -> socket.socket:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            command = [sys.executable, "-m", "xidwatch.daemon.nursery", str(theirs.fileno()), *self._preload]
            theirs.set_inheritable(True)  # the only one beside the standard three
            nothing_to_read = (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0)
            # Never waited for: it is seen to end by end of file, and reaped by the kernel (SIGCHLD is ignored).
            self._pid = os.posix_spawn(sys.executable, command, os.environ, file_actions=[nothing_to_read])
        self._ticks = start_ticks(self._pid)
        ours.setblocking(False)
        self._loop.watch(ours, self._read)
        return ours

    def _read(self) -> None:
        try:
            data = self._sock.recv(MAX_MESSAGE)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:
            self.close()
            self._sock = self._launch()
            return
        message = json.loads(data)
        self._answered = max(self._answered, message.get("started", 0), message.get("refused", 0))
        if "started" in message:
            self._on_started(message["started"], message["pid"], message["start_ticks"])
        elif "exited" in message:
            self._on_exited(message["exited"], message["status"])


def main(argv: Sequence[str]) -> None:
    """`python -m xidwatch.daemon.nursery FD MODULE...`"""
    daemon = socket.socket(fileno=int(argv[0]))
    for signum in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(signum, signal.SIG_IGN)
    for module in argv[1:]:
        with suppress(ImportError):  # whoever needs it will say what is missing, in its own process
            importlib.import_module(module)
    gc.collect()
    gc.freeze()  # keep the shared pages shared
    waker, wakee = socket.socketpair()
    waker.setblocking(False)
    wakee.setblocking(False)
    signal.set_wakeup_fd(waker.fileno(), warn_on_full_buffer=False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    selector = selectors.DefaultSelector()
    selector.register(daemon, selectors.EVENT_READ)
    selector.register(wakee, selectors.EVENT_READ)
    while True:
        for key, _ in selector.select():
            if key.fileobj is wakee:
                wakee.recv(512)
                _reap(daemon)
            elif not _serve(daemon):
                signal.set_wakeup_fd(-1)  # its socket is closed next; a child that ends now would be told to nobody
                return


def _serve(daemon: socket.socket) -> bool:
    try:
        data, descriptors, _, _ = socket.recv_fds(daemon, MAX_MESSAGE, 1)
    except ConnectionResetError:
        data, descriptors = b"", []
    if not data:
        return False
    request = json.loads(data)
    try:
        pid = os.fork()
    except OSError as error:  # no memory, too many tasks: this child is not born, and the daemon sees its channel end
        os.close(descriptors[0])
        print(f"xidwatch nursery: {request['name']} cannot be started: {error}", file=sys.stderr)
        _tell(daemon, {"refused": request["start"]})
        return True
    if pid == 0:
        _child(request, descriptors[0])
    os.close(descriptors[0])
    _tell(daemon, {"started": request["start"], "pid": pid, "start_ticks": start_ticks(pid) or 0})
    return True


def _reap(daemon: socket.socket) -> None:
    while True:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return
        if pid == 0:
            return
        _tell(daemon, {"exited": pid, "status": os.waitstatus_to_exitcode(status)})


def _tell(daemon: socket.socket, message: Mapping[str, object]) -> None:
    with suppress(OSError):  # the daemon is gone: the next receive says so
        daemon.send(json.dumps(message).encode())


def _child(request: Mapping[str, Any], descriptor: int) -> None:
    """Become what was asked for; never returns into the nursery."""
    status = 1
    try:
        signal.set_wakeup_fd(-1)
        for signum in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGCHLD):
            signal.signal(signum, signal.SIG_DFL)
        channel = socket.socket(fileno=os.dup2(descriptor, 3))
        os.closerange(4, 4096)
        with suppress(OSError):
            Path("/proc/self/comm").write_text(comm(request["name"]))
        module, _, function = request["target"].partition(":")
        getattr(importlib.import_module(module), function)(channel, request["options"])
        status = 0
    except SystemExit as leaving:
        status = leaving.code if isinstance(leaving.code, int) else 1
    except BaseException:  # noqa: BLE001  a child never returns into the nursery, whatever happens
        traceback.print_exc()
    finally:
        os._exit(status)


if __name__ == "__main__":
    main(sys.argv[1:])
