"""What earlier runs have left on record, as the watch takes it, and what this one leaves to later ones."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from xidwatch.core.messages import ConditionKey, Restored
from xidwatch.core.model import Condition, Moment, Readings
from xidwatch.core.state import State
from xidwatch.records import baseline, journal
from xidwatch.records.recovery import Recovered, RecoveredRecord

UNREAD = "not understood"  # how a record of a newer version is damaged, or one that was altered

Conditions = Mapping[ConditionKey, Condition]


def restored(record: RecoveredRecord, found: Recovered, boot_id: str, named: Mapping[str, set[str]]) -> Restored:
    """`named`: for kinds of which the settings name every subject, those names."""
    learnt = record.baseline
    ours = learnt if learnt and learnt.boot_id == boot_id else None
    return Restored(
        still_watched(found.conditions, named),
        found.incident,
        found.next_id,
        ours.readings_expected() if ours else {},
        found.dumps,
        members(record),
        ours.readings_inventory() if ours else {},
        accepted=learnt is not None and learnt.accepted is not None,
    )


def still_watched(conditions: Conditions, named: Mapping[str, set[str]]) -> Conditions:
    """Without those about probes, recorders and rails that the settings no longer name: nobody will ever look at them again."""
    return {key: c for key, c in conditions.items() if key[0].kind not in named or key[0].name in named[key[0].kind]}


def is_whole(record: RecoveredRecord | None) -> bool:
    """No file of the journal was refused, and no record not understood. What a crash has cut was on no disk, hence not acted on."""
    if record is None:
        return False
    ours = (damage for damage in record.damage if Path(damage.path).parent.name == journal.FOLDER)
    return not any(damage.line == 0 or UNREAD in damage.text for damage in ours)


def members(record: RecoveredRecord) -> Readings | None:
    """Who should be there. A baseline that is not there has been taken away by hand; one that cannot be read has not."""
    if record.baseline is not None:
        return record.baseline.readings_members()
    return {} if any(Path(damage.path).name == baseline.NAME for damage in record.damage) else None


def checkpoint(state: State, record_id: str, at: Moment, boot_id: str) -> Mapping[str, object]:
    """All of it that a successor has to know, as a journal record."""
    return journal.checkpoint(
        record_id,
        at,
        boot_id,
        conditions=[tracked.condition for tracked in state.conditions.values()],
        incident=state.incident,
        kmsg_seq=state.tally.last_seq,
        next_id=state.next_id,
        dumps=state.dumps,
        engines=tuple(state.gates.values()),
        maintenance=state.maintenance,
        attempts=state.recovery.attempts,
    )
