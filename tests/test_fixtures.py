"""Recorded incidents, run through the real reader, parser and watch, and those that can be replayed through the whole daemon.

XIDWATCH_BLESS=1 pytest tests/test_fixtures.py     writes fixtures/*/expected anew; then read the diff
"""

from __future__ import annotations

import contextlib
import csv
import io
import json
import os
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from xidwatch import __version__
from xidwatch.cli import main
from xidwatch.config import Rules, load_rules, rules_dir
from xidwatch.core import watch
from xidwatch.core.kernel import Parser
from xidwatch.core.messages import KernelRead, KernelRecord
from xidwatch.core.model import KernelEvent, Moment
from xidwatch.core.watch import State
from xidwatch.daemon.kernel_log import KernelLog
from xidwatch.records import Damage, journal, samples

FIXTURES = Path(__file__).parent.parent / "fixtures"
H200 = FIXTURES / "h200-application-xids"
REPLAYED = sorted(path.parent for path in FIXTURES.glob("*/timeline.txt"))
BLESS = bool(os.environ.get("XIDWATCH_BLESS"))
STATE_DIR = Path("STATE")  # a relative place: its length, and so the line breaks, are the same everywhere
# What the README of each promises, whatever the blessed pages say: incidents, verdict at the end, conditions that were ever TRUE.
PROMISED: dict[str, tuple[int, str, set[str]]] = {
    "2026-09-17-switch-supply-trip": (2, "healthy", {"GpuLost", "GpuMissing", "DriverFatalXid", "ConfigSpaceAllOnes"}),
    "engine-comes-back": (1, "healthy", {"GpuLost", "GpuMissing", "DriverFatalXid", "ConfigSpaceAllOnes"}),
    "quiet-day": (0, "healthy", set()),
    "h200-application-xids": (0, "healthy", set()),
    "one-gpu-of-eight": (1, "failed", {"GpuLost", "DriverFatalXid", "ConfigSpaceAllOnes"}),
    "link-trained-down": (0, "degraded", {"LinkWidthBelowBaseline", "LinkBelowCapability"}),
    "rail-sag": (0, "healthy", {"RailOutOfRange"}),
    "card-swapped": (0, "degraded", {"DeviceReplaced"}),
    "nvml-version-mismatch": (0, "healthy", set()),
}
# Through which states the gate of its engine goes.
GATES: dict[str, str] = {
    "2026-09-17-switch-supply-trip": "RUNNING STOPPING HELD PROVING STARTING RUNNING STOPPING LATCHED",
    "engine-comes-back": "HELD PROVING STARTING RUNNING STOPPING HELD PROVING STARTING RUNNING",
}
# What is shown of a replayed night, by the file it is kept in.
SHOWN: dict[str, tuple[str, ...]] = {
    "report.txt": ("report",),
    "report.json": ("report", "--format", "json"),
    "status.txt": ("status",),
    "status.json": ("status", "--json"),
}
EXPECTED = json.loads((H200 / "expected.json").read_text())
NOW = Moment(1796068602.0, 110.0)


@pytest.fixture(scope="module")
def rules() -> Rules:
    """As shipped."""
    return load_rules(rules_dir(None))


def events(path: Path, rules: Rules) -> list[KernelEvent]:
    """What the kernel log holds, by the reader and the parser that the daemon uses."""
    log = KernelLog(os.open(path, os.O_RDONLY))
    parser = Parser(rules.xids)
    batch = log.read(10_000)
    log.close()
    assert batch.malformed == batch.lost == 0
    return [event for message in batch.messages for event in parser.feed(message)]


def test_the_applications_faults_are_one_event_each_and_no_incident(rules: Rules) -> None:
    """Xid 13 comes in three lines; none of the three programs makes the host unhealthy, and nothing is done."""
    found = events(H200 / "kmsg.txt", rules)
    assert Counter(str(event.xid) for event in found) == EXPECTED["xids"]
    read = KernelRead(tuple((NOW, event) for event in found), found[-1].seq, NOW)
    state, outputs = watch.step(rules.conditions, State(), read)
    assert [type(output) for output in outputs] == [KernelRecord] * 3
    assert (state.incident, watch.verdict(rules.conditions, state)) == (None, EXPECTED["verdict"])


def test_the_recorded_journal_says_the_same() -> None:
    """It was written on the machine itself: three kernel events, no incident, no action, a clean end."""
    problems: list[Damage] = []
    entries = list(journal.read_day(H200 / "journal.jsonl", problems))
    kinds = Counter(entry.kind for entry in entries)
    assert problems == []
    assert Counter(str(entry.body["xid"]) for entry in entries if entry.kind == "kernel") == EXPECTED["xids"]
    assert (kinds["opened"], kinds["action"]) == (EXPECTED["incidents"], EXPECTED["actions"])
    assert entries[-1].kind == "stopped"


def test_the_recorded_rows_hold_the_peak_that_no_average_shows() -> None:
    """A row for every tick, every one on time; the peak is more than three times the mean of its tick."""
    rows = list(samples.read(H200 / "samples.csv"))
    assert [row.tick for row in rows] == list(range(1, EXPECTED["ticks"] + 1))
    assert max(abs(row.wall - rows[0].wall - 30 * number) for number, row in enumerate(rows)) < 0.5
    gpu = "gpu:0000:00:06.0"
    highest = max(rows, key=lambda row: float(row.cells[f"{gpu}:power_peak_watts"]))
    assert float(highest.cells[f"{gpu}:power_peak_watts"]) == pytest.approx(EXPECTED["highest_peak_watts"], abs=0.5)
    assert float(highest.cells[f"{gpu}:power_peak_watts"]) > 3 * float(highest.cells[f"{gpu}:power_mean_watts"])


def test_the_rows_are_plain_csv() -> None:
    """Any spreadsheet reads them: one header, as many cells in every row."""
    with (H200 / "samples.csv").open(newline="") as file:
        lines = list(csv.reader(line for line in file if not line.startswith("#")))
    assert {len(line) for line in lines} == {len(lines[0])}
    assert lines[0][:3] == ["time", "boot_id", "tick"]


@pytest.mark.parametrize("path", sorted(p for p in FIXTURES.rglob("*") if p.is_file()), ids=lambda path: path.name)
def test_nothing_in_a_fixture_names_a_real_card_or_host(path: Path) -> None:
    """UUIDs, serials and boot ids are placeholders: what goes into a public repository cannot be taken back."""
    text = path.read_text()
    assert not re.search(r"GPU-(?!0{8}-0000-0000-0000-)[0-9a-f]{8}-", text)
    assert not re.search(r"serial\"?:? ?\"?(?!0{6})\d{10,}", text, re.IGNORECASE)
    assert not re.search(r"boot[ _]id\"?[: ]+\"?(?!0{8}-)[0-9a-f]{8}-", text)


# ------------------------------------------------------------------------------------------------ through the whole daemon


def said(*words: str) -> str:
    """What a command prints to standard output."""
    out = io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(io.StringIO()):
        main([*words, "--state-dir", str(STATE_DIR)])
    return out.getvalue().replace(str(STATE_DIR.absolute()), str(STATE_DIR))


def metrics() -> str:
    """The page at the end, without what is said of every host: no help, no version, no counter that never moved."""
    lines = (STATE_DIR / "run/metrics.txt").read_text().replace(__version__, "VERSION").splitlines()
    still = ("#", "xidwatch_gpu_xid_errors_total")
    return "".join(f"{line}\n" for line in lines if not (line.startswith(still) and line.endswith(" 0.0")) and not line.startswith("#"))


@pytest.fixture(scope="module", params=REPLAYED, ids=lambda path: path.name)
def night(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Path, str]]:
    """The fixture's folder and the lines of its run; the working directory holds what it left."""
    with contextlib.chdir(tmp_path_factory.mktemp("night")):
        yield request.param, said("replay", str(request.param))


@pytest.mark.slow
@pytest.mark.parametrize("name", ["run.txt", *SHOWN, "metrics.txt"])
def test_a_night_comes_out_as_it_was_blessed(night: tuple[Path, str], name: str) -> None:
    """Every command on every fixture, word for word; a change is read in the diff before it is blessed."""
    folder, run = night
    found = run if name == "run.txt" else metrics() if name == "metrics.txt" else said(*SHOWN[name])
    kept = folder / "expected" / name
    if BLESS:
        kept.parent.mkdir(exist_ok=True)
        kept.write_text(found)
    assert found == kept.read_text()


@pytest.mark.slow
def test_a_night_keeps_what_its_readme_promises(night: tuple[Path, str]) -> None:
    """So many incidents, each with a whole dump; these conditions and no others; this verdict."""
    folder, _ = night
    incidents, verdict, types = PROMISED[folder.name]
    problems: list[Damage] = []
    entries = [entry for day in journal.days(STATE_DIR) for entry in journal.read_day(day, problems)]
    assert problems == []
    assert sum(entry.kind == "opened" for entry in entries) == incidents
    assert {entry.body["type"] for entry in entries if entry.kind == "transition" and entry.body["after"] == "TRUE"} == types
    assert json.loads((STATE_DIR / "run/state.json").read_text())["verdict"] == verdict
    manifests = [json.loads(path.read_text()) for path in (STATE_DIR / "incidents").glob("*/manifest.json")]
    assert len(manifests) == incidents
    assert {part["status"] for manifest in manifests for part in manifest["parts"]} <= {"ok"}
    gates = [entry.body for entry in entries if entry.kind == "gate" and entry.body["before"] != entry.body["state"]]
    assert " ".join(body["state"] for body in gates) == GATES.get(folder.name, "")
    if not incidents:
        assert [entry.body for entry in entries if entry.kind == "action"] == []
