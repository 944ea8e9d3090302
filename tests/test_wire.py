"""The worker protocol: what is sent comes back as it was, and rubbish is called rubbish."""

from __future__ import annotations

import json
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from xidwatch import wire
from xidwatch.core.model import Missing, Reading, Subject, Value
from xidwatch.wire import Failure, ProbeProtocolError, Reply, Request, WireReading

GPU = Subject("gpu", "0000:11:00.0")
DEEP = b'{"ask":1,"more":' + b"[" * 5000

VALUES: st.SearchStrategy[Value] = st.one_of(
    st.integers(-(2**63), 2**63 - 1),
    st.floats(allow_nan=False, allow_infinity=False),
    st.text(st.characters(exclude_categories=["Cs"])),
    st.sampled_from(Missing),
)


def test_the_lines_of_the_docstring_are_the_protocol() -> None:
    """Both directions as documented, key by key; what is not set is not sent."""
    assert wire.encode(Request(ask=412, what="sample", deadline_ms=4000, skip=("0000:0f:00.0",))) == (
        b'{"ask":412,"what":"sample","deadline_ms":4000,"skip":["0000:0f:00.0"]}\n'
    )
    assert wire.encode(Reply(ask=412, at="gpu:0000:11:00.0")) == b'{"ask":412,"at":"gpu:0000:11:00.0"}\n'
    assert wire.encode(Reply(ask=412, done=True, took_ms=17)) == b'{"ask":412,"done":true,"took_ms":17}\n'
    assert json.loads(wire.encode(Reply(ask=413, failed=Failure("NVMLError_DriverNotLoaded", "...")))) == {
        "ask": 413,
        "failed": {"type": "NVMLError_DriverNotLoaded", "text": "..."},
    }
    assert wire.encode_reading(412, GPU, "temperature_celsius", Missing.DEVICE_LOST) == (
        b'{"ask":412,"reading":{"subject":"gpu:0000:11:00.0","quantity":"temperature_celsius","missing":"DEVICE_LOST"}}\n'
    )


@given(VALUES)
def test_a_reading_arrives_as_it_was_sent(value: Value) -> None:
    """Zero, the empty text and every reason for a missing one included; always as one line."""
    line = wire.encode_reading(7, GPU, "power_mean_watts", value)
    assert line.count(b"\n") == 1
    arrived = wire.decode_reply(line).reading
    assert arrived is not None
    assert wire.to_reading(arrived) == Reading(GPU, "power_mean_watts", value)
    assert isinstance(wire.to_reading(arrived).value, Missing) is isinstance(value, Missing)


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_a_number_that_is_none_is_malformed(value: float) -> None:
    """JSON has no word for it, and a null would break the protocol for all the other readings."""
    arrived = wire.decode_reply(wire.encode_reading(7, GPU, "power_mean_watts", value)).reading
    assert arrived is not None
    assert wire.to_reading(arrived).value is Missing.MALFORMED


@pytest.mark.parametrize(
    "line",
    [b"", b"{", b"[]", b"7", b"\xff", b"{}", b'{"ask":"1"}', b'{"ask":1,"at":"\xff"}', b'{"ask":1,"reading":{"subject":"gpu"}}', DEEP],
)
def test_what_is_no_reply_is_called_so(line: bytes) -> None:
    """One kind of error whatever is wrong: the loop that reads it must not die of anything a worker says."""
    with pytest.raises(ProbeProtocolError, match="not a reply"):
        wire.decode_reply(line)


@pytest.mark.parametrize("line", [b"", b"null", b'{"ask":1}', b'{"ask":1,"what":"\xff","deadline_ms":1}', DEEP])
def test_what_is_no_request_is_called_so(line: bytes) -> None:
    """The worker's side likewise."""
    with pytest.raises(ProbeProtocolError, match="not a request"):
        wire.decode_request(line)


@given(st.binary(max_size=200))
def test_any_bytes_are_a_reply_or_a_protocol_error(line: bytes) -> None:
    """And the error quotes no more than the beginning of them."""
    said = ""
    try:
        assert isinstance(wire.decode_reply(line), Reply)
    except ProbeProtocolError as error:
        said = str(error)
    assert len(said) < 1000


@pytest.mark.parametrize(
    ("reading", "said"),
    [
        (WireReading("gpu:0000:11:00.0", "power_mean_watts"), "without value or reason"),
        (WireReading(":0000:11:00.0", "power_mean_watts", value=1), "not a subject"),
    ],
)
def test_a_reading_needs_a_subject_and_a_value_or_a_reason(reading: WireReading, said: str) -> None:
    """Nothing is never taken for zero."""
    with pytest.raises(ProbeProtocolError, match=said):
        wire.to_reading(reading)


def test_a_newer_worker_may_say_more() -> None:
    """Unknown keys are passed over."""
    assert wire.decode_reply(b'{"ask":1,"done":true,"mood":"good"}') == Reply(ask=1, done=True)


def test_a_request_arrives_as_it_was_sent() -> None:
    """With and without subjects to leave out."""
    for request in (Request(ask=1, what="look", deadline_ms=2000), Request(ask=2, what="sample", deadline_ms=1, skip=("a", "b"))):
        assert wire.decode_request(wire.encode(request)) == request


@pytest.mark.parametrize("number", [10**400, -(10**400), 2**64])
def test_a_number_wider_than_any_counter_is_no_number(number: int) -> None:
    """It would not fit into a float, and take the loop down where somebody adds it up."""
    assert wire.to_reading(WireReading(str(GPU), "power_mean_watts", value=number)).value is Missing.MALFORMED
    assert wire.to_reading(WireReading(str(GPU), "memory_used_bytes", value=2**64 - 1)).value == 2**64 - 1
