"""What an operator is offered: through the socket and back, and known again by its digest."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.core.story import GPU, RULES, Story
from tests.core.test_watch_devices import known, uuids
from xidwatch import __version__
from xidwatch.core.model import Moment, Subject
from xidwatch.records import offer
from xidwatch.records.offer import Offered

AT = Moment(1789646400.0, 1.0)


def offered(story: Story, *, anew: bool = False) -> Offered:
    return offer.offered(RULES, story.state, uuids(), anew=anew, at=AT, boot_id="5f0c")


def test_it_comes_through_the_socket_as_it_was() -> None:
    """Sensors and processes too, since a configuration is written from them."""
    story = known()
    story.set(Subject("chip", "nct6798@platform/nct6775.656/in1"), {"pin_volts": 1.008})
    story.set(GPU, {"compute_pids": "4711"}).tick()
    before = offered(story)
    after = offer.from_plain(json.loads(json.dumps(offer.to_plain(before))))
    assert after == before
    assert after.digest == before.digest
    assert after.holders == {GPU.name: "4711"}
    assert [rail.input for rail in after.rails] == ["in1"]


@pytest.mark.parametrize("plain", [None, {}, {"baseline": 1}, [1]])
def test_what_is_no_offer_is_refused(plain: Any) -> None:
    """A daemon of another version."""
    with pytest.raises(ValueError, match=r"Expected|required"):
        offer.from_plain(plain)


def test_the_digest_is_that_of_who_is_there_and_what_stands_against_it() -> None:
    """Not of the time, nor of a temperature."""
    story = known()
    first = offered(story).digest
    story.tick()
    assert offered(story).digest == first
    story.take_out(GPU).tick()
    assert len({first, offered(story).digest, offered(story, anew=True).digest}) == 3


def test_an_operators_word_makes_it_the_baseline() -> None:
    """With his name and the program's version; against an obstacle it is no word at all."""
    story = known()
    written = offer.as_accepted(offered(story), AT, 1000, "alice")
    assert written.accepted is not None
    assert (written.provisional, written.accepted.by, written.accepted.version) == (False, "alice (uid 1000)", __version__)
    story.take_out(GPU).tick()
    refused = offer.as_accepted(offered(story), AT, 1000, "alice")
    assert (refused.provisional, refused.accepted) == (True, None)


def test_it_is_counted_in_words() -> None:
    """One and several."""
    assert offer.count(["gpu:a", "gpu:b", "port:c"]) == "2 GPUs, 1 port, 0 drives"
