"""`xidwatch run`: the service itself, or one tick of it."""

from __future__ import annotations

import argparse
import os
import sys
from typing import Any

from xidwatch.config import ConfigError, both, load_checked_config, load_rules, overrides_dir, rules_dir

DESCRIPTION = "Samples, listens, judges, records and saves evidence until it is told to stop; the systemd unit runs this."
EXIT_CODES = """\
Exit status:
  0   it was told to stop, or made its one tick, and all of it is on disk
  1   the last records are not on disk; with --once, not in every directory that is configured
  73  there is no place to write
  75  another one runs with this state directory
  78  the configuration or a rule is refused
"""
EX_CANTCREAT = 73
EX_TEMPFAIL = 75
EX_CONFIG = 78


def add(commands: Any) -> None:
    """The command's options."""
    command = commands.add_parser(
        "run",
        help="sample, watch, record; the systemd unit runs this",
        description=DESCRIPTION,
        epilog=EXIT_CODES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    command.add_argument("--once", action="store_true", help="one tick, then stop")
    command.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """78 for a configuration that is refused, 75 when another one runs, 73 without a place to write, else as the daemon ends."""
    # Imported here: `status` must not pay for what only the daemon needs.
    from xidwatch.daemon.main import run as run_daemon
    from xidwatch.daemon.notify import Notifier
    from xidwatch.daemon.rundir import AlreadyRunning, run_dir
    from xidwatch.daemon.settings import Settings

    rule_places = (rules_dir(arguments.rules_dir).absolute(), overrides_dir(arguments.rules_dir).absolute())
    try:
        config, rules = both(lambda: load_checked_config(arguments.config, Notifier().watchdog_seconds), lambda: load_rules(*rule_places))
    except ConfigError as error:
        return _refuse(EX_CONFIG, *error.problems)
    state_dir = arguments.state_dir.absolute()
    place = run_dir(state_dir, os.environ.get("RUNTIME_DIRECTORY", ""))
    settings = Settings(state_dir, place, config, rules, arguments.config, log_mode(), arguments.once, rule_places=rule_places)
    try:
        return run_daemon(settings)
    except AlreadyRunning as error:
        return _refuse(EX_TEMPFAIL, f"{error}. Stop it first, or choose another --state-dir")
    except OSError as error:
        if error.filename is None:  # of no file we were told to use
            raise
        cure = "Run as root, or choose a --state-dir of your own" if isinstance(error, PermissionError) else "Choose another --state-dir"
        return _refuse(EX_CANTCREAT, f"{error.filename}: {(error.strerror or str(error)).lower()}. {cure}")


def _refuse(code: int, *reasons: str) -> int:
    for reason in reasons:
        print(f"xidwatch: {reason}", file=sys.stderr)
    return code


def log_mode() -> str:
    """journal: structured, where systemd has connected standard error to journald; else lines for a person.

    The variable alone is no proof: what a service starts inherits it, a desktop's terminals for one (systemd.exec(5)).
    """
    mine = os.fstat(2)
    return "journal" if os.environ.get("JOURNAL_STREAM") == f"{mine.st_dev}:{mine.st_ino}" else "terminal"
