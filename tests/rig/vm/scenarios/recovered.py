"""A switch without its configuration is removed and scanned for by xidwatch itself, once the drop-in lets it."""

from tests.rig.vm.build import ROOT
from tests.rig.vm.engine import CONFIG, Engine
from tests.rig.vm.guest import UNIT, Guest

SWITCH = "port:0000:01:00.0"
RECOVERY = '\n[recovery]\nrescan = true\nwait = "4s"\n'
DROP_IN = (ROOT / "systemd/recovery.conf").read_text()
ENGINE = True


def scenario(guest: Guest) -> None:
    engine = Engine(guest)
    guest.configure(CONFIG + RECOVERY)
    engine.until_gate("RUNNING")
    assert "forbids it" in guest.run("xidwatch check --only recovery", check=False)
    guest.switch.power(on=False)
    engine.until_gate("HELD")
    guest.switch.power(on=True)
    guest.until_condition("ConfigSpaceReset", SWITCH, "TRUE")
    guest.until_record("outcome", result="unable")
    (said,) = [str(entry.body["detail"]) for entry in guest.records().of("outcome", result="unable")]
    assert "recovery.conf" in said, said
    assert engine.supervised_as() == "HELD"

    guest.put("/etc/systemd/system/xidwatch.service.d/recovery.conf", DROP_IN)
    guest.run(f"systemctl daemon-reload; systemctl restart {UNIT}", seconds=120)
    assert "may take it" in guest.run("xidwatch check --only recovery", check=False)
    engine.until_gate("RUNNING")
    decisions = [entry for entry in guest.records().of("action") if entry.body["kind"] == "RECOVER"]
    assert [entry.body["target"] for entry in decisions] == [SWITCH.removeprefix("port:")] * 2
    assert engine.answers() == " world"
