"""After the night: the engine was stopped; a boot with three cards leaves it down, one with four proves them and starts it."""

from tests.rig.vm.engine import CLOSED, OPEN, Engine
from tests.rig.vm.guest import Guest
from tests.rig.vm.scenarios.night import strike


def scenario(guest: Guest) -> None:
    engine = Engine(guest)
    strike(guest)
    guest.until_record("outcome", result="ok")
    engine.until("inactive", "failed")
    assert engine.gate() == CLOSED

    guest.nvml.driver(every=None)
    guest.nvml.remove(3)
    guest.run("sync")
    guest.machine.cut_power()
    guest.machine.start(without=("gpu3",))
    engine.stays("inactive")
    assert engine.gate() == CLOSED

    guest.nvml = type(guest.nvml)(guest)
    guest.run("sync")
    guest.machine.cut_power()
    guest.machine.start()
    engine.until("active")
    assert engine.gate() == OPEN
    assert engine.answers() == " world"
