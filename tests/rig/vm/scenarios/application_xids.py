"""Xids that a faulty program causes are recorded and counted, each with its process; nothing is opened, dumped or let go."""

from tests.rig.vm.guest import Guest
from tests.rig.vm.hardware import GPU_SUBJECTS

LINES = (
    "<3>NVRM: Xid (PCI:0000:03:00): 31, pid=460, name=x, channel 0x0000000a, intr 00000000. MMU Fault: ENGINE GRAPHICS GPC1",
    "<3>NVRM: Xid (PCI:0000:03:00): 43, pid=467, name=x, channel 0x0000000a",
    "<3>NVRM: Xid (PCI:0000:04:00): 13, pid=473, name=x, Graphics Exception: channel 0x0000000a, Class 0000cbc0, Offset 00000510",
    "<3>NVRM: Xid (PCI:0000:05:00): 45, pid=480, name=x, Ch 00000008",
    "<3>NVRM: Xid (PCI:0000:06:00): 94, pid=481, name=x, Contained: CE User Channel (0x9). RST: No, D-RST: No",
)


def scenario(guest: Guest) -> None:
    guest.kernel_says(*LINES)
    guest.until_record("kernel", xid=94)
    guest.ticks_more(2)

    records = guest.records()
    assert [entry.body["xid"] for entry in records.of("kernel")] == [31, 43, 13, 45, 94]
    assert records.nothing_was_done()
    assert guest.state()["verdict"] == "healthy"
    counted = {series: value for series, value in guest.metrics().items() if series.startswith("xidwatch_gpu_xid_errors_total") and value}
    assert len(counted) == len(LINES)
    assert records.cells(f"{GPU_SUBJECTS[0]}:power_average_watts")[-1] == "250"
