"""The night: load, a switch that loses its supply, Xid 79 on all four GPUs, 154, UVM, and NVML hanging where no signal reaches it."""

from tests.rig.vm.guest import Guest
from tests.rig.vm.hardware import GPU_SUBJECTS, NVME, Disk
from tests.rig.vm.machine import GPUS

LOST = "NVRM: Xid (PCI:{}): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus."
REBOOT = "NVRM: Xid (PCI:{}): 154, GPU recovery action changed from 0x0 (None) to 0x2 (Node Reboot Required)"
UVM = "nvidia-uvm: uvm encountered global fatal error 0x60, requiring os reboot to recover."
ADDRESSES = tuple(f"0000:{address.partition('.')[0]}" for address in GPUS)
LOAD = "bursts 127000 931000 100 500"  # mW low and high, ms wide, ms from one to the next
PARTS = ["010-samples.csv", "015-power-trace.csv", "020-kernel.txt", "030-inventory.json", "040-config-space.txt"]
SWITCH = "port:0000:01:00.0"


def strike(guest: Guest) -> None:
    """What happened that night, in its order."""
    disk = Disk(guest, "/var/lib/nvml-fake/frozen")
    guest.nvml.every_gpu(trace=LOAD)
    guest.ticks_more(2)
    disk.freeze()
    guest.nvml.driver(every=f"create {disk.mounted}/x")
    guest.switch.vanish()
    guest.kernel_says(*(f"<3>{text.format(gpu)}" for gpu in ADDRESSES for text in (LOST, REBOOT)), f"<3>{UVM}")


def scenario(guest: Guest) -> None:
    before = guest.tick()
    strike(guest)
    guest.until_condition("ConfigSpaceAllOnes", SWITCH, "TRUE")
    guest.until_record("outcome", result="ok")
    guest.until("the dump is whole", lambda: all(guest.records().durable_parts(folder) for folder in guest.records().dumps))
    guest.ticks_more(4)

    records = guest.records()
    (incident,) = records.incidents
    bad = records.became("TRUE")
    assert {("GpuLost", gpu) for gpu in GPU_SUBJECTS} <= bad
    assert {("DriverFatalXid", gpu) for gpu in GPU_SUBJECTS} <= bad
    assert ("DriverFatalXid", "driver:nvidia") in bad
    assert {entry.incident for entry in records.of("transition", after="TRUE") if entry.body["severity"] == "critical"} == {incident}
    assert [entry.body["kind"] for entry in records.of("action")].count("TAKE_DUMP") == 1

    (folder,) = records.dumps
    assert records.durable_parts(folder) == dict.fromkeys(PARTS, "ok")
    kernel = (folder / "020-kernel.txt").read_text()
    assert LOST.format(ADDRESSES[0]) in kernel
    assert "# 0000:01:00.0 no answer" in (folder / "040-config-space.txt").read_text()

    assert records.no_tick_is_missing(before)
    for probe in ("pci", "host", "hwmon"):
        guest.until_in_full(probe)
    assert records.cells(f"nvme:0000:{NVME}:config_dword0")[-1]
    assert max(float(cell) for cell in records.cells(f"{GPU_SUBJECTS[0]}:power_peak_watts") if cell) > 900
    guest.run("dd if=/dev/vdb of=/dev/null bs=64k count=16 iflag=direct")  # the other side's drive goes on

    told = guest.report()["incident"]
    assert (told["id"], told["state"], told["severity"]) == (incident, "open", "critical")
    assert told["first_event"]["kind"] == "xid"
    assert guest.metrics()['xidwatch_verdict{verdict="failed"}'] == 1
    assert guest.unit()["ActiveState"] == "active"
