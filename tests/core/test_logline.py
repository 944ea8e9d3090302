"""One line: its heads taken off, its time and its speaker found."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from xidwatch.core.logline import MOST_SENTENCES, read, said, unescape, usec

XID = "NVRM: Xid (PCI:0000:0f:00): 79, pid=4242, name=python3, GPU has fallen off the bus."

# What stands before the text, the time in it, and whether the kernel speaks (None: nobody is named).
HEADS = (
    ("", None, None),
    ("[12345.678901] ", "12345.678901", None),
    ("[    5.678901] ", "5.678901", None),
    ("[ 12.3] ", "12.3", None),
    ("[12345.678901] [   T123] ", "12345.678901", None),
    ("[12345.678901 <    0.000023>] ", "12345.678901", None),
    ("[  +0.000894] ", "+0.000894", None),
    ("[Tue Sep 16 08:01:02 2025] ", "Tue Sep 16 08:01:02 2025", None),
    ("[Di Sep 16 08:01:02 2025] ", "Di Sep 16 08:01:02 2025", None),
    ("[Feb22 04:01] ", "Feb22 04:01", None),
    ("[02:14:33] ", "02:14:33", None),
    ("[...] ", None, None),
    ("kern  :warn  : [12345.678901] ", "12345.678901", True),
    ("user  :notice: [12345.678901] ", "12345.678901", False),
    ("<4>[12345.678901] ", "12345.678901", True),
    ("<12>[12345.678901] ", "12345.678901", False),
    ("4,1234,5678901,-;", "5.678901", True),
    ("12,1234,5678901,-,caller=T1;", "5.678901", False),
    ("Sep 16 08:01:02 host1 kernel: ", "Sep 16 08:01:02", True),
    ("Sep 16 08:01:02 host1 kernel: [12345.678901] ", "Sep 16 08:01:02", True),
    ("Sep 16 08:01:02 kernel: [    0.064265] ", "Sep 16 08:01:02", True),
    ("Sep 16 08:01:02 host1 kernel[0]: ", "Sep 16 08:01:02", True),
    ("Sep 16 08:01:02 ", "Sep 16 08:01:02", None),
    ("Sep 16 08:01:02 host1 python3[4242]: ", "Sep 16 08:01:02", False),
    ("Sep 16 08:01:02 host1 python3: ", "Sep 16 08:01:02", False),
    ("Sep 16 08:01:02 host1 python3[4242]: [12345.678901] ", "Sep 16 08:01:02", False),
    ("sept. 16 08:01:02 host1 kernel: ", "sept. 16 08:01:02", True),
    ("16. syys 08:01:02 host1 kernel: ", "16. syys 08:01:02", True),
    ("Thg 9 16 08:01:02 host1 kernel: ", "Thg 9 16 08:01:02", True),
    ("2025-09-16T08:01:02+0200 host1 kernel: ", "2025-09-16T08:01:02+0200", True),
    ("2025-09-16T08:01:02,123456+02:00 ", "2025-09-16T08:01:02,123456+02:00", None),
    ("Tue 2025-09-16 08:01:02 CEST host1 kernel: ", "Tue 2025-09-16 08:01:02 CEST", True),
    ("Tue 2025-09-16 08:01:02 CEST host1 init.scope/systemd[1]: ", "Tue 2025-09-16 08:01:02 CEST", False),
    ("[12345.678901] host1 kernel: ", "12345.678901", True),
    ("[12345.678901] host1 sshd[17]: ", "12345.678901", False),
    ("1758002462.123456 host1 kernel: ", "1758002462.123456", True),
    ("<4>1 2025-09-16T08:01:02Z host1 kernel - - - [12345.678901] ", "2025-09-16T08:01:02Z", True),
    ('<4>1 2025-09-16T08:01:02Z host1 kernel 0 - [timeQuality tzKnown="1"] ', "2025-09-16T08:01:02Z", True),
    ("<12>1 2025-09-16T08:01:02Z host1 python3 17 - - ", "2025-09-16T08:01:02Z", False),
    ("2025-09-16T06:01:02.123456789Z stdout F [12345.678901] ", "2025-09-16T06:01:02.123456789Z", None),
    ("I0916 06:01:02.123456       1 xid.go:42] kmsg: ", "06:01:02.123456", None),
    ("192.0.2.10: kern: warning: [2026-04-22T21:27:51.291660856Z]: ", "2026-04-22T21:27:51.291660856Z", True),
    ("> Sep 16 08:01:02 host1 kernel: ", "Sep 16 08:01:02", True),
    ("/var/log/kern.log.1:1234:Sep 16 08:01:02 host1 kernel: ", "Sep 16 08:01:02", True),
    ("host1 kernel: ", None, True),
    ("[gpu-health] [CRITICAL] GPU-1234: XID: ", None, None),
)


@pytest.mark.parametrize(("head", "time", "kernel"), HEADS, ids=[head.strip() for head, _, _ in HEADS])
def test_a_head_is_taken_off(head: str, time: str | None, kernel: bool | None) -> None:
    """What remains is the text, whatever came before it; the time is as it was found."""
    line = read(head + XID)
    assert (line.text, line.time, line.kernel) == (XID, time, kernel)


@pytest.mark.parametrize(
    "text",
    [
        "usb 1-1: new high-speed USB device number 2",
        "nvme nvme0: I/O tag 22 (2016) opcode 0x2 (Admin Cmd) QID 0 timeout, reset controller",
        "pcieport 0000:00:03.1: AER: Correctable error message received from 0000:00:00.0",
        "[drm:amdgpu_job_timedout [amdgpu]] *ERROR* ring gfx_0.0.0 timeout",
        "mce: [Hardware Error]: CPU 0: Machine Check: 0 Bank 4: a600000000020408",
        "{1}[Hardware Error]: event severity: recoverable",
        "evil kernel: NVRM: Xid (PCI:0000:0f:00): 79, GPU has fallen off the bus.",
        "<4>NVRM: Xid (PCI:0000:0f:00): 79, GPU has fallen off the bus.",
    ],
)
def test_the_text_keeps_what_only_looks_like_a_head(text: str) -> None:
    """Behind the kernel's name everything is what it said, but for the uptime that syslog leaves in."""
    assert read(f"Sep 16 08:01:02 host1 kernel: [12345.678901] {text}").text == text
    assert read(f"4,1234,5678901,-;{text}").text == text


def test_the_driver_in_the_middle_of_a_sentence_is_found_only_by_its_own_form() -> None:
    """A person's words, and a pattern in a programme's source, are not the driver's."""
    assert read("we saw NVRM: Xid (PCI:0000:0f:00): 79, GPU has fallen off the bus.").text.startswith("NVRM: Xid")
    assert read('Regex::new(r"NVRM: Xid\\s*(?:\\(([^)]*)\\))?").unwrap()').text.startswith("Regex")
    assert read("[12.000001] a name NVRM: Xid (PCI:0000:0f:00): 79, GPU").text.startswith("a name")
    assert read("item=[Sun Aug 25 20:10:45 2024] NVRM: Xid (PCI:0000:2a:00): 140, x").time == "Sun Aug 25 20:10:45 2024"


def test_a_sentence_said_twice_in_a_line_counts_once() -> None:
    """What both sayings have in common is the sentence; two different ones are two."""
    one, other = (
        "NVRM: Xid (PCI:0000:2a:00): 140, An uncorrectable ECC error",
        "NVRM: Xid (PCI:0000:2b:00): 79, GPU has fallen off the bus.",
    )
    assert said(f'{one}) => {{"item": "[Sun Aug 25] {one}", "msg": "x"}}') == [one]
    assert said(f"{one}; {other}") == [f"{one};", other]
    assert said(one) == [one]


@pytest.mark.parametrize("head", ["[ 1.000000] ", "kernel: ", "kernel ", ",kernel,", "<3>1 2025-", "x[1]: "])
def test_a_line_of_nothing_but_heads_is_a_line(head: str) -> None:
    """However many there are: no more than so many are taken off."""
    assert read(f"NVRM {head * 8000}").text


def test_a_line_of_nothing_but_sentences_is_soon_read() -> None:
    """Each is compared with each, so that only so many are: 64 KiB of them took a minute."""
    assert len(said("NVRM: Xid (PCI:0000:01:00): 7" * 2000)) <= MOST_SENTENCES


@pytest.mark.parametrize(
    ("earlier", "later", "apart_usec"),
    [
        ("12345.678901", "12345.678902", 1),
        ("Sep 16 23:59:59", "Sep 17 00:00:00", 1_000_000),
        ("Okt 06 17:59:27.5", "Okt 06 17:59:27.6", 100_000),
        ("2025-09-16T08:01:02,123456+02:00", "2025-09-16T08:01:03,123456+02:00", 1_000_000),
        ("Tue Sep 16 08:01:02 2025", "Tue Sep 16 08:02:02 2025", 60_000_000),
        ("1758002462.123456", "1758002463.123456", 1_000_000),
    ],
)
def test_times_measure_without_a_calendar(earlier: str, later: str, apart_usec: int) -> None:
    """The difference of two times is right within a month, in any language."""
    before, after = usec(earlier), usec(later)
    assert before is not None
    assert after is not None
    assert after - before == apart_usec


def test_what_is_no_time_has_no_number() -> None:
    """Neither nothing nor a word is taken for zero."""
    assert usec(None) is usec("yesterday") is usec("+0.000894") is None


def test_escapes_are_bytes() -> None:
    """A character of two bytes is escaped as two."""
    assert unescape(r"M\xc3\xa4r\x0aNVRM\x5c") == "Mär\nNVRM\\"


@given(st.text(max_size=300))
def test_any_text_gives_a_line(text: str) -> None:
    """Never an exception; with nothing to take off the text is what it was."""
    assert isinstance(read(text).text, str)
    assert "".join(said(text)) or not text
