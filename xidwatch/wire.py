"""The worker protocol: one JSON object a line, a request out, any number of readings back, closed by `done`.

    -> {"ask": 412, "what": "sample", "deadline_ms": 4000, "skip": ["0000:0f:00.0"]}
    <- {"ask": 412, "at": "gpu:0000:11:00.0"}
    <- {"ask": 412, "reading": {"subject": "gpu:0000:11:00.0", "quantity": "power_mean_watts", "value": 231.4}}
    <- {"ask": 412, "reading": {"subject": "gpu:0000:12:00.0", "quantity": "temperature_celsius", "missing": "DEVICE_LOST"}}
    <- {"ask": 412, "done": true, "took_ms": 17}
    <- {"ask": 413, "failed": {"type": "NVMLError_DriverNotLoaded", "text": "..."}}
    <- {"ask": 0, "trace": {"subject": "gpu:0000:11:00.0", "source": "buffer", "first_us": 1796061974058302,
                            "steps_us": [24717, 15238], "milliwatts": [698773, 557394, 215186], "after_us": 1796061974038410}}

`trace` is sent unasked, whenever there is something, also amidst an answer: power over time leaves the worker as it is read,
and is safe when the next call never returns. `steps_us` are the times from one sample to the next.

`at` says what the worker is about to touch, so that a replacement can leave it out if this one never comes back.
End of input means: finish and exit. A line over `MAX_LINE` bytes or that is not such an object breaks the protocol.
"""

from __future__ import annotations

from itertools import accumulate
from operator import sub
from typing import Annotated

import msgspec

from xidwatch.core.model import Missing, Reading, Subject, Value
from xidwatch.core.power import Stretch, TraceSource

MAX_LINE = 64 * 1024  # bytes
UNASKED = 0  # the number of no request
MOST_SAMPLES = 1000  # in a trace line, which is 31 KiB when every number is as long as it may be
MAX_STAMP_US = 253_402_300_799_999_999  # the end of the year 9999: later ones cannot be printed
MAX_MILLIWATTS = 2**32 - 1
MAX_NUMBER = 2**64 - 1  # no counter is wider, and nothing that is measured comes near


class ProbeProtocolError(Exception):
    """A worker sent something that is no line of the protocol."""


class Request(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What the daemon asks. `deadline_ms` is relative to the receipt: the worker's own reason to stop early."""

    ask: int
    what: str  # sample, look or inventory
    deadline_ms: int
    skip: tuple[str, ...] = ()  # subjects not to touch


class WireReading(msgspec.Struct, frozen=True, omit_defaults=True):
    """A reading on the wire: either `value` or `missing`."""

    subject: str
    quantity: str
    value: int | float | str | None = None
    missing: Missing | None = None


Stamp = Annotated[int, msgspec.Meta(ge=0, le=MAX_STAMP_US)]
Step = Annotated[int, msgspec.Meta(ge=1, le=MAX_STAMP_US)]
Milliwatts = Annotated[int, msgspec.Meta(ge=0, le=MAX_MILLIWATTS)]


class WireTrace(msgspec.Struct, frozen=True, omit_defaults=True):
    """A stretch of power over time on the wire: one step fewer than samples. Stamps and steps in microseconds."""

    subject: str
    source: TraceSource
    first_us: Stamp
    steps_us: Annotated[tuple[Step, ...], msgspec.Meta(max_length=MOST_SAMPLES - 1)]
    milliwatts: Annotated[tuple[Milliwatts, ...], msgspec.Meta(max_length=MOST_SAMPLES)]
    after_us: Stamp = 0


class Failure(msgspec.Struct, frozen=True):
    """The probe as a whole could not answer."""

    type: str
    text: str


class Reply(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One line back. Exactly one of `at`, `reading`, `trace`, `done`, `failed` is set."""

    ask: int
    at: str | None = None
    reading: WireReading | None = None
    trace: WireTrace | None = None
    done: bool = False
    took_ms: int = 0
    failed: Failure | None = None


_encoder = msgspec.json.Encoder()
_requests = msgspec.json.Decoder(Request)
_replies = msgspec.json.Decoder(Reply)


def encode(message: Request | Reply) -> bytes:
    """One line, with its newline."""
    return _encoder.encode(message) + b"\n"


def encode_reading(ask: int, subject: Subject, quantity: str, value: Value) -> bytes:
    """The line for one reading. A number that is none (not a number, infinite, beyond all measure) has no place in JSON: MALFORMED."""
    if isinstance(value, int | float) and not abs(value) <= MAX_NUMBER:
        value = Missing.MALFORMED
    if isinstance(value, Missing):
        wire = WireReading(str(subject), quantity, missing=value)
    else:
        wire = WireReading(str(subject), quantity, value=value)
    return encode(Reply(ask=ask, reading=wire))


def encode_trace(stretch: Stretch) -> bytes:
    """The line for a stretch, or the lines for a long one."""
    return b"".join(encode(Reply(ask=UNASKED, trace=_wire_trace(piece))) for piece in stretch.pieces(MOST_SAMPLES))


def _wire_trace(piece: Stretch) -> WireTrace:
    steps = tuple(map(sub, piece.stamps_us[1:], piece.stamps_us))
    return WireTrace(str(piece.subject), piece.source, piece.stamps_us[0], steps, piece.milliwatts, piece.after_us)


def decode_request(line: bytes) -> Request:
    """Raises ProbeProtocolError."""
    try:
        return _requests.decode(line)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise ProbeProtocolError(f"not a request: {line[:120]!r}: {error}") from error


def decode_reply(line: bytes) -> Reply:
    """Raises ProbeProtocolError."""
    try:
        return _replies.decode(line)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise ProbeProtocolError(f"not a reply: {line[:120]!r}: {error}") from error


def to_reading(wire: WireReading) -> Reading:
    """Raises ProbeProtocolError for a reading with neither value nor reason, or without a subject."""
    value: Value | None = wire.missing if wire.missing is not None else wire.value
    if value is None:
        raise ProbeProtocolError(f"reading without value or reason: {wire.subject} {wire.quantity}")
    if isinstance(value, int | float) and abs(value) > MAX_NUMBER:
        value = Missing.MALFORMED
    try:
        return Reading(Subject.parse(wire.subject), wire.quantity, value)
    except ValueError as error:
        raise ProbeProtocolError(str(error)) from error


def to_stretch(wire: WireTrace) -> Stretch:
    """Raises ProbeProtocolError for one whose numbers do not match, or that is not about a GPU by its address."""
    stamps = tuple(accumulate(wire.steps_us, initial=wire.first_us))
    if len(stamps) != len(wire.milliwatts) or stamps[-1] > MAX_STAMP_US:
        raise ProbeProtocolError(f"{len(stamps)} stamps up to {stamps[-1]} us for {len(wire.milliwatts)} draws of {wire.subject}")
    try:
        subject = Subject.parse(wire.subject)
        if subject.kind != "gpu" or str(subject.pci) != subject.name:
            raise ValueError(f"not a GPU: {wire.subject!r}")
    except ValueError as error:
        raise ProbeProtocolError(str(error)) from error
    return Stretch(subject, wire.source, stamps, wire.milliwatts, wire.after_us)
