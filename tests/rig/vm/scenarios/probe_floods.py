"""A probe that answers without end: cut off, nobody's memory fills, and ticks come as before."""

from tests.rig.vm.guest import Guest
from tests.rig.vm.scenarios.probe_talks_rubbish import RUBBISH

FLOOD = RUBBISH.replace("        os.write(3", "        while True:\n            os.write(3")
MOST_BYTES = 400 << 20  # MemoryHigh of the unit, and what is counted beside it


def scenario(guest: Guest) -> None:
    assert "while True" in FLOOD
    guest.replace_probe("hwmon", FLOOD)
    before = guest.tick()
    guest.until_condition("ProbeNotAnswering", "probe:hwmon", "TRUE")
    guest.ticks_more(2)
    records = guest.records()
    assert records.no_tick_is_missing(before)
    assert records.cells("probe:pci:success")[-1] == "1"
    assert int(guest.unit()["MemoryCurrent"]) < MOST_BYTES
    assert guest.unit()["NRestarts"] == "0"
