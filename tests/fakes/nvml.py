"""A stand-in for the `pynvml` module: any number of GPUs, each with a state that a test or a benchmark sets.

    library = FakeNvml.with_gpus(4)
    probe = NvmlProbe(library)
    library.gpus[2].lost = 15                        # every call on it raises NVMLError_GpuIsLost
    library.gpus[0].fail("nvmlDeviceGetPowerUsage", 10, times=1)
    library.missing.add("nvmlDeviceGetTemperatureV")  # a driver that does not know the function
    library.driver_error = 9                         # everything raises NVMLError_DriverNotLoaded
    library.calls                                    # [("nvmlInit", ""), ("nvmlDeviceGetPowerUsage", "00000000:11:00.0"), ...]

It raises pynvml's own exception classes and fills pynvml's own structures. What would crash the real library, a call with a
handle from another session, raises `Crash`. Functions that the probe has no business calling are simply not here.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from types import SimpleNamespace
from typing import Any

import pynvml

BUFFER_ENTRIES = 119  # 2.4 s at 20 ms, as measured on an H200
UNSIGNED_INT = pynvml.NVML_VALUE_TYPE_UNSIGNED_INT


class Crash(BaseException):
    """The real library would have taken the process down here; no handler may swallow that."""


@dataclass(slots=True)
class FakeField:
    """What one field value answers. A field that no test sets answers "not supported"."""

    value: int = 0
    code: int = 0
    timestamp: int = 1_796_057_856_567_438
    value_type: int = UNSIGNED_INT


@dataclass(slots=True)
class FakeGpu:
    """The state of one GPU, in NVML's own units."""

    bus_id: str
    uuid: str = "GPU-00000000-0000-0000-0000-000000000001"
    serial: str = "0000000000001"
    name: str = "NVIDIA Fake"
    vbios: str = "96.00.A5.00.1A"
    power_milliwatts: int = 250_000
    energy_millijoules: int = 4_339_664
    limit_milliwatts: int = 350_000
    default_limit_milliwatts: int = 400_000
    temperature_celsius: int = 61
    clocks_mhz: dict[int, int] = field(default_factory=lambda: {1: 1980, 2: 3201})
    utilisation_percent: int = 97
    memory_used_bytes: int = 644_939_776
    reasons: int = 0x4
    performance_state: int = 0
    link_generation: int = 5
    link_width: int = 16
    replays: int = 3
    minor: int = 0
    p2p: dict[str, int] = field(default_factory=dict)  # bus id to status, 0 (OK) for those not named
    pids: list[int] = field(default_factory=list)  # of the processes with a compute context
    fields: dict[int, FakeField] = field(default_factory=lambda: {186: FakeField(251_000), 82: FakeField(37), 230: FakeField(0)})
    buffer: list[tuple[int, int]] = field(default_factory=list)  # (stamp in us, mW), oldest first
    lost: int = 0  # 15 or 16: the answer to everything
    errors: dict[str, list[int]] = field(default_factory=dict)

    def fail(self, function: str, code: int, times: int = 1_000_000) -> None:
        """Let the next `times` calls of `function` on this GPU raise `code`."""
        self.errors[function] = [code, times]

    def samples_after(self, stamp_us: int) -> tuple[int, list[Any]]:
        """As nvmlDeviceGetSamples: entries of a later millisecond than the stamp's (so an H200 compares), or NOT_FOUND for none."""
        newer = [entry for entry in self.buffer[-BUFFER_ENTRIES:] if entry[0] // 1000 > stamp_us // 1000]
        if not newer:
            raise pynvml.NVMLError(pynvml.NVML_ERROR_NOT_FOUND)
        return UNSIGNED_INT, [_sample(*entry) for entry in newer]

    def field_values(self, numbers: list[int]) -> Any:
        """As nvmlDeviceGetFieldValues: an array that says of each element by itself whether it was answered."""
        values = (pynvml.c_nvmlFieldValue_t * len(numbers))()
        for value, number in zip(values, numbers, strict=True):
            answer = self.fields.get(number, FakeField(code=pynvml.NVML_ERROR_NOT_SUPPORTED))
            value.fieldId, value.nvmlReturn, value.timestamp, value.valueType = number, answer.code, answer.timestamp, answer.value_type
            value.value.uiVal = answer.value
        return values


def _sample(stamp_us: int, milliwatts: int) -> Any:
    sample = pynvml.c_nvmlSample_t()
    sample.timeStamp = stamp_us
    sample.sampleValue.uiVal = milliwatts
    return sample


def _p2p_status(gpu: FakeGpu, peer: Handle) -> int:
    """As nvmlDeviceGetP2PStatus: both ends have to be there. Of itself a GPU is no peer (5)."""
    if peer.gpu.lost:
        raise pynvml.NVMLError(peer.gpu.lost)
    return 5 if peer.gpu is gpu else gpu.p2p.get(peer.gpu.bus_id, 0)


# What each function answers for a GPU that is well.
DEVICE_FUNCTIONS: dict[str, Callable[..., Any]] = {
    "nvmlDeviceGetPciInfo": lambda gpu: SimpleNamespace(busId=gpu.bus_id),
    "nvmlDeviceGetUUID": lambda gpu: gpu.uuid,
    "nvmlDeviceGetSerial": lambda gpu: gpu.serial,
    "nvmlDeviceGetName": lambda gpu: gpu.name,
    "nvmlDeviceGetVbiosVersion": lambda gpu: gpu.vbios,
    "nvmlDeviceGetMigMode": lambda _gpu: [0, 0],
    "nvmlDeviceGetPowerManagementDefaultLimit": lambda gpu: gpu.default_limit_milliwatts,
    "nvmlDeviceGetPowerUsage": lambda gpu: gpu.power_milliwatts,
    "nvmlDeviceGetTotalEnergyConsumption": lambda gpu: gpu.energy_millijoules,
    "nvmlDeviceGetEnforcedPowerLimit": lambda gpu: gpu.limit_milliwatts,
    "nvmlDeviceGetTemperatureV": lambda gpu, _sensor: gpu.temperature_celsius,
    "nvmlDeviceGetTemperature": lambda gpu, _sensor: gpu.temperature_celsius,
    "nvmlDeviceGetClockInfo": lambda gpu, clock: gpu.clocks_mhz[clock],
    "nvmlDeviceGetUtilizationRates": lambda gpu: SimpleNamespace(gpu=gpu.utilisation_percent, memory=0),
    "nvmlDeviceGetMemoryInfo": lambda gpu: SimpleNamespace(used=gpu.memory_used_bytes, total=24 << 30, free=0),
    "nvmlDeviceGetCurrentClocksEventReasons": lambda gpu: gpu.reasons,
    "nvmlDeviceGetCurrentClocksThrottleReasons": lambda gpu: gpu.reasons,
    "nvmlDeviceGetPerformanceState": lambda gpu: gpu.performance_state,
    "nvmlDeviceGetCurrPcieLinkGeneration": lambda gpu: gpu.link_generation,
    "nvmlDeviceGetCurrPcieLinkWidth": lambda gpu: gpu.link_width,
    "nvmlDeviceGetPcieReplayCounter": lambda gpu: gpu.replays,
    "nvmlDeviceGetMinorNumber": lambda gpu: gpu.minor,
    "nvmlDeviceGetComputeRunningProcesses_v3": lambda gpu: [SimpleNamespace(pid=pid) for pid in gpu.pids],
    "nvmlDeviceGetComputeRunningProcesses_v2": lambda gpu: [SimpleNamespace(pid=pid) for pid in gpu.pids],
    "nvmlDeviceGetP2PStatus": lambda gpu, peer, _index: _p2p_status(gpu, peer),
    "nvmlDeviceGetSamples": lambda gpu, _kind, stamp_us: gpu.samples_after(stamp_us),
    "nvmlDeviceGetFieldValues": lambda gpu, numbers: gpu.field_values(numbers),
}


@dataclass(frozen=True, slots=True)
class Handle:
    """Good for one GPU in one session, as the real pointers are."""

    gpu: FakeGpu
    session: int


class FakeNvml:
    """The module. `init_error` is the answer to nvmlInit alone, `driver_error` the answer to everything."""

    def __init__(self, gpus: list[FakeGpu]) -> None:
        self.gpus = gpus  # in index order
        self.missing: set[str] = set()
        self.init_error = 0
        self.driver_error = 0
        self.version = "580.159.04"
        self.calls: list[tuple[str, str]] = []  # function, bus id ("" when it is about no GPU)
        self.before_call: Callable[[str], None] = lambda _function: None  # let time pass, pull the plug
        self._session = 0
        self._open = False

    @classmethod
    def with_gpus(cls, count: int) -> FakeNvml:
        """GPUs at 0000:11:00.0 and up, each with a UUID and a serial of its own."""
        return cls(
            [
                FakeGpu(f"00000000:{0x11 + n:02X}:00.0", uuid=f"GPU-00000000-0000-0000-0000-{n + 1:012d}", serial=f"{n + 1:013d}", minor=n)
                for n in range(count)
            ]
        )

    def count(self, function: str, gpu: FakeGpu | None = None) -> int:
        """How often `function` was called, on `gpu` alone if one is given."""
        return sum(name == function and (gpu is None or bus_id == gpu.bus_id) for name, bus_id in self.calls)

    def nvmlInit(self) -> None:  # noqa: N802 - the library's own names
        self._enter("nvmlInit", "")
        self._raise(self.init_error)
        self._session += 1
        self._open = True

    def nvmlShutdown(self) -> None:  # noqa: N802
        self._enter("nvmlShutdown", "")
        self._open = False

    def nvmlSystemGetDriverVersion(self) -> str:  # noqa: N802
        self._enter("nvmlSystemGetDriverVersion", "")
        return self.version

    def nvmlDeviceGetCount(self) -> int:  # noqa: N802
        """Counts those that cannot be opened as well, as the real one does."""
        self._enter("nvmlDeviceGetCount", "")
        return len(self.gpus)

    def nvmlDeviceGetHandleByIndex(self, index: int) -> Handle:  # noqa: N802
        return self._handle("nvmlDeviceGetHandleByIndex", self.gpus[index])

    def nvmlDeviceGetHandleByPciBusId(self, bus_id: str) -> Handle:  # noqa: N802
        here = [gpu for gpu in self.gpus if gpu.bus_id == bus_id]
        if not here:
            self._enter("nvmlDeviceGetHandleByPciBusId", bus_id)
            self._raise(pynvml.NVML_ERROR_NOT_FOUND)
        return self._handle("nvmlDeviceGetHandleByPciBusId", here[0])

    def __getattr__(self, name: str) -> Callable[..., Any]:
        if name not in DEVICE_FUNCTIONS:
            raise AttributeError(name)
        return partial(self._on_device, name)

    def _on_device(self, name: str, handle: object, *arguments: Any) -> Any:
        if not isinstance(handle, Handle) or handle.session != self._session or handle.gpu not in self.gpus:
            raise Crash(f"{name} with a handle that is not valid (any more)")
        if any(isinstance(other, Handle) and (other.session != self._session or other.gpu not in self.gpus) for other in arguments):
            raise Crash(f"{name} with a peer's handle that is not valid (any more)")
        self._enter(name, handle.gpu.bus_id)
        self._answer_for(handle.gpu, name)
        return DEVICE_FUNCTIONS[name](handle.gpu, *arguments)

    def _handle(self, name: str, gpu: FakeGpu) -> Handle:
        self._enter(name, gpu.bus_id)
        self._answer_for(gpu, name)
        return Handle(gpu, self._session)

    def _enter(self, name: str, bus_id: str) -> None:
        self.before_call(name)
        self.calls.append((name, bus_id))
        self._raise(self.driver_error)
        if name != "nvmlInit" and not self._open:
            self._raise(pynvml.NVML_ERROR_UNINITIALIZED)
        if name in self.missing:
            self._raise(pynvml.NVML_ERROR_FUNCTION_NOT_FOUND)

    def _answer_for(self, gpu: FakeGpu, name: str) -> None:
        self._raise(gpu.lost)
        code, times = gpu.errors.get(name, (0, 0))
        if times > 0:
            gpu.errors[name] = [code, times - 1]
            self._raise(code)

    @staticmethod
    def _raise(code: int) -> None:
        if code:
            raise pynvml.NVMLError(code)
