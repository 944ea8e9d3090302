"""What is asked of NVML and what its answers mean: tables and arithmetic, without the library.

Law: no call and no import of pynvml here. Numbers are those of nvml.h, part of its stable interface; a test holds
them against pynvml. Sources: NVML API reference (docs.nvidia.com/deploy/nvml-api), nvml.h.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from enum import IntEnum
from typing import Any

from xidwatch.core.model import Missing, Value

ANSWERED = 0  # nvml_status of a GPU that answered
PSTATE_UNKNOWN = 32
MOST_PIDS = 512
TOTAL_POWER_SAMPLES = 0
P2P_READ = 0  # NVML_P2P_CAPS_INDEX_READ, which the binding (13.615) has as the tuple (0,) and does not take back
P2P_OK, P2P_UNKNOWN = 0, 6  # nvmlGpuP2PStatus_t; what is between says why not


class Code(IntEnum):
    """The errors that are told apart here (nvmlReturn_t); NVML has more, and 0 is success."""

    UNINITIALIZED = 1
    INVALID_ARGUMENT = 2
    NOT_SUPPORTED = 3
    NO_PERMISSION = 4
    NOT_FOUND = 6
    DRIVER_NOT_LOADED = 9
    TIMEOUT = 10
    LIBRARY_NOT_FOUND = 12
    FUNCTION_NOT_FOUND = 13
    GPU_IS_LOST = 15
    RESET_REQUIRED = 16
    OPERATING_SYSTEM = 17
    LIB_RM_VERSION_MISMATCH = 18
    NO_DATA = 21
    ARGUMENT_VERSION_MISMATCH = 25
    DEPRECATED = 26
    GPU_NOT_FOUND = 28
    UNKNOWN = 999


# About this one GPU.
LOST = frozenset({Code.GPU_IS_LOST, Code.RESET_REQUIRED})
# About the driver as a whole.
SESSION_OVER = frozenset({Code.UNINITIALIZED, Code.DRIVER_NOT_LOADED, Code.LIB_RM_VERSION_MISMATCH})
# Neither says anything about the device, and both pass: worth one more try.
PASSING = frozenset({Code.TIMEOUT, Code.UNKNOWN})
# This driver will answer the same for as long as it is loaded.
PERMANENT = frozenset({Code.NOT_SUPPORTED, Code.FUNCTION_NOT_FOUND, Code.ARGUMENT_VERSION_MISMATCH, Code.DEPRECATED})
# Asked of two GPUs: an error does not say which of both is lost, their next lookups do.
OF_PAIRS = frozenset({"nvmlDeviceGetP2PStatus"})

REASONS: Mapping[int, Missing] = {
    **dict.fromkeys(PERMANENT, Missing.UNSUPPORTED),
    **dict.fromkeys(LOST, Missing.DEVICE_LOST),
    # Our arguments are constants from the header: a driver that refuses one does not know it.
    Code.INVALID_ARGUMENT: Missing.UNSUPPORTED,
    Code.NO_PERMISSION: Missing.DENIED,
    Code.OPERATING_SYSTEM: Missing.DENIED,
    Code.NOT_FOUND: Missing.ABSENT,
    Code.NO_DATA: Missing.ABSENT,
    Code.GPU_NOT_FOUND: Missing.ABSENT,
    Code.TIMEOUT: Missing.TIMED_OUT,
}

_SANDBOX = "the NVIDIA device files are out of reach: check DeviceAllow= of the unit and the modes of /dev/nvidia*"
ADVICE: Mapping[int, str] = {
    Code.LIBRARY_NOT_FOUND: "no NVIDIA driver library (libnvidia-ml.so.1): install the NVIDIA driver if this host has NVIDIA GPUs",
    Code.DRIVER_NOT_LOADED: "the nvidia kernel module is not loaded: `modprobe nvidia`; if that fails, the kernel log says why",
    Code.LIB_RM_VERSION_MISMATCH: "driver library and kernel module differ in version (half upgraded): reload the nvidia module or reboot",
    Code.NO_PERMISSION: _SANDBOX,
    Code.OPERATING_SYSTEM: _SANDBOX,
}


def reason_for(code: int) -> Missing:
    """Why a reading is missing when NVML answers `code`. A code that nobody foresaw is an answer not understood."""
    return REASONS.get(code, Missing.MALFORMED)


def advice(code: int, words: str) -> str:
    """One plain line for an error of the driver as a whole: what it means and what to do; `words` are NVML's own."""
    return ADVICE.get(code, f"NVML answered: {words} ({code}); the kernel log may say more")


# --- what is asked: one row a quantity


# NVML_VALUE_NOT_AVAILABLE (-1) as 32 and 64 bits have it; also what a register behind a bus that is dead reads as.
NOT_AVAILABLE = frozenset({0xFFFF_FFFF, 0xFFFF_FFFF_FFFF_FFFF})


def believed(answer: Any) -> Value:
    """The answer as it is, MALFORMED when it is all ones."""
    value: Value = answer
    return Missing.MALFORMED if value in NOT_AVAILABLE else value


def _watts(milliwatts: float) -> Value:
    return Missing.MALFORMED if milliwatts in NOT_AVAILABLE else milliwatts / 1000


def _utilisation(rates: Any) -> Value:
    return Missing.MALFORMED if rates.gpu in NOT_AVAILABLE else float(rates.gpu / 100)


def _pids(processes: Iterable[Any]) -> Value:
    """`572 579`, in order; a process with several contexts (MIG) once, one that our own namespace has no number for not at all."""
    pids = sorted({int(process.pid) for process in processes if process.pid})
    return " ".join(map(str, pids[:MOST_PIDS]))


def _performance_state(state: int) -> Value:
    return Missing.MALFORMED if state == PSTATE_UNKNOWN else state


@dataclass(frozen=True, slots=True)
class Call:
    """A quantity and the function that answers it; `older` is what drivers before it called the same thing."""

    quantity: str
    function: str
    arguments: tuple[int, ...] = ()
    convert: Callable[[Any], Value] = believed
    older: str = ""


@dataclass(frozen=True, slots=True)
class Field:
    """A quantity that NVML hands out by number; all of them are asked in one call."""

    quantity: str
    number: int
    convert: Callable[[Any], Value] = believed


_CORE, _SM, _MEMORY = 0, 1, 2  # NVML_TEMPERATURE_GPU, NVML_CLOCK_SM, NVML_CLOCK_MEM
POWER_AVERAGE = Call("power_average_watts", "nvmlDeviceGetPowerUsage", convert=_watts)
POWER_INSTANT = Field("power_instant_watts", 186, _watts)
CALLS = (
    POWER_AVERAGE,
    Call("power_limit_watts", "nvmlDeviceGetEnforcedPowerLimit", convert=_watts),
    Call("temperature_celsius", "nvmlDeviceGetTemperatureV", (_CORE,), older="nvmlDeviceGetTemperature"),
    Call("clock_sm_mhz", "nvmlDeviceGetClockInfo", (_SM,)),
    Call("clock_memory_mhz", "nvmlDeviceGetClockInfo", (_MEMORY,)),
    Call("utilisation_ratio", "nvmlDeviceGetUtilizationRates", convert=_utilisation),
    Call("memory_used_bytes", "nvmlDeviceGetMemoryInfo", convert=lambda memory: believed(int(memory.used))),
    Call("clock_event_reasons", "nvmlDeviceGetCurrentClocksEventReasons", older="nvmlDeviceGetCurrentClocksThrottleReasons"),
    Call("performance_state", "nvmlDeviceGetPerformanceState", convert=_performance_state),
    Call("nvml_link_generation", "nvmlDeviceGetCurrPcieLinkGeneration"),
    Call("nvml_link_width", "nvmlDeviceGetCurrPcieLinkWidth"),
    Call("pcie_replays", "nvmlDeviceGetPcieReplayCounter"),
    Call("compute_pids", "nvmlDeviceGetComputeRunningProcesses_v3", convert=_pids, older="nvmlDeviceGetComputeRunningProcesses_v2"),
)
FIELDS = (
    POWER_INSTANT,
    Field("temperature_memory_celsius", 82),
    Field("recovery_action", 230),
)
FACTS = (
    Call("minor_number", "nvmlDeviceGetMinorNumber"),
    Call("uuid", "nvmlDeviceGetUUID"),
    Call("serial", "nvmlDeviceGetSerial"),
    Call("name", "nvmlDeviceGetName"),
    Call("vbios", "nvmlDeviceGetVbiosVersion"),
    Call("mig_mode", "nvmlDeviceGetMigMode", convert=lambda modes: believed(int(modes[0]))),  # now; the other is after a reset
    Call("power_limit_default_watts", "nvmlDeviceGetPowerManagementDefaultLimit", convert=_watts),
)
PEAK = ("power_peak_watts", "power_samples")
SAMPLED = ("power_mean_watts", *(row.quantity for row in (*CALLS, *FIELDS)))
INVENTORIED = ("nvml_index", *(row.quantity for row in FACTS))

# Union members in the order of NVML_VALUE_TYPE_*.
_MEMBERS = ("dVal", "uiVal", "ulVal", "ullVal", "sllVal", "siVal", "usVal")


def number_in(value_type: int, union: Any) -> int | float | Missing:
    """The member of an nvmlValue_t that `value_type` names; MALFORMED for a type or a number that makes no sense."""
    if not 0 <= value_type < len(_MEMBERS):
        return Missing.MALFORMED
    value: int | float = getattr(union, _MEMBERS[value_type])
    return value if math.isfinite(value) and value not in NOT_AVAILABLE else Missing.MALFORMED
