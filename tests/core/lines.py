"""What the tests of the kernel's lines share: records, a parser with the shipped rules, and the cases that were seen in the field."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from xidwatch.core.kernel import Parser, xid_rules
from xidwatch.core.model import KernelEvent, KernelMessage

RULES = xid_rules(tomllib.loads((Path(__file__).parents[2] / "rules" / "xid.toml").read_text()))
CASES = [json.loads(line) for line in (Path(__file__).parents[1] / "data" / "kernel-lines.jsonl").read_text().splitlines()]


def message(text: str, *, seq: int = 7, usec: int = 1_000_000, facility: int = 0) -> KernelMessage:
    return KernelMessage(seq=seq, usec=usec, facility=facility, level=4, flags="c", text=text)


def read(texts: Iterable[str], *, parser: Parser | None = None, apart_usec: int = 1000, facility: int = 0) -> list[KernelEvent]:
    """Of records that follow each other in one log, to its end."""
    parser = parser or Parser(RULES)
    found = [
        event
        for seq, text in enumerate(texts)
        for event in parser.feed(message(text, seq=seq, usec=1_000_000 + seq * apart_usec, facility=facility))
    ]
    return [*found, *parser.finish()]


def block(text: str) -> list[str]:
    """The records of a multi-line text, as it stands in a test; blanks before the words of a line are the kernel's."""
    return [line.removeprefix("    ") for line in text.strip("\n").splitlines()]


def summary(event: KernelEvent) -> tuple[Any, ...]:
    """What a line is judged by."""
    return event.kind, str(event.pci) if event.pci else None, str(event.severity)
