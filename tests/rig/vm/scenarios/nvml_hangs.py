"""NVML hangs where no signal reaches it: an incident after a while, every other source on its cadence, and an end when it thaws."""

from tests.rig.vm.guest import Guest
from tests.rig.vm.hardware import GPU_SUBJECTS, Disk


def scenario(guest: Guest) -> None:
    disk = Disk(guest, "/var/lib/nvml-fake/frozen")
    disk.freeze()
    guest.nvml.driver(nvmlDeviceGetPowerUsage=f"create {disk.mounted}/x")
    guest.until_condition("ProbeStuck", "probe:nvml", "TRUE")
    stuck = guest.run("grep -ls ^xw-nvml /proc/[0-9]*/comm | cut -d/ -f3").split()
    assert {guest.run(f"cut -d' ' -f3 /proc/{pid}/stat").strip() for pid in stuck} == {"D"}
    before = guest.tick()
    guest.ticks_more(3)

    records = guest.records()
    rows = [row for row in records.rows if row.tick >= before]
    assert records.no_tick_is_missing(before)
    assert {row.cells["probe:pci:success"] for row in rows} == {"1"}
    assert records.cells(f"{GPU_SUBJECTS[0]}:power_average_watts")[-1] == ""
    assert len(records.incidents) == 1
    assert guest.metrics()['xidwatch_probe_stuck_seconds{probe="nvml"}'] > 0

    guest.nvml.driver(nvmlDeviceGetPowerUsage=None)
    disk.thaw()
    guest.until_condition("ProbeStuck", "probe:nvml", "FALSE")
    guest.until_record("closed")
    guest.until("NVML is read again", lambda: guest.records().cells(f"{GPU_SUBJECTS[0]}:power_average_watts")[-1] == "250")
