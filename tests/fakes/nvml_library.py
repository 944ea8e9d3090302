"""The fake `libnvidia-ml.so.1` (`nvml_c/`): how it is built, told what to be, and asked what was asked of it.

    library = NvmlLibrary(build(folder), folder)     # in tests: the fixture `nvml_library`
    library.gpu(1, every="error 15")                 # one GPU of four is lost
    library.driver(nvmlInitWithFlags="error 9")      # the kernel module is not loaded
    library.gpu(2, nvmlDeviceGetPowerUsage="abort")  # None takes a setting back
    library.count("nvmlDeviceGetSamples", gpu=0)     # while whoever loaded it runs

A process whose environment has `library.environment` loads it through the real binding. What can be set: the head of
`nvml_c/state.c`. By hand, for a container or a virtual machine (the library then looks in /run/nvml-fake):

    python -m tests.fakes.nvml_library FOLDER [FUNCTION-TO-LEAVE-OUT ...]
"""

from __future__ import annotations

import shutil
import struct
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

SOURCES = Path(__file__).with_name("nvml_c")
SONAME = "libnvidia-ml.so.1"
FLAGS = ("-std=c11", "-O1", "-g", "-fPIC", "-fvisibility=hidden", "-Wall", "-Wextra", "-Werror", "-Wl,-z,defs")
COMPILE_SECONDS = 60.0

FIRST_BUS = 0x11
VERSION = "580.159.04"
GPU = {
    "name": "NVIDIA Fake",
    "vbios": "96.00.A5.00.1A",
    "power_mw": "250000",
    "energy_mj": "4339664",
    "energy_rate_mw": "250000",
    "limit_mw": "350000",
    "default_limit_mw": "400000",
    "temperature_c": "61",
    "clock_sm_mhz": "1980",
    "clock_memory_mhz": "3201",
    "utilisation_percent": "97",
    "memory_used_bytes": "644939776",
    "memory_total_bytes": str(24 << 30),
    "event_reasons": "0x4",
    "performance_state": "0",
    "link_generation": "5",
    "link_width": "16",
    "replays": "3",
    "compute_pids": "",
    "p2p_status": "0",
    "field.186": "251000",
    "field.82": "37",
    "field.230": "0",
    "trace": "constant 250000",
}
"""A GPU that is well and at work; address, UUID and serial come with its number."""

_HEADER = struct.Struct("Q")
_ROW = struct.Struct("56s17Q")  # function, calls on no GPU, calls on GPU 0 to 15


def compiler() -> str | None:
    """A C compiler, if there is one."""
    return shutil.which("cc") or shutil.which("gcc")


def build(folder: Path, without: Sequence[str] = ()) -> Path:
    """Compile the library into a folder, which is returned; `without`: functions that an older driver does not have.

    Raises CalledProcessError with the compiler's words.
    """
    folder.mkdir(parents=True, exist_ok=True)
    options: list[str] = []
    if without:
        script = folder / "without.map"
        script.write_text("{ local: " + " ".join(f"{name};" for name in without) + " };\n")
        options = [f"-Wl,--version-script={script}"]
    sources = [str(path) for path in sorted(SOURCES.glob("*.c"))]
    command = [compiler() or "cc", *FLAGS, *options, "-shared", f"-Wl,-soname,{SONAME}", "-o", str(folder / SONAME), *sources]
    done = subprocess.run(command, capture_output=True, text=True, timeout=COMPILE_SECONDS, check=False)
    if done.returncode:
        raise subprocess.CalledProcessError(done.returncode, command, done.stdout, done.stderr)
    return folder


def bus_id(number: int, first_bus: int = FIRST_BUS) -> str:
    """As NVML spells the address of the GPU with that number: 00000000:11:00.0 and up."""
    return f"00000000:{first_bus + number:02X}:00.0"


def _well(number: int, first_bus: int) -> dict[str, str]:
    identity = {
        "bus_id": bus_id(number, first_bus),
        "uuid": f"GPU-00000000-0000-0000-0000-{number + 1:012d}",
        "serial": f"{number + 1:013d}",
        "minor_number": str(number),
    }
    return {**identity, **GPU}


class NvmlLibrary:
    """One driver with its GPUs, as all processes see it that have its environment. Every change is there at once, as a whole."""

    def __init__(self, built: Path, folder: Path, gpus: int = 4, first_bus: int = FIRST_BUS) -> None:
        self.environment = {"LD_LIBRARY_PATH": str(built), "NVML_FAKE": str(folder)}
        self._folder = folder
        self._driver = {"driver_version": VERSION, "library_version": VERSION}
        self._gpus = [_well(number, first_bus) for number in range(gpus)]
        self._publish()

    # --- what it is

    def driver(self, **settings: object) -> None:
        """Settings and rules of the driver as a whole; None takes one back."""
        _change(self._driver, settings)
        self._publish()

    def gpu(self, number: int, **settings: object) -> None:
        """Settings and rules of one GPU; None takes one back."""
        _change(self._gpus[number], settings)
        self._publish()

    def every_gpu(self, **settings: object) -> None:
        """The same for all of them, at the same moment."""
        for gpu in self._gpus:
            _change(gpu, settings)
        self._publish()

    def remove(self, number: int) -> None:
        """Take a GPU off the bus: the driver no longer counts it, and its handles are good for a crash."""
        del self._gpus[number]
        self._publish()

    def _publish(self) -> None:
        sections = [_lines(self._driver), *("[gpu]\n" + _lines(gpu) for gpu in self._gpus)]
        self._write("\n".join(sections))

    def _write(self, state: str) -> None:
        beside = self._folder / "state.new"
        beside.write_text(state)
        beside.rename(self._folder / "state")

    def _counters(self) -> bytes:
        path = self._folder / "calls"
        return path.read_bytes() if path.exists() else b""

    # --- what was asked of it

    def calls(self) -> dict[str, tuple[int, ...]]:
        """By function: calls on no GPU, on GPU 0, on GPU 1, ... since the folder was made, of all processes together."""
        data = self._counters() or bytes(_HEADER.size)
        (rows,) = _HEADER.unpack_from(data)
        found: dict[str, tuple[int, ...]] = {}
        for number in range(rows):
            name, *counts = _ROW.unpack_from(data, _HEADER.size + number * _ROW.size)
            function = name.partition(b"\0")[0].decode()
            before = found.get(function, (0,) * len(counts))
            found[function] = tuple(map(sum, zip(before, counts, strict=True)))
        return found

    def count(self, function: str, gpu: int | None = None) -> int:
        """How often a function was called; on one GPU only, by its place in index order, if one is given."""
        counts = self.calls().get(function, (0,) * 17)
        return sum(counts) if gpu is None else counts[gpu + 1]

    def total(self) -> int:
        """How often anything was called."""
        return sum(map(sum, self.calls().values()))


def _change(settings: dict[str, str], changes: dict[str, object]) -> None:
    for key, value in changes.items():
        settings.pop(key, None)
        if value is not None:
            settings[key] = str(value)


def _lines(settings: dict[str, str]) -> str:
    return "".join(f"{key} = {value}\n" for key, value in settings.items())


if __name__ == "__main__":
    if len(sys.argv) == 1:
        sys.exit("usage: python -m tests.fakes.nvml_library FOLDER [FUNCTION-TO-LEAVE-OUT ...]")
    print(build(Path(sys.argv[1]), sys.argv[2:]) / SONAME)
