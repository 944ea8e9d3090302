"""The daemon is killed at its n-th write after an edge, twenty times, through tick, edge and dump; its successor has it all, once."""

from tests.rig.vm.guest import RECORDS, UNIT, Guest
from tests.rig.vm.hardware import GPU_SUBJECTS
from tests.rig.vm.scenarios.night import ADDRESSES, LOST

ROUNDS = 20
WRITES_A_ROUND = 2
AT_ONCE = "-p CPUSchedulingPolicy=rr -p CPUSchedulingPriority=50"  # before whoever wrote goes on
KILLER = "/usr/bin/python3 /usr/local/lib/rig/kill_at_write.py"


def scenario(guest: Guest, number: int) -> None:
    pid = int(guest.unit()["MainPID"])
    guest.run(f"systemd-run --unit=killer --collect {AT_ONCE} {KILLER} {pid} {number * WRITES_A_ROUND} /run/xidwatch {RECORDS}")
    guest.until("the killer counts", lambda: guest.run("ls /run/rig", check=False).split(), "/run")
    before = guest.records()
    guest.kernel_says(f"<3>{LOST.format(ADDRESSES[0])}")
    struck = guest.until("it has struck", lambda: guest.get("/run/rig/killed"), "/run/rig").decode()
    guest.until("a successor samples", lambda: guest.state().get("pid") not in (None, pid) and guest.tick() >= 1)
    guest.until_condition("GpuLost", GPU_SUBJECTS[0], "TRUE")
    guest.until("a dump is whole", lambda: [each for each in guest.records().dumps if guest.records().is_complete(each)])

    records = guest.records()
    assert guest.unit(UNIT)["NRestarts"] == "1"
    assert not records.damage
    told = [(entry.id, entry.time) for entry in records.entries]  # a run that could not read its past in time counts from 1
    assert len(told) == len(set(told)), "a record stands twice"
    assert told[: len(before.entries)] == [(entry.id, entry.time) for entry in before.entries], "what was on record is gone"
    assert [row.identity for row in records.rows][: len(before.rows)] == [row.identity for row in before.rows]
    assert len(records.incidents) == 1
    assert len(records.of("kernel", xid=79)) == 1
    guest.say(f"{number * WRITES_A_ROUND:2d}. write: {struck}")
