"""A kernel log that overflows: a hundred thousand records at once, some of them lost."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from tests.daemon.harness import Rig, numbers

INTERVAL_SECONDS = 0.5
LINES = 100_000
LOST = 311
XID = "4,{seq},{usec},c;NVRM: Xid (PCI:0000:11:00): 43, pid={seq}, name=x, channel 0x0000000a\n"
SAME = "4,{seq},{usec},c;NVRM: Xid (PCI:0000:11:00): 43, pid=4242, name=x, channel 0x0000000a\n"
OTHER = "6,{seq},{usec},-;usb 1-1: new high-speed USB device number {seq} using xhci_hcd\n"

pytestmark = pytest.mark.slow


def records(first: int, count: int) -> bytes:
    """Every second an Xid unlike any other: nothing to be folded."""
    usec = int(time.monotonic() * 1e6)
    return "".join((XID if seq % 2 else OTHER).format(seq=seq, usec=usec) for seq in range(first, first + count)).encode()


def test_a_flood_shifts_no_tick_and_is_accounted_for(tmp_path: Path) -> None:
    """Ticks stay on time; the journal keeps a bounded part of the flood and counts the rest; what was lost is a gap and a condition."""
    with Rig(tmp_path) as rig:
        running = rig.start(rig.pci(), rig.host())
        running.settle()
        rig.kernel.write(records(1, LINES // 2))
        rig.kernel.write(records(1 + LINES // 2 + LOST, LINES // 2))
        running.until_condition("KernelLogGap", "kernel", "TRUE")
        running.until(
            "all is read",
            lambda: "xidwatch_kernel_log_gap_records_total" in running.metrics() and xids_counted(running.metrics()) == LINES // 2,
        )
        running.ticks_more(2)
        assert running.metrics()["xidwatch_kernel_log_gap_records_total"] == LOST
        assert running.terminate()[0] == 0

        rows, entries = rig.rows(), rig.journal()
        assert rig.most_late(rows, INTERVAL_SECONDS) < 0.5
        assert [row.tick for row in rows] == list(range(1, len(rows) + 1))
        assert sorted(numbers(entries)) == list(range(1, len(entries) + 1))
        written = sum(entry.kind == "kernel" for entry in entries)
        gaps = {
            source: sum(e.body["lost"] for e in entries if e.kind == "gap" and e.body["source"] == source) for source in ("kmsg", "journal")
        }
        assert gaps["kmsg"] == LOST
        assert written <= 501 * len(rows)
        assert written + gaps["journal"] == LINES // 2


def test_the_same_line_over_and_over_is_one_with_a_count(tmp_path: Path) -> None:
    """A driver that repeats itself shifts no tick either, and its journal holds a few lines a tick that add up to all of them."""
    with Rig(tmp_path) as rig:
        running = rig.start(rig.pci(), rig.host())
        running.settle()
        usec = int(time.monotonic() * 1e6)
        rig.kernel.write("".join(SAME.format(seq=seq, usec=usec) for seq in range(1, LINES + 1)).encode())
        running.until("all is read", lambda: xids_counted(running.metrics()) == LINES)
        running.ticks_more(2)
        assert running.terminate()[0] == 0

        rows = rig.rows()
        written = [entry.body.get("repeated", 1) for entry in rig.journal() if entry.kind == "kernel"]
        assert rig.most_late(rows, INTERVAL_SECONDS) < 0.5
        assert sum(written) == LINES
        assert len(written) <= 3 * len(rows)


def xids_counted(metrics: dict[str, float]) -> float:
    return sum(value for series, value in metrics.items() if series.startswith("xidwatch_gpu_xid_errors_total"))
