"""`xidwatch gate [UNIT]`: may this engine start? Answered from the daemon's state file, in a tenth of a second; no hardware is asked.

    vllm.service: closed (HELD since 2026-09-17T02:10:21.118Z): 4 of 4 GPUs lost
    vllm.service: open (RUNNING since 2026-09-17T03:02:44.902Z)
    vllm.service: unknown: the daemon has stopped

Imports little, of other people's modules too (`dataclasses` alone takes a tenth of it): the unit of the engine waits for it
(ExecCondition=, systemd.service(5)).
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from xidwatch.places import DEFAULT_CONFIG, STATE_FILE, find_run_dir
from xidwatch.records import RecordError, files, order, state
from xidwatch.records.order import Order
from xidwatch.records.state import EngineState, MaintenanceState, StateFile

OPEN, CLOSED, UNKNOWN = 0, 2, 3
WORDS = {OPEN: "open", CLOSED: "closed", UNKNOWN: "unknown"}
EX_USAGE, EX_CANTCREAT = 64, 73
MOST_CHARACTERS = 4000  # of a reason that is given
MOST_OF_A_REASON = 200  # that is shown on a line
LONGEST_SECONDS = 7 * 86400.0
LONGEST_WAIT_SECONDS = 86400.0
LOOK_SECONDS = 1.0
BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
DOUBTS = {
    "stale": "what the daemon last wrote is older than three intervals",
    "other boot": "the daemon has not run since the last reboot",
    "dead": "the daemon is gone without a word (killed or crashed)",
    "replayed": "the state file is of a replay, and says nothing about this host",
}
OTHER_KINDS = (".socket", ".target", ".timer", ".mount", ".automount", ".swap", ".path", ".device", ".scope", ".slice")
START = "`systemctl start xidwatch`; if it does not stay, `journalctl -u xidwatch` tells why"
RESTART = "`systemctl restart xidwatch` (a reload does not take new engines)"
EXIT_CODES = """\
Exit status:
  0   open: it may start (on degraded hardware too)
  2   closed
  3   unknown: no daemon, an old word, or nothing proven yet
  64  usage; 69 the daemon does not answer, or refuses; 73 no place to write

An engine is asked about at its start by its own unit (make install-gate UNIT=...). It does not wait there, and --wait is no
option for a unit: systemd would count the waiting as its start, and let it fail.
"""


class Answer(NamedTuple):
    """What is said about one engine. `engine`: as the daemon shows it, None where it does not. `step`: the next, where one is known.

    `maintenance`: as far as a daemon that can be believed says so.
    """

    unit: str
    code: int
    why: str
    engine: EngineState | None = None
    order: Order | None = None
    step: str = ""
    maintenance: MaintenanceState | None = None


def add(commands: Any) -> None:
    """The command's options."""
    command = commands.add_parser(
        "gate",
        help="may this engine start?",
        description="May this engine start? Answered from what the daemon last knew.",
        epilog=EXIT_CODES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    command.add_argument("unit", nargs="?", default="", metavar="UNIT", help="the engine's unit (default: all of them)")
    command.add_argument("--json", action="store_true", help="for programs")
    command.add_argument("--wait", metavar="5m", help="until it is open, at most so long (24h); for people and scripts")
    change = command.add_mutually_exclusive_group()
    change.add_argument("--reset", action="store_true", help="take it out of LATCHED; the hardware has to be proven like any other time")
    change.add_argument("--open-for", metavar="1h", help="let it start for so long, whatever is known; works without a daemon")
    change.add_argument("--close", action="store_true", help="take that back")
    command.add_argument("--reason", default="", metavar="TEXT", help="why, for whoever reads the journal later")
    command.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """See EXIT_CODES."""
    unit = full_name(arguments.unit)
    if arguments.unit and not unit:
        return _refuse(EX_USAGE, f"{arguments.unit!r} is not the name of a service")
    if arguments.reset or arguments.open_for or arguments.close:
        if not unit:
            return _refuse(EX_USAGE, "which engine? Name its unit")
        from xidwatch.cli import gate_orders

        return gate_orders.give(arguments, unit)
    place, config = find_run_dir(arguments.state_dir), arguments.config or DEFAULT_CONFIG
    if not arguments.wait:
        return show(look(place, unit, config), as_json=arguments.json)
    from xidwatch.core.rules import seconds

    try:
        patience = seconds(arguments.wait)
    except ValueError as error:
        return _refuse(EX_USAGE, f"--wait: {error}")
    if patience > LONGEST_WAIT_SECONDS:
        return _refuse(EX_USAGE, f"--wait: at most {LONGEST_WAIT_SECONDS / 3600:g}h")
    answers = wait(lambda: look(place, unit, config), patience, time.monotonic, time.sleep)
    return show(answers, as_json=arguments.json)


def full_name(unit: str) -> str:
    """`vllm` is `vllm.service`; empty for what can be no service (systemd.unit(5)), least of all a path."""
    if unit.endswith(OTHER_KINDS):
        return ""
    name = unit if unit.endswith(".service") else f"{unit}.service"
    good = all(sign.isascii() and (sign.isalnum() or sign in ":-_.\\@") for sign in name)
    return name if unit and good and not name.startswith(".") and len(name) < 256 else ""


def wait(
    looking: Callable[[], list[Answer]], patience: float, monotonic: Callable[[], float], pause: Callable[[float], None]
) -> list[Answer]:
    """What is said once all are open, or when patience is over. What is waited for is said once, in the words of the first look."""
    end, told = monotonic() + patience, False
    while True:
        answers = looking()
        left = end - monotonic()
        if verdict(answers) == OPEN or left <= 0:
            return answers
        if not told:
            closed = "; ".join(describe(each) for each in answers if each.code != OPEN)
            print(f"xidwatch: waiting, {patience:g} s at most: {closed}", file=sys.stderr, flush=True)
            told = True
        pause(min(LOOK_SECONDS, left))


def look(place: Path, unit: str = "", config: Path = DEFAULT_CONFIG) -> list[Answer]:
    """About one engine, or about all that the daemon knows."""
    now_ms, boot_id = int(time.monotonic() * 1000), BOOT_ID.read_text().strip()
    shown, doubt, step = _shown(place, now_ms, boot_id)
    units = (unit,) if unit else tuple(sorted(shown.engines)) if shown else ()
    if not units:
        return [Answer("", UNKNOWN, doubt or "no engine is configured ([[engines]])", step=step)]
    answers = [answer(each, shown, doubt, _order(place, each, now_ms, boot_id)) for each in units]
    steps = [step or _missing_table(each, config) if each.code == UNKNOWN else "" for each in answers]
    on = shown.maintenance if shown and not doubt else None
    return [each._replace(step=step, maintenance=on) for each, step in zip(answers, steps, strict=True)]


def answer(unit: str, shown: StateFile | None, doubt: str, by_order: Order | None) -> Answer:
    """An operator's order first, then the gate, as far as its word can be believed."""
    engine = _engine(shown, unit) if shown else None
    if by_order is not None:
        text = f"by order of {by_order.by}, until {by_order.until}: {by_order.reason}"
        return Answer(unit, OPEN, text, engine, by_order)
    if doubt or shown is None:
        return Answer(unit, UNKNOWN, doubt, engine)
    if engine is None:
        return Answer(unit, UNKNOWN, "the daemon does not know it: no [[engines]] table of its configuration has this unit")
    if engine.may_start is None:
        return Answer(unit, UNKNOWN, engine.why or "nothing is proven yet", engine)
    if engine.may_start and engine.lease and _is_over(engine.lease):
        return Answer(unit, CLOSED, f"one start was granted, until {engine.lease}", engine)
    return Answer(unit, OPEN if engine.may_start else CLOSED, engine.why, engine)


def _shown(place: Path, now_ms: int, boot_id: str) -> tuple[StateFile | None, str, str]:
    """What the daemon wrote last, why it cannot be believed ("" where it can), and what to do about that."""
    try:
        shown = state.read(place / STATE_FILE)
    except RecordError as error:
        return None, str(error), START
    standing = state.standing(shown, now_ms, boot_id)
    doubt = DOUBTS.get(standing, "") or ("the daemon has stopped" if shown.pid is None else "")
    if shown.pid is None or standing != "stale":
        return shown, doubt, START if doubt else ""
    if files.lives(shown.pid):
        return shown, f"{doubt}: it hangs", "`systemctl restart xidwatch`"
    return shown, f"{doubt}: it is gone", START


def _missing_table(each: Answer, config: Path) -> str:
    """What to do about an engine that the running daemon does not know of; "" for one that it knows."""
    if each.engine is not None:
        return ""
    if is_named(each.unit, config):
        return f"{config} names it, and the daemon runs with what it was before: {RESTART}"
    return f'add [[engines]] with unit = "{each.unit}" to {config}, then {RESTART}'


def is_engine(place: Path, unit: str, config: Path) -> bool:
    """Whether the daemon, in whatever it wrote last, or the configuration knows it as one."""
    try:
        shown = state.read(place / STATE_FILE)
    except RecordError:
        return is_named(unit, config)
    return _engine(shown, unit) is not None or is_named(unit, config)


def is_named(unit: str, config: Path) -> bool:
    """Whether an [[engines]] table of the file names it. Read as it lies: to check it would take more than an engine's start may wait."""
    import tomllib  # here: only for an answer that nobody wants to be quick

    try:
        tables = tomllib.loads(config.read_text()).get("engines", [])
    except (OSError, ValueError):
        return False
    named = [table for table in tables if isinstance(table, dict)] if isinstance(tables, list) else []
    return any(unit in (table.get("unit"), table.get("after_incident_unit")) for table in named)


def _engine(shown: StateFile, unit: str) -> EngineState | None:
    """By its own unit, or by that of its stand-in, which stands on the same hardware."""
    return shown.engines.get(unit) or next((engine for engine in shown.engines.values() if engine.stand_in == unit), None)


def _is_over(until: str) -> bool:
    """To the second, which is how finely a lease is meant."""
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime()) > until[:19]


def _order(place: Path, unit: str, now_ms: int, boot_id: str) -> Order | None:
    try:
        found = order.read(place, unit)
    except RecordError as error:
        print(f"xidwatch: {error}", file=sys.stderr)
        return None
    return found if found is not None and found.holds(now_ms, boot_id) else None


# ----------------------------------------------------------------------------------------------------------- to be seen


def verdict(answers: list[Answer]) -> int:
    """Of several: closed if one is, else unknown if one is."""
    codes = {each.code for each in answers}
    return next((code for code in (CLOSED, UNKNOWN) if code in codes), OPEN)


def show(answers: list[Answer], *, as_json: bool) -> int:
    """Print them, and what can be done; the exit status."""
    if as_json:
        import json

        plain = [_plain(each) for each in answers]
        print(json.dumps(plain[0] if len(plain) == 1 else plain, indent=1))
    else:
        print("\n".join(describe(each) for each in answers))
        for each in answers:
            print("".join(f"  {clean(rung)}\n" for rung in each.engine.recovery) if each.engine else "", end="")
        print("".join(f"  {clean(line)}\n" for line in _holders(answers)), end="")
        if on := next((each.maintenance for each in answers if each.maintenance), None):
            print(clean(f"  maintenance until {on.until}, by {on.by or 'nobody known'}: {on.reason}  (nothing is acted on)"))
    sys.stdout.flush()  # where both go to one journal the reason stands before the hint
    for each in answers:
        if each.code != OPEN and (each.unit or each.step) and not as_json:
            print(f"xidwatch: {hint(each)}", file=sys.stderr)
    return verdict(answers)


def _holders(answers: list[Answer]) -> list[str]:
    """Who is still on its GPUs, where that keeps one closed."""
    reasons = [each.why for each in answers if each.code == CLOSED and "still on it" in each.why]
    if not reasons:
        return []
    from xidwatch.cli import holders

    return list(holders.named(reasons))


def describe(each: Answer) -> str:
    """One line."""
    engine = each.engine
    known = engine.state if engine and engine.state else ""
    since = f" since {engine.since}" if engine and engine.since and known else ""
    where = f" ({known}{since})" if known else ""
    name = f"{each.unit}: " if each.unit else ""
    why = f": {brief(each.why)}" if each.why else ""
    return clean(f"{name}{WORDS[each.code]}{where}{why}")


def brief(why: str) -> str:
    """The first reasons, which are what is bad; behind them stands what is not known because of it."""
    if len(why) <= MOST_OF_A_REASON:
        return why
    kept = why[:MOST_OF_A_REASON]
    return f"{kept.rpartition('; ')[0] or kept}; ... (--json has all)"


def hint(each: Answer) -> str:
    """What somebody at a terminal can do now."""
    if not each.unit:
        return each.step
    by_force = f"`xidwatch gate --open-for 1h --reason TEXT {each.unit}` lets it start anyway"
    if each.step:
        return f"{each.step}; {by_force}"
    if each.engine and each.engine.state == "LATCHED" and each.code == CLOSED:
        after = ", once the maintenance is over" if each.maintenance else ""
        return f"`xidwatch gate --reset {each.unit}` has it proven and started anew{after}; {by_force}"
    if each.maintenance:
        return f"`xidwatch maintenance off` ends it, if the work is done; {by_force}"
    return f"`xidwatch status` tells more; {by_force}"


def clean(text: str) -> str:
    """One line that moves no cursor: part of it comes from a file, and root reads it on a terminal."""
    return "".join(sign if sign.isprintable() else sign.encode("unicode_escape", "replace").decode() for sign in text)


def _plain(each: Answer) -> dict[str, object]:
    engine = each.engine
    ordered, on = each.order, each.maintenance
    return {
        "unit": each.unit,
        "gate": WORDS[each.code],
        "why": each.why,
        "state": engine.state if engine else None,
        "since": engine.since if engine else None,
        "may_start": engine.may_start if engine else None,
        "lease": engine.lease if engine else None,
        "recovery": list(engine.recovery) if engine else [],
        "order": {"until": ordered.until, "reason": ordered.reason, "by": ordered.by} if ordered else None,
        "maintenance": {"until": on.until, "reason": on.reason, "by": on.by} if on else None,
    }


def _refuse(code: int, text: str) -> int:
    print(f"xidwatch: {text}", file=sys.stderr)
    return code
