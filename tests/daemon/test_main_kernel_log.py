"""A kernel log that misbehaves, before the real daemon: nonsense in it, errors, and its end. For floods: `test_main_flood`."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.daemon.harness import Rig, numbers

INTERVAL_SECONDS = 0.5
SWITCH = "0000:0f:00.0"
GAPS = "xidwatch_kernel_log_gap_records_total"
XID_43 = "NVRM: Xid (PCI:0000:11:00): 43, pid={}, name=x, channel 0x0000000a"
MALFORMED = (
    b"no header and no semicolon\n",
    b"four,200,12,-;level is no number\n",
    b"4,two hundred,12,-;sequence is no number\n",
    b"4,200;too short a header\n",
    b";\n",
    b"\x00\x00\x00\x00\n",
    b"\xff\xfe\xfd not text at all\n",
    b"99999999999999999999999999,200,12,-;a number no counter has\n",
    b"4,200,12,-" + b"x" * 20_000 + b"\n",
)
FIELDS_ONLY = b" SUBSYSTEM=acpi\n DEVICE=+acpi:PNP0A08:00\n"

pytestmark = pytest.mark.slow


@pytest.fixture
def rig(tmp_path: Path) -> Iterator[Rig]:
    with Rig(tmp_path) as rig:
        yield rig


def test_nonsense_between_two_lines_costs_neither_of_them(rig: Rig) -> None:
    """Each malformed record is counted as lost and shown as a gap; text that is no text is kept as far as it is; ticks go on."""
    running = rig.start(rig.pci(), rig.host())
    running.settle()
    rig.kernel.says(XID_43.format(1))
    for record in MALFORMED:
        rig.kernel.write(record)
    rig.kernel.write(FIELDS_ONLY)
    rig.kernel.says(XID_43.format(2) + "\\x00\\xff \x00", XID_43.format(3))
    running.until("all is counted", lambda: running.metrics()[GAPS] >= len(MALFORMED))
    running.until_condition("KernelLogGap", "kernel", "TRUE")
    running.ticks_more(2)
    assert running.metrics()[GAPS] == len(MALFORMED)
    assert running.terminate()[0] == 0
    entries, rows = rig.journal(), rig.rows()
    assert [entry.body["pid"] for entry in entries if entry.kind == "kernel"] == [1, 2, 3]
    assert sum(entry.body["lost"] for entry in entries if entry.kind == "gap") == len(MALFORMED)
    assert sorted(numbers(entries)) == list(range(1, len(entries) + 1))
    assert rig.most_late(rows, INTERVAL_SECONDS) < 0.5


def test_a_log_that_ends_under_way_makes_nothing_healthy(rig: Rig) -> None:
    """It is said once, what rests on the log is UNKNOWN from then on, and an incident that was open stays open."""
    running = rig.start(rig.pci(), rig.host(), rig.nvml())
    running.settle()
    assert running.condition("DriverFatalXid", "gpu:0000:12:00.0") == "FALSE"
    rig.kernel.says("NVRM: Xid (PCI:0000:11:00): 119, pid=467, name=x, Timeout after 6s of waiting for RPC response from GPU0 GSP!")
    running.line("incident .* opened")
    rig.kernel.end()
    running.line("end of file. Xid lines cannot be seen from here on")
    running.ticks_more(2)
    assert running.condition("DriverFatalXid", "gpu:0000:12:00.0") == "UNKNOWN"
    assert running.state()["incident"]
    assert running.state()["verdict"] == "failed"
    assert running.terminate()[0] == 0
    rows = rig.rows()
    assert rows[-1].cells["kernel:xid_lines_since_last_tick"] == ""
    assert rig.most_late(rows, INTERVAL_SECONDS) < 0.5


def test_a_log_that_may_not_be_read_leaves_its_conditions_unknown(rig: Rig) -> None:
    """It is said what to do, and everything else is watched as ever; nothing is called healthy for want of lines."""
    trouble = rig.folder / "trouble"
    trouble.write_text("open EACCES")
    running = rig.start(rig.pci(), rig.host(), rig.nvml(), kernel_trouble=trouble)
    running.line("permission denied. Xid lines cannot be seen. Run as root")
    running.line("kernel log unreadable")
    running.until_condition("DriverFatalXid", "gpu:0000:12:00.0", "UNKNOWN")
    running.until_condition("KernelLogGap", "kernel", "UNKNOWN")
    running.ticks_more(2)
    assert running.state()["verdict"] == "unknown"
    rig.tree.die(SWITCH)
    running.line("incident .* opened")
    running.until_condition("ConfigSpaceAllOnes", f"port:{SWITCH}", "TRUE")
    assert running.terminate()[0] == 0
    assert {row.cells["kernel:xid_lines_since_last_tick"] for row in rig.rows()} == {""}


def test_a_log_that_overran_goes_on_at_the_oldest_record_left(rig: Rig) -> None:
    """EPIPE costs the records that are gone, which are counted, and none that is there; the Xid behind the gap is acted on."""
    trouble = rig.folder / "trouble"
    running = rig.start(rig.pci(), rig.host(), rig.nvml(), kernel_trouble=trouble)
    running.settle()
    rig.kernel.says(XID_43.format(1))
    running.until(
        "it has been read", lambda: any(name.startswith("xidwatch_gpu_xid_errors_total") and v for name, v in running.metrics().items())
    )
    trouble.write_text("read EPIPE")
    rig.kernel.seq += 311
    rig.kernel.says("NVRM: Xid (PCI:0000:11:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus.", XID_43.format(2))
    running.until_condition("GpuLost", "gpu:0000:11:00.0", "TRUE")
    running.until_condition("KernelLogGap", "kernel", "TRUE")
    running.ticks_more(1)
    assert running.metrics()[GAPS] == 311
    assert running.terminate()[0] == 0
    assert not trouble.exists()
    assert [entry.body["lost"] for entry in rig.journal() if entry.kind == "gap"] == [311]


def test_a_log_whose_device_goes_away_is_no_silence(rig: Rig) -> None:
    """ENODEV in the midst: what was read before counts, from then on its conditions are UNKNOWN, and ticks go on."""
    trouble = rig.folder / "trouble"
    running = rig.start(rig.pci(), rig.host(), rig.nvml(), kernel_trouble=trouble)
    running.settle()
    trouble.write_text("read ENODEV")
    rig.kernel.says(XID_43.format(1))
    running.line("No such device. Xid lines cannot be seen from here on")
    running.ticks_more(2)
    assert running.condition("DriverFatalXid", "gpu:0000:12:00.0") == "UNKNOWN"
    assert running.terminate()[0] == 0
    rows = rig.rows()
    assert rows[-1].cells["kernel:xid_lines_since_last_tick"] == ""
    assert rig.most_late(rows, INTERVAL_SECONDS) < 0.5
