"""An engine behind its gate under a real systemd: the drop-in as `make install-gate` writes it, with and without a daemon."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import time

import pytest

from tests.rig.container.disk import ROOT
from tests.rig.container.host import Host

ENGINE = "engine.service"
# User= and an environment that would break any Python: the gate is to answer all the same.
ENGINE_UNIT = """
[Service]
User=nobody
Environment=PYTHONHOME=/nowhere PYTHONPATH=/nowhere
ExecStart=/bin/sleep infinity
Restart=always
RestartSec=100ms
[Install]
WantedBy=multi-user.target
"""

pytestmark = [pytest.mark.rig, pytest.mark.root, pytest.mark.slow]


def gated(host: Host) -> None:
    """An engine, and what `make install-gate` writes beside its unit."""
    command = [str(ROOT / "scripts/install-gate.sh"), ENGINE]
    subprocess.run(command, env={**os.environ, "DESTDIR": str(host.disk.root)}, check=True, capture_output=True, timeout=60)
    host.add_unit(ENGINE, ENGINE_UNIT)
    host.run("systemctl", "enable", "--runtime", ENGINE)  # one that nothing refers to is unloaded at once, and its result with it


def start(host: Host) -> dict[str, str]:
    """How the unit is after `systemctl start`, which succeeds for a skipped one too."""
    host.run("systemctl", "start", ENGINE)
    return host.container.show(ENGINE, "ActiveState", "Result", "NRestarts")


SKIPPED = {"ActiveState": "inactive", "Result": "exec-condition", "NRestarts": "0"}


def test_without_a_daemon_it_is_skipped_and_not_failed(host: Host) -> None:
    """Nor tried again, in spite of Restart=always; why is in its journal, with the way past."""
    gated(host)
    assert start(host) == SKIPPED
    said = host.run("journalctl", "--output=cat", f"--unit={ENGINE}")
    assert "engine.service: unknown: /run/xidwatch/state.json: no state file" in said
    assert "xidwatch gate --open-for 1h --reason TEXT engine.service" in said


def test_an_order_lets_it_start_without_a_daemon(host: Host) -> None:
    """The way past a daemon that is broken; one that comes back writes it down."""
    gated(host)
    host.run("xidwatch", "gate", "engine", "--open-for", "1h", "--reason", "the daemon does not start")
    assert start(host)["ActiveState"] == "active"
    host.start()
    host.until_line("the gate of engine.service is open until .*: the daemon does not start")
    assert host.container.show(ENGINE, "ActiveState") == {"ActiveState": "active"}


def test_a_program_that_is_gone_does_not_keep_it_down(host: Host) -> None:
    """It starts, ungated, and says so."""
    gated(host)
    host.run("mv", "/opt/xidwatch/bin/xidwatch", "/opt/xidwatch/bin/gone")
    assert start(host)["ActiveState"] == "active"
    assert "engine.service starts without being gated" in host.run("journalctl", "--output=cat", f"--unit={ENGINE}")


def test_a_program_that_is_broken_fails_it_and_says_so(host: Host) -> None:
    """Its environment has lost a module: the engine is not started, and it is not left out in silence either."""
    gated(host)
    host.run("sh", "-c", "mv /opt/xidwatch/lib/python3*/site-packages/msgspec /opt/xidwatch/gone")
    assert host.container.attempt("systemctl", "start", ENGINE).returncode == 1
    host.until("systemd gives up", lambda: host.container.show(ENGINE, "ActiveState") == {"ActiveState": "failed"})
    said = host.run("journalctl", "--output=cat", "--priority=crit", f"--unit={ENGINE}")
    assert "exit status 1, see above): engine.service is not started" in said
    assert "next: make install puts xidwatch right" in said


def test_a_unit_that_systemd_does_not_know_is_refused(host: Host) -> None:
    """Nothing is written for it; a template is known by its own name."""
    host.add_unit("llama@.service", ENGINE_UNIT)
    host.run("systemctl", "daemon-reload")
    for folder in ("scripts", "systemd"):
        shutil.copytree(ROOT / folder, host.disk.root / "checkout" / folder)
    script = "/checkout/scripts/install-gate.sh"
    refused = host.container.attempt(script, "vllm")
    assert (refused.returncode, "systemd knows no vllm.service: nothing is written" in refused.stderr) == (66, True)
    assert host.container.attempt(script, "llama@").returncode == 0
    assert host.container.attempt(script, "llama@0").returncode == 0


def test_the_answer_is_quick(host: Host) -> None:
    """Well below what anybody would notice at the start of an engine."""
    host.start()
    took = []
    for _ in range(5):
        began = time.monotonic()
        host.run("xidwatch", "gate", ENGINE, status=3)
        took.append(time.monotonic() - began)
    print(f"xidwatch gate: {min(took):.3f} s, with the way into the container")
    assert min(took) < 0.5


def supervised(host: Host) -> None:
    """The daemon, in whose configuration the engine is, with a baseline that somebody has accepted."""
    gated(host)
    engine = f'[[engines]]\nunit = "{ENGINE}"\ngpus = "all"\nsettle = "2s"\nback_off = "1s"\n'
    host.configure(interval="1s", more_tables=engine)
    host.start()
    host.until("a baseline worth accepting", lambda: host.container.attempt("xidwatch", "check", "--accept", "--yes").returncode == 0)


def gate(host: Host) -> tuple[int, str]:
    """What `xidwatch gate` says, as a script would hear it."""
    said = json.loads(host.container.attempt("xidwatch", "gate", ENGINE, "--json").stdout)
    return {"open": 0, "closed": 2, "unknown": 3}[said["gate"]], said["state"]


def test_what_was_skipped_is_started_once_it_is_proven_and_stopped_when_its_hardware_is_gone(host: Host) -> None:
    """On the lease of one start, which its own condition asks for; then the gate is closed and says what could help."""
    supervised(host)
    host.run("systemctl", "start", ENGINE)
    host.until("it is started by xidwatch", lambda: host.container.show(ENGINE, "ActiveState") == {"ActiveState": "active"})
    host.until("it is ready", lambda: gate(host) == (0, "RUNNING"))
    host.run("xidwatch", "gate", ENGINE)
    host.lose_switch()
    host.until("it is stopped", lambda: gate(host) == (2, "HELD"))
    assert host.container.show(ENGINE, "ActiveState") == {"ActiveState": "inactive"}
    host.run("systemctl", "start", ENGINE)
    assert host.container.show(ENGINE, "ActiveState", "Result") == {"ActiveState": "inactive", "Result": "exec-condition"}
    assert "PCI removal of 0000:0f:00.0 and rescan" in host.run("xidwatch", "gate", ENGINE, status=2)
    page = host.container.attempt("xidwatch", "report").stdout
    assert "WHAT THE GATE DID" in page
    assert "STOPPING (was RUNNING)" in page


def test_one_that_only_people_start_is_theirs_to_start(host: Host) -> None:
    """Without [Install] systemd forgets at once that it has left it out: OFF, and open, once the hardware has been seen to be well."""
    gated(host)
    host.run("systemctl", "disable", "--runtime", ENGINE)
    host.add_unit(ENGINE, ENGINE_UNIT.partition("[Install]")[0])
    host.configure(interval="1s", more_tables=f'[[engines]]\nunit = "{ENGINE}"\ngpus = "all"\n')
    host.run("systemctl", "daemon-reload")
    assert host.container.show(ENGINE, "UnitFileState") == {"UnitFileState": "static"}
    assert start(host)["ActiveState"] == "inactive"  # no daemon: nobody knows, and it is left out
    host.start()
    host.until("it is theirs to start", lambda: gate(host) == (0, "OFF"))
    assert "whoever starts it may" in json.loads(host.run("xidwatch", "gate", ENGINE, "--json"))["why"]
    host.ticks_more(3)
    assert host.container.show(ENGINE, "ActiveState") == {"ActiveState": "inactive"}  # and nobody else does
    assert start(host)["ActiveState"] == "active"
    host.until("it runs", lambda: gate(host) == (0, "RUNNING"))
    host.lose_switch()
    host.until("it is stopped", lambda: gate(host) == (2, "HELD"))


def test_an_operators_order_goes_past_what_is_known(host: Host) -> None:
    """On hardware that is gone too: it starts, it is left alone, and when the order is taken back it is as before."""
    supervised(host)
    host.lose_switch()
    host.run("xidwatch", "gate", ENGINE, "--open-for", "1h", "--reason", "the readings are wrong")
    host.run("systemctl", "start", ENGINE)
    host.ticks_more(4)
    assert host.container.show(ENGINE, "ActiveState") == {"ActiveState": "active"}
    host.run("xidwatch", "gate", ENGINE, "--close")
    host.until("it is stopped", lambda: gate(host) == (2, "HELD"))  # by the daemon, whose stop would cancel a start of ours
    host.run("systemctl", "start", ENGINE)
    assert host.container.show(ENGINE, "ActiveState") == {"ActiveState": "inactive"}
