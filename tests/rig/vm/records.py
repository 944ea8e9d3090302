"""What the guest's xidwatch has put on record, read on the host by the program's own readers."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from xidwatch.records import Damage, dumps, journal, samples
from xidwatch.records.journal import Entry


@dataclass(frozen=True)
class Records:
    """A copy of /var/lib/xidwatch. What is damaged is in `damage`, and everything else is read."""

    folder: Path

    @cached_property
    def damage(self) -> list[Damage]:
        """Lines that are none."""
        found: list[Damage] = []
        list(journal.read(self.folder, since=None, problems=found))
        for path in samples.files(self.folder / samples.FOLDER):
            list(samples.read(path, found))
        return found

    @cached_property
    def entries(self) -> list[Entry]:
        """The journal."""
        return list(journal.read(self.folder, since=None))

    @cached_property
    def rows(self) -> list[samples.Row]:
        """The samples."""
        return [row for path in samples.files(self.folder / samples.FOLDER) for row in samples.read(path)]

    def of(self, kind: str, **body: object) -> list[Entry]:
        """Entries of one kind whose body says all this."""
        return [each for each in self.entries if each.kind == kind and all(each.body.get(key) == value for key, value in body.items())]

    def became(self, status: str, *, watcher: bool = False) -> set[tuple[str, str]]:
        """Condition and subject of every edge to a status: of the hardware, or of the watcher itself, which may just be slow."""
        edges = {(edge.body["type"], edge.body["subject"]) for edge in self.of("transition", after=status)}
        return {(type_, subject) for type_, subject in edges if subject.startswith(("probe:", "kernel")) == watcher}

    def reasons(self, column: str) -> list[str | None]:
        """Why a reading was missing, in order; None where it came back."""
        return [entry.body["reason"] for entry in self.of("missing") if column in entry.body["columns"]]

    def cells(self, column: str) -> list[str]:
        """One column of all rows; empty where a reading is missing."""
        return [row.cells.get(column, "") for row in self.rows]

    @property
    def ticks(self) -> list[int]:
        """Numbers of the rows of the latest run."""
        numbers = [row.tick for row in self.rows]
        begins = max((at for at, number in enumerate(numbers) if number == 1), default=0)
        return numbers[begins:]

    def no_tick_is_missing(self, since: int = 1) -> bool:
        """In the latest run, from a tick on."""
        found = [number for number in self.ticks if number >= since]
        return found == list(range(since, since + len(found)))

    @property
    def incidents(self) -> list[str]:
        """Of those that were opened, the names."""
        return [str(entry.body["incident"]) for entry in self.of("opened")]

    @property
    def dumps(self) -> list[Path]:
        """The folders of all dumps, oldest first."""
        return dumps.folders(self.folder)

    def durable_parts(self, folder: Path) -> dict[str, str]:
        """Status of every part of a dump, by name; AssertionError when a digest is not that of its file."""
        manifest = dumps.load(folder)
        for part in manifest.parts:
            if part.sha256:
                assert hashlib.sha256((folder / part.name).read_bytes()).hexdigest() == part.sha256, part
        return {part.name: part.status for part in manifest.parts}

    def is_complete(self, folder: Path) -> bool:
        """A dump whose manifest says that all was done, and nothing in it lacks."""
        manifest = dumps.load(folder)
        return manifest.state == "complete" and set(self.durable_parts(folder).values()) == {"ok"}

    def order(self, *kinds: str) -> list[str]:
        """When actions of these kinds began and were over, in the order in which that was written down."""
        told: list[str] = []
        began: dict[str, str] = {}
        for entry in self.entries:
            if entry.kind == "action" and entry.body["kind"] in kinds:
                began[entry.id] = entry.body["kind"]
                told.append(began[entry.id])
            elif entry.kind == "outcome" and entry.body["for"] in began:
                told.append(f"{began[entry.body['for']]} is over")
        return told

    def is_whole(self) -> bool:
        """No damaged line, and every record of one run has its number exactly once."""
        numbers = [int(entry.id.rpartition("-")[2]) for entry in self.entries]
        return not self.damage and sorted(numbers) == list(range(1, len(numbers) + 1))

    def nothing_was_done(self) -> bool:
        """No incident, no dump, and no action of any kind."""
        return not (self.incidents or self.dumps or self.of("action"))
