"""Starting an engine, with a systemctl that plays a script and a page that answers as it is told."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from tests.fakes.engine import Page
from tests.fakes.systemd import DOWN, UNIT, Systemd
from xidwatch.supervise.readiness import Pages
from xidwatch.supervise.starting import STEADY_SECONDS, Start, Started

WITHIN = 20.0
UP: Mapping[str, object] = {"ActiveState": "active", "SubState": "running", "InvocationID": "bbbb", "Job": ""}
ON_ITS_WAY: Mapping[str, object] = {"ActiveState": "activating", "SubState": "start-pre", "InvocationID": "bbbb", "Job": "8"}
SKIPPED: Mapping[str, object] = {**DOWN, "Result": "exec-condition", "InvocationID": "bbbb", "Job": ""}


@pytest.fixture
def systemd(tmp_path: Path) -> Systemd:
    """The unit is down, and nothing is left of it."""
    systemd = Systemd(tmp_path)
    systemd.shows(**DOWN)
    systemd.nobody_is_left()
    return systemd


def start(systemd: Systemd, pages: Pages | None = None, *, enabled_only: bool = True) -> Started:
    return Start(systemd.service(), pages or Pages(), systemd.mono + WITHIN, systemd.monotonic, systemd.pause, enabled_only).run()


def test_it_is_started_once_and_ready_when_its_page_says_so(systemd: Systemd) -> None:
    """With the mark of the run that was started."""
    systemd.on("start", ON_ITS_WAY, UP)
    with Page() as page:
        page.says("ok")
        assert start(systemd, Pages(health=page.url)) == Started("ready", "health page: 200", "bbbb")
    assert systemd.orders == [f"start --no-block -- {UNIT}"]


def test_an_engine_that_loads_for_too_long_is_not_ready(systemd: Systemd) -> None:
    """What it said last is the reason; it is left running, for the gate to decide."""
    systemd.on("start", UP)
    with Page() as page:
        page.says("loading", status=503)
        assert start(systemd, Pages(health=page.url)) == Started("not-ready", "not within its time: health page: 503", "bbbb")


def test_one_that_cannot_be_asked_has_to_run_for_a_while(systemd: Systemd) -> None:
    """And that this is all which is known of it is said."""
    systemd.on("start", UP)
    began = systemd.mono
    started = start(systemd)
    assert (started.result, started.invocation_id) == ("ready", "bbbb")
    assert "no health, metrics or probe says where to ask it" in started.detail
    assert systemd.mono - began >= STEADY_SECONDS


def test_its_own_condition_may_refuse(systemd: Systemd) -> None:
    """Skipped is not failed."""
    systemd.on("start", ON_ITS_WAY, SKIPPED)
    started = start(systemd)
    assert (started.result, started.detail) == ("refused", "its own condition said no: inactive (dead), result exec-condition")


def test_a_restart_that_its_condition_refuses_does_not_hide_that_it_failed(systemd: Systemd) -> None:
    """It ran and ended, and systemd tried again by itself, all of it between two looks."""
    systemd.on("start", {**SKIPPED, "NRestarts": 1})
    started = start(systemd)
    assert (started.result, started.detail) == ("failed", "it is inactive (dead), result exec-condition, after a restart by systemd")


@pytest.mark.parametrize(
    "then",
    [
        {"ActiveState": "failed", "SubState": "failed", "Result": "exit-code", "ExecMainStatus": 1},
        {"ActiveState": "activating", "SubState": "auto-restart", "Result": "exit-code"},
        {"InvocationID": "cccc"},
        {"NRestarts": 1},
    ],
    ids=["it is down", "it is about to be restarted", "it is another run", "it was restarted"],
)
def test_one_that_ends_on_the_way_has_failed(systemd: Systemd, then: Mapping[str, object]) -> None:
    """However soon systemd starts it again: that is another start than the one that was granted."""
    systemd.on("start", UP, UP, then)
    assert start(systemd).result == "failed"


def test_a_start_limit_is_forgotten_first(systemd: Systemd) -> None:
    """A unit that failed too often on lost hardware would refuse to start on good one."""
    systemd.shows(ActiveState="failed", SubState="failed", Result="start-limit-hit")
    systemd.on("start", UP)
    assert start(systemd).result == "ready"
    assert systemd.orders == [f"reset-failed -- {UNIT}", f"start --no-block -- {UNIT}"]


@pytest.mark.parametrize(
    ("shown", "why"),
    [
        ({"UnitFileState": "disabled"}, "its unit is disabled"),
        ({"LoadState": "masked", "UnitFileState": "masked"}, "its unit is masked"),
        ({"LoadState": "not-found"}, "its unit is not-found"),
    ],
)
def test_what_an_operator_keeps_down_is_not_started(systemd: Systemd, shown: Mapping[str, object], why: str) -> None:
    """Whatever was decided a moment ago."""
    systemd.shows(**shown)
    assert start(systemd) == Started("failed", why)
    assert not systemd.orders


def test_a_stand_in_need_not_be_enabled(systemd: Systemd) -> None:
    """It is never to start with the host."""
    systemd.shows(UnitFileState="disabled")
    systemd.on("start", UP)
    assert start(systemd, enabled_only=False).result == "ready"


def test_nothing_is_started_beside_what_is_left_of_the_last_run(systemd: Systemd) -> None:
    """Systemd would."""
    systemd.one_is_left(waits_in="nv_wait")
    started = start(systemd)
    assert started.result == "failed"
    assert "an earlier run is not gone: process 4712" in started.detail
    assert not systemd.orders


def test_one_that_runs_already_is_adopted(systemd: Systemd) -> None:
    """A daemon that was killed in the middle of a start has a successor."""
    systemd.shows(**UP)
    started = start(systemd)
    assert (started.result, started.invocation_id) == ("ready", "bbbb")
    assert started.detail.startswith("it was running already; ")
    assert not systemd.orders


def test_an_objection_is_passed_on(systemd: Systemd) -> None:
    """As systemctl words it."""
    systemd.objects("Failed to start engine.service: Access denied")
    started = start(systemd)
    assert started.result == "failed"
    assert started.detail.startswith("Failed to start engine.service: Access denied")
