"""The worker protocol: what is sent comes back as it was, and rubbish is called rubbish."""

from __future__ import annotations

import itertools
import json
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from xidwatch import wire
from xidwatch.core.model import Missing, Reading, Subject, Value
from xidwatch.core.power import Stretch, TraceSource
from xidwatch.wire import Failure, ProbeProtocolError, Reply, Request, WireReading

GPU = Subject("gpu", "0000:11:00.0")
DEEP = b'{"ask":1,"more":' + b"[" * 5000

VALUES: st.SearchStrategy[Value] = st.one_of(
    st.integers(-(2**63), 2**63 - 1),
    st.floats(-(2.0**63), 2.0**63),
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
    traced = Stretch(GPU, TraceSource.BUFFER, (1796061974058302, 1796061974083019), (698773, 557394), 1796061974038410)
    assert json.loads(wire.encode_trace(traced)) == {
        "ask": 0,
        "trace": {
            "subject": "gpu:0000:11:00.0",
            "source": "buffer",
            "first_us": 1796061974058302,
            "steps_us": [24717],
            "milliwatts": [698773, 557394],
            "after_us": 1796061974038410,
        },
    }


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


STAMPS = st.lists(st.integers(1, 10**15), min_size=1, max_size=20).map(lambda steps: tuple(itertools.accumulate(steps)))


@given(STAMPS, st.sampled_from(TraceSource), st.integers(0, 10**15), st.data())
def test_a_stretch_arrives_as_it_was_sent(stamps: tuple[int, ...], source: TraceSource, after_us: int, data: st.DataObject) -> None:
    """Every stamp and every milliwatt, and what it follows."""
    draws = tuple(data.draw(st.lists(st.integers(0, wire.MAX_MILLIWATTS), min_size=len(stamps), max_size=len(stamps))))
    stretch = Stretch(GPU, source, stamps, draws, after_us)
    trace = wire.decode_reply(wire.encode_trace(stretch)).trace
    assert trace is not None
    assert wire.to_stretch(trace) == stretch


def test_a_long_stretch_is_several_lines_that_follow_each_other() -> None:
    """None is longer than a line may be, with numbers as long as they get; nothing is lost at the seams."""
    count = 2 * wire.MOST_SAMPLES + 1
    step_us = wire.MAX_STAMP_US // count
    stamps = tuple(step_us * (number + 1) for number in range(count))
    lines = wire.encode_trace(Stretch(GPU, TraceSource.BUFFER, stamps, (wire.MAX_MILLIWATTS,) * count, 7)).splitlines()
    assert max(map(len, lines)) < wire.MAX_LINE
    traces = [trace for line in lines if (trace := wire.decode_reply(line).trace)]
    pieces = [wire.to_stretch(trace) for trace in traces]
    assert tuple(stamp for piece in pieces for stamp in piece.stamps_us) == stamps
    assert [piece.after_us for piece in pieces] == [7, *(piece.stamps_us[-1] for piece in pieces[:-1])]


TRACE = {"subject": "gpu:0000:11:00.0", "source": "buffer", "first_us": 10, "steps_us": [5], "milliwatts": [1, 2]}


@pytest.mark.parametrize(
    "change",
    [
        {"milliwatts": []},
        {"milliwatts": [1]},
        {"milliwatts": [1, -2]},
        {"milliwatts": [1, 2.5]},
        {"milliwatts": [1, 2**32]},
        {"steps_us": [0]},
        {"steps_us": [-5]},
        {"steps_us": [wire.MAX_STAMP_US]},
        {"steps_us": [1] * wire.MOST_SAMPLES, "milliwatts": [1] * (wire.MOST_SAMPLES + 1)},
        {"first_us": -1},
        {"source": "guess"},
        {"subject": "port:0000:11:00.0"},
        {"subject": "gpu:PCI:0000:11:00"},
        {"subject": "gpu:"},
        {"subject": ""},
    ],
)
def test_a_trace_that_makes_no_sense_breaks_the_protocol(change: dict[str, object]) -> None:
    """Stamps that do not rise, draws without a stamp, numbers that do not fit, something that is no GPU by its address."""
    with pytest.raises(ProbeProtocolError):
        to_stretch_of(json.dumps({"ask": 0, "trace": {**TRACE, **change}}).encode())


def to_stretch_of(line: bytes) -> Stretch:
    trace = wire.decode_reply(line).trace
    assert trace is not None
    return wire.to_stretch(trace)
