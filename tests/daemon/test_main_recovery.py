"""Recovery by itself in the real daemon: written down, done once, and told; on a tree of files, and with a systemctl that only listens."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.daemon.harness import Rig, Running
from tests.fakes.engine import EngineHost
from tests.fakes.sysfs import port_of
from xidwatch.records.journal import Entry

UNIT = "vllm.service"
CARD, SUBJECT = "0000:12:00.0", "gpu:0000:12:00.0"
XID = "NVRM: Xid (PCI:0000:12:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus."
UVM = "NVRM: nvGpuOpsReportFatalError: uvm encountered global fatal error 0x60, requiring os reboot to recover."
QUICK = {"wait": "1s", "reboot_after": "1s"}
FILES = "30 1 8:1 / / rw - ext4 /dev/sda1 rw\n"  # whatever the test's own folder lies on outlives a reboot

pytestmark = pytest.mark.slow


@pytest.fixture
def rig(tmp_path: Path) -> Iterator[Rig]:
    with Rig(tmp_path) as rig:
        (rig.tree.root / "bus/pci/rescan").touch()
        rig.tree.write(CARD, "remove", "")
        yield rig


@pytest.fixture
def host(rig: Rig) -> EngineHost:
    host = EngineHost(rig.folder / "engines")
    host.process(4711)
    host.unit(UNIT, [4711])
    (host.proc_root / "self").mkdir()
    (host.proc_root / "1/fd").mkdir(parents=True, exist_ok=True)
    (host.proc_root / "self/mountinfo").write_text(FILES)
    (host.proc_root / "4711/fd").mkdir(exist_ok=True)
    return host


def start(rig: Rig, host: EngineHost, boot_id: str = "", **switched_on: object) -> Running:
    engines = [{"unit": UNIT, "gpus": "all"}]
    probe = rig.engine({**host.options, "engines": engines})
    places = {"proc": str(host.proc_root), "programs": [str(host.bin)], "systemctl": str(host.bin / "systemctl")}
    return rig.start(
        rig.pci(),
        probe,
        boot_id=boot_id,
        patience={"xidwatch.daemon.recoveries:PLACES": places},
        configured={"engines": engines, "recovery": {**QUICK, **switched_on}},
    )


def gate(running: Running) -> dict[str, Any]:
    return dict(running.state().get("engines", {}).get(UNIT, {}))


def lose(rig: Rig, host: EngineHost, running: Running, *said: str) -> None:
    """It ends, as engines do that have lost a card, and the kernel tells why."""
    running.until("it runs", lambda: gate(running).get("state") == "RUNNING")
    host.unit(UNIT, [], ActiveState="failed", SubState="failed", Result="exit-code", MainPID=0)
    running.until("it has ended", lambda: gate(running).get("state") == "OFF")
    rig.kernel.says(*(said or (XID,)))
    running.until("it is held", lambda: gate(running).get("state") == "HELD")


def recovery(running: Running, step: str) -> dict[str, Any]:
    return next((each for each in running.state().get("recovery", ()) if each["step"] == step), {})


def of_steps(rig: Rig) -> tuple[list[Entry], list[Entry]]:
    """Decisions and outcomes on record."""
    entries = rig.journal()
    actions = [each for each in entries if each.kind == "action" and each.body["kind"] == "RECOVER"]
    ids = {each.id for each in actions}
    return actions, [each for each in entries if each.kind == "outcome" and each.body["for"] in ids]


def is_removed(rig: Rig) -> bool:
    return (rig.tree.folder(CARD) / "remove").read_text() == "1"


def test_a_card_is_removed_and_scanned_for_once_and_its_outcome_told(rig: Rig, host: EngineHost) -> None:
    """The decision is on disk before anything is written to a device; afterwards every view says what came of it."""
    running = start(rig, host, rescan=True)
    lose(rig, host, running)
    running.until("it is removed", lambda: is_removed(rig))
    (decision,), none = of_steps(rig)
    assert (decision.body["step"], decision.body["target"], none) == ("rescan", CARD, [])
    assert "a step is under way" in recovery(running, "rescan")["against"]

    port = port_of(rig.tree, CARD)
    rig.tree.remove(CARD)
    running.until("it is scanned for", lambda: (rig.tree.root / "bus/pci/rescan").read_text() == "1")
    rig.tree.gpu(CARD, port)
    rig.tree.write(CARD, "remove", "")
    running.line(rf"RECOVER rescan {CARD}: ok in \d+ ms: {CARD} is back and answering")
    running.until("it is told", lambda: recovery(running, "rescan").get("result") == "ok")
    running.until_condition("GpuLost", SUBJECT, "UNKNOWN")  # of the card that is there now nobody knows anything yet
    assert running.metrics()['xidwatch_recovery_taken{result="ok",step="rescan"}'] == 1

    rig.kernel.says(XID.replace("<unknown>", "again"))
    running.until_condition("GpuLost", SUBJECT, "TRUE")
    running.ticks_more(5)
    assert not is_removed(rig)
    assert len(of_steps(rig)[0]) == 1
    assert running.terminate()[0] == 0


def test_what_was_not_switched_on_is_not_done(rig: Rig, host: EngineHost) -> None:
    """Which is everything, by default."""
    running = start(rig, host)
    lose(rig, host, running)
    running.ticks_more(6)
    assert (of_steps(rig), running.state()["recovery"]) == (([], []), [])
    assert not is_removed(rig)
    assert running.terminate()[0] == 0


def test_who_dies_between_the_decision_and_its_outcome_has_done_it(rig: Rig, host: EngineHost) -> None:
    """The worker goes on and scans for what it has removed; the successor does not repeat it in this boot, and says that nobody knows."""
    running = start(rig, host, rescan=True)
    lose(rig, host, running)
    running.until("it is removed", lambda: is_removed(rig))
    running.kill()
    rig.kernel.rewind()
    after = start(rig, host, rescan=True)
    after.until("it is known", lambda: recovery(after, "rescan").get("done"))
    assert recovery(after, "rescan")["result"] == ""
    port = port_of(rig.tree, CARD)
    rig.tree.remove(CARD)
    after.until("what was removed is scanned for", lambda: (rig.tree.root / "bus/pci/rescan").read_text() == "1")
    rig.tree.gpu(CARD, port)
    rig.tree.write(CARD, "remove", "")
    after.until("the worker has left", lambda: not rig.processes("recovery"))
    after.ticks_more(5)
    actions, outcomes = of_steps(rig)
    assert (len(actions), outcomes, is_removed(rig)) == (1, [], False)
    assert "done in this boot (how it ended is not on record)" in recovery(after, "rescan")["against"]
    assert after.terminate()[0] == 0


def test_what_is_held_is_refused_and_counts_as_not_done(rig: Rig, host: EngineHost) -> None:
    """By whoever it is; nothing was written to the device."""
    (host.proc_root / "4711/fd/5").symlink_to("/dev/nvidia1")
    running = start(rig, host, rescan=True)
    lose(rig, host, running)
    running.line(rf"RECOVER rescan {CARD}: refused in \d+ ms: held by process 4711 \(python3\)")
    running.until("it is told", lambda: any("held by process 4711" in each for each in recovery(running, "rescan")["against"]))
    assert recovery(running, "rescan")["done"] is None
    assert not is_removed(rig)
    assert running.terminate()[0] == 0


def test_nothing_is_done_in_maintenance(rig: Rig, host: EngineHost) -> None:
    """Somebody works on the host."""
    running = start(rig, host, rescan=True, wait="3s")
    lose(rig, host, running)
    assert running.ask({"do": "maintenance-on", "for": "30m", "reason": "card swap", "user": "alice"})["ok"]
    running.ticks_more(10)
    assert of_steps(rig) == ([], [])
    assert "the host is in maintenance" in recovery(running, "rescan")["against"]
    assert running.terminate()[0] == 0


def test_a_step_that_does_not_come_back_is_left_and_said(rig: Rig, host: EngineHost) -> None:
    """It stands in the kernel: nobody ends it, and nothing but a reboot would be tried after it."""
    quick = {"xidwatch.daemon.recoveries:STEP_SECONDS": 1.0, "xidwatch.daemon.recoveries:SPARE_SECONDS": 1.0}
    engines = [{"unit": UNIT, "gpus": "all"}]
    rig.tree.unlink(CARD, "remove")
    os.mkfifo(rig.tree.folder(CARD) / "remove")
    running = rig.start(
        rig.pci(),
        rig.engine({**host.options, "engines": engines}),
        patience={**quick, "xidwatch.daemon.recoveries:PLACES": {"proc": str(host.proc_root)}},
        configured={"engines": engines, "recovery": {**QUICK, "rescan": True, "module_reload": True}},
    )
    lose(rig, host, running)
    running.line(rf"RECOVER rescan {CARD}: timeout in \d+ ms: the process that is at it does not come back")
    assert rig.processes("recovery")
    running.until("it is told", lambda: recovery(running, "rescan").get("result") == "timeout")
    assert any("has not returned" in each for each in recovery(running, "module-reload")["against"])
    reader = os.open(rig.tree.folder(CARD) / "remove", os.O_RDONLY | os.O_NONBLOCK)
    running.until("the kernel has let it go", lambda: not rig.processes("recovery"))
    os.close(reader)
    assert running.terminate()[0] == 0


def reboots(host: EngineHost) -> int:
    return host.asked().count("--no-block reboot")


def test_a_host_is_rebooted_once_and_never_in_a_loop(rig: Rig, host: EngineHost) -> None:
    """After the evidence is on disk; hardware that is still gone after the boot does not get a second one, nor after a kill."""
    running = start(rig, host, "boot-a", allow_reboot=True)
    lose(rig, host, running, UVM, XID)
    running.until("systemd is told", lambda: reboots(host) == 1)
    (decision,), _ = of_steps(rig)
    assert decision.boot_id == "boot-a"
    dumps = [each for each in rig.journal() if each.kind == "outcome"]
    assert dumps[0].wall < decision.wall
    running.kill()

    after = start(rig, host, "boot-b", allow_reboot=True)
    after.ticks_more(3)
    rig.kernel.says(UVM, XID)
    after.until("it is held", lambda: gate(after).get("state") == "HELD")
    after.until("why not is told", lambda: recovery(after, "reboot").get("against"))
    after.ticks_more(8)
    assert reboots(host) == 1
    assert "the host has been rebooted for this incident before" in recovery(after, "reboot")["against"]
    assert any("rebooted within" in each for each in recovery(after, "reboot")["against"])
    assert len(of_steps(rig)[0]) == 1
    assert after.terminate()[0] == 0


def test_without_the_explicit_word_there_is_no_reboot(rig: Rig, host: EngineHost) -> None:
    """Whatever else is switched on."""
    running = start(rig, host, rescan=True, slot_power=True, gpu_reset=True, module_reload=True)
    lose(rig, host, running, UVM, XID)
    running.ticks_more(8)
    assert (reboots(host), of_steps(rig)) == (0, ([], []))
    assert running.terminate()[0] == 0
