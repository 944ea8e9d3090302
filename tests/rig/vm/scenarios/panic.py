"""The kernel panics after the edge: the firmware keeps its last lines, the next run samples, and what survived is counted."""

from tests.rig.vm.crash import Survivors, begin_loss
from tests.rig.vm.guest import Guest

COLD = True
KEPT = "/var/lib/systemd/pstore"


def scenario(guest: Guest) -> None:
    before = begin_loss(guest)
    guest.leave("echo c >/proc/sysrq-trigger")
    guest.machine.wait_for_boot()
    Survivors(guest, before).tell()
    kept = guest.until("systemd has put the firmware's record away", lambda: guest.run(f"cat {KEPT}/*/dmesg.txt", check=False), KEPT)
    assert "Kernel panic" in kept
    assert "79" in kept
