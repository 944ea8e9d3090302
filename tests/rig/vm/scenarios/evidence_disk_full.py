"""The evidence disk is full when a GPU is lost: sampling and judging go on, it is said, and with room again every record gets there."""

from tests.rig.vm.guest import RECORDS, Guest
from tests.rig.vm.hardware import GPU_SUBJECTS
from tests.rig.vm.scenarios.night import ADDRESSES, LOST


def scenario(guest: Guest) -> None:
    disk = guest.on_a_disk_of_its_own()
    guest.ticks_more(3)
    disk.fill()
    guest.kernel_says(f"<3>{LOST.format(ADDRESSES[0])}")
    guest.until_condition("GpuLost", GPU_SUBJECTS[0], "TRUE")
    guest.until("it is said", lambda: guest.records_behind() > 2)
    guest.ticks_more(2)
    assert guest.unit()["NRestarts"] == "0"
    disk.free()
    guest.until_record("opened")
    guest.until("nothing is owed to the disk", lambda: guest.records_behind() < 2)
    guest.until("the dump is whole", lambda: [each for each in guest.records().dumps if guest.records().is_complete(each)], RECORDS)
    records = guest.records()
    assert records.is_whole()
    assert records.no_tick_is_missing()
