"""A machine that ends in the middle of a loss: how far the evidence had got."""

from __future__ import annotations

import time

from tests.rig.vm.guest import Guest
from tests.rig.vm.hardware import GPU_SUBJECTS
from tests.rig.vm.records import Records
from xidwatch.records import dumps

LINE = "<3>NVRM: Xid (PCI:0000:03:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus."


def begin_loss(guest: Guest) -> int:
    """A GPU is lost; the number of the last tick before it, on disk."""
    guest.until("the first rows are on disk", lambda: len(guest.records().rows) > 1)
    tick = guest.records().rows[-1].tick
    guest.run("sync")
    guest.kernel_says(LINE)
    return tick


def power_cut(guest: Guest, seconds: float) -> None:
    """So long after the edge, in the host's time: the guest is slower than a real machine by about ten."""
    before = begin_loss(guest)
    time.sleep(seconds)
    guest.machine.cut_power()
    guest.machine.start()
    Survivors(guest, before).tell()


class Survivors:
    """What the next boot finds. Waits until its own run records."""

    def __init__(self, guest: Guest, tick_before: int) -> None:
        self._guest = guest
        self._before = tick_before
        self._boot = guest.run("cat /proc/sys/kernel/random/boot_id").strip()
        self._records = guest.until("the next run records", self._recording)

    def _recording(self) -> Records | None:
        records = self._guest.records()
        return records if [row for row in records.rows if row.boot_id == self._boot] else None

    def tell(self) -> None:
        """One line; what had been written is readable, and what was durable before the edge is there."""
        guest, records = self._guest, self._records
        old = [row.tick for row in records.rows if row.boot_id != self._boot]
        edges = [edge for edge in records.of("transition", after="TRUE", subject=GPU_SUBJECTS[0]) if edge.boot_id != self._boot]
        parts = [part for folder in records.dumps for part in dumps.load(folder).parts if part.status == "ok"]
        guest.say(
            f"survived: ticks up to {max(old, default=0)} (before the edge {self._before}), {len(edges)} of the edge's records, "
            f"{len(records.incidents)} incident, {len(parts)} parts of its dump, {len(records.damage)} torn lines"
        )
        assert self._before in old, "a row that was synced is gone"
        assert len(records.damage) <= 1, "more than the line that was being written"
