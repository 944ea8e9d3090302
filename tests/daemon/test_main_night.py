"""The night a switch loses its supply, played to the real daemon from the first line to the recovery; and nights that are none."""

from __future__ import annotations

import csv
import hashlib
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.daemon.harness import Rig, Running, missing_reasons, numbers
from xidwatch.records import dumps
from xidwatch.records.journal import Entry
from xidwatch.records.samples import Row

INTERVAL_SECONDS = 0.5
SWITCH = "0000:0f:00.0"
GPUS = ("0000:11:00", "0000:12:00", "0000:13:00", "0000:14:00")
LOST = "NVRM: Xid (PCI:{}): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus."
REBOOT = "NVRM: Xid (PCI:{}): 154, GPU recovery action changed from 0x0 (None) to 0x2 (Node Reboot Required)"
UVM = "nvidia-uvm: uvm encountered global fatal error 0x60, requiring os reboot to recover."
LINES = [text.format(gpu) for gpu in GPUS for text in (LOST, REBOOT)] + [UVM]
PARTS = ["010-samples.csv", "020-kernel.txt", "030-inventory.json", "040-config-space.txt"]

# As an H200 with driver 580 wrote them, one program after the other (address, serial and UUID changed).
APPLICATIONS = """
NVRM: GPU at PCI:0000:11:00: GPU-00000000-0000-0000-0000-000000000001
NVRM: GPU Board Serial Number: 0000000000001
NVRM: Xid (PCI:0000:11:00): 31, pid=460, name=x, channel 0x0000000a, intr 00000000. MMU Fault: ENGINE GRAPHICS GPC1 GPCCLIENT_T1_8 \
faulted @ 0x83d6_b7e00000. Fault is of type FAULT_PDE ACCESS_TYPE_VIRT_WRITE
NVRM: Xid (PCI:0000:11:00): 43, pid=467, name=x, channel 0x0000000a
NVRM: Xid (PCI:0000:11:00): 13, Graphics SM Warp Exception on (GPC 1, TPC 4, SM 0): Misaligned Address
NVRM: Xid (PCI:0000:11:00): 13, Graphics Exception: ESR 0x519730=0x500000f 0x519734=0x0 0x519728=0x1f81fb60 0x51972c=0x1174
NVRM: Xid (PCI:0000:11:00): 13, pid=473, name=x, Graphics Exception: channel 0x0000000a, Class 0000cbc0, Offset 00000510, Data 0017e2ac
""".strip().splitlines()

pytestmark = pytest.mark.slow


@pytest.fixture
def rig(tmp_path: Path) -> Iterator[Rig]:
    with Rig(tmp_path) as rig:
        yield rig


@pytest.fixture(scope="module")
def night(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Rig]:
    """Loss, power back with the configuration forgotten, enumeration and a fresh driver; then what is on record about it."""
    with Rig(tmp_path_factory.mktemp("night")) as rig:
        clears = {name: {"clear": "1s"} for name in ("ConfigSpaceAllOnes", "ConfigSpaceReset", "GpuLost")}
        running = rig.start(rig.pci(), rig.host(), rig.nvml(), rules_dir=rig.rules(**clears))
        running.settle(3)
        running.until("all is well", lambda: running.state()["verdict"] == "healthy")  # a busy host begins slowly
        rig.tree.die(SWITCH)
        rig.kernel.says(*LINES)
        running.line("TAKE_DUMP .* ok")
        running.line("RELEASE_DRIVER .* ok")
        running.until("nobody holds the driver", lambda: not rig.processes("nvml"))
        running.ticks_more(2)
        assert not rig.processes("nvml")
        recover(rig, running)
        assert running.terminate()[0] == 0
        yield rig


def recover(rig: Rig, running: Running) -> None:
    rig.tree.revive_cleared(SWITCH)
    running.until_condition("ConfigSpaceReset", f"port:{SWITCH}", "TRUE")
    running.until_condition("ConfigSpaceAllOnes", f"port:{SWITCH}", "FALSE")
    rig.tree.recover(SWITCH)
    assert running.ask({"do": "allow-driver", "text": "enumerated anew, driver reloaded"})["ok"]
    running.line("incident .* closed")
    running.until("nvml answers again", lambda: running.metrics()['xidwatch_probe_success{probe="nvml"}'] == 1)
    running.until("all is well", lambda: running.state()["verdict"] == "healthy")


def of_kind(entries: list[Entry], kind: str) -> list[Entry]:
    return [entry for entry in entries if entry.kind == kind]


def test_one_incident_is_opened_and_closed(night: Rig) -> None:
    """Dozens of edges within seconds are one incident, and it ends when all it was about is good again."""
    entries = night.journal()
    (opened,), (closed,) = of_kind(entries, "opened"), of_kind(entries, "closed")
    assert opened.body["incident"] == closed.body["incident"]
    bad = [entry for entry in of_kind(entries, "transition") if entry.body["after"] == "TRUE"]
    assert {entry.incident for entry in bad} == {opened.body["incident"]}
    assert {entry.body["type"] for entry in bad} == {"GpuLost", "DriverFatalXid", "ConfigSpaceAllOnes", "ConfigSpaceReset"}
    assert sorted(numbers(entries)) == list(range(1, len(entries) + 1))


def test_one_dump_holds_every_part_in_order(night: Rig) -> None:
    """Memory first, hardware last; the manifest is complete and its digests are those of the files."""
    (folder,) = dumps.folders(night.state_dir)
    manifest = dumps.load(folder)
    assert (manifest.state, [part.name for part in manifest.parts]) == ("complete", PARTS)
    assert [part.started for part in manifest.parts] == sorted(part.started for part in manifest.parts)
    for part in manifest.parts:
        assert (part.status, part.stage) == ("ok", 1)
        assert hashlib.sha256((folder / part.name).read_bytes()).hexdigest() == part.sha256


def test_the_dump_holds_what_the_night_was(night: Rig) -> None:
    """The last good draw, every kernel line, who was there, and a switch that reads all ones beside one that answers."""
    (folder,) = dumps.folders(night.state_dir)
    lines = (folder / "010-samples.csv").read_text().splitlines()
    header = max(at for at, line in enumerate(lines) if line.startswith("time,"))  # each change of columns begins with its own
    last = list(csv.DictReader(lines[header:]))[-1]
    assert last == {**fixed(night.rows()[int(last["tick"]) - 1]), **night.rows()[int(last["tick"]) - 1].cells}
    assert float(last["gpu:0000:14:00.0:power_average_watts"]) == 250
    kernel = (folder / "020-kernel.txt").read_text()
    assert [line.partition(";")[2] for line in kernel.splitlines()] == LINES
    assert "GPU-00000000-0000-0000-0000-000000000004" in (folder / "030-inventory.json").read_text()
    space = (folder / "040-config-space.txt").read_text()
    assert f"# {SWITCH} no answer (all ones twice, 100 ms apart)" in space
    assert "\n0000:01:00.0 dword0=c0101000 " in space  # the other switch
    assert "\n0000:11:00.0 " not in space


def test_the_driver_is_let_go_and_not_asked_again(night: Rig) -> None:
    """After the first fatal line the worker left; until an operator allowed it, every row says that nobody asked."""
    entries = night.journal()
    kinds = [entry.body["kind"] for entry in of_kind(entries, "action")]
    assert (kinds.count("RELEASE_DRIVER"), kinds.count("TAKE_DUMP")) == (1, 1)
    assert missing_reasons(entries, "gpu:0000:11:00.0:power_average_watts") == ["NOT_ASKED", None]
    assert {entry.body["result"] for entry in of_kind(entries, "outcome")} == {"ok"}


def test_the_kernel_lines_are_counted_in_one_row(night: Rig) -> None:
    """Eight Xids in one second are in the row of the tick that follows, and in no other."""
    rows = night.rows()
    assert [row.cells["kernel:xid_lines_since_last_tick"] for row in rows if row.cells["kernel:xid_lines_since_last_tick"] != "0"] == ["8"]
    assert rows[-1].cells["kernel:xid_lines_45s"] == "8"
    assert night.most_late(rows, INTERVAL_SECONDS) < 0.5


def test_an_applications_xids_are_recorded_and_nothing_is_done(rig: Rig) -> None:
    """Xid 31, 43 and 13 stay on record, each as the application's; so does a fatal line that a process wrote, and it is not believed."""
    running = rig.start(rig.pci(), rig.host(), rig.nvml())
    running.until("all is well", lambda: running.state().get("verdict") == "healthy")
    begun = len(rig.journal())
    rig.kernel.says(*APPLICATIONS)
    rig.kernel.says(LOST.format(GPUS[1]), facility=1)
    running.line("kernel log: injected by a process, not acted on: NVRM: Xid")
    running.ticks_more(2)
    assert running.state()["verdict"] == "healthy"
    assert len(rig.processes("nvml")) == 1
    assert running.terminate()[0] == 0

    entries = rig.journal()[begun:]
    assert not [entry.kind for entry in entries if entry.kind in ("opened", "action", "transition")]
    events = [entry.body for entry in of_kind(entries, "kernel")]
    assert [(event["xid"], event.get("injected", False)) for event in events] == [(31, False), (43, False), (13, False), (79, True)]
    assert not dumps.folders(rig.state_dir)
    assert total(rig.rows()) == 3


def fixed(row: Row) -> dict[str, str]:
    return dict(zip(("time", "boot_id", "tick"), row.identity, strict=True))


def total(rows: list[Row]) -> int:
    return sum(int(row.cells["kernel:xid_lines_since_last_tick"]) for row in rows)
