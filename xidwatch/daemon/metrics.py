"""/metrics: a view of one immutable snapshot, served by threads of its own. A scrape never touches hardware.

The collector builds every family afresh, so that a value that is not there is not there: no series outlives its
reading. Identity is `pci_bus_id` in the kernel's form; everything else about a GPU is in `xidwatch_gpu_info`.
"""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from socketserver import TCPServer, ThreadingMixIn
from typing import Any
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer

from prometheus_client import CollectorRegistry, generate_latest, make_wsgi_app
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, InfoMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from xidwatch import __version__
from xidwatch.clock import Clock
from xidwatch.core.gate_model import GateState
from xidwatch.core.model import Condition, Missing, PciAddress, Readings, Status, Subject, Value
from xidwatch.records.state import EngineState

MOST_SCRAPES = 8  # at a time; for a ninth the oldest is hung up on, so that clients that dawdle keep no scraper out
MOST_THREADS = 2 * MOST_SCRAPES  # with those that are just being hung up on
CLIENT_SECONDS = 10.0  # a client that asks nothing for so long is hung up on
NEVER_SECONDS = 3600.0

VERDICTS = ("healthy", "degraded", "failed", "unknown")
NOT_THERE = frozenset({Missing.ABSENT, Missing.BEHIND_DEAD_PARENT, Missing.DEVICE_LOST})
NVML_LOST = (15, 16)  # GPU_IS_LOST, RESET_REQUIRED
GPU_FACTS = ("uuid", "name", "serial", "chain", "driver")
BY_ADDRESS = ("pci_bus_id",)
BY_GPU = ("pci_bus_id", "uuid")
GaugeTable = tuple[tuple[str, str, str], ...]  # quantity, metric, what it is
GPU_GAUGES: GaugeTable = (
    ("power_average_watts", "xidwatch_gpu_power_watts", "Draw averaged by the driver over 1 s"),
    ("power_mean_watts", "xidwatch_gpu_power_mean_watts", "Mean draw between the last two ticks, from the energy counter"),
    ("power_peak_watts", "xidwatch_gpu_power_peak_watts", "Highest 20 ms sample between the last two ticks"),
    ("power_limit_watts", "xidwatch_gpu_power_limit_watts", "Enforced power limit"),
    ("temperature_celsius", "xidwatch_gpu_temperature_celsius", "GPU core temperature"),
    ("utilisation_ratio", "xidwatch_gpu_utilisation_ratio", "Share of time with a kernel running"),
    (
        "recovery_action",
        "xidwatch_gpu_recovery_action",
        "What the driver asks for: 0 nothing, 1 reset, 2 reboot, 3 drain P2P, 4 drain and reset",
    ),
)
PORT_GAUGES: GaugeTable = (
    ("link_width", "xidwatch_pcie_link_width", "PCIe lanes now; 0 without a link"),
    ("link_gts", "xidwatch_pcie_link_transfers_per_second", "PCIe link speed of a lane now; idle GPUs slow down and that is no fault"),
)
RAIL_GAUGES: GaugeTable = (("volts", "xidwatch_rail_volts", "Voltage of a supply rail the operator has named"),)
ENGINE_GAUGES: GaugeTable = (
    ("requests_running", "xidwatch_engine_requests_running", "Requests an engine works on, by its own metrics"),
    ("requests_waiting", "xidwatch_engine_requests_waiting", "Requests that wait for their turn, by its own metrics"),
    ("prompt_tokens_per_second", "xidwatch_engine_prompt_tokens_per_second", "Mean rate of prompt tokens between the last two ticks"),
    (
        "generated_tokens_per_second",
        "xidwatch_engine_generated_tokens_per_second",
        "Mean rate of generated tokens between the last two ticks; llama.cpp counts them when a request ends",
    ),
    ("kv_cache_usage_ratio", "xidwatch_engine_kv_cache_usage_ratio", "Share of the key-value cache in use"),
    ("metrics_status", "xidwatch_engine_metrics_status", "HTTP status of its metrics"),
    ("processes", "xidwatch_engine_processes", "Processes in its control group"),
    ("resident_bytes", "xidwatch_engine_resident_bytes", "Sum of their resident memory"),
    ("processes_uninterruptible", "xidwatch_engine_processes_uninterruptible", "Processes with a thread in uninterruptible sleep"),
    ("uninterruptible_seconds", "xidwatch_engine_uninterruptible_seconds", "How long one of these threads has been found so at every tick"),
)
BY_UNIT = ("unit",)
GATE_STATES = tuple(str(state) for state in GateState)
MAY_START = {True: 1, False: 0, None: -1}
TO_BASE_UNIT = {"link_gts": 1e9}


@dataclass(frozen=True, slots=True)
class ProbeView:
    """How one probe does."""

    success: bool
    answered_mono: float | None  # monotonic time of the last full answer
    took_seconds: float
    stuck_seconds: float


@dataclass(frozen=True, slots=True)
class Snapshot:
    """Everything a scrape may show. Replaced as a whole, never changed."""

    verdict: str = "unknown"
    tick: int = 0
    sampled_mono: float | None = None
    sampled_wall: float = 0.0
    readings: Readings = field(default_factory=dict)
    inventory: Readings = field(default_factory=dict)
    conditions: tuple[Condition, ...] = ()
    xids: Mapping[tuple[PciAddress, int], int] = field(default_factory=dict)
    known_xids: tuple[int, ...] = ()
    probes: Mapping[str, ProbeView] = field(default_factory=dict)
    kernel_gap_records: int = 0
    ticks_missed: int = 0
    dumps: int = 0
    records_behind_seconds: float = 0.0
    incident_open: bool = False
    engines: Mapping[str, EngineState] = field(default_factory=dict)
    engine_starts: Mapping[str, int] = field(default_factory=dict)
    engine_stops: Mapping[str, int] = field(default_factory=dict)
    maintenance: bool = False
    recovery_enabled: tuple[str, ...] = ()
    recovery_taken: Mapping[tuple[str, str], int] = field(default_factory=dict)  # in this boot, by step and result


class SnapshotCollector(Collector):
    """Hand it a snapshot by assigning `snapshot`; the scrape threads only ever read the reference."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self.snapshot = Snapshot()

    def collect(self) -> Iterable[Metric]:
        """Called by a scrape thread."""
        shown = self.snapshot
        now = self._clock.now().mono
        yield from _service(shown, now)
        yield from _gpus(shown)
        yield from _table(PORT_GAUGES, shown, ("gpu", "port", "nvme"), BY_ADDRESS)
        yield from _table(RAIL_GAUGES, shown, ("rail",), ("rail",))
        yield from _engines(shown)
        yield from _gates(shown)
        yield from _recovery(shown)
        yield _xids(shown)
        yield _conditions(shown)
        yield from _probes(shown, now)


def _service(shown: Snapshot, now: float) -> Iterable[Metric]:
    yield GaugeMetricFamily("xidwatch_up", "1 while the daemon serves this page", value=1)
    yield InfoMetricFamily("xidwatch_build", "Version of xidwatch", value={"version": __version__})
    if shown.sampled_mono is not None:
        yield GaugeMetricFamily("xidwatch_sample_age_seconds", "Time since the last tick began", value=now - shown.sampled_mono)
        yield GaugeMetricFamily("xidwatch_last_sample_timestamp_seconds", "When the last tick began", value=shown.sampled_wall)
    yield CounterMetricFamily("xidwatch_ticks", "Ticks completed since start", value=shown.tick)
    yield CounterMetricFamily("xidwatch_ticks_missed", "Ticks left out because the one before was late", value=shown.ticks_missed)
    yield CounterMetricFamily("xidwatch_kernel_log_gap_records", "Kernel log records lost to ring overrun", value=shown.kernel_gap_records)
    yield CounterMetricFamily("xidwatch_dumps", "Forensic dumps asked for since start", value=shown.dumps)
    behind = shown.records_behind_seconds
    yield GaugeMetricFamily("xidwatch_records_behind_seconds", "Age of the oldest record not yet on disk", value=behind)
    yield GaugeMetricFamily("xidwatch_incident_open", "1 while an incident is open", value=int(shown.incident_open))
    verdict = GaugeMetricFamily("xidwatch_verdict", "The host in one word (state set)", labels=["verdict"])
    for word in VERDICTS:
        verdict.add_metric([word], int(word == shown.verdict))
    yield verdict
    yield GaugeMetricFamily(
        "xidwatch_maintenance", "1 while somebody works on the host, and nothing is acted on", value=int(shown.maintenance)
    )


def _gpus(shown: Snapshot) -> Iterable[Metric]:
    yield from _table(GPU_GAUGES, shown, ("gpu",), BY_GPU)
    meaning = "1 the GPU answers, 0 it does not or is not there; no series when nobody knows"
    present = GaugeMetricFamily("xidwatch_gpu_present", meaning, labels=BY_GPU)
    info = InfoMetricFamily("xidwatch_gpu", "Who a GPU is", labels=BY_ADDRESS)
    for subject in _subjects(shown, ("gpu",)):
        answers = _present(shown.readings.get(subject, {}))
        if answers is not None:
            present.add_metric(_labels(shown, subject, BY_GPU), int(answers))
        facts = shown.inventory.get(subject, {})
        known = {name: text for name in GPU_FACTS if (text := _text(facts.get(name)))}
        info.add_metric([subject.name], known)
    yield present
    yield info


def _present(values: Mapping[str, Value]) -> bool | None:
    """By what was measured: off the bus, NVML's word for a lost GPU, its first dword or that of the bridge above it, NVML's good word."""
    word, status = values.get("config_dword0"), values.get("nvml_status")
    if values.get("present") == 0 or status in NVML_LOST or word in NOT_THERE:
        return False
    if isinstance(word, int):
        return word != 0xFFFFFFFF
    return True if status == 0 else None


def _text(value: Value | None) -> str:
    """A fact that is a text; nothing for one that is missing (whose reason is text too)."""
    return value if isinstance(value, str) and not isinstance(value, Missing) else ""


def _subjects(shown: Snapshot, kinds: tuple[str, ...]) -> list[Subject]:
    return sorted(subject for subject in shown.readings.keys() | shown.inventory.keys() if subject.kind in kinds)


def _labels(shown: Snapshot, subject: Subject, names: tuple[str, ...]) -> list[str]:
    return [subject.name, _text(shown.inventory.get(subject, {}).get("uuid"))][: len(names)]


def _table(table: GaugeTable, shown: Snapshot, kinds: tuple[str, ...], names: tuple[str, ...]) -> Iterable[Metric]:
    for quantity, name, meaning in table:
        family = GaugeMetricFamily(name, meaning, labels=names)
        for subject in _subjects(shown, kinds):
            value = shown.readings.get(subject, {}).get(quantity)
            if isinstance(value, int | float):
                family.add_metric(_labels(shown, subject, names), value * TO_BASE_UNIT.get(quantity, 1))
        yield family


def _engines(shown: Snapshot) -> Iterable[Metric]:
    yield from _table(ENGINE_GAUGES, shown, ("engine",), BY_UNIT)
    active = GaugeMetricFamily("xidwatch_engine_active", "1 systemd says active, 0 it says another state", labels=BY_UNIT)
    info = InfoMetricFamily("xidwatch_engine", "Which run of a unit this is, what it is, and which GPUs it uses", labels=BY_UNIT)
    for unit, engine in sorted(shown.engines.items()):
        values = shown.readings.get(Subject("engine", unit), {})
        if state := _text(values.get("active_state")):
            active.add_metric([unit], int(state == "active"))
        known = {"invocation_id": engine.invocation_id, "server": _text(values.get("server")), "gpus": " ".join(engine.gpus)}
        info.add_metric([unit], {name: text for name, text in known.items() if text})
    yield active
    yield info


def _gates(shown: Snapshot) -> Iterable[Metric]:
    """No series of state for an engine that has no gate yet; counters from the start, or `increase()` would not see the first."""
    state = GaugeMetricFamily("xidwatch_gate_state", "The gate between the hardware and an engine (state set)", labels=["unit", "state"])
    may = GaugeMetricFamily("xidwatch_gate_may_start", "1 the engine may start, 0 it may not, -1 nobody knows", labels=BY_UNIT)
    order = GaugeMetricFamily("xidwatch_gate_order", "1 while an operator has opened the gate past the daemon", labels=BY_UNIT)
    starts = CounterMetricFamily("xidwatch_engine_starts", "Starts of the engine decided on since start", labels=BY_UNIT)
    stops = CounterMetricFamily("xidwatch_engine_stops", "Stops of the engine decided on since start", labels=BY_UNIT)
    for unit, engine in sorted(shown.engines.items()):
        for name in GATE_STATES if engine.state else ():
            state.add_metric([unit, name], int(name == engine.state))
        may.add_metric([unit], MAY_START[engine.may_start])
        order.add_metric([unit], int(engine.order is not None))
        starts.add_metric([unit], shown.engine_starts.get(unit, 0))
        stops.add_metric([unit], shown.engine_stops.get(unit, 0))
    yield from (state, may, order, starts, stops)


def _recovery(shown: Snapshot) -> Iterable[Metric]:
    enabled = GaugeMetricFamily("xidwatch_recovery_enabled", "1 a step of recovery that an operator has switched on", labels=["step"])
    taken = GaugeMetricFamily("xidwatch_recovery_taken", "Steps taken in this boot, by how they ended", labels=["step", "result"])
    for step in shown.recovery_enabled:
        enabled.add_metric([step], 1)
    for (step, result), count in sorted(shown.recovery_taken.items()):
        taken.add_metric([step, result or "not-heard"], count)
    yield from (enabled, taken)


def _xids(shown: Snapshot) -> Metric:
    """Pre-set to zero for every Xid in the rules: `increase()` cannot see the birth of a series."""
    family = CounterMetricFamily("xidwatch_gpu_xid_errors", "Xid records of kernel origin since start, by GPU", labels=(*BY_GPU, "xid"))
    counts = {(subject.name, xid): 0 for subject in _subjects(shown, ("gpu",)) for xid in shown.known_xids}
    counts.update({(str(address), xid): count for (address, xid), count in shown.xids.items()})
    for (name, xid), count in sorted(counts.items()):
        family.add_metric([*_labels(shown, Subject("gpu", name), BY_GPU), str(xid)], count)
    return family


def _conditions(shown: Snapshot) -> Metric:
    family = GaugeMetricFamily("xidwatch_condition", "1 TRUE, 0 FALSE, -1 UNKNOWN; none when not applicable", labels=["type", "subject"])
    values = {Status.TRUE: 1, Status.FALSE: 0, Status.UNKNOWN: -1}
    for condition in shown.conditions:
        if condition.status in values:
            family.add_metric([condition.type, str(condition.subject)], values[condition.status])
    return family


def _probes(shown: Snapshot, now: float) -> Iterable[Metric]:
    success = GaugeMetricFamily("xidwatch_probe_success", "1 when the last request was answered in full", labels=["probe"])
    age = GaugeMetricFamily("xidwatch_probe_age_seconds", "Time since the last full answer", labels=["probe"])
    took = GaugeMetricFamily("xidwatch_probe_duration_seconds", "How long the last answer took", labels=["probe"])
    stuck = GaugeMetricFamily("xidwatch_probe_stuck_seconds", "How long the oldest request has been late, 0 when none is", labels=["probe"])
    for name, probe in sorted(shown.probes.items()):
        success.add_metric([name], int(probe.success))
        if probe.answered_mono is not None:
            age.add_metric([name], now - probe.answered_mono)
        took.add_metric([name], probe.took_seconds)
        stuck.add_metric([name], probe.stuck_seconds)
    yield from (success, age, took, stuck)


class _Handler(WSGIRequestHandler):
    timeout = CLIENT_SECONDS

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002  the name in the base class
        """Nothing: a scrape is no news, and this would write to a stream that can block."""


class _Server(ThreadingMixIn, WSGIServer):
    """A thread for each scrape, and not too many of them. Creating it listens; raises OSError."""

    daemon_threads = True
    request_queue_size = 2 * MOST_SCRAPES  # a connection beyond it waits a second for its next try

    def __init__(self, address: str, port: int, app: Callable[..., Any]) -> None:
        self.address_family = socket.AF_INET6 if ":" in address else socket.AF_INET
        self._room = threading.BoundedSemaphore(MOST_THREADS)
        self._served: dict[socket.socket, None] = {}  # oldest first
        self._lock = threading.Lock()
        super().__init__((address, port), _Handler)
        self.set_app(app)

    def server_bind(self) -> None:
        """Not HTTPServer's, which asks the name service for the host's full name: the caller is the loop and must not wait."""
        TCPServer.server_bind(self)
        self.server_name, self.server_port = str(self.server_address[0]), int(self.server_address[1])
        self.setup_environ()

    def process_request(self, request: Any, client_address: Any) -> None:
        """Hand over to a thread, or hang up."""
        if not self._room.acquire(blocking=False):
            self.shutdown_request(request)
            return
        self._begin(request)
        try:
            super().process_request(request, client_address)
        except BaseException:  # no thread was to be had
            self._end(request)
            raise

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        """In the thread."""
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._end(request)

    def _begin(self, request: socket.socket) -> None:
        with self._lock:
            if len(self._served) >= MOST_SCRAPES:
                oldest = next(iter(self._served))
                del self._served[oldest]
                with suppress(OSError):  # it went by itself
                    oldest.shutdown(socket.SHUT_RDWR)  # its thread, wherever it waits, is told at once
            self._served[request] = None

    def _end(self, request: socket.socket) -> None:
        with self._lock:
            self._served.pop(request, None)
        self._room.release()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Nothing: a client that went away is no news either."""


def page(collector: SnapshotCollector) -> str:
    """What a scrape would get now."""
    registry = CollectorRegistry()
    registry.register(collector)
    return generate_latest(registry).decode()


class MetricsServer:
    """The listener. One address at a time; `listen` may be tried again when the port was taken."""

    def __init__(self, collector: SnapshotCollector) -> None:
        registry = CollectorRegistry()
        registry.register(collector)
        self._app: Callable[..., Any] = make_wsgi_app(registry)
        self._server: _Server | None = None

    def listen(self, address: str, port: int) -> None:
        """On an IP address, version 4 or 6. Raises OSError when it is taken."""
        self.close()
        self._server = _Server(address, port, self._app)
        # No polling for the end: `close` wakes it.
        threading.Thread(target=self._server.serve_forever, args=(NEVER_SECONDS,), daemon=True).start()

    @property
    def port(self) -> int | None:
        """The port really listened on (the one asked for may have been 0), None while not listening."""
        return self._server.server_port if self._server else None

    def close(self) -> None:
        """Stop listening at once. Scrapes under way are finished."""
        if self._server is not None:
            server, self._server = self._server, None
            with suppress(OSError):
                # Closing alone would not free the port: the thread inside poll(2) holds on to the socket.
                server.socket.shutdown(socket.SHUT_RDWR)
            threading.Thread(target=_end, args=(server,), daemon=True).start()


def _end(server: _Server) -> None:
    server.shutdown()  # waits for the serving thread, so not for the loop
    server.server_close()
