"""A switch loses its power and gets it back: all ones, then an answer without configuration; enumeration ends the incident."""

from tests.rig.vm.guest import Guest
from tests.rig.vm.hardware import GPU_SUBJECTS

SWITCH = "port:0000:01:00.0"


def scenario(guest: Guest) -> None:
    guest.switch.power(on=False)
    guest.until_condition("ConfigSpaceAllOnes", SWITCH, "TRUE")
    guest.switch.power(on=True)
    guest.until_condition("ConfigSpaceReset", SWITCH, "TRUE")
    guest.until_condition("ConfigSpaceAllOnes", SWITCH, "FALSE")
    assert not guest.records().of("kernel"), "nobody announced anything"

    guest.switch.enumerate()
    guest.until_record("closed")
    guest.until("the verdict is good again", lambda: guest.state()["verdict"] == "healthy")
    records = guest.records()
    assert len(records.incidents) == 1
    assert ("ConfigSpaceReset", SWITCH) in records.became("TRUE")
    cleared = records.cells(f"{SWITCH}:secondary_bus")
    assert "00" in cleared
    assert cleared[-1] == "02"
    assert records.cells(f"{GPU_SUBJECTS[0]}:config_dword0")[-1]
