"""Where `init` has its facts from: the running daemon, or one look of its own.

Kept apart from the command, since it takes the daemon's modules, which no other command is to pay for.
"""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from xidwatch.cli.init import Source
from xidwatch.clock import SystemClock
from xidwatch.config import Config, Rules
from xidwatch.core.messages import BaselineAccepted
from xidwatch.core.model import Readings
from xidwatch.core.watch import step
from xidwatch.daemon import past
from xidwatch.daemon.control import ask
from xidwatch.daemon.frames import FrameError
from xidwatch.daemon.probes import specs
from xidwatch.daemon.rundir import find_run_dir
from xidwatch.daemon.survey import Crew, Survey, survey
from xidwatch.daemon.workers import ProbeSpec
from xidwatch.records import Damage, RecordError, baseline, frames, journal, offer, recovery
from xidwatch.records.baseline import Standing
from xidwatch.records.offer import Offered
from xidwatch.records.recovery import RecoveredRecord
from xidwatch.records.store import Store

RUNNING_SECONDS = 5.0
FOUND_BY_NOBODY = "what it holds is not known: records are readable by root only"


# ------------------------------------------------------------------------------------------------------- a running daemon


def from_daemon(state_dir: Path, *, anew: bool, user: str) -> Source | None:
    """None when none listens. Raises OSError and ValueError when one does, and cannot or will not say."""
    place = find_run_dir(state_dir)
    try:
        reply = ask(place, {"do": "baseline", "anew": anew}, RUNNING_SECONDS)
    except (FileNotFoundError, ConnectionRefusedError, NotADirectoryError):
        return None
    except PermissionError as error:
        raise ValueError(f"{place}: a daemon runs there, and only root may tell it something") from error
    except (TimeoutError, FrameError) as error:
        raise ValueError(f"{place}: a daemon runs there and does not answer ({error}). `xidwatch status` tells more") from error
    if not reply.get("ok"):
        raise ValueError(str(reply.get("text", "the daemon says no")))
    accepted = str(reply.get("text", "")).removeprefix("accepted on ") if reply.get("accepted") else ""
    return Source(offer.from_plain(reply["offer"]), accepted, ("as the running daemon knows it",), partial(_tell, place, anew, user))


def _tell(place: Path, anew: bool, user: str, offered: Offered) -> str:
    """Raises OSError, and ValueError with the daemon's words."""
    request = {"do": "accept-baseline", "anew": anew, "digest": offered.digest, "user": user}
    reply = ask(place, request, RUNNING_SECONDS)
    if not reply.get("ok"):
        raise ValueError(str(reply.get("text", "the daemon says no")))
    return str(reply.get("text", ""))


# ------------------------------------------------------------------------------------------------------- one look, by workers


@dataclass(slots=True)
class _Look:
    """All that is needed to write down what was seen."""

    found: Survey
    rules: Rules
    next_id: int
    standing: Standing | None
    store: Store | None
    anew: bool
    user: str

    def accept(self, offered: Offered) -> str:
        """Write it, accepted if nothing stands against that, else as a daemon would have learnt it. Raises OSError."""
        clock = SystemClock()
        now, state = clock.now(), self.found.state
        standing, text = self.standing, "baseline written as provisional: it warns, it proves nothing"
        if not offered.obstacles:
            standing = offer.accepted(offered, now, os.getuid(), self.user)
            state, _ = step(self.rules.conditions, state, BaselineAccepted(now, self.anew))
            text = f"baseline accepted: {offer.count(offered.baseline.members)}"
        written = baseline.learnt(now, clock.boot_id, state.expected, self.found.inventory, state.roster.members, standing)
        body = {"text": text, "uid": os.getuid(), "user": self.user, "anew": self.anew, "digest": offered.digest}
        record = journal.record("note", f"r-{self.next_id:06d}", now, clock.boot_id, body)
        self._write(frames.journal(1, record), frames.baseline(2, written))
        return text

    def _write(self, *lines: bytes) -> None:
        assert self.store is not None
        batch = [frames.decode_frame(line) for line in lines]
        result = self.store.write(batch)
        if result.trouble or len(result.settled) < len(batch):
            raise OSError(result.trouble.text if result.trouble else "not written")


def from_hardware(state_dir: Path, config: Config, rules: Rules, *, anew: bool, write: bool, user: str) -> Source:
    """The records stay locked until the source is closed, if they are to be written. Raises OSError; ValueError while a recorder writes."""
    clock = SystemClock()
    store = Store(state_dir, clock.boot_id, config.interval_seconds) if write else None
    try:
        record = store.open() if store else _read_only(state_dir, clock.boot_id)
        known = record.recovered()
        restored = past.restored(record, known, clock.boot_id, {})
        standing = record.baseline.standing if record.baseline else None
        accepted = standing.accepted if standing else None
        with Crew(_specs(config), find_run_dir(state_dir)) as crew:
            seen = survey(crew, config, rules, restored if not anew else dataclasses.replace(restored, accepted=False), known.kmsg_seq)
        incident = seen.state.incident if restored.incident and seen.state.incident else None  # one begun by this look is on no record
        state = dataclasses.replace(seen.state, incident=incident)
        offered = offer.offered(rules.conditions, state, seen.inventory, anew=anew, at=clock.now(), boot_id=clock.boot_id)
    except BlockingIOError as error:
        raise ValueError(f"{state_dir}: a recorder writes here; is a daemon just starting or ending? Try again") from error
    except BaseException:
        if store:
            store.close()
        raise
    look = _Look(seen, rules, seen.state.next_id, standing, store, anew, user)
    damage = tuple(f"{each.path}: {each.text}" for each in record.damage)
    word = f"{accepted.at} by {accepted.by}" if accepted else ""
    close = store.close if store else lambda: None
    return Source(offered, word, (*damage, *seen.remarks), look.accept, learns=True, close=close)


def _specs(config: Config) -> tuple[ProbeSpec, ...]:
    """Without the engines' pages: they say nothing of what is here."""
    return tuple(spec for spec in specs(config) if spec.name != "engine")


def _read_only(state_dir: Path, boot_id: str) -> RecoveredRecord:
    """What is on record, locking nothing and making nothing."""
    damage: list[Damage] = []
    learnt, found = None, recovery.fold([], boot_id)
    try:
        found = recovery.fold(recovery.tail(state_dir, boot_id, damage), boot_id, damage)
        learnt = baseline.read(state_dir / baseline.NAME)
    except PermissionError:
        damage.append(Damage(str(state_dir), 0, FOUND_BY_NOBODY))
    except RecordError as error:
        damage.append(Damage(str(error.path), 0, error.text))
    return RecoveredRecord.of(found, learnt, damage, 0)


def search_engines(state_dir: Path, gpu_pids: Sequence[int]) -> Readings:
    """Services that could be engines; nothing where nobody could be asked in time."""
    target = "xidwatch.probes.engine_search:create"
    spec = ProbeSpec("engines", target, {"gpu_pids": list(gpu_pids)})
    with Crew((spec,), find_run_dir(state_dir)) as crew:
        return crew.ask("inventory", ["engines"])["engines"].readings
