"""What the running daemon leaves under /run for those who ask without asking it, and for its successor.

`state.json` (world-readable, no secrets; one line in the file):

    {"v":1,"boot_id":"5f0c...","mono_ms":3620011,"verdict":"failed","since":"2026-09-17T02:10:08Z",
     "conditions":[{"subject":"gpu:0000:11:00.0","type":"GpuLost","status":"TRUE","since":"..."}],
     "engines":{"vllm.service":{"state":"HELD","since":"2026-09-17T02:10:21.118Z","may_start":false,"why":"4 of 4 GPUs lost","lease":null,
                                "unit":"inactive/dead","invocation_id":"","gpus":["0000:11:00.0"],"gpus_by":"found","order":null,
                                "recovery":["warm reboot: sync, then systemctl reboot"]}}}

`children.json`: worker processes that were alive, so that a successor can adopt what is stuck:

    {"v":1,"boot_id":"5f0c...","children":[{"pid":4711,"start_ticks":182739,"name":"pci","at":"port:0000:0f:00.0","since_mono":3611.2}]}
"""

from __future__ import annotations

import errno
from pathlib import Path
from typing import Any, Literal

import msgspec

from xidwatch.records import RecordError, files, regular

NAME = "state.json"
CHILDREN_NAME = "children.json"
VERSION = 1
WORLD_READABLE = 0o644
STALE_INTERVALS = 3
MOST_BYTES = 16 * 1024 * 1024  # thirty times what sixty-four engines come to; an engine waits at its start while it is read
TOO_LARGE = "is larger than any daemon writes it"

Freshness = Literal["fresh", "stale", "other boot", "replayed", "dead"]


class ConditionState(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A condition as people and scripts see it."""

    subject: str
    type: str
    status: str
    since: str
    reason: str = ""
    severity: str = ""
    advice: str = ""  # of a condition that is TRUE


class EngineState(msgspec.Struct, frozen=True, kw_only=True):
    """What the gate says about one engine, and what was seen of it.

    `since`: of the gate's state. `lease`: until when its one start is granted. `unit`: active/running and the like, as systemd
    says, "" when it did not. `gpus_by`: "configured", "found", "before" (when it last ran), "" when they are not known.
    `order`: until when an operator has opened the gate past this. `recovery`: what could bring its hardware back, in
    the order in which to try it, and what stands in the way of each. `stand_in`: the unit that is started in its place after an
    incident, "" for none.
    """

    state: str | None = None
    since: str | None = None
    may_start: bool | None = None
    why: str = ""
    lease: str | None = None
    unit: str = ""
    invocation_id: str = ""
    gpus: tuple[str, ...] = ()
    gpus_by: str = ""
    order: str | None = None
    recovery: tuple[str, ...] = ()
    stand_in: str = ""


class BaselineState(msgspec.Struct, frozen=True, kw_only=True):
    """What devices are compared with: learnt since `since`, and accepted by an operator or not."""

    provisional: bool
    since: str
    by: str = ""


class RecoveryState(msgspec.Struct, frozen=True, kw_only=True):
    """One step of recovery that an operator has switched on: what came of it last, and what speaks against it now; due when nothing does.

    `done`: in this boot, when (UTC); `result` then is ok, failed, timeout, left, or "" while it is under way or not on record.
    """

    step: str
    target: str = ""
    against: tuple[str, ...] = ()
    done: str | None = None
    result: str = ""
    detail: str = ""


class MaintenanceState(msgspec.Struct, frozen=True, kw_only=True):
    """Somebody works on the host: until when (UTC), why, who."""

    until: str
    reason: str
    by: str = ""


class ProbeState(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """How one source is doing. `age_s`: since its last full answer, None when there never was one.

    Not `asked`: left alone on purpose. `partly`: it has answered, but for what `text` names.
    """

    success: bool
    asked: bool = True
    partly: bool = False
    age_s: float | None = None
    stuck_s: float = 0.0
    text: str = ""


class StateFile(msgspec.Struct, frozen=True, kw_only=True):
    """The daemon's latest finished tick. `mono_ms` is CLOCK_MONOTONIC when it was written. `replayed`: the fixture it comes from."""

    boot_id: str
    mono_ms: int
    verdict: str
    v: int = VERSION
    since: str | None = None
    conditions: tuple[ConditionState, ...] = ()
    engines: dict[str, EngineState] = {}
    tick: int | None = None
    interval_s: float = 30.0
    time: str | None = None
    pid: int | None = None
    incident: str | None = None
    probes: dict[str, ProbeState] = {}
    baseline: BaselineState | None = None  # None while it is not known what earlier runs have learnt
    replayed: str = ""
    maintenance: MaintenanceState | None = None
    recovery: tuple[RecoveryState, ...] = ()


def encode(state: StateFile) -> bytes:
    """The file's content."""
    return msgspec.json.encode(state) + b"\n"


def marked_replayed(state: StateFile, fixture: str) -> StateFile:
    """The same, and nobody takes it for this host's."""
    return msgspec.structs.replace(state, replayed=fixture)


def write_atomic(path: Path, data: bytes, mode: int = WORLD_READABLE) -> None:
    """A reader sees the old content or the new. No fsync: the place is a tmpfs, or the content dies with the boot. Raises OSError."""
    files.replace(path, data, mode=mode, durable=False)


def read(path: Path) -> StateFile:
    """Raises RecordError with a hint when it is absent or damaged. Keys of a newer version are ignored."""
    try:
        return msgspec.json.decode(regular.read_bytes(path, MOST_BYTES), type=StateFile)
    except FileNotFoundError as error:
        raise RecordError(path, "no state file", "is xidwatch running? `systemctl status xidwatch` or `xidwatch run` tells") from error
    except regular.NotRegular as error:
        raise RecordError(path, str(error.strerror), "a running xidwatch replaces it at its next tick") from error
    except OSError as error:
        if error.errno == errno.EFBIG:
            raise RecordError(path, TOO_LARGE, "a running xidwatch replaces it at its next tick") from error
        raise RecordError(path, error.strerror or str(error), "the state file is made to be readable by everyone") from error
    except (msgspec.MsgspecError, RecursionError) as error:
        raise RecordError(path, f"damaged: {error}", "a running xidwatch replaces it at its next tick") from error


def freshness(state: StateFile, now_mono_ms: int, boot_id: str) -> Freshness:
    """Whether it may still be believed. One that is older than three intervals, or from the future, is stale."""
    if state.replayed:  # true of another host and another night, and never of this one
        return "replayed"
    if state.boot_id != boot_id:
        return "other boot"
    age_ms = now_mono_ms - state.mono_ms
    return "fresh" if 0 <= age_ms <= STALE_INTERVALS * state.interval_s * 1000 else "stale"


def standing(state: StateFile, now_mono_ms: int, boot_id: str) -> Freshness:
    """The same of this host and now: "dead" when the process that wrote it is gone without a word."""
    fresh = freshness(state, now_mono_ms, boot_id)
    return "dead" if fresh == "fresh" and state.pid is not None and not files.lives(state.pid) else fresh


class Child(msgspec.Struct, frozen=True, kw_only=True):
    """A live worker. `start_ticks` tells it from a later process with its number; `at` is the subject it was touching."""

    pid: int
    start_ticks: int
    name: str
    at: str | None = None
    since_mono: float = 0.0
    holds_driver: bool = False


class _Children(msgspec.Struct, frozen=True, kw_only=True):
    boot_id: str
    v: int = VERSION
    children: tuple[Any, ...] = ()


def encode_children(children: tuple[Child, ...], boot_id: str) -> bytes:
    """The file's content."""
    return msgspec.json.encode(_Children(boot_id=boot_id, children=children)) + b"\n"


def read_children(path: Path, boot_id: str) -> tuple[Child, ...]:
    """What can be read of the file; none where there is none. Never waits, whatever lies there."""
    try:
        return decode_children(regular.read_bytes(path, MOST_BYTES), boot_id)
    except OSError:
        return ()


def decode_children(data: bytes, boot_id: str) -> tuple[Child, ...]:
    """What can be read of it; none of another boot, whose process numbers mean nothing here."""
    try:
        document = msgspec.json.decode(data, type=_Children)
    except (msgspec.MsgspecError, RecursionError):
        return ()
    if document.boot_id != boot_id:
        return ()
    return tuple(child for child in map(_child, document.children) if child is not None)


def _child(plain: object) -> Child | None:
    try:
        return msgspec.convert(plain, Child)
    except msgspec.ValidationError:
        return None
