"""Every NVML call takes its time: what came by the deadline counts, the rest is missing as timed out, and no tick waits for it."""

from tests.rig.vm.guest import Guest
from tests.rig.vm.hardware import GPU_SUBJECTS


def scenario(guest: Guest) -> None:
    guest.nvml.driver(nvmlDeviceGetPowerUsage="sleep 1500")
    before = guest.tick()
    guest.until("a reading is missing", lambda: guest.records().reasons(f"{GPU_SUBJECTS[3]}:power_average_watts"))
    guest.ticks_more(2)
    records = guest.records()
    assert records.reasons(f"{GPU_SUBJECTS[3]}:power_average_watts")[-1] == "TIMED_OUT"
    assert records.no_tick_is_missing(before)
    guest.nvml.driver(nvmlDeviceGetPowerUsage=None)
    guest.until("it is back", lambda: guest.records().cells(f"{GPU_SUBJECTS[3]}:power_average_watts")[-1] == "250")
