"""A switch's configuration space goes all ones and the kernel says nothing: the sampler finds it within one interval."""

from tests.rig.vm.guest import Guest
from tests.rig.vm.hardware import GPU_SUBJECTS, NVME


def scenario(guest: Guest) -> None:
    before = guest.tick()
    guest.switch.vanish()
    guest.until_condition("ConfigSpaceAllOnes", "port:0000:01:00.0", "TRUE")
    guest.until("the dump is complete", lambda: guest.records().of("outcome", result="ok"))

    records = guest.records()
    (edge,) = [each for each in records.of("transition", after="TRUE") if each.body["type"] == "ConfigSpaceAllOnes"]
    first_dead = next(row.tick for row in records.rows if row.cells.get("port:0000:01:00.0:config_dword0") == "ffffffff")
    assert first_dead <= before + 2, "more than the tick under way and the next"
    assert edge.body["subject"] == "port:0000:01:00.0"
    assert records.became("TRUE") == {("ConfigSpaceAllOnes", "port:0000:01:00.0")}
    assert records.reasons(f"{GPU_SUBJECTS[0]}:config_dword0") == ["BEHIND_DEAD_PARENT"]
    assert records.cells(f"nvme:0000:{NVME}:config_dword0")[-1] == "10421af4"
    assert not records.of("kernel")

    (incident,) = records.incidents
    (folder,) = records.dumps
    assert set(records.durable_parts(folder).values()) == {"ok"}
    assert "# 0000:01:00.0 no answer (all ones twice, 100 ms apart)" in (folder / "040-config-space.txt").read_text()
    told = guest.report()["incident"]
    assert (told["id"], told["state"], told["severity"]) == (incident, "open", "critical")
    assert guest.metrics()['xidwatch_verdict{verdict="failed"}'] == 1
    assert guest.unit()["ActiveState"] == "active"
