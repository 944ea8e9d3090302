"""A sleeping GPU that would read all ones if anybody asked: it is left asleep, its readings say why, and there is no alarm."""

from tests.rig.vm.guest import Guest
from tests.rig.vm.hardware import DOWNSTREAM, GPU_SUBJECTS, Switch

POWER = "/sys/bus/pci/devices/0000:06:00.0/power"


def scenario(guest: Guest) -> None:
    guest.run(f"echo auto >{POWER}/control")
    guest.until("it sleeps", lambda: guest.run(f"cat {POWER}/runtime_status").strip() == "suspended")
    Switch(guest, DOWNSTREAM[3]).vanish()
    guest.ticks_more(4)

    assert guest.run(f"cat {POWER}/runtime_status").strip() == "suspended"
    records = guest.records()
    assert records.reasons(f"{GPU_SUBJECTS[3]}:config_dword0")[-1:] == ["ASLEEP"]
    assert not records.became("TRUE")
    assert records.nothing_was_done()
    assert guest.condition("ConfigSpaceAllOnes", GPU_SUBJECTS[3]) == "UNKNOWN"
