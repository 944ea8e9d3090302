"""A non-fatal and a fatal error below the switch: both are in the counters of who detected them and of the root port."""

from tests.rig.vm.guest import Guest
from tests.rig.vm.hardware import DOWNSTREAM, ROOT_PORT, SWITCH

COMPLETION_TIMEOUT, DATA_LINK_PROTOCOL = 0x4000, 0x10


def scenario(guest: Guest) -> None:
    root = f"port:0000:{ROOT_PORT}"
    guest.machine.hmp(f"pcie_aer_inject_error us0 {COMPLETION_TIMEOUT:#x}")
    guest.until(
        "the kernel has counted it",
        lambda: guest.run(f"cat /sys/bus/pci/devices/0000:{ROOT_PORT}/aer_rootport_total_err_nonfatal").strip() == "1",
    )
    guest.machine.hmp(f"pcie_aer_inject_error ds01 {DATA_LINK_PROTOCOL:#x}")
    guest.until(
        "the kernel has counted it",
        lambda: guest.run(f"cat /sys/bus/pci/devices/0000:{ROOT_PORT}/aer_rootport_total_err_fatal").strip() == "1",
    )
    guest.ticks_more(2)

    records = guest.records()
    assert records.cells(f"port:0000:{SWITCH}:aer_nonfatal")[-1] == "1"
    assert records.cells(f"port:0000:{DOWNSTREAM[1]}:aer_fatal")[-1] == "1"
    assert (records.cells(f"{root}:aer_root_nonfatal")[-1], records.cells(f"{root}:aer_root_fatal")[-1]) == ("1", "1")
    assert guest.unit()["ActiveState"] == "active"
