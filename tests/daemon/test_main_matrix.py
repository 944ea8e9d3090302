"""Every fault with every source, as real processes: `FAULTS x SOURCES` of `tests.daemon.faults`.

In each of two nights some of the sources fail, with the others well beside them, and in one night they all fail at once. The
nights play one fault after the other at the same time: it begins, shows, is mended, all is as before; in the night of all the
daemon is killed in the midst of it, and its successor carries on. The tests look at what is on record, cell by cell of the matrix.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial
from itertools import pairwise
from pathlib import Path

import pytest

from tests.daemon.faults import FAULTS, SOURCES, Fault, SilentDisk, Source, let_through
from tests.daemon.harness import Rig, Running, missing_reasons, numbers
from tests.fakes.nvml_library import NvmlLibrary
from xidwatch.records import dumps
from xidwatch.records.journal import Entry
from xidwatch.records.samples import Row

INTERVAL_SECONDS = 0.5
ANSWER_SECONDS = 0.4  # the deadline of such a daemon
SHOWING_TICKS = 3
RECOVERY_TICKS = 2
ALL = "all"
NIGHTS = {"one": ("nvml", "host"), "other": ("pci", "hwmon", "engine"), ALL: tuple(SOURCES)}
NIGHT_OF = {source: name for name, sources in NIGHTS.items() if name != ALL for source in sources}
SOON_TOO_MUCH = {"xidwatch.daemon.workers:MAX_ANSWER": 256 * 1024}  # a flood is one after 3,000 lines: none is to drown the machine
QUICK = {
    "ProbeStuck": {"hold": "1s"},
    "ProbeNotAnswering": {"hold": "1s"},
    "ConfigSpaceAllOnes": {"clear": "1s"},
    "RailOutOfRange": {"hold": "1s", "clear": "1s"},
}

pytestmark = pytest.mark.slow

CELLS = [
    pytest.param(fault, source, marks=[pytest.mark.root] if row.root else [], id=f"{fault}-{source}")
    for fault, row in FAULTS.items()
    for source in SOURCES
]
matrix = pytest.mark.parametrize(("fault", "source"), CELLS)
every_night = pytest.mark.parametrize("name", NIGHTS)


@dataclass
class Episode:
    """One fault in one night: when it was, and what could be seen. Conditions by source."""

    began: float  # wall time
    tick: int  # the last before it began, and later before it was mended
    mended: float = 0.0
    own: dict[str, str] = field(default_factory=dict)  # of what is measured, while the fault lasts
    carried: dict[str, str] = field(default_factory=dict)  # the fault's own, two ticks into a successor
    before: str | None = None  # the open incident, when the daemon was killed
    after: str | None = None  # and with the successor
    kept: dict[Path, bytes] = field(default_factory=dict)  # what was on the disk when the daemon was killed


class Night:
    """One daemon, or one after the other, over sources that fail, beside sources that do not."""

    def __init__(self, name: str, folder: Path, library: NvmlLibrary) -> None:
        folder.mkdir()
        self.rig = Rig(folder)
        sources: list[Source] = [make(self.rig, library) for make in SOURCES.values()]
        self.failing = [source for source in sources if source.name in NIGHTS[name]]
        self.others = [source for source in sources if source not in self.failing]
        self.is_killed = name == ALL
        self.specs = [source.spec() for source in sources]
        self.rules = self.rig.rules(**QUICK)
        self.episodes: dict[str, Episode] = {}
        self.rows: list[Row] = []
        self.entries: list[Entry] = []
        self.running = self.start()

    def start(self) -> Running:
        return self.rig.start(*self.specs, interval=f"{INTERVAL_SECONDS}s", rules_dir=self.rules, patience=SOON_TOO_MUCH)

    # --- one episode, in steps that all nights take together

    def begin(self, name: str, fault: Fault, disk: SilentDisk | None) -> None:
        self.episode = self.episodes[name] = Episode(time.time(), self.last_tick())
        for source in self.failing:
            fault.begin(source, disk)

    def show(self, fault: Fault) -> None:
        self.running.tick(self.episode.tick + SHOWING_TICKS + 1)
        for source in self.failing:
            if lasting := fault.lasting(source):
                self.running.until_condition(lasting, source.probe, "TRUE")
            if source.condition:
                self.episode.own[source.name] = self.running.condition(*source.condition)

    def kill(self, _fault: Fault) -> None:
        if not self.is_killed:
            return
        self.episode.before = self.running.state()["incident"]
        self.episode.kept = {path: path.read_bytes() for path in record_files(self.rig.state_dir)}
        self.running.kill()
        self.running = self.start()

    def carry_on(self, fault: Fault) -> None:
        if not self.is_killed:
            return
        self.running.tick(2)
        self.episode.after = self.running.state()["incident"]
        self.episode.carried = {source.name: self.running.condition(fault.lasting(source), source.probe) for source in self.failing}

    def mend(self, _fault: Fault) -> None:
        self.episode.mended, self.episode.tick = time.time(), self.last_tick()
        for source in self.failing:
            source.trouble.unlink(missing_ok=True)
            source.mend()

    def recover(self, _fault: Fault) -> None:
        self.running.tick(self.episode.tick + RECOVERY_TICKS)
        for source in self.failing:
            self.running.until(f"{source.name} answers in full again", partial(self._serves_again, source.name))
            for condition in ("ProbeStuck", "ProbeNotAnswering"):
                self.running.until_condition(condition, source.probe, "FALSE")
        self.running.until("no incident is open", lambda: not self.running.state()["incident"])

    def _serves_again(self, name: str) -> bool:
        for gate in self.rig.folder.glob("gate-*"):
            let_through(gate)
        metrics = self.running.metrics()
        stuck = metrics[f'xidwatch_probe_stuck_seconds{{probe="{name}"}}']
        return metrics[f'xidwatch_probe_success{{probe="{name}"}}'] == 1 and stuck == 0

    def last_tick(self) -> int:
        self.running.hear()
        return max(self.running.tick_lines())

    def end(self) -> None:
        assert self.running.terminate()[0] == 0
        self.rows, self.entries = self.rig.rows(), self.rig.journal()

    # --- what is left of it

    def runs(self) -> list[list[Row]]:
        """Rows by daemon: ticks count from 1."""
        cuts = [0, *(number for number, (one, other) in enumerate(pairwise(self.rows), 1) if other.tick <= one.tick), len(self.rows)]
        return [self.rows[begin:end] for begin, end in pairwise(cuts)]

    def source(self, name: str) -> Source:
        return next(failing for failing in self.failing if failing.name == name)

    def bad_rows(self, fault: str, source: Source) -> list[Row]:
        """From the first row in which its cell is empty to the last before it was mended."""
        episode, (cell, _) = self.episodes[fault], source.shown(fault)
        within = [row for row in self.rows if episode.began < row.wall < episode.mended - INTERVAL_SECONDS]
        return within[next((n for n, row in enumerate(within) if row.cells[cell] == ""), len(within)) :]

    def entries_of(self, fault: str) -> list[Entry]:
        episode = self.episodes[fault]
        return [entry for entry in self.entries if episode.began < entry.wall < episode.mended]

    def edges_of(self, fault: str) -> list[tuple[str, str]]:
        """Type and subject of all that became TRUE."""
        found = (entry.body for entry in self.entries_of(fault) if entry.kind == "transition")
        return [(edge["type"], edge["subject"]) for edge in found if edge["after"] == "TRUE"]


def record_files(state_dir: Path) -> list[Path]:
    """All that is only ever added to."""
    return [*state_dir.glob("journal/*.jsonl"), *state_dir.glob("samples/*.csv")]


def play(name: str, fault: Fault, nights: list[Night], disk: SilentDisk | None) -> None:
    """One row of the matrix, or as much of it as can be played at the same time."""
    if fault.root and disk:
        disk.freeze()
    for night in nights:
        night.begin(name, fault, disk)
    for step in (Night.show, Night.kill, Night.carry_on, Night.mend):
        for night in nights:
            step(night, fault)
    if fault.root and disk:
        disk.thaw()
    for night in nights:
        night.recover(fault)


@pytest.fixture(scope="module")
def nights(tmp_path_factory: pytest.TempPathFactory, nvml_built: Callable[..., Path]) -> Iterator[dict[str, Night]]:
    """Everything this user can play, played once."""
    folder = tmp_path_factory.mktemp("matrix")
    found: dict[str, Night] = {}
    with ExitStack() as ends:
        disk = SilentDisk(folder / "disk", list(SOURCES)) if os.geteuid() == 0 else None
        if disk:
            ends.callback(disk.unmount)
        for name in NIGHTS:
            library = NvmlLibrary(nvml_built(), tmp_path_factory.mktemp("nvml-state"))
            found[name] = Night(name, folder / name, library)
            for source in (*found[name].failing, *found[name].others):
                ends.callback(source.close)
            ends.callback(found[name].rig.close)
            found[name].running.tick(1)  # one after the other: starting takes processor time
        if disk:
            ends.callback(disk.thaw)
        for night in found.values():
            night.running.tick(4)
        for name, fault in FAULTS.items():
            if disk or not fault.root:
                play(name, fault, list(found.values()), disk)
        for night in found.values():
            night.end()
        yield found


# ------------------------------------------------------------------------------------------- in every cell


@matrix
def test_what_is_not_known_is_empty_and_has_its_reason(nights: dict[str, Night], fault: str, source: str) -> None:
    """From the first tick without an answer to the last the cell is empty, and why is on record; then it is back."""
    night = nights[NIGHT_OF[source]]
    failing = night.source(source)
    (cell, healthy), rows = failing.shown(fault), night.bad_rows(fault, failing)
    assert len(rows) >= SHOWING_TICKS - 1
    assert {row.cells[cell] for row in rows} == {""}
    reasons = missing_reasons(night.entries_of(fault), cell)
    assert FAULTS[fault].reasons[0] in reasons
    assert set(reasons) <= {*FAULTS[fault].reasons, "TIMED_OUT"}  # a worker that has to be born first may also come too late
    back = next(row for row in night.rows if row.wall > night.episodes[fault].mended and row.cells[cell])
    assert back.cells[cell] == healthy


@matrix
def test_the_other_sources_do_not_notice(nights: dict[str, Night], fault: str, source: str) -> None:
    """What they measure is in every row."""
    night = nights[NIGHT_OF[source]]
    for other in night.others:
        rows = night.rig.given_time(night.bad_rows(fault, night.source(source)), other.name, within=ANSWER_SECONDS)
        assert {row.cells[other.cell] for row in rows} <= {other.healthy}


@matrix
def test_the_state_says_unknown(nights: dict[str, Night], fault: str, source: str) -> None:
    """Whatever is measured by it is UNKNOWN; what becomes TRUE is about the probes that fail, and nothing else does."""
    night = nights[NIGHT_OF[source]]
    failing = night.source(source)
    if failing.condition:
        assert night.episodes[fault].own[source] == (failing.in_rubbish if fault == "garbage read" else "UNKNOWN")
    assert {subject for _, subject in night.edges_of(fault)} <= {each.probe for each in night.failing}
    if lasting := FAULTS[fault].lasting(failing):
        assert night.edges_of(fault).count((lasting, failing.probe)) == 1


@matrix
def test_a_successor_carries_on_in_the_midst_of_it(nights: dict[str, Night], fault: str, source: str) -> None:
    """After SIGKILL the cell stays empty, a condition that was TRUE is TRUE, and that is on record once."""
    night = nights[ALL]
    failing = night.source(source)
    (cell, _), rows = failing.shown(fault), night.bad_rows(fault, failing)
    assert 1 in {row.tick for row in rows}
    assert {row.cells[cell] for row in rows} == {""}
    lasting = FAULTS[fault].lasting(failing)
    assert night.episodes[fault].carried[source] == ("TRUE" if lasting else "")
    if lasting:
        assert night.edges_of(fault).count((lasting, failing.probe)) == 1


# ------------------------------------------------------------------------------------------ of a whole night


@pytest.mark.parametrize("fault", [pytest.param(name, marks=[pytest.mark.root] if row.root else []) for name, row in FAULTS.items()])
def test_a_killed_daemon_leaves_its_incident_and_its_records(nights: dict[str, Night], fault: str) -> None:
    """The successor has the same incident, if there is one, and nothing that was on the disk has changed."""
    night = nights[ALL]
    episode = night.episodes[fault]
    if any(FAULTS[fault].lasting(source) == "ProbeStuck" for source in night.failing):
        assert episode.before
    if episode.before:
        assert episode.after == episode.before
    for path, kept in episode.kept.items():
        assert path.read_bytes().startswith(kept[: kept.rfind(b"\n") + 1])


@every_night
def test_every_tick_of_every_run_is_on_time(nights: dict[str, Night], name: str) -> None:
    """No tick begins more than half a second from its plan, and none is left out."""
    runs = nights[name].runs()
    assert len(runs) == (len(nights[name].episodes) + 1 if nights[name].is_killed else 1)
    for rows in runs:
        assert [row.tick for row in rows] == list(range(1, len(rows) + 1))
        assert nights[name].rig.most_late(rows, INTERVAL_SECONDS) < 0.5


@every_night
def test_every_record_is_there_once(nights: dict[str, Night], name: str) -> None:
    """Over all runs the numbers of the records have no gap and no double, and every incident opened was closed."""
    entries = nights[name].entries
    assert sorted(numbers(entries)) == list(range(1, len(entries) + 1))
    opened, closed = ([str(entry.incident) for entry in entries if entry.kind == kind] for kind in ("opened", "closed"))
    assert sorted(opened) == sorted(closed)
    assert len(set(opened)) == len(opened)


@every_night
def test_every_dump_can_be_read(nights: dict[str, Night], name: str) -> None:
    """Also one whose collector got stuck where the probe did."""
    for folder in dumps.folders(nights[name].rig.state_dir):
        assert dumps.load(folder).parts
