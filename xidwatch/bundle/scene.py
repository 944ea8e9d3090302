"""`host.txt` and `config.toml` of a fixture, from the inventory, the dump's headers and the first row.

    0000:00:03.1 root 1022:1453          the tree, from `parent` in the inventory
    0000:00:00.0 other 1022:1480 ...     what is in the configuration space alone

What the records do not say is left at what `replay` assumes, and `README.txt` says so.
"""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterator, Mapping
from typing import Any

from xidwatch.bundle.gather import Facts, Gathered
from xidwatch.replay import bus

GIB = 2**30
SPEED = "{:.1f} GT/s PCIe"
# An input's name in sysfs, and what its file counts in.
SCALES = {"in": 1000, "temp": 1000, "curr": 1000, "power": 1_000_000, "fan": 1, "energy": 1_000_000, "humidity": 1000, "freq": 1}
MEASURED = ("volts", "celsius", "amperes", "watts", "rpm", "joules", "ratio", "hertz")
_HEADER = re.compile(
    r"^(?P<address>[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]) dword0=(?P<dword>[0-9a-f]{8}) class=(?P<code>[0-9a-f]{6})", re.MULTILINE
)
_INPUT = re.compile(r"(?P<kind>[a-z]+)\d+")


def functions(found: Gathered) -> dict[str, tuple[str, Facts]]:
    """Kind (as `bus.CLASSES`) and facts of each PCI function, by address."""
    told: dict[str, tuple[str, Facts]] = {}
    for subject, facts in found.inventory.items():
        kind, _, address = subject.partition(":")
        if kind in ("gpu", "port", "nvme") and "/" not in address:
            port = str(facts.get("port_type", "downstream"))
            told[address] = ((port if port in bus.CLASSES else "downstream") if kind == "port" else kind, facts)
    for text in (text for name, text in sorted(found.parts.items()) if name[4:].startswith("config-space")):
        for match in _HEADER.finditer(text):
            word = int(match["dword"], 16)
            if match["address"] not in told and word != 0xFFFFFFFF:
                facts = {"vendor": word & 0xFFFF, "device": word >> 16, "class": int(match["code"], 16)}
                told[match["address"]] = ("other", facts)
    return told


def host(found: Gathered) -> str:
    """host.txt."""
    driver = found.inventory.get("driver:nvidia", {}).get("version")
    lines = [f"driver version={shlex.quote(str(driver))}"] if driver else []
    available = [float(cell) for row in found.rows if (cell := row.cells.get("host:memory_available_bytes"))]
    if available:
        lines.append(f"proc memory_gib={max(available) / GIB * 1.1:.0f}")
    return "".join(f"{line}\n" for line in (*lines, *_chips(found), *_tree(functions(found))))


def config(found: Gathered) -> str:
    """config.toml: the interval, the rails, which probes were off. Nothing else of it is about this."""
    settings = found.settings
    lines = [f"interval = {json.dumps(settings['interval'])}"] if isinstance(settings.get("interval"), str) else []
    probes = settings.get("probes")
    for name, given in probes.items() if isinstance(probes, dict) else ():
        if isinstance(given, dict) and name != "engine":
            kept = {key: given[key] for key in ("enabled", "deadline", "poll") if key in given}
            lines += [f"[probes.{name}]", *(f"{key} = {json.dumps(value)}" for key, value in kept.items())]
    for rail in _rails(found):
        lines += ["[[rails]]", *(f"{key} = {json.dumps(value)}" for key, value in rail.items() if isinstance(value, str | float | int))]
    return "".join(f"{line}\n" for line in lines)


def inputs(found: Gathered, cells: Mapping[str, str]) -> dict[str, dict[str, str]]:
    """What each chip's files say in a row: by chip (`NAME@PLACE`), file and text."""
    told: dict[str, dict[str, str]] = {}
    for column, cell in cells.items():
        subject, _, quantity = column.rpartition(":")
        chip, _, name = subject.removeprefix("chip:").rpartition("/")
        if cell and subject.startswith("chip:") and quantity in MEASURED:
            told.setdefault(chip, {}).update(_file(name, float(cell)))
    for rail in _rails(found):
        if volts := cells.get(f"rail:{rail.get('name')}:volts"):
            told.setdefault(str(rail.get("chip")), {}).update(_file(str(rail.get("input")), float(volts) / float(rail.get("factor", 1.0))))
    return told


def _file(name: str, value: float) -> dict[str, str]:
    kind = _INPUT.fullmatch(name)
    scale = SCALES.get(kind["kind"]) if kind else None
    return {f"{name}_input": f"{value * scale:.0f}"} if scale else {}


def _rails(found: Gathered) -> list[dict[str, Any]]:
    rails = found.settings.get("rails", [])
    return [rail for rail in rails if isinstance(rail, dict)] if isinstance(rails, list) else []


def _chips(found: Gathered) -> Iterator[str]:
    seen: dict[str, dict[str, str]] = {}
    for row in found.rows:
        for chip, files in inputs(found, row.cells).items():
            seen[chip] = {**files, **seen.get(chip, {})}
    for chip, files in seen.items():
        name, at, place = chip.partition("@")
        if at:
            driver = found.inventory.get(f"chip:{chip}", {}).get("driver")
            options = {**({"driver": str(driver)} if driver else {}), **files}
            yield f"chip {shlex.quote(name)} {shlex.quote(place)} {_options(options)}"


def _tree(told: Mapping[str, tuple[str, Facts]], parent: str = "", indent: str = "") -> Iterator[str]:
    """What has no parent that is known stands at the root."""
    for address in sorted(told):
        kind, facts = told[address]
        above = str(facts.get("parent", ""))
        if (above if above in told and above != address else "") == parent:
            yield f"{indent}{address} {kind} {_ids(facts)}{_options(_built(kind, facts))}".rstrip()
            yield from _tree(told, address, f"{indent}  ")


def _ids(facts: Facts) -> str:
    vendor, device, board = facts.get("vendor"), facts.get("device"), facts.get("subsystem")
    if not isinstance(vendor, int) or not isinstance(device, int):
        return ""
    return f"{vendor:04x}:{device:04x} " + (f"{board} " if isinstance(board, str) else "")


def _built(kind: str, facts: Facts) -> dict[str, str]:
    """What a function is told beside its ids, where it differs from what is assumed."""
    told: dict[str, str] = {}
    if isinstance(code := facts.get("class"), int) and code != bus.CLASSES[kind]:
        told["class"] = f"{code:06x}"
    if isinstance(driver := facts.get("driver"), str) and driver != bus.DRIVERS[kind]:
        told["driver"] = driver
    if isinstance(slot := facts.get("slot"), str):
        told["slot"] = slot
    if facts.get("aer_native") == 0:
        told["aer"] = "firmware"
    elif facts.get("aer") == 0:
        told["aer"] = "none"
    if kind != "other" and facts.get("max_link_gts"):
        told["max_link_speed"] = SPEED.format(float(facts["max_link_gts"]))
    names = {
        "max_link_width": "max_link_width",
        "numa_node": "numa_node",
        "name": "name",
        "vbios": "vbios",
        "uuid": "uuid",
        "serial": "serial",
    }
    names["power_limit_default_watts"] = "default_limit_watts"
    board_only = {"name", "vbios", "uuid", "serial", "default_limit_watts"}
    for fact, option in names.items():
        if fact in facts and (kind == "gpu" or option not in board_only) and not (kind == "other" and option == "max_link_width"):
            told[option] = str(facts[fact])
    return told


def _options(told: Mapping[str, str]) -> str:
    return " ".join(f"{name}={shlex.quote(value)}" for name, value in told.items())
