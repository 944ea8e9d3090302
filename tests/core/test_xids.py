"""Xids as data: the shipped table, and what is said about a wrong one."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest

from xidwatch.core.model import Severity
from xidwatch.core.xids import Ask, XidClass, xid_rules

RULES = xid_rules(tomllib.loads((Path(__file__).parents[2] / "rules" / "xid.toml").read_text()))
ROW = {"mnemonic": "SOMETHING", "class": "driver", "severity": "error"}

# Every number that the severity scale names, at what it stands for when the line says nothing else.
SCALE = {
    "info": (14, 29, 30, 55),
    "warning": (16, 43, 45, 56, 63, 92, 137, 156, 160, 177),
    "error": (6, 8, 12, 13, 31, 32, 38, 39, 44, 51, 61, 69, 78, 94, 108, 109, 136),
    "critical": (48, 62, 64, 79, 95, 110, 119, 120, 140, 143, 157, 161, 171, 172),
}


@pytest.mark.parametrize(("severity", "numbers"), SCALE.items())
def test_the_shipped_table_keeps_the_scale(severity: str, numbers: tuple[int, ...]) -> None:
    """The numbers of the scale are all there, at their severity."""
    assert [number for number in numbers if number not in RULES or RULES[number].severity != severity] == []


def test_the_shipped_table_knows_whom_to_suspect_and_what_is_fatal() -> None:
    """Application faults are the application's, an echo is an echo, and exactly three numbers are fatal to the driver."""
    assert {number for number, rule in RULES.items() if rule.driver_fatal} == {79, 119, 120}
    assert {number for number, rule in RULES.items() if rule.bus_lost} == {79}
    assert {RULES[number].xid_class for number in (13, 31, 43, 69)} == {XidClass.APPLICATION}
    assert RULES[45].xid_class is XidClass.ECHO
    assert all(rule.number == number and rule.mnemonic for number, rule in RULES.items())


def test_every_shipped_row_says_what_is_wanted_and_where_that_comes_from() -> None:
    """Every number that NVIDIA has named, 1 to 177."""
    assert [number for number in range(1, 178) if number not in RULES] == []
    assert [number for number, rule in RULES.items() if rule.asks is Ask.UNKNOWN or not rule.source] == []
    assert {number for number, rule in RULES.items() if rule.asks is Ask.AS_SAID} == {154}


def test_a_row_becomes_a_rule() -> None:
    """Every key of a row is kept, with defaults for the flags."""
    row = {**ROW, "driver_fatal": True, "text": {"pending": "warning", "pend": "info"}}
    rule = xid_rules({"xid": {"64": row}})[64]
    assert (rule.number, rule.mnemonic, rule.xid_class, rule.severity) == (64, "SOMETHING", XidClass.DRIVER, Severity.ERROR)
    assert (rule.driver_fatal, rule.bus_lost, rule.asks, rule.source) == (True, False, Ask.UNKNOWN, "")
    assert [rule.severity_of(text) for text in ("pending", "pend", "else")] == ["warning", "info", "error"]


@pytest.mark.parametrize(
    ("table", "path"),
    [
        ({}, "xid: expected"),
        ({"xid": 7}, "xid: expected"),
        ({"xid": {}, "sxid": {}}, "sxid: unknown"),
        ({"xid": {"79": 7}}, "xid.79: expected"),
        ({"xid": {"seventy": ROW}}, "xid.seventy: not an Xid"),
        ({"xid": {"0": ROW}}, "xid.0: not an Xid"),
        ({"xid": {"79": {**ROW, "severity": "fatal"}}}, "xid.79.severity: expected one of info, warning"),
        ({"xid": {"79": {**ROW, "severity": ["error"]}}}, "xid.79.severity: expected"),
        ({"xid": {"79": {**ROW, "class": "cosmic"}}}, "xid.79.class: expected one of application"),
        ({"xid": {"79": {"class": "link", "severity": "error"}}}, "xid.79.mnemonic: expected"),
        ({"xid": {"79": {**ROW, "driver_fatal": "yes"}}}, "xid.79.driver_fatal: expected true"),
        ({"xid": {"79": {**ROW, "asks": "prayer"}}}, "xid.79.asks: expected one of nothing"),
        ({"xid": {"79": {**ROW, "source": 7}}}, "xid.79.source: expected"),
        ({"xid": {"79": {**ROW, "text": "pending"}}}, "xid.79.text: expected"),
        ({"xid": {"79": {**ROW, "text": {"pending": "mild"}}}}, "xid.79.text.'pending': expected"),
        ({"xid": {"79": {**ROW, "colour": "red"}}}, "xid.79.colour: unknown"),
    ],
)
def test_a_wrong_table_is_refused_with_the_key_that_is_wrong(table: dict[str, object], path: str) -> None:
    """The message begins with the path of the key."""
    with pytest.raises(ValueError, match="xid") as refused:
        xid_rules(table)
    assert path in str(refused.value)


def test_everything_wrong_with_a_table_is_said_at_once() -> None:
    """Two mistakes are two lines."""
    with pytest.raises(ValueError, match="xid") as refused:
        xid_rules({"xid": {"79": {**ROW, "class": "cosmic"}, "13": {**ROW, "severity": "fatal"}}})
    assert len(str(refused.value).splitlines()) == 2
