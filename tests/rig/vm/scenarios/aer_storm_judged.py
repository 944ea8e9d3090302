"""Correctable errors at a rate no good link has make a condition; it ends when they end."""

from tests.rig.vm.guest import Guest
from tests.rig.vm.hardware import DOWNSTREAM

STORM = 60
RECEIVER_ERROR = 0x1


def scenario(guest: Guest) -> None:
    guest.inject_aer(DOWNSTREAM[0], STORM, correctable=RECEIVER_ERROR)
    guest.ticks_more(3)
    judged = [type_ for type_, subject in guest.records().became("TRUE") if subject == f"port:0000:{DOWNSTREAM[0]}"]
    assert judged, "no condition on the rate of correctable errors"
    assert not guest.records().incidents
