"""Who is on the bus, on paper: taken out, moved, swapped, renumbered, over reboots too; links that narrow, and errors that are counted."""

from __future__ import annotations

import pytest

from tests.core.story import (
    CHAINS,
    DISK,
    DOWNSTREAM,
    GPU,
    GPUS,
    SWITCH,
    Readings,
    Story,
    asked,
    bad,
    closed,
    dumps,
    edges,
    healthy,
    learnt,
    opened,
    xid,
)
from xidwatch.core.messages import Announced, Restored
from xidwatch.core.model import HOST, ActionKind, Missing, Severity, Status, Subject, Value

T, F, U, NA = Status.TRUE, Status.FALSE, Status.UNKNOWN, Status.NOT_APPLICABLE


def known(readings: Readings | None = None) -> Story:
    """A host two ticks old, whose cards have told their UUIDs."""
    story = Story(readings=readings)
    story.ticks(2)
    story.inventory(uuids())
    return story


def uuids() -> dict[Subject, dict[str, Value]]:
    return {gpu: {"uuid": f"GPU-{number}", "serial": Missing.UNSUPPORTED} for number, gpu in enumerate(GPUS)}


def renumbered(by: int, root: str = "0000:00") -> Readings:
    """The same host after a reboot that gave every bus of the GPU side another number, or its root bus too."""
    moved: Readings = {}
    for subject, values in healthy().items():
        if subject not in CHAINS or subject == DISK:
            moved[subject] = values
            continue
        bus = int(subject.name[5:7], 16) + by
        chain = CHAINS[subject].replace("0000:00", root)
        moved[Subject(subject.kind, f"0000:{bus:02x}{subject.name[7:]}")] = {**values, "chain": chain}
    return moved


def other_half() -> Readings:
    """The GPU side a second time, in a domain of its own."""
    half = {subject: values for subject, values in renumbered(0, root="0001:00").items() if subject in CHAINS and subject != DISK}
    return {Subject(subject.kind, subject.name.replace("0000:", "0001:")): values for subject, values in half.items()}


# ---------------------------------------------------------------------------------------------------------- gone, in this boot


def test_a_gpu_that_leaves_the_list_is_missing_without_any_xid() -> None:
    """One incident, named after what was seen, with its dump; the others are as they were."""
    story = known().take_out(GPU)
    out = story.tick()
    (edge,) = bad(out)
    assert (edge.subject, edge.type, edge.severity) == (GPU, "GpuMissing", Severity.CRITICAL)
    (incident,) = opened(out)
    assert incident.incident.id.endswith("-gpu-missing-11")
    assert len(dumps(out)) == 1
    assert story.status(GPUS[1], "GpuMissing") is F
    assert story.verdict == "failed"


def test_an_announcement_asks_for_a_look_and_the_look_finds_who_is_missing() -> None:
    """Seconds before the next tick, and with the announcement as the cause."""
    story = known().take_out(GPU)
    (look,) = asked(story.give(Announced(story.now, "r-000007")), ActionKind.LOOK)
    assert look.cause == "r-000007"
    assert [(edge.subject, edge.type) for edge in bad(story.look())] == [(GPU, "GpuMissing")]
    assert bad(story.tick()) == []


def test_an_announcement_is_looked_into_although_a_kernel_line_has_just_been() -> None:
    """The look that followed the line may have come before the removal."""
    story = known()
    assert len(asked(story.kernel(xid(GPU, 79)), ActionKind.LOOK)) == 1
    assert len(asked(story.wait(0.2).give(Announced(story.now, "r-000007")), ActionKind.LOOK)) == 1


def test_a_look_that_did_not_get_to_the_end_of_the_list_misses_nobody() -> None:
    """Whom it does not name may stand behind the place where it ended."""
    story = known().take_out(GPU)
    assert edges(story.look(SWITCH, DOWNSTREAM)) == []


@pytest.mark.parametrize("why", [Missing.TIMED_OUT, Missing.ABSENT, Missing.NOT_ASKED])
def test_without_a_list_nobody_is_missing_and_nobody_is_there(why: Missing) -> None:
    """A probe that is late, a sysfs that is not there, or a list that leaves some out, is no empty machine."""
    story = known()
    for subject in CHAINS:
        story.set(subject, dict.fromkeys(story.readings[subject], why))
    story.set(HOST, {"pci_functions": why})
    assert bad(story.ticks(2)) == []
    assert {story.status(gpu, "GpuMissing") for gpu in GPUS} == {U}


def test_a_gpu_that_comes_back_is_good_after_a_minute() -> None:
    """Enumerated again at its place: the incident ends with what it was about."""
    story = known().take_out(GPU)
    story.ticks(3)
    story.mend(GPU)
    assert closed(story.ticks(2)) == []
    assert len(closed(story.ticks(2))) == 1
    assert story.status(GPU, "GpuMissing") is F


def test_a_switch_that_is_gone_gives_the_incident_its_name() -> None:
    """The port and all four GPUs below it are missing; the topmost is named."""
    story = known().take_out(SWITCH, DOWNSTREAM, *GPUS)
    out = story.tick()
    assert {edge.type for edge in bad(out)} == {"PortMissing", "GpuMissing"}
    assert [incident.incident.id[17:] for incident in opened(out)] == ["port-missing-0f"]


def test_a_drive_that_was_pulled_is_said_and_opens_nothing() -> None:
    """Drives are pulled under the running system all the time."""
    story = known().take_out(DISK)
    out = story.tick()
    assert [(edge.subject, edge.type, edge.severity) for edge in bad(out)] == [(DISK, "DriveMissing", Severity.WARNING)]
    assert opened(out) == []
    assert story.verdict == "degraded"


def test_a_port_without_gpus_below_may_go() -> None:
    """A dock that is unplugged leaves nothing behind that nobody could ever know."""
    dock = Subject("port", "0000:05:00.0")
    story = known(healthy() | {dock: {**healthy()[SWITCH], "chain": "0000:00/1c.0/00.0"}}).take_out(dock)
    assert bad(story.look()) == []
    assert bad(story.ticks(2)) == []
    assert {story.status(dock, type_) for type_ in ("PortMissing", "ConfigSpaceAllOnes", "AerFatal", "DeviceReplaced")} == {NA}
    assert story.verdict == "healthy"
    after = story.restart(new_boot=True)
    after.tick()
    after.inventory(uuids())
    assert after.verdict == "healthy"


@pytest.mark.parametrize("driver", ["vfio-pci", "nouveau", ""])
def test_a_gpu_that_the_driver_never_held_is_not_managed(driver: str) -> None:
    """Handed to a guest, or never bound: its owner may take it away."""
    readings = healthy()
    readings[GPU] |= {"driver": driver, "nvml_status": Missing.ABSENT}
    story = known(readings).take_out(GPU)
    assert bad(story.look()) == []
    assert bad(story.ticks(2)) == []
    assert story.status(GPU, "GpuMissing") is NA


def test_a_gpu_handed_over_is_no_longer_managed() -> None:
    """From the driver to a guest: bound elsewhere when it was last seen."""
    story = known().set(GPU, {"driver": "vfio-pci", "nvml_status": Missing.ABSENT})
    story.ticks(2)
    assert bad(story.take_out(GPU).ticks(2)) == []


def test_a_gpu_that_is_unbound_on_its_way_out_is_missed_all_the_same() -> None:
    """The kernel unbinds before it removes, and a look may fall between the two."""
    story = known().set(GPU, {"driver": ""})
    story.look()
    assert [edge.type for edge in bad(story.take_out(GPU).tick())] == ["GpuMissing"]


# ---------------------------------------------------------------------------------------------------------- over a reboot


def test_three_cards_where_there_were_four_are_never_the_new_normal() -> None:
    """The first tick of the next boot misses the fourth, and so do all that follow and the boots after that."""
    after = known().take_out(GPU).restart(new_boot=True)
    out = after.tick()
    assert [(edge.subject, edge.type) for edge in bad(out)] == [(GPU, "GpuMissing")]
    after.ticks(10)
    again = after.restart(new_boot=True)
    assert [edge.type for edge in bad(again.tick())] == ["GpuMissing"]


def test_a_successor_in_the_same_boot_knows_who_is_missing() -> None:
    """It was told of by nobody in this run."""
    story = known().take_out(GPU)
    story.ticks(2)
    after = story.restart()
    assert edges(after.ticks(2)) == []
    assert after.status(GPU, "GpuMissing") is T


def test_a_renumbered_bus_is_the_same_host() -> None:
    """Every address below the switch has changed, no place has: nobody is missing, and nobody is new."""
    after = known().restart(new_boot=True)
    after.readings = renumbered(0x20)
    after.ticks(3)
    assert bad(after.out) == []
    after.inventory({Subject("gpu", f"0000:{0x31 + n:02x}:00.0"): {"uuid": f"GPU-{n}"} for n in range(4)})
    assert after.verdict == "healthy"
    assert len(after.state.roster.members) == len(CHAINS)


def test_what_was_held_about_an_address_that_has_moved_applies_no_longer() -> None:
    """Or the incident of the last boot would stay open for ever, about addresses at which nobody will ever be again."""
    story = known()
    story.lose_switch().ticks(2)
    after = story.restart(new_boot=True)
    after.readings = renumbered(0x20)
    assert closed(after.tick()) == []
    assert len(closed(after.ticks(3))) == 1


def test_a_card_missing_at_an_address_that_another_has_now_is_named_by_its_place() -> None:
    """The buses closed up behind it: what answers at 0000:11:00.0 is the next card."""
    after = known().take_out(GPU).restart(new_boot=True)
    after.readings = {GPU if subject == GPUS[1] else subject: values for subject, values in after.readings.items()}
    after.tick()
    assert [str(edge.subject) for edge in bad(after.out)] == [f"gpu:{CHAINS[GPU]}"]
    assert after.status(GPU, "GpuMissing") is F


def test_below_a_root_bus_with_another_number_everything_is_where_it_was() -> None:
    """The firmware numbers root buses by what it finds; the tree below it is the same, make by make."""
    after = known().restart(new_boot=True)
    after.readings = renumbered(0, root="0000:40")
    after.ticks(3)
    assert bad(after.out) == []
    assert len(after.state.roster.members) == len(CHAINS)


def test_two_root_buses_with_the_same_tree_that_both_have_other_numbers_are_sorted_out_by_their_cards() -> None:
    """Nobody can say which is which before a card has told its UUID: until then nothing is claimed, and then nothing is missing."""
    twin = other_half()
    cards = [*GPUS, *(subject for subject in twin if subject.kind == "gpu")]
    story = Story(readings=healthy() | twin)
    story.ticks(2)
    story.inventory({card: {"uuid": f"GPU-{n}"} for n, card in enumerate(cards)})
    after = story.restart(new_boot=True)
    after.readings = renumbered(0, root="0000:40")
    after.readings |= {s: {**v, "chain": str(v["chain"]).replace("0001:00", "0001:40")} for s, v in twin.items()}
    after.ticks(2)
    assert {after.status(card, "GpuMissing") for card in cards} == {F}
    after.inventory({card: {"uuid": f"GPU-{n}"} for n, card in enumerate(cards)})
    after.ticks(2)
    assert bad(after.out) == []
    assert after.verdict == "healthy"


def test_two_root_buses_with_the_same_tree_are_two_places() -> None:
    """A chain without its root bus would take one host half for the other."""
    story = known(healthy() | other_half())
    gone = Subject("gpu", "0001:11:00.0")
    (edge,) = bad(story.take_out(gone).tick())
    assert (edge.subject, edge.type) == (gone, "GpuMissing")


def test_a_card_in_another_slot_is_not_missing_once_it_has_said_who_it_is() -> None:
    """Until its UUID is known nobody can say; then it is the same card."""
    after = known().take_out(GPU).restart(new_boot=True)
    moved = Subject("gpu", "0000:21:00.0")
    after.set(moved, {**healthy()[GPU], "chain": "0000:00/05.1/00.0"}).tick()
    assert after.status(GPU, "GpuMissing") is U
    after.inventory({**uuids(), moved: {"uuid": "GPU-0"}})
    after.tick()
    assert bad(after.out) == []
    assert after.status(GPU, "GpuMissing") is NA


def test_a_new_card_in_another_slot_does_not_stand_in_for_the_missing_one() -> None:
    """Of the same make, and somebody else."""
    after = known().take_out(GPU).restart(new_boot=True)
    moved = Subject("gpu", "0000:21:00.0")
    after.set(moved, {**healthy()[GPU], "chain": "0000:00/05.1/00.0"}).tick()
    out = after.inventory({**uuids(), moved: {"uuid": "GPU-9"}})
    assert [(edge.subject, edge.type) for edge in bad(out)] == [(GPU, "GpuMissing")]


def test_a_baseline_that_somebody_took_away_strikes_off_who_is_not_there() -> None:
    """How an operator says that it is meant so: what was held about the card applies no longer, and the incident ends."""
    story = known().take_out(GPU)
    story.ticks(2)
    after = Story(story.now, readings=story.readings)
    held = {key: tracked.condition for key, tracked in story.state.conditions.items()}
    after.give(Restored(held, story.state.incident, story.state.next_id, {}, (), None))
    after.ticks(4)
    assert after.status(GPU, "GpuMissing") is NA
    assert len(closed(after.out)) == 1


def test_a_baseline_that_could_not_be_read_strikes_nobody_off() -> None:
    """Not knowing who should be there is no proof that all is well."""
    story = known().take_out(GPU)
    story.ticks(2)
    after = Story(story.now, readings=story.readings)
    held = {key: tracked.condition for key, tracked in story.state.conditions.items()}
    after.give(Restored(held, story.state.incident, story.state.next_id, {}, (), {}))
    after.ticks(4)
    assert after.status(GPU, "GpuMissing") is U
    assert closed(after.out) == []


# ---------------------------------------------------------------------------------------------------------------- swapped


def test_a_swapped_card_is_said_with_both_names() -> None:
    """The same place, the same make, another UUID; GeForce boards have no serial."""
    after = known().restart(new_boot=True)
    after.ticks(2)
    (edge,) = bad(after.inventory({**uuids(), GPU: {"uuid": "GPU-9", "serial": Missing.UNSUPPORTED}}))
    assert (edge.subject, edge.type, edge.severity) == (GPU, "DeviceReplaced", Severity.WARNING)
    assert edge.reason == "identity 10de:2204 1043:87c5, uuid GPU-9, expected identity 10de:2204 1043:87c5, uuid GPU-0"
    assert after.status(GPU, "GpuMissing") is F
    assert after.verdict == "degraded"
    assert bad(after.ticks(5)) == []


def test_another_make_is_seen_before_the_driver_says_anything() -> None:
    """Its ids are other ones."""
    after = known().restart(new_boot=True)
    after.set(GPU, {"board": "10de:2684 1043:889a"})
    assert [(edge.subject, edge.type) for edge in bad(after.tick())] == [(GPU, "DeviceReplaced")]


def test_before_it_has_said_who_it_is_nobody_says_that_it_is_the_same() -> None:
    """After a reboot the driver may be late, or not come at all."""
    after = known().restart(new_boot=True)
    after.ticks(2)
    assert after.status(GPU, "DeviceReplaced") is U
    assert after.condition(GPU, "DeviceReplaced").missing is Missing.NOT_ASKED
    after.inventory(uuids())
    assert after.status(GPU, "DeviceReplaced") is F


def test_a_card_without_any_name_is_compared_by_its_make() -> None:
    """No driver, no UUID, ever: the ids are all there is."""
    story = Story()
    story.ticks(2)
    assert story.status(GPU, "DeviceReplaced") is F
    assert story.verdict == "healthy"


# ------------------------------------------------------------------------------------------------------------------ links


def test_a_link_that_lost_lanes_is_narrow_at_the_second_tick() -> None:
    """And good again a minute after they are back; evidence, no incident."""
    story = known().set(GPU, {"link_width": 8})
    assert bad(story.tick()) == []
    (edge,) = bad(story.tick())
    assert (edge.subject, edge.type, edge.severity) == (GPU, "LinkWidthBelowBaseline", Severity.WARNING)
    assert edge.reason == "link_width 8, expected link_width 16"
    assert opened(story.out) == []
    story.mend(GPU).ticks(3)
    assert story.status(GPU, "LinkWidthBelowBaseline") is F


def test_a_link_that_came_up_narrow_after_a_reboot_is_compared_with_the_boots_before() -> None:
    """What this boot shows first is not taken for normal."""
    after = known().set(GPU, {"link_width": 8}).restart(new_boot=True)
    assert [(edge.subject, edge.type) for edge in bad(after.ticks(2))] == [(GPU, "LinkWidthBelowBaseline")]


@pytest.mark.parametrize("values", [{"link_gts": 2.5}, {"link_gts": 2.5, "link_width": 8, "utilisation_ratio": 0.0}])
def test_what_an_idle_gpu_does_with_its_link_is_no_fault(values: dict[str, Value]) -> None:
    """It drops to the slowest speed, and may use fewer lanes."""
    story = known().set(GPU, values)
    assert bad(story.ticks(5)) == []
    assert story.verdict == "healthy"


def test_a_busy_gpu_on_few_lanes_is_narrow_at_any_speed() -> None:
    """A link in trouble may be stuck at the slowest."""
    story = known().set(GPU, {"link_gts": 2.5, "link_width": 4, "utilisation_ratio": 0.9})
    assert [edge.type for edge in bad(story.ticks(2))] == ["LinkWidthBelowBaseline"]


def narrow_at_work() -> Story:
    """A card that runs on 4 lanes of 16, seen under load."""
    story = known().set(GPU, {"link_width": 4, "utilisation_ratio": 0.9})
    assert [edge.type for edge in bad(story.ticks(2))] == ["LinkWidthBelowBaseline"]
    return story


def test_a_narrow_link_is_not_mended_by_idling() -> None:
    """The width is not judged then: what was seen under load stands, since when and why, and the host is no better for it."""
    story = narrow_at_work()
    seen = story.condition(GPU, "LinkWidthBelowBaseline")
    story.set(GPU, {"link_gts": 2.5, "utilisation_ratio": 0.0}).ticks(100)
    assert story.condition(GPU, "LinkWidthBelowBaseline") == seen
    assert story.verdict == "degraded"


def test_all_its_lanes_mend_a_narrow_link_at_any_speed() -> None:
    """Seen under load or at idle: a link does not show more lanes than work."""
    for now in ({"utilisation_ratio": 0.9}, {"link_gts": 2.5, "utilisation_ratio": 0.0}):
        story = narrow_at_work()
        story.set(GPU, {"link_gts": 2.5, "utilisation_ratio": 0.0}).ticks(5)
        story.set(GPU, {"link_width": 16, **now}).ticks(3)
        assert story.status(GPU, "LinkWidthBelowBaseline") is F
        assert story.verdict == "healthy"


def test_a_narrow_link_that_is_not_judged_now_is_remembered_by_the_next_run() -> None:
    """Within the boot; after another one it is judged anew."""
    story = narrow_at_work().set(GPU, {"link_gts": 2.5, "utilisation_ratio": 0.0})
    story.ticks(3)
    after = story.restart()
    after.ticks(3)
    assert after.status(GPU, "LinkWidthBelowBaseline") is T
    anew = story.restart(new_boot=True)
    anew.ticks(3)
    assert anew.status(GPU, "LinkWidthBelowBaseline") is NA


def test_the_upper_end_of_a_link_is_not_judged_and_the_upstream_port_of_a_switch_is() -> None:
    """One link, one condition."""
    story = known().set(DOWNSTREAM, {"link_width": 8}).set(SWITCH, {"link_width": 8})
    assert [edge.subject for edge in bad(story.ticks(2))] == [SWITCH]
    assert story.status(DOWNSTREAM, "LinkWidthBelowBaseline") is NA


@pytest.mark.parametrize("width", [0, Missing.DEVICE_LOST])
def test_a_dead_device_is_not_narrow(width: Value) -> None:
    """No link, or nobody who answers: other conditions are about that."""
    story = known().set(GPU, {"link_width": width})
    assert [edge for edge in bad(story.ticks(3)) if edge.type.startswith("Link")] == []


def test_a_link_below_what_both_ends_can_do_is_a_remark() -> None:
    """Mostly the slot is wired so: said once, and the host is none the worse for it."""
    readings = healthy()
    readings[GPU]["link_width"] = readings[GPUS[1]]["link_width"] = 8
    story = known(readings)
    lanes: dict[str, Value] = {"max_link_width": 16}
    story.inventory({gpu: told | lanes for gpu, told in uuids().items()} | {DOWNSTREAM: lanes})
    (edge,) = bad(story.ticks(4))
    assert (edge.subject, edge.type, edge.severity) == (GPU, "LinkBelowCapability", Severity.INFO)
    assert edge.reason == "link_width 8, capable_link_width 16"
    assert story.status(GPUS[1], "LinkBelowCapability") is NA
    assert story.verdict == "healthy"


def test_a_remark_that_cannot_be_made_yet_is_not_begun() -> None:
    """What a link could do is told with the inventory, after the first tick: no edges come of that."""
    story = Story()
    story.ticks(2)
    assert story.status(GPU, "LinkBelowCapability") is None
    lanes: dict[str, Value] = {"max_link_width": 16}
    assert edges(story.inventory({gpu: told | lanes for gpu, told in uuids().items()} | {DOWNSTREAM: lanes})) == []
    assert story.status(GPU, "LinkBelowCapability") is F


def test_a_slot_of_few_lanes_is_all_that_its_card_can_use() -> None:
    """Sixteen lanes on the card, eight at the port."""
    readings = healthy()
    readings[GPU]["link_width"] = 8
    story = known(readings)
    story.inventory({GPU: {"max_link_width": 16}, DOWNSTREAM: {"max_link_width": 8}})
    assert bad(story.ticks(4)) == []
    assert story.status(GPU, "LinkBelowCapability") is F


def test_a_card_that_was_swapped_for_one_with_fewer_lanes_is_compared_with_itself() -> None:
    """That it is another one is said; that it is narrow would be wrong."""
    after = known().restart(new_boot=True)
    after.set(GPU, {"board": "10de:1eb8 10de:12a2", "link_width": 8})
    assert [edge.type for edge in bad(after.ticks(4))] == ["DeviceReplaced"]


# ----------------------------------------------------------------------------------------------------------------- errors


def test_a_trickle_of_corrected_errors_is_no_fault_and_a_storm_is() -> None:
    """Ten a tick are 1,200 an hour; a thousand a tick are too many after three."""
    story = known()
    for tick in range(130):
        story.set(DOWNSTREAM, {"aer_correctable": 10 * tick}).tick()
    assert bad(story.out) == []
    for tick in range(1, 4):
        story.set(DOWNSTREAM, {"aer_correctable": 1300 + 1000 * tick}).tick()
    (edge,) = bad(story.out)
    assert (edge.subject, edge.type, edge.severity) == (DOWNSTREAM, "AerCorrectableStorm", Severity.WARNING)
    story.ticks(123)
    assert story.status(DOWNSTREAM, "AerCorrectableStorm") is F


def test_what_was_counted_before_the_watch_began_says_nothing() -> None:
    """Errors of the last hundred days, found at the first tick."""
    readings = healthy()
    readings[GPU] |= {"aer_correctable": 10**6, "aer_nonfatal": 12, "aer_fatal": 3}
    assert bad(known(readings).ticks(3)) == []


def test_a_non_fatal_error_is_said_for_an_hour_and_opens_nothing() -> None:
    """The device goes on."""
    story = known().set(GPU, {"aer_nonfatal": 1})
    (edge,) = bad(story.tick())
    assert (edge.subject, edge.type, edge.severity) == (GPU, "AerNonFatal", Severity.ERROR)
    story.ticks(118)
    assert story.status(GPU, "AerNonFatal") is T
    story.ticks(4)
    assert story.status(GPU, "AerNonFatal") is F
    assert opened(story.out) == []


ROOT = Subject("port", "0000:00:03.1")


def with_root_port() -> Story:
    port = {**healthy()[SWITCH], "chain": "0000:00/03.1", "secondary_bus": 0x0F, "aer_root_fatal": 0}
    other = {**port, "chain": "0000:00/1c.0", "secondary_bus": 0x03}
    return known(healthy() | {ROOT: port, Subject("port", "0000:00:1c.0"): other})


def test_a_fatal_error_opens_an_incident_and_does_not_stop_the_engine_by_itself() -> None:
    """Of an endpoint only the root port counts it; ten minutes later nothing of it is left but the record."""
    story = with_root_port().set(ROOT, {"aer_root_fatal": 1})
    out = story.tick()
    assert [(edge.subject, edge.type) for edge in bad(out)] == [(ROOT, "AerFatal")]
    assert [incident.incident.id[17:] for incident in opened(out)] == ["aer-fatal-00"]
    assert len(dumps(out)) == 1
    assert len(closed(story.ticks(22))) == 1


def test_a_fatal_error_below_a_port_without_gpus_is_not_about_gpus() -> None:
    """A network card's link is somebody else's business."""
    port = Subject("port", "0000:00:1c.0")
    story = with_root_port().set(port, {"aer_root_fatal": 1})
    assert bad(story.ticks(2)) == []
    assert story.status(port, "AerFatal") is NA


def test_where_the_firmware_keeps_aer_zero_errors_are_no_finding() -> None:
    """Nobody counts: it does not apply, and is not good."""
    readings = healthy()
    for subject in CHAINS:
        readings[subject]["aer_native"] = 0
    story = known(readings)
    for type_ in ("AerFatal", "AerNonFatal", "AerCorrectableStorm"):
        assert story.status(GPU, type_) is NA
    assert [edge.type for edge in bad(story.set(GPU, {"aer_nonfatal": 1}).tick())] == ["AerNonFatal"]


# -------------------------------------------------------------------------------------------------------------- baseline


def test_the_baseline_is_written_when_there_is_something_new_in_it() -> None:
    """Who is there at the first tick, who they are when they have said it, and nothing at all for hours after that."""
    story = Story()
    assert [len(found.members) for found in learnt(story.tick())] == [len(CHAINS)]
    (told,) = learnt(story.inventory(uuids()))
    assert told.members[Subject("gpu", CHAINS[GPU])]["uuid"] == "GPU-0"
    assert learnt(story.ticks(100)) == []
