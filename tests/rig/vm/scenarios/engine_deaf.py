"""An engine whose workers ignore TERM under lost hardware: it is ended in bounded time all the same, and held."""

from tests.rig.vm.engine import Engine
from tests.rig.vm.guest import Guest

ENGINE = True


def scenario(guest: Guest) -> None:
    engine = Engine(guest, "--deaf")
    guest.switch.vanish()
    engine.until_gate("HELD")
    assert not guest.run("pgrep -f rig/engine.py", check=False)
