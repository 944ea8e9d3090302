"""Records that name their fields, in JSON or as journald exports them."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from xidwatch.core.logfields import Collector, Fields, records

KERNEL = {"_TRANSPORT": "kernel", "SYSLOG_FACILITY": "0", "SYSLOG_IDENTIFIER": "kernel", "MESSAGE": "NVRM: x"}


@pytest.mark.parametrize(
    ("changed", "kernel"),
    [
        ({}, True),
        ({"_TRANSPORT": "syslog"}, False),
        ({"_TRANSPORT": "stdout", "SYSLOG_IDENTIFIER": "python3"}, False),
        ({"SYSLOG_FACILITY": "1"}, False),
        ({"SYSLOG_IDENTIFIER": "python3"}, False),
    ],
)
def test_one_field_is_enough_to_say_that_it_was_not_the_kernel(changed: dict[str, str], kernel: bool) -> None:
    """User space can write into the kernel's log and call itself kernel: transport and identifier then lie, the facility does not."""
    found = records(json.dumps(KERNEL | changed))
    assert found is not None
    assert found[0].kernel is kernel


def test_fields_that_are_not_there_say_nothing() -> None:
    """`--output-fields=MESSAGE` leaves the speaker unknown."""
    assert records('{"MESSAGE":"NVRM: x"}') == [Fields("NVRM: x", None, None, None, None)]


def test_a_message_of_bytes_and_one_that_was_too_long() -> None:
    """Numbers are bytes; null is no message."""
    assert records('{"MESSAGE":[78,86,82,77,58,32,255],"_TRANSPORT":"kernel"}') == [Fields("NVRM: \ufffd", None, None, True, None)]
    assert records('{"MESSAGE":null,"_TRANSPORT":"kernel"}') == []


def test_a_message_within_a_message() -> None:
    """A container's line holds what dmesg printed; a list of objects holds several."""
    (found,) = records('{"log":"[12.000001] NVRM: x\\n","stream":"stdout","time":"2026-09-17T06:01:02Z"}') or []
    assert (found.text, found.time, found.usec) == ("NVRM: x", "2026-09-17T06:01:02Z", 12_000_001)
    found_all = records('{"dmesg":[{"pri":4,"time":12.000001,"msg":"NVRM: x"},{"pri":12,"time":13.5,"msg":"NVRM: y"}]}') or []
    assert [(each.text, each.time, each.kernel) for each in found_all] == [("NVRM: x", "12.000001", True), ("NVRM: y", "13.5", False)]
    assert len(records('{"msg":"a"} {"msg":"b"}\x1e{"msg":"c"}') or []) == 3


def test_what_is_no_json_is_none_of_ours() -> None:
    """A brace in a kernel line is not an object, and half an object is not one either."""
    assert records("{1}[Hardware Error]: event severity: fatal") is None
    assert records('{"MESSAGE":"NVRM: x') is None
    assert records("{" * 10_000) is None


def test_a_message_with_its_length_before_it() -> None:
    """A line break in it, and a length whose byte is a line break, end nothing early."""
    message = b"ten bytes\n"
    collector = Collector.begun_by(3, "__CURSOR=1")
    assert collector
    stream = b"_TRANSPORT=kernel\nMESSAGE\n" + len(message).to_bytes(8, "little") + message + b"\nPRIORITY=4"
    assert all(collector.take(line, line.decode()) for line in stream.split(b"\n"))
    assert [each.text for each in collector.records()] == ["ten bytes"]


def test_a_brace_at_the_end_of_a_line_swallows_nothing() -> None:
    """Only what looks like the inside of an object belongs to it."""
    collector = Collector.begun_by(1, "  settings {") or Collector.begun_by(1, "{")
    assert collector
    assert not collector.take(b"", "[12.000001] NVRM: Xid (PCI:0000:0f:00): 79, x")


@given(
    st.text(max_size=200)
    | st.recursive(st.none() | st.integers() | st.text(), lambda deep: st.lists(deep) | st.dictionaries(st.text(), deep)).map(json.dumps)
)
def test_any_line_gives_records_or_none(line: str) -> None:
    """Never an exception."""
    found = records(line)
    assert found is None or all(isinstance(each.text, str) for each in found)


def test_a_line_of_blanks_opens_nothing_and_soon() -> None:
    """Looking for a bracket behind 64 KiB of them took half a minute."""
    assert Collector.begun_by(1, " " * 65_536 + "x") is None
