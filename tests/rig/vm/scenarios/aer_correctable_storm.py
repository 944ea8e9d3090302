"""A storm of correctable errors at one port: every one is counted where it was detected and where it arrived, and none is an incident."""

from tests.rig.vm.guest import Guest
from tests.rig.vm.hardware import DOWNSTREAM, ROOT_PORT

STORM = 40
RECEIVER_ERROR = 0x1


def scenario(guest: Guest) -> None:
    port, root = f"port:0000:{DOWNSTREAM[0]}", f"port:0000:{ROOT_PORT}"
    guest.inject_aer(DOWNSTREAM[0], STORM, correctable=RECEIVER_ERROR)
    guest.ticks_more(2)

    records = guest.records()
    counted = [int(cell) for cell in records.cells(f"{port}:aer_correctable") if cell]
    assert (counted[0], counted[-1]) == (0, STORM)
    assert records.cells(f"{root}:aer_root_correctable")[-1] == str(STORM)
    assert records.cells(f"{port}:aer_fatal")[-1] == "0"
    assert not records.incidents
