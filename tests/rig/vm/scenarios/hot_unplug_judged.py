"""A GPU that was there and is gone from the bus, without an Xid, is a condition of its own."""

from tests.rig.vm.guest import Guest
from tests.rig.vm.hardware import GPU_SUBJECTS


def scenario(guest: Guest) -> None:
    gone = GPU_SUBJECTS[1]
    guest.machine.hmp("device_del gpu1")
    guest.until_record("uevent", action="remove", name=gone.removeprefix("gpu:"))
    guest.ticks_more(4)
    assert guest.condition("GpuMissing", gone) == "TRUE", "no condition GpuMissing"
    assert len(guest.records().incidents) == 1
