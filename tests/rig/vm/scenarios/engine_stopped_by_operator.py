"""An engine that somebody else has stopped is left alone, though all is well."""

from tests.rig.vm.engine import Engine
from tests.rig.vm.guest import Guest

ENGINE = True


def scenario(guest: Guest) -> None:
    engine = Engine(guest)
    guest.run("systemctl stop engine.service")
    engine.until_gate("OFF")
    engine.stays("inactive")
    assert engine.supervised_as() == "OFF"
