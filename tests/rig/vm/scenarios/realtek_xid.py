"""A network card's "XID" is its chip version, and no business of ours."""

from tests.rig.vm.guest import Guest

LINES = (
    "<6>r8169 0000:02:00.0 eth0: RTL8168h/8111h, 00:11:22:33:44:55, XID 541, IRQ 35",
    "<6>r8169 0000:03:00.0: XID 79 unknown chip",
    "<3>NVRM: Xid (PCI:0000:03:00): 43, pid=467, name=x, channel 0x0000000a",  # and this one is read, so those were
)


def scenario(guest: Guest) -> None:
    guest.kernel_says(*LINES)
    records = guest.until_record("kernel", xid=43)
    assert len(records.of("kernel")) == 1
    assert records.nothing_was_done()
