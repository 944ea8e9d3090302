"""SIGKILL at the n-th file write: each process dies in the midst of what it writes, and nothing is lost, doubled or half there.

Where it dies is said by a fuse (`tests.fakes.fatal`): the call that would have been the n-th is not made, or half made.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.daemon.harness import ROOT, Rig, Running, numbers
from tests.fakes.engine import EngineHost
from tests.fakes.hwmon import HwmonTree
from xidwatch.records import dumps
from xidwatch.records.journal import Entry

INTERVAL_SECONDS = 0.5
ANSWER_SECONDS = 0.4  # the deadline of such a daemon
SWITCH = "0000:0f:00.0"
XID_43 = "NVRM: Xid (PCI:0000:11:00): 43, pid={}, name=x, channel 0x0000000a"
LOST = "NVRM: Xid (PCI:0000:11:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus."

# Through a tick, an edge and the start of a successor, which takes up to about twenty such calls each.
RECORDER_CALLS = (*range(1, 9), 11, 14, 18, 23)
LOOP_CALLS = (1, 2, 3, 5, 8, 12, 19, 30)
DUMP_CALLS = (1, 4, 8)
WORKER_CALLS = (1, 2)

pytestmark = pytest.mark.slow


class Fuse:
    """Who is to die, and at which call."""

    def __init__(self, rig: Rig) -> None:
        self.path = rig.folder / "fuse"
        rig.environment["XIDWATCH_TEST_FUSE"] = str(self.path)
        rig.further_modules.append(str(ROOT / "tests/fakes/fatal"))

    def light(self, who: str, call: int) -> None:
        beside = self.path.with_suffix(".new")
        beside.write_text(f"{who} {call}")
        beside.rename(self.path)

    def until_blown(self, running: Running) -> None:
        running.until(f"the fuse is blown: {self.path}", lambda: not self.path.exists())


@pytest.fixture
def rig(tmp_path: Path) -> Iterator[Rig]:
    with Rig(tmp_path) as rig:
        yield rig


@pytest.fixture
def fuse(rig: Rig) -> Fuse:
    return Fuse(rig)


def pids(entries: list[Entry]) -> list[int]:
    """Of the processes that the Xids on record name: each Xid here has its own."""
    return [entry.body["pid"] for entry in entries if entry.kind == "kernel" and entry.body.get("xid") == 43]


def whole(rig: Rig) -> list[Entry]:
    """The journal of a run that has ended, every number once and no line damaged."""
    entries = rig.journal()
    assert sorted(numbers(entries)) == list(range(1, len(entries) + 1))
    return entries


def test_a_recorder_may_die_at_any_write(rig: Rig, fuse: Fuse) -> None:
    """Every record and every row is there once, whatever was half written, also when the successor dies while it repairs that."""
    running = rig.start(rig.pci(), rig.host(), patience={"xidwatch.daemon.recording:RESTART_SECONDS": 0.05})
    running.settle()
    for call in RECORDER_CALLS:
        fuse.light("recorder", call)
        rig.kernel.says(XID_43.format(call))
        fuse.until_blown(running)
    running.ticks_more(2)
    assert running.terminate()[0] == 0

    rows = rig.rows()
    assert pids(whole(rig)) == list(RECORDER_CALLS)
    assert [row.tick for row in rows] == list(range(1, len(rows) + 1))
    assert rig.most_late(rows, INTERVAL_SECONDS) < 0.5


def test_a_dump_worker_may_die_at_any_write(rig: Rig, fuse: Fuse) -> None:
    """Another makes the dump whole; no folder is left that cannot be read."""
    rules = rig.rules(ConfigSpaceAllOnes={"clear": "400ms"})
    running = rig.start(rig.pci(), rig.host(), rules_dir=rules)
    running.settle()
    for call in DUMP_CALLS:
        fuse.light("dump", call)
        heard = len(running.lines)
        rig.tree.die(SWITCH)
        running.line("TAKE_DUMP .* ok", after=heard)
        assert not fuse.path.exists()
        rig.tree.recover(SWITCH)
        running.line("incident .* closed", after=heard)
    assert running.terminate()[0] == 0
    whole(rig)
    found = [dumps.load(folder) for folder in dumps.folders(rig.state_dir)]
    assert [dump.state for dump in found] == ["complete"] * len(DUMP_CALLS)


def every_probe(rig: Rig) -> list[dict[str, object]]:
    """All there are, the driver's over a fake library."""
    sensors, engines = HwmonTree(rig.folder / "sensors"), EngineHost(rig.folder / "engines")
    sensors.board()
    engines.process(4711)
    engines.unit("vllm.service", [4711])
    hwmon = rig.probe("hwmon", "xidwatch.probes.hwmon:create", options={"root": str(sensors.root)})
    return [rig.pci(), rig.host(), rig.nvml(), hwmon, rig.engine({**engines.options, "engines": [{"unit": "vllm.service"}]})]


def test_a_worker_may_die_at_any_word(rig: Rig, fuse: Fuse) -> None:
    """Each in turn: a death costs at most one tick of its own (between ticks none), none of another probe's; then it answers again."""
    probes = every_probe(rig)
    names = [str(probe["name"]) for probe in probes]
    running = rig.start(*probes)
    running.settle()
    last: dict[str, int] = {}  # the tick in which a probe has died for the last time, and is well again
    for name in names:
        for call in WORKER_CALLS:
            fuse.light(name, call)
            fuse.until_blown(running)
            last[name] = running.ticks_more(2)
    assert running.terminate()[0] == 0
    whole(rig)
    rows = rig.rows()[1:]
    assert rig.most_late(rows, INTERVAL_SECONDS) < 0.5
    begun = 2
    for name in names:
        these = [row for row in rows if begun < row.tick <= last[name]]
        assert "0" in {row.cells[f"probe:{name}:success"] for row in these}, name
        bad = {
            other: [row.tick for row in rig.given_time(these, other, within=ANSWER_SECONDS) if row.cells[f"probe:{other}:success"] == "0"]
            for other in names
        }
        assert len(bad.pop(name)) <= len(WORKER_CALLS), name
        assert not any(bad.values()), (name, bad)
        begun = last[name]


def test_the_loop_may_die_at_any_write(rig: Rig, fuse: Fuse) -> None:
    """The kernel log is read anew by each successor: one incident, every line on record once, none forgotten."""
    rig.kernel.says(LOST)
    for call in LOOP_CALLS:
        rig.kernel.rewind()
        rig.kernel.says(XID_43.format(call))
        fuse.light("daemon", call)
        running = rig.start(rig.pci(), rig.host())
        running.ended()
        assert not fuse.path.exists()
    rig.kernel.rewind()
    last = rig.start(rig.pci(), rig.host())
    last.tick(3)
    incident = last.state()["incident"]
    assert last.terminate()[0] == 0

    entries = rig.journal()
    assert pids(entries) == list(LOOP_CALLS)
    assert [entry.incident for entry in entries if entry.kind == "opened"] == [incident]
    lost = [entry for entry in entries if entry.kind == "transition" and entry.body["after"] == "TRUE" and entry.body["type"] == "GpuLost"]
    assert len(lost) == 1
    for folder in dumps.folders(rig.state_dir):
        assert dumps.load(folder).parts
