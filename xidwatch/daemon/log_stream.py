"""The log stream of the recorder: lines for people, written by a thread that may be stuck for as long as it likes.

    12:10:08Z port:0000:0f:00.0 ConfigSpaceAllOnes FALSE -> TRUE         terminal, on stdout
    <2>port:0000:0f:00.0 ConfigSpaceAllOnes FALSE -> TRUE incident=...   plain, on stderr: systemd reads the <N>
    PRIORITY=2 MESSAGE=... XIDWATCH_INCIDENT=...                         journal, through systemd-python

(sd-daemon(3) for the prefix, systemd.journal-fields(7) for the fields.) A line of priority 2 or lower makes journald
write everything to the disk at once, kernel lines included (journald.conf(5), SyncIntervalSec).
"""

from __future__ import annotations

import importlib
import json
import os
import re
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping

from xidwatch.records.frames import LogLine

KEPT_LINES = 1000
STDOUT, STDERR = 1, 2
WARNING = 4
PLAIN_ONLY = (
    "systemd-python is not installed, so fields of log lines go to journald as text; "
    "`make install` adds it where it finds gcc, pkg-config, libsystemd-dev and python3-dev"
)
_PLAIN = re.compile(r"^[!-~]+$")

Writer = Callable[[LogLine, float], None]


class LogStream:
    """A bounded queue of lines and the loop that writes them; while nothing moves the oldest lines are dropped, and counted."""

    def __init__(self, mode: str) -> None:
        self._mode = mode
        self._changed = threading.Condition()
        self._waiting: deque[tuple[LogLine, float]] = deque()
        self._dropped = 0
        self._closed = False
        self._done = threading.Event()

    def put(self, line: LogLine) -> None:
        """Never waits."""
        with self._changed:
            if len(self._waiting) >= KEPT_LINES:
                self._waiting.popleft()
                self._dropped += 1
            self._waiting.append((line, time.time()))
            self._changed.notify_all()

    def run(self) -> None:
        """The thread: write until closed and empty."""
        write = self._writer()
        while taken := self._take():
            try:
                write(*taken)
            except (OSError, ValueError):  # nobody is there to read it; records are kept elsewhere
                pass
        self._done.set()

    def close(self, seconds: float) -> None:
        """No more lines; wait so long for those that are left."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
        self._done.wait(seconds)

    def _take(self) -> tuple[LogLine, float] | None:
        with self._changed:
            self._changed.wait_for(lambda: self._waiting or self._closed)
            if self._dropped:
                dropped, self._dropped = self._dropped, 0
                return LogLine(priority=WARNING, text=f"{dropped} log lines dropped: the log could not be written"), time.time()
            return self._waiting.popleft() if self._waiting else None

    def _writer(self) -> Writer:
        if self._mode == "terminal":
            return terminal
        if self._mode == "journal":
            send = _journal_send()
            if send:
                return lambda line, _: send(*journal_fields(line))
            self.put(LogLine(priority=6, text=PLAIN_ONLY))
        return plain


def terminal(line: LogLine, wall: float) -> None:
    """The text as it is, with the time, UTC as in all records."""
    _write(STDOUT, f"{time.strftime('%H:%M:%SZ', time.gmtime(wall))} {printable(line.text)}\n")


def plain(line: LogLine, _: float) -> None:
    """`<N>text key=value`; whoever collects stderr adds the time."""
    _write(STDERR, f"<{min(7, max(0, line.priority))}>{printable(line.text)}{logfmt(line.fields)}\n")


def logfmt(fields: Mapping[str, object]) -> str:
    """` key=value` for every field, quoted as JSON strings where needed."""
    return "".join(f" {key}={_logfmt_value(value)}" for key, value in fields.items() if value is not None)


def _logfmt_value(value: object) -> str:
    text = value if isinstance(value, str) else json.dumps(value)
    return text if _PLAIN.match(text) and '"' not in text and "=" not in text else json.dumps(text)


def journal_fields(line: LogLine) -> list[str]:
    """`NAME=value` of all: ours upper case with our prefix; journald takes only A-Z, 0-9 and the underscore in a name."""
    named = {re.sub(r"[^A-Z0-9_]", "_", key.upper()): value for key, value in line.fields.items() if value is not None}
    return [
        f"MESSAGE={printable(line.text)}",
        f"PRIORITY={line.priority}",
        "SYSLOG_IDENTIFIER=xidwatch",
        *(f"XIDWATCH_{key}={value if isinstance(value, str) else json.dumps(value)}" for key, value in named.items()),
    ]


def printable(text: str) -> str:
    """One line without control characters: kernel text can hold what a terminal would obey."""
    return "".join(char if char.isprintable() else " " if char in "\t\r\n" else "?" for char in text)


def _write(descriptor: int, text: str) -> None:
    data = memoryview(text.encode("utf-8", "replace"))
    while data:
        data = data[os.write(descriptor, data) :]


def _journal_send() -> Callable[..., None] | None:
    # sendv, not send: that looks the caller up in its source file at every line, and the disk may be what hangs
    try:
        send: Callable[..., None] = importlib.import_module("systemd.journal").sendv
    except (ImportError, AttributeError):
        return None
    return send
