"""The baseline: what should be there, learnt while healthy and provisional until an operator accepts it.

    {"v":1,"provisional":true,"boot_id":"5f0c...","time":"2026-09-17T00:00:12.004Z",
     "expected":{"port:0000:0f:00.0":{"config_dword0":268484624,"command":1351}},
     "inventory":{"gpu:0000:11:00.0":{"name":"NVIDIA GeForce RTX 3090","serial":{"missing":"UNSUPPORTED"}}},
     "members":{"gpu:0000:00/03.1/00.0/08.0/00.0":{"address":"0000:11:00.0","driver":"nvidia","board":"10de:2204 1043:87c5",
                "uuid":"GPU-5f0c...","link_width":16}}}

(on one line). `expected` and `inventory` are of one boot: of another they are evidence of what was there, not of what should be at
these addresses now. `members` outlast boots: by kind and place, who should be there.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec

from xidwatch.clock import iso
from xidwatch.core.model import Moment, Readings
from xidwatch.records import RecordError, regular
from xidwatch.records.values import plain_readings, to_readings

NAME = "baseline.json"
VERSION = 1


class Baseline(msgspec.Struct, frozen=True, kw_only=True):
    """As on disk; `readings_expected` and its like give it back in the program's words."""

    boot_id: str
    time: str
    v: int = VERSION
    provisional: bool = True
    expected: dict[str, dict[str, Any]] = {}
    inventory: dict[str, dict[str, Any]] = {}
    members: dict[str, dict[str, Any]] = {}

    def readings_expected(self) -> Readings:
        """What the reading of a healthy device is compared with."""
        return to_readings(self.expected)

    def readings_inventory(self) -> Readings:
        """Identity, topology, limits."""
        return to_readings(self.inventory)

    def readings_members(self) -> Readings:
        """Who should be there, by kind and place."""
        return to_readings(self.members)


def learnt(at: Moment, boot_id: str, expected: Readings, inventory: Readings, members: Readings, *, provisional: bool = True) -> Baseline:
    """A baseline from core values."""
    return Baseline(
        boot_id=boot_id,
        time=iso(at.wall),
        provisional=provisional,
        expected=plain_readings(expected),
        inventory=plain_readings(inventory),
        members=plain_readings(members),
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
