"""`xidwatch status`: what the daemon last knew, from its state file; no hardware is asked.

failed since 2026-09-17T02:10:08.412Z  (tick 120, recorded 2026-09-17T02:10:38.004Z, every 30 s)
incident open: 20260917T021008Z-bus-lost-0f  (xidwatch report)
TRUE    ConfigSpaceAllOnes port:0000:0f:00.0 since 2026-09-17T02:10:08.412Z: config_dword0 ffffffff
UNKNOWN ConfigSpaceAllOnes of 8: config_dword0 missing (BEHIND_DEAD_PARENT)
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from typing import Any

from xidwatch.cli import holders
from xidwatch.cli.gate import brief
from xidwatch.clock import BOOT_ID
from xidwatch.places import STATE_FILE, find_run_dir
from xidwatch.records import RecordError, state
from xidwatch.records.state import ConditionState, EngineState, ProbeState, RecoveryState, StateFile
from xidwatch.report.words import clean, count

MAY_START = {True: "may start", False: "may not start", None: "nobody knows whether it may start"}
DESCRIPTION = "How the host is in one word, and why, as the daemon last knew it; no hardware is asked."
EXIT_CODES = """\
Exit status:
  0   healthy
  1   degraded
  2   failed: a critical condition, or an incident that is not over
  3   unknown: also when no daemon runs, or what it left is too old to be believed
"""
NOT_BY_ITSELF, BY_ITSELF = "none of it is done by itself", "what is done by itself stands below, as recovery"
EXIT = {"healthy": 0, "degraded": 1, "failed": 2, "unknown": 3}


def add(commands: Any) -> None:
    """The command's options."""
    command = commands.add_parser(
        "status",
        help="the host in one word, and why",
        description=DESCRIPTION,
        epilog=EXIT_CODES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    command.add_argument("--json", action="store_true", help="the state file, with its freshness")
    command.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """0 healthy, 1 degraded, 2 failed, 3 unknown or not running."""
    try:
        shown = state.read(find_run_dir(arguments.state_dir) / STATE_FILE)
    except RecordError as error:
        print(f"xidwatch: nothing is known of a daemon for {arguments.state_dir.absolute()}: {error}", file=sys.stderr)
        if arguments.json:
            print(json.dumps({"verdict": "unknown", "verdict_recorded": None, "freshness": "absent"}, indent=1))
        return EXIT["unknown"]
    fresh = state.standing(shown, int(time.monotonic() * 1000), BOOT_ID.read_text().strip())
    verdict = shown.verdict if fresh in ("fresh", "replayed") else "unknown"
    if arguments.json:
        plain = json.loads(state.encode(shown))
        print(json.dumps({**plain, "verdict": verdict, "verdict_recorded": shown.verdict, "freshness": fresh}, indent=1))
    else:
        print("\n".join(describe(shown, fresh, verdict)))
    return EXIT.get(verdict, EXIT["unknown"])


def describe(shown: StateFile, fresh: str, verdict: str) -> list[str]:
    """For people: the verdict first, then what it rests on."""
    lines = [f"{verdict} since {shown.since}  (tick {shown.tick}, recorded {shown.time}, every {shown.interval_s:g} s)"]
    lines += _doubts(shown, fresh)
    if shown.maintenance:
        on = shown.maintenance
        lines.append(f"  maintenance until {on.until}, by {clean(on.by) or 'nobody known'}: {clean(on.reason)}  (nothing is acted on)")
    if shown.incident:
        lines.append(f"  incident open: {shown.incident}  (xidwatch report)")
    lines += [f"  TRUE    {c.type} {c.subject} since {c.since}: {clean(c.reason)}" for c in shown.conditions if c.status == "TRUE"]
    lines += [f"          {advice}" for advice in dict.fromkeys(c.advice for c in shown.conditions if c.advice)]
    lines += _unknown([c for c in shown.conditions if c.status == "UNKNOWN"])
    lines.append(f"  {count(sum(1 for c in shown.conditions if c.status == 'FALSE'), 'condition')} looked at and good")
    lines += _baseline(shown)
    for unit, engine in sorted(shown.engines.items()):
        lines += _engine(unit, engine, BY_ITSELF if shown.recovery else NOT_BY_ITSELF)
        lines += [f"      {clean(line)}" for line in (holders.named([engine.why]) if fresh == "fresh" else ())]
    lines += [f"  recovery {each.step}: {_recovery(each)}" for each in shown.recovery]
    for name, probe in sorted(shown.probes.items()):
        stuck = f", stuck for {probe.stuck_s:.0f} s" if probe.stuck_s else ""
        why = f": {clean(probe.text)}" if probe.text and not probe.success else ""
        lines.append(f"  probe {name}: {_answers(probe)}{why}{stuck}")
    return lines


def _engine(unit: str, engine: EngineState, by_itself: str) -> list[str]:
    gpus = f"GPUs {' '.join(engine.gpus)} ({engine.gpus_by})" if engine.gpus else "GPUs not known"
    lines = [f"  engine {clean(unit)}: {clean(engine.unit) or 'state not known'}, {gpus}"]
    if engine.state:
        since, why = f" since {engine.since}" if engine.since else "", f": {clean(brief(engine.why))}" if engine.why else ""
        lease = f", one start granted until {engine.lease}" if engine.lease else ""
        lines.append(f"    gate {engine.state}{since}, {MAY_START[engine.may_start]}{lease}{why}")
    if engine.order:
        lines.append(f"    open until {engine.order} by an operator's order, whatever is known (xidwatch gate --close {clean(unit)})")
    if engine.recovery:
        lines.append(f"    what could bring its hardware back, in this order; {by_itself}:")
        lines += [f"      {clean(rung)}" for rung in engine.recovery]
    return lines


def _recovery(of: RecoveryState) -> str:
    """What came of it in this boot, else why it is not taken now."""
    on = f" of {clean(of.target)}" if of.target else ""
    if of.done:
        detail = f": {clean(of.detail)}" if of.detail else ""
        return f"taken{on} at {of.done}, {of.result or 'under way, or how it ended is not on record'}{detail}"
    return f"switched on, not now: {clean('; '.join(of.against))}" if of.against else f"switched on, and due{on}"


def _answers(probe: ProbeState) -> str:
    if probe.success:
        return "answers"
    if not probe.asked:
        return "is not asked"
    return "answers in part" if probe.partly else "does not answer"


def _baseline(shown: StateFile) -> list[str]:
    if shown.baseline is None:
        return []
    if shown.baseline.provisional:
        return [f"  baseline provisional since {shown.baseline.since}: learnt, not accepted. It warns, it proves nothing (xidwatch init)"]
    return [f"  baseline accepted on {shown.baseline.since} by {clean(shown.baseline.by)}"]


def _doubts(shown: StateFile, fresh: str) -> list[str]:
    if fresh == "replayed":
        return [f"  replayed from {clean(shown.replayed)}: so it was then and there, and says nothing about this host"]
    if shown.pid is None:
        return ["  the daemon has stopped: what follows is what it knew last"]
    if fresh == "other boot":
        return [f"  recorded before the last reboot, when it was {shown.verdict}; the daemon has not run since"]
    if fresh == "dead":
        return [f"  process {shown.pid} is gone without a word (killed or crashed): it was {shown.verdict}, nobody knows what is true now"]
    if fresh == "stale":
        return [f"  older than three intervals: it was {shown.verdict}, what is true now nobody knows. Is it hanging, is its disk full?"]
    return []


def _unknown(conditions: list[ConditionState]) -> list[str]:
    """One line for all that share type and reason: behind a dead switch there are dozens."""
    groups: dict[tuple[str, str], list[str]] = {}
    for condition in conditions:
        groups.setdefault((condition.type, clean(condition.reason)), []).append(condition.subject)
    return [
        f"  UNKNOWN {type_} {subjects[0] if len(subjects) == 1 else f'of {len(subjects)}'}: {reason}"
        for (type_, reason), subjects in groups.items()
    ]
