"""`xidwatch check`: what has to be in place before the night, and what goes round it."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.fakes.engine import EngineHost
from xidwatch import cli
from xidwatch.cli import check, check_units
from xidwatch.cli.check_units import BAD, OK, UNKNOWN, WARNING, Check
from xidwatch.clock import SystemClock
from xidwatch.records import state
from xidwatch.records.state import BaselineState, ConditionState, EngineState, MaintenanceState, StateFile

GATE = Path(__file__).resolve().parents[2] / "systemd/engine-gate.conf"
UNIT = "vllm.service"
GONE = 2**22 + 1  # above the highest number that a process may have (PID_MAX_LIMIT, proc(5))
GATED = "{ path=/bin/sh ; argv[]=/bin/sh -c ... /usr/local/bin/xidwatch gate ... ; flags=privileged ; pid=0 }"
GOOD: Mapping[str, str] = {"LoadState": "loaded", "UnitFileState": "enabled", "User": "vllm", "ExecConditionEx": GATED}
ACCEPTED = BaselineState(provisional=False, since="2026-09-17T08:00:00.000Z", by="alice (uid 0)")


def of_unit(**said: str) -> list[tuple[str, str]]:
    return [(found.verdict, found.cure) for found in check_units.of_engine(UNIT, {UNIT: {**GOOD, **said}})]


# ------------------------------------------------------------------------------------------------------------ units


def test_an_engine_behind_its_gate_is_good() -> None:
    """Asked about as root, whoever it runs as."""
    assert of_unit() == [(OK, "")]


@pytest.mark.parametrize(
    ("said", "verdict", "cure"),
    [
        ({"ExecConditionEx": ""}, WARNING, "make install-gate UNIT=vllm.service"),
        ({"ExecConditionEx": "{ path=/usr/bin/test ; flags=privileged }"}, WARNING, "make install-gate UNIT=vllm.service"),
        ({"ExecConditionEx": "", "NeedDaemonReload": "yes"}, WARNING, "systemctl daemon-reload"),
        ({"ExecConditionEx": GATED.replace("privileged", "")}, BAD, "make install-gate"),
        ({"LoadState": "not-found"}, BAD, "correct the name"),
    ],
)
def test_what_keeps_the_gate_from_being_asked_is_said(said: Mapping[str, str], verdict: str, cure: str) -> None:
    """With what to do."""
    ((found, how),) = of_unit(**said)
    assert found == verdict
    assert cure in how


def test_a_condition_without_privileges_is_good_enough_for_root() -> None:
    """Without User= it runs as root anyway."""
    assert of_unit(User="", ExecConditionEx=GATED.replace("privileged", "")) == [(OK, "")]


@pytest.mark.parametrize("known", ["disabled", "masked"])
def test_a_unit_that_is_never_started_is_said_to_be(known: str) -> None:
    """It may be meant so."""
    assert (WARNING, "systemctl enable vllm.service, if it is to run") in of_unit(UnitFileState=known)


def test_a_unit_that_starts_a_container_needs_its_gpus_named() -> None:
    """Its processes are elsewhere."""
    found = of_unit(ExecStart="{ path=/usr/bin/docker ; argv[]=/usr/bin/docker run --gpus all vllm ; }")
    assert any("name its GPUs" in cure for _, cure in found)
    named = of_unit(ExecStart="{ path=/usr/bin/docker ; argv[]=/usr/bin/docker run --name vllm --gpus all vllm ; }")
    assert not any("--name" in cure for _, cure in named)


def test_without_systemds_word_nobody_knows(tmp_path: Path) -> None:
    """It is not there, hangs, or does not know of the unit it was asked about."""
    assert check_units.ask_systemd((UNIT,), tmp_path) is None
    nothing: tuple[Mapping[str, Mapping[str, str]] | None, ...] = (None, {})
    for known in nothing:
        assert [found.verdict for found in check_units.of_engine(UNIT, known)] == [UNKNOWN]


def test_systemd_is_asked_once_for_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """And what it says is kept by every name; one that fails says nothing."""
    host = EngineHost(tmp_path)
    monkeypatch.setattr("xidwatch.cli.check_units.systemctl", lambda: str(host.bin / "systemctl"))
    (host.bin / "answer").write_text(
        "Id=vllm.service\nNames=vllm.service llm.service\nLoadState=loaded\n\nId=b.service\nLoadState=not-found\n"
    )
    found = check_units.ask_systemd(("llm.service", "b.service"), tmp_path)
    assert found is not None
    assert (found["llm.service"]["LoadState"], found["b.service"]["LoadState"]) == ("loaded", "not-found")
    assert len(host.asked()) == 1
    host.systemctl("fail")
    assert check_units.ask_systemd((UNIT,), tmp_path) is None


# ------------------------------------------------------------------------------------------------------- containers


def container(root: Path, host: object, config: object = None, where: str = "var/lib/docker") -> None:
    folder = root / where / "containers" / "5f0c2d1e00004000"
    folder.mkdir(parents=True)
    (folder / "hostconfig.json").write_text(json.dumps(host))
    (folder / "config.v2.json").write_text(json.dumps({"Name": "/vllm"} if config is None else config))


def host_config(policy: str, **more: Any) -> dict[str, Any]:
    return {"RestartPolicy": {"Name": policy, "MaximumRetryCount": 0}, "Runtime": "runc", **more}


BY_REQUEST = {"DeviceRequests": [{"Driver": "", "Count": -1, "Capabilities": [["gpu"]]}]}


@pytest.mark.parametrize(
    "host",
    [
        host_config("unless-stopped", **BY_REQUEST),
        host_config("always", DeviceRequests=[{"Driver": "cdi", "DeviceIDs": ["nvidia.com/gpu=all"]}]),
        host_config("on-failure", Runtime="nvidia"),
        host_config("always", Devices=[{"PathOnHost": "/dev/nvidia0", "PathInContainer": "/dev/nvidia0"}]),
    ],
)
def test_a_container_with_gpus_that_docker_starts_again_goes_round_the_gate(tmp_path: Path, host: Mapping[str, Any]) -> None:
    """However it got its GPUs; with its name and what to do."""
    container(tmp_path, host)
    (found,) = check_units.of_containers(tmp_path)
    assert (found.verdict, found.about) == (BAD, "vllm")
    assert found.cure.startswith("docker update --restart=no vllm")


@pytest.mark.parametrize(
    "host",
    [
        host_config("no", **BY_REQUEST),
        host_config("", **BY_REQUEST),
        host_config("always"),
        host_config("always", DeviceRequests=None, Devices=[{"PathOnHost": "/dev/fuse"}]),
        {"RestartPolicy": None},
        [],
        None,
    ],
)
def test_other_containers_are_none_of_its_business(tmp_path: Path, host: object) -> None:
    """Without GPUs, or started by somebody else; what is no configuration is none."""
    container(tmp_path, host)
    assert list(check_units.of_containers(tmp_path)) == []


def test_docker_may_keep_them_elsewhere(tmp_path: Path) -> None:
    """As its own configuration says; a container without a name is named by its number."""
    (tmp_path / "etc/docker").mkdir(parents=True)
    (tmp_path / "etc/docker/daemon.json").write_text('{"data-root": "/srv/docker"}')
    container(tmp_path, host_config("always", **BY_REQUEST), {}, "srv/docker")
    (found,) = check_units.of_containers(tmp_path)
    assert found.about == "5f0c2d1e0000"


def test_without_docker_there_is_nothing_to_say(tmp_path: Path) -> None:
    """Nor is it unknown."""
    assert list(check_units.of_containers(tmp_path)) == []


def test_what_only_root_may_see_is_unknown_to_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """And not absent."""
    container(tmp_path, host_config("always", **BY_REQUEST))

    def denied(_: Path) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "iterdir", denied)
    (found,) = check_units.of_containers(tmp_path)
    assert (found.verdict, found.cure) == (UNKNOWN, "run this as root")


# ----------------------------------------------------------------------------------------------------------- the whole


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """A state directory whose daemon ran as an ordinary user, and a configuration with one engine."""
    (tmp_path / "run").mkdir()
    (tmp_path / "config.toml").write_text('[[engines]]\nunit = "vllm.service"\n')
    return tmp_path


def written(place: Path, **changes: Any) -> None:
    clock = SystemClock()
    engines = {UNIT: EngineState(state="RUNNING", may_start=True, gpus=("0000:11:00.0",))}
    plain: dict[str, Any] = {"verdict": "healthy", "baseline": ACCEPTED, "engines": engines, "tick": 7, "pid": os.getpid(), **changes}
    shown = StateFile(boot_id=clock.boot_id, **{"mono_ms": int(clock.now().mono * 1000), **plain})
    (place / "run" / state.NAME).write_bytes(state.encode(shown))


def found(place: Path, area: str = "") -> dict[str, list[Check]]:
    """By area, of a host that has nothing but this."""
    by_area: dict[str, list[Check]] = {}
    for each in check.look(place / "config.toml", place, place / "root"):
        by_area.setdefault(each.area, []).append(each)
    return by_area


def verdicts(place: Path, area: str) -> list[str]:
    return [each.verdict for each in found(place)[area]]


def test_a_running_daemon_with_an_accepted_baseline_is_good(place: Path) -> None:
    """Three areas in one word each."""
    written(place)
    assert [verdicts(place, area) for area in ("configuration", "daemon", "hardware", "baseline")] == [[OK]] * 4


def test_what_keeps_the_service_from_starting_is_found_before_it_does(place: Path) -> None:
    """A rule that is refused, and an interval that the unit's watchdog does not allow."""
    written(place)
    (place / "config.toml").write_text('interval = "61s"\n')
    assert [(each.about, each.verdict) for each in found(place)["configuration"]] == [("", OK), ("interval", WARNING)]
    (place / "rules.d").mkdir()
    (place / "rules.d/site.toml").write_text("xx = = ")
    looked = [each for each in check.look(place / "config.toml", place, place / "root", place) if each.area == "configuration"]
    assert [each.verdict for each in looked] == [BAD, WARNING]
    assert "site.toml" in looked[0].text
    assert f"WatchdogSec={check.SHIPPED_WATCHDOG_SECONDS}\n" in (Path(__file__).parents[2] / "systemd/xidwatch.service").read_text()


def test_without_a_daemon_nothing_is_known_of_the_hardware(place: Path) -> None:
    """It is bad that there is none."""
    assert [verdicts(place, area) for area in ("daemon", "hardware", "baseline")] == [[BAD], [UNKNOWN], [UNKNOWN]]
    written(place, pid=None)
    assert verdicts(place, "daemon") == [BAD]


@pytest.mark.parametrize(("verdict", "expected"), [("degraded", WARNING), ("failed", BAD), ("unknown", UNKNOWN)])
def test_the_hosts_verdict_is_repeated_with_its_reasons(place: Path, verdict: str, expected: str) -> None:
    """A few of them."""
    conditions = tuple(ConditionState(subject=f"gpu:0000:1{n}:00.0", type="GpuLost", status="TRUE", since="x") for n in range(5))
    written(place, verdict=verdict, conditions=conditions)
    (hardware,) = found(place)["hardware"]
    assert hardware.verdict == expected
    assert hardware.text.endswith("GpuLost gpu:0000:12:00.0 and 2 more")


def test_a_provisional_baseline_is_worth_a_look(place: Path) -> None:
    """With the command that accepts it."""
    written(place, baseline=BaselineState(provisional=True, since="2026-09-17T00:00:00.000Z"))
    (baseline,) = found(place)["baseline"]
    assert (baseline.verdict, baseline.cure) == (WARNING, "xidwatch check --accept")
    written(place, baseline=None)
    assert verdicts(place, "baseline") == [UNKNOWN]


def test_an_engine_that_is_latched_or_past_its_gate_is_said(place: Path) -> None:
    """And one whose GPUs nobody knows."""
    engine = EngineState(state="LATCHED", may_start=False, why="4 starts within 1 h", order="2026-09-17T04:10:00.000Z")
    written(place, engines={UNIT: engine}, maintenance=MaintenanceState(until="x", reason="y"))
    cures = "\n".join(each.cure for each in found(place)["engines"])
    assert "xidwatch gate --reset vllm.service" in cures
    assert "xidwatch gate --close vllm.service" in cures
    assert 'gpus = "all", or their addresses' in cures
    assert found(place)["hardware"][-1].cure == "xidwatch maintenance off"


def test_an_engine_that_the_running_daemon_does_not_know_is_bad(place: Path) -> None:
    """It takes them at its start alone; one that the file has lost is still acted on."""
    written(place, engines={"llama.service": EngineState(state="RUNNING", may_start=True, gpus=("0000:11:00.0",))})
    by_unit = {(each.about, each.verdict) for each in found(place)["engines"] if each.cure.startswith("systemctl restart xidwatch")}
    assert by_unit == {(UNIT, BAD), ("llama.service", WARNING)}
    written(place)
    assert not [each for each in found(place)["engines"] if each.cure.startswith("systemctl restart xidwatch")]


def test_an_engine_that_cannot_be_asked_is_said(place: Path) -> None:
    """Its being ready would mean little; any one page is enough."""
    written(place)
    assert [each for each in found(place)["engines"] if "stays up for 5 s" in each.text]
    (place / "config.toml").write_text('[[engines]]\nunit = "vllm.service"\nhealth = "http://127.0.0.1:8000/health"\n')
    assert not [each for each in found(place)["engines"] if "stays up for 5 s" in each.text]


def test_a_key_that_the_service_would_not_find_is_said_before_the_night(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What it is stays unsaid. A place that the service does not see is said even where this command sees it."""
    path = place / "api.key"
    (place / "config.toml").write_text(f'[[engines]]\nunit = "vllm.service"\napi_key_file = "{path}"\n')
    written(place)

    def of_key() -> list[str]:
        return [each.text for each in found(place)["engines"] if "key of its API" in each.text]

    monkeypatch.setattr(check, "HIDDEN", ())
    assert of_key() == [f"the key of its API cannot be had ({path}: no such file or directory): no token would be made"]
    path.write_text("open sesame\n")
    assert of_key() == [f"the key of its API cannot be had ({path}: its first line is no key): no token would be made"]
    path.write_text("sesame\n")
    assert of_key() == []
    monkeypatch.setattr(check, "HIDDEN", (str(place),))
    assert of_key() == [f"the key of its API lies below {place}, which the service does not see: no token would be made"]


def test_a_hung_daemon_is_not_said_to_be_gone(place: Path) -> None:
    """Its process is there, and its word is old; one whose process is gone does not run."""
    written(place, mono_ms=1)
    (daemon,) = found(place)["daemon"]
    assert (daemon.verdict, daemon.cure) == (BAD, "systemctl restart xidwatch")
    assert daemon.text.startswith("hangs")
    written(place, mono_ms=1, pid=GONE)
    (daemon,) = found(place)["daemon"]
    assert daemon.text.startswith("does not run")


def drop_in(place: Path, unit: str, name: str = "50-xidwatch.conf", text: str = "") -> None:
    folder = place / f"root/etc/systemd/system/{unit}.d"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / name).write_text(text or GATE.read_text())


def test_a_gate_beside_a_unit_without_a_table_is_bad(place: Path) -> None:
    """It would never start; those with one, their stand-ins and instances, and other drop-ins are as they should be."""
    (place / "config.toml").write_text(
        '[[engines]]\nunit = "vllm.service"\nafter_incident_unit = "gentle.service"\n[[engines]]\nunit = "llama@0.service"\n'
    )
    written(place)
    for unit in (UNIT, "gentle.service", "llama@.service", "stray.service", "other@1.service"):
        drop_in(place, unit)
    drop_in(place, "xidwatch.service", text="[Service]\nReadWritePaths=-/mnt/usb/xidwatch\n")
    drop_in(place, "foreign.service", "10-memory.conf")
    stray = {each.about: each for each in found(place)["engines"] if "never starts" in each.text}
    assert sorted(stray) == ["other@1.service", "stray.service"]
    assert stray["stray.service"].verdict == BAD
    assert "make uninstall-gate UNIT=stray.service" in stray["stray.service"].cure


def test_with_a_refused_configuration_no_gate_is_called_a_stray(place: Path) -> None:
    """Nobody knows which engines it was to name."""
    (place / "config.toml").write_text('[[engines]]\nunit = "vllm.service"\ncolour = "blue"\n')
    written(place)
    drop_in(place, UNIT)
    assert not [each for each in found(place)["engines"] if each.verdict == BAD]


def test_a_mistake_in_the_configuration_is_bad_and_the_rest_is_looked_at(place: Path) -> None:
    """Every mistake by itself."""
    (place / "config.toml").write_text('colour = "blue"\nshape = "round"\n')
    written(place)
    assert verdicts(place, "configuration") == [BAD, BAD]
    assert verdicts(place, "daemon") == [OK]


def test_what_outlives_a_crash_is_looked_at(place: Path) -> None:
    """The driver's state between two clients, and the journal of the boot before."""
    (place / "root/proc/driver/nvidia").mkdir(parents=True)
    (place / "root/run/systemd/journal").mkdir(parents=True)
    assert [each.about for each in found(place)["persistence"]] == ["driver", "journal"]
    (place / "root/var/log/journal").mkdir(parents=True)
    assert [each.about for each in found(place)["persistence"]] == ["driver"]


@pytest.mark.parametrize(
    ("verdicts", "code", "npd"),
    [([OK], 0, 0), ([OK, WARNING], 1, 0), ([WARNING, UNKNOWN], 3, 2), ([UNKNOWN, BAD, OK], 2, 1), ([], 0, 0)],
)
def test_the_exit_status_is_the_worst(
    verdicts: list[str], code: int, npd: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """In our numbers, or in node-problem-detector's, with one short line for it."""
    checks = [Check("daemon", "", verdict, "x" * 100, "cure") for verdict in verdicts]
    monkeypatch.setattr(check, "look", lambda *_, **__: iter(checks))
    assert cli.main(["check"]) == code
    assert cli.main(["check", "--json"]) == code
    capsys.readouterr()
    assert cli.main(["check", "--exit-codes", "npd"]) == npd
    out = capsys.readouterr().out
    assert out.count("\n") == 1
    assert len(out) <= 81


def test_one_area_can_be_looked_at_alone(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Its exit status is that of the area; what to do stands below what is wrong."""
    written(place, baseline=BaselineState(provisional=True, since="2026-09-17T00:00:00.000Z"))
    words = ["check", "--state-dir", str(place), "--config", str(place / "config.toml"), "--only", "baseline"]
    assert cli.main(words) == 1
    assert capsys.readouterr().out.splitlines()[1].strip() == "xidwatch check --accept"
    assert cli.main([*words[:-1], "daemon", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["checks"][0]["area"] == "daemon"
