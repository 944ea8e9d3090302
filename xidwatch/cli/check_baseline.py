"""`xidwatch check --accept`: what has changed against the baseline, and an operator's word that it is as it should be.

Kept apart from the command, since it takes the daemon's modules. What is accepted is what has been shown, or nothing.
"""

from __future__ import annotations

import argparse
import sys

from xidwatch.cli.init import EX_CANTCREAT, EX_UNAVAILABLE, FAILED, Refused, Source, keep_copy, open_source, settings
from xidwatch.core import comparison
from xidwatch.core.model import Readings
from xidwatch.records import RecordError, baseline
from xidwatch.records.baseline import NAME
from xidwatch.report import found


def accept(arguments: argparse.Namespace) -> int:
    """0 accepted, or accepted already and unchanged; 2 not accepted; 69, 73 and 78 as of `init`.

    What stands against it is what stands against it for `init`: who is known and not here, or an incident, is not accepted in passing.
    """
    try:
        return _accept(arguments)
    except Refused as refused:
        _say(str(refused))
        return refused.code


def _accept(arguments: argparse.Namespace) -> int:
    config, rules = settings(arguments)
    before = _known(arguments)
    is_accepted = before is not None and before.accepted is not None
    source = open_source(arguments, config, rules, anew=False, write=True)
    try:
        changed = _changes(before, source)
        over = _nothing_to_accept(before, source, changed)
        if over is not None:
            return over
        _ask(arguments)
        if is_accepted:  # over what was accepted only what is begun anew is, and nothing that has not been shown
            source.close()
            source = open_source(arguments, config, rules, anew=True, write=True)
            if source.offered.obstacles or _changes(before, source) != changed:
                raise Refused(FAILED, "what is here has changed since it was shown; look again")
        keep_copy(arguments.state_dir / NAME)
        _say(source.accept(source.offered))
        return 0
    except ValueError as error:
        raise Refused(FAILED, str(error)) from error
    except OSError as error:
        raise Refused(EX_CANTCREAT, f"{arguments.state_dir / NAME}: {(error.strerror or str(error)).lower()}") from error
    finally:
        source.close()


def _nothing_to_accept(before: baseline.Baseline | None, source: Source, changed: tuple[str, ...]) -> int | None:
    """Shows what is here; the exit status where that is all, None where it may be accepted."""
    is_accepted, obstacles = before is not None and before.accepted is not None, source.offered.obstacles
    if not is_accepted:
        print("\n".join(found.table(source.offered, ())))
    if changed or not obstacles:
        print("\n".join(changed) or "nobody and nothing is other than the baseline says")
    for text in (*source.remarks, *source.offered.remarks, *(f"stands against accepting this: {each}" for each in obstacles)):
        _say(text)
    if obstacles and is_accepted:
        _say("after a card was taken out or swapped on purpose: `xidwatch init --only baseline --force`")
    if is_accepted and not changed and not obstacles:
        _say(f"accepted on {source.accepted} already, and unchanged")
        return 0
    return FAILED if obstacles else None


def _known(arguments: argparse.Namespace) -> baseline.Baseline | None:
    try:
        return baseline.read(arguments.state_dir / NAME)
    except RecordError as error:
        raise Refused(EX_UNAVAILABLE, str(error)) from error


def _changes(before: baseline.Baseline | None, source: Source) -> tuple[str, ...]:
    """By place, since addresses move from boot to boot."""
    after = source.offered.baseline.readings_members()
    here = {place: facts for place, facts in after.items() if str(place) not in source.offered.absent}
    return comparison.changes(_unaddressed(before.readings_members() if before else {}), _unaddressed(here))


def _unaddressed(members: Readings) -> Readings:
    return {place: {name: value for name, value in facts.items() if name != "address"} for place, facts in members.items()}


def _ask(arguments: argparse.Namespace) -> None:
    if arguments.yes:
        return
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        raise Refused(FAILED, "nobody is there to be asked whether that is as it should be; look, and say --yes")
    print("xidwatch: is that as it should be? [y/N] ", end="", file=sys.stderr, flush=True)
    if not sys.stdin.readline().strip().lower().startswith("y"):
        raise Refused(FAILED, "nothing was accepted; the baseline stays as it is")


def _say(text: str) -> None:
    print(f"xidwatch: {text}", file=sys.stderr)
