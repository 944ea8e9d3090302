"""The real daemon and devices that come and go: announced, unannounced, over a restart and over a reboot."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.daemon.harness import Rig, Running
from xidwatch.records import baseline

SLOW = "100s"  # longer than a test waits: what is noticed was not noticed by a tick
GPU = "0000:13:00.0"
GPUS = ("0000:11:00.0", "0000:12:00.0", GPU, "0000:14:00.0")
SWITCH = "0000:0f:00.0"

pytestmark = pytest.mark.slow


@pytest.fixture
def rig(tmp_path: Path) -> Iterator[Rig]:
    with Rig(tmp_path) as rig:
        yield rig


def quick(rig: Rig) -> Path:
    clears = {name: {"clear": "900ms"} for name in ("GpuMissing", "PortMissing", "AerFatal")}
    return rig.rules(LinkWidthBelowBaseline={"hold": "400ms"}, **clears)


def start(rig: Rig, interval: str = "0.5s") -> Running:
    """Over when the host is known: who is there, and who they are."""
    running = rig.start(rig.pci(), rig.host(), interval=interval, rules_dir=quick(rig))
    running.tick(1)
    running.until("who they are", lambda: running.condition("LinkBelowCapability", f"gpu:{GPU}") == "FALSE")
    return running


def until_missing(running: Running, *gpus: str) -> None:
    for gpu in gpus:
        running.until_condition("GpuMissing", f"gpu:{gpu}", "TRUE")


def test_a_removal_that_is_announced_is_an_incident_within_a_second(rig: Rig) -> None:
    """Unbound, then removed, as the kernel does it: the look that follows the first may come too early, the second does not."""
    running = start(rig, interval=SLOW)
    rig.uevents.announce("unbind", GPU)
    rig.tree.remove(GPU)
    announced = rig.uevents.announce("remove", GPU)
    edge = running.line(f"GpuMissing TRUE gpu:{GPU}")
    assert rig.ours(announced, edge.at, "daemon", "pci", "test") < 1.0
    running.line("incident .*-gpu-missing-13 opened")
    running.line("TAKE_DUMP .* ok")
    running.until("failed", lambda: running.state()["verdict"] == "failed")
    assert running.terminate()[0] == 0

    entries = rig.journal()
    events = [(e.body["action"], e.body["name"]) for e in entries if e.kind == "uevent"]
    assert events == [("unbind", GPU), ("remove", GPU)]
    looks = [e.body["for"] for e in entries if e.kind == "action" and e.body["kind"] == "LOOK"]
    assert looks
    assert set(looks) <= {e.id for e in entries if e.kind == "uevent"}


def test_a_storm_of_announcements_is_bounded(rig: Rig) -> None:
    """A hundred functions come: some records, the rest counted, and a look or two."""
    running = start(rig, interval=SLOW)
    for number in range(100):
        rig.uevents.announce("add", f"0000:20:{number // 8:02x}.{number % 8}", "30200")
    running.line("records of uevents are missing from the journal")
    rig.tree.remove(GPU)
    rig.uevents.announce("remove", GPU)
    until_missing(running, GPU)
    assert running.terminate()[0] == 0
    entries = rig.journal()
    (gap,) = [e for e in entries if e.kind == "gap"]
    assert gap.body["lost"] + sum(e.kind == "uevent" for e in entries) == 101
    assert 2 <= sum(e.kind == "action" and e.body["kind"] == "LOOK" for e in entries) <= 4


def test_what_is_no_concern_of_ours_is_recorded_and_not_looked_into(rig: Rig) -> None:
    """A network card."""
    running = start(rig)
    rig.uevents.announce("remove", "0000:05:00.0", "20000")
    running.ticks_more(2)
    assert running.terminate()[0] == 0
    entries = rig.journal()
    assert [e.body["name"] for e in entries if e.kind == "uevent"] == ["0000:05:00.0"]
    assert not [e for e in entries if e.kind == "action"]


def test_a_switch_that_is_removed_takes_its_gpus_along_and_comes_back(rig: Rig) -> None:
    """One incident, named after the switch; it ends when everything has been enumerated again, at its place."""
    running = start(rig)
    rig.tree.remove(SWITCH)
    until_missing(running, *GPUS)
    running.until_condition("PortMissing", f"port:{SWITCH}", "TRUE")
    running.line("incident .*-port-missing-0f opened")
    running.ticks_more(3)  # the inventory has been renewed, and the probe has forgotten them: they are missing all the same
    assert [running.condition("GpuMissing", f"gpu:{gpu}") for gpu in GPUS] == ["TRUE"] * 4
    rig.tree.bridge(SWITCH, "0000:00:03.1", port_type="upstream", secondary=0x10, subordinate=0x14)
    for number, gpu in enumerate(GPUS):
        port = rig.tree.bridge(f"0000:10:{4 * number:02x}.0", SWITCH, port_type="downstream", secondary=0x11 + number)
        rig.tree.gpu(gpu, port)
    running.line("incident .* closed")
    assert running.terminate()[0] == 0
    assert sum(entry.kind == "opened" for entry in rig.journal()) == 1


def of_another_boot(rig: Rig) -> None:
    """All that is on record was written before a reboot."""
    path = rig.state_dir / baseline.NAME
    path.write_text(json.dumps({**json.loads(path.read_text()), "boot_id": "0" * 32}))
    for day in (rig.state_dir / "journal").iterdir():
        entries = [json.loads(line) for line in day.read_text().splitlines()]
        day.write_text("".join(json.dumps({**entry, "boot_id": "0" * 32}) + "\n" for entry in entries))


def test_a_card_that_is_not_there_after_a_reboot_is_missing_and_stays_so(rig: Rig) -> None:
    """Three cards are never learnt as normal: not by the first run after the reboot, and not by the next."""
    assert start(rig).terminate()[0] == 0
    of_another_boot(rig)
    rig.tree.remove(GPU)
    for _ in range(2):
        running = rig.start(rig.pci(), rig.host())
        running.tick(1)
        until_missing(running, GPU)
        assert running.condition("GpuMissing", "gpu:0000:12:00.0") == "FALSE"
        assert running.terminate()[0] == 0
    assert sum(entry.kind == "opened" for entry in rig.journal()) == 1


def test_a_baseline_moved_away_is_how_a_card_is_struck_off(rig: Rig) -> None:
    """As the advice says: stop, move the file, start. The incident ends and three cards are what there should be."""
    running = start(rig)
    rig.tree.remove(GPU)
    until_missing(running, GPU)
    assert running.terminate()[0] == 0
    (rig.state_dir / baseline.NAME).rename(rig.folder / "old.json")
    running = rig.start(rig.pci(), rig.host(), rules_dir=quick(rig))
    running.line("incident .* closed")
    running.line(f"GpuMissing NOT_APPLICABLE gpu:{GPU}")
    assert running.terminate()[0] == 0
    found = baseline.read(rig.state_dir / baseline.NAME)
    assert found
    assert sum(name.startswith("gpu:") for name in found.members) == 3


def test_a_swapped_card_is_said_with_both_makes(rig: Rig) -> None:
    """While the host was off."""
    assert start(rig).terminate()[0] == 0
    of_another_boot(rig)
    port = rig.tree.folder(GPU).parent.name
    rig.tree.remove(GPU)
    rig.tree.gpu(GPU, port, device=0x2684)
    running = rig.start(rig.pci(), rig.host())
    running.line(rf"DeviceReplaced TRUE gpu:{GPU} .*10de:2684 1043:87c5, expected identity 10de:2204 1043:87c5")
    running.until_condition("GpuMissing", f"gpu:{GPU}", "FALSE")
    assert running.terminate()[0] == 0


def test_a_link_that_narrows_and_errors_that_are_counted_are_said_and_open_what_they_should(rig: Rig) -> None:
    """Eight lanes of sixteen are a warning; a fatal error below the root port opens an incident and stops nothing."""
    running = start(rig)
    rig.tree.write(GPU, "current_link_width", "8\n")
    running.line(f"LinkWidthBelowBaseline TRUE gpu:{GPU} .*: link_width 8, expected link_width 16")
    running.until("degraded", lambda: running.state()["verdict"] == "degraded")
    rig.tree.write("0000:00:03.1", "aer_rootport_total_err_fatal", "1\n")
    running.line("AerFatal TRUE port:0000:00:03.1")
    running.line("incident .*-aer-fatal-00 opened")
    running.line("incident .* closed")
    assert running.terminate()[0] == 0
