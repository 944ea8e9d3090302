"""One job in a process of its own; here its two ends are in one."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.fakes.systemd import DOWN, UNIT, Systemd
from xidwatch.supervise import worker

Ends = tuple[socket.socket, socket.socket]


@pytest.fixture
def ends() -> Iterator[Ends]:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        yield ours, theirs


def job(systemd: Systemd, do: str, within: float = 20.0) -> dict[str, object]:
    return {**systemd.places, "do": do, "unit": UNIT, "within_s": within}


def test_it_tells_what_it_sees_and_then_what_came_of_it(tmp_path: Path, ends: Ends) -> None:
    """A line each."""
    systemd = Systemd(tmp_path)
    systemd.on("stop", DOWN)
    systemd.nobody_is_left()
    worker.main(ends[1], job(systemd, "stop"))
    before, after, last = (json.loads(line) for line in ends[0].recv(65536).splitlines())
    assert (before["seen"]["active_state"], after["seen"]["active_state"]) == ("active", "inactive")
    assert (last["result"], last["leftovers"]) == ("ok", [])


def test_it_leaves_with_the_daemon(tmp_path: Path, ends: Ends) -> None:
    """Whatever it waited for, and says nothing more."""
    systemd = Systemd(tmp_path)
    systemd.on("stop", {"ActiveState": "deactivating", "Job": "7"})
    ends[0].shutdown(socket.SHUT_WR)
    worker.main(ends[1], job(systemd, "stop", within=1000.0))
    assert all("seen" in json.loads(line) for line in ends[0].recv(65536).splitlines())
    assert systemd.orders
