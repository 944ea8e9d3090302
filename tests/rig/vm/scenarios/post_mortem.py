"""After a crash the next run looks for what the last one left, the record in the firmware first, and keeps it with the incident."""

from tests.rig.vm.crash import begin_loss
from tests.rig.vm.guest import Guest

OWES = "the post-mortem"
COLD = True


def scenario(guest: Guest) -> None:
    begin_loss(guest)
    guest.leave("echo c >/proc/sysrq-trigger")
    guest.machine.wait_for_boot()
    guest.until("the next run samples", lambda: guest.tick() >= 2)
    parts = [part for folder in guest.records().dumps for part in folder.iterdir()]
    parts = [part for part in parts if "Kernel panic" in part.read_text(errors="replace")]
    assert parts, "no part of the incident holds the panic"
