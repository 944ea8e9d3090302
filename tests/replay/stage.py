"""Small nights for the tests of the replay: two GPUs below a switch, told in a few lines, run in a moment."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from xidwatch.config import load_rules, rules_dir
from xidwatch.records import samples
from xidwatch.records.samples import Row
from xidwatch.replay import fixture, player
from xidwatch.replay.player import Played, Stageplay

SWITCH = "0000:0f:00.0"
GPUS = ("0000:11:00.0", "0000:12:00.0")
HOST = """\
driver version=580.1
chip nct6798 platform/nct6775.656 driver=nct6775 in1_input=1008
0000:00:03.1 root
  0000:0f:00.0 upstream
    0000:10:00.0 downstream
      0000:11:00.0 gpu 10de:2204 1458:403b
    0000:10:01.0 downstream
      0000:12:00.0 gpu 10de:2204 1458:403b
"""
BEGIN = "2026-01-02T00:00:00Z boot\n+25s start\n"
XID = "4,{seq},{usec},c;NVRM: Xid (PCI:0000:11:00): 79, pid=7, name=python3, GPU has fallen off the bus.\n"


def write(folder: Path, timeline: str, *, kmsg: str = "", host: str = HOST, config: str = "") -> Path:
    """A fixture; `timeline` goes on from BEGIN."""
    folder.mkdir(exist_ok=True)
    for name, text in {"host.txt": host, "timeline.txt": BEGIN + timeline, "kmsg.txt": kmsg, "config.toml": config}.items():
        (folder / name).write_text(text)
    return folder


def play(folder: Path, state_dir: Path, until: str = "") -> Played:
    """Run it."""
    given = fixture.load(folder)
    return player.play(Stageplay(given, load_rules(rules_dir(None)), state_dir, fixture.moment(given, until)))


def journal(state_dir: Path, kind: str) -> list[Any]:
    """The bodies of all records of a kind."""
    lines = [line for path in sorted((state_dir / "journal").glob("*.jsonl")) for line in path.read_text().splitlines()]
    return [record[kind] for record in map(json.loads, lines) if kind in record]


def edges(state_dir: Path) -> list[tuple[str, str, str]]:
    """Subject, type and new status of every edge."""
    return [(edge["subject"], edge["type"], edge["after"]) for edge in journal(state_dir, "transition")]


def rows(state_dir: Path) -> list[Row]:
    """Every row."""
    return [row for path in samples.files(state_dir / "samples") for row in samples.read(path)]
