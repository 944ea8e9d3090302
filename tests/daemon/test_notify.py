"""Telling systemd, over real datagram sockets."""

from __future__ import annotations

import os
import socket
from pathlib import Path

import pytest

from xidwatch.daemon.notify import Notifier


def listener(address: str) -> socket.socket:
    """systemd's end."""
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    sock.settimeout(5)
    sock.bind(address)
    return sock


def test_systemd_hears_one_datagram_a_call(tmp_path: Path) -> None:
    """Several words in it, a line each."""
    path = str(tmp_path / "n")
    with listener(path) as systemd:
        notifier = Notifier({"NOTIFY_SOCKET": path})
        notifier.tell("READY=1", "STATUS=first tick under way")
        notifier.tell("WATCHDOG=1")
        assert systemd.recv(4096) == b"READY=1\nSTATUS=first tick under way"
        assert systemd.recv(4096) == b"WATCHDOG=1"
        notifier._sock.close()  # type: ignore[union-attr]


def test_an_abstract_address_begins_with_an_at_sign() -> None:
    """That is how systemd spells the NUL."""
    name = f"xidwatch-test-{os.getpid()}"
    with listener(f"\0{name}") as systemd:
        notifier = Notifier({"NOTIFY_SOCKET": f"@{name}"})
        notifier.tell("READY=1")
        assert systemd.recv(4096) == b"READY=1"
        notifier._sock.close()  # type: ignore[union-attr]


@pytest.mark.parametrize("address", ["", "/nowhere/at/all", "vsock:2:1234", "/" + "x" * 200])
def test_without_anybody_to_hear_it_is_silent(address: str) -> None:
    """No systemd, one that has gone, or an address of a kind that is not spoken here."""
    notifier = Notifier({"NOTIFY_SOCKET": address} if address else {})
    notifier.tell("READY=1")
    if notifier._sock:
        notifier._sock.close()


def test_systemd_that_does_not_read_is_not_waited_for(tmp_path: Path) -> None:
    """The receive queue fills up; the loop goes on."""
    path = str(tmp_path / "n")
    with listener(path) as systemd:
        notifier = Notifier({"NOTIFY_SOCKET": path})
        for _ in range(2000):
            notifier.tell("WATCHDOG=1")
        assert systemd.recv(100) == b"WATCHDOG=1"
        notifier._sock.close()  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("environment", "seconds"),
    [
        ({}, 0),
        ({"WATCHDOG_USEC": "120000000"}, 120),
        ({"WATCHDOG_USEC": "120000000", "WATCHDOG_PID": str(os.getpid())}, 120),
        ({"WATCHDOG_USEC": "120000000", "WATCHDOG_PID": "1"}, 0),
        ({"WATCHDOG_USEC": ""}, 0),
        ({"WATCHDOG_USEC": "soon"}, 0),
    ],
)
def test_the_watchdog_counts_when_it_is_ours(environment: dict[str, str], seconds: float) -> None:
    """One that was inherited from a service which started us belongs to that service."""
    assert Notifier(environment).watchdog_seconds == seconds
