"""A GPU is taken out through pciehp: announced by the kernel, written down, and its readings are absent; nobody is accused of all ones."""

from tests.rig.vm.guest import Guest
from tests.rig.vm.hardware import GPU_SUBJECTS


def scenario(guest: Guest) -> None:
    gone = GPU_SUBJECTS[1]
    guest.machine.hmp("device_del gpu1")  # the attention button: five seconds later the slot is switched off
    guest.until_record("uevent", action="remove", name=gone.removeprefix("gpu:"))
    guest.nvml.remove(1)
    guest.ticks_more(2)

    records = guest.records()
    assert records.reasons(f"{gone}:config_dword0")[-1:] == ["ABSENT"]
    assert "ConfigSpaceAllOnes" not in {type_ for type_, _ in records.became("TRUE")}
    assert "" not in records.cells(f"{GPU_SUBJECTS[0]}:config_dword0")[-2:]
    assert guest.unit()["ActiveState"] == "active"
