"""Lines put together into records again."""

from __future__ import annotations

import pytest

from xidwatch.core.logtext import MOST_LINES, Assembler, Record, begins, text_of

HEAD = "[12345.678901] "
XID = "NVRM: Xid (PCI:0000:0f:00): 79, pid=4242, name=python3, GPU has"


def read(*lines: str) -> list[Record]:
    assembler = Assembler()
    found = [record for number, line in enumerate(lines, 1) for record in assembler.feed(number, line.encode())]
    return found + assembler.finish()


def texts(*lines: str) -> list[str]:
    return [record.text for record in read(*lines)]


@pytest.mark.parametrize(
    ("first", "second", "whole"),
    [
        (HEAD + XID, "fallen off the bus.", f"{XID} fallen off the bus."),
        (HEAD + XID, "      fallen off the bus.", f"{XID} fallen off the bus."),
        (XID, "fallen off the bus.", f"{XID} fallen off the bus."),
        ("NVRM: Xid (0000:01:00): 16, ", "Head 00000000 Count 00006e2e", "NVRM: Xid (0000:01:00): 16, Head 00000000 Count 00006e2e"),
        (f"{HEAD}{XID}"[:80].ljust(80, "x"), "fallen", f"{f'{HEAD}{XID}'[15:80].ljust(65, 'x')}fallen"),
        (
            HEAD + "NVRM: The NVIDIA GPU 0000:b3:00.0",
            " " * 15 + "NVRM: (PCI ID: 10de:26b5)",
            "NVRM: The NVIDIA GPU 0000:b3:00.0\nNVRM: (PCI ID: 10de:26b5)",
        ),
    ],
)
def test_a_broken_line_is_mended(first: str, second: str, whole: str) -> None:
    """Between two words, inside one at the width of a terminal, or where the kernel itself broke it."""
    assert texts(first, second) == [whole]


@pytest.mark.parametrize(
    "second",
    [
        f"{HEAD}usb 1-1: new device",
        "",
        "usb 1-1: new device",
        "[drm] Initialized",
        "____________________________________________",
        "```",
        "host1:~$ sudo dmesg",
        "NVRM: GPU at PCI:0000:0f:00: GPU-1",
        "-- Boot 9f34d86891015b3ac0c862de0e6dd494 --",
        '{"MESSAGE":"x"}',
    ],
)
def test_what_is_not_the_rest_of_a_line_is_left_out_of_it(second: str) -> None:
    """A head, an empty line, a prompt, a separator, another speaker."""
    assert texts(HEAD + XID, second, "a")[0] == XID


def test_a_sentence_that_has_ended_does_not_go_on() -> None:
    """Somebody's remark below a pasted line is not the driver's."""
    assert texts(f"{HEAD}{XID} fallen off the bus.", "this happened after an upgrade")[0] == f"{XID} fallen off the bus."


def test_a_record_has_an_end() -> None:
    """However many lines without a head there are."""
    assert max(text.count("x") for text in texts(HEAD + "NVRM: x,", *["x,"] * 100)) == MOST_LINES


def test_boots_are_told_apart() -> None:
    """By their id, or by their number where the log says only that there was another one."""
    line = HEAD + XID
    assert [record.boot for record in read(line, "-- Boot 9f34d86891015b3ac0c862de0e6dd494 --", line, "-- Reboot --", line)] == [
        None,
        "9f34d86891015b3ac0c862de0e6dd494",
        "2",
    ]


def test_a_place_is_that_of_the_first_line() -> None:
    """Empty lines and other records count."""
    assert [record.number for record in read("", HEAD + XID, "fallen off the bus.", "", HEAD + XID)] == [2, 5]


@pytest.mark.parametrize(
    ("raw", "text"),
    [
        (b"\x1b[32m[   12.000000] \x1b[0m\x1b[33mNVRM: \x1b[0mXid\x1b[m\x1b[K x\r", "[   12.000000] NVRM: Xid x"),
        (b"\0\0\0NVRM: x", "NVRM: x"),
        (b"**NVRM**: Xid &lt;unknown&gt;&#10;", "NVRM: Xid <unknown> "),
        (b"NVRM: **** GSP-CrashCat Report ****", "NVRM: **** GSP-CrashCat Report ****"),
        (b"M\xe4r", "M\ufffdr"),
    ],
)
def test_marks_of_other_programmes_are_taken_away(raw: bytes, text: str) -> None:
    """Colours, zeros, bold print, a web page's entities."""
    assert text_of(raw) == text


def test_a_line_is_known_to_begin_something() -> None:
    """So that nothing above it has to be read."""
    assert begins(f"{HEAD}{XID}".encode())
    assert begins(b'{"MESSAGE":"x"}')
    assert not begins(b"fallen off the bus.")
