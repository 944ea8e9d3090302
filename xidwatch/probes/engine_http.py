"""Small questions over HTTP to servers on this host, all at the same time, bounded in bytes and by one absolute deadline.

    GET /metrics HTTP/1.1          HTTP/1.1 200 OK
    Host: 127.0.0.1:8000           Content-Type: text/plain; version=0.0.4
    Connection: close
                                   vllm:num_requests_running{engine="0"} 3.0

No redirect is followed, no proxy is used, no name is resolved, and no socket ever blocks: a server that accepts and says
nothing, or drips a byte a second, costs its own answer and nobody else's.
Sources: RFC 9110, RFC 9112.
"""

from __future__ import annotations

import errno
import http.client
import io
import selectors
import socket
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import cast

from xidwatch.core.loopback import Endpoint
from xidwatch.core.model import Missing

MOST_BYTES = 4 * 1024 * 1024
MOST_HEADER_BYTES = 64 * 1024
CHUNK = 256 * 1024
END_OF_CHUNKS = b"0\r\n\r\n"


@dataclass(frozen=True, slots=True)
class Answer:
    """What came. `status` is missing when there was no HTTP answer; `body` is bytes only of a whole one."""

    status: int | Missing
    body: bytes = b""


@dataclass(slots=True)
class _Asking:
    """One conversation."""

    endpoint: Endpoint
    sock: socket.socket
    unsent: bytes
    received: bytearray = field(default_factory=bytearray)

    def events(self) -> int:
        return selectors.EVENT_WRITE if self.unsent else selectors.EVENT_READ

    def go_on(self) -> Answer | None:
        """What it came to, None while it goes on. Raises OSError."""
        if self.unsent:
            self.unsent = self.unsent[self.sock.send(self.unsent) :]
            return None
        data = self.sock.recv(CHUNK)
        self.received += data
        if len(self.received) > MOST_BYTES + MOST_HEADER_BYTES:
            return Answer(Missing.MALFORMED)
        if not data or _is_whole(self.received):
            return _read(bytes(self.received))
        return None


def ask(
    endpoint: Endpoint, deadline: float, *, body: bytes | None = None, key: str = "", monotonic: Callable[[], float] = time.monotonic
) -> Answer:
    """The same for one endpoint, which may be sent a JSON document and a key."""
    return ask_all({"": endpoint}, deadline, body=body, key=key, monotonic=monotonic)[""]


def ask_all(
    endpoints: Mapping[str, Endpoint],
    deadline: float,
    *,
    body: bytes | None = None,
    key: str = "",
    monotonic: Callable[[], float] = time.monotonic,
) -> dict[str, Answer]:
    """One answer for each by the deadline (monotonic): TIMED_OUT for what was not whole by then, ABSENT for who is not there."""
    authorization = f"Authorization: Bearer {key}\r\n" if key else ""
    request = partial(_get, authorization) if body is None else partial(_post, authorization, body)
    answers: dict[str, Answer] = {}
    with selectors.DefaultSelector() as selector:
        for name, endpoint in endpoints.items():
            _begin(name, endpoint, request(endpoint), selector, answers)
        while selector.get_map() and (left := deadline - monotonic()) > 0:
            for ready, _ in selector.select(left):
                _step(ready, selector, answers)
        for left_over in list(selector.get_map().values()):
            name, asking = cast("tuple[str, _Asking]", left_over.data)
            answers[name] = Answer(Missing.TIMED_OUT)
            asking.sock.close()
    return answers


def _get(authorization: str, endpoint: Endpoint) -> bytes:
    head = f"GET {endpoint.path} HTTP/1.1\r\nHost: {endpoint.authority}\r\n{authorization}"
    return f"{head}Accept: text/plain\r\nConnection: close\r\n\r\n".encode("ascii")


def _post(authorization: str, body: bytes, endpoint: Endpoint) -> bytes:
    head = f"POST {endpoint.path} HTTP/1.1\r\nHost: {endpoint.authority}\r\n{authorization}Content-Type: application/json\r\n"
    return f"{head}Content-Length: {len(body)}\r\nConnection: close\r\n\r\n".encode("ascii") + body


def _begin(name: str, endpoint: Endpoint, request: bytes, selector: selectors.BaseSelector, answers: dict[str, Answer]) -> None:
    try:
        sock = socket.socket(socket.AF_INET6 if ":" in endpoint.host else socket.AF_INET, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
    except OSError:  # no IPv6 in this kernel
        answers[name] = Answer(Missing.ABSENT)
        return
    error = sock.connect_ex((endpoint.host, endpoint.port))
    if error in {0, errno.EINPROGRESS}:
        selector.register(sock, selectors.EVENT_WRITE, (name, _Asking(endpoint, sock, request)))
    else:
        sock.close()
        answers[name] = Answer(Missing.ABSENT)


def _step(key: selectors.SelectorKey, selector: selectors.BaseSelector, answers: dict[str, Answer]) -> None:
    name, asking = cast("tuple[str, _Asking]", key.data)
    try:
        answer = asking.go_on()
    except BlockingIOError:
        return
    except OSError:  # refused, or hung up in the middle
        answer = Answer(Missing.ABSENT)
    if answer is None:
        selector.modify(asking.sock, asking.events(), key.data)
        return
    selector.unregister(asking.sock)
    asking.sock.close()
    answers[name] = answer


def _is_whole(received: bytearray) -> bool:
    """Servers there are that keep the connection although they were asked to close it."""
    head, end, _ = bytes(received[:MOST_HEADER_BYTES]).partition(b"\r\n\r\n")
    if not end:
        return False
    for line in head.lower().split(b"\r\n")[1:]:
        name, _, value = line.partition(b":")
        if name == b"content-length" and value.strip().isdigit():
            return len(received) - len(head) - len(end) >= int(value)
        if name == b"transfer-encoding" and b"chunked" in value:
            return received.endswith(END_OF_CHUNKS)
    return False


class _Said:
    """What http.client takes for a socket."""

    def __init__(self, data: bytes) -> None:
        self._data = data

    def makefile(self, _mode: str) -> io.BytesIO:
        return io.BytesIO(self._data)


def _read(data: bytes) -> Answer:
    """MALFORMED for what is no HTTP, and for less than was announced: half a page would pass for a whole one."""
    if not data:
        return Answer(Missing.ABSENT)
    try:
        response = http.client.HTTPResponse(cast("socket.socket", _Said(data)), method="GET")
        response.begin()
        return Answer(response.status, response.read())
    except (http.client.HTTPException, ValueError, OSError):
        return Answer(Missing.MALFORMED)
