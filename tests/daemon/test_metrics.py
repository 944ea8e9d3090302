"""/metrics: what a scrape shows, what it must not show, and the server it comes from.

After a wanted change: `XIDWATCH_BLESS=1 pytest tests/daemon/test_metrics.py`, then read the difference.
"""

from __future__ import annotations

import gzip
import os
import re
import shutil
import socket
import subprocess
import threading
from collections.abc import Iterator
from dataclasses import replace
from http.client import HTTPConnection
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from tests.fakes.clock import MONO, WALL, FakeClock
from xidwatch.core.model import HOST, KERNEL, Condition, Missing, Moment, PciAddress, Readings, Status, Subject, Value
from xidwatch.daemon import metrics
from xidwatch.daemon.metrics import MetricsServer, ProbeView, Snapshot, SnapshotCollector
from xidwatch.records.state import EngineState

GOLDEN = Path(__file__).parent / "golden"
VERSION = re.compile(r'version="[^"]*"')


def gpu(bus: int) -> Subject:
    return Subject("gpu", f"0000:{bus:02x}:00.0")


def condition(subject: Subject, type_: str, status: Status) -> Condition:
    return Condition(subject, type_, status, Moment(WALL, MONO), "")


ALIVE: dict[str, Value] = {
    "nvml_status": 0,
    "config_dword0": 0x220410DE,
    "power_average_watts": 231.4,
    "power_mean_watts": 246.1,
    "power_peak_watts": 402.7,
    "power_limit_watts": 350.0,
    "temperature_celsius": 61,
    "utilisation_ratio": 0.97,
    "recovery_action": 0,
    "link_width": 16,
    "link_gts": 16.0,
}
LOST: dict[str, Value] = {**dict.fromkeys(ALIVE, Missing.DEVICE_LOST), "nvml_status": 15, "config_dword0": 0xFFFFFFFF}
BEHIND: dict[str, Value] = {**dict.fromkeys(ALIVE, Missing.NOT_ASKED), "config_dword0": Missing.BEHIND_DEAD_PARENT}
UNKNOWN: dict[str, Value] = dict.fromkeys(ALIVE, Missing.TIMED_OUT)
SWITCH = Subject("port", "0000:0f:00.0")
READINGS: Readings = {
    gpu(0x11): {**ALIVE, "recovery_action": Missing.UNSUPPORTED},
    gpu(0x12): LOST,
    gpu(0x13): BEHIND,
    gpu(0x14): UNKNOWN,
    SWITCH: {"config_dword0": 0xFFFFFFFF, "link_width": Missing.DEVICE_LOST, "link_gts": Missing.DEVICE_LOST},
    Subject("nvme", "0000:02:00.0"): {"config_dword0": 0xA80A144D, "link_width": 4, "link_gts": 8.0},
    HOST: {"load_1m": 1.25},
    KERNEL: {"xid_lines_45s": 2},
}
INVENTORY: Readings = {
    gpu(bus): {
        "uuid": f"GPU-5f0c2d1e-0000-4000-8000-0000000000{bus:02x}",
        "name": "NVIDIA GeForce RTX 3090",
        "serial": Missing.UNSUPPORTED,
        "chain": "03.1/00.0/01.0/00.0",
        "driver": "nvidia",
    }
    for bus in (0x11, 0x12, 0x13, 0x14)
}
VLLM, LLAMA = Subject("engine", "vllm.service"), Subject("engine", "llama.service")
BUSY: Readings = {
    **READINGS,
    VLLM: {
        "active_state": "active",
        "server": "vllm",
        "metrics_status": 200,
        "requests_running": 3,
        "requests_waiting": 0,
        "prompt_tokens_per_second": 13000.5,
        "generated_tokens_per_second": Missing.NOT_ASKED,
        "kv_cache_usage_ratio": 0.8125,
        "processes": 4,
        "resident_bytes": 8_589_934_592,
        "processes_uninterruptible": 1,
        "uninterruptible_seconds": 30.0,
    },
    LLAMA: {"active_state": "failed", "metrics_status": Missing.ABSENT, "server": Missing.ABSENT, "processes": 0},
}
ENGINES = {
    "vllm.service": EngineState(
        state="HELD",
        may_start=False,
        unit="active/running",
        invocation_id="3a3b",
        gpus=("0000:11:00.0", "0000:12:00.0"),
        gpus_by="found",
        order="2026-09-17T04:10:00.000Z",
    ),
    "llama.service": EngineState(unit="failed/failed"),
}
NIGHT = Snapshot(
    verdict="failed",
    tick=120,
    sampled_mono=MONO - 3,
    sampled_wall=WALL - 3,
    readings=BUSY,
    inventory=INVENTORY,
    conditions=(
        condition(SWITCH, "ConfigSpaceAllOnes", Status.TRUE),
        condition(gpu(0x11), "GpuLost", Status.FALSE),
        condition(gpu(0x13), "ConfigSpaceAllOnes", Status.UNKNOWN),
        condition(gpu(0x11), "ConfigSpaceReset", Status.NOT_APPLICABLE),
    ),
    xids={(PciAddress(0, 0x12, 0), 79): 2, (PciAddress(0, 0x12, 0), 154): 1, (PciAddress(0, 0x99, 0), 45): 1},
    known_xids=(31, 79),
    probes={
        "pci": ProbeView(True, MONO - 3, 0.041, 0.0),
        "nvml": ProbeView(False, MONO - 33, 5.0, 27.5),
        "host": ProbeView(False, None, 0, 0),
    },
    kernel_gap_records=311,
    ticks_missed=1,
    dumps=1,
    records_behind_seconds=0.25,
    incident_open=True,
    engines=ENGINES,
    engine_stops={"vllm.service": 1},
    maintenance=True,
)


@pytest.fixture
def collector() -> SnapshotCollector:
    return SnapshotCollector(FakeClock())


@pytest.fixture
def server(collector: SnapshotCollector) -> Iterator[MetricsServer]:
    server = MetricsServer(collector)
    server.listen("127.0.0.1", 0)
    yield server
    server.close()


def scrape(server: MetricsServer, method: str = "GET", host: str = "127.0.0.1", **headers: str) -> tuple[int, bytes]:
    assert server.port
    connection = HTTPConnection(host, server.port, timeout=60)
    connection.request(method, "/metrics", headers={name.replace("_", "-"): value for name, value in headers.items()})
    response = connection.getresponse()
    body = response.read()
    connection.close()
    return response.status, body


def page(server: MetricsServer) -> str:
    status, body = scrape(server)
    assert status == 200
    return VERSION.sub('version="X"', body.decode())


def series(text: str, name: str) -> dict[str, float]:
    """The series of one name, their labels as printed."""
    return {labels: float(value) for labels, value in re.findall(rf"^{name}(\{{.*\}})? (\S+)$", text, re.MULTILINE)}


# --- the page


@pytest.mark.parametrize(("name", "shown"), [("metrics", NIGHT), ("metrics-empty", Snapshot())])
def test_the_page_is_the_golden_one(name: str, shown: Snapshot, collector: SnapshotCollector, server: MetricsServer) -> None:
    """Names, units, labels and help texts are what others build on."""
    collector.snapshot = shown
    path = GOLDEN / f"{name}.txt"
    if os.environ.get("XIDWATCH_BLESS"):
        path.write_text(page(server))
    assert page(server) == path.read_text()


@pytest.mark.skipif(shutil.which("promtool") is None, reason="needs promtool")
@pytest.mark.parametrize("name", ["metrics", "metrics-empty"])
def test_promtool_finds_nothing_to_say(name: str) -> None:
    """Prometheus's own rules for names, types and help texts."""
    command = ["promtool", "check", "metrics"]
    with (GOLDEN / f"{name}.txt").open() as text:
        checked = subprocess.Popen(command, stdin=text, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    assert checked.stdout
    said = checked.stdout.read()
    checked.stdout.close()
    assert (checked.wait(timeout=60), said) == (0, "")


def test_every_line_is_read_by_the_parser_of_the_client_library() -> None:
    """The format is the format."""
    families = list(text_string_to_metric_families((GOLDEN / "metrics.txt").read_text()))
    assert len(families) > 25
    assert all(family.documentation for family in families)
    assert {family.name.split("_")[0] for family in families} == {"xidwatch"}


def test_a_gpu_that_is_gone_is_not_present_and_keeps_its_name(collector: SnapshotCollector, server: MetricsServer) -> None:
    """Given up by the driver, or behind a switch that does not answer; when nobody knows there is no series at all."""
    collector.snapshot = NIGHT
    present = series(page(server), "xidwatch_gpu_present")
    assert {labels[13:25]: value for labels, value in present.items()} == {"0000:11:00.0": 1, "0000:12:00.0": 0, "0000:13:00.0": 0}
    assert all('uuid="GPU-5f0c2d1e-' in labels for labels in present)


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ({"nvml_status": 0, "config_dword0": 0x220410DE}, True),
        ({"nvml_status": 16, "config_dword0": 0x220410DE}, False),
        ({"nvml_status": 0, "config_dword0": 0xFFFFFFFF}, False),
        ({"nvml_status": Missing.NOT_ASKED, "config_dword0": Missing.ABSENT}, False),
        ({"config_dword0": 0x220410DE}, True),
        ({"present": 0, "nvml_status": 0}, False),
        ({"present": 1}, None),
        ({"nvml_status": 0, "config_dword0": Missing.ASLEEP}, True),
        ({"nvml_status": 999}, None),
        ({"nvml_status": Missing.TIMED_OUT, "config_dword0": Missing.TIMED_OUT}, None),
        ({}, None),
    ],
)
def test_presence_is_what_was_measured(values: dict[str, Value], expected: bool | None) -> None:
    """No answer in time is neither presence nor absence."""
    assert metrics._present(values) is expected


def test_no_series_outlives_its_reading(collector: SnapshotCollector, server: MetricsServer) -> None:
    """A lost GPU has no watts, not even zero; those that answer keep theirs."""
    collector.snapshot = replace(NIGHT, readings={gpu(bus): ALIVE for bus in (0x11, 0x12)})
    assert len(series(page(server), "xidwatch_gpu_power_watts")) == 2
    collector.snapshot = NIGHT
    for table, count in ((metrics.GPU_GAUGES, 1), (metrics.PORT_GAUGES, 2)):
        for quantity, name, _ in table:
            assert len(series(page(server), name)) == (count if quantity != "recovery_action" else 0), name


def test_the_reason_for_a_missing_fact_is_no_fact(collector: SnapshotCollector, server: MetricsServer) -> None:
    """Reasons are text as well: a board without a serial number is not called UNSUPPORTED."""
    collector.snapshot = replace(NIGHT, inventory={gpu(0x11): {"serial": Missing.UNSUPPORTED, "uuid": Missing.TIMED_OUT, "name": "A"}})
    text = page(server)
    assert "UNSUPPORTED" not in text
    assert "TIMED_OUT" not in text
    assert '{name="A",pci_bus_id="0000:11:00.0"}' in text


def test_xid_totals_exist_before_the_first_xid(collector: SnapshotCollector, server: MetricsServer) -> None:
    """At zero, for every GPU and every Xid that is known; what is not known comes when it comes, GPU or not."""
    collector.snapshot = NIGHT
    totals = series(page(server), "xidwatch_gpu_xid_errors_total")
    assert len(totals) == 4 * 2 + 2
    assert sum(1 for value in totals.values() if value) == 3
    assert any('pci_bus_id="0000:99:00.0",uuid="",xid="45"' in labels for labels in totals)


def test_the_library_adds_no_creation_times(collector: SnapshotCollector, server: MetricsServer) -> None:
    """They would double the number of series, in either format."""
    collector.snapshot = NIGHT
    assert "_created" not in page(server)
    status, body = scrape(server, Accept="application/openmetrics-text; version=1.0.0")
    assert status == 200
    assert body.endswith(b"# EOF\n")
    assert b"_created" not in body


def test_odd_characters_in_a_label_are_escaped(collector: SnapshotCollector, server: MetricsServer) -> None:
    """Quotes, backslashes and line breaks in a name break neither the line nor the page."""
    odd = 'a"b\\c\nd é'
    subject = Subject("gpu", odd)
    collector.snapshot = Snapshot(
        readings={subject: ALIVE},
        inventory={subject: {"name": odd, "uuid": odd}},
        known_xids=(79,),
        conditions=(condition(subject, "X", Status.TRUE),),
    )
    families = text_string_to_metric_families(page(server))
    labels = [each.labels for family in families for each in family.samples]
    assert {value for names in labels for value in names.values() if "é" in value} == {odd, f"gpu:{odd}"}


def test_ages_are_as_of_the_scrape(collector: SnapshotCollector, server: MetricsServer) -> None:
    """A loop that hangs is seen by its sample growing old: nobody has to renew anything for that."""
    collector.snapshot = NIGHT
    assert series(page(server), "xidwatch_sample_age_seconds") == {"": 3}
    assert isinstance(collector._clock, FakeClock)
    collector._clock.advance(100)
    assert series(page(server), "xidwatch_sample_age_seconds") == {"": 103}
    assert series(page(server), "xidwatch_probe_age_seconds") == {'{probe="nvml"}': 133, '{probe="pci"}': 103}


def test_a_large_host_stays_a_small_page(collector: SnapshotCollector, server: MetricsServer) -> None:
    """Sixteen GPUs, 64 functions, a hundred known Xids: what can grow without bound is no label."""
    many = {gpu(bus): ALIVE for bus in range(16)}
    ports: Readings = {Subject("port", f"0000:{bus:02x}:00.0"): {"link_width": 16, "link_gts": 16.0} for bus in range(48)}
    collector.snapshot = Snapshot(readings={**many, **ports}, known_xids=tuple(range(1, 101)))
    text = page(server)
    assert sum(1 for line in text.splitlines() if not line.startswith("#")) < 2000
    assert len(text) < 200_000


# --- the server


def test_two_addresses_of_the_host_answer_alike(collector: SnapshotCollector) -> None:
    """Version 6 as version 4."""
    server = MetricsServer(collector)
    try:
        server.listen("::1", 0)
    except OSError:
        pytest.skip("needs IPv6 on loopback")
    status, body = scrape(server, host="::1")
    server.close()
    assert status == 200
    assert b"xidwatch_up 1.0" in body


def test_http_only_reads(server: MetricsServer) -> None:
    """There is nothing to be changed this way."""
    assert scrape(server, "POST")[0] == 405
    assert scrape(server, "PUT")[0] == 405
    assert gzip.decompress(scrape(server, Accept_Encoding="gzip")[1]).startswith(b"# HELP xidwatch_up")


def test_a_taken_port_raises_and_may_be_tried_again(collector: SnapshotCollector, server: MetricsServer) -> None:
    """As at the start of a daemon whose predecessor has not let go yet."""
    assert server.port
    port = server.port
    second = MetricsServer(collector)
    with pytest.raises(OSError, match="in use"):
        second.listen("127.0.0.1", port)
    assert not second.port
    server.close()
    second.listen("127.0.0.1", port)
    assert scrape(second)[0] == 200
    second.close()


def test_closing_frees_the_port_at_once(collector: SnapshotCollector) -> None:
    """Also for an address that covers the old one, and time and again; closing twice is closing."""
    server = MetricsServer(collector)
    server.listen("127.0.0.1", 0)
    port = server.port
    assert port
    for address in ("0.0.0.0", "127.0.0.1") * 5:
        server.listen(address, port)
        assert scrape(server)[0] == 200
    server.close()
    server.close()
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", port), timeout=60).close()


def test_listening_asks_no_name_service(collector: SnapshotCollector, monkeypatch: pytest.MonkeyPatch) -> None:
    """The caller is the loop: with a name service that does not answer it would stand still for seconds."""
    for question in ("getfqdn", "gethostbyaddr", "gethostbyname", "getaddrinfo", "gethostname"):
        monkeypatch.setattr(socket, question, lambda *_, question=question, **__: pytest.fail(question))
    server = MetricsServer(collector)
    for address in ("127.0.0.1", "0.0.0.0"):
        server.listen(address, 0)
    server.close()


@pytest.mark.parametrize("says", [b"", b"GET /metrics HTT"], ids=["nothing", "half a request"])
def test_clients_that_dawdle_keep_nobody_out(collector: SnapshotCollector, server: MetricsServer, says: bytes) -> None:
    """Three times as many as are served at a time: the oldest are hung up on, and a scraper is answered at once."""
    assert server.port
    clients = []
    for _ in range(3 * metrics.MOST_SCRAPES):
        clients.append(socket.create_connection(("127.0.0.1", server.port), timeout=60))
        clients[-1].sendall(says)
    assert scrape(server)[0] == 200
    assert clients[0].recv(10) == b""
    for client in clients:
        client.close()


def test_clients_that_say_nothing_are_hung_up_on_in_time(
    collector: SnapshotCollector, server: MetricsServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also when nobody else wants their place; their threads end."""
    monkeypatch.setattr(metrics._Handler, "timeout", 0.2)
    assert server.port
    clients = [socket.create_connection(("127.0.0.1", server.port), timeout=60) for _ in range(metrics.MOST_SCRAPES)]
    assert [client.recv(10) for client in clients] == [b""] * len(clients)
    for client in clients:
        client.close()
    for thread in threading.enumerate():
        if "process_request_thread" in thread.name:
            thread.join(timeout=60)
    assert scrape(server)[0] == 200


def test_a_scrape_does_not_wait_for_the_loop(collector: SnapshotCollector, server: MetricsServer) -> None:
    """This test is the loop's thread, and it is waiting here."""
    answers: list[int] = []
    scraper = threading.Thread(target=lambda: answers.append(scrape(server)[0]))
    scraper.start()
    scraper.join(timeout=60)
    assert answers == [200]
