"""What an operator is offered to accept as baseline: the baseline itself, what stands against it, and what helps to write a configuration.

{"baseline":{"v":1,"provisional":true,...},"obstacles":["nvml did not answer in full"],"remarks":[],
 "holders":{"0000:11:00.0":"4711 4712"},"rails":[{"name":"nct6798_in1_12v","chip":"nct6798@platform/nct6775.656","input":"in1",...}]}
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from typing import Any

import msgspec

from xidwatch import __version__
from xidwatch.clock import iso
from xidwatch.core import acceptance, suspects
from xidwatch.core.model import Missing, Moment, Readings
from xidwatch.core.rules import Rule
from xidwatch.core.state import State
from xidwatch.records import baseline
from xidwatch.records.baseline import Acceptance, Baseline, Standing

KINDS = (("gpu", "GPU"), ("port", "port"), ("nvme", "drive"))


@dataclass(frozen=True, slots=True)
class Offered:
    """An offer as people and the file have it. `absent`: places of members that are not seen there.

    `holders`: processes on each GPU, by address; `rails`: inputs that could be some.
    """

    baseline: Baseline
    obstacles: tuple[str, ...]
    remarks: tuple[str, ...]
    absent: tuple[str, ...]
    holders: Mapping[str, str]
    rails: tuple[suspects.Suspect, ...]

    @property
    def digest(self) -> str:
        """What the operator has seen: who, and what stands against it."""
        seen = [self.baseline.members, self.baseline.not_managed, self.obstacles]
        return hashlib.sha256(msgspec.json.encode(seen, order="deterministic")).hexdigest()


def offered(conditions: tuple[Rule, ...], state: State, inventory: Readings, *, anew: bool, at: Moment, boot_id: str) -> Offered:
    """What would be accepted at this moment, as a baseline that nobody has accepted yet."""
    offer = acceptance.offer(conditions, state, inventory, anew=anew)
    places = {str(place): names for place, names in offer.not_reported.items()}
    standing = Standing(iso(at.wall), None, places, offer.not_managed)
    learnt = baseline.learnt(at, boot_id, state.expected, inventory, offer.roster.members, standing)
    absent = tuple(sorted(map(str, offer.absent)))
    return Offered(learnt, offer.obstacles, offer.remarks, absent, _holders(state.readings), suspects.rails(state.readings, inventory))


def accepted(offer: Offered, at: Moment, uid: int, user: str) -> Standing:
    """The same with somebody's word for it."""
    return replace(
        offer.baseline.standing, since=iso(at.wall), accepted=Acceptance(at=iso(at.wall), uid=uid, user=user, version=__version__)
    )


def as_accepted(offered: Offered, at: Moment, uid: int, user: str) -> Baseline:
    """The file that would come of it; as it is, where something stands against that."""
    word = None if offered.obstacles else accepted(offered, at, uid, user).accepted
    return msgspec.structs.replace(offered.baseline, provisional=word is None, accepted=word)


def _holders(readings: Readings) -> dict[str, str]:
    found = {subject.name: values.get("compute_pids", Missing.NOT_ASKED) for subject, values in readings.items() if subject.kind == "gpu"}
    return {address: str(pids) for address, pids in found.items() if not isinstance(pids, Missing)}


def count(members: Collection[str]) -> str:
    """`4 GPUs, 9 ports, 1 drive`."""
    numbers = [(sum(1 for place in members if place.startswith(f"{kind}:")), word) for kind, word in KINDS]
    return ", ".join(f"{number} {word}{'' if number == 1 else 's'}" for number, word in numbers)


def to_plain(offer: Offered) -> dict[str, Any]:
    """As it goes through the control socket."""
    plain: dict[str, Any] = msgspec.to_builtins(offer)
    return plain


def from_plain(plain: object) -> Offered:
    """The inverse. Raises ValueError for what is no offer."""
    return msgspec.convert(plain, Offered)
