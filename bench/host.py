"""The host that is measured: any number of GPUs behind the real NVML probe, any number of functions in a sysfs tree.

0000:00:01.0 root port - 10:00.0 switch - 11:00.0 ... 11:03.0 - 12:00.0 ... 15:00.0 GPUs      four to a switch
0000:00:02.0 root port - 20:00.0 switch - ...
0000:00:08.0 root port - 80:00.0 drive                                                       the rest: drives
"""

from __future__ import annotations

import time
from array import array
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pynvml

from tests.fakes.nvml import BUFFER_ENTRIES, UNSIGNED_INT, FakeGpu, FakeNvml
from tests.fakes.sysfs import SysfsTree
from xidwatch.probes.base import Ask, Emit, Probe
from xidwatch.probes.nvml import NvmlProbe

GPUS_PER_SWITCH = 4
SAMPLE_MICROSECONDS = 20_000
FIRST_SWITCH = "0000:10:00.0"
IDLE_MILLIWATTS, WORK_MILLIWATTS = 40_000, 250_000  # of a limit of 350 W


@dataclass(frozen=True, slots=True)
class Host:
    """What the daemon finds. `real`: this machine's own GPUs and bus instead, whatever there is."""

    gpus: int = 8
    functions: int = 64  # ports, GPUs and drives together: all of them are read at every tick
    real: bool = False
    working: bool = False  # the GPUs draw what they draw at work

    def __str__(self) -> str:
        return "this host" if self.real else f"{self.gpus} GPU{'s' if self.gpus > 1 else ''}, {self.functions} functions"


def gpu_address(number: int) -> str:
    """Where the fake GPU of that number answers."""
    switch, port = divmod(number, GPUS_PER_SWITCH)
    return f"0000:{0x10 * (switch + 1) + 2 + port:02x}:00.0"


def build_tree(root: Path, host: Host) -> SysfsTree:
    """Raises ValueError when the GPUs and the bridges above them come to more functions than asked for."""
    tree = SysfsTree(root)
    built = sum(_build_switch(tree, first, min(GPUS_PER_SWITCH, host.gpus - first)) for first in range(0, host.gpus, GPUS_PER_SWITCH))
    if built > host.functions:
        raise ValueError(f"{host.gpus} GPUs need {built} functions, {host.functions} were asked for")
    for number in range((host.functions - built) // 2):
        port = tree.bridge(f"0000:00:{8 + number // 8:02x}.{number % 8}", secondary=0x80 + number)
        tree.nvme(f"0000:{0x80 + number:02x}:00.0", port)
    if (host.functions - built) % 2:
        tree.bridge("0000:00:1f.0", secondary=0xFF)
    return tree


def _build_switch(tree: SysfsTree, first: int, gpus: int) -> int:
    """A root port, a switch and its GPUs; how many functions that is."""
    bus = 0x10 * (first // GPUS_PER_SWITCH + 1)
    last = bus + 1 + gpus
    root_port = tree.bridge(f"0000:00:{bus >> 4:02x}.0", secondary=bus, subordinate=last)
    switch = tree.bridge(f"0000:{bus:02x}:00.0", root_port, port_type="upstream", secondary=bus + 1, subordinate=last)
    for port in range(gpus):
        above = tree.bridge(f"0000:{bus + 1:02x}:{port:02x}.0", switch, port_type="downstream", secondary=bus + 2 + port)
        tree.gpu(gpu_address(first + port), above)
    return 2 + 2 * gpus


class _LiveGpu(FakeGpu):
    """Its sample buffer fills by 50 entries a second, as a real one's does. The answer costs no more than pynvml's own."""

    def samples_after(self, stamp_us: int) -> tuple[int, list[Any]]:
        newest = time.time_ns() // 1000 // SAMPLE_MICROSECONDS * SAMPLE_MICROSECONDS
        oldest = newest - (BUFFER_ENTRIES - 1) * SAMPLE_MICROSECONDS
        first = max(oldest, stamp_us // SAMPLE_MICROSECONDS * SAMPLE_MICROSECONDS + SAMPLE_MICROSECONDS)
        stamps = range(first, newest + 1, SAMPLE_MICROSECONDS)
        if not stamps:
            raise pynvml.NVMLError(pynvml.NVML_ERROR_NOT_FOUND)
        words = array("Q", bytes(16 * len(stamps)))  # pairs of stamp and value
        words[::2] = array("Q", stamps)
        words[1::2] = array("Q", [self.power_milliwatts]) * len(stamps)
        return UNSIGNED_INT, (pynvml.c_nvmlSample_t * len(stamps)).from_buffer_copy(words)[:]


def fake_nvml(gpus: int, *, working: bool) -> FakeNvml:
    """The library with that many GPUs where `build_tree` has put them."""
    milliwatts = WORK_MILLIWATTS if working else IDLE_MILLIWATTS
    return FakeNvml(
        [
            _LiveGpu(
                f"0000{gpu_address(n)}".upper(),
                uuid=f"GPU-00000000-0000-0000-0000-{n + 1:012d}",
                serial=f"{n + 1:013d}",
                power_milliwatts=milliwatts,
            )
            for n in range(gpus)
        ]
    )


class _BenchNvml(NvmlProbe):
    """The shipped probe. What the fake keeps for tests (every call) is forgotten, or memory would be the fake's."""

    def __init__(self, gpus: int, *, working: bool) -> None:
        self._fake = fake_nvml(gpus, working=working)
        super().__init__(self._fake)

    def sample(self, ask: Ask, emit: Emit) -> None:
        """With energy counters that move."""
        for gpu in self._fake.gpus:
            gpu.energy_millijoules = int(time.monotonic() * gpu.power_milliwatts)
        super().sample(ask, emit)
        self._fake.calls.clear()

    def between(self) -> None:
        """As the real one."""
        super().between()
        self._fake.calls.clear()


def create(options: Mapping[str, object]) -> Probe:
    """Options: `gpus`, their number; `working`, whether they do."""
    return _BenchNvml(int(str(options["gpus"])), working=bool(options["working"]))
