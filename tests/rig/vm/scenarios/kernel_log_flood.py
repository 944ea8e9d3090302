"""A hundred thousand kernel lines at once, one of them an application's Xid: sampling goes on, what was lost is said, nothing is opened."""

from tests.rig.vm.guest import Guest

LINES = 100_000
XID = "<3>NVRM: Xid (PCI:0000:03:00): 43, pid=467, name=x, channel 0x0000000a"


def scenario(guest: Guest) -> None:
    before = guest.tick()
    guest.run(f"echo {LINES} >/sys/module/nvidia/parameters/flood", seconds=300)
    guest.kernel_says(XID)
    guest.until_record("kernel", xid=43)
    guest.ticks_more(3)

    records = guest.records()
    assert records.no_tick_is_missing(before)
    lost = sum(entry.body["lost"] for entry in records.of("gap"))
    assert guest.metrics()["xidwatch_kernel_log_gap_records_total"] == lost
    guest.say(f"{lost} of {LINES} lines were overrun before they could be read")
    assert records.nothing_was_done()
    assert guest.unit()["NRestarts"] == "0"
