"""What a person reads while it runs: one line a tick, one line an edge."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from xidwatch.core.messages import KernelRecord, Output
from xidwatch.core.model import KERNEL, Condition, Missing, Readings, Sample, Severity, Status, Transition, Value
from xidwatch.core.rules import Rule
from xidwatch.core.ticks import Answer

MOST_NAMED = 4
NVML_LOST = (15, 16)  # GPU_IS_LOST, RESET_REQUIRED; any other code but 0 is an answer that was no answer, and no loss
QUIET = ("done", "failed", "not-asked")
PRIORITY = {Severity.INFO: 6, Severity.WARNING: 4, Severity.ERROR: 3, Severity.CRITICAL: 2}  # crit makes journald sync to disk


def tick(sample: Sample, verdict: str, answers: Iterable[Answer]) -> str:
    """`tick 12  healthy  4 GPUs  921 W (single peak 402 W)  max 61 C  9 ports  load 1.20  mem 120.3 GB free  Xid 0`.

    A probe that failed as a whole is not repeated here: it was said once. One that is late or broke off is.
    """
    readings = sample.readings
    parts = [f"tick {sample.tick}", verdict, *_gpus(readings), *_pci(readings), *_rails(readings), *_engines(readings), *_host(readings)]
    parts += [_kernel(readings), *_records(readings)]
    parts += [f"{answer.probe}: {answer.trouble or answer.ended}" for answer in answers if answer.left_out or answer.ended not in QUIET]
    return "  ".join(part for part in parts if part)


def _numbers(readings: Readings, kind: str, quantity: str) -> list[float]:
    values = (values.get(quantity, Missing.NOT_ASKED) for subject, values in readings.items() if subject.kind == kind)
    return [float(value) for value in values if isinstance(value, int | float)]


def _gpus(readings: Readings) -> list[str]:
    count = sum(1 for subject in readings if subject.kind == "gpu")
    if not count:
        return ["no GPUs"]
    parts = [f"{count} GPU{'s' if count > 1 else ''}"]
    power = _numbers(readings, "gpu", "power_mean_watts") or _numbers(readings, "gpu", "power_average_watts")
    if power:
        peaks = _numbers(readings, "gpu", "power_peak_watts")
        some = f" of {len(power)}" if len(power) < count else ""  # a sum over those that answered is not the sum
        parts.append(f"{sum(power):.0f} W{some}" + (f" (single peak {max(peaks):.0f} W)" if peaks else ""))
    temperatures = _numbers(readings, "gpu", "temperature_celsius")
    if temperatures:
        parts.append(f"max {max(temperatures):.0f} C")
    statuses = _numbers(readings, "gpu", "nvml_status")
    lost = sum(1 for status in statuses if status in NVML_LOST)
    refused = sum(1 for status in statuses if status) - lost
    return [*parts, *([f"{lost} LOST"] if lost else []), *([f"{refused} NVML ERROR"] if refused else [])]


def _pci(readings: Readings) -> list[str]:
    counts = {kind: sum(1 for s in readings if s.kind == kind) for kind in ("port", "nvme")}
    parts = [f"{count} {kind}{'s' if count > 1 and kind == 'port' else ''}" for kind, count in counts.items() if count]
    words = [v for kind in ("port", "gpu", "nvme") for v in _numbers(readings, kind, "config_dword0")]
    silent = sum(1 for word in words if int(word) == 0xFFFFFFFF)
    if silent:
        parts.append(f"{silent} NOT ANSWERING")
    return parts


def _rails(readings: Readings) -> list[str]:
    """`psu1_12v 12.10 V` of each while they are few; one that is missing is said in the journal."""
    volts = [(about.name, values.get("volts")) for about, values in sorted(readings.items()) if about.kind == "rail"]
    return [f"{name} {value:.2f} V" for name, value in volts if isinstance(value, int | float)][:MOST_NAMED]


def _engines(readings: Readings) -> list[str]:
    """`vllm active 3+1 requests`: running and waiting; without figures the state alone."""
    parts = []
    for about, values in sorted((about, values) for about, values in readings.items() if about.kind == "engine"):
        state, running, waiting = (values.get(name, Missing.NOT_ASKED) for name in ("active_state", "requests_running", "requests_waiting"))
        words = [about.name.removesuffix(".service"), *([] if isinstance(state, Missing) else [str(state)])]
        words += [f"{running}+{waiting} requests"] if isinstance(running, int) and isinstance(waiting, int) else []
        parts += [" ".join(words)] if len(words) > 1 else []
    return parts[:MOST_NAMED]


def _host(readings: Readings) -> list[str]:
    parts = [f"load {value:.2f}" for value in _numbers(readings, "host", "load_1m")]
    return parts + [f"mem {value / 1e9:.1f} GB free" for value in _numbers(readings, "host", "memory_available_bytes")]


def _records(readings: Readings) -> list[str]:
    """What has not reached the disk yet must not look recorded."""
    return [
        f"{subject.name}: RECORDS {late:.0f} s BEHIND"
        for subject, values in sorted(readings.items())
        if subject.kind == "probe" and subject.name.startswith("recorder") and (late := _number(values.get("stuck_seconds"))) > 0
    ]


def _number(value: Value | None) -> float:
    return float(value) if isinstance(value, int | float) else 0.0


def _kernel(readings: Readings) -> str:
    fresh = readings.get(KERNEL, {}).get("xid_lines_since_last_tick", Missing.NOT_ASKED)
    return "kernel log unreadable" if isinstance(fresh, Missing) else f"Xid {fresh}"


def causes_first(outputs: Iterable[Output]) -> Iterator[Output]:
    """The outputs of one step as a person reads them: a kernel line above what it brought.

    They are recorded the other way round, so that a record of the line on disk means that it was dealt with.
    """
    held: list[Output] = []
    for output in outputs:
        if isinstance(output, KernelRecord):
            yield output
            yield from held
            held = []
        else:
            held.append(output)
    yield from held


def bad_edge(edge: Transition) -> tuple[int, str]:
    """Priority and text of an edge to TRUE."""
    return PRIORITY[edge.severity], f"{edge.type} TRUE {edge.subject} (was {edge.before}): {edge.reason}"


def other_edges(transitions: Iterable[Transition]) -> list[str]:
    """The edges of one step that are not to TRUE: one line for those that share type, end and reason."""
    groups: dict[tuple[str, Status, str], list[str]] = {}
    for edge in transitions:
        if edge.after is not Status.TRUE:
            groups.setdefault((edge.type, edge.after, edge.reason), []).append(str(edge.subject))
    lines = []
    for (type_, after, reason), subjects in groups.items():
        more = f" and {len(subjects) - MOST_NAMED} more" if len(subjects) > MOST_NAMED else ""
        lines.append(f"{type_} {after} {', '.join(subjects[:MOST_NAMED])}{more}: {reason}")
    return lines


def worst(conditions: Iterable[tuple[Condition, Rule]]) -> str:
    """For `systemctl status`: `; GpuLost gpu:0000:11:00.0 and 8 more`, empty when nothing is TRUE."""
    bad = [(rule.severity.rank, condition) for condition, rule in conditions if condition.status is Status.TRUE]
    if not bad:
        return ""
    _, first = max(bad, key=lambda pair: (pair[0], -pair[1].since.mono))
    return f"; {first.type} {first.subject}" + (f" and {len(bad) - 1} more" if len(bad) > 1 else "")
