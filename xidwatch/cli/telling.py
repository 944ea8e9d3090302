"""Telling the running daemon something, and what is said when that cannot be done. No command of its own."""

from __future__ import annotations

import os
import pwd
from collections.abc import Mapping
from pathlib import Path
from typing import Any

EX_UNAVAILABLE = 69


class Untold(Exception):
    """Nobody took it; the words say why."""


def tell(place: Path, request: Mapping[str, object], state_dir: Path | None = None) -> dict[str, Any]:
    """The daemon's reply, which may be a refusal. Raises Untold, which names the state directory where that was chosen."""
    from xidwatch.daemon.control import ask

    try:
        return ask(place, request)
    except PermissionError as error:
        raise Untold(f"{place}: permission denied. Only root may tell the service something") from error
    except (OSError, ValueError) as error:
        why = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        whose = f" for {state_dir.absolute()}" if state_dir else ""
        raise Untold(f"no daemon{whose} answers at {place}: {why.lower()}. Is it running? `xidwatch status` tells") from error


def user() -> str:
    """Who sits there, as far as sudo or the passwd file knows; a claim, and recorded as one."""
    name = os.environ.get("SUDO_USER", "")
    if name:
        return name
    try:
        return pwd.getpwuid(os.getuid()).pw_name
    except KeyError:
        return ""


def as_typed(words: list[str]) -> str:
    """A person's words as one text, in whatever encoding they were typed."""
    return os.fsencode(" ".join(words)).decode(errors="replace").strip()
