"""The evidence disk stops answering when a GPU is lost: the loop does not wait for it, and afterwards not a tick is missing."""

from tests.rig.vm.guest import Guest
from tests.rig.vm.hardware import GPU_SUBJECTS
from tests.rig.vm.scenarios.night import ADDRESSES, LOST


def scenario(guest: Guest) -> None:
    disk = guest.on_a_disk_of_its_own()
    guest.ticks_more(3)
    disk.freeze()
    guest.kernel_says(f"<3>{LOST.format(ADDRESSES[0])}")
    guest.until_condition("GpuLost", GPU_SUBJECTS[0], "TRUE")
    guest.ticks_more(4)
    assert guest.records_behind() > 2
    assert guest.state()["incident"]
    disk.thaw()
    guest.until_record("opened")
    guest.until("nothing is owed to the disk", lambda: guest.records_behind() < 2)
    guest.until("the dump is whole", lambda: [each for each in guest.records().dumps if guest.records().is_complete(each)])
    records = guest.records()
    assert records.is_whole()
    assert records.no_tick_is_missing()
    assert guest.unit()["NRestarts"] == "0"
