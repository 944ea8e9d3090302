"""The second evidence disk turns read-only under the running service, as ext4 does after an error: said, and the first has everything."""

from tests.rig.vm.guest import Guest
from tests.rig.vm.hardware import GPU_SUBJECTS, Disk
from tests.rig.vm.scenarios.night import ADDRESSES, LOST


def scenario(guest: Guest) -> None:
    disk = Disk(guest, "/mnt/evidence")
    guest.allow_writing("/mnt/evidence")
    guest.configure('evidence_dirs = ["/mnt/evidence"]\n')
    guest.until("both are written", lambda: guest.run("ls /mnt/evidence/samples", check=False).endswith(".csv\n"), "/mnt/evidence")
    disk.turn_read_only()
    guest.kernel_says(f"<3>{LOST.format(ADDRESSES[0])}")
    guest.until_condition("GpuLost", GPU_SUBJECTS[0], "TRUE")
    guest.until("the first has the dump", lambda: [each for each in guest.records().dumps if guest.records().is_complete(each)])
    guest.until("it is said", lambda: "records: " in guest.run("journalctl -o cat -u xidwatch | grep /mnt/evidence", check=False))
    records = guest.records()
    assert records.is_whole()
    assert guest.records_behind() < 2
    assert guest.unit()["NRestarts"] == "0"
