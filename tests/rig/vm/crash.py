"""A machine that ends in the middle of a loss: how far the evidence had got."""

from __future__ import annotations

import time

from tests.rig.vm.guest import Guest
from tests.rig.vm.hardware import GPU_SUBJECTS
from tests.rig.vm.records import Records
from xidwatch.records import dumps
from xidwatch.records.samples import Row

LINE = "<3>NVRM: Xid (PCI:0000:03:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus."


def begin_loss(guest: Guest) -> Row:
    """A GPU is lost; the last row before it, which is on disk."""
    before = guest.records().rows[-1]
    guest.run("sync")
    guest.kernel_says(LINE)
    return before


def power_cut(guest: Guest, seconds: float) -> None:
    """So long after the edge, in the host's time: the guest is slower than a real machine by about ten."""
    before = begin_loss(guest)
    time.sleep(seconds)
    guest.machine.cut_power()
    guest.machine.start()
    Survivors(guest, before).tell()


class Survivors:
    """What the next boot finds. Waits until its own run records."""

    def __init__(self, guest: Guest, before: Row) -> None:
        self._guest = guest
        self._before = before
        self._boot = guest.run("cat /proc/sys/kernel/random/boot_id").strip()
        self._records = guest.until("the next run records", self._recording)

    def _recording(self) -> Records | None:
        records = self._guest.records()
        return records if [row for row in records.rows if row.boot_id == self._boot] else None

    def tell(self) -> None:
        """One line; what had been written is readable, and what was durable before the edge is there."""
        guest, records = self._guest, self._records
        old = [row for row in records.rows if row.boot_id == self._before.boot_id]
        edges = [edge for edge in records.of("transition", after="TRUE", subject=GPU_SUBJECTS[0]) if edge.boot_id != self._boot]
        parts = [part for folder in records.dumps for part in dumps.load(folder).parts if part.status == "ok"]
        last = old[-1].tick if old else 0
        guest.say(
            f"survived: ticks up to {last} (before the edge {self._before.tick}), {len(edges)} of the edge's records, "
            f"{len(records.incidents)} incident, {len(parts)} parts of its dump, {len(records.damage)} torn lines"
        )
        assert self._before.identity in [row.identity for row in old], "a row that was synced is gone"
        assert len(records.damage) <= 1, "more than the line that was being written"
