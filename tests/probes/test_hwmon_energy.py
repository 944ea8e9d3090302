"""Power from counters of energy: between two looks, around their end, and never from a guess."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.fakes.hwmon import HwmonTree
from xidwatch.core.model import Missing
from xidwatch.probes.hwmon_energy import Meter, zones

RANGE_UJ = 262_143_328_850
JOULE = 1_000_000


def test_power_is_the_mean_since_the_last_look() -> None:
    """The first look has nothing to compare with: not 0."""
    meter = Meter(RANGE_UJ)
    assert meter.mean_watts(100.0, 5 * JOULE) is Missing.NOT_ASKED
    assert meter.mean_watts(130.0, 3005 * JOULE) == pytest.approx(100)
    assert meter.mean_watts(130.0, 3006 * JOULE) is Missing.NOT_ASKED  # no time has passed


def test_a_counter_starts_again_from_nothing() -> None:
    """Where it does so is known, and no draw is lost."""
    meter = Meter(RANGE_UJ)
    meter.mean_watts(0.0, RANGE_UJ - 1000 * JOULE)
    assert meter.mean_watts(30.0, 2000 * JOULE) == pytest.approx(100)


def test_a_step_back_without_a_known_end_is_no_power() -> None:
    """A driver loaded again counts from 0; the look after it is good again."""
    meter = Meter()
    meter.mean_watts(0.0, 9000 * JOULE)
    assert meter.mean_watts(30.0, 10 * JOULE) is Missing.NOT_ASKED
    assert meter.mean_watts(60.0, 3010 * JOULE) == pytest.approx(100)


def test_after_a_long_pause_nothing_is_claimed() -> None:
    """The counter may have gone around more than once."""
    meter = Meter(RANGE_UJ)
    meter.mean_watts(0.0, 0)
    assert meter.mean_watts(300.0, 3000 * JOULE) is Missing.NOT_ASKED
    assert meter.mean_watts(330.0, 6000 * JOULE) == pytest.approx(100)


def test_a_look_that_failed_is_no_beginning() -> None:
    """Its reason is handed on, and the next look starts anew."""
    meter = Meter(RANGE_UJ)
    meter.mean_watts(0.0, 0)
    assert meter.mean_watts(30.0, Missing.DENIED) is Missing.DENIED
    assert meter.mean_watts(60.0, 6000 * JOULE) is Missing.NOT_ASKED


@given(st.lists(st.integers(0, RANGE_UJ - 1), min_size=2, max_size=8))
def test_power_is_never_negative(counts: list[int]) -> None:
    """Whatever the counter shows."""
    meter = Meter(RANGE_UJ)
    for number, count in enumerate(counts):
        watts = meter.mean_watts(30.0 * number, count)
        assert isinstance(watts, Missing) or watts >= 0


def test_zones_are_called_as_they_call_themselves(tmp_path: Path) -> None:
    """A package first, what is within it under it; the same energy is not counted a second time by another way to it."""
    tree = HwmonTree(tmp_path)
    for zone, name in {
        "intel-rapl:0": "package-0",
        "intel-rapl:0:0": "core",
        "intel-rapl:1": "package-1",
        "intel-rapl:1:0": "dram",
        "intel-rapl-mmio:0": "package-0",
    }.items():
        tree.zone(zone, name, 0)
    assert [str(zone.subject) for zone in zones(tmp_path)] == [
        "chip:rapl@package-0/total",
        "chip:rapl@package-0/core",
        "chip:rapl@package-1/total",
        "chip:rapl@package-1/dram",
    ]
    assert {zone.meter.range_uj for zone in zones(tmp_path)} == {RANGE_UJ}


def test_without_a_meter_there_are_no_zones(tmp_path: Path) -> None:
    """As in most virtual machines."""
    assert zones(tmp_path) == ()
