"""What a part of a dump loses before it is masked."""

from __future__ import annotations

from xidwatch.bundle.parts import without_serials

HEAD = "0000:11:00.0 dword0=220410de class=030000 runtime=active power=D0 driver=nvidia path=devices/x\n"
CHAINED = "100: 01 00 01 12 00 00 00 00 00 00 00 00 00 00 00 00\n"
SERIAL = "120: 03 00 01 00 11 22 33 ff fe 44 55 66 00 00 00 07\n"


def test_a_device_serial_number_in_configuration_space_is_zero() -> None:
    """Eight bytes behind the header of the capability; all else is evidence and stays."""
    told = without_serials(HEAD + CHAINED + SERIAL + "\n" + HEAD)
    assert told == HEAD + CHAINED + "120: 03 00 01 00 00 00 00 00 00 00 00 00 00 00 00 07\n" + "\n" + HEAD


def test_a_list_that_leads_in_a_circle_ends() -> None:
    """Registers of a dying device say anything."""
    circle = HEAD + "100: 01 00 01 10 00 00 00 00 00 00 00 00 00 00 00 00\n"
    assert without_serials(circle) == circle
    assert without_serials(HEAD + "100: ff ff ff ff\n") == HEAD + "100: ff ff ff ff\n"
