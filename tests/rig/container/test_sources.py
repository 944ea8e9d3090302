"""What the installed service learns within the limits of its unit: engines from systemd itself, GPUs that go, power over time."""

from __future__ import annotations

import pytest

from tests.rig.container.host import LOST, LOST_GPU, UNIT, Host
from xidwatch.records import dumps, samples

ENGINE = "engine.service"
SUBJECT = f"engine:{ENGINE}"
# The main process leaves a child behind that takes no TERM, as a worker stuck in the driver does.
ENGINE_UNIT = """
[Service]
ExecStart=/bin/sh -c 'setsid /bin/sleep infinity & exec /bin/sleep infinity'
KillMode=process
[Install]
WantedBy=multi-user.target
"""

pytestmark = [pytest.mark.rig, pytest.mark.root, pytest.mark.slow]


def last(host: Host) -> dict[str, str]:
    """The youngest row."""
    rows = [row for path in samples.files(host.state_dir / samples.FOLDER) for row in samples.read(path, [])]
    return dict(rows[-1].cells) if rows else {}


def until_cells(host: Host, **wanted: str) -> None:
    """Wait until a row says so of the engine."""

    def as_wanted() -> bool:
        cells = last(host)
        return {name: cells.get(f"{SUBJECT}:{name}", "") for name in wanted} == wanted

    host.until(f"{SUBJECT} {wanted}", as_wanted)


def shown(host: Host) -> tuple[str, str]:
    """The engine in state.json: its state, and which run of it."""
    found = host.state()
    engine = found.engines[ENGINE] if found else None
    return (engine.unit, engine.invocation_id) if engine else ("", "")


def test_an_engine_is_followed_from_start_to_disabled(host: Host) -> None:
    """By systemd's own word, asked from within the limits: another run is another, and who outlives the main process is counted."""
    host.configure(more_tables=f'[[engines]]\nunit = "{ENGINE}"\n')
    units = host.disk.root / "etc/systemd/system"
    (units / ENGINE).write_text(ENGINE_UNIT)
    host.run("systemctl", "daemon-reload")
    host.run("systemctl", "enable", ENGINE)
    host.start()
    until_cells(host, active_state="inactive", processes="0", invocation_id="")

    host.run("systemctl", "start", ENGINE)
    run = host.container.show(ENGINE, "InvocationID", "MainPID")
    until_cells(host, active_state="active", sub_state="running", processes="2", invocation_id=run["InvocationID"], main_pid=run["MainPID"])
    host.until("it is shown", lambda: shown(host) == ("active/running", run["InvocationID"]))

    host.run("systemctl", "restart", ENGINE)
    again = host.container.show(ENGINE, "InvocationID", "MainPID")
    assert again["InvocationID"] != run["InvocationID"]
    until_cells(host, active_state="active", invocation_id=again["InvocationID"], main_pid=again["MainPID"], processes="3")

    host.send("KILL", int(again["MainPID"]))
    until_cells(host, active_state="failed", result="signal", main_pid="0", processes="2")
    host.until("its end is shown", lambda: shown(host)[0] == "failed/failed")
    host.run("systemctl", "kill", "--kill-whom=all", "--signal=KILL", ENGINE)
    host.run("systemctl", "stop", ENGINE)
    host.run("systemctl", "reset-failed", ENGINE)
    host.run("systemctl", "disable", ENGINE)
    until_cells(host, active_state="inactive", processes="0", invocation_id="")


def test_a_gpu_that_leaves_the_bus_opens_an_incident_with_its_power_in_the_dump(host: Host) -> None:
    """Without a word of the kernel's: its folder is gone. The dump has what its board drew, with times."""
    host.start()
    host.ticks_more(3)
    host.tree.remove(LOST_GPU.removeprefix("gpu:"))
    host.library.remove(0)
    host.until_condition("GpuMissing", LOST_GPU, "TRUE")
    host.until_line("TAKE_DUMP .* (ok|partial)")
    found = host.state()
    assert found
    assert found.incident
    assert "gpu-missing" in found.incident
    (folder,) = dumps.folders(host.state_dir)
    statuses = {part.name: part.status for part in dumps.load(folder).parts}
    assert statuses["015-power-trace.csv"] == "ok"


def test_a_lost_gpu_stays_lost_for_a_successor_whose_ring_has_been_overrun(host: Host) -> None:
    """The line that said so is not in the kernel log any more, and nothing else says it: what was known still stands."""
    host.start()
    host.kernel.says(LOST)
    host.until_condition("GpuLost", LOST_GPU, "TRUE")
    host.ticks_more(1)
    host.run("systemctl", "restart", UNIT)  # the fake's ring forgets what has been read
    host.ticks_more(3)
    found = host.state()
    assert found
    assert (host.condition("GpuLost", LOST_GPU), found.verdict) == ("TRUE", "failed")
