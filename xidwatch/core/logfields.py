r"""Records that name their fields: JSON of any make, and what journald exports.

    {"_TRANSPORT":"kernel","SYSLOG_FACILITY":"0","__REALTIME_TIMESTAMP":"1758002462123456","MESSAGE":"NVRM: Xid (...)"}
    {"MESSAGE":[78,86,82,77,58,32],"_BOOT_ID":"9f34d868..."}             a message with a byte that is no UTF-8
    {"dmesg":[{"pri":4,"time":12345.678901,"msg":"NVRM: Xid (...)"}]}    dmesg --json
    {"log":"[12345.678901] NVRM: Xid (...)\n","stream":"stdout","time":"2025-09-16T06:01:02.123Z"}      a container's log

    __CURSOR=s=...                                                       journalctl -o export; with an indent -o verbose
    __REALTIME_TIMESTAMP=1758002462123456
    _TRANSPORT=kernel
    MESSAGE=NVRM: Xid (...)

Law: pure and total. What is not JSON, or says no message, gives nothing. A field that contradicts the kernel (another transport,
facility or identifier) makes the record somebody else's; a field that is not there says nothing.
Sources: systemd.journal-fields(7), systemd.io/JOURNAL_EXPORT_FORMATS, util-linux sys-utils/dmesg.c.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace

from xidwatch.core import logline

DEEPEST = 6  # of values within values
MOST_LINES = 120  # of one record over several lines
MOST_BYTES = 1024 * 1024  # of one message that comes with its length before it
# Where a message stands, the most certain name first.
_MESSAGE = ("MESSAGE", "msg", "message", "log", "text", "line", "Message", "msgtext", "textPayload")
_TIME = ("__REALTIME_TIMESTAMP", "_SOURCE_REALTIME_TIMESTAMP", "time", "timestamp", "@timestamp", "ts", "__MONOTONIC_TIMESTAMP")
_MICROSECONDS = ("_SOURCE_MONOTONIC_TIMESTAMP", "__MONOTONIC_TIMESTAMP", "__REALTIME_TIMESTAMP", "_SOURCE_REALTIME_TIMESTAMP")
_DECODER = json.JSONDecoder(parse_float=str, parse_int=str, parse_constant=str)  # times stay as found
_BEGINNING = re.compile(r"[{\[]")


@dataclass(frozen=True, slots=True)
class Fields:
    """What one such record says."""

    text: str
    time: str | None
    usec: int | None
    kernel: bool | None
    boot: str | None


def records(line: str, kernel: bool | None = None) -> list[Fields] | None:
    """Those of one line, which may hold several objects or a list of them. None when it is no JSON.

    `kernel`: what a head before it says of who speaks; once that is somebody else, nothing inside makes it the kernel's.
    """
    found: list[Fields] = []
    at, read = 0, False
    while match := _BEGINNING.search(line, at):
        try:
            value, at = _DECODER.raw_decode(line, match.start())
        except (ValueError, RecursionError):
            break  # cut off, or something else behind it
        read = True
        found += _walk(value, DEEPEST)
    if not read:
        return None
    return [replace(each, kernel=False) for each in found] if kernel is False else found


def _walk(value: object, deep: int) -> Iterator[Fields]:
    if deep == 0:
        return
    if isinstance(value, list):
        if len(value) == 2 and isinstance(value[1], str) and isinstance(value[0], str) and value[0].isdecimal():  # Loki: [time, line]
            yield from of({"time": value[0], "line": value[1]}, "line")
            return
        for each in value:
            yield from _walk(each, deep - 1)
    elif isinstance(value, dict):
        name = next((name for name in _MESSAGE if _text(value.get(name)) is not None), None)
        if name is not None:
            yield from of(value, name)
            return
        for each in value.values():
            yield from _walk(each, deep - 1)


def of(fields: Mapping[str, object], message: str = "MESSAGE") -> Iterator[Fields]:
    """The record of one set of fields; none without a message."""
    text = _text(fields.get(message))
    if text is None:
        return
    kernel = _kernel(fields)
    time, usec = _times(fields)
    boot = _text(fields.get("_BOOT_ID"))
    if message == "MESSAGE":  # as it was printed; whatever looks like a head was put there by the speaker
        yield Fields(text.strip(), time, usec, kernel, boot)
        return
    for piece in text.splitlines():
        line = logline.read(piece)
        both = line.kernel if kernel is None else kernel and line.kernel is not False
        yield Fields(line.text, time or line.time, line.usec if line.usec is not None else usec, both, boot)


def _text(value: object) -> str | None:
    """Journald writes bytes that are no text as a list of numbers."""
    if isinstance(value, str):
        return value.encode("utf-8", "replace").decode("utf-8")  # half of a surrogate pair is none
    if isinstance(value, list) and value and all(isinstance(each, str) and each.isdecimal() and len(each) < 4 for each in value):
        return bytes(int(each) & 0xFF for each in value).decode("utf-8", "replace")
    return None


def _kernel(fields: Mapping[str, object]) -> bool | None:
    said = [
        fields[name] == kernels
        for name, kernels in (("_TRANSPORT", "kernel"), ("SYSLOG_FACILITY", "0"), ("SYSLOG_IDENTIFIER", "kernel"), ("fac", "kern"))
        if name in fields
    ]
    if isinstance(priority := fields.get("pri"), str) and priority.isdecimal():
        said.append(len(priority) < 6 and int(priority) < 8)
    return all(said) if said else None


def _times(fields: Mapping[str, object]) -> tuple[str | None, int | None]:
    time = next((text for name in _TIME if isinstance(text := fields.get(name), str)), None)
    for name in _MICROSECONDS:
        if isinstance(text := fields.get(name), str) and text.isdecimal() and len(text) < 20:
            return time, int(text)
    return time and time.strip(), logline.usec(time)


# --------------------------------------------------------------------------------------------------- over several lines

_FIELD = re.compile(r"\s{0,8}(?P<name>[A-Z_][A-Z0-9_]{0,63})=(?P<value>.*)", re.DOTALL)
_OPENS = re.compile(r"\s*(?:\[|\},?|\"dmesg\"\s*:\s*\[)?\s*\{\s*$")
_CLOSES = re.compile(r"\s*\}")
_INSIDE = re.compile(r'\s*(?:"[^"]{1,64}"\s*:|[\]\d,]|"[^"]*",?\s*$)(?!.*\{\s*$)')
_LENGTH_BYTES = 8  # little endian, before a message that holds a line break or a byte below 20


@dataclass(slots=True)
class Collector:
    """One record over several lines: `NAME=value`, or an object of JSON printed for people. Ends with an empty line or its bracket."""

    number: int  # of its first line
    is_json: bool
    complete: bool = False
    _values: dict[str, object] = field(default_factory=dict)
    _lines: list[str] = field(default_factory=list)
    _binary: bytes | None = None
    _count: int = 0

    @classmethod
    def begun_by(cls, number: int, line: str) -> Collector | None:
        """None when a line begins no such record."""
        if _OPENS.match(line.strip()):
            return cls(number, is_json=True)
        match = _FIELD.match(line)
        if match and (match["name"].startswith("_") or match["name"] in _JOURNALD):
            begun = cls(number, is_json=False)
            begun._values[match["name"]] = match["value"]
            return begun
        return None

    def take(self, raw: bytes, line: str) -> bool:
        """Whether a line belongs to it."""
        self._count += 1
        if self._binary is not None:
            self._take_binary(raw)
            return True
        if self._count > MOST_LINES:
            return False
        return self._take_json(line) if self.is_json else self._take_field(line)

    def records(self) -> list[Fields]:
        """What it says, once its end has been seen or nothing more comes."""
        if not self.is_json:
            return list(of(self._values))
        return records("{" + " ".join(self._lines).rstrip().removesuffix(",") + "}") or []

    def _take_json(self, line: str) -> bool:
        if _CLOSES.match(line):
            self.complete = True
            return not _OPENS.match(line.strip())  # `},{` ends one and begins the next
        if not _INSIDE.match(line):
            return False  # a bracket of somebody else's
        self._lines.append(line)
        return True

    def _take_field(self, line: str) -> bool:
        if line == "MESSAGE":
            self._binary = b""
            return True
        match = _FIELD.match(line)
        if not match or (match["name"] == "__CURSOR" and self._values):
            return False
        self._values[match["name"]] = match["value"]
        return True

    def _take_binary(self, raw: bytes) -> None:
        assert self._binary is not None
        self._binary += raw + b"\n"
        if len(self._binary) < _LENGTH_BYTES:
            return
        length = int.from_bytes(self._binary[:_LENGTH_BYTES], "little")
        if len(self._binary) > _LENGTH_BYTES + min(length, MOST_BYTES):
            self._values["MESSAGE"] = self._binary[_LENGTH_BYTES : _LENGTH_BYTES + length].decode("utf-8", "replace")
            self._binary = None


_JOURNALD = frozenset({"MESSAGE", "PRIORITY", "SYSLOG_FACILITY", "SYSLOG_IDENTIFIER", "SYSLOG_PID", "SYSLOG_RAW", "SYSLOG_TIMESTAMP"})
