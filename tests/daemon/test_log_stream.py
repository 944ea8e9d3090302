"""Log lines in the three ways in which people read them."""

from __future__ import annotations

import os
import sys
import threading
import time
from types import ModuleType

import pytest

from xidwatch.daemon import log_stream
from xidwatch.records.frames import LogLine

EDGE = LogLine(
    priority=2, text="ConfigSpaceAllOnes\nFALSE -> TRUE", fields={"incident": "20260917T-x", "why": 'said "no"', "tick": 3, "lease": None}
)


@pytest.fixture
def said(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, str]]:
    """What was written, by descriptor."""
    found: list[tuple[int, str]] = []

    def write(descriptor: int, data: bytes) -> int:
        found.append((descriptor, bytes(data).decode()))
        return len(data)

    monkeypatch.setattr(os, "write", write)
    return found


def run(stream: log_stream.LogStream) -> None:
    """All that waits, in this thread."""
    stream._closed = True
    stream.run()


def test_a_terminal_gets_the_text_with_the_time(said: list[tuple[int, str]], monkeypatch: pytest.MonkeyPatch) -> None:
    """One line on stdout, no fields, nothing that a terminal would obey; the time is UTC, as in the records, and says so."""
    monkeypatch.setattr(time, "time", lambda: 1789646400.0)
    stream = log_stream.LogStream("terminal")
    stream.put(EDGE)
    stream.put(LogLine(priority=6, text="\x1b]0;x\x07 80 °C"))
    run(stream)
    assert said == [(1, "12:00:00Z ConfigSpaceAllOnes FALSE -> TRUE\n"), (1, "12:00:00Z ?]0;x? 80 °C\n")]


def test_stderr_gets_a_priority_and_the_fields(said: list[tuple[int, str]]) -> None:
    """systemd takes `<2>` off; the fields follow as logfmt, quoted where they need it."""
    stream = log_stream.LogStream("plain")
    stream.put(EDGE)
    run(stream)
    assert said == [(2, '<2>ConfigSpaceAllOnes FALSE -> TRUE incident=20260917T-x why="said \\"no\\"" tick=3\n')]


def test_journald_gets_fields_of_its_own(monkeypatch: pytest.MonkeyPatch, said: list[tuple[int, str]]) -> None:
    """Through systemd-python, with names that journald accepts."""
    sent: list[tuple[str, ...]] = []
    module = ModuleType("systemd.journal")
    module.sendv = lambda *fields: sent.append(fields)  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "systemd", ModuleType("systemd"))
    monkeypatch.setitem(sys.modules, "systemd.journal", module)
    stream = log_stream.LogStream("journal")
    stream.put(LogLine(priority=2, text="edge", fields={"not-before": "x", "tick": 3}))
    run(stream)
    assert sent == [("MESSAGE=edge", "PRIORITY=2", "SYSLOG_IDENTIFIER=xidwatch", "XIDWATCH_NOT_BEFORE=x", "XIDWATCH_TICK=3")]
    assert said == []


def test_without_systemd_python_the_absence_is_said_once(monkeypatch: pytest.MonkeyPatch, said: list[tuple[int, str]]) -> None:
    """The lines go to stderr with their prefix, and one of them says why."""
    monkeypatch.setitem(sys.modules, "systemd.journal", None)
    stream = log_stream.LogStream("journal")
    stream.put(LogLine(priority=6, text="one"))
    stream.put(LogLine(priority=6, text="two"))
    run(stream)
    assert [text for _, text in said] == [
        "<6>one\n",
        "<6>two\n",
        f"<6>{log_stream.PLAIN_ONLY}\n",
    ]


def test_while_nothing_moves_the_oldest_lines_go_and_are_counted(said: list[tuple[int, str]]) -> None:
    """The bound holds, the latest lines are there, and the loss is said."""
    stream = log_stream.LogStream("plain")
    for number in range(log_stream.KEPT_LINES + 7):
        stream.put(LogLine(priority=6, text=str(number)))
    run(stream)
    assert len(said) == log_stream.KEPT_LINES + 1
    assert said[0][1] == "<4>7 log lines dropped: the log could not be written\n"
    assert said[1][1] == "<6>7\n"


def test_a_log_that_is_gone_ends_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """A closed terminal is no reason to stop taking lines."""
    tried: list[int] = []

    def gone(descriptor: int, _: bytes) -> int:
        tried.append(descriptor)
        raise BrokenPipeError

    monkeypatch.setattr(os, "write", gone)
    stream = log_stream.LogStream("plain")
    stream.put(EDGE)
    stream.put(EDGE)
    run(stream)
    assert tried == [2, 2]


def test_closing_waits_for_what_is_left(said: list[tuple[int, str]]) -> None:
    """The last words of a run are written before it ends."""
    stream = log_stream.LogStream("plain")
    stream.put(LogLine(priority=6, text="last"))
    threading.Thread(target=stream.run).start()
    stream.close(20.0)
    assert said == [(2, "<6>last\n")]
