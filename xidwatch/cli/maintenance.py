"""`xidwatch maintenance on|off`: while somebody works on the host nothing is acted on, everything is recorded, and NVML is let go.

xidwatch maintenance on --for 30m --reason "driver upgrade"
xidwatch maintenance                                           until when, why, by whom
xidwatch maintenance off
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from typing import Any

from xidwatch.cli.telling import EX_UNAVAILABLE, Untold, as_typed, tell, user
from xidwatch.places import STATE_FILE, find_run_dir

EX_USAGE = 64
UNKNOWN = 3
MOST_CHARACTERS = 4000
EXIT_CODES = """\
Exit status:
  0   done; without on or off: it is known whether it is on
  3   without on or off: no daemon has said so lately
  64  usage; 69 the daemon is not there, or refuses
"""


def add(commands: Any) -> None:
    """The command's options."""
    command = commands.add_parser(
        "maintenance",
        help="somebody works on the host: let go of the driver, act on nothing",
        description="While somebody works on the host (driver upgrade, card swap, reset, MIG change): NVML is let go so that nothing "
        "pins the module, no engine is stopped or started, everything is recorded. It ends by itself, and what changed is said.",
        epilog=EXIT_CODES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    command.add_argument("what", nargs="?", choices=("on", "off"), help="begin, or end (default: say how it stands)")
    command.add_argument("--for", dest="duration", metavar="30m", help="how long at most")
    command.add_argument("--reason", default="", metavar="TEXT", help="why, for whoever reads the journal later")
    command.add_argument("--json", action="store_true", help="how it stands, for programs")
    command.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """See EXIT_CODES."""
    if arguments.what is None:
        return _show(arguments)
    request: dict[str, object] = {"do": f"maintenance-{arguments.what}", "user": user()}
    if arguments.what == "on":
        reason = as_typed([arguments.reason])
        if not arguments.duration:
            return _say(EX_USAGE, "for how long? As in --for 30m: it ends by itself when you forget it")
        if not reason or len(reason) > MOST_CHARACTERS:
            return _say(EX_USAGE, f"--reason: a text of 1 to {MOST_CHARACTERS} characters is needed, for whoever reads the journal later")
        request |= {"for": arguments.duration, "reason": reason}
    try:
        reply = tell(find_run_dir(arguments.state_dir), request)
    except Untold as why:
        return _say(EX_UNAVAILABLE, str(why))
    return _say(0 if reply.get("ok") else EX_UNAVAILABLE, str(reply.get("text", "")))


def _show(arguments: argparse.Namespace) -> int:
    from xidwatch.clock import BOOT_ID
    from xidwatch.records import RecordError, state
    from xidwatch.report.words import clean

    try:
        shown = state.read(find_run_dir(arguments.state_dir) / STATE_FILE)
    except RecordError as error:
        return _say(UNKNOWN, str(error))
    if state.standing(shown, int(time.monotonic() * 1000), BOOT_ID.read_text().strip()) != "fresh" or shown.pid is None:
        return _say(UNKNOWN, "not known: the daemon does not run, or has written nothing lately. `xidwatch status` tells more")
    on = shown.maintenance
    if arguments.json:
        print(json.dumps({"maintenance": {"until": on.until, "reason": on.reason, "by": on.by} if on else None}, indent=1))
    else:
        print(clean(f"on until {on.until}, by {on.by or 'nobody known'}: {on.reason}") if on else "off")
    return 0


def _say(code: int, text: str) -> int:
    print(f"xidwatch: {text}", file=sys.stderr)
    return code
