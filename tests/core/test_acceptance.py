"""Accepting a baseline: what stands against it, what it fixes, and what is said of those who come and go afterwards."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from tests.core.story import ALL_ONES, GPU, GPUS, PCI, RULES, SWITCH, Story, bad, closed, opened
from tests.core.test_watch_devices import known, renumbered, uuids
from xidwatch.core import acceptance
from xidwatch.core.acceptance import Offer
from xidwatch.core.messages import BaselineAccepted, Restored
from xidwatch.core.model import HOST, Missing, Status, Subject, Value

T, F, U, NA = Status.TRUE, Status.FALSE, Status.UNKNOWN, Status.NOT_APPLICABLE
NEW = Subject("gpu", "0000:21:00.0")
NEWS_PLACE = Subject("gpu", "0000:00/05.1/00.0")
PLACE = Subject("gpu", "0000:00/03.1/00.0/08.0/00.0")


def offer(story: Story, *, anew: bool = False, facts: Mapping[Subject, Mapping[str, Value]] | None = None) -> Offer:
    return acceptance.offer(RULES, story.state, {**uuids(), **(facts or {})}, anew=anew)


def accept(story: Story, *, anew: bool = False) -> Story:
    story.give(BaselineAccepted(story.now, anew))
    return story


def newcomer(driver: str = "nvidia", **values: Value) -> dict[str, Value]:
    """A fifth card, below a port of its own."""
    card = {**known().readings[GPU], "chain": NEWS_PLACE.name, "driver": driver}
    return {**card, **values}


def is_called(offer: Offer, *words: str) -> bool:
    return any(all(word in text for word in words) for text in offer.obstacles)


# ------------------------------------------------------------------------------------------------- what stands against it


def test_nothing_stands_against_a_host_that_is_well() -> None:
    """What its hardware does not tell is noted; nobody is absent."""
    offered = offer(known())
    assert offered.obstacles == ()
    assert offered.not_reported[PLACE] == ("serial",)
    assert offered.not_managed == {}
    assert offered.absent == frozenset()


def test_a_card_that_is_missed_stands_against_it_and_beginning_anew_does_not_see_it() -> None:
    """A card that was known and is not here: taken out on purpose, or lost; only a person can tell."""
    story = known().take_out(GPU)
    story.tick()
    offered = offer(story)
    assert is_called(offered, str(GPU), "GpuMissing TRUE")
    assert is_called(offered, "incident", "is open")
    assert offered.absent == {PLACE}
    anew = offer(story, anew=True)
    assert anew.obstacles == ()
    assert PLACE not in anew.roster.members


@pytest.mark.parametrize("anew", [False, True])
@pytest.mark.parametrize(
    ("subject", "values", "words"),
    [
        (SWITCH, {"config_dword0": ALL_ONES}, ("ConfigSpaceAllOnes TRUE",)),
        (GPU, {"nvml_status": 15}, ("GpuLost TRUE",)),
        (GPU, {"nvml_status": Missing.TIMED_OUT}, ("GpuLost UNKNOWN", "TIMED_OUT")),
        (PCI, {"success": 0}, ("pci did not answer in full",)),
        (Subject("probe", "nvml"), {"success": 0}, ("nvml did not answer in full",)),
        (HOST, {"pci_functions": Missing.TIMED_OUT}, ("the list of PCI devices did not come",)),
    ],
)
def test_what_is_dead_or_did_not_answer_stands_against_it(
    subject: Subject, values: Mapping[str, Value], words: tuple[str, ...], *, anew: bool
) -> None:
    """At this very instant, before any condition has held or cleared; and beginning anew is no way round it."""
    story = known()
    story.set(subject, values).tick()
    assert is_called(offer(story, anew=anew), *words)


def test_a_driver_fatal_xid_stands_against_it() -> None:
    """NVML is not asked, and nobody knows whether the card is well."""
    story = known()
    story.kernel("NVRM: Xid (PCI:0000:11:00): 79, pid=1, name=x, GPU has fallen off the bus.")
    story.tick()
    assert is_called(offer(story, anew=True), "the NVIDIA driver is not asked")


def test_a_card_without_a_name_could_not_be_told_from_another() -> None:
    """Neither UUID nor serial has come yet: the inventory is not complete."""
    story = Story()
    story.ticks(2)
    assert is_called(offer(story), GPU.name, "neither UUID nor serial")


def test_a_host_without_gpus_proves_nothing() -> None:
    """An empty machine is not accepted as what should be there."""
    story = Story().take_out(*GPUS)
    story.ticks(2)
    assert offer(story).obstacles == ("no GPU of the nvidia driver is here: a baseline without one would prove nothing",)


def test_another_card_in_a_place_stands_against_it_until_it_is_begun_anew() -> None:
    """A swap is accepted by a person, never in passing."""
    story = known()
    story.inventory({**uuids(), GPU: {"uuid": "GPU-other"}})
    facts = {GPU: {"uuid": "GPU-other"}}
    assert is_called(offer(story, facts=facts), str(GPU), "DeviceReplaced")
    anew = offer(story, anew=True, facts=facts)
    assert anew.obstacles == ()
    assert anew.roster.members[PLACE]["uuid"] == "GPU-other"


def test_fewer_lanes_than_there_could_be_are_worth_a_look_and_no_obstacle() -> None:
    """A slot may be wired that way."""
    story = known()
    lanes = {"max_link_width": 16}
    story.set(GPU, {"link_width": 8}).tick()
    port = Subject("port", "0000:10:08.0")
    story.inventory({**uuids(), GPU: {**uuids()[GPU], **lanes}, port: lanes, SWITCH: lanes})
    offered = offer(story, anew=True)
    assert offered.obstacles == ()
    assert any("LinkBelowCapability" in text for text in offered.remarks)


@pytest.mark.parametrize(
    ("driver", "words"),
    [("vfio-pci", "given to virtual machines"), ("", "no driver is bound"), ("nouveau", "bound to nouveau")],
)
def test_a_card_that_is_somebody_elses_is_not_managed(driver: str, words: str) -> None:
    """It stands against nothing, is never lost, and the reason is written down."""
    story = known()
    story.set(NEW, newcomer(driver, nvml_status=Missing.ABSENT)).ticks(2)
    offered = offer(story)
    assert offered.obstacles == ()
    assert words in offered.not_managed[NEW.name]
    accept(story).take_out(NEW)
    assert bad(story.ticks(3)) == []


def test_instances_and_virtual_functions_are_not_managed() -> None:
    """A divided card is still watched as a whole."""
    facts: dict[Subject, dict[str, Value]] = {
        GPU: {"mig_mode": 1, "uuid": "GPU-0"},
        HOST: {"virtual_functions": "0000:11:00.4 0000:11:00.5"},
    }
    offered = offer(known(), facts=facts)
    assert set(offered.not_managed) == {GPU.name, "0000:11:00.4", "0000:11:00.5"}
    assert PLACE in offered.roster.members


# -------------------------------------------------------------------------------------------------------- once accepted


def test_a_card_that_comes_is_said_and_not_learnt() -> None:
    """While it is provisional whoever comes is learnt; afterwards he is no member, and nobody misses him."""
    story = known()
    assert story.status(GPU, "GpuNotInBaseline") is NA
    accept(story)
    story.set(NEW, newcomer())
    (edge,) = bad(story.tick())
    assert (edge.subject, edge.type) == (NEW, "GpuNotInBaseline")
    assert story.verdict == "degraded"
    assert NEWS_PLACE not in story.state.roster.members
    story.take_out(NEW)
    assert bad(story.ticks(3)) == []
    assert story.verdict == "healthy"


def test_a_member_that_goes_is_missing_and_stays_a_member() -> None:
    """Over reboots too."""
    story = accept(known())
    after = story.restart(new_boot=True)
    after.take_out(GPU)
    after.ticks(2)
    assert after.status(GPU, "GpuMissing") is T
    assert PLACE in after.state.roster.members


def test_more_lanes_than_were_accepted_are_not_learnt() -> None:
    """It is compared with what was accepted, and with nothing else."""
    narrow = known()
    narrow.set(GPU, {"link_width": 8}).tick()
    accept(narrow, anew=True)
    narrow.set(GPU, {"link_width": 16}).ticks(5)
    assert narrow.state.roster.members[PLACE]["link_width"] == 8
    assert narrow.status(GPU, "LinkWidthBelowBaseline") is F
    wide = accept(known())
    wide.set(GPU, {"link_width": 8})
    assert [edge.type for edge in bad(wide.ticks(2))] == ["LinkWidthBelowBaseline"]


def test_a_renumbered_bus_is_the_same_card_and_one_in_another_slot_too() -> None:
    """Within a chain only the root bus counts; a card with a name of its own is followed to a place that was free."""
    story = accept(known())
    after = story.restart(new_boot=True)
    after.readings = renumbered(0x40)
    assert bad(after.ticks(2)) == []
    assert {kept["address"] for place, kept in after.state.roster.members.items() if place.kind == "gpu"} == {
        f"0000:{bus:02x}:00.0" for bus in range(0x51, 0x55)
    }
    moved = accept(known())
    card = moved.readings.pop(GPU)
    moved.set(NEW, {**card, "chain": NEWS_PLACE.name})
    moved.inventory({**{gpu: facts for gpu, facts in uuids().items() if gpu != GPU}, NEW: uuids()[GPU]})
    moved.ticks(2)
    assert moved.status(NEW, "GpuNotInBaseline") is F
    assert len([place for place in moved.state.roster.members if place.kind == "gpu"]) == len(GPUS)


def test_a_member_given_to_a_virtual_machine_is_not_lost() -> None:
    """Who it is stays accepted; whose it is is followed."""
    story = accept(known())
    story.set(GPU, {"driver": "vfio-pci", "nvml_status": Missing.ABSENT}).ticks(2)
    story.take_out(GPU)
    assert bad(story.ticks(2)) == []
    assert PLACE in story.state.roster.members


def test_beginning_anew_strikes_off_who_was_taken_out_and_ends_the_incident() -> None:
    """The three that are here are all that should be."""
    story = known().take_out(GPU)
    assert len(opened(story.tick())) == 1
    accept(story, anew=True)
    assert PLACE not in story.state.roster.members
    assert len(closed(story.ticks(4))) == 1
    assert story.verdict == "healthy"
    assert story.state.roster.accepted


def test_what_was_accepted_is_so_after_a_restart() -> None:
    """The members come back with the operator's word."""
    story = accept(known())
    later = Story(story.now, readings=story.readings)
    later.give(Restored({}, None, 1, {}, (), story.state.roster.members, {}, accepted=True))
    later.set(NEW, newcomer())
    assert [edge.type for edge in bad(later.ticks(2))] == ["GpuNotInBaseline"]
