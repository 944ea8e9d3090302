"""Hardware that goes every time the engine comes: after a few starts it is latched, and stays down until an operator says otherwise."""

from tests.rig.vm.engine import CLOSED, Engine
from tests.rig.vm.guest import Guest

ENGINE = True
MOST_STARTS = 10


def scenario(guest: Guest) -> None:
    engine = Engine(guest)
    for _ in range(MOST_STARTS):
        guest.switch.vanish()
        engine.until("inactive", "failed")
        guest.switch.come_back()
        guest.until("started or latched", lambda: engine.state() == "active" or engine.supervised_as() == "LATCHED")
        if engine.supervised_as() == "LATCHED":
            break
    assert engine.supervised_as() == "LATCHED"
    engine.stays("inactive", "failed")
    assert engine.gate() == CLOSED
