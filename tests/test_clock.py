"""Times as records print them, and the host's own clocks."""

from __future__ import annotations

import time
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from xidwatch.clock import SystemClock, from_iso, iso

WALL = 1789611008.412


def test_a_time_is_printed_as_utc_with_milliseconds() -> None:
    """Every record has the same form, whatever the host's zone."""
    assert iso(WALL) == "2026-09-17T02:10:08.412Z"
    assert iso(1789611008.0) == "2026-09-17T02:10:08.000Z"


@given(st.floats(min_value=0, max_value=4e9))
def test_printing_and_reading_lose_less_than_a_millisecond(wall: float) -> None:
    """Digits below the millisecond are cut off, never rounded into the future."""
    assert 0 <= wall - from_iso(iso(wall)) < 0.001001


@pytest.mark.parametrize("text", ["2026-09-17T02:10:08.412Z", "2026-09-17T04:10:08.412+02:00", "20260917T021008.412Z"])
def test_any_iso_time_with_a_zone_is_read(text: str) -> None:
    """Records of other programs count too."""
    assert from_iso(text) == pytest.approx(WALL, abs=1e-6)


@pytest.mark.parametrize("text", ["2026-09-17T02:10:08.412", "2026-09-17", "", "yesterday", "2026-09-17T25:00:00Z"])
def test_a_time_without_a_zone_is_no_time(text: str) -> None:
    """It would be read as local time, and an incident move by hours without a word."""
    with pytest.raises(ValueError, match=r"time zone|isoformat|hour"):
        from_iso(text)


def test_both_clocks_are_those_of_the_host() -> None:
    """The wall is UTC, the other CLOCK_MONOTONIC; the boot id is the kernel's."""
    clock = SystemClock()
    before = time.monotonic()
    now = clock.now()
    assert before <= now.mono <= time.monotonic()
    assert abs(datetime.fromtimestamp(now.wall, UTC) - datetime.now(UTC)).total_seconds() < 60
    assert len(clock.boot_id) == 36
    assert clock.boot_id == SystemClock().boot_id
