"""The peer: what a script would do with the same sources, in one process, without deadlines, judgement or durability.

`python -m bench.naive SYSFS GPUS SECONDS CSV` appends a row of the same readings every SECONDS until it is told to end.
"""

from __future__ import annotations

import csv
import os
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pynvml

from bench.host import fake_nvml
from tests.fakes.nvml import FakeNvml
from xidwatch.probes.nvml_table import CALLS, FIELDS, TOTAL_POWER_SAMPLES

ATTRIBUTES = (
    "power/runtime_status",
    "current_link_speed",
    "current_link_width",
    "aer_dev_correctable",
    "aer_dev_nonfatal",
    "aer_dev_fatal",
)
REGISTERS = (0x00, 0x04, 0x18)  # ids, command, bus numbers
HOST_FILES = ("loadavg", "meminfo", "stat", "uptime", "pressure/cpu", "pressure/memory", "pressure/io")


def functions(root: Path) -> list[Path]:
    """Every folder, once: the script does not look for what is new."""
    return sorted(path.resolve() for path in (root / "bus/pci/devices").iterdir())


def function_cells(folder: Path) -> Iterator[str]:
    """Three registers by reads of four bytes, six attributes, the driver."""
    config = os.open(folder / "config", os.O_RDONLY)
    for offset in REGISTERS:
        yield os.pread(config, 4, offset).hex()
    os.close(config)
    for name in ATTRIBUTES:
        yield (folder / name).read_text().split("\n")[-2]
    yield (folder / "driver").readlink().name


def gpu_cells(library: FakeNvml, handle: object) -> Iterator[object]:
    """The calls that the probe makes."""
    for call in CALLS:
        try:
            yield call.convert(getattr(library, call.function)(handle, *call.arguments))
        except pynvml.NVMLError as error:
            yield error.value
    for answer in library.nvmlDeviceGetFieldValues(handle, [row.number for row in FIELDS]):
        yield answer.value.uiVal
    _, samples = library.nvmlDeviceGetSamples(handle, TOTAL_POWER_SAMPLES, 0)
    yield max(sample.sampleValue.uiVal for sample in samples)


def host_cells() -> Iterator[str]:
    """The first line of each file that the host probe reads."""
    for name in HOST_FILES:
        yield (Path("/proc") / name).read_text().partition("\n")[0]


def main(root: str, gpus: str, interval: str, target: str) -> None:
    """Until a signal ends it."""
    folders = functions(Path(root))
    library = fake_nvml(int(gpus), working=False)
    library.nvmlInit()
    handles = [library.nvmlDeviceGetHandleByIndex(number) for number in range(int(gpus))]
    planned = time.monotonic()
    with Path(target).open("w", newline="") as file:
        writer = csv.writer(file)
        while True:
            row: list[object] = [time.time(), *host_cells()]
            row += [cell for folder in folders for cell in function_cells(folder)]
            row += [cell for handle in handles for cell in gpu_cells(library, handle)]
            writer.writerow(row)
            file.flush()
            library.calls.clear()
            planned += float(interval)
            time.sleep(max(0.0, planned - time.monotonic()))


if __name__ == "__main__":
    main(*sys.argv[1:])
