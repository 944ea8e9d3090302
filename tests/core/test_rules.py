"""Conditions as data: what a table may say, and what the shipped one says."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from tests.core.story import RULES, XIDS
from xidwatch.core.expression import Facts
from xidwatch.core.learning import LEARNT, LEARNT_OF_RAILS, REMEMBERED
from xidwatch.core.model import Missing, Severity, Status, Value
from xidwatch.core.rules import Rule, RulesError, judge, load, seconds

ROW: dict[str, object] = {"about": "port", "when": "config_dword0 == 0xffffffff", "severity": "critical", "source": "PCI"}


def rule(**changes: object) -> Rule:
    (only,) = load({"SomethingBad": {**ROW, **changes}})
    return only


def problems(table: Mapping[str, object]) -> list[str]:
    with pytest.raises(RulesError) as caught:
        load(table)
    return caught.value.problems


def judged(chosen: Rule, kind: str, now: dict[str, Value], expected: dict[str, Value] | None = None) -> Status:
    return judge(chosen, kind, Facts(now, expected or {})).status


# -------------------------------------------------------------------------------------------------------- durations


@pytest.mark.parametrize(
    ("text", "expected"),
    [("0s", 0), ("500ms", 0.5), ("30s", 30), ("1.5s", 1.5), ("10m", 600), ("2h", 7200), ("400d", 34_560_000)],
)
def test_a_duration_carries_its_unit(text: str, expected: float) -> None:
    """Milliseconds to days, in seconds."""
    assert seconds(text) == pytest.approx(expected)


@pytest.mark.parametrize("text", ["", "30", "s", "30 s", "-1s", "30S", "1e3s", "30s\n", " 30s", "3.s", "٣s", "1h30m", "9" * 400 + "d"])
def test_anything_else_is_no_duration(text: str) -> None:
    """A number without its unit is refused, and so is everything that only looks like one."""
    with pytest.raises(ValueError, match="is not a duration"):
        seconds(text)


# ----------------------------------------------------------------------------------------------------------- a table


def test_a_row_needs_no_more_than_what_it_is_about() -> None:
    """What is left out gets the value that does the least."""
    plain = rule()
    assert (plain.hold_seconds, plain.clear_seconds, plain.opens_incident, plain.stops_engine) == (0.0, None, False, False)
    assert (plain.label, plain.severity) == ("something-bad", Severity.CRITICAL)


def test_a_row_may_say_everything() -> None:
    """Every key has its place in the rule."""
    full = rule(
        about=["gpu", "port"],
        when={"gpu": "nvml_status == 15", "port": "secondary_bus == 0"},
        only_if='driver == "nvidia"',
        stays=True,
        hold="45s",
        clear="10m",
        opens_incident=True,
        stops_engine=True,
        label="bus-lost",
        advice="Look.",
        fixture="night",
        tells=["driver"],
    )
    assert set(full.when) == {"gpu", "port"}
    assert (full.hold_seconds, full.clear_seconds, full.opens_incident, full.stops_engine) == (45.0, 600.0, True, True)
    assert (full.label, full.advice, full.fixture, full.source) == ("bus-lost", "Look.", "night", "PCI")
    assert (full.tells, full.stays) == (("driver",), True)


def test_every_problem_is_told_at_once_and_with_its_path() -> None:
    """Who edits the rules corrects them in one go, not one restart per mistake."""
    found = problems({
        "lower_case": ROW,
        "NotATable": 5,
        "Empty": {},
        "AllWrong": {
            "about": ["port", "gpx"],
            "when": "config_dword == 1 and expected.comand == 2",
            "only_if": "len(driver) > 1",
            "severity": "fatal",
            "source": 7,
            "hold": 30,
            "clear": "soon",
            "opens_incident": "false",
            "label": "../../etc",
            "tells": ["wattage", 5],
            "whem": "",
        },
        "Halved": {**ROW, "about": ["port", "gpu"], "when": {"port": "secondary_bus == 0"}},
        "Constant": {**ROW, "when": "1"},
        "NoText": {**ROW, "when": 1},
    })  # fmt: skip
    paths = [problem.partition(": ")[0] for problem in found]
    assert paths == [
        "lower_case",
        "NotATable",
        "Empty.about", "Empty.when", "Empty.severity", "Empty.source",
        "AllWrong.whem", "AllWrong.about", "AllWrong.when", "AllWrong.when", "AllWrong.severity", "AllWrong.only_if",
        "AllWrong.source", "AllWrong.hold", "AllWrong.clear", "AllWrong.opens_incident", "AllWrong.label",
        "AllWrong.tells", "AllWrong.tells",
        "Halved.when",
        "Constant.when",
        "NoText.when",
    ]  # fmt: skip
    assert "no quantity is called 'comand'" in "\n".join(found)
    assert "'config_dword'" in "\n".join(found)


def test_the_error_prints_all_its_problems() -> None:
    """One line each, as an operator reads them."""
    with pytest.raises(RulesError) as caught:
        load({"A": 1, "B": 2})
    assert str(caught.value) == "A: expected a table\nB: expected a table"


# ------------------------------------------------------------------------------------------------------- a judgement


def test_a_reason_tells_what_else_is_to_be_told_if_there_is_anything() -> None:
    """An empty reading and a missing one are no news."""
    chosen = rule(about="probe", when="answering == 0", tells=["at", "took_ms"])
    facts: dict[str, Value] = {"answering": 0, "at": "chip:nct6798@platform/nct6775.656", "took_ms": Missing.NOT_ASKED}
    assert judge(chosen, "probe", Facts(facts, {})).reason == "answering 0, at chip:nct6798@platform/nct6775.656"
    assert judge(chosen, "probe", Facts({"answering": 1, "at": ""}, {})).reason == "answering 1"


def test_where_the_precondition_is_false_the_rule_does_not_apply() -> None:
    """A GPU given to a virtual machine is not lost to the driver."""
    chosen = rule(about="gpu", when="nvml_status == 15", only_if='driver == "nvidia"')
    assert judged(chosen, "gpu", {"driver": "vfio-pci", "nvml_status": 15}) is Status.NOT_APPLICABLE
    assert judged(chosen, "gpu", {"driver": "nvidia", "nvml_status": 15}) is Status.TRUE


def test_a_precondition_that_cannot_be_told_silences_no_alarm() -> None:
    """A probe that does not answer must not make a lost GPU inapplicable."""
    chosen = rule(about="gpu", when="nvml_status == 15", only_if='driver == "nvidia"')
    assert judged(chosen, "gpu", {"driver": Missing.TIMED_OUT, "nvml_status": 15}) is Status.TRUE


RESET = {"about": "gpu", "when": "command == 0 and expected.command != 0", "only_if": "driver == expected.driver"}
WHOLE: dict[str, Value] = {"command": 0x0406, "driver": "nvidia"}


@pytest.mark.parametrize("lacking", ["command", "driver"])
@pytest.mark.parametrize("lack", [None, Missing.NOT_ASKED, Missing.UNSUPPORTED])
def test_what_has_nothing_to_be_compared_with_is_not_called_good(lacking: str, lack: Missing | None) -> None:
    """Nobody has learnt what it should be: not bad, and never counted as looked at and good."""
    learnt = {**{name: value for name, value in WHOLE.items() if name != lacking}, **({lacking: lack} if lack else {})}
    said = judge(rule(**RESET), "gpu", Facts(WHOLE, learnt))
    assert (said.status, said.missing) == (Status.NOT_APPLICABLE, lack or Missing.NOT_ASKED)
    assert judged(rule(**RESET), "gpu", WHOLE, WHOLE) is Status.FALSE
    assert judged(rule(**RESET), "gpu", {**WHOLE, "command": 0}, WHOLE) is Status.TRUE


def test_an_unknown_precondition_does_not_hide_what_is_bad() -> None:
    """Where only the driver of before is not known, a register that was cleared is one."""
    assert judged(rule(**RESET), "gpu", {**WHOLE, "command": 0}, {"command": 0x0406}) is Status.TRUE


def test_what_the_hardware_cannot_report_does_not_apply() -> None:
    """UNSUPPORTED is no gap that somebody might fill."""
    said = judge(rule(), "port", Facts({"config_dword0": Missing.UNSUPPORTED}, {}))
    assert (said.status, said.missing) == (Status.NOT_APPLICABLE, Missing.UNSUPPORTED)


def test_a_judgement_shows_what_it_is_based_on() -> None:
    """The reason prints the readings as people write them: hexadecimal where that is usual, and gaps with their reason."""
    reset = rule(about="gpu", when="(command & 0x6) == 0 and (expected.command & 0x6) != 0")
    assert judge(reset, "gpu", Facts({"command": 0}, {"command": 0x507})).reason == "command 0000, expected command 0507"
    assert judge(rule(), "port", Facts({"config_dword0": 0xFFFFFFFF}, {})).reason == "config_dword0 ffffffff"
    assert judge(rule(), "port", Facts({}, {})).reason == "config_dword0 missing (NOT_ASKED)"
    assert judge(rule(when='driver == ""'), "port", Facts({"driver": ""}, {})).reason == "driver empty"


# ------------------------------------------------------------------------------------------------- the shipped table

Shown = tuple[dict[str, Value], dict[str, Value], dict[str, Value], dict[str, Value]]

OF_EVERY_FUNCTION: dict[str, Shown] = {
    "DeviceReplaced": (
        {"identity": "10de:2204, uuid GPU-2"}, {"identity": "10de:2204, uuid GPU-1"}, {"identity": Missing.NOT_ASKED},
        {"identity": "10de:2204, uuid GPU-1"},
    ),
    "LinkWidthBelowBaseline": (
        {"link_width": 8, "link_gts": 16.0, "link_end": "lower"}, {"link_width": 16, "link_gts": 2.5, "link_end": "lower"},
        {"link_width": Missing.DEVICE_LOST, "link_gts": Missing.DEVICE_LOST, "link_end": "lower"}, {"link_width": 16},
    ),
    "LinkBelowCapability": (
        {"link_width": 8, "link_gts": 16.0, "link_end": "lower", "capable_link_width": 16},
        {"link_width": 8, "link_gts": 16.0, "link_end": "lower", "capable_link_width": 8},
        {"link_width": 8, "link_gts": 16.0, "link_end": "lower", "capable_link_width": Missing.NOT_ASKED}, {},
    ),
    "AerCorrectableStorm": (
        {"aer_native": 1, "aer_correctable_1h": 2001}, {"aer_native": 1, "aer_correctable_1h": 2000},
        {"aer_native": 1, "aer_correctable_1h": Missing.TIMED_OUT}, {},
    ),
    "AerNonFatal": (
        {"aer_native": 1, "aer_nonfatal_new": 1}, {"aer_native": 1, "aer_nonfatal_new": 0},
        {"aer_native": 1, "aer_nonfatal_new": Missing.TIMED_OUT}, {},
    ),
    "AerFatal": (
        {"aer_native": 1, "aer_fatal_new": 1, "aer_root_fatal_new": Missing.UNSUPPORTED},
        {"aer_native": 1, "aer_fatal_new": 0, "aer_root_fatal_new": Missing.UNSUPPORTED},
        {"aer_native": 1, "aer_fatal_new": Missing.TIMED_OUT, "aer_root_fatal_new": Missing.UNSUPPORTED}, {},
    ),
}  # fmt: skip

# For every shipped rule and kind: readings that make it TRUE, FALSE and UNKNOWN, and what was learnt.
SHIPPED: dict[tuple[str, str], Shown] = {
    **{
        ("ConfigSpaceAllOnes", kind): (
            {"config_dword0": 0xFFFFFFFF},
            {"config_dword0": 0x220410DE},
            {"config_dword0": Missing.BEHIND_DEAD_PARENT},
            {},
        )
        for kind in ("port", "gpu", "nvme")
    },
    ("ConfigSpaceReset", "port"): (
        {"secondary_bus": 0, "driver": "pcieport"},
        {"secondary_bus": 16, "driver": "pcieport"},
        {"secondary_bus": Missing.DEVICE_LOST, "driver": "pcieport"},
        {"secondary_bus": 16, "driver": "pcieport"},
    ),
    **{
        ("ConfigSpaceReset", kind): (
            {"command": 0x0400, "driver": driver},
            {"command": 0x0406, "driver": driver},
            {"command": Missing.ASLEEP, "driver": driver},
            {"command": 0x0406, "driver": driver},
        )
        for kind, driver in (("gpu", "nvidia"), ("nvme", "nvme"))
    },
    ("GpuLost", "gpu"): (
        {"driver": "nvidia", "bus_lost_lines": 1, "nvml_status": Missing.NOT_ASKED},
        {"driver": "nvidia", "bus_lost_lines": 0, "nvml_status": 0},
        {"driver": "nvidia", "bus_lost_lines": 0, "nvml_status": Missing.TIMED_OUT},
        {},
    ),
    ("GpuMissing", "gpu"): ({"managed": 1, "present": 0}, {"managed": 1, "present": 1}, {"managed": 1, "present": Missing.TIMED_OUT}, {}),
    ("GpuNotInBaseline", "gpu"): (
        {"managed": 1, "in_baseline": 0},
        {"managed": 1, "in_baseline": 1},
        {"managed": 1, "in_baseline": Missing.TIMED_OUT},
        {},
    ),
    ("PortMissing", "port"): ({"gpus_below": 4, "present": 0}, {"gpus_below": 4, "present": 1}, {"gpus_below": 4}, {}),
    ("DriveMissing", "nvme"): ({"present": 0}, {"present": 1}, {"present": Missing.TIMED_OUT}, {}),
    **{(type_, kind): readings for kind in ("port", "gpu", "nvme") for type_, readings in OF_EVERY_FUNCTION.items()},
    **{
        ("DriverFatalXid", kind): ({"driver_fatal_lines": 2}, {"driver_fatal_lines": 0}, {"driver_fatal_lines": Missing.DENIED}, {})
        for kind in ("gpu", "driver")
    },
    ("RailOutOfRange", "rail"): (
        {"volts": 11.04, "nominal_volts": 12.0, "tolerance_ratio": 0.05},
        {"volts": 11.52, "nominal_volts": 12.0, "tolerance_ratio": 0.05},
        {"volts": Missing.TIMED_OUT, "nominal_volts": 12.0, "tolerance_ratio": 0.05},
        {},
    ),
    ("RailGone", "rail"): ({"present": 0}, {"present": 1}, {"present": Missing.TIMED_OUT}, {"present": 1}),
    ("ProbeStuck", "probe"): ({"stuck_seconds": 3.5}, {"stuck_seconds": 0.0}, {}, {}),
    ("ProbeNotAnswering", "probe"): ({"answering": 0}, {"answering": 1}, {}, {}),
    ("KernelLogGap", "kernel"): ({"gap_records": 311}, {"gap_records": 0}, {"gap_records": Missing.ABSENT}, {}),
}  # fmt: skip


def _shipped() -> list[tuple[Rule, str]]:
    return [(chosen, kind) for chosen in RULES for kind in chosen.when]


@pytest.mark.parametrize(("chosen", "kind"), _shipped(), ids=lambda part: part.type if isinstance(part, Rule) else part)
def test_every_shipped_rule_can_say_yes_no_and_unknown(chosen: Rule, kind: str) -> None:
    """A rule that cannot become TRUE watches nothing; one that cannot become UNKNOWN takes silence for health."""
    bad, good, gone, learnt = SHIPPED[chosen.type, kind]
    assert judged(chosen, kind, bad, learnt) is Status.TRUE
    assert judged(chosen, kind, good, learnt) is Status.FALSE
    assert judged(chosen, kind, gone, learnt) is Status.UNKNOWN
    assert judged(chosen, kind, {}, {}) is Status.UNKNOWN


def test_the_shipped_rules_are_the_ones_that_are_promised() -> None:
    """Six conditions from the first day; each critical one opens an incident and stops an engine, each has its source."""
    assert {chosen.type for chosen in RULES} >= {
        "ConfigSpaceAllOnes", "ConfigSpaceReset", "GpuLost", "DriverFatalXid", "ProbeStuck", "KernelLogGap",
    }  # fmt: skip
    for chosen in RULES:
        assert chosen.source
        assert chosen.advice.endswith(".")
        if chosen.severity is Severity.CRITICAL:
            assert chosen.opens_incident
            assert chosen.stops_engine


def test_what_a_shipped_rule_expects_is_learnt() -> None:
    """`expected.NAME` of a quantity that nobody learns would be unknown for ever."""
    for chosen, kind in _shipped():
        learnt = set(LEARNT_OF_RAILS if kind == "rail" else LEARNT + REMEMBERED)
        assert set(chosen.when[kind].expected) <= learnt
        assert not chosen.only_if or set(chosen.only_if.expected) <= learnt


@pytest.mark.parametrize("status", [Missing.UNSUPPORTED, Missing.NOT_ASKED, 0])
def test_a_line_of_the_driver_is_enough_for_a_lost_gpu(status: Value) -> None:
    """NVML need not say it too: after such a line it is not asked any more."""
    (lost,) = (chosen for chosen in RULES if chosen.type == "GpuLost")
    assert judged(lost, "gpu", {"bus_lost_lines": 1, "nvml_status": status}) is Status.TRUE


def test_a_source_that_says_it_has_nothing_is_neither_bad_nor_good() -> None:
    """No driver library, or not asked: no source that does not answer, and none that does; one that was silent has not recovered so."""
    (silent,) = (chosen for chosen in RULES if chosen.type == "ProbeNotAnswering")
    assert silent.stays
    assert judged(silent, "probe", {"success": 0, "answering": 1, "at": ""}) is Status.NOT_APPLICABLE
    assert judged(silent, "probe", {"success": 1, "answering": 1}) is Status.FALSE
    assert judged(silent, "probe", {"success": 1, "answering": 0}) is Status.TRUE


def test_a_gpu_that_asks_for_a_reset_is_lost() -> None:
    """NVML error 16 as well as 15."""
    (lost,) = (chosen for chosen in RULES if chosen.type == "GpuLost")
    for status in (15, 16):
        assert judged(lost, "gpu", {"driver": "nvidia", "bus_lost_lines": 0, "nvml_status": status}) is Status.TRUE


def test_the_fatal_xids_are_the_documented_ones() -> None:
    """79, 119 and 120 by number; 154 by what it asks for."""
    assert {number for number, row in XIDS.items() if row.driver_fatal} == {79, 119, 120}
    assert {number for number, row in XIDS.items() if row.bus_lost} == {79}
