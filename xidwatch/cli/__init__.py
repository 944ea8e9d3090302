"""The command line: one small module per command, each with `add(subparsers)` and `run(arguments) -> exit code`.

0 healthy, 1 degraded, 2 failed, 3 unknown; 64 usage, 66 no such input, 78 configuration. Results go to standard
output, words for people to standard error.
"""

from __future__ import annotations

import argparse
import importlib
import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NoReturn

from xidwatch import __version__
from xidwatch.places import DEFAULT_STATE

COMMANDS = (
    *("run", "init", "status", "check", "gate", "maintenance", "report", "decode", "explain", "replay", "bundle"),
    *("note", "allow_driver"),
)
EX_USAGE = 64
EX_INTERRUPTED = 130  # as a shell says of SIGINT
EX_PIPE = 141  # and of SIGPIPE
SHARED = ("--config", "--state-dir", "--rules-dir")
DESCRIPTION = "Flight recorder for multi-GPU inference hosts: samples, watches, records, saves evidence."
EXIT_CODES = (
    "Exit status: 0 healthy, 1 degraded, 2 failed, 3 unknown; 64 usage, 66 no such input, 69 no daemon to tell, 73 no place to write, "
    "75 already running, 78 configuration."
)


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        """A usage error is 64 here (sysexits), not argparse's 2, which means `failed`."""
        self.print_usage(sys.stderr)
        self.exit(EX_USAGE, f"{self.prog}: {message} (`{self.prog} --help` tells more)\n")


def parser(only: str = "") -> argparse.ArgumentParser:
    """All commands and the options they share. `only`: the word that may be a command's name: nobody waits for the others."""
    top = _Parser(prog="xidwatch", description=DESCRIPTION, epilog=EXIT_CODES)
    top.add_argument("--version", action="version", version=f"xidwatch {__version__}")
    _shared(top, default=None)
    commands = top.add_subparsers(dest="command", required=True, metavar="COMMAND", title="commands", parser_class=_Parser)
    wanted = only.replace("-", "_")
    for name in (wanted,) if wanted in COMMANDS else COMMANDS:
        importlib.import_module(f"xidwatch.cli.{name}").add(commands)
    for command in commands.choices.values():
        _shared(command, default=argparse.SUPPRESS)  # behind the command they mean the same, and say nothing when they are not there
    return top


def _command_in(words: Sequence[str]) -> str:
    """The first that is neither an option nor an option's value; empty when there is none."""
    rest = iter(words)
    for word in rest:
        if word in SHARED:
            next(rest, None)
        elif not word.startswith("-"):
            return word
    return ""


def _shared(command: argparse.ArgumentParser, default: object) -> None:
    options = (
        ("FILE", "settings (default /etc/xidwatch/config.toml; none is needed)"),
        ("DIR", f"where records are kept (default {DEFAULT_STATE})"),
        ("DIR", "conditions.toml, xid.toml, explain.toml, rules.d; what is not there is as shipped (default: all of it)"),
    )
    for name, (metavar, meaning) in zip(SHARED, options, strict=True):
        command.add_argument(name, type=Path, metavar=metavar, help=meaning, default=default)


def _state_dir(command: str, environment: Mapping[str, str]) -> Path:
    """The default. systemd's StateDirectory= is for the service alone: inside an engine's unit it would be the engine's."""
    given = environment.get("STATE_DIRECTORY", "").partition(":")[0] if command == "run" else ""
    return Path(given) if given else DEFAULT_STATE


def main(argv: Sequence[str] | None = None) -> int:
    """The console script."""
    if sys.stderr is None:  # closed by whoever started this: words for people go nowhere, above all not among the results
        sys.stderr = Path(os.devnull).open("w")  # noqa: SIM115  up to the end
    words = sys.argv[1:] if argv is None else argv
    arguments = parser(_command_in(words)).parse_args(words)
    if arguments.state_dir is None and not getattr(arguments, "own_state_dir", False):
        arguments.state_dir = _state_dir(arguments.command, os.environ)
    code = EX_PIPE
    try:
        code = arguments.run(arguments)
        print(end="", flush=True)
    except BrokenPipeError:  # `xidwatch report | head`: the reader has seen enough, and what was found stays what it is
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except KeyboardInterrupt:
        return EX_INTERRUPTED
    return code
