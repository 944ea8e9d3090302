r"""One line of a log file, peeled: what was printed, who printed it, when.

    Sep 16 08:01:02 host1 kernel: [12345.678901] NVRM: Xid (PCI:0000:0f:00): 79, GPU has fallen off the bus.
    -> Line(text="NVRM: Xid (PCI:0000:0f:00): 79, GPU has fallen off the bus.", time="Sep 16 08:01:02", kernel=True)

Every programme that carries a kernel line puts a head of its own before it, and one line may wear several: a container's runtime
puts one before what `dmesg` has put one before. So there is one pattern for each head, and they are taken off one after the other
until none fits. Their order decides nothing but speed.

Law: pure and total. Any text gives a Line. Who speaks is believed of the outermost head that says it, and of none that a speaker
could have put there himself: behind a head that names somebody else nothing becomes the kernel's again.
Sources: util-linux sys-utils/dmesg.c, systemd src/shared/logs-show.c, RFC 3164, RFC 5424, Documentation/ABI/testing/dev-kmsg,
kubernetes' CRI logging format.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from itertools import islice
from typing import NamedTuple

from xidwatch.core.kernel import is_spoken

MOST_HEADS = 8  # on one line; what has more is no log
MOST_SENTENCES = 16  # likewise; each is compared with each
_TEXT = ("NVRM: ", "nvidia-nvswitch", "pcieport ", "nvme nvme", "mce: ", "EDAC ", "watchdog: ")  # where no head is looked for any more
_LONGEST_HEAD = 512  # characters; a pattern never has to look further


class Line(NamedTuple):
    """What a line says. `headed`: something before the text was a log's, so that it begins a record of its own."""

    text: str
    time: str | None  # as found, of the outermost head that has one; a wall clock before an uptime
    kernel: bool | None  # None: no head says who speaks
    usec: int | None  # the same time as a number that orders and measures within a log
    headed: bool


@dataclass(slots=True)
class _Peeled:
    """While heads are taken off."""

    rest: str
    time: str | None = None
    uptime: str | None = None
    kernel: bool | None = None
    stamped: bool = False  # a host and a speaker may follow
    named: bool = False  # the speaker has been named: what follows is his own, but for an uptime that syslog leaves in it
    headed: bool = False


_Take = Callable[[_Peeled, re.Match[str]], None]


@dataclass(frozen=True, slots=True)
class _Head:
    pattern: re.Pattern[str]
    take: _Take


def usual(line: str) -> Line | None:
    """The line, if it is one of nine in ten: the commonest heads, and behind them what can be nothing but the text."""
    match = _USUAL.match(line)
    if match is None or not line.startswith(_TEXT, match.end()):
        return None
    time, with_host, alone = match.groups()
    uptime = with_host or alone
    since = int(uptime[:-7] + uptime[-6:]) if uptime else usec(time)
    return Line(line[match.end() :].strip(), time or uptime, True if time else None, since, True)


def read(line: str) -> Line:
    """Take every head off. The line has no line break, and no colours."""
    return _read(line, searches=True)


def _read(line: str, *, searches: bool) -> Line:
    """`searches`: also for a head further in, once."""
    if as_usual := usual(line):
        return as_usual
    peeled = _Peeled(line)
    for _ in range(MOST_HEADS):
        if not _peel(peeled):
            break
    text = peeled.rest.strip()
    if peeled.kernel is None and not peeled.headed and (found := _ELSEWHERE.search(text)):
        peeled.time = peeled.time or found["time"]
        text = text[found.start("text") :]
    elif searches and peeled.kernel is None and (inside := _inside(text, headed=peeled.headed)):
        return inside._replace(time=peeled.time or inside.time)
    if text.endswith(("`", "**")) and line.lstrip(" >")[:1] in ("`", "*"):
        text = text.rstrip("`*")
    time = (peeled.time or peeled.uptime or "").strip() or None  # an uptime is padded
    return Line(text, time, peeled.kernel, usec(peeled.uptime or time), peeled.headed)


def _peel(peeled: _Peeled) -> bool:
    start = peeled.rest[:_LONGEST_HEAD].lstrip()
    if not start or start.startswith(_TEXT) or (peeled.named and start[0] != "["):
        return False
    for head in _BY_SIGN.get(start[0]) or (_OF_DIGITS if start[0].isdigit() else _OF_WORDS):
        if match := head.pattern.match(start):
            peeled.rest = peeled.rest.lstrip()
            head.take(peeled, match)
            peeled.rest = peeled.rest[match.end() :]
            return True
    return peeled.stamped and _speaker(peeled)


# ------------------------------------------------------------------------------------------------------------------ times

_CLOCK = r"\d\d:\d\d(?::\d\d(?:[.,]\d{1,9})?)?"
_ISO = r"\d{4}[-/]\d\d[-/]\d\d[T ]\d\d:\d\d:\d\d(?:[.,]\d{1,9})?(?:Z| ?[+-]\d\d:?\d\d(?![\d:]))?"
_NUMBER = re.compile(r"\s*(?P<seconds>\d{1,12})(?:\.(?P<part>\d{1,9}))?\s*$")
_DAY_TIME = re.compile(
    r"(?:(?P<date>\d{4}[-/](?P<month>\d\d)[-/](?P<day>\d\d))|(?<!\d)(?P<only_day>\d{1,2}))?[.T ]*"
    r"(?P<hour>\d\d):(?P<minute>\d\d)(?::(?P<second>\d\d)(?:[.,](?P<part>\d{1,9}))?)?"
)
_MONTH_DAYS, _DAY_SECONDS = 31, 86_400


def usec(time: str | None) -> int | None:
    """Microseconds since a beginning of the log's own: uptime, epoch, or the day of the month. None for what is no time.

    Good for differences within a month. The name of the month is in the language of whoever printed it, so it is not read.
    """
    if time is None:
        return None
    if match := _NUMBER.match(time):
        return int(match["seconds"]) * 1_000_000 + _part(match["part"])
    if not (match := _DAY_TIME.search(time)):
        return None
    days = int(match["day"] or match["only_day"] or 0) + int(match["month"] or 0) * _MONTH_DAYS
    seconds = int(match["hour"]) * 3600 + int(match["minute"]) * 60 + int(match["second"] or 0)
    return (days * _DAY_SECONDS + seconds) * 1_000_000 + _part(match["part"])


def _part(digits: str | None) -> int:
    return int((digits or "0")[:6].ljust(6, "0"))


# ------------------------------------------------------------------------------------------------------------------ heads


def _stamp(peeled: _Peeled, match: re.Match[str]) -> None:
    peeled.time = peeled.time or match["time"].strip()
    peeled.stamped = peeled.headed = True


def _bracket(peeled: _Peeled, match: re.Match[str]) -> None:
    time = match["time"].partition("<")[0].strip()
    if _NUMBER.match(time):
        peeled.uptime = peeled.uptime or time
    elif time.strip(".+"):
        peeled.time = peeled.time or time
    peeled.stamped = peeled.headed = True


def _priority(peeled: _Peeled, match: re.Match[str]) -> None:
    """Facility and level in one number, as syslog and the kernel have it."""
    _says(peeled, int(match["priority"]) < 8)
    peeled.headed = True


def _kmsg(peeled: _Peeled, match: re.Match[str]) -> None:
    _priority(peeled, match)
    peeled.named = True
    whole, part = divmod(int(match["usec"]), 1_000_000)
    peeled.uptime = peeled.uptime or f"{whole}.{part:06d}"
    rest = peeled.rest[match.end() :]
    if "\\x" in rest:
        peeled.rest = peeled.rest[: match.end()] + unescape(rest)


def _facility(peeled: _Peeled, match: re.Match[str]) -> None:
    _says(peeled, match["facility"] == "kern")
    peeled.headed = True


def _named(peeled: _Peeled, _match: re.Match[str]) -> None:
    _says(peeled, kernel=True)
    peeled.headed = peeled.named = True


def _rfc5424(peeled: _Peeled, match: re.Match[str]) -> None:
    _priority(peeled, match)
    peeled.time = peeled.time or (match["time"] if match["time"] != "-" else None)
    _says(peeled, match["speaker"] in ("kernel", "-"))
    peeled.named = True


def _wrapper(peeled: _Peeled, match: re.Match[str]) -> None:
    """Of a container or a programme that hands on what it read; who wrote it stands behind, if anywhere."""
    peeled.time = peeled.time or match["time"]


def _quote(_peeled: _Peeled, _match: re.Match[str]) -> None:
    """Of a paste: says nothing."""


def _says(peeled: _Peeled, kernel: bool) -> None:
    """Who speaks. Once somebody else has been named, the kernel is not."""
    peeled.kernel = kernel if peeled.kernel is None else peeled.kernel and kernel


_FACILITIES = "kern|user|mail|daemon|auth|syslog|lpr|news|uucp|cron|authpriv|ftp|local[0-7]"
_LEVELS = "emerg|alert|crit|err|warn|notice|info|debug"


def _head(pattern: str, take: _Take) -> _Head:
    return _Head(re.compile(pattern), take)


# [12345.678901] ...                          dmesg, also before a host: journalctl -o short-monotonic
# [Tue Sep 16 08:01:02 2025] ...              dmesg -T, in any language
# [  +0.000894] ...  [Feb22 04:01] ...        dmesg -d and --time-format=reltime
# [12345.678901 <    0.000023>] ...           dmesg --show-delta, journalctl -o short-delta; without a time --time-format=delta
# [12345.678901][  T123] ...                  with the caller's number
# [02:14:33] ...  [...] ...                   by hand
_BRACKET = _head(
    rf"\[(?P<time>(?=<)|\s*\+?\d{{1,12}}\.\d{{1,9}}|\.{{3}}|{_ISO}|(?:[^\s\[\]:]{{1,16}} +){{0,4}}{_CLOCK}(?: \d{{4}}| [A-Z]{{2,5}})?)"
    r"\s*(?:<[^>]{0,24}>\s*)?\]:?(?:\s*\[\s*[TC]\d{1,10}\])? ?",
    _bracket,
)
# 4,1234,5678901,-,caller=T1946;...           /dev/kmsg
_KMSG = _head(r"(?P<priority>\d{1,4}),\d{1,20},(?P<usec>\d{1,18}),[^,;\s]{0,8}(?:,[^;]{0,80})?;", _kmsg)
# <4>1 2025-09-16T08:01:02Z host1 kernel 0 - [timeQuality tzKnown="1"] ...    RFC 5424
_RFC5424 = _head(
    r"<(?P<priority>\d{1,3})>\d{1,2} (?P<time>\S{1,40}) \S{1,255} (?P<speaker>\S{1,48}) \S{1,128} \S{1,32} "
    r'(?:-|(?:\[[^\s\]]{1,32}(?: [^\s=]{1,32}="(?:[^"\\]|\\.)*")*\])+)(?: \ufeff?|$)',
    _rfc5424,
)
# <3>[12345.678901] ...  <4>Sep 16 ...        dmesg -r, RFC 3164 on the wire
_PRIORITY = _head(r"<(?P<priority>\d{1,3})>", _priority)
# kern  :err   : ...                          dmesg -x
_FACILITY = _head(rf"(?P<facility>{_FACILITIES}) *:(?:{_LEVELS}) *: ?", _facility)
# 192.0.2.10: kern: warning: [2026-04-22T21:27:51.291660856Z]: ...             a minimal system's dmesg over the network
_REMOTE = _head(rf"(?:[^\s:]{{1,64}}: )(?P<facility>{_FACILITIES}): +[a-z]{{3,9}}: ", _facility)
# 2025-09-16T06:01:02.123456789Z stdout F ...                                  a container's log (CRI)
_CRI = _head(rf"(?P<time>{_ISO}) std(?:out|err) [FP] ", _wrapper)
# 2025-09-16T08:01:02.123456+02:00 host1 kernel: ...   journalctl -o short-iso(-precise), rsyslog, dmesg --time-format=iso
# Tue 2025-09-16 08:01:02 CEST host1 kernel: ...       journalctl -o short-full, with-unit
_ISO_STAMP = _head(
    rf"(?P<time>(?:[^\W\d_]{{1,12}}\.?,? )?{_ISO}(?<=\d)(?: (?!EDAC |NMI |MCE )[A-Z]{{2,5}}(?= )| ?[+-]\d\d)?|{_ISO}):? +", _stamp
)
# I0916 06:01:02.123456       1 xid.go:42] ...                                 klog
_KLOG = _head(r"[IWEF]\d{4} (?P<time>\d\d:\d\d:\d\d\.\d{1,9}) +\d{1,10} [^\s\]]{1,80}\] ", _wrapper)
# Sep 16 08:01:02.123456 host1 kernel: ...  Okt 06 ...  4月 20 ...  jan. 29 ...  RFC 3164, journalctl -o short(-precise)
_SYSLOG = _head(r"(?P<time>(?:[^\s\[\]<>:(){}\"',*`]{1,16} +){1,3}\d\d:\d\d:\d\d(?:[.,]\d{1,9})?(?: \d{4}(?= ))?)(?:,|:)? +", _stamp)
# 19:14:02  ...                               by hand
_CLOCK_ONLY = _head(r"(?P<time>\d\d:\d\d:\d\d(?:[.,]\d{1,9})?) +", _stamp)
# 1758002462.123456 host1 kernel: ...         journalctl -o short-unix
_UNIX = _head(r"(?P<time>\d{9,11}\.\d{3,9}) +(?=\S+ \S+: )", _stamp)
# host1 kernel: ...  kernel: ...              a time cut off by hand;  kernel:[12345.678901] ...  a message to all terminals
_NAMED = _head(r"(?:[^\s:\[\]]{1,255} )?kernel(?:\[[0-9]{1,9}\])?:(?: |(?=\[|[A-Z]|watchdog))", _named)
# > ...  `...  **...                          quoted in an issue
_QUOTED = _head(r"(?:> ?|`{1,3}|\*\*(?=\S))+", _quote)
# {job="journal", host="host1"} ...           Loki's labels
_LABELS = _head(r'\{\w{1,64}="[^{}]{0,400}\} +', _quote)
# kern.log:1234:...  1234:[...                grep
_GREP = _head(
    r"(?:[\w./-]{1,200}\.(?:log|txt|\d{1,3})(?:\.\d{1,3}|\.gz)?[:-])?(?:\d{1,9}[:-])?(?<=[:-])(?=\[|<\d|\d{4}-\d\d|[^\W\d]{3})", _quote
)

# Nine lines of ten: the same heads at once, before what can be nothing but the text.
_USUAL = re.compile(
    r"(?:(?P<time>[A-Z][a-z]{2} [ \d]\d \d\d:\d\d:\d\d(?:\.\d{6})?|\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d{1,9})?(?:Z|[+-]\d\d:?\d\d))"
    r" [^\s:\[\]]{1,255} kernel: (?:\[ *(?P<uptime>\d{1,12}\.\d{6})\] )?|\[ *(?P<alone>\d{1,12}\.\d{6})\] )"
)

# By the sign a line begins with; of several that fit, the first.
_BY_SIGN = {"[": (_BRACKET,), "<": (_RFC5424, _PRIORITY), ">": (_QUOTED,), "`": (_QUOTED,), "*": (_QUOTED,), "{": (_LABELS,)}
_OF_DIGITS = (_KMSG, _CRI, _ISO_STAMP, _CLOCK_ONLY, _SYSLOG, _UNIX, _REMOTE, _NAMED, _GREP)
_OF_WORDS = (_FACILITY, _KLOG, _ISO_STAMP, _SYSLOG, _REMOTE, _NAMED, _GREP)

# Two words of the kernel's own that look like a host and its speaker when somebody has cut both off.
_OWN_WORDS = frozenset({"nvme", "EDAC", "NMI", "usb", "pci", "ata", "INFO", "BUG"})
_SPEAKER = re.compile(
    r"(?:(?P<host>[^\s:\[\]]{1,255}) )?(?P<speaker>[^\s:\[\]]{1,64})(?P<pid>\[[^\]\s]{1,16}\])?(?::(?: +|$)|(?<=\]) )"
    # only the kernel: a network address for a host, the facility beside it, a message to all terminals without a blank, a table
    r"|(?:[^\s\[\]]{1,255} )?(?:<?kern\.[a-z]{3,9}>? (?:[^\s\[\]]{1,255} )?)?(?P<kernel>kernel)(?:\[[0-9]{1,9}\])?(?: ?:(?: +|(?=\[)|$)| +)"
)


def _speaker(peeled: _Peeled) -> bool:
    """`host1 kernel: `, `kernel: `, `host1 python3[4242]: ` behind a time; not what only looks like it."""
    peeled.stamped = False
    peeled.rest = peeled.rest.lstrip()
    match = _SPEAKER.match(peeled.rest[:_LONGEST_HEAD])
    if not match or match["host"] in _OWN_WORDS or (match["host"] and is_spoken(peeled.rest)):
        return False
    kernel = match["kernel"] is not None or match["speaker"] == "kernel"
    if not kernel and not match["pid"] and (match["host"] is None or peeled.uptime is not None):
        return False  # behind an uptime `usb 1-1: ` is more likely than a programme without a number
    if not kernel and match["host"] is None and peeled.uptime is not None:
        return False  # `systemd[1]: ` in a dmesg: the text's own beginning
    _says(peeled, kernel)
    peeled.named = True
    peeled.rest = peeled.rest[match.end() :]
    return True


# ----------------------------------------------------------------------------------------------------- what no head explains

# The driver's own words in the middle of somebody's: only so much of them that neither a person's sentence nor a pattern in a
# programme's source will do. With a time in brackets right before it, that is its time.
DRIVER_WORDS = (
    r"NVRM: (?:Xid \((?:PCI:)?[0-9A-Fa-f]{4,8}:[0-9A-Fa-f]{2}[^)]{0,40}\): \d|GPU (?:at )?(?:PCI:)?[0-9A-Fa-f]{4,8}:[0-9A-Fa-f]{2}:)"
    r"|nvidia-nvswitch\d{1,3}: SXid \((?:PCI:)?[0-9A-Fa-f]{4,8}:"
)
_ELSEWHERE = re.compile(rf"(?:\[(?P<time>[^\[\]]{{3,40}})\]:? )?(?P<text>{DRIVER_WORDS})")
_DRIVER = re.compile(DRIVER_WORDS)


def said(text: str) -> list[str]:
    """The driver's sentences in a line that holds several; the same one said twice, as by a tool that quotes its input, once.

    What two sayings of one sentence have in common is the sentence: what follows is the tool's.
    """
    if text.find("NVRM: ", 1) < 0 and text.find("nvidia-nvswitch", 1) < 0:
        return [text]
    starts = [match.start() for match in islice(_DRIVER.finditer(text), MOST_SENTENCES)]
    if len(starts) < 2 or starts[0] != 0:
        return [text]
    pieces = [text[start:end] for start, end in zip(starts, [*starts[1:], None], strict=True)]
    told: list[str] = []
    for piece in pieces:
        common = max((_common(piece, other) for other in pieces if other is not piece), key=len)
        sentence = common.rstrip() if _says_all(common) else piece.rstrip()
        if sentence not in told:
            told.append(sentence)
    return told


def _common(one: str, other: str) -> str:
    length = next((at for at, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), min(len(one), len(other)))
    return one[:length]


def _says_all(common: str) -> bool:
    """Whether it goes beyond the address and the number, which two different events share."""
    _, _, body = common.partition("): ")
    return len(body) > 8


# A head of the kernel's own further in, behind what no pattern here knows: `host1: `, `gpu_1  | `, `- `, `"`, `root@host1:~# `.
_INSIDE = re.compile(r"\[ {0,11}[0-9]{1,12}\.[0-9]{6}\] |(?<!\S)kernel ?: |<[0-9]{1,3}>1 [0-9]{4}-|,\"?(?P<column>kernel)\"?,\"?")
_PROGRAMME = re.compile(r"[\w.-]{1,64}\[[0-9]{1,10}\]:")


def _inside(text: str, *, headed: bool) -> Line | None:
    """What the kernel says behind something else; None where that names a speaker of its own, as far as it can be told."""
    match = _INSIDE.search(text, 1, _LONGEST_HEAD)
    if match is None or (headed and ":" in text[: match.start()]):
        return None
    start = match.end() if match["column"] else match.start()
    line = _read(text[start:], searches=False)
    if match["column"]:
        line = line._replace(kernel=line.kernel is not False)
    return line._replace(kernel=False) if _PROGRAMME.search(text, 0, match.start()) else line


_ESCAPE = re.compile(r"(?:\\x[0-9a-fA-F]{2})+")


def unescape(text: str) -> str:
    r"""`\x0a` and its like, as /dev/kmsg prints bytes; several of them may be one character of UTF-8."""
    return _ESCAPE.sub(lambda run: bytes.fromhex(run[0].replace("\\x", "")).decode("utf-8", "replace"), text)
