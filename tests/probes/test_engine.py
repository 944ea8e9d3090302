"""Engines as the probe tells of them: unit, processes and metrics, each failing by itself."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.fakes.engine import INVOCATION, EngineHost, Page
from tests.fakes.probes import steered_engine
from xidwatch.core.model import Missing, Subject, Value
from xidwatch.core.quantities import BY_NAME
from xidwatch.probes import engine_metrics, engine_units
from xidwatch.probes.base import Ask, Probe
from xidwatch.probes.engine import FACTS, OF_EACH_PROCESS, PROCESSES, EngineProbe, create

UNIT, SUBJECT = "vllm.service", "engine:vllm.service"
PAGES = Path(__file__).resolve().parents[2] / "fixtures" / "engine-metrics"
VLLM = (PAGES / "vllm.txt").read_text()
SECONDS = 60.0  # nobody needs them
SHORT_SECONDS = 1.0  # time enough for whoever answers, on a busy machine too

# The probe forks where it has one thread; here the pages are threads beside it.
pytestmark = pytest.mark.filterwarnings("ignore:.*multi-threaded.*:DeprecationWarning")


class Heard:
    """What a request brought."""

    def __init__(self) -> None:
        self.touched: list[str] = []
        self.facts: dict[str, dict[str, Value]] = {}

    def at(self, subject: Subject) -> None:
        self.touched.append(str(subject))

    def reading(self, subject: Subject, quantity: str, value: Value) -> None:
        self.facts.setdefault(str(subject), {})[quantity] = value


@pytest.fixture
def host(tmp_path: Path) -> EngineHost:
    host = EngineHost(tmp_path)
    for pid in (4711, 4712):
        host.process(pid, pages=1000)
    host.unit(UNIT, [4711, 4712])
    return host


@pytest.fixture
def page() -> Iterator[Page]:
    with Page() as page:
        page.says(VLLM)
        yield page


def probe(host: EngineHost, *pages: Page | None, units: tuple[str, ...] = (UNIT,)) -> Probe:
    urls = [page.url if page else "" for page in pages] + [""] * len(units)
    return create({**host.options, "engines": [{"unit": unit, "metrics": url} for unit, url in zip(units, urls, strict=False)]})


def sample(asked: Probe, seconds: float = SECONDS, skip: frozenset[str] = frozenset()) -> Heard:
    heard = Heard()
    asked.sample(Ask(time.monotonic() + seconds, skip), heard)
    return heard


def facts(asked: Probe, seconds: float = SECONDS) -> dict[str, Value]:
    return sample(asked, seconds).facts[SUBJECT]


# --- well


def test_an_engine_at_work_is_told_whole(host: EngineHost, page: Page) -> None:
    """Its unit, its processes, its requests; nothing but the first rates is missing, and every name is in the table."""
    told = facts(probe(host, page))
    assert {
        name: told[name] for name in ("active_state", "invocation_id", "main_pid", "processes", "pids", "requests_running", "server")
    } == {
        "active_state": "active",
        "invocation_id": INVOCATION,
        "main_pid": 4711,
        "processes": 2,
        "pids": "4711 4712",
        "requests_running": 5,
        "server": "vllm",
    }
    assert {name: value for name, value in told.items() if isinstance(value, Missing)} == {
        "generation_throughput": Missing.ABSENT,
        "prompt_tokens_per_second": Missing.NOT_ASKED,
        "generated_tokens_per_second": Missing.NOT_ASKED,
    }
    assert set(told) == {*engine_units.QUANTITIES, *PROCESSES, *engine_metrics.QUANTITIES, "metrics_status", "server", "starts_container"}
    assert set(told) <= set(BY_NAME)


def test_rates_come_with_the_second_tick_and_not_over_a_restart(host: EngineHost, page: Page) -> None:
    """Another run of the unit starts them anew, even if its counters stand higher."""
    now = [100.0]
    asked = create({**host.options, "engines": [{"unit": UNIT, "metrics": page.url}]})
    assert isinstance(asked, EngineProbe)
    asked._monotonic = lambda: now[0]
    rates = []
    for generated, invocation in ((5120, INVOCATION), (5420, INVOCATION), (9000, "other"), (9300, "other")):
        host.unit(UNIT, [4711], InvocationID=invocation)
        page.says(VLLM.replace(" 5120.0", f" {generated}.0"))
        heard = Heard()
        asked.sample(Ask(now[0] + SECONDS), heard)
        rates.append(heard.facts[SUBJECT]["generated_tokens_per_second"])
        now[0] += 30.0
    assert rates == [Missing.NOT_ASKED, 10.0, Missing.NOT_ASKED, 10.0]


def test_several_engines_are_asked_about_in_one_call(host: EngineHost, page: Page) -> None:
    """Each under its own name; what one lacks the other has."""
    host.unit("llama.service", [])
    heard = sample(probe(host, None, page, units=(UNIT, "llama.service")))
    assert len(host.asked()) == 1
    assert "requests_running" not in heard.facts[SUBJECT]
    assert heard.facts["engine:llama.service"]["requests_running"] == 5
    assert heard.touched == [SUBJECT, "engine:llama.service"]


def test_the_inventory_asks_nobody_again(host: EngineHost, page: Page) -> None:
    """It is what the last sample found; before one there is nothing."""
    asked = probe(host, page)
    heard = Heard()
    asked.inventory(Ask(time.monotonic() + SECONDS), heard)
    assert heard.facts == {}
    sample(asked)
    asked.inventory(Ask(time.monotonic() + SECONDS), heard)
    assert (set(heard.facts[SUBJECT]), len(host.asked()), len(page.requests)) == (set(FACTS), 1, 1)


# --- the unit


def test_a_stopped_engine_has_no_process_and_is_no_failure(host: EngineHost) -> None:
    """0 is a fact here: its control group is gone, and systemd says that it is down."""
    host.stopped(UNIT, InvocationID="")
    told = facts(probe(host))
    assert (told["active_state"], told["invocation_id"], told["processes"], told["pids"]) == ("inactive", Missing.ABSENT, 0, "")
    assert (told["uninterruptible_seconds"], told["uninterruptible_thread"]) == (0.0, "")


def test_processes_that_outlive_their_unit_are_still_told(host: EngineHost) -> None:
    """A failed unit whose group is not empty: a second engine beside them must not be started."""
    host.unit(UNIT, [4712], ActiveState="failed", SubState="failed", Result="timeout", MainPID=0)
    told = facts(probe(host))
    assert (told["active_state"], told["result"], told["main_pid"], told["pids"]) == ("failed", "timeout", 0, "4712")
    host.unit(UNIT, [4712], ControlGroup="")
    assert facts(probe(host))["pids"] == "4712"


def test_a_unit_nobody_knows_is_said_to_be_unknown(host: EngineHost) -> None:
    """And not to be inactive."""
    host.unknown("typo.service")
    told = sample(probe(host, units=("typo.service",))).facts["engine:typo.service"]
    assert (told["load_state"], told["active_state"]) == ("not-found", Missing.ABSENT)


@pytest.mark.parametrize(
    ("mode", "reason"),
    [
        ("hang", Missing.TIMED_OUT),
        ("stubborn", Missing.TIMED_OUT),
        ("garbage", Missing.MALFORMED),
        ("half", Missing.MALFORMED),
        ("flood", Missing.MALFORMED),
        ("fail", Missing.ABSENT),
        ("absent", Missing.ABSENT),
    ],
)
def test_what_does_not_need_systemctl_is_told_without_it(host: EngineHost, page: Page, mode: str, reason: Missing) -> None:
    """Which run it is, its group and its processes, its metrics: in time, while the state of the unit has a reason for being missing."""
    host.systemctl(mode)
    began = time.monotonic()
    told = facts(probe(host, page), SHORT_SECONDS if reason is Missing.TIMED_OUT else SECONDS)
    assert time.monotonic() - began < SECONDS / 2
    assert told["active_state"] is told["main_pid"] is reason
    assert told["invocation_id"] == INVOCATION
    assert told["control_group"] == f"/system.slice/{UNIT}"
    assert (told["processes"], told["requests_running"]) == (2, 5)
    if mode == "stubborn":
        (host.gate).rename(host.bin / "old")
        (host.bin / "old").write_bytes(b"")


def test_a_bus_that_hangs_costs_two_processes_and_no_more(host: EngineHost) -> None:
    """Tick after tick; when they are gone it is asked again."""
    host.systemctl("stubborn")
    asked = probe(host)
    for _ in range(4):
        assert facts(asked, SHORT_SECONDS)["active_state"] is Missing.TIMED_OUT
    assert len(host.asked()) == 2
    host.systemctl("answer")
    assert facts(asked, SHORT_SECONDS)["active_state"] is Missing.TIMED_OUT
    for _ in range(2):
        host.gate.write_bytes(b"")
    until = time.monotonic() + SECONDS
    while facts(asked)["active_state"] != "active":
        assert time.monotonic() < until


def test_without_systemd_nothing_is_claimed(host: EngineHost, page: Page) -> None:
    """No unit, no group; the metrics are there all the same."""
    (host.run_root / "systemd/system").rmdir()
    (host.cgroup_root / "system.slice").rename(host.cgroup_root / "elsewhere")
    told = facts(probe(host, page))
    assert {told[name] for name in (*engine_units.QUANTITIES[:4], *PROCESSES)} == {Missing.UNSUPPORTED}
    assert told["requests_running"] == 5
    assert host.asked() == []


def test_a_group_that_cannot_be_seen_from_here_is_not_called_empty(host: EngineHost) -> None:
    """systemd says that it runs: in a container its group has another path, and none would be a lie."""
    (host.cgroup_root / "system.slice" / UNIT).rename(host.cgroup_root / "elsewhere")
    assert facts(probe(host))["processes"] is Missing.ABSENT
    host.systemctl("fail")
    assert facts(probe(host))["processes"] is Missing.ABSENT


# --- processes


def test_a_stuck_thread_is_named_and_grows_older(host: EngineHost) -> None:
    """Its number, its name, where in the kernel it waits, and for how long it has been found so."""
    asked = probe(host)
    told = facts(asked)
    assert (told["processes_uninterruptible"], told["uninterruptible_thread"]) == (0, "")
    host.process(4712, waits_in="os_acquire_rwlock_write")
    told = facts(asked)
    assert (told["processes_uninterruptible"], told["uninterruptible_thread"]) == (1, "14712 worker os_acquire_rwlock_write")
    assert told["uninterruptible_seconds"] == 0
    began = time.monotonic()
    while facts(asked)["uninterruptible_seconds"] == 0:
        assert time.monotonic() - began < SECONDS
    host.process(4712)
    assert facts(asked)["uninterruptible_thread"] == ""


def test_processes_too_many_to_look_at_are_counted_and_the_rest_is_not_claimed(host: EngineHost, page: Page) -> None:
    """A sum over some of them would pass for the sum, and none of them stuck for health."""
    told = facts(probe(host, page), 0.0)
    assert (told["processes"], told["pids"]) == (2, "4711 4712")
    assert {told[name] for name in OF_EACH_PROCESS} == {Missing.TIMED_OUT}


def test_an_engine_at_which_a_predecessor_is_stuck_is_left_alone(host: EngineHost, page: Page) -> None:
    """Its processes are not looked at; systemd and its metrics touch none of them."""
    heard = sample(probe(host, page), skip=frozenset({SUBJECT}))
    told = heard.facts[SUBJECT]
    assert {told[name] for name in PROCESSES} == {Missing.NOT_ASKED}
    assert (told["active_state"], told["requests_running"], heard.touched) == ("active", 5, [])


# --- metrics


@pytest.mark.parametrize(
    ("status", "reason"),
    [
        (503, Missing.ABSENT),
        (500, Missing.ABSENT),
        (404, Missing.UNSUPPORTED),
        (501, Missing.UNSUPPORTED),
        (401, Missing.DENIED),
        (302, Missing.MALFORMED),
        (204, Missing.MALFORMED),
    ],
)
def test_a_status_is_a_reading_and_the_reason_for_what_is_missing(host: EngineHost, page: Page, status: int, reason: Missing) -> None:
    """503 while a model is loaded; the figures that may come with it are none."""
    page.says(VLLM if status != 204 else "", status)
    told = facts(probe(host, page))
    assert told["metrics_status"] == status
    assert {told[name] for name in engine_metrics.QUANTITIES} == {reason}


@pytest.mark.parametrize(
    ("deed", "reason"),
    [("silent", Missing.TIMED_OUT), ("drip", Missing.TIMED_OUT), ("flood", Missing.MALFORMED), ("reset", Missing.ABSENT)],
)
def test_a_page_that_misbehaves_costs_its_own_figures_only(host: EngineHost, page: Page, deed: str, reason: Missing) -> None:
    """The unit, the processes and another engine's page are told, in time."""
    page.does(deed)
    host.unit("llama.service", [])
    with Page() as good:
        good.says(VLLM)
        began = time.monotonic()
        heard = sample(probe(host, page, good, units=(UNIT, "llama.service")), SHORT_SECONDS if reason is Missing.TIMED_OUT else SECONDS)
        assert time.monotonic() - began < SECONDS
    told = heard.facts[SUBJECT]
    assert {told[name] for name in (*engine_metrics.QUANTITIES, "metrics_status")} == {reason}
    assert (told["active_state"], told["processes"]) == ("active", 2)
    assert heard.facts["engine:llama.service"]["requests_running"] == 5


def test_a_page_of_another_kind_of_server_is_said_to_be_that(host: EngineHost, page: Page) -> None:
    """It answers, and nothing here can read it."""
    page.says("tgi_queue_size 3\n")
    told = facts(probe(host, page))
    assert (told["metrics_status"], told["server"], told["requests_running"]) == (200, Missing.UNSUPPORTED, Missing.UNSUPPORTED)


def test_metrics_on_another_host_are_never_asked(host: EngineHost) -> None:
    """Whatever the settings said."""
    with pytest.raises(ValueError, match="only this host"):
        create({**host.options, "engines": [{"unit": UNIT, "metrics": "http://192.0.2.1:8000/metrics"}]})


# --- the rest of the interface, and the fake that others use


def test_an_edge_is_none_of_its_business(host: EngineHost) -> None:
    """A look asks nothing, and nothing is held at the end."""
    asked, heard = probe(host), Heard()
    asked.look(Ask(time.monotonic() + SECONDS), heard)
    asked.between()
    asked.close()
    assert (heard.facts, heard.touched, host.asked()) == ({}, [], [])


def test_the_steered_engine_is_the_real_one_until_it_is_told_otherwise(host: EngineHost) -> None:
    """What the fault matrix stands on."""
    asked = steered_engine({**host.options, "engines": [{"unit": UNIT}], "when": str(host.root / "trouble"), "trouble": "crashes"})
    assert facts(asked)["active_state"] == "active"
