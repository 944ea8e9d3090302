"""The host probe over a folder that looks like /proc."""

from __future__ import annotations

import errno
from collections.abc import Mapping
from pathlib import Path

import psutil
import pytest
from hypothesis import given
from hypothesis import strategies as st

from xidwatch.core.model import HOST, Missing, Subject, Value
from xidwatch.core.quantities import BY_NAME
from xidwatch.probes.base import Ask, Probe
from xidwatch.probes.host import busy_ratio, create, reading, some_avg10

ASK = Ask(deadline=1e9)
PRESSURE = "some avg10={} avg60=0.00 avg300=0.02 total=1951530\nfull avg10=99.00 avg60=0.00 avg300=0.00 total=0\n"
STAT = "cpu  {} 0 {} {} {} 0 0 0 {} 0\nintr 1 2 3\nctxt 12\nprocs_running 2\nprocs_blocked 3\n"
MEMINFO = """\
MemTotal:           1000 kB
MemFree:             100 kB
MemAvailable:        400 kB
Buffers:               1 kB
Cached:              200 kB
Active:              300 kB
Inactive:             90 kB
Shmem:                 2 kB
SwapTotal:            64 kB
SwapFree:             24 kB
"""
FILES = {
    "loadavg": "12.50 8.10 4.04 3/840 7357\n",
    "uptime": "1141.64 2196.32\n",
    "stat": STAT.format(1000, 500, 8000, 500, 0),
    "meminfo": MEMINFO,
    "vmstat": "pswpin 1\npswpout 2\n",
    "pressure/cpu": PRESSURE.format("25.00"),
    "pressure/memory": PRESSURE.format("0.00"),
    "pressure/io": PRESSURE.format("87.42"),
}


class Emitted:
    """What a probe said, latest last."""

    def __init__(self) -> None:
        self.values: dict[str, Value] = {}
        self.touched: list[Subject] = []

    def at(self, subject: Subject) -> None:
        self.touched.append(subject)

    def reading(self, subject: Subject, quantity: str, value: Value) -> None:
        assert subject == HOST
        self.values[quantity] = value


@pytest.fixture
def proc(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A small /proc; psutil's own switch is put back afterwards."""
    monkeypatch.setattr(psutil, "PROCFS_PATH", "/proc")
    for name, text in FILES.items():
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
    return tmp_path


def sampled(probe: Probe) -> dict[str, Value]:
    emitted = Emitted()
    probe.sample(ASK, emitted)
    return emitted.values


def test_every_file_is_read_in_its_unit(proc: Path) -> None:
    """Load, memory, swap, pressure as a ratio, blocked tasks and uptime come out in the units their names give."""
    assert sampled(create({"proc_root": str(proc)})) == {
        "cpu_busy_ratio": Missing.NOT_ASKED,
        "memory_available_bytes": 400 * 1024,
        "swap_used_bytes": 40 * 1024,
        "load_1m": 12.5,
        "uptime_seconds": 1141.64,
        "tasks_blocked": 3,
        "pressure_cpu_ratio": 0.25,
        "pressure_memory_ratio": 0.0,
        "pressure_io_ratio": pytest.approx(0.8742),
    }


def test_a_host_to_be_left_out_is_not_read(proc: Path) -> None:
    """A process is stuck at one of its files: the next one touches none of them, and says of each that it was not asked."""
    emitted = Emitted()
    create({"proc_root": str(proc)}).sample(Ask(deadline=1e9, skip=frozenset({"host"})), emitted)
    assert not emitted.touched
    assert emitted.values == dict.fromkeys(sampled(create({"proc_root": str(proc)})), Missing.NOT_ASKED)


def test_cpu_time_is_measured_between_two_ticks(proc: Path) -> None:
    """Three of four CPU seconds spent outside idle and I/O wait are 75 %; guest time is not counted twice."""
    probe = create({"proc_root": str(proc)})
    assert sampled(probe)["cpu_busy_ratio"] is Missing.NOT_ASKED
    (proc / "stat").write_text(STAT.format(1000 + 200, 500 + 100, 8000 + 75, 500 + 25, 200))
    assert sampled(probe)["cpu_busy_ratio"] == pytest.approx(0.75)


def test_no_cpu_time_between_two_readings_is_no_idle_machine(proc: Path) -> None:
    """Two readings with the same counters say nothing, not 0."""
    probe = create({"proc_root": str(proc)})
    sampled(probe)
    assert sampled(probe)["cpu_busy_ratio"] is Missing.NOT_ASKED


@pytest.mark.parametrize(
    ("name", "quantities"),
    [
        ("pressure/cpu", {"pressure_cpu_ratio"}),
        ("pressure/memory", {"pressure_memory_ratio"}),
        ("pressure/io", {"pressure_io_ratio"}),
        ("loadavg", {"load_1m"}),
        ("uptime", {"uptime_seconds"}),
        ("stat", {"tasks_blocked", "cpu_busy_ratio"}),
        ("meminfo", {"memory_available_bytes", "swap_used_bytes"}),
    ],
)
def test_a_file_the_kernel_lacks_is_unsupported_and_takes_nothing_with_it(proc: Path, name: str, quantities: set[str]) -> None:
    """Without PSI, say, the pressures are UNSUPPORTED and all else is read."""
    (proc / name).unlink()
    values = sampled(create({"proc_root": str(proc)}))
    assert {quantity for quantity, value in values.items() if value is Missing.UNSUPPORTED} == quantities


@pytest.mark.parametrize(
    ("name", "quantity"),
    [("loadavg", "load_1m"), ("uptime", "uptime_seconds"), ("stat", "tasks_blocked"), ("pressure/io", "pressure_io_ratio")],
)
@pytest.mark.parametrize("text", ["", "\n", "some\n", "some avg10=\n", "some total\n", "procs_blocked\n", "\xff\xfe"])
def test_a_file_that_makes_no_sense_is_malformed(proc: Path, name: str, quantity: str, text: str) -> None:
    """Empty, cut short or rubbish: MALFORMED, never 0 and never an exception."""
    probe = create({"proc_root": str(proc)})
    probe.sample(ASK, Emitted())
    (proc / name).write_bytes(text.encode("latin-1"))
    assert sampled(probe)[quantity] is Missing.MALFORMED


@pytest.mark.parametrize(
    ("code", "reason"),
    [
        (errno.ENOENT, Missing.UNSUPPORTED),
        (errno.EOPNOTSUPP, Missing.UNSUPPORTED),
        (errno.EACCES, Missing.DENIED),
        (errno.EPERM, Missing.DENIED),
        (errno.EIO, Missing.MALFORMED),
    ],
)
def test_an_error_keeps_its_reason(code: int, reason: Missing) -> None:
    """A switched-off pressure file, a sandbox and a broken read are told apart."""

    def refuse() -> Value:
        raise OSError(code, "no")

    assert reading(refuse) is reason


def test_only_quantities_of_the_table_are_emitted(proc: Path) -> None:
    """Whatever the probe reports has a name, a meaning and a source in the one table."""
    assert set(sampled(create({"proc_root": str(proc)}))) <= set(BY_NAME)


def test_look_says_nothing(proc: Path) -> None:
    """The host is no device that could stop answering."""
    probe = create({"proc_root": str(proc)})
    emitted = Emitted()
    probe.look(ASK, emitted)
    assert not emitted.values
    assert not emitted.touched
    assert probe.between_seconds is None


def test_this_very_host_can_be_read() -> None:
    """The real /proc answers with numbers that can be true."""
    values = sampled(create({}))
    assert isinstance(values["memory_available_bytes"], int)
    assert values["memory_available_bytes"] > 0
    assert isinstance(values["uptime_seconds"], float)
    assert values["uptime_seconds"] > 0
    assert isinstance(values["tasks_blocked"], int)


KINDS = st.dictionaries(st.sampled_from(["user", "system", "idle", "iowait", "steal", "guest"]), st.floats(0, 1e6), min_size=1)


@given(before=KINDS, after=KINDS)
def test_a_busy_ratio_is_a_ratio(before: Mapping[str, float], after: Mapping[str, float]) -> None:
    """Whatever the counters do, even run backwards, the share stays within 0 and 1 or is not claimed."""
    value = busy_ratio(before, after)
    assert value is Missing.NOT_ASKED or (isinstance(value, float) and -1e-9 <= value <= 1 + 1e-9)


@given(st.text())
def test_any_pressure_text_is_a_number_or_malformed(text: str) -> None:
    """No text makes the reader fail in a way the probe does not catch."""
    value = reading(lambda: some_avg10(text))
    assert isinstance(value, float | Missing)
