"""A supply rail sags by 8 % and comes back: evidence and a degraded host, and no incident."""

from tests.rig.vm.guest import Guest
from tests.rig.vm.hardware import CHIP

RAIL = f"""
[[rails]]
name = "slot_12v"
chip = "{CHIP}"
input = "in1"
nominal_volts = 12.0
"""


def scenario(guest: Guest) -> None:
    guest.rails.appear(12.0)
    guest.configure(RAIL)
    guest.until_condition("RailOutOfRange", "rail:slot_12v", "FALSE")
    guest.rails.twelve_volts(12.0 * 0.92)
    guest.until_condition("RailOutOfRange", "rail:slot_12v", "TRUE")
    assert guest.state()["verdict"] == "degraded"
    guest.rails.twelve_volts(12.0)
    guest.until_condition("RailOutOfRange", "rail:slot_12v", "FALSE")

    records = guest.records()
    volts = [float(cell) for cell in records.cells("rail:slot_12v:volts") if cell]
    assert 11.0 < min(volts) < 11.1
    assert 11.9 < volts[-1] < 12.1
    assert records.nothing_was_done()
