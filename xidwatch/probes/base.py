"""What a probe is: the interface between a source of facts and the worker that runs it.

A module under `xidwatch/probes/` offers `def create(options: Mapping[str, object]) -> Probe`. The worker calls one
method per request; the probe hands every fact to `emit` as soon as it has it (what was sent before the deadline
counts, whatever happens later) and calls `emit.at(subject)` *before* it touches hardware behind that subject.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from xidwatch.core.model import Subject, Value
from xidwatch.core.power import Stretch


class ProbeFailed(Exception):
    """The source as a whole cannot answer now. `kind` names the cause in the source's own words.

    With `restart` the worker exits after saying so: only a fresh process can do better.
    """

    def __init__(self, kind: str, text: str, *, restart: bool = False) -> None:
        super().__init__(f"{kind}: {text}")
        self.kind = kind
        self.text = text
        self.restart = restart


@dataclass(frozen=True, slots=True)
class Ask:
    """One request, as the probe sees it."""

    deadline: float  # CLOCK_MONOTONIC seconds
    skip: frozenset[str] = frozenset()  # subjects (as text) whose hardware, and all below it, is not to be touched


class Emit(Protocol):
    """Where facts go."""

    def at(self, subject: Subject) -> None:
        """The next facts need the hardware behind `subject`."""

    def reading(self, subject: Subject, quantity: str, value: Value) -> None:
        """One fact; flushed to the daemon at the next `at` or at the end."""


class Probe(Protocol):
    """One source of facts. Any method may raise ProbeFailed; anything else is a bug and ends the worker."""

    @property
    def between_seconds(self) -> float | None:
        """How long `between` can wait to be called while no request does, looked at after every call; None: never."""

    def sample(self, ask: Ask, emit: Emit) -> None:
        """The readings of a tick."""

    def look(self, ask: Ask, emit: Emit) -> None:
        """The few readings that tell at once whether the devices still answer."""

    def inventory(self, ask: Ask, emit: Emit) -> None:
        """What is there and does not change while healthy: identity, topology, limits."""

    def between(self) -> None:
        """Housekeeping between requests (draining a short buffer); never raises ProbeFailed.

        One device a call: a request that arrives in the meantime waits for no more than that.
        """

    def close(self) -> None:
        """Let go of every driver and device."""


class Traces(Protocol):
    """Where power over time goes."""

    def trace(self, stretch: Stretch) -> None:
        """It has left the process when this returns."""


@runtime_checkable
class Tracing(Protocol):
    """What a probe offers beyond `Probe` that measures power over time, asked or not."""

    def trace_into(self, traces: Traces) -> None:
        """Once, before anything else: each stretch goes there as soon as it is read, before hardware is touched for the next."""
