"""A worker of the engine outlives SIGKILL in uninterruptible sleep: it is named, and no second engine is started beside it."""

from tests.rig.vm.engine import Engine
from tests.rig.vm.guest import Guest
from tests.rig.vm.hardware import Disk

ENGINE = True


def scenario(guest: Guest) -> None:
    disk = Disk(guest, "/mnt/frozen")
    disk.freeze()
    engine = Engine(guest, f"--stuck {disk.mounted}/x")
    guest.until("a worker waits for the disk", lambda: "D" in guest.run("ps -o state= -C python3").split())
    guest.switch.vanish()
    engine.until_gate("HELD")
    stuck = guest.run("pgrep -f rig/engine.py").split()
    guest.switch.come_back()
    guest.until("the hardware is well", lambda: guest.state()["verdict"] == "healthy")
    engine.stays("inactive", "failed")
    assert stuck[0] in "".join(str(entry.body) for entry in guest.records().entries)
    disk.thaw()
    engine.until_gate("RUNNING")
