"""The machine loses power and comes up again, and xidwatch is taken out: what was recorded stays."""

from __future__ import annotations

import shutil

import pytest

from tests.rig.container.disk import ROOT
from tests.rig.container.host import LOST_GPU, SWITCH, UNIT, UNIT_FILE, Host
from xidwatch.records import dumps

pytestmark = [pytest.mark.rig, pytest.mark.root, pytest.mark.slow]


def test_the_boot_after_a_power_loss_knows_the_incident_and_claims_nothing_about_now(host: Host) -> None:
    """The GPUs are not on the bus any more: lost before, unknown now, and not good for that. The incident and both boots are on record."""
    host.run("systemctl", "enable", UNIT)
    host.start()
    incident, before = host.lose_switch(), host.boot_id
    host.run("journalctl", "--sync")
    host.lose_power()
    host.remove_switch()
    host.boot()
    host.until_unit(UNIT, SubState="running")
    host.ticks_more(2)

    now = host.boot_id
    assert now != before
    shown = host.state()
    assert shown
    assert (shown.boot_id, shown.incident, host.condition("GpuLost", LOST_GPU)) == (now, incident, "UNKNOWN")
    assert host.condition("ConfigSpaceAllOnes", f"port:{SWITCH}") == "UNKNOWN"
    entries = host.records()
    assert [entry.boot_id for entry in entries if entry.kind == "started"] == [before, now]
    assert [entry.boot_id for entry in entries if entry.kind == "opened"] == [before]
    assert not [entry for entry in entries if entry.kind == "stopped"]
    report = host.run("xidwatch", "report", status=2)
    assert incident in report
    assert "fallen off the bus" in report
    boots = [line.split()[1] for line in host.run("journalctl", "--list-boots").splitlines() if line.split()[0] in ("-1", "0")]
    assert boots == [before.replace("-", ""), now.replace("-", "")]
    said = host.run("journalctl", "--boot=-1", f"--unit={UNIT}", "--output=cat")
    assert f"incident {incident} opened" in said


def test_a_shutdown_is_an_end_in_good_order(host: Host) -> None:
    """The daemon is told to stop and closes its journal; the next boot does not take the last one for a crash."""
    host.run("systemctl", "enable", UNIT)
    host.start()
    host.shut_down()
    host.boot()
    host.until_unit(UNIT, SubState="running")
    host.ticks_more(1)
    assert [entry.kind for entry in host.records() if entry.kind in ("started", "stopped")] == ["started", "stopped", "started"]
    assert not [line for line in host.lines() if "killed or crashed" in line]


def test_uninstalling_leaves_the_evidence_and_no_unit(host: Host) -> None:
    """The running service is stopped; program, unit, link and drop-ins go; records and configuration stay as they were."""
    host.run("systemctl", "enable", UNIT)
    host.start()
    incident = host.lose_switch()
    shutil.copy(ROOT / "scripts/uninstall.sh", host.disk.root / "root")
    host.run("bash", "/root/uninstall.sh")

    assert host.container.show(UNIT, "LoadState", "ActiveState") == {"LoadState": "not-found", "ActiveState": "inactive"}
    for gone in (UNIT_FILE, "/opt/xidwatch", "/usr/local/bin/xidwatch", f"/etc/systemd/system/{UNIT}.d", "/run/xidwatch"):
        assert not host.container.path(gone).exists(), gone
    wants = host.container.path("/etc/systemd/system/multi-user.target.wants")
    assert not (wants / UNIT).is_symlink()
    assert host.run("systemctl", "list-units", "--all", "--plain", "--no-legend", "xidwatch*") == ""
    assert "xidwatch" not in host.run("sh", "-c", "cat /proc/[0-9]*/comm")
    assert host.container.path("/etc/xidwatch/config.toml").exists()
    assert [entry.kind for entry in host.records()][-1] == "stopped"
    (folder,) = dumps.folders(host.state_dir)
    assert (folder.name, dumps.load(folder).state) == (incident, "complete")
