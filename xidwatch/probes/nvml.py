"""GPUs as the NVIDIA driver reports them, through NVML (package nvidia-ml-py, module `pynvml`).

What it reads, here as one H200 answered (driver 580):

    nvmlDeviceGetPciInfo                  busId '00000000:00:06.0'
    nvmlDeviceGetPowerUsage               79852      mW, mean of the last second
    nvmlDeviceGetTotalEnergyConsumption   4339664    mJ since the driver loaded, renewed every 100 ms
    nvmlDeviceGetFieldValues [186]        nvmlReturn 0, valueType 1, uiVal 80119

Between the ticks it follows each GPU's power: `nvml_power`. What that is for: under 100 ms bursts the highest entry of the
driver's sample buffer was 931 W while the one-second average never passed 280 W.

How it asks. A GPU is found by index once and looked up by PCI address ever after: NVML's own header says that a lookup by
UUID or serial may fail because *another* GPU is lost, and index order moves. The lookup is repeated at every tick, because
a client that kept using the handle of a lost GPU has been seen to crash. Every call is allowed to fail by itself.

Source: NVML API reference (docs.nvidia.com/deploy/nvml-api), nvml.h. What each quantity is asked by: `nvml_table`.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import pynvml

from xidwatch.core.model import Missing, PciAddress, Subject, Value
from xidwatch.core.power import Stretch, TraceSource
from xidwatch.probes.base import Ask, Emit, Probe, ProbeFailed, Traces
from xidwatch.probes.nvml_p2p import tell_peers
from xidwatch.probes.nvml_power import Power
from xidwatch.probes.nvml_table import (
    ANSWERED,
    CALLS,
    FACTS,
    FIELDS,
    INVENTORIED,
    LOST,
    OF_PAIRS,
    P2P_READ,
    PASSING,
    PERMANENT,
    POWER_AVERAGE,
    POWER_INSTANT,
    SAMPLED,
    SESSION_OVER,
    Call,
    Code,
    Field,
    advice,
    believed,
    number_in,
    reason_for,
)

DRIVER = Subject("driver", "nvidia")
UNNAMED_RETRY_SECONDS = 300.0  # opening a GPU that never answered makes the driver try to start it, and write to the log


@dataclass(slots=True)
class _Gpu:
    """A GPU once seen; it stays known, whatever becomes of it, until the worker ends."""

    subject: Subject
    bus_id: str  # as NVML spells it
    index: int | None = None  # at the last enumeration; None: not among those that answered
    handle: object = None  # None: not to be touched before the next lookup
    unsupported: set[tuple[str, object]] = field(default_factory=set)
    power: Power = field(init=False)

    def __post_init__(self) -> None:
        self.power = Power(self.subject)

    def let_go(self) -> None:
        """Its handle may be invalid and its counters may start anew from here on."""
        self.handle = None
        self.power.let_go()


class _UnreadableError(Exception):
    """One GPU cannot be read (further): `status` is its nvml_status, `reason` goes for all that is left unread."""

    def __init__(self, status: Value, reason: Missing) -> None:
        super().__init__(status, reason)
        self.status = status
        self.reason = reason


class NvmlProbe:
    """All GPUs the NVIDIA driver knows. `library` is the pynvml module or something that looks like it."""

    def __init__(self, library: Any, *, monotonic: Callable[[], float] = time.monotonic, wall: Callable[[], float] = time.time) -> None:
        self._library = library
        self._monotonic = monotonic
        self._wall = wall
        self._initialised = False
        self._gpus: dict[PciAddress, _Gpu] = {}
        self._count: int | None = None  # GPUs at the last enumeration; None: enumerate
        self._retry_at = math.inf  # monotonic: when to try again those that could not be named
        self._none_found = ("", "")  # kind and text of the failure while no GPU is known
        self._trace: Callable[[Stretch], None] = lambda _stretch: None

    def trace_into(self, traces: Traces) -> None:
        """Where each GPU's power over time goes."""
        self._trace = traces.trace

    # --- the probe's interface

    def sample(self, ask: Ask, emit: Emit) -> None:
        """Power and the rows of CALLS and FIELDS of every GPU; once that is known, whether it answered, and last whom it reaches."""
        told = self._tell_peaks(emit)
        self._prepare(ask, emit)
        found: list[tuple[_Gpu, Missing | None]] = []
        for gpu in self._gpus.values():
            trouble = self._visit(gpu, ask, emit, SAMPLED, self._readings)
            if gpu.subject not in told:
                gpu.power.tell_peak(emit, trouble.reason if trouble else None, late=self._monotonic() >= ask.deadline)
            gpu.power.tell_source(emit, trouble.reason if trouble else None)
            emit.reading(gpu.subject, "nvml_status", trouble.status if trouble else ANSWERED)
            found.append((gpu, trouble.reason if trouble else None))
        tell_peers(emit, found, partial(self._p2p_status, ask.deadline))

    def look(self, ask: Ask, emit: Emit) -> None:
        """The peaks drained since the last tick, from memory: at an edge the driver is the last to be asked."""
        self._tell_peaks(emit)

    def inventory(self, ask: Ask, emit: Emit) -> None:
        """Identity and factory limit of every GPU, and the driver's version."""
        self._prepare(ask, emit)
        emit.reading(DRIVER, "version", self._driver_version())
        for gpu in self._gpus.values():
            trouble = self._visit(gpu, ask, emit, INVENTORIED, self._facts)
            gpu.power.tell_source(emit, trouble.reason if trouble else None)

    @property
    def between_seconds(self) -> float | None:
        """Until the first of the GPUs that answered last time is to be read again."""
        due = min((gpu.power.due for gpu in self._reachable()), default=None)
        return None if due is None else max(0.0, due - self._monotonic())

    def between(self) -> None:
        """Follow the power of the GPU whose turn it is: one call of about 0.5 ms, two or three where the sensor is polled."""
        gpu = min(self._reachable(), key=lambda gpu: gpu.power.due, default=None)
        if gpu is None:
            return
        try:
            self._follow(gpu, buffer=not gpu.power.polls)
        except (_UnreadableError, ProbeFailed):
            pass  # its handle is let go; the next sample asks again and says what it is told

    def close(self) -> None:
        """Let go of the driver; one that is gone already is no trouble."""
        for gpu in self._gpus.values():
            gpu.let_go()
        if self._initialised:
            self._initialised = False
            try:
                self._library.nvmlShutdown()
            except pynvml.NVMLError:
                pass

    # --- the session and who is there

    def _prepare(self, ask: Ask, emit: Emit) -> None:
        """A session with the driver and an up-to-date list of GPUs. Raises ProbeFailed."""
        emit.at(DRIVER)
        try:
            if not self._initialised:
                self._library.nvmlInit()
                self._initialised = True
                self._count = None
            count: int = self._call("nvmlDeviceGetCount")
            if self._enumeration_due(count, ask):
                self._enumerate(count)
        except pynvml.NVMLError as error:
            raise self._failed(error) from error
        if not self._gpus:
            raise ProbeFailed(*self._none_found)

    def _failed(self, error: Any) -> ProbeFailed:
        """What to raise when the driver as a whole does not answer; ends the session if it is over."""
        code: int = error.value
        if code in SESSION_OVER:
            self.close()
        # The library stays mapped after a shutdown, so only a new process can load the one that fits the module.
        return ProbeFailed(type(error).__name__, _advice(error), restart=code == Code.LIB_RM_VERSION_MISMATCH)

    def _enumeration_due(self, count: int, ask: Ask) -> bool:
        """Enumeration opens GPUs by index and cannot leave one out: with a known GPU to be skipped it has to wait."""
        if any(_is_skipped(gpu, ask) for gpu in self._gpus.values()):
            return False
        return count != self._count or self._monotonic() >= self._retry_at

    def _enumerate(self, count: int) -> None:
        """Find addresses by index. An index that fails has no address; GPUs known from before keep theirs and stay known."""
        for gpu in self._gpus.values():
            gpu.index = None
            gpu.unsupported.clear()
        errors: list[Exception] = []
        for index in range(count):
            try:
                self._adopt(index)
            except pynvml.NVMLError as error:
                if error.value in SESSION_OVER:
                    raise
                errors.append(error)
            except ValueError as error:  # a PCI address that is none
                errors.append(error)
        self._count = count
        unnamed = len(errors) - sum(gpu.index is None for gpu in self._gpus.values())
        self._retry_at = self._monotonic() + UNNAMED_RETRY_SECONDS if unnamed > 0 else math.inf
        self._none_found = _why_none(count, errors)

    def _adopt(self, index: int) -> None:
        """Know the GPU at `index` by its address from now on. Raises NVMLError, ValueError."""
        handle = self._call("nvmlDeviceGetHandleByIndex", index)
        bus_id: str = self._call("nvmlDeviceGetPciInfo", handle).busId
        address = PciAddress.parse(bus_id)
        gpu = self._gpus.setdefault(address, _Gpu(Subject("gpu", str(address)), bus_id))
        gpu.index = index

    def _reachable(self) -> Iterator[_Gpu]:
        return (gpu for gpu in self._gpus.values() if gpu.handle is not None)

    # --- one GPU

    def _visit(
        self, gpu: _Gpu, ask: Ask, emit: Emit, owed: Iterable[str], read: Callable[[_Gpu], Iterator[tuple[str, Value]]]
    ) -> _UnreadableError | None:
        """Emit what `read` yields, then the reason for all of `owed` that did not come; returns what went wrong."""
        left = dict.fromkeys(owed)
        try:
            self._open(gpu, ask, emit)
            for quantity, value in read(gpu):
                emit.reading(gpu.subject, quantity, value)
                del left[quantity]
                if self._monotonic() >= ask.deadline:
                    raise _UnreadableError(ANSWERED, Missing.TIMED_OUT)
        except _UnreadableError as trouble:
            for quantity in left:
                emit.reading(gpu.subject, quantity, trouble.reason)
            return trouble
        return None

    def _open(self, gpu: _Gpu, ask: Ask, emit: Emit) -> None:
        """A handle that is good for this visit, by PCI address. Raises _UnreadableError, ProbeFailed."""
        if _is_skipped(gpu, ask):
            gpu.handle = None
            raise _UnreadableError(Missing.NOT_ASKED, Missing.NOT_ASKED)
        if self._monotonic() >= ask.deadline:
            raise _UnreadableError(Missing.TIMED_OUT, Missing.TIMED_OUT)
        emit.at(gpu.subject)
        try:
            gpu.handle = self._call("nvmlDeviceGetHandleByPciBusId", gpu.bus_id)
        except pynvml.NVMLError as error:
            raise self._gone(gpu, error) from error
        if gpu.index is None:
            self._count = None  # it is back: its index and what it supports are to be learnt anew

    def _readings(self, gpu: _Gpu) -> Iterator[tuple[str, Value]]:
        yield "power_mean_watts", self._mean_power(gpu)
        for call in CALLS:
            value = self._answer(gpu, call)
            gpu.power.load.note(call.quantity, value)
            yield call.quantity, value
        yield from self._fields(gpu, FIELDS)
        self._follow(gpu, buffer=True)

    def _facts(self, gpu: _Gpu) -> Iterator[tuple[str, Value]]:
        yield "nvml_index", Missing.ABSENT if gpu.index is None else gpu.index
        for call in FACTS:
            yield call.quantity, self._answer(gpu, call)

    def _answer(self, gpu: _Gpu, call: Call) -> Value:
        """The answer by the newest name the driver knows."""
        answer = self._ask(gpu, call.function, *call.arguments, variant=call.arguments)
        if answer is Missing.UNSUPPORTED and call.older:
            answer = self._ask(gpu, call.older, *call.arguments, variant=call.arguments)
        return answer if isinstance(answer, Missing) else call.convert(answer)

    def _mean_power(self, gpu: _Gpu) -> Value:
        energy: Any = believed(self._ask(gpu, "nvmlDeviceGetTotalEnergyConsumption"))
        return energy if isinstance(energy, Missing) else gpu.power.mean(energy, self._monotonic())

    def _fields(self, gpu: _Gpu, rows: Iterable[Field]) -> Iterator[tuple[str, Value]]:
        asked = [row for row in rows if ("field", row.number) not in gpu.unsupported]
        answers = self._ask(gpu, "nvmlDeviceGetFieldValues", [row.number for row in asked]) if asked else ()
        values: dict[str, Value] = dict.fromkeys((row.quantity for row in rows), Missing.UNSUPPORTED)
        for position, row in enumerate(asked):
            values[row.quantity] = answers if isinstance(answers, Missing) else self._field(gpu, row, answers[position])
        yield from values.items()

    def _field(self, gpu: _Gpu, row: Field, answer: Any) -> Value:
        """One element of the array: the call succeeds as a whole, so each says for itself whether it was answered."""
        if answer.nvmlReturn != ANSWERED:
            return self._refused(gpu, ("field", row.number), pynvml.NVMLError(answer.nvmlReturn))
        if answer.timestamp == 0:
            return Missing.UNSUPPORTED  # success and all zeros is how a driver leaves a field it never filled in
        value = number_in(answer.valueType, answer.value)
        return value if isinstance(value, Missing) else row.convert(value)

    def _p2p_status(self, deadline: float, gpu: _Gpu, peer: _Gpu) -> Any:
        late = self._monotonic() >= deadline
        return Missing.TIMED_OUT if late else self._ask(gpu, "nvmlDeviceGetP2PStatus", peer.handle, P2P_READ, variant=peer.bus_id)

    def _follow(self, gpu: _Gpu, *, buffer: bool) -> None:
        """Let the GPU's power over time out of this process as far as the driver gives it."""
        mono, now_us = self._monotonic(), int(self._wall() * 1e6)
        for stretch in gpu.power.follow(partial(self._ask, gpu), self._polled(gpu), mono, now_us, buffer=buffer):
            self._trace(stretch)

    def _polled(self, gpu: _Gpu) -> Iterator[tuple[TraceSource, Value]]:
        yield from ((TraceSource.POLL_INSTANT, watts) for _, watts in self._fields(gpu, (POWER_INSTANT,)))
        yield TraceSource.POLL_AVERAGE, self._answer(gpu, POWER_AVERAGE)

    def _tell_peaks(self, emit: Emit) -> set[Subject]:
        """Emit what the drains between the ticks brought, before any call of this tick that might never return.

        So a peak is at most one drain behind, and the last seconds before a driver locks up are told.
        """
        return {gpu.subject for gpu in self._gpus.values() if gpu.power.tell_drained(emit)}

    # --- one call

    def _call(self, function: str, *arguments: object) -> Any:
        """The library's answer, asked twice when the first error may pass. Raises NVMLError."""
        method = getattr(self._library, function, None)
        if method is None:  # an older nvidia-ml-py than the one this was written with
            raise pynvml.NVMLError(Code.FUNCTION_NOT_FOUND)
        try:
            return method(*arguments)
        except pynvml.NVMLError as error:
            if error.value not in PASSING:
                raise
        return method(*arguments)

    def _ask(self, gpu: _Gpu, function: str, *arguments: object, variant: object = None) -> Any:
        """The answer for one GPU, or a Missing; what this driver cannot do it is asked once. Raises as `_refused`."""
        key = (function, variant)
        if key in gpu.unsupported:
            return Missing.UNSUPPORTED
        try:
            return self._call(function, gpu.handle, *arguments)
        except pynvml.NVMLError as error:
            return self._refused(gpu, key, error)
        except UnicodeDecodeError:  # a string read from a board that no longer answers
            return Missing.MALFORMED

    def _refused(self, gpu: _Gpu, key: tuple[str, object], error: Any) -> Missing:
        """Why there is no answer. Raises _UnreadableError when the GPU is lost, ProbeFailed when the driver is."""
        code: int = error.value
        if code in SESSION_OVER or (code in LOST and key[0] not in OF_PAIRS):
            raise self._gone(gpu, error) from error
        if code in PERMANENT:
            gpu.unsupported.add(key)
        return reason_for(code)

    def _gone(self, gpu: _Gpu, error: Any) -> _UnreadableError | ProbeFailed:
        """What to raise when a GPU has no usable handle (any more); others may have moved, so enumerate at the next request."""
        code: int = error.value
        if code in SESSION_OVER:
            return self._failed(error)
        if gpu.handle is not None:
            self._count = None
        gpu.let_go()
        # Only "lost" and "reset required" are statements about the device; a number for any other would pass for health.
        return _UnreadableError(code if code in LOST else reason_for(code), reason_for(code))

    def _driver_version(self) -> Value:
        try:
            return str(self._call("nvmlSystemGetDriverVersion"))
        except pynvml.NVMLError as error:
            if error.value in SESSION_OVER:
                raise self._failed(error) from error
            return reason_for(error.value)


def _is_skipped(gpu: _Gpu, ask: Ask) -> bool:
    return str(gpu.subject) in ask.skip or gpu.subject.name in ask.skip


def _advice(error: Any) -> str:
    return advice(error.value, str(error)) if isinstance(error, pynvml.NVMLError) else str(error)


def _why_none(count: int, errors: list[Exception]) -> tuple[str, str]:
    """Kind and text of the failure for a driver that runs and shows no GPU: silence must not look like health."""
    if errors:
        return type(errors[0]).__name__, f"none of the {count} GPUs the driver counts can be opened: {_advice(errors[0])}"
    return "NoGpu", "the NVIDIA driver is loaded and counts no GPU: the kernel log and `lspci -d 10de:` show whether any is on the bus"


def create(options: Mapping[str, object]) -> Probe:
    """The probe on the real library. There are no options; nothing is loaded before the first request."""
    return NvmlProbe(pynvml)
