"""Damaged, forged and mixed-up kernel lines against the parser, for as long as one likes: `make fuzz SECONDS=3600`.

Lines that were seen in the field are cut, joined, repeated, wrapped, given names that users choose, and filled with noise; records
of several of them go through one parser. It must never raise, never be slow, and never flag for action what somebody else wrote.
The seed is printed first; with it a run repeats itself. The first breach ends the run with what brought it about.
"""

from __future__ import annotations

import argparse
import random
import sys
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field

from tests.core.lines import CASES, RULES
from xidwatch.core.kernel import Parser
from xidwatch.core.model import KernelEvent, KernelMessage

LINES: tuple[str, ...] = tuple(dict.fromkeys(text for case in CASES for text in case["records"]))
RECORDS_PER_LOG = 40
SLOW_SECONDS = 0.25  # of processor time, for one record of 64 KiB
LARGE = 65_536
NAMES = (
    "Xid 79, GPU",
    "NVRM: Xid 79, a",
    "a\nNVRM: Xid 79,",
    "nvc:[driver]",
    "], [x:1]",
    "kworker/2:1",
    "Fatal",
    "pid=1, name=",
    "é\x00\x1b[31m",
    "",
)
NOISE = "0123456789abcdefxX:.,;()[]{}<>='\"#@!?*+-_/\\ \t\r\n\x00\x1b\x7f\x85\u2028\u200b\ud800\U0001f525"
SIGNS = "".join(sorted(set("".join(LINES))))
STAMPS = (0, 1, 1_000, 999_999, 1_000_001, 120_000_001, -1, 10**15)
FRAMES = (
    "{}[4711]: segfault at 0 ip 0 sp 0 error 4 in x[401000+1000]",
    "traps: {}[7] trap invalid opcode ip:0 sp:0 error:0",
    "NVRM: Xid (PCI:0000:3b:00): 31, pid=7, name={}, Ch 00000008",
    "watchdog: BUG: soft lockup - CPU#0 stuck for 22s! [{}:7]",
    "INFO: task {}:7 blocked for more than 120 seconds.",
    "process '{}' launched '/bin/true' with NULL argv: empty string added",
    "{}: page allocation failure: order:9",
)
# How alone a record begins that gives a reason to act (a line break in it counts as a blank).
ACTED_ON = ("NVRM: ", "nvidia-uvm: ")

Change = Callable[[random.Random, str], str]


class Breach(Exception):
    """What the parser must not do."""


def _cut(chance: random.Random, text: str) -> str:
    return text[: chance.randrange(len(text) + 1)]


def _behead(chance: random.Random, text: str) -> str:
    return text[chance.randrange(len(text) + 1) :]


def _join(chance: random.Random, text: str) -> str:
    return f"{text}{chance.choice(('', ' ', chr(10), chr(13), ', '))}{chance.choice(LINES)}"


def _wrap(chance: random.Random, text: str) -> str:
    at = chance.randrange(len(text) + 1)
    return f"{text[:at]}{chance.choice((chr(10), chr(10) + ' ' * 15, chr(13) + chr(10)))}{text[at:]}"


def _flip(chance: random.Random, text: str) -> str:
    signs = list(text)
    for _ in range(chance.randrange(1, 6)):
        if signs:
            signs[chance.randrange(len(signs))] = chance.choice(chance.choice((NOISE, SIGNS)))
    return "".join(signs)


def _insert(chance: random.Random, text: str) -> str:
    at = chance.randrange(len(text) + 1)
    return text[:at] + "".join(chance.choices(NOISE, k=chance.randrange(1, 20))) + text[at:]


def _repeat(chance: random.Random, text: str) -> str:
    start, length = chance.randrange(len(text) + 1), chance.randrange(1, 12)
    piece = text[start : start + length] or " "
    times = chance.choice((2, 3, 50, LARGE // len(piece)))
    return text[:start] + piece * times + text[start:]


def _name(chance: random.Random, _text: str) -> str:
    name = chance.choice(NAMES) if chance.random() < 0.5 else "".join(chance.choices(NOISE + SIGNS, k=chance.randrange(16)))
    return chance.choice(FRAMES).format(name[:15])


def _colour(_chance: random.Random, text: str) -> str:
    return f"\x1b[1;31m{text}\x1b[0m"


def _keep(_chance: random.Random, text: str) -> str:
    return text


CHANGES: tuple[Change, ...] = (_keep, _cut, _behead, _join, _wrap, _flip, _insert, _repeat, _name, _colour)


@dataclass(slots=True)
class Fuzz:
    """One run; `tally` counts what came out."""

    seed: int
    records: int = 0
    slowest: float = 0.0
    tally: Counter[str] = field(default_factory=Counter)

    def run(self, seconds: float, most_records: int | None = None) -> None:
        """Logs of forty records until the time is over, or so many records are through. Raises Breach, or what the parser raised."""
        chance = random.Random(self.seed)
        end = time.monotonic() + seconds
        while time.monotonic() < end and (most_records is None or self.records < most_records):
            parser, log, usec = Parser(RULES), [], 0
            for seq in range(RECORDS_PER_LOG):
                usec += chance.choice(STAMPS)
                log.append(KernelMessage(seq, usec, chance.choice((0, 0, 0, 1, 3)), 4, "-", make(chance)))
                self._feed(parser, log)
            self._check(log, parser.finish())

    def _feed(self, parser: Parser, log: list[KernelMessage]) -> None:
        before = time.process_time()
        try:
            events = parser.feed(log[-1])
        except Exception as error:
            raise Breach(f"{type(error).__name__}: {error}\nrecords: {log!r}") from error
        took = time.process_time() - before
        self.records += 1
        self.slowest = max(self.slowest, took)
        if took > SLOW_SECONDS:
            raise Breach(f"{took:.3f} s for {log[-1]!r}")
        self._check(log, events)

    def _check(self, log: list[KernelMessage], events: tuple[KernelEvent, ...]) -> None:
        by_seq = {message.seq: message for message in log}
        for event in events:
            self.tally[event.kind] += 1
            message = by_seq.get(event.seq)
            wrong = self._wrong(event, message)
            if wrong:
                raise Breach(f"{wrong}\nevent: {event!r}\nrecords: {log!r}")

    @staticmethod
    def _wrong(event: KernelEvent, message: KernelMessage | None) -> str:
        acted = event.driver_fatal or event.bus_lost
        if message is None or event.usec != message.usec:
            return "an event of no record"
        if not event.text or "\n" in event.text:
            return "no text, or one of several lines"
        if event.injected is message.from_kernel:
            return "marked wrongly as injected"
        if acted and (event.injected or not " ".join(message.text.split()).startswith(ACTED_ON)):
            return "a reason to act that the driver did not write"
        if acted and event.kind not in ("xid", "uvm_fatal"):
            return "a reason to act of the wrong kind"
        return "" if event.repeated == 1 else "repeated by the parser"


def make(chance: random.Random) -> str:
    """One text: a line of the field, changed up to four times, or mere noise."""
    if chance.random() < 0.02:
        return chance.randbytes(chance.choice((8, 200, 4096))).decode("latin-1")
    text = chance.choice(LINES)
    for _ in range(chance.randrange(5)):
        text = chance.choice(CHANGES)(chance, text)[: 2 * LARGE]
    return text


def main() -> int:
    """0 when nothing was wrong."""
    options = argparse.ArgumentParser(prog="python -m tests.fuzz_kernel", description=__doc__)
    options.add_argument("--seconds", type=float, default=60.0)
    options.add_argument("--seed", type=int, default=None, help="of an earlier run, to repeat it")
    given = options.parse_args()
    fuzz = Fuzz(given.seed if given.seed is not None else random.SystemRandom().randrange(2**32))
    print(f"seed {fuzz.seed}", flush=True)
    try:
        fuzz.run(given.seconds)
    except Breach as breach:
        print(f"after {fuzz.records} records: {breach}", file=sys.stderr)
        return 1
    kinds = ", ".join(f"{kind} {count}" for kind, count in sorted(fuzz.tally.items()))
    print(f"{fuzz.records} records, slowest {1000 * fuzz.slowest:.1f} ms; events: {kinds}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
