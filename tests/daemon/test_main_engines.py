"""Engines in the real daemon: what is told of them reaches every view, and what hangs costs its own readings only."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.daemon.harness import Rig, Running, answered, missing_reasons, settled
from tests.fakes.engine import INVOCATION, EngineHost, Page

INTERVAL_SECONDS = 1.0
UNIT, SUBJECT = "vllm.service", "engine:vllm.service"
VLLM = (Path(__file__).resolve().parents[2] / "fixtures/engine-metrics/vllm.txt").read_text()
GPUS = [f"0000:{0x11 + n:02x}:00.0" for n in range(4)]
WORKERS = [[4711], [4712], [9999], []]  # of another engine on the third, nobody on the fourth

pytestmark = pytest.mark.slow


@pytest.fixture
def rig(tmp_path: Path) -> Iterator[Rig]:
    with Rig(tmp_path) as rig:
        yield rig


@pytest.fixture
def host(rig: Rig) -> EngineHost:
    host = EngineHost(rig.folder / "engines")
    for pid in (4711, 4712):
        host.process(pid)
    host.unit(UNIT, [4711, 4712])
    return host


@pytest.fixture
def page() -> Iterator[Page]:
    with Page() as page:
        page.says(VLLM)
        yield page


def start(rig: Rig, host: EngineHost, page: Page, lost: tuple[int, ...] = ()) -> Running:
    engines = [{"unit": UNIT, "metrics": page.url}]
    probe = rig.engine({**host.options, "engines": engines})
    rig.steer(pids=WORKERS, lost=lost)
    quick = rig.rules(ProbeStuck={"hold": "1s"})
    return rig.start(rig.nvml(), rig.host(), probe, interval="1s", configured={"engines": engines}, rules_dir=quick)


def shown(running: Running) -> dict[str, Any]:
    return dict(running.state().get("engines", {}).get(UNIT, {}))


def test_what_is_told_of_an_engine_reaches_every_view(rig: Rig, host: EngineHost, page: Page) -> None:
    """The row, the tick's line, metrics, the state file; its GPUs are remembered when they are lost, also by the next run."""
    running = start(rig, host, page)
    running.until("its GPUs are known", lambda: shown(running).get("gpus") == GPUS[:2])
    running.line(r"vllm active 5\+4 requests")
    assert shown(running)["unit"] == "active/running"
    found = running.metrics()
    assert found['xidwatch_engine_requests_running{unit="vllm.service"}'] == 5
    assert found['xidwatch_engine_active{unit="vllm.service"}'] == 1
    info = f'xidwatch_engine_info{{gpus="{GPUS[0]} {GPUS[1]}",invocation_id="{INVOCATION}",server="vllm",unit="vllm.service"}}'
    assert found[info] == 1

    host.unit(UNIT, [4712], ActiveState="failed", SubState="failed", Result="timeout", MainPID=0)
    host.process(4712, waits_in="os_acquire_rwlock_write")
    page.says("", 503)
    rig.steer(lost=[0, 1], pids=WORKERS)
    running.until("it is seen to have failed", lambda: shown(running).get("unit") == "failed/failed")
    running.until_condition("GpuLost", f"gpu:{GPUS[0]}", "TRUE")
    running.ticks_more(2)
    assert (shown(running)["gpus"], shown(running)["gpus_by"]) == (GPUS[:2], "found")
    running.kill()
    after = start(rig, host, page, lost=(0, 1))
    after.settle(without="nvml")
    assert (after.state()["pid"], shown(after)["gpus"]) == (after.pid, GPUS[:2])
    assert after.terminate()[0] == 0

    rows = rig.rows()
    first, last = next(row.cells for row in rows if row.cells.get(f"{SUBJECT}:requests_running")), answered(rows, "engine")[-1].cells
    assert (first[f"{SUBJECT}:active_state"], first[f"{SUBJECT}:requests_running"]) == ("active", "5")
    assert (last[f"{SUBJECT}:active_state"], last[f"{SUBJECT}:result"], last[f"{SUBJECT}:processes"]) == ("failed", "timeout", "1")
    assert (last[f"{SUBJECT}:requests_running"], last[f"{SUBJECT}:metrics_status"]) == ("", "503")
    assert last[f"{SUBJECT}:uninterruptible_thread"] == "14712 worker os_acquire_rwlock_write"
    assert f"{SUBJECT}:pids" not in last


@pytest.mark.parametrize("deed", ["silent", "drip"])
def test_a_bus_and_a_page_that_hang_keep_no_tick_waiting(rig: Rig, host: EngineHost, page: Page, deed: str) -> None:
    """Rows come in time, with what can be had without them; the lack has its reason, and nobody is called stuck; then all is as before."""
    running = start(rig, host, page)
    running.until("its GPUs are known", lambda: shown(running).get("gpus"))
    host.systemctl("hang")
    page.does(deed)
    running.until("its state is not known", lambda: not shown(running).get("unit"))
    running.ticks_more(3)
    assert shown(running)["invocation_id"] == INVOCATION
    assert running.condition("ProbeStuck", "probe:engine") == "FALSE"
    assert len(rig.processes("engine")) >= 1
    host.systemctl("answer")
    page.says(VLLM)
    running.until("its state is known again", lambda: shown(running).get("unit") == "active/running")
    running.ticks_more(1)
    assert running.terminate()[0] == 0

    rows = rig.rows()
    assert rig.most_late(rows, INTERVAL_SECONDS) < 0.5
    for quantity in ("active_state", "requests_running"):
        reasons = missing_reasons(rig.journal(), f"{SUBJECT}:{quantity}")
        assert (reasons[0], reasons[-1]) == ("TIMED_OUT", None)
    without = [row.cells for row in rows if row.cells.get(f"{SUBJECT}:active_state") == "" and row.cells["probe:engine:success"] == "1"]
    assert len(without) >= 2
    assert {cells[f"{SUBJECT}:processes"] for cells in without} == {"2"}


def test_eight_engines_that_all_hang_cost_no_more_than_one(rig: Rig, host: EngineHost, page: Page) -> None:
    """Their pages are asked together and given up together; each lacks its own figures, with the reason, and no row is late."""
    units = [f"vllm-{number}.service" for number in range(8)]
    for number, unit in enumerate(units):
        host.process(5000 + number)
        host.unit(unit, [5000 + number])
    engines = [{"unit": unit, "metrics": page.url} for unit in units]
    running = rig.start(rig.host(), rig.engine({**host.options, "engines": engines}), interval="1s", configured={"engines": engines})
    running.settle()
    page.does("silent")
    running.ticks_more(4)
    assert running.terminate()[0] == 0
    rows = rig.rows()
    assert rig.most_late(rows, INTERVAL_SECONDS) < 0.5
    served = rig.given_time(settled(rows, "engine"), "engine", within=0.8 * INTERVAL_SECONDS)
    assert {row.cells["probe:engine:success"] for row in served} <= {"1"}
    for number, unit in enumerate(units):
        last = answered(rows, "engine")[-1].cells
        assert (last[f"engine:{unit}:requests_running"], last[f"engine:{unit}:processes"]) == ("", "1")
        assert last[f"engine:{unit}:main_pid"] == str(5000 + number)
        assert missing_reasons(rig.journal(), f"engine:{unit}:requests_running")[-1] == "TIMED_OUT"


def test_a_worker_stuck_at_an_engine_is_left_and_that_engine_with_it(rig: Rig, host: EngineHost, page: Page) -> None:
    """The next worker leaves its processes alone and tells the rest; the tick is on time."""
    trouble = rig.folder / "trouble"
    engines = [{"unit": UNIT, "metrics": page.url}]
    options = {**host.options, "engines": engines, "trouble": "never_answers", "when": str(trouble)}
    probe = rig.probe("engine", "tests.fakes.probes:steered_engine", options=options)
    running = rig.start(rig.host(), probe, interval="1s", configured={"engines": engines})
    running.until("it is told", lambda: shown(running).get("unit"))
    trouble.touch()
    running.until("a replacement serves", lambda: len(rig.processes("engine")) == 2)
    running.line(f"engine: leaves out {SUBJECT}")
    running.ticks_more(2)
    assert running.terminate()[0] == 0
    rows = rig.rows()
    assert rig.most_late(rows, INTERVAL_SECONDS) < 0.5
    last = rows[-1].cells
    assert (last[f"{SUBJECT}:active_state"], last[f"{SUBJECT}:requests_running"], last[f"{SUBJECT}:processes"]) == ("active", "5", "")
    assert missing_reasons(rig.journal(), f"{SUBJECT}:processes") == ["TIMED_OUT", "NOT_ASKED"]


def test_what_is_not_known_of_an_engine_is_said_once(rig: Rig, host: EngineHost, page: Page) -> None:
    """A misspelt unit, a page without metrics."""
    host.unknown("typo.service")
    page.says("not here", 404)
    engines = [{"unit": UNIT, "metrics": page.url}, {"unit": "typo.service"}]
    running = rig.start(rig.host(), rig.engine({**host.options, "engines": engines}), interval="1s", configured={"engines": engines})
    said = running.line(r"engine: typo\.service: systemd knows no such unit")
    running.line(r"engine: vllm\.service: no metrics there \(404\): llama\.cpp has them with --metrics")
    running.ticks_more(2)
    assert [line.text for line in running.lines].count(said.text) == 1
    assert running.terminate()[0] == 0
