"""Reading a record's body without trusting it: of another version, or damaged, it gives nothing rather than an error."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from xidwatch.clock import from_iso
from xidwatch.core.model import PciAddress, Severity, Status, Subject

Body = Mapping[str, Any]


def text(body: Body, key: str) -> str:
    """Empty unless it is a text."""
    value = body.get(key)
    return value if isinstance(value, str) else ""


def number(body: Body, key: str) -> int | None:
    """None unless it is a whole number."""
    value = body.get(key)
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def time(body: Body, key: str) -> float | None:
    """Seconds since the epoch; None unless it is a time."""
    try:
        return from_iso(text(body, key))
    except (ValueError, OverflowError):
        return None


def severity(body: Body) -> Severity:
    """What is not known counts as info: nothing is made worse than it was recorded."""
    value = text(body, "severity")
    return Severity(value) if value in set(Severity) else Severity.INFO


def status(body: Body, key: str) -> Status | None:
    """None unless it is one."""
    value = text(body, key)
    return Status(value) if value in set(Status) else None


def subject(name: str) -> Subject | None:
    """None where there is no kind, or a PCI kind without an address."""
    try:
        found = Subject.parse(name)
        _ = found.pci
    except ValueError:
        return None
    return found


def address(name: str) -> str | None:
    """A PCI address in its one spelling."""
    try:
        return str(PciAddress.parse(name))
    except ValueError:
        return None


def texts(body: Body, key: str) -> list[str]:
    """The texts of a list."""
    value = body.get(key)
    return [each for each in value if isinstance(each, str)] if isinstance(value, list) else []
