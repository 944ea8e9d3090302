"""How many other GPUs each GPU may read peer to peer, by the driver's word of this very tick.

Law: no import of pynvml; what is asked of the driver goes through the function handed in.

It is what the driver allows between two (nvmlDeviceGetP2PStatus, READ), and no proof that traffic flows: stock drivers refuse it to
GeForce boards, patched ones grant it, and whoever loads the other one by mistake has an engine that starts and crawls.

    GPU 0 to 1: OK    0 to 2: OK    0 to 3: CHIPSET_NOT_SUPPORTED       reaches 2

It is asked when every GPU has been looked up in this request, since a handle from before may belong to one that was lost. One that is
lost or gone nobody reaches, and nobody is asked about it; where another could not be read, the number is not known. With N GPUs that
are N x (N - 1) calls.

Source: NVML API reference (docs.nvidia.com/deploy/nvml-api), nvml.h.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Protocol, TypeVar

from xidwatch.core.model import Missing, Subject, Value
from xidwatch.probes.base import Emit
from xidwatch.probes.nvml_table import P2P_OK, P2P_UNKNOWN

PEERS = "p2p_peers"
GONE = (Missing.DEVICE_LOST, Missing.ABSENT)


class End(Protocol):
    """A GPU, as far as it matters here."""

    subject: Subject


AnyEnd = TypeVar("AnyEnd", bound=End)


def tell_peers(emit: Emit, found: Sequence[tuple[AnyEnd, Missing | None]], status: Callable[[AnyEnd, AnyEnd], Value]) -> None:
    """Emit it of every GPU. `found`: each with why it could not be read, None where it was."""
    unread = next((trouble for _, trouble in found if trouble is not None and trouble not in GONE), None)
    for gpu, trouble in found:
        lack = trouble or unread
        if lack is not None:
            emit.reading(gpu.subject, PEERS, lack)
            continue
        emit.at(gpu.subject)
        emit.reading(gpu.subject, PEERS, reached(status(gpu, peer) for peer, gone in found if peer is not gpu and not gone))


def reached(statuses: Iterable[Value]) -> Value:
    """How many are OK. One that is not known leaves the number unknown; UNSUPPORTED is it only when the driver says so of all."""
    told = [Missing.MALFORMED if status == P2P_UNKNOWN else status for status in statuses]
    lacks = [status for status in told if isinstance(status, Missing)]
    unknown = [lack for lack in lacks if lack is not Missing.UNSUPPORTED]
    if unknown or (told and len(lacks) == len(told)):
        return unknown[0] if unknown else Missing.UNSUPPORTED
    return sum(status == P2P_OK for status in told)
