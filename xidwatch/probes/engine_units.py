"""What systemd says of units, in one `systemctl show`, and what can be had without asking it.

    Id=vllm.service                                       one block a unit, an empty line between two
    Names=vllm.service
    LoadState=loaded                                      not-found: the call succeeds for a unit that nobody knows, too
    ActiveState=active
    InvocationID=3a3b6c1c59b44b7bb9f0d8f2c9f7f2b1
    StateChangeTimestampMonotonic=5012345678              microseconds

    /run/systemd/units/invocation:vllm.service -> 3a3b6c1c59b44b7bb9f0d8f2c9f7f2b1     readable while the bus hangs

Sources: systemctl(1), org.freedesktop.systemd1(5); sd_booted(3); src/core/unit.c, unit_export_invocation_id.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

from xidwatch.core.model import Missing, Value

PLACES = ("/usr/bin/systemctl", "/bin/systemctl")
MOST_BYTES = 256 * 1024
U64_DIGITS = 20
COMMAND = "ExecStart"  # may hold secrets: it is no reading
CHANGED = "StateChangeTimestampMonotonic"


def _text(text: str) -> Value:
    return text or Missing.ABSENT


def _number(text: str) -> Value:
    """`[not set]` is what systemd writes where a unit of this kind has none."""
    if len(text) > U64_DIGITS:
        return Missing.MALFORMED
    return int(text) if text.isdecimal() else Missing.ABSENT


# Quantity, property, meaning.
TABLE: tuple[tuple[str, str, Callable[[str], Value]], ...] = (
    ("load_state", "LoadState", _text),
    ("unit_file_state", "UnitFileState", _text),
    ("active_state", "ActiveState", _text),
    ("sub_state", "SubState", _text),
    ("invocation_id", "InvocationID", _text),
    ("main_pid", "MainPID", _number),
    ("control_group", "ControlGroup", _text),
    ("restarts", "NRestarts", _number),
    ("result", "Result", _text),
    ("exit_code", "ExecMainCode", _number),
    ("exit_status", "ExecMainStatus", _number),
)
QUANTITIES = (*(quantity for quantity, _, _ in TABLE), "state_seconds")
_OF_UNKNOWN_UNIT = ("load_state", "unit_file_state")

Properties = Mapping[str, str]


def systemctl() -> str:
    """Where it is; where it should be when there is none."""
    return next((place for place in PLACES if os.access(place, os.X_OK)), PLACES[0])


def question(command: str, units: Iterable[str]) -> list[str]:
    """The words of one call for all of them."""
    names = ("Id", "Names", *(name for _, name, _ in TABLE), CHANGED, COMMAND)
    return [command, "show", "--no-pager", f"--property={','.join(names)}", "--", *units]


def blocks(text: str) -> dict[str, Properties]:
    """By every name a unit has: an alias is answered under its real one."""
    found: dict[str, Properties] = {}
    for block in text.split("\n\n"):
        pairs = (line.partition("=") for line in block.splitlines())
        properties = {name: value.strip() for name, equals, value in pairs if equals}
        for name in (properties.get("Id", ""), *properties.get("Names", "").split()):
            found.setdefault(name, properties)
    return found


def readings(properties: Properties | None, now: float) -> dict[str, Value]:
    """What they mean, at a monotonic time; MALFORMED for what is not among them, ABSENT for all of a unit that systemd does not know."""
    if properties is None:
        return dict.fromkeys(QUANTITIES, Missing.MALFORMED)
    values = {quantity: meaning(properties[name]) if name in properties else Missing.MALFORMED for quantity, name, meaning in TABLE}
    changed = _number(properties.get(CHANGED, ""))
    values["state_seconds"] = round(now - changed / 1e6, 1) if isinstance(changed, int) and changed else Missing.ABSENT
    if values["load_state"] == "not-found":
        values |= {quantity: Missing.ABSENT for quantity in QUANTITIES if quantity not in _OF_UNKNOWN_UNIT}
    return values


def is_booted(run_root: Path) -> bool:
    """Whether systemd is this host's init."""
    return (run_root / "systemd/system").is_dir()


def invocation(run_root: Path, unit: str) -> str:
    """Which run of the unit this is, by systemd's own mark; empty when it is not running."""
    try:
        return str((run_root / "systemd/units" / f"invocation:{unit}").readlink())
    except OSError:
        return ""
