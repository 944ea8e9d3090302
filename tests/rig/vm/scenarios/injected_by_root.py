"""A process of root's writes Xid lines into /dev/kmsg: recorded as injected, never believed, nothing is done."""

from tests.rig.vm.guest import Guest
from tests.rig.vm.scenarios.night import LOST, REBOOT, UVM


def scenario(guest: Guest) -> None:
    guest.root_says(*(f"<3>{text.format('0000:03:00')}" for text in (LOST, REBOOT)), f"<3>{UVM}")
    guest.until_record("kernel", xid=154, injected=True)
    guest.ticks_more(2)

    records = guest.records()
    assert all(entry.body["injected"] for entry in records.of("kernel"))
    assert records.nothing_was_done()
    assert guest.state()["verdict"] == "healthy"
    assert "0000:03:00.0" in str(guest.nvml.calls()) or guest.nvml.total() > 0
    assert not [series for series, value in guest.metrics().items() if series.startswith("xidwatch_gpu_xid_errors_total") and value]
