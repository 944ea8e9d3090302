"""`xidwatch explain 79`, `79 31 aer`, `SXid 22013`, a pasted line of the kernel log or many, or `-` for standard input.

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
from xidwatch.core.logevents import Decoder
from xidwatch.core.logtext import Assembler
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
_TERM = re.compile(
    r"\s*(?:(?:(?P<what>s?xid)s?[\s:#=]*)?(?P<number>[0-9]{1,7})(?!\w|\.[0-9])|(?P<kind>[a-z_]+))[\s.,:;+&/]*", re.IGNORECASE
)
# Where the shell has made one line of many: before the time that the next one begins with.
_NEXT_LINE = re.compile(
    r"(?<!kernel:) (?=\[ ?\d{1,12}\.\d{3,9}\] |(?:[A-Z][a-z]{2} \d{1,2} \d\d:\d\d:\d\d|\d{4}-\d\d-\d\dT\S{1,40}) \S{1,255} kernel: )"
)
_TEXT_FIRST = "The words behind the number in its line: they outrank it. `xidwatch explain` takes the whole line."
_SECONDS_BEFORE = "Other lines about the same device in the seconds before: what is known there comes first."
_UNKNOWN = {
    "xid": Explanation(
        "This version of xidwatch has no row for this number; drivers get new ones. "
        "An unknown number counts as a warning and is never acted on.",
        check=(
            _TEXT_FIRST,
            "NVIDIA's list of Xids for the driver that printed it (docs.nvidia.com/deploy/xid-errors) and the driver's release notes.",
            _SECONDS_BEFORE,
        ),
    ),
    "sxid": Explanation(
        "This version of xidwatch has no row for this number, nor for its thousands, which are the unit of the switch. "
        "An unknown number counts as a warning, or as critical where its line says Fatal, and is never acted on.",
        check=(
            _TEXT_FIRST,
            "NVIDIA's list of SXids, in the fabric manager's user guide for the version that runs here.",
            _SECONDS_BEFORE,
        ),
    ),
}
_NO_NUMBER = "Xids begin at 1: no driver prints this one. It is what a tool says that has found none, or a damaged line."
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
        "what",
        nargs="+",
        metavar="WHAT",
        help="numbers (79, SXid 22013), kinds such as aer, lines of the log, or - for standard input; several give one text each",
    )
    command.add_argument("--json", action="store_true", help="one object, for programs; a list of them for several")
    command.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """See the command's epilog."""
    given = joined(arguments.what)
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


def joined(words: list[str]) -> str:
    """What was meant by several arguments: a line each where they have been quoted, else the words of one, or of many lines."""
    if any(" " in word.strip() for word in words):
        return "\n".join(words)
    return _NEXT_LINE.sub("\n", " ".join(words))


def explained(given: str, rules: Rules, texts: Explanations) -> Iterator[Told]:
    """One for each number or kind; for text, one for each different sort of event in it. Nothing for anything else."""
    if (terms := _terms(given, rules, texts)) is not None:
        yield from terms
        return
    seen = set()
    for event in _events(given, rules):
        sort = (event.kind, event.xid, event.recovery, event.severity, event.injected)
        if sort not in seen:
            seen.add(sort)
            yield _told(event, rules, texts, pasted=True)


def _terms(given: str, rules: Rules, texts: Explanations) -> list[Told] | None:
    """What numbers and kinds mean, each once; None when anything else stands among them."""
    told: dict[tuple[str, int | None], Told] = {}
    at = 0
    while at < len(given):
        match = _TERM.match(given, at)
        kind = match["kind"].lower() if match and match["kind"] else ""
        if match is None or (kind and kind not in texts.kinds):
            return None
        event = KernelEvent(0, 0, kind, Severity.ERROR, "", driver_fatal=kind == "uvm_fatal")
        each = (
            _told(event, rules, texts, pasted=False)
            if kind
            else _of_number(int(match["number"]), (match["what"] or "").lower(), rules, texts)
        )
        told.setdefault((each.event.kind, each.event.xid), each)
        at = match.end()
    return list(told.values()) or None


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


def _decoded(text: str, rules: Rules) -> list[KernelEvent]:
    """With its times, its wraps, and who has spoken."""
    assembler, decoder = Assembler(), Decoder(rules.xids)
    records = [
        record for number, line in enumerate(text.split("\n"), 1) for record in assembler.feed(number, line.encode("utf-8", "replace"))
    ]
    found = [each for record in (*records, *assembler.finish()) for each in decoder.feed(record)]
    return [each.event for each in sorted((*found, *decoder.finish()), key=lambda found: found.number)]


def _events(text: str, rules: Rules) -> list[KernelEvent]:
    """Of a pasted log as `decode` reads it; and of what it makes nothing of, what a look at each line's words finds."""
    decoded = _decoded(text, rules)
    known = {(event.kind, event.xid) for event in decoded}
    return decoded + [event for event in _spoken(text, Parser(rules.xids)) if (event.kind, event.xid) not in known]


def _spoken(text: str, parser: Parser) -> Iterator[KernelEvent]:
    """What stands before the kernel's words (time, host, quotation marks) is passed over word by word."""
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
    event, text = told.event, told.text or _unknown(told.event)
    lines = [Line(_title(told), "heading")]
    if told.pasted:
        lines += [Line(f"  {clean(event.text)}", "dim", hanging="    "), *_read_in_it(event)]
    lines.append(Line(f"  {_sort(told)}", "bad" if event.severity is Severity.CRITICAL else ""))
    lines.append(Line(f"  {text.meaning}"))
    for title, points in (("Usual causes, the most frequent first", text.causes), ("Look at first", text.check)):
        lines += [Line(""), Line(f"  {title}:", "heading")] if points else []
        lines += [Line(f"  {number}. {point}", hanging="     ") for number, point in enumerate(points, 1)]
    if text.is_not:
        lines += [Line(""), Line("  What it is not:", "heading"), Line(f"  {text.is_not}")]
    lines += [Line(""), Line("  What xidwatch does:", "heading"), *(Line(f"  - {each}", hanging="    ") for each in told.does)]
    if told.rule and told.rule.source:
        lines += [Line(""), Line(f"  Source: {told.rule.source}", "dim")]
    return lines


def _unknown(event: KernelEvent) -> Explanation:
    """What there is to say of a number that no row is about."""
    unknown = _UNKNOWN.get(event.kind, _UNKNOWN["xid"])
    return replace(unknown, meaning=_NO_NUMBER) if event.kind == "xid" and event.xid == 0 else unknown


def _title(told: Told) -> str:
    event = told.event
    if event.xid is None:
        return event.kind
    name = "Xid" if event.kind == "xid" else "SXid"
    return f"{name} {event.xid}{f'  {told.rule.mnemonic}' if told.rule else '' if told.known else '  (unknown to this version)'}"


def _sort(told: Told) -> str:
    event, rule = told.event, told.rule
    words: list[str] = [str(event.severity)] if event.xid is not None or told.pasted else ["severity as its line says"]
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
