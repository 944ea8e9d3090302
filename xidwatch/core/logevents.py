"""From the records of a log to the events in them, floods folded.

Law: pure. Order is the log's. An event that says again what was just said raises the count of the first and keeps the last place and
time; it is the same only when nothing but its place and time differs, and when not too much time lies in between.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from xidwatch.core.kernel import Parser
from xidwatch.core.logtext import Record
from xidwatch.core.model import KernelEvent, KernelMessage
from xidwatch.core.xids import XidClass, XidRule

FOLDED_TOGETHER = 16  # different events that may alternate: as many GPUs say the same in turn
FOLD_USEC = 10_000_000  # after so long a silence the same words are news
_PLACES = 4096  # records whose time is remembered, for an event that is told over several
_STEADY = 2  # times that the same text has to give the same event before the parser is not asked again
USER = 1  # a facility that is not the kernel's

# What is looked at first, for kinds without a row of their own in rules/xid.toml.
CLASS_OF_KIND = {
    "sxid": XidClass.FABRIC,
    "aer": XidClass.LINK,
    "dpc": XidClass.LINK,
    "pciehp": XidClass.LINK,
    "power_state": XidClass.LINK,
    "gsp": XidClass.DRIVER,
    "uvm_fatal": XidClass.DRIVER,
    "nvrm_init_fail": XidClass.DRIVER,
    "nvme": XidClass.HARDWARE,
    "mce": XidClass.HARDWARE,
    "ghes": XidClass.HARDWARE,
    "edac": XidClass.MEMORY,
    "lockup": XidClass.DRIVER,
    "rcu": XidClass.DRIVER,
    "hung_task": XidClass.DRIVER,
}


def class_of(event: KernelEvent, xids: Mapping[int, XidRule]) -> XidClass:
    """An Xid's by its number; a bus loss that names none is one of the link."""
    if event.kind != "xid":
        return CLASS_OF_KIND.get(event.kind, XidClass.INFORMATIONAL)
    if event.xid is None:
        return XidClass.LINK if event.bus_lost else XidClass.INFORMATIONAL
    return xids[event.xid].xid_class if event.xid in xids else XidClass.INFORMATIONAL


@dataclass(slots=True)
class Found:
    """An event and where it stands; grows while the same is said again."""

    event: KernelEvent
    number: int  # of its first line
    time: str | None
    boot: str | None
    usec: int | None
    repeated: int = 1
    last_number: int = 0
    last_time: str | None = None

    def again(self, number: int, time: str | None, usec: int | None, times: int = 1) -> None:
        """Said once more, further down."""
        self.repeated += times
        self.last_number, self.last_time, self.usec = number, time, usec


class Decoder:
    """Takes records in order, gives events in order: each when nothing that follows can be the same again."""

    def __init__(self, xids: Mapping[int, XidRule]) -> None:
        self._xids = xids
        self._parser = Parser(xids)
        self._boot: str | None = None
        self._usec = 0
        self._places: dict[int, tuple[str | None, int | None]] = {}
        self._older: dict[int, tuple[str | None, int | None]] = {}
        self._pending: dict[object, Found] = {}  # by their text
        self._last: Record | None = None
        self._last_found: Found | None = None
        self._steady = 0

    def feed(self, record: Record) -> list[Found]:
        """Events that are over now."""
        if record.others:
            record = self._joined(record)
        if self._says_again(record):
            return []
        done = self._new_boot(record.boot) if record.boot != self._boot else []
        if record.usec is not None:
            self._usec = record.usec
        self._remember(record)
        facility = 0 if record.kernel else USER
        events = self._parser.feed(KernelMessage(record.number, self._usec, facility, 0, "", record.text))
        alone = len(events) == 1 and events[0].seq == record.number
        same = alone and self._last is not None and (record.text, record.kernel) == (self._last.text, self._last.kernel)
        self._steady = self._steady + 1 if same else int(alone)
        self._last = record
        return done + self._found(events, record) if events else done

    def finish(self) -> list[Found]:
        """Nothing more comes for now: what is known is given out."""
        self._found(_finished(self._parser))
        return self._flush()

    @property
    def holds(self) -> bool:
        """An event waits for further lines of its record."""
        return self._parser.holds

    @property
    def is_steady(self) -> bool:
        """The same text has just given the same event several times: it would do so again."""
        return self._steady >= _STEADY and self._last_found is not None

    @property
    def last(self) -> Record | None:
        """The record before."""
        return self._last

    def skipped(self, times: int, number: int) -> None:
        """While steady: the same line so many times more, up to that one; the next one, which says the same, is still to come."""
        if times and self._last_found is not None and self._last is not None:
            self._last_found.again(number, self._last.time, self._last.usec, times)

    def _joined(self, record: Record) -> Record:
        """Of the ways to join what somebody has broken, the one in which most is said; of such, the likeliest.

        Where they say different things, as a name with a blank in it, a word was broken: it is whole where the text is shortest. A
        line that may be somebody's remark changes nothing.
        """
        told = {text: self._facts(record, text) for text in (record.text, *record.others)}
        most = max(known for known, _ in told.values())
        first, *rest = best = [text for text, (known, _) in told.items() if known == most]
        is_broken = any(told[text] != told[first] for text in rest) and not any(text.startswith(first) for text in rest)
        return record._replace(text=min(best, key=len) if is_broken else first, others=())

    def _facts(self, record: Record, text: str) -> tuple[int, Sequence[tuple[object, ...]]]:
        """How many a text tells, and which."""
        parser = Parser(self._xids)
        events = (*parser.feed(KernelMessage(0, 0, 0 if record.kernel else USER, 0, "", text)), *parser.finish())
        facts = [(e.kind, e.severity, e.xid, e.pci, e.pid, e.process, e.recovery, e.caused_by, e.cpu) for e in events]
        return sum(fact is not None for told in facts for fact in told), facts

    def _says_again(self, record: Record) -> bool:
        """In a flood the parser need not be asked what it has just said twice in a row."""
        last, found = self._last, self._last_found
        if self._steady < _STEADY or last is None or found is None or record.text != last.text or record.kernel != last.kernel:
            return False
        if record.boot != self._boot or not _soon(found.usec, record.usec):
            return False
        found.again(record.number, record.time, record.usec)
        return True

    def _new_boot(self, boot: str | None) -> list[Found]:
        """Another kernel is speaking; it goes on with nothing that was said before."""
        done = self.finish()
        self._parser, self._boot, self._steady = Parser(self._xids), boot, 0
        self._places, self._older = {}, {}
        return done

    def _remember(self, record: Record) -> None:
        if len(self._places) >= _PLACES:
            self._older, self._places = self._places, {}
        self._places[record.number] = record.time, record.usec

    def _place(self, number: int) -> tuple[str | None, int | None]:
        return self._places.get(number) or self._older.get(number, (None, None))

    def _found(self, events: tuple[KernelEvent, ...], record: Record | None = None) -> list[Found]:
        done: list[Found] = []
        for event in events:
            time, usec = (record.time, record.usec) if record and event.seq == record.number else self._place(event.seq)
            key: object = event.text  # hashed once, which counts where every line is an event
            before = self._pending.get(key)
            if before is not None and _meant(before.event) != _meant(event):
                key = (event.text, *_meant(event))
                before = self._pending.get(key)
            if before is not None and _soon(before.usec, usec):
                before.again(event.seq, time, usec, event.repeated)
                self._last_found = before
                continue
            if before is not None:
                done += self._flush()
            self._last_found = self._pending[key] = Found(event, event.seq, time, self._boot, usec, event.repeated)
        while len(self._pending) > FOLDED_TOGETHER:
            done.append(self._pending.pop(next(iter(self._pending))))
        return done

    def _flush(self) -> list[Found]:
        done = sorted(self._pending.values(), key=lambda found: found.number)
        self._pending.clear()
        self._last_found, self._steady = None, 0
        return done


def _meant(event: KernelEvent) -> tuple[object, ...]:
    """What else has to be the same where the text is."""
    return event.kind, event.severity, event.pci, event.injected


def _soon(before: int | None, now: int | None) -> bool:
    """Unknown times are as good as none in between."""
    return before is None or now is None or 0 <= now - before <= FOLD_USEC


def _finished(parser: Parser) -> tuple[KernelEvent, ...]:
    finish = getattr(parser, "finish", None)
    return finish() if finish else ()
