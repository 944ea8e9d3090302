r"""Lines of a log file, put together again into the records that the kernel printed.

    [   10.604174] NVRM: The NVIDIA GPU 0000:b3:00.0          one record, printed with line breaks inside: its further lines
                   NVRM: (PCI ID: 10de:26b5) installed        are indented
    [   12.345678] NVRM: Xid (PCI:0000:0f:00): 79, GPU has    one line, wrapped by a terminal, an editor or a hand
    fallen off the bus.
    MESSAGE=NVRM: Xid (PCI:0000:0f:00): 79, ...               one line of many that together are a record (`logfields`)
    -- Boot 9f34d86891015b3ac0c862de0e6dd494 --               what follows is another boot's

Law: pure and total, whatever the bytes are. A line that begins a record by its head never goes on with another; one without a head
goes on with the record before it only where that is unfinished or the line is indented, and never across an empty line. So a
record is known when the next one begins: `is_open` says that its end has not been seen. Where nobody can see whether a word was
broken, or whether the line goes on at all, each way of joining is given, for whoever understands the text.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

from xidwatch.core import logfields, logline
from xidwatch.core.kernel import is_spoken
from xidwatch.core.logfields import Collector

MOST_LINES = 16  # of one record of text
MOST_BYTES = 1024 * 1024  # of one line
TERMINAL_WIDTH = 80
OTHER_WIDTH = 132  # of terminals, beside the multiples of ten
NARROWEST = 40


class Record(NamedTuple):
    """One record of the kernel's, or of whoever claims to be it."""

    number: int  # of its first line, from 1
    text: str  # line breaks inside it are the printer's own
    time: str | None  # as found
    usec: int | None
    kernel: bool  # assumed where nothing says otherwise
    boot: str | None  # the id, or an ordinal where the log says only that another one begins
    others: tuple[str, ...] = ()  # less likely texts: the lines joined inside words or between them, with their last line or without


@dataclass(slots=True)
class _Open:
    """A record whose end has not been seen."""

    number: int
    line: logline.Line
    indent: int
    pieces: list[str]  # each with what joins it to the one before
    first: str  # the first line as it stood there, head and all
    last: str  # the last one
    doubtful: dict[int, int] = field(default_factory=dict)  # of pieces that a word may go on in: how long the line before was
    tail: int | None = None  # of the piece that may be no part of it, and nor what follows

    def add(self, line: str, *, is_doubtful: bool) -> None:
        """A further line: the printer's own, or the rest of one that somebody has broken, between two words or inside one."""
        text, before = line.strip(), len(self.last)
        is_own = text.startswith(_OWN)
        if is_doubtful and self.tail is None:
            self.tail = len(self.pieces)
        no_blank = not is_own and " " not in (line[:1], self.last[-1:]) and not self.last.endswith((",", ";"))
        if no_blank and before != TERMINAL_WIDTH:
            self.doubtful[len(self.pieces)] = before
        self.pieces.append(f"\n{text}" if is_own else text if no_blank and before == TERMINAL_WIDTH else f" {text}")
        self.last = line

    def together(self) -> tuple[logline.Line, tuple[str, ...]]:
        """In the likeliest way, and the texts of others. A terminal breaks where its line is full, an editor where a word ends.

        So the longest lines are the full ones, if any is. Many of one length, or of a terminal's, are. Where a terminal has broken the
        first one before it had said who speaks, all of it is read anew.
        """
        if len(self.pieces) == 1:
            return self.line, ()
        if self.line.kernel is None and len(self.first) == TERMINAL_WIDTH and not is_spoken(self.line.text):
            whole = logline.read(self.first + "".join(self.pieces[1:]))
            if is_spoken(whole.text):
                return whole, ()
        likeliest, *others = map(_without_head, self._ways())
        return self.line._replace(text=likeliest), tuple(others)

    def _ways(self) -> tuple[str, ...]:
        between = "".join(self.pieces)
        alone = ("".join(self.pieces[: self.tail]),) if self.tail is not None else ()
        if not self.doubtful:
            return (*alone, between)
        full = max(self.doubtful.values())
        inside = "".join(piece[1:] if self.doubtful.get(at) == full else piece for at, piece in enumerate(self.pieces))
        is_terminal = _is_usual(full) or list(self.doubtful.values()).count(full) > 1
        return (*alone, inside, between) if is_terminal else (*alone, between, inside)


_BOOT = re.compile(r"^-- (?:Boot (?P<id>[0-9a-f]{32}|[0-9a-f-]{36})|Reboot) --$")
_COLOUR = re.compile(
    r"\x1b\[[0-9;?]{0,16}[A-Za-z]|\x1b\][^\x07\x1b]{0,200}(?:\x07|\x1b\\)|\x1b[()][A-Z0-9]|\^\[\[[0-9;]{0,16}[mK]|#033\[[0-9;]{0,16}[mK]"
)
_BOLD = re.compile(r"\*\*(\w{1,20}:?)\*\*")
_QUOTED = re.compile(r"(?:> ?)+")
_NO_BLANK = re.compile(r"NVRM:(?=\S)")
_ENTITY = re.compile(r"&(?:lt|gt|quot|amp|nbsp|#\d{1,3});")
_ENTITIES = {"&lt;": "<", "&gt;": ">", "&quot;": '"', "&amp;": "&", "&nbsp;": " ", "&#39;": "'", "&#34;": '"', "&#60;": "<", "&#62;": ">"}
# Lines that never go on with another: separators, fences, prompts.
_APART = re.compile(r"^\s*(?:[_=*~-]{4,}|`{3}|\S{0,60}[$#] |<(?!unknown>)/?\w|\*\*\* )")
# `speaker: ` or `[drm] `: a line of its own wherever it stands.
_SPEAKS = re.compile(r"^(?:\[[\w:*\s]{1,40}\]|[A-Za-z][\w./-]{0,40}(?: [\w.:/-]{1,40})?:)(?: |$)")
_UNFINISHED = re.compile(r"[,:;(\-_=#/<[]\s*$")
_GOES_ON = re.compile(r"[a-z0-9(<'\"|)=:,;\]/#]|\.\w|.{0,80}\b0x[0-9a-f]")
_CAPITALS = re.compile(r"[A-Z](?![a-z])")
# What /dev/kmsg adds to a record that is about a device: no part of what was printed.
_NAMES_DEVICE = (" SUBSYSTEM=", " DEVICE=")
# How the kernel's own further lines begin that are events by themselves.
_OWN = ("NVRM: ", "nvidia-", "[Hardware Error]", "pcieport ")


def text_of(raw: bytes) -> str:
    """Bytes as text: no colours, no marks of a web page, no NULs, no carriage return."""
    line = raw.decode("utf-8", "replace").rstrip("\r")
    if "\0" in line:
        line = line.replace("\0", "")
    if line.startswith(">"):
        line = _QUOTED.sub("", line)
    if "\x1b" in line or "#033" in line or "^[[" in line:
        line = _COLOUR.sub("", line)
    if "**" in line:
        line = _BOLD.sub(r"\1", line)
    if "NVRM:" in line and "NVRM: " not in line:  # a blank that was lost where a text was joined again
        line = _NO_BLANK.sub("NVRM: ", line)
    if "#012" in line:  # rsyslog: a record with line breaks inside, in one line
        line = line.replace("#012", "\n")
    if "\t" in line or "\xa0" in line:  # of a table, of a web page
        line = line.replace("\t", " ").replace("\xa0", " ")
    if "&" in line:
        line = _ENTITY.sub(lambda entity: _ENTITIES.get(entity[0], " "), line)
    return line


class Assembler:
    """Takes lines in order, gives records in order. Lines may be left out between records."""

    def __init__(self) -> None:
        self._open: _Open | None = None
        self._fields: Collector | None = None
        self._boot: str | None = None
        self._boots = 0
        self._width = 0  # of the longest line so far that was broken
        self._times = 0  # that one of that width was

    @property
    def is_open(self) -> bool:
        """Whether the next line may belong to what has been read."""
        return self._open is not None or self._fields is not None

    @property
    def open_since(self) -> int:
        """The number of the first line of what is open, 0 when nothing is."""
        return self._open.number if self._open else self._fields.number if self._fields else 0

    def is_again(self, number: int, before: Record | None) -> bool:
        """Whether what is open is this one line, and says what the record before it said, at the same time."""
        if self._open is None or before is None or self._open.number != number or self._open.pieces != [before.text]:
            return False
        line = self._open.line
        return (line.time, line.usec, line.kernel is not False) == (before.time, before.usec, before.kernel)

    def skip(self, lines: int) -> None:
        """So many copies of the line that is open have been passed over: it is the last of them now."""
        if self._open is not None:
            self._open.number += lines

    def drop(self) -> None:
        """Forget what is open: nothing in it matters."""
        self._open = self._fields = None

    def feed(self, number: int, raw: bytes) -> list[Record]:
        """Records that are complete now. `raw` has no line break."""
        line = text_of(raw[:MOST_BYTES])
        done: list[Record] = []
        if self._fields is not None:
            belongs = self._fields.take(raw, line)
            if not belongs or self._fields.complete:
                done = self.finish()
            if belongs:
                return done
        return done + self._line(number, line)

    def finish(self) -> list[Record]:
        """What is still open is complete."""
        done: list[Record] = []
        if self._open is not None:
            ended, self._open = self._open, None
            line, others = ended.together()
            kernel = line.kernel is not False
            texts = logline.said(line.text)
            others = others if len(texts) == 1 else ()  # which hold all of these sentences: each would be told as often as there are
            done += [Record(ended.number, text, line.time, line.usec, kernel, self._boot, others) for text in texts]
        if self._fields is not None:
            collected, self._fields = self._fields, None
            done += self._named(collected.number, collected.records())
        return done

    def _line(self, number: int, line: str) -> list[Record]:
        if usual := logline.usual(line):
            return self._begin(number, line, usual)
        if not line or line.isspace():
            return self.finish()
        if line.startswith(_NAMES_DEVICE) and self._open is not None:
            return []
        if line.startswith("-- ") and (match := _BOOT.match(line.rstrip())):
            done = self.finish()
            self._boots += 1
            self._boot = match["id"] or str(self._boots)
            return done
        if (fields := self._records(line)) is not None:
            return self.finish() + self._named(number, fields)
        if begun := Collector.begun_by(number, line):
            done = self.finish()
            self._fields = begun
            return done
        return self._text(number, line)

    def _text(self, number: int, line: str) -> list[Record]:
        read = logline.read(line)
        if read.text.startswith("{") and (fields := logfields.records(read.text, read.kernel)) is not None:
            return self.finish() + self._named(number, fields)
        indent = len(line) - len(line.lstrip())
        is_own = read.time is not None and is_spoken(read.text)  # behind half a head: a clock that somebody has shortened
        if not read.headed and not is_own and self._open is not None:
            is_full = self._is_full(len(self._open.last))
            if (goes_on := _goes_on(self._open, line, indent, is_full=is_full)) is not False:
                self._open.add(line, is_doubtful=goes_on is None)
                return []
        return self._begin(number, line, read)

    def _begin(self, number: int, line: str, read: logline.Line) -> list[Record]:
        done = self.finish()
        self._open = _Open(number, read, len(line) - len(line.lstrip()), [read.text], line, line)
        return done

    def _is_full(self, width: int) -> bool:
        """Whether a line so wide may have been broken because it was full: a terminal's width, or that of others in this log."""
        if width == self._width:
            self._times += 1
        elif width > self._width:
            self._width, self._times = width, 1
        return _is_usual(width) or (width == self._width and self._times > 1 and width >= NARROWEST)

    def _records(self, line: str) -> list[logfields.Fields] | None:
        start = line.lstrip(" \t\x1e,[").removeprefix("data: ")
        return logfields.records(line) if start.startswith("{") and len(start) > 2 else None

    def _named(self, number: int, fields: Iterable[logfields.Fields]) -> list[Record]:
        return [Record(number, each.text, each.time, each.usec, each.kernel is not False, each.boot or self._boot) for each in fields]


def begins(raw: bytes) -> bool:
    """Whether a line begins something by its looks alone, so that nothing before it needs to be read to understand it."""
    line = text_of(raw[:MOST_BYTES])
    return line.startswith(("-- ", "__CURSOR=")) or line.rstrip().endswith("{") or logline.read(line).headed or _is_object(line)


def is_field(raw: bytes) -> bool:
    """Whether a line is one of several that name the fields of one record."""
    return _FIELD_LINE.match(raw) is not None


_FIELD_LINE = re.compile(rb'\s{0,16}(?:MESSAGE(?:=|$)|"(?:MESSAGE|msg|message)"\s{0,4}:)')


def _is_object(line: str) -> bool:
    return line.lstrip(" \t\x1e,[").startswith("{")


def _without_head(text: str) -> str:
    """Of a line that was broken inside its head, the rest of that stands before the text."""
    return logline.read(text).text if text.startswith("[") else text


def _is_usual(width: int) -> bool:
    return width == OTHER_WIDTH or (width >= TERMINAL_WIDTH and width % 10 == 0)


def _makes_a_speaker(begun: str, text: str) -> bool:
    """Whether two lines begin as one of the kernel's speakers, and neither does by itself."""
    return begun != "" and is_spoken(begun + text) and not is_spoken(begun) and not is_spoken(text)


def _goes_on(before: _Open, line: str, indent: int, *, is_full: bool) -> bool | None:
    """Whether a line without a head belongs to the record before it; None: perhaps."""
    text = line.strip()
    if len(before.pieces) >= MOST_LINES or _APART.match(line):
        return False
    headed = before.line.headed
    if indent > before.indent:
        return headed or not text.startswith(_OWN)
    if text.startswith(_OWN):
        return False
    last = before.last.rstrip()
    perhaps = None if headed and before.tail is None and len(before.last) >= NARROWEST and not is_spoken(text) else False
    if headed and len(before.pieces) == 1 and _makes_a_speaker(before.pieces[0], text):
        return True
    if _SPEAKS.match(text) and not (headed and (is_full or last.endswith((":", ",")))):
        return perhaps
    if _UNFINISHED.search(last) or len(before.last) == TERMINAL_WIDTH:
        return True
    if last.endswith((".", "!")):
        return perhaps
    if is_full or _GOES_ON.match(text) or (_CAPITALS.match(text) and last[-1:].isupper()):
        return True
    return perhaps
