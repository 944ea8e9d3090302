"""Correctable errors at a rate no good link has make a condition, and no incident."""

from tests.rig.vm.guest import Guest
from tests.rig.vm.hardware import DOWNSTREAM

STORM = 60
# Thousands would take minutes here: a rule of the site's own asks for fewer.
FEWER = """[conditions.AerCorrectableStorm]
when = "aer_correctable_1h > 50"
"""
RECEIVER_ERROR = 0x1


def scenario(guest: Guest) -> None:
    guest.put("/etc/xidwatch/rules.d/rig.toml", FEWER)
    guest.run("systemctl reload xidwatch")
    guest.ticks_more(2)
    guest.inject_aer(DOWNSTREAM[0], STORM, correctable=RECEIVER_ERROR)
    guest.ticks_more(3)
    judged = [type_ for type_, subject in guest.records().became("TRUE") if subject == f"port:0000:{DOWNSTREAM[0]}"]
    assert judged, "no condition on the rate of correctable errors"
    assert not guest.records().incidents
