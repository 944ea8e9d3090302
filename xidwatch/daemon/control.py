"""The control socket: the one way in which a person changes anything. One request line, one reply line.

    -> {"do": "note", "text": "swapped the riser of card 2"}
    <- {"ok": true, "text": "noted"}

Root only (0600 in the run directory); who asked is taken from the kernel (SO_PEERCRED, unix(7)), not from the request.
"""

from __future__ import annotations

import os
import socket
import struct
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from xidwatch.daemon import frames
from xidwatch.daemon.channel import Channel
from xidwatch.daemon.loop import Loop

NAME = "control.sock"
MOST_CLIENTS = 16
CLIENT_SECONDS = 10.0
UCRED = struct.Struct("iII")  # pid, uid, gid

Handler = Callable[[Mapping[str, Any], int], Mapping[str, object]]  # request, uid -> reply


class Control:
    """Listens from creation on (raises OSError). `handle(request, uid)` gives the reply, or raises ValueError with what is wrong."""

    def __init__(self, loop: Loop, path: Path, handle: Handler) -> None:
        self._loop = loop
        self._path = path
        self._handle = handle
        self._clients: set[Channel] = set()
        self._answered: set[Channel] = set()  # of those, whose reply is still on its way
        with suppress(FileNotFoundError):
            path.unlink()  # a predecessor's: it cannot be listening any more, or it would hold the lock
        self._sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
        old = os.umask(0o177)
        try:
            self._sock.bind(str(path))
        except OSError:
            self._sock.close()
            raise
        finally:
            os.umask(old)
        self._sock.listen(MOST_CLIENTS)
        loop.watch(self._sock, self._accept)

    def close(self) -> None:
        """Stop listening, hang up on whoever is there; the name goes too."""
        for channel in tuple(self._clients):
            self._drop(channel)
        self._loop.forget(self._sock)
        self._sock.close()
        with suppress(OSError):
            self._path.unlink()

    def _accept(self) -> None:
        try:
            client, _ = self._sock.accept()
        except OSError:
            return
        if len(self._clients) >= MOST_CLIENTS:
            client.close()
            return
        _, uid, _ = UCRED.unpack(client.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, UCRED.size))
        channel = Channel(self._loop, client, lambda line: self._line(channel, line, uid), lambda _why: self._drop(channel))
        self._clients.add(channel)
        self._loop.after(CLIENT_SECONDS, lambda: self._drop(channel))

    def _line(self, channel: Channel, line: bytes, uid: int) -> None:
        if channel in self._answered:
            return
        try:
            reply = self._handle(frames.decode(line), uid)
        except ValueError as error:
            reply = {"ok": False, "text": str(error)}
        channel.send(frames.encode(reply))
        if channel.queued:  # more than the socket holds: the client is still reading
            self._answered.add(channel)
            channel.finish()
        else:
            self._drop(channel)

    def _drop(self, channel: Channel) -> None:
        self._clients.discard(channel)
        self._answered.discard(channel)
        channel.close()


def ask(run_dir: Path, request: Mapping[str, object], seconds: float = 5.0) -> dict[str, Any]:
    """A client's side, for the command line. Raises OSError when nobody listens, TimeoutError when nobody answers.

    FrameError when it hangs up instead: too many clients, too long a request.
    """
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as sock:
        sock.settimeout(seconds)
        sock.connect(str(run_dir / NAME))
        sock.sendall(frames.encode(request))
        with sock.makefile("rb") as replies:
            return frames.decode(replies.readline())
