"""The NVIDIA driver of a fixture, as the probe asks it: something that looks like the module pynvml and answers what it was told.

Power is told in watts and stays until told otherwise. From it come the energy counter and the driver's buffer of the latest 119
samples: `sample_ms` apart, each a little off, and one in every second at `peak_watts`. An H200 keeps one every 20 ms (driver 580);
the default is coarser, since a night at 20 ms is mostly samples.

Law: answers and errors alone; nothing here knows what they mean. Source: NVML API reference (docs.nvidia.com/deploy/nvml-api).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, fields
from functools import partial
from types import SimpleNamespace
from typing import Any, NamedTuple

import pynvml

from xidwatch.replay.clock import VirtualClock

KEPT_SAMPLES = 119
WOBBLE = 0.015  # of the draw, what the samples are off
CORE, SM_CLOCK = 0, 1
INSTANT_POWER, MEMORY_CELSIUS, RECOVERY_ACTION = 186, 82, 230
NO_PEER = 5  # NVML_P2P_STATUS_NOT_SUPPORTED


@dataclass(slots=True)
class Board:
    """One GPU, in the units that a fixture is written in. A negative number: this board does not report it."""

    bus_id: str
    uuid: str
    minor: int
    serial: str = ""
    name: str = "NVIDIA GeForce RTX 3090"
    vbios: str = "94.02.42.00.b4"
    watts: float = 28.0
    peak_watts: float = 0.0
    limit_watts: float = 350.0
    default_limit_watts: float = 350.0
    celsius: int = 38
    memory_celsius: int = -1
    sm_mhz: int = 210
    memory_mhz: int = 405
    utilisation: float = 0.0
    memory_used_gib: float = 0.25
    reasons: int = 0x1
    pstate: int = 8
    generation: int = 4
    width: int = 16
    replays: int = 0
    recovery_action: int = -1
    p2p: int = -1  # nvmlGpuP2PStatus_t from it to every other: 0 OK
    sample_ms: int = 100  # 0: the driver keeps none
    lost: int = 0  # 15 or 16, the answer to everything
    energy_joules: float = 0.0
    told: list[tuple[float, float, float]] = field(default_factory=list)  # monotonic seconds, watts, peak: since when

    def note(self, mono: float) -> None:
        """Its draw is what it is from here on."""
        if self.told:
            since, watts, _ = self.told[-1]
            self.energy_joules += watts * (mono - since)
        self.told = [*self.told[-8:], (mono, self.watts, self.peak_watts)]

    def millijoules(self, mono: float) -> int:
        """The counter."""
        since, watts, _ = self.told[-1]
        return round((self.energy_joules + watts * (mono - since)) * 1000)

    def milliwatts(self, milliseconds: int) -> int:
        """The sample so long after boot."""
        at = milliseconds / 1000
        place = len(self.told) - 1
        while place and self.told[place][0] > at:
            place -= 1
        _, watts, peak = self.told[place]
        if peak and milliseconds % 1000 == 0:
            return round(peak * 1000)
        return round(watts * 1000 * (1 + WOBBLE * (milliseconds * 7919 // 20 % 21 - 10) / 10))


NUMBERS = {each.name: each.type for each in fields(Board) if each.type in ("int", "float") and each.name not in ("minor", "energy_joules")}
TEXTS = ("uuid", "serial", "name", "vbios")
SETTABLE = (*NUMBERS, *TEXTS)


class _Union(NamedTuple):
    """As nvmlValue_t, of which only this is looked at."""

    uiVal: int  # noqa: N815  the library's own name


class _Sample(NamedTuple):
    """As nvmlSample_t: microseconds of the wall clock, milliwatts."""

    timeStamp: int  # noqa: N815
    sampleValue: _Union  # noqa: N815


class Library:
    """The module. `error`: the answer to everything, 0 for none. A handle is good for one board and one session."""

    def __init__(self, version: str) -> None:
        self.version = version
        self.error = 0
        self.boards: list[Board] = []  # in index order
        self.holders: Callable[[Board], list[int]] = lambda _board: []  # the processes on one
        self._clock: VirtualClock | None = None

    def begin(self, clock: VirtualClock) -> None:
        """A boot: counters start anew."""
        self._clock = clock
        for board in self.boards:
            board.energy_joules, board.told = 0.0, []
            board.note(clock.mono())

    def set(self, board: Board, name: str, value: str) -> None:
        """One thing about one board. Raises ValueError for what is no number where one is needed."""
        kind = NUMBERS.get(name)
        setattr(board, name, value if kind is None else int(value, 0) if kind == "int" else float(value))
        if self._clock is not None:
            board.note(self._clock.mono())

    def __getattr__(self, name: str) -> Callable[..., Any]:
        if name in _OF_DRIVER:
            return partial(self._answer, None, _OF_DRIVER[name], self)
        if name in _OF_BOARD:
            return lambda board, *arguments: self._answer(board, _OF_BOARD[name], board, *arguments)
        raise AttributeError(name)

    def _answer(self, board: Board | None, answer: Callable[..., Any], *arguments: Any) -> Any:
        for code in (self.error, board.lost if board else 0):
            if code:
                raise pynvml.NVMLError(code)
        return answer(*arguments) if board is None else answer(self, *arguments)

    def _by_index(self, index: int) -> Board:
        board = self.boards[index]
        return self._answer(board, lambda _self, found: found, board)  # type: ignore[no-any-return]

    def _by_bus_id(self, bus_id: str) -> Board:
        for board in self.boards:
            if board.bus_id == bus_id:
                return self._answer(board, lambda _self, found: found, board)  # type: ignore[no-any-return]
        raise pynvml.NVMLError(pynvml.NVML_ERROR_NOT_FOUND)

    def _p2p_status(self, board: Board, peer: Board) -> int:
        """As nvmlDeviceGetP2PStatus: of both ends; of itself a GPU is no peer."""
        if peer.lost:
            raise pynvml.NVMLError(peer.lost)
        return NO_PEER if peer is board else int(_reported(board.p2p))

    def _mono(self) -> float:
        return self._clock.mono() if self._clock else 0.0

    def _samples(self, board: Board, after_us: int) -> tuple[int, list[Any]]:
        """As nvmlDeviceGetSamples: those of a later millisecond, NOT_FOUND when there are none."""
        if not board.sample_ms or self._clock is None:
            raise pynvml.NVMLError(pynvml.NVML_ERROR_NOT_SUPPORTED)
        ahead_ms = round((self._clock.wall() - self._clock.mono()) * 1000)
        last = int(self._clock.mono() * 1000) // board.sample_ms
        first = max(0, last - KEPT_SAMPLES + 1, (after_us // 1000 - ahead_ms) // board.sample_ms + 1)
        times = range(first * board.sample_ms, last * board.sample_ms + 1, board.sample_ms)
        newer = [_Sample((ahead_ms + ms) * 1000, _Union(board.milliwatts(ms))) for ms in times]
        if not newer:
            raise pynvml.NVMLError(pynvml.NVML_ERROR_NOT_FOUND)
        return pynvml.NVML_VALUE_TYPE_UNSIGNED_INT, newer

    def _fields(self, board: Board, numbers: list[int]) -> Any:
        """As nvmlDeviceGetFieldValues: each element says for itself whether it was answered."""
        known = {INSTANT_POWER: round(board.watts * 1000), MEMORY_CELSIUS: board.memory_celsius, RECOVERY_ACTION: board.recovery_action}
        values = (pynvml.c_nvmlFieldValue_t * len(numbers))()
        for value, number in zip(values, numbers, strict=True):
            answer = known.get(number, -1)
            value.fieldId, value.valueType = number, pynvml.NVML_VALUE_TYPE_UNSIGNED_INT
            value.nvmlReturn = pynvml.NVML_ERROR_NOT_SUPPORTED if answer < 0 else 0
            value.timestamp = 1 + round(self._mono() * 1e6)
            value.value.uiVal = max(0, answer)
        return values


def _reported(value: Any) -> Any:
    """The value, or that this board does not report it."""
    if value == "" or (isinstance(value, int | float) and value < 0):
        raise pynvml.NVMLError(pynvml.NVML_ERROR_NOT_SUPPORTED)
    return value


_OF_DRIVER: dict[str, Callable[..., Any]] = {
    "nvmlInit": lambda _library: None,
    "nvmlShutdown": lambda _library: None,
    "nvmlSystemGetDriverVersion": lambda library: library.version,
    "nvmlDeviceGetCount": lambda library: len(library.boards),
    "nvmlDeviceGetHandleByIndex": Library._by_index,  # noqa: SLF001
    "nvmlDeviceGetHandleByPciBusId": Library._by_bus_id,  # noqa: SLF001
}
_OF_BOARD: dict[str, Callable[..., Any]] = {
    "nvmlDeviceGetPciInfo": lambda _, board: SimpleNamespace(busId=board.bus_id),
    "nvmlDeviceGetUUID": lambda _, board: board.uuid,
    "nvmlDeviceGetSerial": lambda _, board: _reported(board.serial),
    "nvmlDeviceGetName": lambda _, board: board.name,
    "nvmlDeviceGetVbiosVersion": lambda _, board: board.vbios,
    "nvmlDeviceGetMinorNumber": lambda _, board: board.minor,
    "nvmlDeviceGetPowerManagementDefaultLimit": lambda _, board: round(board.default_limit_watts * 1000),
    "nvmlDeviceGetPowerUsage": lambda _, board: round(board.watts * 1000),
    "nvmlDeviceGetTotalEnergyConsumption": lambda library, board: board.millijoules(library._mono()),  # noqa: SLF001
    "nvmlDeviceGetEnforcedPowerLimit": lambda _, board: round(board.limit_watts * 1000),
    "nvmlDeviceGetTemperatureV": lambda _, board, _sensor: board.celsius,
    "nvmlDeviceGetClockInfo": lambda _, board, clock: board.sm_mhz if clock == SM_CLOCK else board.memory_mhz,
    "nvmlDeviceGetUtilizationRates": lambda _, board: SimpleNamespace(gpu=round(board.utilisation * 100)),
    "nvmlDeviceGetMemoryInfo": lambda _, board: SimpleNamespace(used=round(board.memory_used_gib * 2**30)),
    "nvmlDeviceGetCurrentClocksEventReasons": lambda _, board: board.reasons,
    "nvmlDeviceGetPerformanceState": lambda _, board: board.pstate,
    "nvmlDeviceGetCurrPcieLinkGeneration": lambda _, board: board.generation,
    "nvmlDeviceGetCurrPcieLinkWidth": lambda _, board: board.width,
    "nvmlDeviceGetPcieReplayCounter": lambda _, board: board.replays,
    "nvmlDeviceGetComputeRunningProcesses_v3": lambda library, board: [SimpleNamespace(pid=pid) for pid in library.holders(board)],
    "nvmlDeviceGetP2PStatus": lambda library, board, peer, _index: library._p2p_status(board, peer),  # noqa: SLF001
    "nvmlDeviceGetSamples": lambda library, board, _kind, after_us: library._samples(board, after_us),  # noqa: SLF001
    "nvmlDeviceGetFieldValues": lambda library, board, numbers: library._fields(board, numbers),
}
