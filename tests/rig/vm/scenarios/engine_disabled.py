"""A unit that is disabled is never started, whatever the gate thinks of the hardware."""

from tests.rig.vm.engine import Engine
from tests.rig.vm.guest import Guest

ENGINE = True


def scenario(guest: Guest) -> None:
    engine = Engine(guest)
    guest.switch.vanish()
    engine.until_gate("HELD")
    guest.run("systemctl disable engine.service")
    guest.switch.come_back()
    guest.until("the hardware is well", lambda: guest.state()["verdict"] == "healthy")
    engine.stays("inactive", "failed")
