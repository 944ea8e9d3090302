"""What the kernel says about PCIe errors is read as events, each with the device that detected it."""

from tests.rig.vm.guest import Guest
from tests.rig.vm.hardware import SWITCH

COMPLETION_TIMEOUT = 0x4000


def scenario(guest: Guest) -> None:
    guest.machine.hmp(f"pcie_aer_inject_error us0 {COMPLETION_TIMEOUT:#x}")
    guest.until("the kernel has said it", lambda: "CmpltTO" in guest.run("dmesg"))
    guest.ticks_more(1)
    told = [entry.body for entry in guest.records().of("kernel")]
    assert told, "no kernel record about a PCIe error"
    assert {event.get("pci") for event in told} >= {f"0000:{SWITCH}"}
