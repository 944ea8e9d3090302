"""Where an engine on this very host is asked: `http://127.0.0.1:8000/metrics`.

Law: pure. Nothing but loopback is ever asked, and by number: a name would have to be resolved, and a resolver can hang.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

_URL = re.compile(r"http://(?P<host>localhost|127(?:\.[0-9]{1,3}){3}|\[::1\])(?::(?P<port>[0-9]{1,5}))?(?P<path>/[\x21-\x7e]*)?")
_ELSEWHERE = re.compile(r"[a-zA-Z][a-zA-Z0-9+.-]*://(?:[^/@]*@)?(?P<host>\[[^\]]*\]|[^/:]*)")


@dataclass(frozen=True, slots=True)
class Endpoint:
    """An address on loopback, a port, and what to ask for there."""

    host: str
    port: int
    path: str

    @classmethod
    def parse(cls, text: str) -> Endpoint:
        """Raises ValueError, with what would be right."""
        found = _URL.fullmatch(text)
        if found is None:
            raise ValueError(_why_not(text))
        host, port = found["host"].strip("[]"), int(found["port"] or 80)
        if not 0 < port < 65536 or any(int(part) > 255 for part in host.split(".") if part.isdecimal()):
            raise ValueError(_why_not(text))
        return cls("127.0.0.1" if host == "localhost" else host, port, found["path"] or "/")

    @property
    def authority(self) -> str:
        """For the Host header."""
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def _why_not(text: str) -> str:
    elsewhere = _ELSEWHERE.match(text)
    if (
        text.startswith("http://")
        and elsewhere
        and elsewhere["host"] not in {"localhost", "[::1]"}
        and not elsewhere["host"].startswith("127.")
    ):
        return f'only this host is asked, by 127.0.0.1, [::1] or localhost, not "{text}"'
    return f'must be an address on this host, as in "http://127.0.0.1:8000/metrics", not "{text}"'
