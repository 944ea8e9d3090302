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
    records = guest.records()
    (folder, *_) = records.dumps
    parts = [path for path in folder.iterdir() if "Kernel panic" in path.read_text(errors="replace")]
    assert parts, "no part of the incident holds the panic"
