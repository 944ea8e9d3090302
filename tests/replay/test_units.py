"""The units of a fixture, as the real readers of systemd, of control groups and of pages find them."""

from __future__ import annotations

from pathlib import Path

import pytest

from xidwatch.core.loopback import Endpoint
from xidwatch.core.model import Missing
from xidwatch.probes import engine_metrics, engine_processes, engine_units
from xidwatch.replay.clock import VirtualClock
from xidwatch.replay.script import Words, lines
from xidwatch.replay.units import Units

UNIT = "vllm.service"
GPUS = ("0000:11:00.0", "0000:12:00.0")
PAGE = Endpoint.parse("http://127.0.0.1:8000/metrics")


def words(text: str) -> Words:
    (line,) = lines(text, "timeline.txt")
    return line


@pytest.fixture
def clock() -> VirtualClock:
    """Ten seconds after boot."""
    clock = VirtualClock("boot", 0.0)
    clock.go_to(10.0)
    return clock


@pytest.fixture
def units(tmp_path: Path, clock: VirtualClock) -> Units:
    """One engine on two GPUs: a front end and two workers."""
    units = Units(tmp_path)
    units.add(words(f"unit {UNIT} pids=100,101,102"), GPUS)
    units.begin(clock)
    return units


def shown(units: Units, mono: float = 10.0) -> dict[str, object]:
    """As the engine probe reads it."""
    text = units.systemctl(engine_units.question("systemctl", [UNIT])).decode()
    return dict(engine_units.readings(engine_units.blocks(text)[UNIT], mono))


def order(units: Units, verb: str) -> bytes:
    return units.systemctl(["systemctl", verb, "--no-block", "--", UNIT])


def pids(units: Units) -> list[int]:
    group = engine_processes.find(units.cgroup_root, UNIT)
    return engine_processes.read(group, units.proc_root).pids if group else []


def test_after_a_boot_nothing_has_run(units: Units) -> None:
    """Enabled, inactive, and systemd knows of no run and of no change."""
    found = shown(units)
    assert (found["unit_file_state"], found["active_state"]) == ("enabled", "inactive")
    assert (found["invocation_id"], found["state_seconds"]) == (Missing.ABSENT, Missing.ABSENT)
    assert pids(units) == []


def test_what_runs_has_processes_and_the_last_of_them_sit_on_its_gpus(units: Units) -> None:
    """The front end computes nothing."""
    units.tell(words(f"{UNIT} active requests_running=3 kv_cache=0.5"))
    assert shown(units)["active_state"] == "active"
    assert pids(units) == [100, 101, 102]
    assert [units.holders(gpu) for gpu in GPUS] == [[101], [102]]
    page = engine_metrics.read(units.pages({UNIT: PAGE}, 0.0)[UNIT].body)
    assert (page.server, page.values["requests_running"], page.values["kv_cache_usage_ratio"]) == ("vllm", 3, 0.5)


def test_an_engine_is_active_at_once_and_serves_later(units: Units, clock: VirtualClock) -> None:
    """Forty seconds unless the fixture says otherwise; another run has another id and other numbers."""
    units.tell(words(f"{UNIT} active"))
    first = shown(units)["invocation_id"]
    units.tell(words(f"{UNIT} stopped"))
    order(units, "start")
    assert shown(units)["active_state"] == "active"
    assert shown(units)["invocation_id"] != first
    assert pids(units) == [1100, 1101, 1102]
    assert not units.serves(UNIT)
    assert units.pages({UNIT: PAGE}, 0.0)[UNIT].status is Missing.ABSENT
    clock.go_to(50.0)
    assert units.serves(UNIT)


def test_a_stop_takes_its_time(units: Units, clock: VirtualClock) -> None:
    """Until then it is deactivating; afterwards nobody is left."""
    units.tell(words(f"{UNIT} active"))
    order(units, "stop")
    clock.go_to(11.9)
    assert (shown(units)["active_state"], len(pids(units))) == ("deactivating", 3)
    clock.go_to(12.0)
    assert (shown(units)["active_state"], shown(units)["result"]) == ("inactive", "success")
    assert (pids(units), units.holders(GPUS[0])) == ([], [])


def test_who_ignores_term_is_killed_by_systemd(units: Units, clock: VirtualClock) -> None:
    """After its own ninety seconds."""
    units.tell(words(f"{UNIT} active"))
    units.temper(words(f"{UNIT} ignores-stop"))
    order(units, "stop")
    clock.go_to(99.0)
    assert shown(units)["active_state"] == "deactivating"
    clock.go_to(100.0)
    assert (shown(units)["active_state"], shown(units)["result"], pids(units)) == ("failed", "timeout", [])


def test_a_worker_may_outlive_the_stop_and_only_a_boot_ends_it(units: Units, clock: VirtualClock) -> None:
    """In uninterruptible sleep, in the unit's group and on its GPU."""
    units.tell(words(f"{UNIT} active"))
    units.temper(words(f"{UNIT} leftovers stop=5s"))
    order(units, "stop")
    clock.go_to(15.0)
    assert shown(units)["active_state"] == "failed"
    group = engine_processes.find(units.cgroup_root, UNIT)
    assert group is not None
    assert engine_processes.read(group, units.proc_root).processes_uninterruptible == 1
    assert [units.holders(gpu) for gpu in GPUS] == [[], [102]]
    units.begin(VirtualClock("another", 0.0))
    assert (pids(units), units.holders(GPUS[1])) == ([], [])


def test_its_gate_is_asked_before_every_start(units: Units) -> None:
    """Closed, systemd leaves the unit out and says that its own condition did not hold."""
    units.may_start = lambda _unit: False
    units.tell(words(f"{UNIT} start"))
    assert (shown(units)["active_state"], shown(units)["result"], pids(units)) == ("inactive", "exec-condition", [])
    units.tell(words(f"{UNIT} start gate=no"))
    assert shown(units)["active_state"] == "inactive"
    units.tell(words(f"{UNIT} start"))
    assert shown(units)["active_state"] == "active"


def test_a_start_may_fail(units: Units, clock: VirtualClock) -> None:
    """A few seconds in; what it was is forgotten on demand."""
    units.temper(words(f"{UNIT} fails-to-start"))
    order(units, "start")
    clock.go_to(15.0)
    assert (shown(units)["active_state"], shown(units)["exit_status"]) == ("failed", 1)
    order(units, "reset-failed")
    assert shown(units)["active_state"] == "inactive"


def test_a_unit_that_is_not_there_is_not_found(units: Units) -> None:
    """As systemd says it, which fails no call."""
    text = units.systemctl(["systemctl", "show", "--", "other.service"]).decode()
    assert engine_units.blocks(text)["other.service"]["LoadState"] == "not-found"
    assert units.systemctl(["systemctl", "start", "--", "other.service"]) == b"Unit other.service not found."


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("other.service active", "no `unit other.service` in host.txt"),
        (f"{UNIT} gone", "gone: a unit can be active"),
        (f"{UNIT} requests=3", "requests: not known; a unit has"),
    ],
)
def test_a_mistake_about_a_unit_is_told(units: Units, line: str, told: str) -> None:
    """With what would be right."""
    with pytest.raises(ValueError, match=told):
        units.tell(words(line))


@pytest.mark.parametrize(("line", "told"), [(f"{UNIT} angry", "an engine can be well"), (f"{UNIT} pause=3s", "there are start and stop")])
def test_a_mistake_about_an_engine_is_told(units: Units, line: str, told: str) -> None:
    """With what would be right."""
    with pytest.raises(ValueError, match=told):
        units.temper(words(line))
