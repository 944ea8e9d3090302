"""The baseline: what should be there, learnt while healthy and provisional until an operator accepts it.

    {"v":1,"provisional":true,"boot_id":"5f0c...","time":"2026-09-17T00:00:12.004Z",
     "expected":{"port:0000:0f:00.0":{"config_dword0":268484624,"command":1351}},
     "inventory":{"gpu:0000:11:00.0":{"name":"NVIDIA GeForce RTX 3090","serial":{"missing":"UNSUPPORTED"}}},
     "members":{"gpu:0000:00/03.1/00.0/08.0/00.0":{"address":"0000:11:00.0","driver":"nvidia","board":"10de:2204 1043:87c5",
                "uuid":"GPU-5f0c...","link_width":16}},
     "since":"2026-09-17T00:00:12.004Z",
     "accepted":null}

(on one line). `expected` and `inventory` are of one boot: of another they are evidence of what was there, not of what should be at
these addresses now. `members` outlast boots: by kind and place, who should be there. `since`: when that began to be learnt.

Once an operator has accepted it, `provisional` is false and learning adds nothing to `members`:

     "accepted":{"at":"2026-09-17T08:00:00.000Z","uid":0,"user":"alice","version":"0.1.0"},
     "not_reported":{"gpu:0000:00/03.1/00.0/08.0/00.0":["recovery_action","serial","temperature_memory_celsius"]},
     "not_managed":{"0000:21:00.0":"given to virtual machines (vfio-pci)"}

`not_reported`: what a member does not tell, hence NOT_APPLICABLE of it. `user`: as the command that was run said; `uid` is the kernel's.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec

from xidwatch.clock import iso
from xidwatch.core.model import Moment, Readings
from xidwatch.records import RecordError, regular
from xidwatch.records.values import plain_readings, to_readings

NAME = "baseline.json"
VERSION = 1


class Acceptance(msgspec.Struct, frozen=True, kw_only=True):
    """Who has said that these are all, when, and by which version of the program."""

    at: str
    uid: int = 0
    user: str = ""
    version: str = ""

    @property
    def by(self) -> str:
        """For people."""
        return f"{self.user} (uid {self.uid})" if self.user else f"uid {self.uid}"


@dataclass(frozen=True, slots=True)
class Standing:
    """What an operator has said of a baseline, as far as he has; what is learnt changes none of it."""

    since: str
    accepted: Acceptance | None = None
    not_reported: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    not_managed: Mapping[str, str] = field(default_factory=dict)


class Baseline(msgspec.Struct, frozen=True, kw_only=True):
    """As on disk; `readings_expected` and its like give it back in the program's words."""

    boot_id: str
    time: str
    v: int = VERSION
    provisional: bool = True
    expected: dict[str, dict[str, Any]] = {}
    inventory: dict[str, dict[str, Any]] = {}
    members: dict[str, dict[str, Any]] = {}
    since: str = ""
    accepted: Acceptance | None = None
    not_reported: dict[str, tuple[str, ...]] = {}
    not_managed: dict[str, str] = {}

    @property
    def standing(self) -> Standing:
        """What is not learnt."""
        return Standing(self.since or self.time, self.accepted, self.not_reported, self.not_managed)

    def readings_expected(self) -> Readings:
        """What the reading of a healthy device is compared with."""
        return to_readings(self.expected)

    def readings_inventory(self) -> Readings:
        """Identity, topology, limits."""
        return to_readings(self.inventory)

    def readings_members(self) -> Readings:
        """Who should be there, by kind and place."""
        return to_readings(self.members)


def learnt(
    at: Moment, boot_id: str, expected: Readings, inventory: Readings, members: Readings, standing: Standing | None = None
) -> Baseline:
    """A baseline from core values; without a standing one that begins now."""
    standing = standing or Standing(iso(at.wall))
    return Baseline(
        boot_id=boot_id,
        time=iso(at.wall),
        provisional=standing.accepted is None,
        expected=plain_readings(expected),
        inventory=plain_readings(inventory),
        members=plain_readings(members),
        since=standing.since,
        accepted=standing.accepted,
        not_reported=dict(standing.not_reported),
        not_managed=dict(standing.not_managed),
    )


def encode(baseline: Baseline) -> bytes:
    """The file's content."""
    return msgspec.json.encode(baseline) + b"\n"


def read(path: Path) -> Baseline | None:
    """None when there is none yet. Raises RecordError when it is damaged, no file, or may not be read."""
    try:
        found = msgspec.json.decode(regular.read_bytes(path), type=Baseline)
        encode(found)  # a number of 400 digits is read, and cannot be told to anybody
    except FileNotFoundError:
        return None
    except regular.NotRegular as error:
        raise RecordError(path, str(error.strerror), "move it away") from error
    except OSError as error:
        raise RecordError(path, error.strerror or str(error), "records are readable by root only") from error
    except (msgspec.MsgspecError, ValueError, OverflowError, RecursionError) as error:
        raise RecordError(path, f"damaged: {error}", "move it away; a new one is learnt while the host is healthy") from error
    return found
