"""Texts about events, and what xidwatch does, which nobody writes down."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest

from xidwatch.core.explanations import Explanation, conduct, explanations
from xidwatch.core.model import KernelEvent, Severity
from xidwatch.core.rules import load
from xidwatch.core.xids import xid_rules

FOLDER = Path(__file__).parents[2] / "rules"
SHIPPED = explanations(tomllib.loads((FOLDER / "explain.toml").read_text()))
XIDS = xid_rules(tomllib.loads((FOLDER / "xid.toml").read_text()))
CONDITIONS = load(tomllib.loads((FOLDER / "conditions.toml").read_text()))
KINDS = (
    "xid", "sxid", "aer", "dpc", "pciehp", "gsp", "uvm_fatal", "nvrm_init_fail", "nvme", "mce", "edac", "ghes", "lockup", "rcu",
    "hung_task", "power_state",
)  # fmt: skip
RICH = (8, 13, 31, 32, 38, 43, 45, 48, 61, 62, 63, 64, 68, 69, 74, 79, 92, 94, 95, 109, 110, 119, 120, 136, 137, 140, 143, 145, 149, 154)


def event(kind: str, *, xid: int | None = None, fatal: bool = False, lost: bool = False, injected: bool = False) -> KernelEvent:
    return KernelEvent(1, 1, kind, Severity.ERROR, "x", xid=xid, driver_fatal=fatal, bus_lost=lost, injected=injected)


def test_everything_that_can_be_said_is_explained() -> None:
    """Every Xid of the table, every unit of the switch, every kind; no row is about a number that no table knows."""
    assert [number for number in XIDS if SHIPPED.of_number("xid", number) is None] == []
    assert [first for first, last, _ in SHIPPED.numbered["xid"] if not all(number in XIDS for number in range(first, last + 1))] == []
    assert [unit for unit in range(10, 31) if SHIPPED.of_number("sxid", unit * 1000 + 1) is None] == []
    assert sorted(SHIPPED.kinds) == sorted(KINDS)
    every = [text for rows in SHIPPED.numbered.values() for _, _, text in rows] + list(SHIPPED.kinds.values())
    assert all(text.meaning.endswith(".") for text in every)


def test_what_matters_most_says_where_to_look() -> None:
    """Causes and checks, not only a meaning."""
    told = {number: SHIPPED.of_number("xid", number) for number in RICH}
    assert [number for number, text in told.items() if not (text and text.check and (text.causes or number == 154))] == []


def test_a_row_of_its_own_wins_over_a_range() -> None:
    """And the narrower range over the wider; what no row holds is not known."""
    table = {"xid": {"1-100": {"meaning": "wide"}, "10-19": {"meaning": "narrow"}, "15": {"meaning": "own"}}}
    texts = explanations(table)
    assert [texts.of_number("xid", number) for number in (5, 12, 15, 101)] == [
        Explanation("wide"), Explanation("narrow"), Explanation("own"), None,
    ]  # fmt: skip
    assert texts.of_number("sxid", 5) is None


@pytest.mark.parametrize(
    ("table", "problem"),
    [
        ({"xyz": {}}, "xyz: unknown key (known here: xid, sxid, kind)"),
        ({"xid": 7}, "xid: expected a table of rows"),
        ({"xid": {"79": "gone"}}, "xid.79: expected a table"),
        ({"xid": {"seven": {}}}, "xid.seven: neither a number nor a range"),
        ({"sxid": {"20-10": {}}}, "sxid.20-10: neither a number nor a range"),
        ({"kind": {"aer": {"meening": "x"}}}, "kind.aer.meening: unknown key (known here: meaning, is_not, causes, check)"),
        ({"xid": {"79": {"meaning": 7}}}, "xid.79.meaning: expected a text"),
        ({"xid": {"79": {"causes": "cable"}}}, "xid.79.causes: expected a list of texts"),
        ({"xid": {"79": {"check": [7]}}}, "xid.79.check: expected a list of texts"),
    ],
)
def test_a_wrong_table_is_refused_with_the_key_that_is_wrong(table: dict[str, object], problem: str) -> None:
    """The message begins with its path."""
    with pytest.raises(ValueError, match=r"expected|unknown|neither") as refused:
        explanations(table)
    assert str(refused.value).startswith(problem)


def test_what_xidwatch_does_follows_from_flags_and_conditions() -> None:
    """A loss makes what looks at losses true; without such a condition nothing is claimed."""
    loss = event("xid", xid=79, fatal=True, lost=True)
    said = " ".join(conduct(loss, CONDITIONS))
    for part in (
        "counts it by GPU and number",
        "GpuLost becomes true: opens an incident",
        "DriverFatalXid becomes true",
        "NVML is not asked",
    ):
        assert part in said
    without = " ".join(conduct(loss, [rule for rule in CONDITIONS if rule.type not in ("GpuLost", "DriverFatalXid")]))
    assert "becomes true" not in without
    assert "opens no incident" in without


def test_what_nobody_acts_on_is_only_written_down() -> None:
    """An application's Xid, a lockup, a forged line; a port that speaks is looked at."""
    assert conduct(event("xid", xid=31), CONDITIONS) == [
        "It writes the line into its journal and counts it by GPU and number.",
        "By itself it opens no incident and touches no engine.",
    ]
    assert "configuration space" not in " ".join(conduct(event("lockup"), CONDITIONS))
    assert "configuration space" in " ".join(conduct(event("pciehp"), CONDITIONS))
    assert len(conduct(event("xid", xid=79, injected=True), CONDITIONS)) == 1
