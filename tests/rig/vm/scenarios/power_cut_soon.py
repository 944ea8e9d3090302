"""The power goes 0.3 s after the edge: what is on the disk is whole, the next run samples, and what survived is counted."""

from tests.rig.vm.crash import power_cut
from tests.rig.vm.guest import Guest


def scenario(guest: Guest) -> None:
    power_cut(guest, 0.3)
