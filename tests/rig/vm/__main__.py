"""`make rig`: every scenario in a guest of its own, a line each. `make rig SCENARIO=night` runs one and keeps its records.

    ok      all_ones_unannounced                4.1 s
    owed    engine_held                         2.3 s  gate: no command `gate`
    FAILED  ...

An owed scenario is expected to fail and names what owes it; when it passes, it counts as failed, so that the mark is taken off.
"""

from __future__ import annotations

import argparse
import fcntl
import importlib
import os
import shutil
import signal
import sys
import time
import traceback
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from types import ModuleType

from tests.rig.vm import explain, needs
from tests.rig.vm.build import HERE, ROOT, BuildFailed
from tests.rig.vm.guest import Guest
from tests.rig.vm.machine import GuestGone
from tests.rig.vm.shell import shell
from tests.rig.vm.stage import Stage

FOLDER = ROOT / "build/rig"
SKIPPED = 77  # as automake's tests say it


def names() -> list[str]:
    """Every scenario there is."""
    return sorted(path.stem for path in (HERE / "scenarios").glob("*.py"))


def load(name: str) -> ModuleType:
    """A scenario's module: its docstring, `scenario(guest)`, and perhaps `OWES`, `COLD`, `ENGINE` and `ROUNDS`."""
    return importlib.import_module(f"tests.rig.vm.scenarios.{name}")


def rounds(name: str) -> tuple[int | None, ...]:
    """The numbers its guests are told: one guest that is told none, but for a scenario with `ROUNDS`."""
    many: int = getattr(load(name), "ROUNDS", 0)
    return tuple(range(1, many + 1)) if many else (None,)


def by_length(chosen: list[str]) -> list[str]:
    """The long ones first, and the many short rounds last: none is left to be waited for alone at the end."""
    marks = ("ROUNDS", "COLD", "ENGINE")

    def rank(name: str) -> tuple[bool, ...]:
        rounds_, cold, engine = (bool(getattr(load(name), mark, False)) for mark in marks)
        return rounds_, not cold, not engine

    return sorted(chosen, key=rank)


def say(text: str) -> None:
    """At once, for whoever waits."""
    print(text, flush=True)


@dataclass(frozen=True, slots=True)
class Played:
    """What became of one scenario, or of one round of it. `trouble`: why it failed, "" when it did not; `broken`: the rig did."""

    seconds: float
    trouble: str = ""
    broken: bool = False
    notes: tuple[str, ...] = ()


class Rig:
    """Plays scenarios, as many at a time as there are processors, and counts.

    Each guest has a clock of its own: it is none the worse for another beside it.
    """

    def __init__(self, stage: Stage, *, keep: bool) -> None:
        self._stage = stage
        self._keep = keep
        self.passed = self.failed = 0
        self.owed: list[str] = []

    def run(self, chosen: list[str]) -> None:
        """Each in a guest that is thrown away afterwards; with `ROUNDS` in as many, each told its number. Told in that order."""
        with ThreadPoolExecutor(os.cpu_count()) as hands:
            playing = {name: [hands.submit(self._play, name, number) for number in rounds(name)] for name in by_length(chosen)}
            for name, futures in playing.items():
                self._tell(name, [future.result() for future in futures])

    def _play(self, name: str, number: int | None) -> Played:
        began = time.monotonic()
        notes: list[str] = []
        trouble, broken = "", False
        try:
            trouble = self._scene(load(name), name, number, notes)
        except Exception as error:  # noqa: BLE001  the rig's own trouble ends one scenario, not all
            trouble, broken = "".join(traceback.format_exception(error)), True
        if trouble and number:
            trouble = f"round {number}: {trouble}"
        return Played(time.monotonic() - began, trouble, broken, tuple(notes))

    def _scene(self, module: ModuleType, name: str, number: int | None, notes: list[str]) -> str:
        """Why it failed, told while what it looked at is still there; "" when it passed."""
        guest = self._begin(module)
        guest.say = notes.append
        well = False
        try:
            module.scenario(guest, *(() if number is None else (number,)))
            well = True
        except AssertionError as error:
            return explain.failure(error)
        finally:
            if self._keep or not (well or hasattr(module, "OWES")):
                self._keep_records(guest, name if number is None else f"{name}-{number}")
            guest.close()
        return ""

    def _begin(self, module: ModuleType) -> Guest:
        if getattr(module, "COLD", False):
            return self._stage.cold()
        return self._stage.supervised() if getattr(module, "ENGINE", False) else self._stage.ready()

    def _tell(self, name: str, played: list[Played]) -> None:
        owes: str = getattr(load(name), "OWES", "") if not any(each.broken for each in played) else ""
        trouble = "\n".join(each.trouble for each in played if each.trouble)
        line = f"{name:36s} {sum(each.seconds for each in played):6.1f} s"
        if owes and trouble:
            self.owed.append(owes)
            say(f"owed    {line}  {owes}: {trouble.splitlines()[0]}")
        elif owes:
            self.failed += 1
            say(f"FAILED  {line}  it passes, though {owes!r} still owes it: take OWES out of the scenario")
        elif trouble:
            self.failed += 1
            say(f"FAILED  {line}\n{trouble}")
        else:
            self.passed += 1
            say(f"ok      {line}")
        for note in (note for each in played for note in each.notes):
            say(f"          {note}")

    @staticmethod
    def _keep_records(guest: Guest, name: str) -> None:
        place = FOLDER / "records" / name
        shutil.rmtree(place, ignore_errors=True)
        try:
            shutil.copytree(guest.records().folder, place)
            (place / "log.txt").write_text(guest.run("journalctl --no-pager -o short-precise", check=False))
            say(f"records: {place.relative_to(ROOT)}")
        except Exception as error:  # noqa: BLE001  a guest that is gone has none to give
            say(f"no records: {error}")


def main() -> int:
    """0 when everything passed, 1 when something failed, 77 when the rig cannot run here."""
    parser = argparse.ArgumentParser(prog="make rig", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("scenario", nargs="*", choices=[[], *names()], metavar="SCENARIO", help="these only; their records are kept")
    parser.add_argument("--shell", action="store_true", help="a shell in the guest")
    parser.add_argument("--list", action="store_true", help="what there is")
    parser.add_argument("--check", action="store_true", help="only whether it can run here")
    given = parser.parse_args()
    if given.list:
        for name in names():
            say(f"{name:36s} {(load(name).__doc__ or '').strip()}")
        return 0
    if reasons := needs.missing():
        for reason in reasons:
            say(f"the rig cannot run: {reason}")
        return SKIPPED
    return 0 if given.check else run(given.scenario, wants_shell=given.shell)


def run(chosen: list[str], *, wants_shell: bool) -> int:
    """A shell, the scenarios chosen, or all; one such run at a time in a checkout. The exit status."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # the guest ends with us
    FOLDER.mkdir(parents=True, exist_ok=True)
    with (FOLDER / "lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            stage = Stage(FOLDER, say)
        except BlockingIOError:
            say("another rig is running in this checkout")
            return 1
        except (BuildFailed, GuestGone, AssertionError) as error:
            say(f"no guest to begin with: {error}")
            return 1
        return in_shell(stage) if wants_shell else play(Rig(stage, keep=bool(chosen)), chosen or names())


def in_shell(stage: Stage) -> int:
    """Until the person has seen enough."""
    guest = stage.ready()
    try:
        shell(guest)
    finally:
        guest.close()
    return 0


def play(rig: Rig, chosen: list[str]) -> int:
    """All of them, then the closing lines."""
    began = time.monotonic()
    rig.run(chosen)
    if rig.owed:
        say(f"owed by what is not there yet: {', '.join(f'{what} {rig.owed.count(what)}' for what in sorted(set(rig.owed)))}")
    say(f"in all {time.monotonic() - began:.0f} s")
    say(f"{rig.passed} passed, {rig.failed} failed")
    return int(rig.failed > 0)


if __name__ == "__main__":
    sys.exit(main())
