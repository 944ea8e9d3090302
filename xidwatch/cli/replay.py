"""`xidwatch replay FIXTURE`: a recorded incident through the same daemon, on a clock that nobody waits for.

    $ xidwatch replay fixtures/2026-09-17-switch-supply-trip --state-dir night
    00:42:00Z gpu:0000:11:00.0 GpuLost FALSE -> TRUE ...
    $ xidwatch report --state-dir night

Nothing of this host is read or told: what is replayed lies in a directory of its own and is marked as replayed.
"""

from __future__ import annotations

import argparse
import errno
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from xidwatch.clock import iso
from xidwatch.config import ConfigError, load_rules, overrides_dir, rules_dir
from xidwatch.daemon.log_stream import printable
from xidwatch.records.files import FOLDER_MODE
from xidwatch.records.frames import LogLine

EX_USAGE = 64
EX_NOINPUT = 66
EX_CANTCREAT = 73
EX_CONFIG = 78


def add(commands: Any) -> None:
    """The command's options."""
    command = commands.add_parser(
        "replay",
        help="run a recorded incident again, an hour in seconds, and look at what it leaves",
        description="Runs a recorded incident through the same loop, probes, watch and recorder, on a virtual clock: "
        "the same bytes every time. Touches nothing of this host.",
        epilog="Exit status: 0 it ran to its end, however that was; 64 wrong usage; 66 no such fixture, or not one; 73 no place to write; "
        "78 rules refused.",
    )
    command.add_argument("fixture", type=Path, metavar="FIXTURE", help="its folder, as below fixtures/ in the source")
    command.add_argument("--speed", type=_speed, metavar="N", help="N times as fast as on the night (default: as fast as it goes)")
    until = "stop there, as if one looked at that moment: 2026-09-17T00:42:10Z, 00:42:10, or +90m from the beginning"
    command.add_argument("--until", metavar="TIME", help=until)
    command.add_argument("--ticks", action="store_true", help="show the line of every tick as well")
    command.set_defaults(run=run, own_state_dir=True)


def _speed(given: str) -> float:
    try:
        value = float(given)
    except ValueError:
        value = 0.0
    if not 0 < value < float("inf"):
        raise argparse.ArgumentTypeError(f"{given!r} is no speed: expected a number above 0, as in 60")
    return value


def run(arguments: argparse.Namespace) -> int:
    """See the command's epilog."""
    # Imported here: other commands must not pay for the whole daemon.
    from xidwatch.replay import fixture, player
    from xidwatch.replay.script import FixtureError

    try:
        given = fixture.load(arguments.fixture)
        until = fixture.moment(given, arguments.until)
        rules = load_rules(rules_dir(arguments.rules_dir), overrides_dir(arguments.rules_dir))
        state_dir = _place(arguments.state_dir)
        show = _Show(ticks=arguments.ticks)
        pace = _slowly(arguments.speed) if arguments.speed else _at_once
        played = player.play(player.Stageplay(given, rules, state_dir, until, pace, show.line))
    except fixture.UntilError as error:
        return _refuse(EX_USAGE, str(error))
    except FixtureError as error:
        return _refuse(EX_NOINPUT, str(error))
    except ConfigError as error:
        return _refuse(EX_CONFIG, *error.problems)
    except OSError as error:
        return _refuse(EX_CANTCREAT, f"{error.filename or 'replay'}: {(error.strerror or str(error)).lower()}")
    boots = f"{played.boots} boots, " if played.boots > 1 else ""
    print(f"xidwatch: replayed {given.name} to {iso(played.at)}: {boots}{played.verdict} at its end. To look at it:", file=sys.stderr)
    for command in ("report", "status"):
        print(f"  xidwatch {command} --state-dir {state_dir}", file=sys.stderr)
    print(f"  cat {state_dir}/{player.RUN}/{player.METRICS}", file=sys.stderr)
    return 0


def _place(state_dir: Path | None) -> Path:
    """A directory of its own: what was replayed must never lie among what was seen. Raises OSError."""
    if state_dir is None:
        return Path(tempfile.mkdtemp(prefix="xidwatch-replay-"))
    place = state_dir.absolute()
    if place.exists() and (not place.is_dir() or any(place.iterdir())):
        why = "not empty. A replay wants a directory of its own, so that nothing replayed is taken for seen"
        raise FileExistsError(errno.EEXIST, why, str(place))
    place.mkdir(parents=True, exist_ok=True, mode=FOLDER_MODE)
    return place


def _at_once(_seconds: float) -> None:
    """Nobody waits."""


def _slowly(speed: float) -> Callable[[float], None]:
    return lambda seconds: time.sleep(seconds / speed)


class _Show:
    """The daemon's lines for people, with the time of the night, UTC."""

    def __init__(self, *, ticks: bool) -> None:
        self._ticks = ticks

    def line(self, line: LogLine, wall: float) -> None:
        if self._ticks or line.fields.get("event") != "tick":
            print(f"{iso(wall)[11:19]}Z {printable(line.text)}", flush=True)


def _refuse(code: int, *reasons: str) -> int:
    for reason in reasons:
        print(f"xidwatch: {reason}", file=sys.stderr)
    return code
