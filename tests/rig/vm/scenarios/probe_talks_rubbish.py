"""A probe that answers in no language the daemon knows: refused and started anew, its source is unknown, every other is read."""

from tests.rig.vm.guest import Guest

RUBBISH = """
import os

def create(options):
    return Probe()

class Probe:
    between_seconds = None

    def sample(self, ask, emit):
        os.write(3, b"\\x00\\xffnot json at all\\n")

    look = inventory = sample

    def between(self):
        pass

    def close(self):
        pass
"""


def scenario(guest: Guest) -> None:
    guest.replace_probe("hwmon", RUBBISH)
    guest.until_condition("ProbeNotAnswering", "probe:hwmon", "TRUE")
    guest.ticks_more(1)
    records = guest.records()
    assert records.cells("probe:hwmon:success")[-1] == "0"
    assert records.cells("probe:pci:success")[-1] == "1"
    assert guest.unit()["NRestarts"] == "0"
    assert not records.incidents
