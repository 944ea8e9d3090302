"""The records that come along as they were: rows, journal, dump, baseline. Before masking.

Law: by a list of what may leave, never by one of what may not. Engines' units, models and numbers stay at home, and so does what
people noted.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from typing import Any

from xidwatch.bundle.gather import Gathered
from xidwatch.core.masking import HIDDEN, SERIAL, Masker
from xidwatch.records import samples
from xidwatch.records.journal import VERSION, Entry
from xidwatch.records.power_trace import SOURCES
from xidwatch.report.ledger import is_remark

FOLDER = "records"
KINDS = (
    "transition",
    "action",
    "outcome",
    "kernel",
    "gap",
    "opened",
    "closed",
    "inventory",
    "missing",
    "uevent",
    "note",
    "started",
    "stopped",
)
SETTINGS = ("interval", "rails", "probes")
ENGINE = "engine"
EXTENDED, SERIAL_CAPABILITY = 0x100, 0x0003
_DUMPED = re.compile(r"(?P<at>[0-9a-f]{2,3}):(?: [0-9a-f]{2}){1,16}")
_FIGURES = re.compile(rf"(?:{_DUMPED.pattern}|[\dT:.Z-]{{20,30}},[\da-f:.]{{12,16}},[\d.]*,(?:{'|'.join((*SOURCES, 'gap'))})?)\n")
# Under these names stands what somebody asked, or how a program was called, whatever it looks like.
PRIVATE = frozenset(
    {"cmdline", "command_line", "argv", "args", "prompt", "environment", "comm", "hostname", "host_name", "user", "unit", "model"}
)


def texts(found: Gathered) -> dict[str, str]:
    """Name in the archive and text of each."""
    told = {
        f"{FOLDER}/samples.csv": _rows(found),
        f"{FOLDER}/journal.jsonl": "".join(_line(entry) for entry in found.entries if _may_leave(entry)),
    }
    for name, text in found.parts.items():
        told[f"{FOLDER}/dump/{name}"] = _part(name, text)
    if found.baseline:
        told[f"{FOLDER}/baseline.json"] = _baseline(found.baseline)
    return {name: text for name, text in told.items() if text}


def manifest(found: Gathered, masked: Mapping[str, str]) -> str:
    """The dump's own, with the sizes and sums of what is here."""
    parts = [part for part in found.manifest.get("parts", ()) if f"{FOLDER}/dump/{part['name']}" in masked]
    for part in parts:
        data = masked[f"{FOLDER}/dump/{part['name']}"].encode()
        part |= {"bytes": len(data), "sha256": hashlib.sha256(data).hexdigest()}
    return json.dumps({**found.manifest, "parts": parts}, indent=1) + "\n" if found.manifest else ""


def introduce(found: Gathered, masker: Masker) -> None:
    """Who is to be called first: the boot, the GPUs in the driver's order, everybody's serial."""
    masker.know_boot(found.boot_id)
    gpus = (facts for subject, facts in found.inventory.items() if subject.startswith("gpu:"))
    for facts in sorted(gpus, key=lambda each: (str(type(each.get("nvml_index"))), each.get("nvml_index") or 0)):
        masker.mask(str(facts.get("uuid", "")))
    for facts in (*found.inventory.values(), *_members(found.baseline)):
        if isinstance(serial := facts.get("serial"), str | int) and not isinstance(serial, bool):
            masker.know(SERIAL, str(serial))


def masked(name: str, text: str, masker: Masker) -> str:
    """JSON by its values, since an escape in it could hide what is looked for; all else as text."""
    if name.endswith((".json", ".jsonl")):
        lines = text.splitlines() if name.endswith(".jsonl") else [text]
        return "".join(f"{json.dumps(_deep(json.loads(line), masker), ensure_ascii=False, separators=(',', ':'))}\n" for line in lines)
    if not is_figures(name):
        return masker.mask(text)
    return "".join(line if _FIGURES.fullmatch(line) else masker.mask(line) for line in text.splitlines(keepends=True))


def is_figures(name: str) -> bool:
    """Megabytes of lines of one shape: what has it can hold no name, and what has not is masked all the same."""
    return "power-trace" in name or "config-space" in name


def _deep(value: Any, masker: Masker, key: str = "") -> Any:
    if isinstance(value, dict):
        return {masker.mask(str(name)): _deep(each, masker, str(name)) for name, each in value.items()}
    if isinstance(value, list):
        return [_deep(each, masker, key) for each in value]
    if key == "serial" and isinstance(value, str | int) and not isinstance(value, bool):
        return masker.know(SERIAL, str(value))
    if isinstance(value, str):
        return HIDDEN if key.lower() in PRIVATE else masker.mask(value)
    return value


def _members(text: str) -> list[dict[str, Any]]:
    plain = _loaded(text)
    tables = [plain.get(name) for name in ("members", "inventory")] if isinstance(plain, dict) else []
    return [facts for table in tables if isinstance(table, dict) for facts in table.values() if isinstance(facts, dict)]


def _loaded(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return None


# -------------------------------------------------------------------------------------------------------- what may leave


def _is_engine(subject: object) -> bool:
    """Also of the probe that asks them: where it is stuck is told by the name of a unit."""
    return str(subject).removeprefix("probe:").partition(":")[0] == ENGINE


def _rows(found: Gathered) -> str:
    columns = [name for name in dict.fromkeys(column for row in found.rows for column in row.cells) if not _is_engine(name)]
    interval = str(found.settings.get("interval", "30s")).removesuffix("s")
    lines = [[row.time, row.boot_id, str(row.tick), *(row.cells.get(name, "") for name in columns)] for row in found.rows]
    comment = f"# xidwatch samples, schema {samples.SCHEMA}, host boot id {found.boot_id}, interval {interval} s\n"
    return comment + samples.text((*samples.FIXED, *columns), lines) if lines else ""


def _may_leave(entry: Entry) -> bool:
    return entry.kind in KINDS and not _is_engine(entry.body.get("subject", ""))


def _line(entry: Entry) -> str:
    record = {
        "v": VERSION,
        "id": entry.id,
        "time": entry.time,
        "boot_id": entry.boot_id,
        "mono_us": entry.mono_us,
        entry.kind: _body(entry),
    }
    return json.dumps(record if entry.incident is None else {**record, "incident": entry.incident}, ensure_ascii=False) + "\n"


def _body(entry: Entry) -> dict[str, Any]:
    body = entry.body
    if entry.kind == "started":
        settings = body.get("settings")
        kept = {name: settings[name] for name in SETTINGS if name in settings} if isinstance(settings, dict) else {}
        return {**body, "settings": kept}
    if entry.kind == "inventory":
        return {subject: facts for subject, facts in body.items() if not _is_engine(subject)}
    if entry.kind == "missing" and isinstance(body.get("columns"), list):
        return {**body, "columns": [column for column in body["columns"] if not _is_engine(column)]}
    if (entry.kind == "note" and (not is_remark(entry) or _is_engine(body.get("remark")))) or (
        entry.kind == "kernel" and body.get("injected")
    ):
        return {**body, "text": HIDDEN}
    return body


def _part(name: str, text: str) -> str:
    """As the dump has it, without engines; of the kernel log, what programs wrote into it loses its words."""
    if name.endswith(".json"):
        plain = _loaded(text)
        return json.dumps({key: facts for key, facts in plain.items() if not _is_engine(key)}) if isinstance(plain, dict) else ""
    if name[4:].startswith("kernel"):
        return "".join(_kernel_line(line) for line in text.splitlines(keepends=True))
    if name[4:].startswith("config-space"):
        return without_serials(text)
    if name[4:].startswith("samples"):
        return _without_engines(text)
    return text


def without_serials(text: str) -> str:
    """Configuration space with the Device Serial Number capabilities at 0: from a serial an address of a network card is made.

    Each function's lines are walked from 100h by the list that they hold themselves (PCI Express Base Specification, 7.9.3).
    """
    lines = text.split("\n")
    places: dict[int, int] = {}  # of the function at hand: line by offset
    for number, line in enumerate([*lines, ""]):
        if match := _DUMPED.fullmatch(line):
            places[int(match["at"], 16)] = number
            continue
        for offset in _serial_bytes(lines, places):
            _zero(lines, places, offset)
        places = {}
    return "\n".join(lines)


def _serial_bytes(lines: list[str], places: Mapping[int, int]) -> list[int]:
    data = {
        at + place: int(byte, 16) for at, number in places.items() for place, byte in enumerate(lines[number].split(": ", 1)[1].split())
    }
    found: list[int] = []
    at, seen = EXTENDED, set[int]()
    while at >= EXTENDED and at not in seen and all(at + place in data for place in range(4)):
        seen.add(at)
        header = sum(data[at + place] << (8 * place) for place in range(4))
        if header & 0xFFFF == SERIAL_CAPABILITY:
            found += [at + place for place in range(4, 12) if at + place in data]
        at = header >> 20
    return found


def _zero(lines: list[str], places: Mapping[int, int], offset: int) -> None:
    number = places[offset & ~0xF]
    head, _, rest = lines[number].partition(": ")
    cells = rest.split()
    cells[offset & 0xF] = "00"
    lines[number] = f"{head}: {' '.join(cells)}"


def _kernel_line(line: str) -> str:
    head, semicolon, _ = line.partition(";")
    priority = head.partition(",")[0]
    if not semicolon or not priority.isdigit():
        return f" {HIDDEN}\n"
    return line if int(priority) < 8 else f"{head};{HIDDEN}\n"


def _without_engines(text: str) -> str:
    """A dump's rows, with the names of their columns again wherever they change."""
    out: list[str] = []
    keep: list[int] = []
    for cells in samples.cells_of(text):
        if tuple(cells[:3]) == samples.FIXED:
            keep = [place for place, name in enumerate(cells) if not _is_engine(name)]
        if keep and max(keep) < len(cells):
            out.append(samples.text([cells[place] for place in keep], ()))
    return "".join(out)


def _baseline(text: str) -> str:
    plain = _loaded(text)
    if not isinstance(plain, dict):
        return ""
    for table in plain.values():
        for subject in [each for each in table if _is_engine(each)] if isinstance(table, dict) else ():
            del table[subject]
    return json.dumps(plain)
