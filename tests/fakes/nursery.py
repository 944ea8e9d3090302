"""A nursery that bears nobody: the test holds the child's end of each channel and plays the child.

with Stage() as stage:
    thing = Thing(stage.loop, stage.nursery)
    child = stage.nursery.children[0]
    child.says({"done": True})
    stage.turn()
    child.hears()                      # [{"ask": 1, ...}]
    stage.passes(0.5)                  # seconds go by, timers fire
"""

from __future__ import annotations

import json
import socket
from collections.abc import Mapping
from typing import Any, Self

from tests.fakes.clock import FakeClock
from xidwatch.daemon.loop import Loop
from xidwatch.daemon.nursery import Nursery

TURNS = 8  # enough for what one line sets off to come to rest


class Child:
    """One child that was asked for, seen from its own end."""

    def __init__(self, request: int, target: str, name: str, options: Mapping[str, Any], sock: socket.socket) -> None:
        self.request = request
        self.target = target
        self.name = name
        self.options = options
        self._sock = sock
        self._heard = b""
        self.told_to_leave = False
        sock.setblocking(False)

    def says(self, *messages: Mapping[str, object]) -> None:
        """One line each."""
        self.raw(b"".join(json.dumps(message).encode() + b"\n" for message in messages))

    def raw(self, data: bytes) -> None:
        """Whatever it is."""
        self._sock.sendall(data)

    def hears(self) -> list[dict[str, Any]]:
        """What it was told since it was last asked, as far as its socket holds it."""
        *lines, self._heard = (self._heard + self._receive()).split(b"\n")
        return [json.loads(line) for line in lines]

    def _receive(self) -> bytes:
        data = b""
        try:
            while more := self._sock.recv(1 << 20):
                data += more
            self.told_to_leave = True
        except BlockingIOError:
            pass
        except OSError:
            self.told_to_leave = True
        return data

    def is_let_go(self) -> bool:
        """Its other end is closed: it is to leave."""
        self.hears()
        return self.told_to_leave

    def dies(self) -> None:
        """Its process ends, whatever it had still to read."""
        self._sock.close()


class FakeNursery(Nursery):
    """Hands out channels. Nobody is born before the test says so to whom it concerns."""

    def __init__(self) -> None:
        self.children: list[Child] = []
        self._sockets: list[socket.socket] = []

    def start(self, target: str, name: str, options: Mapping[str, object]) -> tuple[int, socket.socket]:
        """As the real one: a request's number and our end."""
        ours, theirs = socket.socketpair()
        self._sockets += (ours, theirs)
        number = len(self.children) + 1
        self.children.append(Child(number, target, name, options, theirs))
        return number, ours

    def close(self) -> None:
        """Both ends of everything."""
        for sock in self._sockets:
            sock.close()


class Stage:
    """A loop on a clock that stands still, and a nursery."""

    def __init__(self) -> None:
        self.clock = FakeClock()
        self.loop = Loop(self.clock)
        self.nursery = FakeNursery()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.nursery.close()
        self.loop._selector.close()

    @property
    def now(self) -> float:
        """Monotonic seconds."""
        return self.clock.mono

    def turn(self) -> None:
        """Let everything happen that can happen now."""
        for _ in range(TURNS):
            self.loop.turn(0)

    def passes(self, seconds: float) -> None:
        """So much later."""
        self.clock.advance(seconds)
        self.turn()
