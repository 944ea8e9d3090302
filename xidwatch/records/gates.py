"""A gate, and maintenance, in the journal: whole in every record, so that the last one says it all.

{"v":1,"id":"e-000131",...,"gate":{"unit":"vllm.service","before":"STOPPING","state":"HELD","since":"2026-09-17T02:10:21.118Z",
 "since_mono_us":3624000000,"boot_id":"5f0c...","why":"GpuLost gpu:0000:11:00.0, gpu:0000:12:00.0 and 2 more",
 "invocation_id":"3a3b...","losses":[{"at":"2026-09-17T02:10:08.412Z","parent":"0000:00/03.1/00.0"}]},"incident":"20260917T021008Z-bus-lost-0f"}
{"v":1,"id":"e-000140",...,"maintenance":{"until":"2026-09-17T03:10:08.412Z","began":"...","reason":"driver upgrade","by":"alice (uid 0)"}}
"""

from __future__ import annotations

from typing import Any

import msgspec

from xidwatch.clock import iso
from xidwatch.core.gate_model import Gate, GateState, Loss, Maintenance
from xidwatch.records.values import Microseconds, Natural, moment, mono_us, wall_time


class LossRecord(msgspec.Struct, frozen=True):
    """One loss under load."""

    at: str
    parent: str


class GateRecord(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One gate. A lease is for people to see: no start outlives the run that granted it."""

    unit: str
    state: GateState
    since: str
    since_mono_us: Microseconds
    boot_id: str
    why: str = ""
    invocation_id: str = ""
    incident: str | None = None
    lease_until: str | None = None
    starts: tuple[str, ...] = ()
    served: str | None = None
    start_said: str = ""
    losses: tuple[LossRecord, ...] = ()
    relapses: Natural = 0
    not_before: str | None = None
    leftovers: tuple[str, ...] = ()
    asked_again: Natural = 0
    ask_after: str | None = None
    by_itself: bool = False
    owed: bool = False
    gpus: tuple[str, ...] = ()
    gpus_of: str = ""
    shared: tuple[str, ...] = ()

    @classmethod
    def of(cls, gate: Gate) -> GateRecord:
        """As a record holds it."""
        return cls(
            unit=gate.unit,
            state=gate.state,
            since=iso(gate.since.wall),
            since_mono_us=mono_us(gate.since),
            boot_id=gate.boot_id,
            why=gate.why,
            invocation_id=gate.invocation_id,
            incident=gate.incident,
            lease_until=iso(gate.lease.until.wall) if gate.lease else None,
            starts=tuple(iso(wall) for wall in gate.starts),
            served=iso(gate.served) if gate.served else None,
            start_said=gate.start_said,
            losses=tuple(LossRecord(iso(loss.wall), loss.parent) for loss in gate.losses),
            relapses=gate.relapses,
            not_before=iso(gate.not_before) if gate.not_before else None,
            leftovers=gate.leftovers,
            asked_again=gate.asked_again,
            ask_after=iso(gate.ask_after) if gate.ask_after else None,
            by_itself=gate.by_itself,
            owed=gate.owed,
            gpus=gate.gpus,
            gpus_of=gate.gpus_of,
            shared=gate.shared,
        )

    def gate(self) -> Gate:
        """Back, without its lease. Raises ValueError."""
        return Gate(
            unit=self.unit,
            state=self.state,
            since=moment(self.since, self.since_mono_us),
            why=self.why,
            invocation_id=self.invocation_id,
            boot_id=self.boot_id,
            incident=self.incident,
            starts=tuple(wall_time(text) for text in self.starts),
            served=wall_time(self.served) if self.served else 0.0,
            start_said=self.start_said,
            losses=tuple(Loss(wall_time(loss.at), loss.parent) for loss in self.losses),
            relapses=self.relapses,
            not_before=wall_time(self.not_before) if self.not_before else 0.0,
            leftovers=self.leftovers,
            asked_again=self.asked_again,
            ask_after=wall_time(self.ask_after) if self.ask_after else 0.0,
            by_itself=self.by_itself,
            owed=self.owed,
            gpus=self.gpus,
            gpus_of=self.gpus_of,
            shared=self.shared,
        )


class MaintenanceRecord(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Maintenance that has begun, or, without `until`, is over."""

    until: str | None = None
    began: str = ""
    began_mono_us: Microseconds = 0
    reason: str = ""
    by: str = ""

    @classmethod
    def of(cls, maintenance: Maintenance | None, by: str = "") -> MaintenanceRecord:
        """As a record holds it."""
        if maintenance is None:
            return cls(by=by)
        return cls(
            until=iso(maintenance.until),
            began=iso(maintenance.began.wall),
            began_mono_us=mono_us(maintenance.began),
            reason=maintenance.reason,
            by=maintenance.by or by,
        )

    def maintenance(self) -> Maintenance | None:
        """Back. Raises ValueError."""
        if self.until is None:
            return None
        return Maintenance(moment(self.began, self.began_mono_us), wall_time(self.until), self.reason, self.by)


def body(gate: Gate, before: GateState | None) -> dict[str, Any]:
    """Of a journal record."""
    return {"before": before, **msgspec.to_builtins(GateRecord.of(gate))}
