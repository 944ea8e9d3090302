"""Xids as data: what a row of rules/xid.toml means.

    79 = { mnemonic = "GPU_HAS_FALLEN_OFF_THE_BUS", class = "link", severity = "critical", asks = "reboot", driver_fatal = true, ... }
    64 = { mnemonic = "INFOROM_DRAM_RETIREMENT_FAILURE", class = "memory", severity = "critical", text = { pending = "warning" }, ... }

Law: validation of rows and their lookup. How a line is read is `kernel_nvidia`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from types import MappingProxyType

from xidwatch.core.model import Severity
from xidwatch.core.rules import RulesError


class XidClass(StrEnum):
    """Where to look first; the catalogue often names several suspects, this is the leading one."""

    APPLICATION = "application"  # the program on the GPU
    DRIVER = "driver"  # the driver or the firmware it loads
    HARDWARE = "hardware"
    LINK = "link"  # PCIe or chip-to-chip
    MEMORY = "memory"
    THERMAL = "thermal"
    FABRIC = "fabric"  # NVLink
    INFORMATIONAL = "informational"
    ECHO = "echo"  # follows from another event and says nothing by itself


class Ask(StrEnum):
    """What NVIDIA wants done about an Xid."""

    NOTHING = "nothing"
    RESTART_APPLICATION = "restart-application"
    CHECK_APPLICATION = "check-application"
    RESET_GPU = "reset-gpu"
    RESTART_GUEST = "restart-guest"
    REBOOT = "reboot"
    CHECK_CONNECTION = "check-connection"  # cables, seating, auxiliary power, NVLink
    UPDATE_SOFTWARE = "update-software"
    SUPPORT = "support"
    FOLLOW = "follow"  # another line: the Xid it follows from, or the action of an Xid 154
    AS_SAID = "as-said"  # in the line itself
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class XidRule:
    """One row of rules/xid.toml."""

    number: int
    mnemonic: str
    xid_class: XidClass
    severity: Severity
    driver_fatal: bool = False  # after it NVML must not be asked again this boot; only where the line names a device in its place
    bus_lost: bool = False  # it says that the device has left the bus; likewise
    asks: Ask = Ask.UNKNOWN
    source: str = ""
    by_text: tuple[tuple[str, Severity], ...] = ()  # the first text that the line holds decides before the number does

    def severity_of(self, said: str) -> Severity:
        """Of a line of this Xid that says `said`."""
        if not self.by_text:
            return self.severity
        low = said.lower()  # drivers differ in `Nonfatal`, `NonFatal`, `Non-fatal`
        return next((severity for text, severity in self.by_text if text.lower() in low), self.severity)


_ROW_KEYS = ("mnemonic", "class", "severity", "asks", "source", "text", "driver_fatal", "bus_lost")


def xid_rules(table: Mapping[str, object]) -> Mapping[int, XidRule]:
    """The rows of a parsed xid.toml by Xid number. Raises RulesError (a ValueError): each wrong key with its path."""
    problems = [f"{key}: unknown key (rows stand in [xid])" for key in table if key != "xid"]
    rows = table.get("xid")
    if not isinstance(rows, Mapping):
        raise RulesError([*problems, "xid: expected a table of rows, one per Xid number"])
    rules: dict[int, XidRule] = {}
    for key, row in rows.items():
        wrong = tuple(_row_problems(f"xid.{key}", str(key), row))
        problems += wrong
        if not wrong:
            rules[int(key)] = _xid_rule(int(key), row)
    if problems:
        raise RulesError(problems)
    return MappingProxyType(rules)


def _row_problems(path: str, key: str, row: object) -> Iterator[str]:
    if not re.fullmatch(r"[1-9][0-9]{0,4}", key):
        yield f"{path}: not an Xid number"
    if not isinstance(row, Mapping):
        yield f"{path}: expected a table"
        return
    yield from (f"{path}.{unknown}: unknown key (known here: {', '.join(_ROW_KEYS)})" for unknown in row if unknown not in _ROW_KEYS)
    if not isinstance(row.get("mnemonic"), str) or not row["mnemonic"]:
        yield f"{path}.mnemonic: expected a name"
    yield from _choice_problem(f"{path}.class", row.get("class"), XidClass)
    yield from _choice_problem(f"{path}.severity", row.get("severity"), Severity)
    yield from _choice_problem(f"{path}.asks", row.get("asks", Ask.UNKNOWN), Ask)
    if not isinstance(row.get("source", ""), str):
        yield f"{path}.source: expected a text"
    for flag in ("driver_fatal", "bus_lost"):
        if not isinstance(row.get(flag, False), bool):
            yield f"{path}.{flag}: expected true or false"
    texts = row.get("text", {})
    if not isinstance(texts, Mapping):
        yield f"{path}.text: expected a table of severities"
        return
    for text, severity in texts.items():
        yield from _choice_problem(f"{path}.text.{text!r}", severity, Severity)


def _choice_problem(path: str, value: object, choices: type[StrEnum]) -> Iterator[str]:
    if value not in list(choices):
        yield f"{path}: expected one of {', '.join(choices)}, not {value!r}"


def _xid_rule(number: int, row: Mapping[str, object]) -> XidRule:
    texts = row.get("text", {})
    assert isinstance(texts, Mapping)  # said again for the type checker
    return XidRule(
        number=number,
        mnemonic=str(row["mnemonic"]),
        xid_class=XidClass(str(row["class"])),
        severity=Severity(str(row["severity"])),
        driver_fatal=row.get("driver_fatal") is True,
        bus_lost=row.get("bus_lost") is True,
        asks=Ask(str(row.get("asks", Ask.UNKNOWN))),
        source=str(row.get("source", "")),
        by_text=tuple((text, Severity(severity)) for text, severity in texts.items()),
    )
