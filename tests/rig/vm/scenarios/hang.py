"""Every processor hangs after the edge and a watchdog resets the machine: the next run samples, and what survived is counted."""

from tests.rig.vm.crash import Survivors, begin_loss
from tests.rig.vm.guest import Guest

HEARTBEAT_SECONDS = 4


def scenario(guest: Guest) -> None:
    before = begin_loss(guest)
    guest.run(f"modprobe -r i6300esb; modprobe i6300esb heartbeat={HEARTBEAT_SECONDS}")
    guest.leave("echo >/dev/watchdog; echo 1 >/sys/module/nvidia/parameters/hang")
    guest.machine.wait_for_boot()
    Survivors(guest, before).tell()
