"""An engine that somebody else has stopped is left alone, though all is well."""

from tests.rig.vm.engine import OWED, Engine
from tests.rig.vm.guest import Guest

OWES = OWED


def scenario(guest: Guest) -> None:
    engine = Engine(guest)
    guest.run("systemctl stop engine.service")
    engine.stays("inactive")
    assert engine.supervised_as() == "OFF"
