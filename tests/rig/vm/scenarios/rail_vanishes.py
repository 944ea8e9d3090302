"""The sensor of a rail is not there any more: said as a condition of its own, and its last value is not carried on."""

from tests.rig.vm.guest import Guest
from tests.rig.vm.scenarios.rail_sags import RAIL


def scenario(guest: Guest) -> None:
    guest.rails.appear(12.0)
    guest.configure(RAIL)
    guest.until_condition("RailGone", "rail:slot_12v", "FALSE")
    guest.rails.vanish()
    guest.until_condition("RailGone", "rail:slot_12v", "TRUE")

    records = guest.records()
    assert records.cells("rail:slot_12v:volts")[-1] == ""
    assert records.cells("rail:slot_12v:present")[-1] == "0"
    assert guest.condition("RailOutOfRange", "rail:slot_12v") == "UNKNOWN"
    assert records.nothing_was_done()
