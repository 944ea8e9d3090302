"""Recorded incidents, run through the real reader, parser and watch."""

from __future__ import annotations

import csv
import json
import os
import re
from collections import Counter
from pathlib import Path

import pytest

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
