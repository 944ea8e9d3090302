"""JSON lines between the loop and its own processes (recorder, dump worker, control clients)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

_encoder = msgspec.json.Encoder()
_decoder = msgspec.json.Decoder(dict[str, Any])


class FrameError(ValueError):
    """Not one JSON object."""


def encode(message: Mapping[str, object]) -> bytes:
    """One line with its newline."""
    return _encoder.encode(message) + b"\n"


def decode(line: bytes) -> dict[str, Any]:
    """Raises FrameError."""
    try:
        return _decoder.decode(line)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise FrameError(f"not a frame: {line[:120]!r}: {error}") from error
