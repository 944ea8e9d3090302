"""Starting, and being told to stop before that is over."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.daemon.harness import Rig, poll_until

pytestmark = pytest.mark.slow


@pytest.fixture
def rig(tmp_path: Path) -> Iterator[Rig]:
    """A stage of its own."""
    with Rig(tmp_path) as stage:
        yield stage


@pytest.mark.parametrize("sign", ["lock", "children.json"])
def test_a_stop_in_the_middle_of_the_start_leaves_nobody_behind(rig: Rig, sign: str) -> None:
    """TERM before the first tick, at two moments of the start: no worker is born after it, no socket stays."""
    running = rig.start(rig.pci(), rig.host(), rig.nvml())
    running.until("the start has come so far", lambda: (rig.run_dir / sign).exists() or None)
    running.terminate()
    poll_until("nobody is left", lambda: not rig.processes())  # the nursery leaves when it sees that the daemon has
    assert not (rig.run_dir / "control.sock").exists()


def test_after_such_a_stop_the_next_run_is_like_any_other(rig: Rig) -> None:
    """Nothing has to be tidied up by hand."""
    running = rig.start(rig.pci(), rig.host(), rig.nvml())
    running.until("the start has come so far", lambda: (rig.run_dir / "lock").exists() or None)
    running.terminate()
    again = rig.start(rig.pci(), rig.host(), rig.nvml())
    again.ticks_more(2)
    assert again.terminate()[0] == 0
    assert len({row.tick for row in rig.rows()}) >= 2


def test_a_stop_before_the_past_is_known_forgets_no_incident(rig: Rig) -> None:
    """The journal cannot be read yet, since another recorder still has it; TERM comes; the run after that carries the incident on."""
    first = rig.start(rig.pci(), rig.host(), rig.nvml())
    first.ticks_more(1)
    rig.kernel.says("NVRM: Xid (PCI:0000:11:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus.")
    first.line("incident .* opened")
    assert first.terminate()[0] == 0
    (opened,) = [entry for entry in rig.journal() if entry.kind == "opened"]

    held = os.open(first.state_dir, os.O_RDONLY | os.O_DIRECTORY)
    fcntl.flock(held, fcntl.LOCK_EX)
    second = rig.start(rig.pci(), rig.host(), rig.nvml())
    second.until("it samples all the same", lambda: second.child("pci") or None)
    assert second.terminate()[0] == 0
    os.close(held)

    third = rig.start(rig.pci(), rig.host(), rig.nvml())
    carried = third.until("an incident is open", lambda: third.state().get("incident"))
    assert carried == opened.incident
    third.terminate()
    assert [entry.incident for entry in rig.journal() if entry.kind == "opened"] == [opened.incident]
