"""What `xidwatch gate` is told to change: an order to let an engine start, its end, and a reset. Only root can.

Kept apart from the command, whose answer an engine waits for.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Mapping
from pathlib import Path

from xidwatch.cli.gate import EX_CANTCREAT, EX_USAGE, LONGEST_SECONDS, MOST_CHARACTERS, is_engine
from xidwatch.cli.telling import EX_UNAVAILABLE, Untold, as_typed, tell, user
from xidwatch.clock import SystemClock, iso
from xidwatch.core.rules import seconds
from xidwatch.places import DEFAULT_CONFIG, find_run_dir
from xidwatch.records import RecordError, order
from xidwatch.records.order import Order


def give(arguments: argparse.Namespace, unit: str) -> int:
    """0 when it is in force; 64 usage, 69 no daemon to tell, 73 no place to write."""
    place = find_run_dir(arguments.state_dir)
    if arguments.reset:
        return _reset(place, unit)
    if arguments.close:
        return _close(place, unit)
    try:
        duration = seconds(arguments.open_for)
    except ValueError as error:
        return _say(EX_USAGE, f"--open-for: {error}")
    reason = as_typed([arguments.reason])
    if not 0 < duration <= LONGEST_SECONDS:
        return _say(EX_USAGE, f"--open-for: more than nothing, and at most {LONGEST_SECONDS / 86400:g} days")
    if not reason or len(reason) > MOST_CHARACTERS:
        return _say(EX_USAGE, f"--reason: a text of 1 to {MOST_CHARACTERS} characters is needed, for whoever reads the journal later")
    if not is_engine(place, unit, arguments.config or DEFAULT_CONFIG):
        _say(0, f"no [[engines]] table has {unit}: is the name right?")
    return _open(place, unit, duration, reason)


def _open(place: Path, unit: str, duration: float, reason: str) -> int:
    clock = SystemClock()
    now = clock.now()
    given = Order(
        unit=unit,
        boot_id=clock.boot_id,
        until_mono_ms=int((now.mono + duration) * 1000),
        until=iso(now.wall + duration),
        at=iso(now.wall),
        reason=reason,
        by=_by(),
    )
    try:
        order.write(place, given)
    except OSError as error:
        return _cannot_write(place, error)
    heard = _daemon_hears(place, unit)
    return _say(0, f"{unit} may start until {given.until}, whatever is known of the hardware. {heard} Next: systemctl start {unit}")


def _close(place: Path, unit: str) -> int:
    """It stays there as one that was taken back, for a daemon to journal."""
    now = SystemClock().now()
    try:
        found = order.read(place, unit)
        if found is None or not found.holds(int(now.mono * 1000), SystemClock().boot_id):
            return _say(0, f"{unit}: no order was in force; its gate is as the daemon says")
        order.write(place, found.taken_back(iso(now.wall)))
    except (RecordError, OSError) as error:
        return _cannot_write(place, error)
    return _say(0, f"{unit}: the order is taken back; its gate is as the daemon says. {_daemon_hears(place, unit)}")


def _reset(place: Path, unit: str) -> int:
    """An operator's word that it may be tried again: the daemon's to take, since one writer changes the gate."""
    try:
        reply = tell(place, {"do": "gate-reset", "unit": unit, "user": user()})
    except Untold as why:
        return _say(EX_UNAVAILABLE, str(why))
    return _say(0 if reply.get("ok") else EX_UNAVAILABLE, str(reply.get("text", "")))


def _daemon_hears(place: Path, unit: str) -> str:
    """It finds the order by itself at its next tick; told now, it writes it down now."""
    request: Mapping[str, object] = {"do": "gate-order", "unit": unit}
    try:
        return "Journalled." if tell(place, request).get("ok") else "Not journalled yet."
    except Untold:
        return "No daemon is there to journal it; one that comes back does."


def _by() -> str:
    name = user()
    return f"{name} (uid {os.getuid()})" if name else f"uid {os.getuid()}"


def _cannot_write(place: Path, error: RecordError | OSError) -> int:
    why = error.strerror.lower() if isinstance(error, OSError) and error.strerror else str(error)
    return _say(EX_CANTCREAT, f"{place}: {why}. Run as root")


def _say(code: int, text: str) -> int:
    print(f"xidwatch: {text}", file=sys.stderr)
    return code
