"""A fixture: a folder of text, read and checked before anything is run.

    README.md       in words: what happened, recorded or reconstructed, from what
    host.txt        what the host is built of            (`host`)
    timeline.txt    what happens when                    (`script`, `host`, `player`)
    kmsg.txt        records as /dev/kmsg gives them, boot after boot behind `# boot`; their stamps say when. May be absent
    config.toml     what the operator had written. May be absent
    expected/       what has to come out; a test compares, and writes it anew when told to

Law: reads and checks, runs nothing. CONTRIBUTING says how one is made.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from xidwatch.config import Config, load_config, with_one_evidence_dir
from xidwatch.replay import script
from xidwatch.replay.host import VERBS as HOST_VERBS
from xidwatch.replay.script import Event, FixtureError, events

HOST, TIMELINE, KMSG, CONFIG = "host.txt", "timeline.txt", "kmsg.txt", "config.toml"
BOOT, START, STOP, KILL = "boot", "start", "stop", "kill"
RUN_VERBS = (BOOT, START, STOP, KILL, "late", "hang", "clock", "uevent", "note", "accept", "reset", "end")
_BOUNDARY = re.compile(r"#\s*boot\b")
_STAMP = re.compile(r"[0-9]+,[0-9]+,([0-9]+),")


@dataclass(frozen=True, slots=True)
class Record:
    """One raw kernel record, with what is continued below it. `mono`: seconds since boot."""

    mono: float
    text: str


@dataclass(frozen=True, slots=True)
class Fixture:
    """What was read. `records`: of each boot its own."""

    folder: Path
    host: str
    events: tuple[Event, ...]
    records: tuple[tuple[Record, ...], ...]
    config: Config

    @property
    def name(self) -> str:
        """The folder's."""
        return self.folder.name


class UntilError(FixtureError):
    """A time to stop at that is none."""


def load(folder: Path) -> Fixture:
    """Read one. Raises FixtureError, config.ConfigError."""
    if not (folder / TIMELINE).is_file():
        why = "it has no such file in it" if folder.is_dir() else "there is no such folder"
        what = f"a folder with {HOST}, {TIMELINE} and, where the kernel said something, {KMSG}"
        raise FixtureError(
            f"{folder / TIMELINE}: {why}. A fixture is {what}: the source has some below fixtures/, and CONTRIBUTING.md says more"
        )
    told = events(_text(folder / TIMELINE), TIMELINE)
    if not told or told[0].verb != BOOT:
        raise FixtureError(f"{TIMELINE}: the first thing that happens is that the machine starts: `2026-09-17T00:00:00Z boot`")
    for event in told:
        if event.verb not in (*HOST_VERBS, *RUN_VERBS):
            raise event.line.error(f"{event.verb}: nothing of this name can happen; there are {', '.join((*RUN_VERBS, *HOST_VERBS))}")
    records = _records(_text(folder / KMSG)) if (folder / KMSG).exists() else ()
    config = load_config(folder / CONFIG) if (folder / CONFIG).exists() else Config()
    return Fixture(folder, _text(folder / HOST), tuple(told), records, with_one_evidence_dir(config))


def moment(given: Fixture, until: str | None) -> float:
    """`--until` in wall seconds; times of day and durations are reckoned from the beginning. Raises UntilError."""
    if not until:
        return float("inf")
    try:
        return script.moment(until, given.events[0].at)
    except ValueError as error:
        raise UntilError(f"--until: {error}") from error


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise FixtureError(f"{path}: {error.strerror if isinstance(error, OSError) else error}") from error


def _records(text: str) -> tuple[tuple[Record, ...], ...]:
    boots: list[list[Record]] = [[]]
    for number, line in enumerate(text.splitlines(), start=1):
        if _BOUNDARY.match(line):
            boots += [[]] if boots[-1] else []
        elif line.startswith(" ") and boots[-1]:
            boots[-1][-1] = Record(boots[-1][-1].mono, f"{boots[-1][-1].text}{line}\n")
        elif stamp := _STAMP.match(line):
            boots[-1].append(Record(int(stamp[1]) / 1e6, f"{line}\n"))
        elif line and not line.startswith("#"):
            raise FixtureError(f"{KMSG}:{number}: no record of /dev/kmsg: expected `4,1234,5678901,-;text`")
    return tuple(tuple(sorted(boot, key=lambda record: record.mono)) for boot in boots)
