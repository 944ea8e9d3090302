"""`xidwatch explain 79`, `154`, `SXid 22013`, `aer`, a pasted line of the kernel log, or `-` for standard input.

Xid 79  GPU_HAS_FALLEN_OFF_THE_BUS
  critical, link; asks for: reboot
  The driver read a register of the GPU and did not find in it what it had found there before ...

Texts and rules only: no hardware, no records.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

from xidwatch.core.explanations import Explanation, Explanations, conduct
from xidwatch.core.kernel import Parser, is_spoken
from xidwatch.core.model import KernelEvent, KernelMessage, PciAddress, Severity
from xidwatch.core.xids import Ask, XidRule
from xidwatch.report import terminal
from xidwatch.report.lines import Line, wrapped
from xidwatch.report.words import clean
from xidwatch.rulefiles import ConfigError, Rules, both, load_explanations, load_rules, overrides_dir, rules_dir

EX_USAGE = 64
EX_CONFIG = 78
MOST_BYTES = 1024 * 1024  # of standard input
MOST_BEGINNINGS = 64  # words of a line that are tried as the beginning of what the kernel said
LOWEST_SXID = 10_000  # Xids are far below, SXids begin there
SOMEWHERE = PciAddress(0, 1, 0)  # a device, so that a number alone is read as in a line that names one

_WORD = re.compile(r"[^\s\"'`*>;]+")
_NUMBER = re.compile(r"\s*(?:(?P<what>s?xid)[\s:#=]*)?(?P<number>[0-9]{1,7})[\s.:]*", re.IGNORECASE)
_ASKS = {
    Ask.NOTHING: "nothing",
    Ask.RESTART_APPLICATION: "restart the application",
    Ask.CHECK_APPLICATION: "look at the application",
    Ask.RESET_GPU: "reset the GPU",
    Ask.RESTART_GUEST: "restart the guest",
    Ask.REBOOT: "reboot the host",
    Ask.CHECK_CONNECTION: "look at connections (cables, seating, power, NVLink)",
    Ask.UPDATE_SOFTWARE: "bring driver and firmware up to date",
    Ask.SUPPORT: "evidence for the vendor's support",
    Ask.FOLLOW: "what another line says (the Xid it follows from, or the action of an Xid 154)",
    Ask.AS_SAID: "what the line itself says",
}


@dataclass(frozen=True, slots=True)
class Told:
    """One event and all that is known about its sort. `pasted`: it was read from a line; else only its number or kind was given."""

    event: KernelEvent
    rule: XidRule | None
    text: Explanation | None
    does: list[str]
    pasted: bool

    @property
    def known(self) -> bool:
        """Whether anything is written about it."""
        return self.text is not None or self.rule is not None


def add(commands: Any) -> None:
    """The command's options."""
    command = commands.add_parser(
        "explain",
        help="what an Xid, an SXid or a line of the kernel log means, and what to look at first",
        description="What it means, where it usually comes from, what to look at first, what it is not, and what xidwatch does about it.",
        epilog="Exit status: 0 explained, or not known to anybody; 64 neither a number nor a line that xidwatch knows; 78 rules refused.",
    )
    command.add_argument(
        "what", nargs="+", metavar="WHAT", help="79, SXid 22013, a kind such as aer, a line of the log, or - for standard input"
    )
    command.add_argument("--json", action="store_true", help="one object, for programs")
    command.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """See the command's epilog."""
    given = " ".join(arguments.what)
    if given == "-":
        given = sys.stdin.buffer.read(MOST_BYTES).decode("utf-8", "replace") if sys.stdin else ""
    try:
        directory, changed = rules_dir(arguments.rules_dir), overrides_dir(arguments.rules_dir)
        rules, texts = both(lambda: load_rules(directory, changed), lambda: load_explanations(directory, changed))
    except ConfigError as error:
        for problem in error.problems:
            print(f"xidwatch: {problem}", file=sys.stderr)
        return EX_CONFIG
    told = list(explained(given, rules, texts))
    if not told:
        print(f"xidwatch: neither a number nor a line that xidwatch knows: {clean(given)[:200]!r}", file=sys.stderr)
        return EX_USAGE
    if arguments.json:
        objects = [_plain(each) for each in told]
        print(json.dumps(objects[0] if len(objects) == 1 else objects, indent=1, ensure_ascii=False))
        return 0
    width = terminal.width(os.environ.get("COLUMNS", ""))
    page = [line for each in told for line in (*describe(each), Line(""))][:-1]
    terminal.show(wrapped(page, width), sys.stdout, colour=sys.stdout.isatty() and not os.environ.get("NO_COLOR"))
    return 0


def explained(given: str, rules: Rules, texts: Explanations) -> Iterator[Told]:
    """One for a number or a kind; for text, one for each different sort of event in it. Nothing for anything else."""
    if match := _NUMBER.fullmatch(given):
        yield _of_number(int(match["number"]), (match["what"] or "").lower(), rules, texts)
        return
    if given.strip().lower() in texts.kinds:
        kind = given.strip().lower()
        yield _told(KernelEvent(0, 0, kind, Severity.ERROR, "", driver_fatal=kind == "uvm_fatal"), rules, texts, pasted=False)
        return
    seen = set()
    for event in _events(given, Parser(rules.xids)):
        sort = (event.kind, event.xid, event.recovery, event.severity)
        if sort not in seen:
            seen.add(sort)
            yield _told(event, rules, texts, pasted=True)


def _of_number(number: int, what: str, rules: Rules, texts: Explanations) -> Told:
    kind = what or ("sxid" if number >= LOWEST_SXID else "xid")
    rule = rules.xids.get(number) if kind == "xid" else None
    event = KernelEvent(
        0,
        0,
        kind,
        rule.severity if rule else Severity.WARNING,
        "",
        xid=number,
        pci=SOMEWHERE,
        bus_lost=rule is not None and rule.bus_lost,
        driver_fatal=rule is not None and rule.driver_fatal,
    )
    return _told(event, rules, texts, pasted=False)


def _told(event: KernelEvent, rules: Rules, texts: Explanations, *, pasted: bool) -> Told:
    if event.xid is None:
        return Told(event, None, texts.kinds.get(event.kind), conduct(event, rules.conditions), pasted)
    rule = rules.xids.get(event.xid) if event.kind == "xid" else None
    does = conduct(event, rules.conditions)
    if rule and rule.asks is Ask.AS_SAID and not pasted:
        fatal = conduct(replace(event, driver_fatal=True), rules.conditions)
        does += [f"Where the line asks for a reboot: {said}" for said in fatal if said not in does]
    return Told(event, rule, texts.of_number(event.kind, event.xid), does, pasted)


def _events(text: str, parser: Parser) -> Iterator[KernelEvent]:
    """Of pasted lines: what stands before the kernel's words (time, host, quotation marks) is passed over word by word."""
    for number, line in enumerate(text.splitlines()):
        for beginning in itertools.islice(_WORD.finditer(line), MOST_BEGINNINGS):
            said = line[beginning.start() :].rstrip("\"'`*")
            if is_spoken(said):
                yield from parser.feed(KernelMessage(number, 0, 0, 4, "", said))
                break
    yield from parser.finish()


# ----------------------------------------------------------------------------------------------------------- for people


def describe(told: Told) -> list[Line]:
    """Lines for a terminal, the most important first."""
    event, text = told.event, told.text or Explanation()
    lines = [Line(_title(told), "heading")]
    if told.pasted:
        lines += [Line(f"  {clean(event.text)}", "dim", hanging="    "), *_read_in_it(event)]
    lines.append(Line(f"  {_sort(told)}", "bad" if event.severity is Severity.CRITICAL else ""))
    lines.append(Line(f"  {text.meaning or 'What it means is not known. Unknown numbers count as a warning and are never acted on.'}"))
    for title, points in (("Usual causes, the most frequent first", text.causes), ("Look at first", text.check)):
        lines += [Line(""), Line(f"  {title}:", "heading")] if points else []
        lines += [Line(f"  {number}. {point}", hanging="     ") for number, point in enumerate(points, 1)]
    if text.is_not:
        lines += [Line(""), Line("  What it is not:", "heading"), Line(f"  {text.is_not}")]
    lines += [Line(""), Line("  What xidwatch does:", "heading"), *(Line(f"  - {each}", hanging="    ") for each in told.does)]
    if told.rule and told.rule.source:
        lines += [Line(""), Line(f"  Source: {told.rule.source}", "dim")]
    return lines


def _title(told: Told) -> str:
    event = told.event
    if event.xid is None:
        return event.kind
    name = "Xid" if event.kind == "xid" else "SXid"
    return f"{name} {event.xid}{f'  {told.rule.mnemonic}' if told.rule else '' if told.known else '  (unknown)'}"


def _sort(told: Told) -> str:
    event, rule = told.event, told.rule
    words: list[str] = [str(event.severity)] if event.xid or told.pasted else ["severity as its line says"]
    if event.kind == "sxid" and not told.pasted:
        words = ["fatal or not as its line says"]
    if rule:
        words.append(str(rule.xid_class))
        if not told.pasted and rule.by_text:
            words.append(f"but {', '.join(f'{severity} with {text.strip()!r}' for text, severity in rule.by_text)} in its line")
    asks = _ASKS.get(rule.asks) if rule else None
    return ", ".join(words) + (f"; asks for: {asks}" if asks else "")


def _read_in_it(event: KernelEvent) -> list[Line]:
    facts = {
        "device": event.pci,
        "process": event.process and clean(event.process),
        "pid": event.pid,
        "now asks for": event.recovery and clean(event.recovery),
        "follows from Xid": event.caused_by,
        "GPU instance": event.mig_gi,
        "compute instance": event.mig_ci,
        "CPU": event.cpu,
    }
    said = ", ".join(f"{name} {value}" for name, value in facts.items() if value is not None)
    return [Line(f"  {said}")] if said else []


# --------------------------------------------------------------------------------------------------------- for programs


def _plain(told: Told) -> dict[str, object]:
    event, rule, text = told.event, told.rule, told.text or Explanation()
    return {
        "kind": event.kind,
        "xid": event.xid,
        "known": told.known,
        "mnemonic": rule.mnemonic if rule else None,
        "class": rule.xid_class if rule else None,
        "severity": event.severity if (event.kind == "xid" and event.xid is not None) or told.pasted else None,
        "asks": rule.asks if rule else None,
        "driver_fatal": event.driver_fatal,
        "bus_lost": event.bus_lost,
        "source": rule.source if rule else None,
        "meaning": text.meaning or None,
        "causes": text.causes,
        "check": text.check,
        "is_not": text.is_not or None,
        "xidwatch_does": told.does,
        "event": _event(event) if told.pasted else None,
    }


def _event(event: KernelEvent) -> dict[str, object]:
    names = ("pci", "pid", "process", "recovery", "caused_by", "mig_gi", "mig_ci", "cpu", "text")
    found = {name: getattr(event, name) for name in names}
    return {name: str(value) if name == "pci" else value for name, value in found.items() if value is not None}
