"""A misbehaving probe beside healthy ones, as real processes: the healthy ones are on time, and nobody is told more than was seen.

Every fault has a daemon of its own. They run one after the other, or a small machine would be late for their number, each for a few
seconds, and the tests look at what is left of it: the rows, the journal, what metrics showed, which processes there were.
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from tests.daemon.harness import LoopDisk, Process, Rig, Running, missing_reasons
from tests.fakes.probes import FIRST, SECOND
from xidwatch.records.journal import Entry
from xidwatch.records.samples import Row

INTERVAL_SECONDS = 0.5
ANSWER_SECONDS = 0.4  # the deadline of such a daemon
GOOD_TICKS = 3
BAD_TICKS = 6  # 3 s: less than it takes to end a process in user space that does not listen
STUCK_SECONDS = 'xidwatch_probe_stuck_seconds{probe="bad"}'
WORD = "c0101000"
"""What a port of the fake probes answers, as the row prints it."""


@dataclass(frozen=True)
class Fault:
    """One way to misbehave. `reason`: why the second port's cell is empty; `stuck`: a process is left waiting for ever."""

    target: str
    reason: str
    stuck: bool = False
    root: bool = False


FAULTS = {
    "never-answers": Fault("never_answers", "TIMED_OUT", stuck=True),
    "uninterruptible": Fault("opens_file", "TIMED_OUT", stuck=True, root=True),
    "crashes": Fault("crashes", "TIMED_OUT"),
    "late": Fault("answers_late", "TIMED_OUT", stuck=True),
    "rubbish": Fault("says_rubbish", "MALFORMED"),
    "half-a-line": Fault("says_half_a_line", "MALFORMED"),
    "flood": Fault("floods", "MALFORMED"),
    "flood-unasked": Fault("floods_unasked", "MALFORMED"),
    "endless-line": Fault("says_one_endless_line", "MALFORMED"),
}
EVERY = [pytest.param(name, marks=[pytest.mark.root] if fault.root else []) for name, fault in FAULTS.items()]
STUCK = [pytest.param(name, marks=[pytest.mark.root] if fault.root else []) for name, fault in FAULTS.items() if fault.stuck]

pytestmark = pytest.mark.slow


@dataclass
class Night:
    """What is left of one run."""

    fault: Fault
    rig: Rig
    running: Running
    trouble_tick: int = 0  # the last that was over when the trouble began
    rows: list[Row] = field(default_factory=list)
    entries: list[Entry] = field(default_factory=list)
    early: dict[str, float] = field(default_factory=dict)  # metrics, as soon as it is called stuck
    late: dict[str, float] = field(default_factory=dict)  # and when it has been for a while, or at the end
    processes: list[Process] = field(default_factory=list)  # of the misbehaving probe, at its end
    stuck_condition: str = ""
    exit_status: int = -1
    exit_seconds: float = 0.0  # without what the machine took

    def bad_rows(self) -> list[Row]:
        """Those that the trouble is in for sure."""
        return [row for row in self.rows if row.tick > self.trouble_tick + 1]

    def in_time(self) -> list[Row]:
        """Those that it may be in, and in which the machine gave whoever misbehaves the time to answer before."""
        rows = [row for row in self.rows if row.tick > self.trouble_tick]
        return self.rig.given_time(rows, "nursery", "bad", within=ANSWER_SECONDS)


def _start(folder: Path, fault: Fault, disk: LoopDisk | None, ends: ExitStack) -> Night:
    """Over when it has been well for some ticks."""
    folder.mkdir()
    rig = ends.enter_context(Rig(folder))
    options = {"when": str(folder / "trouble"), "gate": str(folder / "gate"), "file": str(disk.path / "new") if disk else ""}
    bad = rig.probe("bad", f"tests.fakes.probes:{fault.target}", options=options)
    os.mkfifo(folder / "gate")
    night = Night(fault, rig, rig.start(rig.pci(), rig.host(), bad, rules_dir=rig.rules(ProbeStuck={"hold": "1s"})))
    night.running.settle(GOOD_TICKS)
    return night


def _play(night: Night) -> None:
    """The trouble, to the daemon's end."""
    running = night.running
    running.hear()
    night.trouble_tick = max(running.tick_lines())
    (night.rig.folder / "trouble").touch()
    if night.fault.stuck:
        night.early = running.until("it is stuck", lambda: shown if (shown := running.metrics())[STUCK_SECONDS] > 0 else None)
        running.until_condition("ProbeStuck", "probe:bad", "TRUE")
    else:
        running.tick(night.trouble_tick + BAD_TICKS)
    night.late = running.metrics()
    running.tick(night.trouble_tick + BAD_TICKS)
    night.processes = night.rig.processes("bad")
    night.stuck_condition = running.condition("ProbeStuck", "probe:bad")
    night.exit_status, seconds = running.terminate()
    night.exit_seconds = running.ours(seconds)
    night.rows, night.entries = night.rig.rows(), night.rig.journal()


@pytest.fixture(scope="module")
def nights(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Night]]:
    """Every fault that this user can commit, played once."""
    folder = tmp_path_factory.mktemp("faults")
    found: dict[str, Night] = {}
    with ExitStack() as ends:
        disk = LoopDisk(folder / "disk") if os.geteuid() == 0 else None
        if disk:
            ends.callback(disk.unmount)
        for name, fault in FAULTS.items():
            if fault.root and not disk:
                continue
            found[name] = _start(folder / name, fault, disk if fault.root else None, ends)
            if disk and fault.root:
                ends.callback(disk.thaw)  # before anything else ends: who waits for it could not
                disk.freeze()
            _play(found[name])
        yield found


@pytest.mark.parametrize("name", EVERY)
def test_ticks_begin_on_time(nights: dict[str, Night], name: str) -> None:
    """No tick begins more than half a second from its plan, and none is left out."""
    rows = nights[name].rows
    assert [row.tick for row in rows] == list(range(1, len(rows) + 1))
    assert len(rows) >= GOOD_TICKS + BAD_TICKS
    assert nights[name].rig.most_late(rows, INTERVAL_SECONDS) < 0.5


@pytest.mark.parametrize("name", EVERY)
def test_healthy_probes_are_in_every_row(nights: dict[str, Night], name: str) -> None:
    """What the healthy probes measure is in every row, all of it."""
    night = nights[name]
    since = [row for row in night.rows if row.tick > night.trouble_tick]
    for row in night.rig.given_time(since, "pci", "host", within=ANSWER_SECONDS):
        assert row.cells["port:0000:0f:00.0:config_dword0"] == WORD
        assert row.cells["gpu:0000:14:00.0:config_dword0"] == "220410de"
        assert row.cells["host:load_1m"]
        assert (row.cells["probe:pci:success"], row.cells["probe:host:success"]) == ("1", "1")


@pytest.mark.parametrize("name", EVERY)
def test_what_did_answer_is_in_the_row(nights: dict[str, Night], name: str) -> None:
    """The first port of the misbehaving probe, answered before the trouble, has its value; the second has none."""
    bad, in_time = nights[name].bad_rows(), nights[name].in_time()
    assert bad
    assert {row.cells[f"{SECOND}:config_dword0"] for row in bad} == {""}
    troubled = [row for row in in_time if row.cells[f"{SECOND}:config_dword0"] == ""]
    assert {row.cells[f"{FIRST}:config_dword0"] for row in troubled} <= {WORD}
    assert {row.cells["probe:bad:success"] for row in troubled[:1]} <= {"0"}


@pytest.mark.parametrize("name", EVERY)
def test_an_empty_cell_has_its_reason_in_the_journal(nights: dict[str, Night], name: str) -> None:
    """Why the second port's cell is empty is on record, and it is what happened."""
    night, column = nights[name], f"{SECOND}:config_dword0"
    assert set(missing_reasons(night.entries, column)) <= {FAULTS[name].reason, "TIMED_OUT", "NOT_ASKED"}
    for first in [row for row in night.in_time() if row.cells[column] == ""][:1]:
        following = next((row.wall for row in night.rows if row.tick > first.tick), math.inf)
        until_then = [entry for entry in night.entries if entry.wall < following]
        assert missing_reasons(until_then, column)[-1] == FAULTS[name].reason


@pytest.mark.parametrize("name", EVERY)
def test_the_daemon_leaves_cleanly_all_the_same(nights: dict[str, Night], name: str) -> None:
    """TERM ends it with status 0 in under a second, the trouble notwithstanding."""
    night = nights[name]
    assert night.exit_status == 0
    assert night.exit_seconds < 1.0
    assert night.entries[-1].kind == "stopped"


@pytest.mark.parametrize("name", STUCK)
def test_a_stuck_process_is_shown_and_grows_older(nights: dict[str, Night], name: str) -> None:
    """How long the probe has been stuck is a metric that grows, and after its hold time the condition is TRUE."""
    night = nights[name]
    assert 0 < night.early[STUCK_SECONDS] < night.late[STUCK_SECONDS]
    assert night.stuck_condition == "TRUE"


@pytest.mark.parametrize("name", [name for name, fault in FAULTS.items() if not fault.stuck])
def test_a_probe_that_breaks_off_fails_and_is_not_called_stuck(nights: dict[str, Night], name: str) -> None:
    """A worker that broke off is no success and leaves nobody stuck."""
    night = nights[name]
    assert night.late['xidwatch_probe_success{probe="bad"}'] == 0
    assert night.stuck_condition == "FALSE"
    assert len(night.processes) <= 2
