"""Telling systemd: READY=1, WATCHDOG=1, STATUS=..., STOPPING=1 (sd_notify(3)). Nothing without NOTIFY_SOCKET.

Our own dozen lines, since the service has to stay alive without the optional systemd-python.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Mapping
from contextlib import suppress


class Notifier:
    """A datagram never waited for: systemd that does not read is systemd's problem.

    `watchdog_seconds` is how often systemd wants to hear from this very process, 0 when it does not (sd_watchdog_enabled(3)).
    """

    def __init__(self, environment: Mapping[str, str] | None = None) -> None:
        given = os.environ if environment is None else environment
        address = given.get("NOTIFY_SOCKET", "")
        self._address = "\0" + address[1:] if address.startswith("@") else address
        self.watchdog_seconds = _watchdog_seconds(given)
        self._sock = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK) if self._address else None

    def tell(self, *words: str) -> None:
        """For example `tell("READY=1", "STATUS=healthy")`."""
        if self._sock is not None:
            with suppress(OSError):
                self._sock.sendto("\n".join(words).encode(), self._address)


def _watchdog_seconds(given: Mapping[str, str]) -> float:
    microseconds = given.get("WATCHDOG_USEC", "")
    meant = given.get("WATCHDOG_PID", "") in ("", str(os.getpid()))  # else inherited from a service that has started us
    return int(microseconds) / 1e6 if meant and microseconds.isdecimal() else 0.0
