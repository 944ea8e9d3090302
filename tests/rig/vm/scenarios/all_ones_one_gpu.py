"""One downstream port loses its GPU: that GPU alone is accused, and its neighbours under the same switch are read as before."""

from tests.rig.vm.guest import Guest
from tests.rig.vm.hardware import DOWNSTREAM, GPU_SUBJECTS, Switch


def scenario(guest: Guest) -> None:
    lost, neighbour = GPU_SUBJECTS[1], GPU_SUBJECTS[2]
    Switch(guest, DOWNSTREAM[1]).vanish()
    guest.until_condition("ConfigSpaceAllOnes", lost, "TRUE")
    guest.until_record("outcome", result="ok")
    guest.ticks_more(1)

    records = guest.records()
    assert records.became("TRUE") == {("ConfigSpaceAllOnes", lost)}
    assert [name.rpartition("Z-")[2] for name in records.incidents] == ["bus-lost-04"]
    assert "" not in records.cells(f"{neighbour}:config_dword0")[-2:]
    assert guest.report()["subjects"][0] == {"pci": lost.removeprefix("gpu:"), "kind": "gpu", "role": "victim"}
