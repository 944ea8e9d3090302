"""`xidwatch decode`: any kernel log in, one row for each event out."""

from __future__ import annotations

import gzip
import io
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.logs.styles import DMESG, EVENTS, RECORDS
from xidwatch.cli import decode, main
from xidwatch.cli.decode import CLASSES, KINDS, SEVERITIES, as_line, as_object
from xidwatch.core.kernel import XidClass
from xidwatch.core.logevents import CLASS_OF_KIND, Found
from xidwatch.core.model import KernelEvent, PciAddress, Severity

ROOT = Path(__file__).parents[2]
XIDWATCH = [sys.executable, "-m", "xidwatch", "decode"]
LINE = b"[12345.678901] NVRM: Xid (PCI:0000:0f:00): 79, pid=4242, name=python3, GPU has fallen off the bus.\n"
WHOLE = {
    "line": 2,
    "time": "12345.678901",
    "kind": "xid",
    "xid": 79,
    "pci": "0000:0f:00.0",
    "pid": 4242,
    "process": "python3",
    "severity": "critical",
    "text": "NVRM: Xid (PCI:0000:0f:00): 79, pid=4242, name=python3, GPU has fallen off the bus.",
}


@pytest.fixture
def log(tmp_path: Path) -> Path:
    path = tmp_path / "kern.log"
    path.write_bytes(DMESG(RECORDS))
    return path


def objects(capsys: pytest.CaptureFixture[str], *arguments: str, code: int = 0) -> list[dict[str, Any]]:
    assert main(["decode", "--json", *arguments]) == code
    return [json.loads(line) for line in capsys.readouterr().out.splitlines()]


def test_json_is_one_object_for_each_event(log: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """With the keys that every event has, null where the line says nothing."""
    log.write_bytes(b"usb 1-1: new device\n" + LINE)
    assert objects(capsys, str(log)) == [WHOLE]


def test_what_is_known_beyond_that_is_added(log: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """What is asked for, what caused it, how often it was said, by whom, in which boot."""
    log.write_bytes(
        b"-- Boot 9f34d86891015b3ac0c862de0e6dd494 --\n"
        b"[1.000001] NVRM: Xid (PCI:0000:af:00): 154, GPU recovery action changed from 0x0 (None) to 0x2 (Node Reboot Required)\n"
        b"[2.000001] NVRM: Xid (PCI:0000:dc:00): 45, pid=18, name=python3, Ch 00000001 caused by previous Xid 149\n"
        b"[3.000001] NVRM: Xid (PCI:0000:dc:00): 45, pid=18, name=python3, Ch 00000001 caused by previous Xid 149\n"
        b"12,1234,5678901,-;NVRM: Xid (PCI:0000:0f:00): 79, GPU has fallen off the bus.\n"
    )
    reboot, folded, injected = objects(capsys, str(log))
    assert reboot["recovery"] == "Node Reboot Required"
    assert reboot["boot"] == "9f34d86891015b3ac0c862de0e6dd494"
    assert (folded["caused_by"], folded["repeated"], folded["last_line"], folded["last_time"]) == (149, 2, 4, "3.000001")
    assert injected["injected"] is True
    assert "injected" not in folded


def test_the_table_is_for_people(log: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A heading, a row for each event, nothing that a terminal would obey."""
    log.write_bytes(LINE.replace(b"python3", b"py\x1b]0;x\x07"))
    assert main(["decode", str(log)]) == 0
    heading, row = capsys.readouterr().out.splitlines()
    assert heading.split() == ["LINE", "TIME", "SEVERITY", "KIND", "DEVICE", "TEXT"]
    assert row.split()[:6] == ["1", "12345.678901", "critical", "xid", "79", "0000:0f:00.0"]
    assert row.isprintable()


def test_only_what_is_asked_for(log: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """By how bad it is, by class, by kind."""
    assert len(objects(capsys, str(log))) == len(EVENTS)
    assert [each["xid"] for each in objects(capsys, str(log), "--min-severity", "critical")] == [None, 154]
    assert [each["xid"] for each in objects(capsys, str(log), "--class", "application")] == [31, 43]
    assert [each["xid"] for each in objects(capsys, str(log), "--class", "sxid", "--class", "application")] == [31, 43, 22013]


def test_the_words_are_those_of_the_core() -> None:
    """What may be asked for is what events have."""
    assert tuple(Severity) == SEVERITIES
    assert set(CLASSES) == set(XidClass)
    assert set(CLASS_OF_KIND) == set(KINDS) - {"xid"}


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b"usb 1-1: new device\nusb 1-2: new device\n", "no events in 2 lines"),
        (b"usb 1-1: new device", "no events in 1 line"),
        (b"", "no events in 0 lines"),
        (b"x\n" * 123_456, "no events in 123,456 lines"),
    ],
)
def test_people_are_told_that_nothing_was_found(data: bytes, said: str, log: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """And how much was looked through, so that an empty table is no riddle; not on standard output, and to no program."""
    log.write_bytes(data)
    assert main(["decode", str(log)]) == 0
    assert capsys.readouterr() == ("", f"xidwatch: {log}: {said}\n")
    assert main(["decode", "--json", str(log)]) == 0
    assert capsys.readouterr() == ("", "")


def test_people_are_told_what_they_did_not_ask_for(log: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A filter that leaves nothing over; a file with nothing in it between others."""
    assert main(["decode", "--class", "thermal", str(log)]) == 0
    assert capsys.readouterr() == ("", f"xidwatch: {log}: no events that you asked for, {len(EVENTS)} others in 12 lines\n")
    empty = log.with_name("empty.log")
    empty.write_bytes(b"a\n")
    assert main(["decode", str(log), str(empty)]) == 0
    out, err = capsys.readouterr()
    assert str(log) in out
    assert err == f"xidwatch: {empty}: no events in 1 line\n"


def test_several_files_are_named(log: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """In the order in which they were given; a missing one does not keep the others from being read."""
    other = log.with_name("other.log.gz")
    other.write_bytes(gzip.compress(LINE))
    found = objects(capsys, str(other), str(log.with_name("missing")), str(log), code=66)
    assert [each["file"] for each in found] == [str(other)] + [str(log)] * len(EVENTS)
    assert main(["decode", str(other), str(log)]) == 0
    assert f"\n{log}\n" in capsys.readouterr().out


def test_standard_input_is_read_where_no_file_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """And by its usual sign."""
    for arguments in ([], ["-"]):
        process = subprocess.Popen([*XIDWATCH, "--json", *arguments], cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        out, _ = process.communicate(b"\n" + LINE, timeout=60)
        assert (json.loads(out), process.returncode) == (WHOLE, 0)


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (gzip.compress(LINE + b"".join(b"usb 1-1: device number %d\n" % at for at in range(9000)))[:-500], "the gzip stream is cut off"),
        (bytes(range(256)) * 100 + b"\n" + LINE, "not text, or damaged"),
    ],
)
def test_what_cannot_be_read_is_said(data: bytes, said: str, log: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """What could be read is printed all the same."""
    log.write_bytes(data)
    assert main(["decode", "--json", str(log)]) == 1
    out, err = capsys.readouterr()
    assert json.loads(out)["xid"] == 79
    assert err.startswith(f"xidwatch: {log}: {said}")
    assert err.count("\n") == 1


def test_a_missing_file_is_66(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """As is a directory."""
    assert main(["decode", str(tmp_path / "missing")]) == 66
    assert main(["decode", str(tmp_path)]) == 66
    assert capsys.readouterr().out == ""


@pytest.mark.parametrize("arguments", [["--follow"], ["--follow", "-"], ["--follow", "a", "b"]])
def test_only_one_file_can_be_followed(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    """Wrong usage is 64."""
    assert main(["decode", *arguments]) == 64
    assert "takes one file" in capsys.readouterr().err


@pytest.fixture
def follower(log: Path) -> Iterator[subprocess.Popen[bytes]]:
    """`decode --follow` on the log, until it is interrupted."""
    process = subprocess.Popen([*XIDWATCH, "--json", "--follow", str(log)], cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    yield process
    process.terminate()
    assert process.stdout
    assert process.stderr
    process.stdout.close()
    process.stderr.close()
    process.wait(60)


@pytest.mark.slow
def test_following_prints_what_comes_and_ends_on_an_interrupt(log: Path, follower: subprocess.Popen[bytes]) -> None:
    """Each event as soon as it is over, through a rotation; an interrupt is no traceback."""
    assert follower.stdout
    assert follower.stderr
    assert [json.loads(follower.stdout.readline())["xid"] for _ in EVENTS] == [xid for _, xid, *_ in EVENTS]
    with log.open("ab") as file:
        file.write(LINE)
    added = json.loads(follower.stdout.readline())
    assert (added["xid"], added["line"]) == (79, log.read_bytes().count(b"\n"))
    log.rename(log.with_suffix(".1"))
    log.write_bytes(LINE)
    assert json.loads(follower.stdout.readline())["line"] == 1
    follower.send_signal(signal.SIGINT)
    assert (follower.stderr.read(), follower.wait(60)) == (b"", 130)


@pytest.mark.slow
def test_a_reader_who_leaves_is_no_traceback(tmp_path: Path) -> None:
    """`xidwatch decode --json FILE | head -1`."""
    path = tmp_path / "kern.log"
    path.write_bytes(b"".join(LINE.replace(b"4242", b"%d" % at) for at in range(20_000)))
    process = subprocess.Popen([*XIDWATCH, "--json", str(path)], cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert process.stdout
    assert process.stderr
    assert process.stdout.readline()
    process.stdout.close()
    assert (process.stderr.read(), process.wait(60)) == (b"", 141)
    process.stderr.close()


def on_terminal(*arguments: str, environment: dict[str, str] | None = None) -> bytes:
    """What a terminal shows, where all three streams are one."""
    terminal, inside = os.openpty()
    process = subprocess.Popen(
        [*XIDWATCH, *arguments], cwd=ROOT, stdin=inside, stdout=inside, stderr=inside, env={**os.environ, **(environment or {})}
    )
    os.close(inside)
    shown = io.BytesIO()
    try:
        while piece := os.read(terminal, 65536):
            shown.write(piece)
    except OSError:  # how the end of a terminal is told
        pass
    os.close(terminal)
    assert process.wait(60) == 0
    return shown.getvalue()


@pytest.mark.slow
def test_colour_only_on_a_terminal(log: Path) -> None:
    """And never where it is not wanted; a table there, and JSON only when asked for."""
    environment = {"TERM": "xterm-256color", "COLUMNS": "300"}
    environment |= {"NO_COLOR": ""}
    assert b"\x1b[1;31m" in on_terminal(str(log), environment=environment)
    assert b"\x1b[" not in on_terminal(str(log), environment=environment | {"NO_COLOR": "1"})
    assert b"\x1b[" not in on_terminal("--json", str(log), environment=environment)


def test_what_takes_long_shows_how_far_it_is(log: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """On a terminal only, and out of the way of what is printed."""
    monkeypatch.setattr(decode, "BAR_AFTER_SECONDS", 0.0)
    assert main(["decode", "--json", str(log)]) == 0
    assert capsys.readouterr().err == ""
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    assert main(["decode", "--json", str(log)]) == 0
    out, err = capsys.readouterr()
    assert "kern.log" in err
    assert len(out.splitlines()) == len(EVENTS)


def test_a_full_disk_is_said(log: Path) -> None:
    """What could not be written is no result."""
    with open("/dev/full", "w") as full:  # noqa: PTH123  a device
        process = subprocess.Popen([*XIDWATCH, "--json", str(log)], cwd=ROOT, stdout=full, stderr=subprocess.PIPE, text=True)
        _, err = process.communicate(timeout=60)
    assert (process.returncode, err) == (74, "xidwatch: what was found could not be written: no space left on device\n")


def test_the_daemon_does_without_all_this() -> None:
    """Neither what reads logs nor what searches them is in memory when the service runs."""
    program = "import sys, xidwatch.daemon.main, xidwatch.cli; print([m for m in sys.modules if '.log' in m or 'hyperscan' in m])"
    process = subprocess.Popen([sys.executable, "-c", program], cwd=ROOT, stdout=subprocess.PIPE, text=True)
    out, _ = process.communicate(timeout=60)
    assert [name for name in eval(out) if name.startswith(("xidwatch.logs", "xidwatch.core.log", "hyperscan"))] == []


def test_no_standard_output_is_said(log: Path) -> None:
    """Whoever closed it gets no result, and no traceback."""
    process = subprocess.run(
        ["sh", "-c", 'exec "$@" >&-', "sh", *XIDWATCH, str(log)], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert (process.returncode, process.stderr) == (74, "xidwatch: what was found could not be written: there is no standard output\n")


def test_a_site_may_change_what_an_xid_means(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """With a row in rules.d, as for the daemon and for `explain`; a wrong one is said."""
    for shipped in (ROOT / "rules").glob("*.toml"):
        (tmp_path / shipped.name).write_bytes(shipped.read_bytes())
    site = tmp_path / "rules.d" / "site.toml"
    site.parent.mkdir()
    site.write_text('[xid.31]\nseverity = "info"\n')
    kernel_log = tmp_path / "kern.log"
    kernel_log.write_text("NVRM: Xid (PCI:0000:3b:00): 31, pid=4242, name=python3, Ch 00000010\n")
    arguments = ["--rules-dir", str(tmp_path), "decode", "--json", str(kernel_log)]
    assert main(arguments) == 0
    assert json.loads(capsys.readouterr().out)["severity"] == "info"
    site.write_text('[xid.31]\nseverity = "bad"\n')
    assert main(arguments) == 78
    assert "site.toml" in capsys.readouterr().err


def test_a_wrong_condition_keeps_nobody_from_reading_a_log(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """What Xids mean is all that is needed for it."""
    for shipped in (ROOT / "rules").glob("*.toml"):
        (tmp_path / shipped.name).write_bytes(shipped.read_bytes())
    (tmp_path / "rules.d").mkdir()
    (tmp_path / "rules.d" / "site.toml").write_text('[conditions.GpuLost]\nseverity = "bad"\n')
    kernel_log = tmp_path / "kern.log"
    kernel_log.write_bytes(LINE)
    assert main(["--rules-dir", str(tmp_path), "decode", "--json", str(kernel_log)]) == 0
    assert json.loads(capsys.readouterr().out)["xid"] == 79


def test_an_event_as_a_line_is_its_object_in_json() -> None:
    """Every member, whatever stands in it: the line is put together by hand."""
    event = KernelEvent(
        7, 1, "xid", Severity.ERROR, 'a "b" \\ \x1b é \U0001f525', 45, PciAddress(0, 1, 2), 7, 'n"', "None", 31, 2, 0, 3, injected=True
    )
    for found in (
        Found(event, 7, 'Okt 06 "', "b\\", 1, 3, 9, None),
        Found(KernelEvent(1, 1, "rcu", Severity.INFO, ""), 1, None, None, None),
    ):
        assert as_line(found) == json.dumps(as_object(found))
        assert as_line(found, '"file": "x", ') == json.dumps({"file": "x", **as_object(found)})
