"""When an incident opens, grows, asks for a dump, and is over."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.core.story import DRIVER, GPU, RULES, SWITCH
from xidwatch.core import incidents
from xidwatch.core.model import Condition, Incident, Moment, Severity, Status, Subject, Transition

NIGHT = Moment(wall=1_789_611_008.4, mono=3611.0)  # 2026-09-17T02:10:08.4Z
BY_TYPE = {rule.type: rule for rule in RULES}
STUCK, LOST = BY_TYPE["ProbeStuck"], BY_TYPE["GpuLost"]


def edge(subject: Subject = GPU, type_: str = "GpuLost", at: Moment = NIGHT) -> Transition:
    return Transition("t-000001", at, subject, type_, Status.FALSE, Status.TRUE, BY_TYPE[type_].severity, "seen")


def later(seconds: float, at: Moment = NIGHT) -> Moment:
    return Moment(at.wall + seconds, at.mono + seconds)


def conditions(*held: tuple[Subject, str, Status]) -> dict[tuple[Subject, str], Condition]:
    return {(subject, type_): Condition(subject, type_, status, NIGHT, "") for subject, type_, status in held}


@pytest.mark.parametrize(
    ("type_", "subject", "name"),
    [
        ("ConfigSpaceAllOnes", SWITCH, "20260917T021008Z-bus-lost-0f"),
        ("ConfigSpaceAllOnes", Subject("port", "10000:e1:00.0"), "20260917T021008Z-bus-lost-10000-e1"),
        ("GpuLost", GPU, "20260917T021008Z-gpu-lost-11"),
        ("DriverFatalXid", DRIVER, "20260917T021008Z-driver-fatal-nvidia"),
        ("ProbeStuck", Subject("probe", "nvml"), "20260917T021008Z-probe-stuck-nvml"),
        ("KernelLogGap", Subject("kernel"), "20260917T021008Z-kernel-log-gap-kernel"),
        ("GpuLost", Subject("gpu", "../../etc/x"), "20260917T021008Z-gpu-lost-etc-x"),
    ],
)
def test_an_incident_is_named_by_when_what_and_where(type_: str, subject: Subject, name: str) -> None:
    """The name is a folder's: it sorts by time, and holds nothing that could lead out of its place."""
    assert incidents.name(BY_TYPE[type_], subject, NIGHT) == name


def test_an_incident_begins_with_its_first_bad_edge() -> None:
    """Trigger, severity and first member come from that edge."""
    begun = incidents.opened(LOST, edge())
    assert (begun.began, begun.trigger, begun.severity) == (NIGHT, "t-000001", Severity.CRITICAL)
    assert begun.members == {(GPU, "GpuLost")}


def grown(begun: Incident, at: Moment, type_: str = "GpuLost", subject: Subject = GPU) -> tuple[Incident, bool]:
    return incidents.joined(begun, BY_TYPE[type_], edge(subject, type_, at))


def test_edges_within_ten_seconds_share_a_dump() -> None:
    """Even a more severe one: the dump under way sees it."""
    begun = replace(incidents.opened(STUCK, edge(Subject("probe", "nvml"), "ProbeStuck")), last_dump=NIGHT)
    joined, wants_dump = grown(begun, later(9.9))
    assert not wants_dump
    assert joined.severity is Severity.CRITICAL
    assert (GPU, "GpuLost") in joined.members


def test_a_more_severe_edge_later_on_asks_for_a_further_dump() -> None:
    """What was an error and became a loss is worth a second look; more of the same is not."""
    begun = replace(incidents.opened(STUCK, edge(Subject("probe", "nvml"), "ProbeStuck")), last_dump=NIGHT)
    assert grown(begun, later(10))[1]
    assert not grown(replace(begun, severity=Severity.CRITICAL), later(3600))[1]


def test_the_first_edge_after_a_reboot_asks_for_a_dump() -> None:
    """The last boot's evidence says nothing about a loss in this one, however long the incident has been open."""
    begun = replace(incidents.opened(LOST, edge()), last_dump=None, dumps=1)
    assert grown(begun, Moment(NIGHT.wall + 300, 20.0))[1]


OPENING = ("GpuLost", "ConfigSpaceAllOnes")


@pytest.mark.parametrize(
    ("second", "over"), [(Status.FALSE, True), (Status.NOT_APPLICABLE, True), (Status.UNKNOWN, False), (Status.TRUE, False)]
)
def test_it_is_over_when_every_member_is_seen_to_be_good(second: Status, over: bool) -> None:
    """One member that is bad, or that nobody can see, keeps it open."""
    begun = replace(incidents.opened(LOST, edge()), members=frozenset({(GPU, "GpuLost"), (SWITCH, "ConfigSpaceAllOnes")}))
    held = conditions((GPU, "GpuLost", Status.FALSE), (SWITCH, "ConfigSpaceAllOnes", second))
    assert incidents.is_over(begun, held, OPENING) is over


def test_a_member_nobody_holds_a_condition_for_keeps_it_open() -> None:
    """Forgotten is not recovered."""
    assert not incidents.is_over(incidents.opened(LOST, edge()), {}, OPENING)


def test_anything_else_that_is_bad_keeps_it_open() -> None:
    """An incident does not end in the middle of another."""
    held = conditions((GPU, "GpuLost", Status.FALSE), (SWITCH, "ConfigSpaceAllOnes", Status.TRUE))
    assert not incidents.is_over(incidents.opened(LOST, edge()), held, OPENING)


def test_a_warning_keeps_nothing_open() -> None:
    """Only what could open an incident can hold one open."""
    held = conditions((GPU, "GpuLost", Status.FALSE), (Subject("kernel"), "KernelLogGap", Status.TRUE))
    assert incidents.is_over(incidents.opened(LOST, edge()), held, OPENING)


def test_a_member_whose_rule_is_gone_holds_nothing_open() -> None:
    """After an upgrade that dropped a rule nobody would ever judge it again."""
    begun = replace(incidents.opened(LOST, edge()), members=frozenset({(GPU, "GpuLost"), (GPU, "OldRule")}))
    held = conditions((GPU, "GpuLost", Status.FALSE), (GPU, "OldRule", Status.TRUE))
    assert incidents.is_over(begun, held, OPENING)


def test_dumps_are_bounded_per_day() -> None:
    """A flapping device does not fill the disk; a day later there is room again."""
    today = tuple(NIGHT.wall - hour * 3600 for hour in range(incidents.DUMPS_PER_DAY))
    assert not incidents.may_dump(today, NIGHT)
    assert incidents.may_dump(today[1:], NIGHT)
    assert incidents.may_dump(today, later(5 * 3600))


def test_a_clock_that_was_set_back_does_not_forbid_dumps() -> None:
    """Dumps dated next year are no dumps of today; those dated a minute ahead still are."""
    next_year = (NIGHT.wall + 365 * 86_400.0,) * incidents.DUMPS_PER_DAY
    a_minute = (NIGHT.wall + 60.0,) * incidents.DUMPS_PER_DAY
    assert incidents.may_dump(next_year, NIGHT)
    assert not incidents.may_dump(a_minute, NIGHT)
