"""What is on record about one incident: the rows, the journal and the dump of its boot, around the time it took.

Law: a torn line, an unfinished dump or a missing file is less to tell, never an error. Only what is known to hold no engine's words
is taken.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from xidwatch.records import Damage, RecordError, baseline, dumps, journal, regular, samples
from xidwatch.records.journal import Entry
from xidwatch.records.samples import Row
from xidwatch.report.ledger import Known

LONGEST_LEAD_SECONDS = 6 * 3600.0  # a run that began longer ago is not told from its beginning
LEAD_SECONDS = 3600.0  # but from here
LONGEST_SECONDS = 6 * 3600.0  # of an incident that does not end
AFTER_SECONDS = 90.0  # three looks, so that the end of it is seen to be one
REACH_SECONDS = 2 * 86400.0  # how far from its beginning records are looked for
MOST_BYTES = 64 * 1024 * 1024  # of one part
TAKEN_PARTS = ("samples", "power-trace", "kernel", "inventory", "config-space")  # all others may hold an engine's words

Facts = Mapping[str, Any]


@dataclass(slots=True)
class Gathered:
    """All of it. `boot_wall`: when the machine started, in wall seconds; `left_out`: what did not come along, and why."""

    incident: Known
    boot_id: str
    boot_wall: float = 0.0
    begin: float = 0.0
    end: float = 0.0
    entries: list[Entry] = field(default_factory=list)
    rows: list[Row] = field(default_factory=list)
    parts: dict[str, str] = field(default_factory=dict)
    manifest: Facts = field(default_factory=dict)
    inventory: dict[str, Facts] = field(default_factory=dict)
    settings: Facts = field(default_factory=dict)
    baseline: str = ""
    left_out: list[str] = field(default_factory=list)

    @property
    def kernel_texts(self) -> list[str]:
        """What the dump holds of the kernel log, in the order it was taken."""
        return [text for name, text in sorted(self.parts.items()) if _stem(name) == "kernel"]


def gather(state_dir: Path, known: Known) -> Gathered:
    """Raises RecordError where the journal may not be read, or where nothing says in which boot it was."""
    found = Gathered(known, known.boot_id)
    _take_dump(state_dir / dumps.FOLDER / known.id, found)
    damage: list[Damage] = []
    everything = list(journal.read(state_dir, since=max(known.began - REACH_SECONDS, 0.0), problems=damage))
    ours = [entry for entry in everything if entry.boot_id == found.boot_id]
    rows = list(_rows(state_dir, found.boot_id, known.began, damage)) or _dumped_rows(found, damage)
    if not ours and not rows:
        raise RecordError(state_dir, f"neither journal nor rows tell of {known.id}", "so there is nothing to tell around its dump")
    _set_window(found, ours, rows)
    found.entries = [entry for entry in ours if found.begin <= entry.wall <= found.end]
    found.rows = [row for row in rows if found.begin <= row.wall <= found.end]
    _take_identity(state_dir, found, ours)
    found.left_out += [f"{Path(each.path).name}:{each.line}: {each.text.split(':')[0]}" for each in damage]
    return found


def _stem(name: str) -> str:
    """`020-kernel.txt` and its further copies are `kernel`."""
    return next((known for known in TAKEN_PARTS if name[4:].startswith(known)), name)


def _take_dump(folder: Path, found: Gathered) -> None:
    try:
        manifest = dumps.load(folder)
    except OSError:
        found.left_out.append("the dump: there is none, or it cannot be read")
        return
    found.manifest = dumps.plain(manifest)
    found.boot_id = found.boot_id or manifest.boot_id
    if manifest.state != "complete":
        found.left_out.append(f"the dump is {manifest.state}: what it holds so far is here")
    for part in manifest.parts:
        if _stem(part.name) not in TAKEN_PARTS:
            found.left_out.append(f"{part.name}: may hold words of engines or users")
        elif (text := _text(folder / part.name, found)) is not None:
            found.parts[part.name] = text


def _text(path: Path, found: Gathered) -> str | None:
    try:
        if not regular.obstacle(path) and path.stat().st_size > MOST_BYTES:
            found.left_out.append(f"{path.name}: larger than {MOST_BYTES // 2**20} MiB")
            return None
        return regular.read_bytes(path).replace(b"\0", b"").decode("utf-8", "replace")
    except OSError as error:
        found.left_out.append(f"{path.name}: {(error.strerror or 'unreadable').lower()}")
        return None


def _rows(state_dir: Path, boot_id: str, began: float, damage: list[Damage]) -> Iterator[Row]:
    try:
        paths = samples.files(state_dir / samples.FOLDER)
    except OSError as error:
        damage.append(Damage(str(error.filename), 0, error.strerror or "unreadable"))
        return
    for path in paths:
        head = _head(path, damage)
        if head is None or (boot_id and head.boot_id != boot_id):
            continue
        yield from (row for row in samples.read(path, damage) if abs(row.wall - began) <= REACH_SECONDS)


def _head(path: Path, damage: list[Damage]) -> samples.Head | None:
    try:
        return samples.read_head(path)
    except OSError as error:
        damage.append(Damage(str(path), 0, error.strerror or "unreadable"))
        return None


def _dumped_rows(found: Gathered, damage: list[Damage]) -> list[Row]:
    """The dump has the latest rows too; they are all there is where the disk with the others was lost."""
    for name, text in sorted(found.parts.items()):
        if _stem(name) == "samples":
            return list(samples.from_text(text, name, damage))
    return []


def _set_window(found: Gathered, entries: list[Entry], rows: list[Row]) -> None:
    """From the start of the run, or from a row an hour before; to a while after the end, or to the last word of the boot."""
    known = found.incident
    times = [*(entry.wall for entry in entries), *(row.wall for row in rows)]
    starts = [entry.wall for entry in entries if entry.kind == "started" and entry.wall <= known.began]
    recent = [time for time in starts if time >= known.began - LONGEST_LEAD_SECONDS]
    near = [row.wall for row in rows if known.began - LEAD_SECONDS <= row.wall <= known.began]
    found.begin = recent[-1] if recent else near[0] if near else min(times)
    over = known.ended + AFTER_SECONDS if known.ended else known.began + LONGEST_SECONDS
    found.end = min(over, max(times))
    if not recent:
        found.left_out.append("what was before: the run began longer ago than is told here")
    clocked = [entry for entry in entries if entry.mono_us and found.begin <= entry.wall <= found.end]
    found.boot_wall = round(clocked[0].wall - (clocked[0].mono_us or 0) / 1e6, 3) if clocked else found.begin - 60.0


def _take_identity(state_dir: Path, found: Gathered, entries: list[Entry]) -> None:
    """Who was there: by the boot's own inventories up to the incident, then the dump's, then the baseline's."""
    try:
        learnt = regular.read_bytes(state_dir / baseline.NAME).decode("utf-8", "replace")
        kept = dict(json.loads(learnt).get("inventory", {}))
        found.baseline = learnt
    except (OSError, AttributeError, TypeError, ValueError):
        kept = {}
        found.left_out.append("the baseline: there is none, or it is damaged")
    told = [entry.body for entry in entries if entry.kind == "inventory" and entry.wall <= found.incident.began]
    for name, text in sorted(found.parts.items()):
        if _stem(name) == "inventory":
            told = told or [_json(text)]
    for body in told or [kept]:
        for subject, facts in body.items():
            if isinstance(facts, dict):
                present = {name: value for name, value in facts.items() if not isinstance(value, dict)}
                found.inventory[subject] = {**found.inventory.get(subject, {}), **present}
    for entry in entries:
        if entry.kind == "started" and entry.wall <= found.incident.began and isinstance(entry.body.get("settings"), dict):
            found.settings = entry.body["settings"]
    if not found.settings:
        found.left_out.append("how it was set: the start of the daemon is not on record, interval and rails are the defaults")


def _json(text: str) -> dict[str, Any]:
    try:
        found = json.loads(text)
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}
