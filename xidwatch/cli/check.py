"""`xidwatch check`: before the night: is everything in place that has to be?

ok       daemon: healthy, tick 120
warning  baseline: provisional: it warns, it proves nothing, so an engine that was stopped stays down
xidwatch check --accept
bad      containers vllm: uses GPUs and is started again by docker itself (restart: unless-stopped), whatever its gate says
docker update --restart=no vllm, and let a systemd unit start it
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

from xidwatch.cli import check_recovery, check_units
from xidwatch.cli.check_units import BAD, OK, PERSISTENCED, UNKNOWN, WARNING, Check
from xidwatch.clock import BOOT_ID
from xidwatch.config import Config, ConfigError, load_config, load_rules, overrides_dir, rules_dir
from xidwatch.places import STATE_FILE, find_run_dir
from xidwatch.records import RecordError, files, state
from xidwatch.records.state import StateFile
from xidwatch.report.words import clean
from xidwatch.supervise import api_key

SHIPPED_WATCHDOG_SECONDS = 120  # in systemd/xidwatch.service
AREAS = ("configuration", "daemon", "hardware", "baseline", "engines", "containers", "persistence", "supplies", "recovery")
WORST_FIRST = (BAD, UNKNOWN, WARNING, OK)
EXIT = {OK: 0, WARNING: 1, BAD: 2, UNKNOWN: 3}
NPD_EXIT = {OK: 0, WARNING: 0, BAD: 1, UNKNOWN: 2}  # node-problem-detector, custom plugin: OK, NonOK, Unknown
NPD_CHARACTERS = 80
HIDDEN = ("/home", "/root", "/run/user", "/tmp", "/var/tmp")  # noqa: S108  from the service: ProtectHome= and PrivateTmp= in its unit
OF_VERDICT = {"healthy": OK, "degraded": WARNING, "failed": BAD}
MOST_NAMED = 3
RESTART = "systemctl restart xidwatch (a reload does not take engines)"
HANGS = "hangs: it is there, and has written nothing for more than three intervals"
EXIT_CODES = """\
Exit status:
  0   all is in place
  1   something is worth a look
  2   something is bad
  3   something could not be looked at
  With --exit-codes npd, as node-problem-detector reads them: 0 nothing is bad, 1 something is, 2 not known; one short line.
"""


def add(commands: Any) -> None:
    """The command's options."""
    command = commands.add_parser(
        "check",
        help="is everything in place: the daemon, the baseline, the gates, what goes round them",
        description="Looks at what has to be in place before the night, and says what to do about the rest. Asks no GPU.",
        epilog=EXIT_CODES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    command.add_argument("--only", choices=AREAS, action="append", help="look at this alone; may be given again")
    command.add_argument(
        "--accept", action="store_true", help="show what has changed against the baseline, and accept what is here if told so"
    )
    command.add_argument("--yes", action="store_true", help="with --accept: do not ask")
    command.add_argument("--exit-codes", choices=("xidwatch", "npd"), default="xidwatch", help="whose exit status (default: xidwatch)")
    command.add_argument("--json", action="store_true", help="for programs")
    command.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """See EXIT_CODES."""
    if arguments.accept:
        from xidwatch.cli import check_baseline  # here: it takes the daemon's modules

        return check_baseline.accept(arguments)
    wanted = set(arguments.only or AREAS)
    checks = [check for check in look(arguments.config, arguments.state_dir, rules=arguments.rules_dir) if check.area in wanted]
    verdict = worst(checks)
    if arguments.json:
        print(json.dumps({"verdict": verdict, "checks": [asdict(check) for check in checks]}, indent=1))
    elif arguments.exit_codes == "npd":
        print(_short(checks, verdict))
    else:
        print("\n".join(describe(checks)))
    return NPD_EXIT[verdict] if arguments.exit_codes == "npd" else EXIT[verdict]


def worst(checks: list[Check]) -> str:
    """The verdict over all: bad, then what nobody knows, then what is worth a look."""
    found = {check.verdict for check in checks}
    return next((verdict for verdict in WORST_FIRST if verdict in found), OK)


def look(config_path: Path | None, state_dir: Path, root: Path = Path("/"), rules: Path | None = None) -> Iterator[Check]:
    """Everything, in the order of AREAS."""
    config, is_valid = Config(), False
    problems: list[str] = []
    try:
        config, is_valid = load_config(config_path), True
    except ConfigError as error:
        problems += error.problems
    try:
        load_rules(rules_dir(rules), overrides_dir(rules))
    except ConfigError as error:
        problems += error.problems
    yield from [Check("configuration", "", BAD, problem) for problem in problems] or [Check("configuration", "", OK, "is valid")]
    if 2 * config.interval_seconds > SHIPPED_WATCHDOG_SECONDS:
        limit = f"half of the shipped unit's WatchdogSec ({SHIPPED_WATCHDOG_SECONDS} s): with that the service does not start"
        yield Check("configuration", "interval", WARNING, f"{config.interval} is longer than {limit}", "systemctl edit xidwatch.service")
    shown, doubt = _shown(state_dir)
    yield from _daemon(shown, doubt)
    units = tuple(dict.fromkeys([*(each.unit for each in config.engines), *filter(None, (e.after_incident_unit for e in config.engines))]))
    own = (check_recovery.SERVICE,) if config.recovery.enabled else ()
    known = check_units.ask_systemd((*units, PERSISTENCED, *own), root)
    if not units:
        yield Check("engines", "", WARNING, "no engine is configured: nothing is stopped or started", "xidwatch init proposes [[engines]]")
    for unit in units:
        yield from check_units.of_engine(unit, known)
    if is_valid:  # else nobody knows which engines it was to name
        yield from check_units.of_stray_gates(units, root)
        yield from _as_running(config, shown)
    yield from _unasked(config)
    yield from _keys(config)
    yield from _gpus(shown)
    yield from check_units.of_containers(root)
    yield from _persistence(known, root)
    if not config.rails:
        yield Check("supplies", "", WARNING, "no supply rail is watched", "xidwatch init shows the inputs that could be some: [[rails]]")
    yield from check_recovery.of_recovery(config, known)


def _shown(state_dir: Path) -> tuple[StateFile | None, str]:
    try:
        shown = state.read(find_run_dir(state_dir) / STATE_FILE)
    except RecordError as error:
        return None, str(error)
    fresh = state.standing(shown, int(time.monotonic() * 1000), BOOT_ID.read_text().strip())
    if fresh == "fresh" and shown.pid is not None:
        return shown, ""
    if fresh == "stale" and shown.pid is not None and files.lives(shown.pid):
        return None, HANGS
    return None, "it has stopped" if shown.pid is None else f"what it wrote last is {fresh}"


def _daemon(shown: StateFile | None, doubt: str) -> Iterator[Check]:
    if shown is None:
        if doubt == HANGS:
            yield Check("daemon", "", BAD, HANGS, "systemctl restart xidwatch")
        else:
            cure = "systemctl enable --now xidwatch; if it does not stay, journalctl -u xidwatch tells why"
            yield Check("daemon", "", BAD, f"does not run: {doubt}", cure)
        yield Check("hardware", "", UNKNOWN, "without a daemon nobody knows")
        yield Check("baseline", "", UNKNOWN, "without a daemon nobody knows")
        return
    yield Check("daemon", "", OK, f"runs: tick {shown.tick or 0}, every {shown.interval_s:g} s")
    bad = [f"{c.type} {c.subject}" for c in shown.conditions if c.status == "TRUE"]
    more = f" and {len(bad) - MOST_NAMED} more" if len(bad) > MOST_NAMED else ""
    text = f"{shown.verdict}{': ' if bad else ''}{', '.join(bad[:MOST_NAMED])}{more}"
    yield Check("hardware", "", OF_VERDICT.get(shown.verdict, UNKNOWN), text, "xidwatch status" if shown.verdict != "healthy" else "")
    if shown.maintenance:
        yield Check(
            "hardware", "", WARNING, f"in maintenance until {shown.maintenance.until}: nothing is acted on", "xidwatch maintenance off"
        )
    yield _baseline(shown)


def _baseline(shown: StateFile) -> Check:
    if shown.baseline is None:
        return Check("baseline", "", UNKNOWN, "the records have not been read yet")
    if shown.baseline.provisional:
        text = "provisional: it warns, it proves nothing, so an engine that was stopped stays down"
        return Check("baseline", "", WARNING, text, "xidwatch check --accept")
    return Check("baseline", "", OK, f"accepted on {shown.baseline.since} by {shown.baseline.by}")


def _as_running(config: Config, shown: StateFile | None) -> Iterator[Check]:
    """Whether the daemon knows the engines of the file: it takes them at its start, and not at a reload."""
    if shown is None:
        return
    named = {each.unit for each in config.engines}
    for unit in sorted(named - shown.engines.keys()):
        text = "stands in the file, and the running daemon does not know it: nothing stops or starts it, and its gate is unknown"
        yield Check("engines", unit, BAD, text, RESTART)
    for unit in sorted(shown.engines.keys() - named):
        yield Check("engines", unit, WARNING, "is not in the file any more, and the running daemon still acts on it", RESTART)


def _unasked(config: Config) -> Iterator[Check]:
    """Engines that cannot be asked whether they serve."""
    for each in config.engines:
        if not (each.metrics or each.health or each.probe):
            text = "has neither metrics, health nor probe: ready would mean that it stays up for 5 s"
            yield Check("engines", each.unit, WARNING, text, "name one of them under [[engines]], probe best: it asks for one real token")


def _keys(config: Config) -> Iterator[Check]:
    """Files that should hold the key of an engine's API, as the service will find them."""
    for each in config.engines:
        path = Path(each.api_key_file)
        if hidden := next((place for place in HIDDEN if path.is_relative_to(place)), ""):
            text = f"the key of its API lies below {hidden}, which the service does not see: no token would be made"
            yield Check("engines", each.unit, WARNING, text, "put the file into /etc/xidwatch (root, 0600)")
        elif each.api_key_file and (why := _why_no_key(path)):
            text = f"the key of its API cannot be had ({why}): no token would be made"
            yield Check("engines", each.unit, WARNING, text, "write it there (root, 0600); if it is there, run this as root")


def _why_no_key(path: Path) -> str:
    try:
        api_key.read(path)
    except api_key.NoKey as error:
        return str(error)
    return ""


def _gpus(shown: StateFile | None) -> Iterator[Check]:
    for unit, engine in sorted(shown.engines.items()) if shown else ():
        if not engine.gpus:
            text = "its GPUs are not known yet, so nothing is known to be under it"
            cure = 'name them (gpus = "all", or their addresses), or let it run once (`xidwatch gate` must say open)'
            yield Check("engines", unit, WARNING, text, cure)
        if engine.state == "LATCHED":
            yield Check("engines", unit, BAD, f"is latched: {engine.why}", f"see to what it says, then xidwatch gate --reset {unit}")
        if engine.order:
            yield Check("engines", unit, WARNING, f"its gate is open by order until {engine.order}", f"xidwatch gate --close {unit}")


def _persistence(known: Any, root: Path) -> Iterator[Check]:
    """Of the driver's state between two clients, and of the log of the boot before."""
    said = (known or {}).get(PERSISTENCED, {})
    if (root / "proc/driver/nvidia").is_dir() and said.get("ActiveState") != "active":
        text = (
            "nvidia-persistenced does not run: without a client every GPU is initialised anew, limits are lost, and a first call takes long"
        )
        yield Check("persistence", "driver", WARNING, text, f"systemctl enable --now {PERSISTENCED}")
    if (root / "run/systemd/journal").is_dir() and not (root / "var/log/journal").is_dir():
        text = "the system's journal is kept in memory: after a crash its last words are gone"
        yield Check("persistence", "journal", WARNING, text, "mkdir /var/log/journal; systemctl restart systemd-journald")


# ----------------------------------------------------------------------------------------------------------- to be seen


def describe(checks: list[Check]) -> list[str]:
    """A line for each, and one for what to do."""
    lines = []
    for check in checks:
        about = f" {clean(check.about)}" if check.about else ""
        lines.append(f"{check.verdict:8} {check.area}{about}: {clean(check.text)}")
        if check.cure and check.verdict != OK:
            lines.append(f"{'':8} {clean(check.cure)}")
    return lines


def _short(checks: list[Check], verdict: str) -> str:
    first = next((check for check in checks if check.verdict == verdict), None)
    text = (
        f"{first.area}{f' {first.about}' if first.about else ''}: {first.text}"
        if first and verdict in (BAD, UNKNOWN)
        else "all is in place"
    )
    return clean(text)[:NPD_CHARACTERS]
