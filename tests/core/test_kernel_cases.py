"""Lines that were seen in the field, each with its honest readings (tests/data/kernel-lines.jsonl), alone and among each other.

`expect` is the reading, `also` holds others that are as honest. A `primary` line has to say it; a `companion` or a `continuation`
says nothing else than that, or nothing; a `context` or `negative` line does not alarm.
"""

from __future__ import annotations

import re
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.core.lines import CASES, RULES, message, read
from xidwatch.core.kernel import Parser
from xidwatch.core.model import KernelEvent, Severity

JUDGED = ("kind", "xid", "pci", "pid", "process", "severity")
PRIMARY = [case for case in CASES if case["role"] == "primary"]
LATER = [case for case in CASES if case["role"] in ("companion", "continuation")]
QUIET = [case for case in CASES if case["role"] in ("context", "negative")]


def said(case: dict[str, Any]) -> list[KernelEvent]:
    return read(case["records"], facility=case.get("facility", 0))


def readings(case: dict[str, Any]) -> list[dict[str, Any]]:
    return [case["expect"], *({**case["expect"], **other} for other in case.get("also", ()))]


def plain(event: KernelEvent) -> dict[str, Any]:
    values = {name: getattr(event, name) for name in JUDGED}
    return {**values, "pci": str(event.pci) if event.pci else None, "severity": str(event.severity)}


@pytest.mark.parametrize("case", PRIMARY, ids=lambda case: case["id"])
def test_an_event_is_read_as_an_honest_reader_would(case: dict[str, Any]) -> None:
    """Once; kind, number and device together by one of the readings, whom it hit and how bad it is by one of them each."""
    (event,) = said(case)
    found = plain(event)
    for names in (JUDGED[:3], JUDGED[3:5], JUDGED[5:]):
        assert [found[name] for name in names] in [[reading[name] for name in names] for reading in readings(case)]
    assert {name: getattr(event, name) for name in case.get("detail", {})} == case.get("detail", {})


@pytest.mark.parametrize("case", LATER, ids=lambda case: case["id"])
def test_what_belongs_to_an_event_is_no_other_one(case: dict[str, Any]) -> None:
    """A later line of a report says nothing, or the same sort of thing."""
    kinds = {reading["kind"] for reading in readings(case)}
    assert [event for event in said(case) if event.kind not in kinds and event.severity is not Severity.INFO] == []


@pytest.mark.parametrize("case", QUIET, ids=lambda case: case["id"])
def test_what_is_no_event_does_not_alarm(case: dict[str, Any]) -> None:
    """Chips with an XID in their name, notes, boot lines, other vendors, and what a process wrote; or by a kind that is as honest."""
    others = {other.get("kind") for other in case.get("also", ())}
    alarms = [event for event in said(case) if event.severity is not Severity.INFO and not event.injected]
    assert [event for event in alarms if event.kind not in others] == []


ADDRESS = re.compile(r"\b0000:(?=[0-9a-fA-F]{2}:[0-9a-fA-F]{2})")


WITH_ADDRESS = [case for case in PRIMARY if any(map(ADDRESS.search, case["records"]))]
AFTER = ("", "\r", "  \r", " ")


@pytest.mark.slow
@settings(max_examples=300)
@given(st.sampled_from(WITH_ADDRESS), st.integers(0, 0x1FFFF), st.sampled_from(["", " ", "  "]), st.sampled_from(AFTER))
def test_other_domains_and_blanks_change_nothing(case: dict[str, Any], domain: int, before: str, after: str) -> None:
    """An address in any domain is that address, and a blank or a carriage return around the line is not part of it."""
    moved = f"{domain:04x}:"
    found = read(f"{before}{ADDRESS.sub(moved, record)}{after}" for record in case["records"])
    expected = [plain(event) for event in said(case)]
    for reading in expected:
        reading["pci"] = reading["pci"] and ADDRESS.sub(moved, reading["pci"])
    assert [plain(event) for event in found] == expected


def test_lines_do_not_change_each_other_s_reading() -> None:
    """All of them in one log, minutes apart, say what each says alone."""
    alone = [plain(event) for case in CASES if case["id"] != "nvme-probe-neg" for event in said(case)]
    parser = Parser(RULES)
    together: list[KernelEvent] = []
    for minute, case in enumerate(case for case in CASES if case["id"] != "nvme-probe-neg"):
        for text in case["records"]:
            together += parser.feed(message(text, usec=minute * 600_000_000, facility=case.get("facility", 0)))
    together += parser.finish()
    by_text = [sorted(map(str, found)) for found in (alone, [plain(event) for event in together])]
    assert by_text[0] == by_text[1]
