"""What has changed between two looks at who is there."""

from __future__ import annotations

from xidwatch.core.comparison import changes, here
from xidwatch.core.model import HOST, Missing, Readings, Subject

GPU = Subject("gpu", "0000:11:00.0")
OTHER = Subject("gpu", "0000:12:00.0")
CARD: Readings = {GPU: {"name": "RTX 3090", "uuid": "GPU-1", "vbios": "94.02"}}


def test_who_went_and_who_came_is_named() -> None:
    """With what a person knows a device by."""
    after: Readings = {OTHER: {"name": "RTX 3090", "uuid": "GPU-2", "serial": Missing.UNSUPPORTED}}
    assert changes(CARD, after) == (
        "gpu:0000:11:00.0 is not there any more (RTX 3090, GPU-1)",
        "gpu:0000:12:00.0 is new (RTX 3090, GPU-2)",
    )


def test_another_card_in_the_same_place_is_told_by_its_facts() -> None:
    """So is a new driver."""
    before: Readings = {**CARD, HOST: {"driver_version": "580.95.05"}}
    after: Readings = {GPU: {**CARD[GPU], "uuid": "GPU-9"}, HOST: {"driver_version": "590.10"}}
    assert changes(before, after) == (
        "gpu:0000:11:00.0: uuid was GPU-1 and is GPU-9",
        "host: driver_version was 580.95.05 and is 590.10",
    )


def test_what_was_known_only_once_has_not_changed() -> None:
    """A fact that is missing now, or that nobody told before, is no news; neither is nothing at all."""
    after: Readings = {GPU: {"name": "RTX 3090", "uuid": Missing.NOT_ASKED, "vbios": "94.02", "serial": "1"}}
    assert changes(CARD, after) == ()
    assert changes({}, {}) == ()


def test_a_long_fact_is_cut() -> None:
    """A line stays a line."""
    (text,) = changes({GPU: {"firmware": "a" * 500}}, {GPU: {"firmware": "b" * 500}})
    assert len(text) < 200


def test_only_who_is_seen_is_here() -> None:
    """The inventory keeps what a device was known by after it has gone."""
    inventory: Readings = {**CARD, OTHER: {"uuid": "GPU-2"}, HOST: {"driver_version": "1"}}
    assert here({GPU: {"present": 1}, OTHER: {"present": 0}}, inventory).facts.keys() == {GPU, HOST}
