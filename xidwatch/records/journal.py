"""The journal: what changed, what was decided and what came of it, one JSON object a line, a file per UTC day.

    {"v":1,"id":"t-000123","time":"2026-09-17T02:10:08.412Z","boot_id":"5f0c...","mono_us":3611004211,
     "transition":{"subject":"port:0000:0f:00.0","type":"ConfigSpaceAllOnes","before":"FALSE","after":"TRUE",
     "not_before":"2026-09-17T02:09:38.004Z","severity":"critical","reason":"dword0 ffffffff twice"},
     "incident":"20260917T021008Z-bus-lost-0f"}
    {"v":1,"id":"k-000126",...,"kernel":{"seq":90412,"kind":"xid","xid":79,"pci":"0000:11:00.0","severity":"critical",...}}

(each on one line). An envelope, and one key that names the kind and holds the body. The writer side builds plain
dicts from core values; the reader side gives `Entry` objects back. A line without its newline was never finished.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any, BinaryIO

import msgspec

from xidwatch.clock import iso
from xidwatch.core.gate_model import Gate, GateMoved, Maintenance
from xidwatch.core.messages import Closed, Gap, KernelRecord, Maintained, Opened, Output
from xidwatch.core.model import Action, Condition, Incident, KernelEvent, Missing, Moment, Outcome, Readings, Transition
from xidwatch.core.recovery_model import Attempt
from xidwatch.records import Damage, RecordError, gates, note, regular
from xidwatch.records.gates import GateRecord, MaintenanceRecord
from xidwatch.records.recoveries import AttemptRecord
from xidwatch.records.values import ConditionRecord, IncidentRecord, Microseconds, moment, mono_us, plain_readings, wall_time

FOLDER = "journal"
VERSION = 1
KINDS = (
    "transition", "action", "outcome", "kernel", "gap", "opened", "closed", "inventory", "missing",
    "uevent", "note", "checkpoint", "started", "stopped", "settings", "gate", "maintenance",
)  # fmt: skip
MAX_LINE = 16 * 1024 * 1024  # bytes; an inventory of a large host takes about 100 KB
_ENVELOPE = frozenset({"v", "id", "time", "boot_id", "mono_us", "incident"})
_DAY = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}\.jsonl")
_UNREADABLE = (msgspec.MsgspecError, ValueError, OverflowError, RecursionError, OSError)

Record = dict[str, object]

# ------------------------------------------------------------------------------------------------------------- writing


def record(kind: str, record_id: str, at: Moment, boot_id: str, body: Mapping[str, object], incident: str | None = None) -> Record:
    """Any record: the envelope and its body under `kind` (one of `KINDS`)."""
    envelope: Record = {"v": VERSION, "id": record_id, "time": iso(at.wall), "boot_id": boot_id, "mono_us": mono_us(at), kind: dict(body)}
    if incident is not None:
        envelope["incident"] = incident
    return envelope


def from_output(output: Output, boot_id: str) -> Record | None:
    """What the watch wants written down; None for what is not kept in the journal (rows, the baseline)."""
    match output:
        case Transition():
            return transition(output, boot_id)
        case Action():
            return action(output, boot_id)
        case KernelRecord():
            return kernel(output.event, output.id, output.at, boot_id)
        case Gap():
            return gap(output.source, output.lost, output.id, output.at, boot_id)
        case Opened():
            return opened(output.incident, output.id, output.at, boot_id)
        case Closed():
            return closed(output.incident, output.id, output.at, boot_id)
        case GateMoved(gate=gate):
            return record("gate", output.id, output.at, boot_id, gates.body(gate, output.before), gate.incident)
        case Maintained():
            body = msgspec.to_builtins(MaintenanceRecord.of(output.maintenance, output.by))
            return record("maintenance", output.id, output.at, boot_id, body)
        case _:
            return None


def transition(edge: Transition, boot_id: str) -> Record:
    """A change of status; `not_before` only for an edge that was sampled, `missing` only where a lack explains it."""
    body: Record = {"subject": str(edge.subject), "type": edge.type, "before": edge.before, "after": edge.after}
    if edge.not_before is not None:
        body["not_before"] = iso(edge.not_before.wall)
    body |= {"severity": edge.severity, "reason": edge.reason}
    if edge.missing is not None:
        body["missing"] = edge.missing
    return record("transition", edge.id, edge.at, boot_id, body, edge.incident)


def action(decision: Action, boot_id: str) -> Record:
    """A decision, before it is carried out; `unit` only for what is done to an engine, `step` and `target` for a recovery."""
    body: Record = {"kind": decision.kind, "for": decision.cause}
    if decision.unit:
        body["unit"] = decision.unit
    if decision.step:
        body |= {"step": decision.step, "target": decision.target}
    return record("action", decision.id, decision.at, boot_id, body, decision.incident)


def outcome(result: Outcome, boot_id: str) -> Record:
    """What became of an action."""
    body: Record = {"for": result.action, "result": result.result, "took_ms": result.took_ms}
    if result.detail:
        body["detail"] = result.detail
    return record("outcome", result.id, result.at, boot_id, body)


def kernel(event: KernelEvent, record_id: str, at: Moment, boot_id: str) -> Record:
    """A kernel event; fields that are not set are left out."""
    found = {field.name: getattr(event, field.name) for field in fields(event)}
    body: Record = {name: value for name, value in found.items() if value is not None and value is not False}
    if event.pci is not None:
        body["pci"] = str(event.pci)
    return record("kernel", record_id, at, boot_id, body)


def gap(source: str, lost: int, record_id: str, at: Moment, boot_id: str) -> Record:
    """So many records of a source were lost."""
    return record("gap", record_id, at, boot_id, {"source": source, "lost": lost})


def opened(incident: Incident, record_id: str, at: Moment, boot_id: str) -> Record:
    """An incident begins."""
    body: Record = {"incident": incident.id, "trigger": incident.trigger, "severity": incident.severity}
    return record("opened", record_id, at, boot_id, body, incident.id)


def closed(incident: Incident, record_id: str, at: Moment, boot_id: str) -> Record:
    """It is over."""
    body: Record = {"incident": incident.id, "began": iso(incident.began.wall)}
    return record("closed", record_id, at, boot_id, body, incident.id)


def inventory(readings: Readings, record_id: str, at: Moment, boot_id: str) -> Record:
    """What is there: identity, topology, limits."""
    return record("inventory", record_id, at, boot_id, plain_readings(readings))


def missing(subject: str, quantity: str, reason: Missing | None, record_id: str, at: Moment, boot_id: str) -> Record:
    """A reading stopped coming, with the reason; None when it is back."""
    return record("missing", record_id, at, boot_id, {"subject": subject, "quantity": quantity, "reason": reason})


def checkpoint(
    record_id: str,
    at: Moment,
    boot_id: str,
    *,
    conditions: list[Condition],
    incident: Incident | None,
    kmsg_seq: int | None,
    next_id: int,
    dumps: tuple[float, ...] = (),
    engines: tuple[Gate, ...] = (),
    maintenance: Maintenance | None = None,
    attempts: tuple[Attempt, ...] = (),
) -> Record:
    """The whole state, so that a later start need not read further back.

    `dumps`: wall times of the latest; `engines`: their gates; `attempts`: at recovery.
    """
    body: Record = {
        "conditions": [msgspec.to_builtins(ConditionRecord.of(condition)) for condition in conditions],
        "incident": msgspec.to_builtins(IncidentRecord.of(incident)) if incident else None,
        "kmsg_seq": kmsg_seq,
        "next_id": next_id,
        "dumps": [iso(wall) for wall in dumps],
        "gates": [msgspec.to_builtins(GateRecord.of(gate)) for gate in engines],
        "maintenance": msgspec.to_builtins(MaintenanceRecord.of(maintenance)) if maintenance else None,
        "attempts": [msgspec.to_builtins(AttemptRecord.of(each)) for each in attempts],
    }
    return record("checkpoint", record_id, at, boot_id, body)


# ------------------------------------------------------------------------------------------------------------- reading


class Entry(msgspec.Struct, frozen=True, kw_only=True):
    """One record as found. `time` is the text, `wall` the same in seconds since the epoch; `boot_id` may be empty."""

    line: int
    id: str
    time: str
    wall: float
    mono_us: int | None
    boot_id: str
    kind: str
    body: dict[str, Any]
    incident: str | None
    path: str = ""  # of the file it was found in

    @property
    def at(self) -> Moment:
        """Both clocks; a record without monotonic time counts as the start of its boot."""
        return moment(self.time, self.mono_us)


class _Head(msgspec.Struct, frozen=True):
    id: str
    time: str
    boot_id: str = ""
    mono_us: Microseconds | None = None
    incident: str | None = None


_lines = msgspec.json.Decoder(dict[str, Any])


def days(state_dir: Path) -> list[Path]:
    """The journal's files, oldest day first; none where there is no journal. Raises OSError when it may not be read."""
    try:
        return sorted(path for path in (state_dir / FOLDER).iterdir() if _DAY.fullmatch(path.name))
    except FileNotFoundError:
        return []


def read(state_dir: Path, *, since: float | None, problems: list[Damage] | None = None) -> Iterator[Entry]:
    """Every record not older than `since` (seconds since the epoch; None: all), in the order of the files.

    Raises RecordError when the journal may not be read at all.
    """
    first = "" if since is None else iso(since)[:10]
    try:
        paths = days(state_dir)
    except OSError as error:
        raise RecordError(state_dir / FOLDER, error.strerror or str(error), "records are readable by root only") from error
    for path in paths:
        if path.name >= first:
            yield from (entry for entry in read_day(path, problems) if since is None or entry.wall >= since)


def read_day(path: Path, problems: list[Damage] | None = None) -> Iterator[Entry]:
    """One file. What is no record goes to `problems`; a file that cannot be read ends there."""
    try:
        with regular.reading(path) as file:
            yield from _entries(file, path, problems)
    except OSError as error:
        note(problems, path, 0, error.strerror or str(error))


def _entries(file: BinaryIO, path: Path, problems: list[Damage] | None) -> Iterator[Entry]:
    for number, raw in enumerate(iter(lambda: file.readline(MAX_LINE), b""), start=1):
        if b"\0" in raw:
            note(problems, path, number, "NUL bytes: blocks that a crash left unwritten")
        text = raw.replace(b"\0", b"").strip()
        if not text:
            continue
        found = entry(number, text, str(path)) if raw.endswith(b"\n") else "no end of line: cut off while it was written"
        if isinstance(found, Entry):
            yield found
        else:
            note(problems, path, number, found)


def entry(number: int, text: bytes, path: str = "") -> Entry | str:
    """One line as a record, or what is wrong with it."""
    try:
        plain = _lines.decode(text)
        head = msgspec.convert(plain, _Head)
        wall = wall_time(head.time)
    except _UNREADABLE as error:
        return f"not a record: {error}: {text[:80]!r}"
    kind = _kind(plain)
    if kind is None:
        return f"a record of no kind: {text[:80]!r}"
    return Entry(
        line=number, id=head.id, time=head.time, wall=wall, mono_us=head.mono_us,
        boot_id=head.boot_id, kind=kind, body=plain[kind], incident=head.incident, path=path,
    )  # fmt: skip


def _kind(plain: Mapping[str, object]) -> str | None:
    """A known kind wherever it stands; else the first key that a newer version may have meant as one."""
    bodies = [key for key, value in plain.items() if key not in _ENVELOPE and isinstance(value, dict)]
    return next((key for key in bodies if key in KINDS), bodies[0] if bodies else None)
