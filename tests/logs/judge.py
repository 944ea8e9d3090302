"""How a reading of a kernel line is judged: right, or in words what is wrong with it. The rules stand beside the lines they are for."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

SERIOUS = frozenset({"warning", "error", "critical"})
IDENTITY = ("kind", "xid", "pci")
MORE = ("pid", "process", "severity")

Object = Mapping[str, Any]


def wrong(case: Object, printed: Iterable[Object]) -> str | None:
    """None when what was printed for a case is right.

    `primary`: something is printed, and all of it agrees with one of the honest readings. `companion`, `continuation`: nothing, an
    expected kind, or a mere note. `context`, `negative`: nothing that would alarm. An injected line counts as nothing.
    """
    counted = [each for each in printed if not each.get("injected")]
    honest = [{**case["expect"], **other} for other in ({}, *case.get("also", ()))]
    kinds = {reading["kind"] for reading in honest}
    match case["role"]:
        case "primary":
            if not counted:
                return "nothing is printed"
            lost = [each for each in counted if not any(all(each[key] == reading[key] for key in IDENTITY) for reading in honest)]
        case "companion" | "continuation":
            lost = [each for each in counted if each["kind"] not in kinds and each["severity"] != "info"]
        case _:
            lost = [
                each for each in counted if each["severity"] in SERIOUS and each["kind"] not in {r["kind"] for r in case.get("also", ())}
            ]
    return f"read as {lost[0]}" if lost else None


def differs(case: Object, printed: Iterable[Object]) -> list[str]:
    """Of a primary line: what of the process and the severity is not as expected."""
    honest = [{**case["expect"], **other} for other in ({}, *case.get("also", ()))]
    return [key for key in MORE if not any(each[key] == reading[key] for each in printed for reading in honest)]
