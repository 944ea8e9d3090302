"""After the night: the engine was stopped; a boot with three cards leaves it down, one with four proves them and starts it."""

from tests.rig.vm.engine import CLOSED, OPEN, Engine
from tests.rig.vm.guest import Guest
from tests.rig.vm.scenarios.night import strike

ENGINE = True


def scenario(guest: Guest) -> None:
    engine = Engine(guest)
    strike(guest)
    engine.until_gate("HELD")
    assert engine.state() in {"inactive", "failed"}
    assert engine.gate() == CLOSED
    told = guest.records().order("TAKE_DUMP", "STOP_ENGINE")
    assert told == ["TAKE_DUMP", "TAKE_DUMP is over", "STOP_ENGINE", "STOP_ENGINE is over"]

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
    engine.until_gate("RUNNING")
    assert engine.gate() == OPEN
    assert engine.answers() == " world"
