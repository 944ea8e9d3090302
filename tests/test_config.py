"""What an operator may write, and what is said about every mistake."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from xidwatch import config as settings
from xidwatch.config import (
    Config,
    ConfigError,
    EngineConfig,
    RailConfig,
    as_mapping,
    check_watchdog,
    load_config,
    parse_config,
)
from xidwatch.core.recovery_model import RecoveryStep

SHIPPED = Path(__file__).parent.parent / "rules"


def problems(table: dict[str, Any]) -> list[str]:
    """What is said about a table; nothing when it is taken."""
    try:
        parse_config(table, "c.toml")
    except ConfigError as error:
        return error.problems
    return []


RAIL: dict[str, Any] = {"name": "psu1_12v", "chip": "nct6798@platform/nct6775.656", "input": "in1", "nominal_volts": 12.0}


def rail(**changes: Any) -> dict[str, Any]:
    """A configuration with one rail, changed; None takes a key away."""
    return {"rails": [{key: value for key, value in {**RAIL, **changes}.items() if value is not None}]}


ENGINE: dict[str, Any] = {"unit": "vllm.service"}


def engine(**changes: Any) -> dict[str, Any]:
    """A configuration with one engine, changed; None takes a key away."""
    return {"engines": [{key: value for key, value in {**ENGINE, **changes}.items() if value is not None}]}


# --- taken


def test_without_a_file_the_defaults_hold(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Thirty seconds, metrics on loopback only, every probe."""
    monkeypatch.setattr(settings, "DEFAULT_CONFIG", tmp_path / "config.toml")
    config = load_config(None)
    assert config == Config() == parse_config({})
    assert config.interval_seconds == 30
    assert config.metrics_address == ("127.0.0.1", 20079)
    assert [config.deadline_seconds(probe) for probe in settings.PROBES] == [5, 4, 4, 2, 4]


def test_the_default_file_is_read_when_it_is_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody has to name it, and its mistakes count."""
    monkeypatch.setattr(settings, "DEFAULT_CONFIG", tmp_path / "config.toml")
    (tmp_path / "config.toml").write_text('interval = "5s"\n')
    assert load_config(None).interval_seconds == 5
    (tmp_path / "config.toml").write_text("interval = 5\n")
    with pytest.raises(ConfigError, match=r"config\.toml: interval"):
        load_config(None)


def test_the_example_in_the_docstring_is_taken(tmp_path: Path) -> None:
    """What is documented works."""
    assert settings.__doc__
    example = settings.__doc__.partition("\n\n")[2].rpartition("\n\nWithout")[0]
    path = tmp_path / "config.toml"
    path.write_text(example)
    config = load_config(path)
    assert config.interval == "30s"
    assert config.probes.nvml.enabled
    assert config.probes.hwmon.poll == ("corsair-psu",)
    assert config.rails == (RailConfig("psu1_12v", "nct6798@platform/nct6775.656", "in1", 12.0, 12.0, "5%"),)
    url = "http://127.0.0.1:8000"
    assert config.engines == (EngineConfig("vllm.service", ("0000:11:00.0", "0000:12:00.0"), f"{url}/metrics", f"{url}/v1"),)


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("127.0.0.1:20079", ("127.0.0.1", 20079)),
        ("0.0.0.0:9100", ("0.0.0.0", 9100)),
        ("[::1]:20079", ("::1", 20079)),
        ("[::]:0", ("::", 0)),
        ("", None),
    ],
)
def test_metrics_may_listen_where_the_operator_says(text: str, address: tuple[str, int] | None) -> None:
    """Either version of IP, beyond loopback if that is wanted, or not at all."""
    assert parse_config({"metrics": text}).metrics_address == address


def test_a_deadline_never_reaches_into_the_next_tick() -> None:
    """It is cut to eight tenths of the interval, without an error: the defaults must fit any interval."""
    config = parse_config({"interval": "1s", "probes": {"host": {"deadline": "300ms"}}})
    assert config.deadline_seconds("nvml") == pytest.approx(0.8)
    assert config.deadline_seconds("host") == pytest.approx(0.3)


def test_a_root_is_where_a_tree_is_mounted() -> None:
    """Empty where it always is, and for a probe that reads no tree."""
    config = parse_config({"probes": {"pci": {"root": "/host/sys"}}})
    assert [config.root(probe) for probe in settings.PROBES] == ["", "/host/sys", "", "", ""]


def test_a_configuration_survives_the_way_between_processes() -> None:
    """As plain values and back."""
    config = parse_config({"interval": "5s", "evidence_dirs": ["/mnt/usb"], "rails": [RAIL], "probes": {"nvml": {"enabled": False}}})
    assert parse_config(as_mapping(config)) == config
    assert config.evidence_dirs == ("/mnt/usb",)


def test_a_rail_needs_four_words() -> None:
    """Without a factor the driver is believed to know the rail; without a tolerance it is that of the ATX guide."""
    (rail,) = parse_config({"rails": [RAIL]}).rails
    assert rail.factor == 1.0
    assert rail.tolerance_ratio == pytest.approx(0.05)
    (negative,) = parse_config({"rails": [{**RAIL, "nominal_volts": -12, "factor": -7.5, "tolerance": "10%"}]}).rails
    assert (negative.nominal_volts, negative.factor) == (-12, -7.5)
    assert negative.tolerance_ratio == pytest.approx(0.1)


def test_an_engine_needs_its_unit_only() -> None:
    """Its GPUs are found, it is asked nothing; instances and odd names of units are names of units."""
    (found,) = parse_config(engine()).engines
    assert found == EngineConfig("vllm.service", "found", "", "")
    for unit in ("vllm@0.service", "system-x\\x2d1.service", "a.b:c_d.service"):
        assert parse_config(engine(unit=unit)).engines[0].unit == unit
    whole = engine(gpus=["0000:11:00.0", "PCI:0000:12:00"], metrics="http://[::1]:8000/metrics", probe="http://localhost:8000/v1")
    assert parse_config(whole).engines[0].gpus == ("0000:11:00.0", "PCI:0000:12:00")
    assert parse_config(as_mapping(parse_config(whole))) == parse_config(whole)
    assert parse_config(engine(gpus="all")).engines[0].gpus == "all"


# --- refused

LEFT_ALONE = "asus_wmi_sensors, corsair-cpro, corsair-psu, drivetemp, nvme"
MISTAKES: dict[str, tuple[dict[str, Any], str]] = {
    "unknown key": (
        {"intervall": "30s"},
        "intervall: unknown key (known here: engines, evidence_dirs, interval, kernel_log, metrics, probes, rails, recovery)",
    ),
    "unknown probe": ({"probes": {"gpu": {}}}, "probes.gpu: unknown key (known here: engine, host, hwmon, nvml, pci)"),
    "no such setting": ({"probes": {"nvml": {"root": "/x"}}}, "probes.nvml.root: unknown key (known here: deadline, enabled)"),
    "number without unit": ({"interval": 30}, 'interval: expected a text in quotes, as in "30s", not 30'),
    "text for a switch": ({"probes": {"pci": {"enabled": "no"}}}, 'probes.pci.enabled: expected true or false, not "no"'),
    "switch for a text": ({"metrics": False}, 'metrics: expected a text in quotes, as in "30s", not false'),
    "number for a table": ({"probes": {"pci": 4}}, "probes.pci: expected a table, [probes.pci], not 4"),
    "table for a text": ({"interval": {}}, 'interval: expected a text in quotes, as in "30s", not a table'),
    "list for a text": ({"kernel_log": ["/dev/kmsg", True]}, 'kernel_log: expected a text in quotes, as in "30s", not ["/dev/kmsg", true]'),
    "text for a list": (
        {"evidence_dirs": "/a"},
        'evidence_dirs: expected a list of texts in quotes, as in ["/mnt/usb/xidwatch"], not "/a"',
    ),
    "duration without unit": (
        {"probes": {"host": {"deadline": "5"}}},
        "probes.host.deadline: '5' is not a duration (a number and its unit: ms, s, m, h or d, as in \"30s\")",
    ),
    "negative duration": (
        {"interval": "-30s"},
        "interval: '-30s' is not a duration (a number and its unit: ms, s, m, h or d, as in \"30s\")",
    ),
    "interval too short": ({"interval": "10ms"}, 'interval: must be at least "0.2s", not "10ms"'),
    "no time to answer": ({"probes": {"pci": {"deadline": "0s"}}}, 'probes.pci.deadline: must be at least "0.05s", not "0s"'),
    "relative path": ({"probes": {"pci": {"root": "sys"}}}, 'probes.pci.root: must be a full path, beginning with "/", not "sys"'),
    "no log": ({"kernel_log": ""}, 'kernel_log: must be a full path, beginning with "/", not ""'),
    "driver that is read anyway": (
        {"probes": {"hwmon": {"poll": ["nct6775"]}}},
        f'probes.hwmon.poll[0]: "nct6775" is no driver that is left alone (those are: {LEFT_ALONE}); all others are read anyway',
    ),
    "one table for several": ({"rails": RAIL}, "rails: expected tables, each begun with [[rails]], not a table"),
    "names for rails": ({"rails": ["psu1"]}, 'rails: expected tables, each begun with [[rails]], not ["psu1"]'),
    "half a rail": (rail(chip=None), "rails[0].chip: missing"),
    "unknown key of a rail": (
        rail(scale=12.0),
        "rails[0].scale: unknown key (known here: chip, factor, input, name, nominal_volts, tolerance)",
    ),
    "text for a number": (rail(factor="12"), 'rails[0].factor: expected a number, as in 12.0, not "12"'),
    "switch for a number": (rail(nominal_volts=True), "rails[0].nominal_volts: expected a number, as in 12.0, not true"),
    "no number": (rail(factor=float("nan")), "rails[0].factor: must be a number other than 0, not nan"),
    "no volts": (rail(nominal_volts=0), "rails[0].nominal_volts: must be a number other than 0, not 0"),
    "name of a rail": (rail(name="+12V"), 'rails[0].name: must be small letters, digits, "_" and "-", as in "psu1_12v", not "+12V"'),
    "number of a chip": (
        rail(chip="hwmon3"),
        'rails[0].chip: must be a chip as `xidwatch run` names it, as in "nct6798@platform/nct6775.656", not "hwmon3"',
    ),
    "fan for a rail": (rail(input="fan1"), 'rails[0].input: must be a voltage input, as in "in1", not "fan1"'),
    "tolerance without sign": (
        rail(tolerance="5"),
        'rails[0].tolerance: must be a share above 0 and below 50 with its sign, as in "5%", not "5"',
    ),
    "no tolerance": (
        rail(tolerance="0%"),
        'rails[0].tolerance: must be a share above 0 and below 50 with its sign, as in "5%", not "0%"',
    ),
    "two of a name": ({"rails": [RAIL, {**RAIL, "input": "in2"}]}, 'rails: two are called "psu1_12v"'),
    "two names for one": ({"rails": [RAIL, {**RAIL, "name": "b"}]}, "rails: in1 of nct6798@platform/nct6775.656 is named twice"),
    "half a unit": (engine(unit="vllm"), 'engines[0].unit: must be a service of systemd with its ending, as in "vllm.service", not "vllm"'),
    "an option for a unit": (
        engine(unit="--all.service"),
        'engines[0].unit: must be a service of systemd with its ending, as in "vllm.service", not "--all.service"',
    ),
    "a path for a unit": (
        engine(unit="../x.service"),
        'engines[0].unit: must be a service of systemd with its ending, as in "vllm.service", not "../x.service"',
    ),
    "no unit": (engine(unit=None), "engines[0].unit: missing"),
    "half a stand-in": (
        engine(after_incident_unit="gentle"),
        'engines[0].after_incident_unit: must be a service of systemd with its ending, as in "vllm.service", not "gentle"',
    ),
    "its own stand-in": (engine(after_incident_unit="vllm.service"), "engines: vllm.service is named twice"),
    "health elsewhere": (
        engine(health="http://10.0.0.1:8000/health"),
        'engines[0].health: only this host is asked, by 127.0.0.1, [::1] or localhost, not "http://10.0.0.1:8000/health"',
    ),
    "a key somewhere": (
        engine(api_key_file="vllm.key"),
        'engines[0].api_key_file: must be a full path, beginning with "/", not "vllm.key"',
    ),
    "no time to settle": (engine(settle="0s"), 'engines[0].settle: must be at least "1s", not "0s"'),
    "a back-off of days": (engine(back_off="2d"), 'engines[0].back_off: must be at most "3600s", not "2d"'),
    "no start at all": (engine(most_starts=0), "engines[0].most_starts: must be at least 1 and at most 100, not 0"),
    "less than no power": (
        engine(power_limit_watts=-1.0),
        "engines[0].power_limit_watts: must be watts, or 0 for those that were accepted with the baseline, not -1",
    ),
    "metrics elsewhere": (
        engine(metrics="http://10.0.0.1:8000/metrics"),
        'engines[0].metrics: only this host is asked, by 127.0.0.1, [::1] or localhost, not "http://10.0.0.1:8000/metrics"',
    ),
    "metrics of another kind": (
        engine(metrics="https://127.0.0.1/metrics"),
        'engines[0].metrics: must be an address on this host, as in "http://127.0.0.1:8000/metrics", not "https://127.0.0.1/metrics"',
    ),
    "an API without its scheme": (
        engine(probe="127.0.0.1:8000/v1"),
        'engines[0].probe: must be an address on this host, as in "http://127.0.0.1:8000/metrics", not "127.0.0.1:8000/v1"',
    ),
    "some GPUs": (engine(gpus="some"), 'engines[0].gpus: must be "found", "all" or a list of PCI addresses, not "some"'),
    "a number of GPUs": (
        engine(gpus=4),
        'engines[0].gpus: expected "found", "all" or a list of PCI addresses, as in ["0000:11:00.0"], not 4',
    ),
    "no GPU": (engine(gpus=[]), 'engines[0].gpus: an engine without GPUs needs no list: leave `gpus` out, or write "found"'),
    "an index for a GPU": (engine(gpus=["0"]), "engines[0].gpus: not a PCI address: '0' (expected dddd:bb:dd.f)"),
    "a GPU twice": (engine(gpus=["0000:11:00.0", "00000000:11:00.0"]), "engines[0].gpus: a GPU is named twice"),
    "a unit twice": ({"engines": [ENGINE, ENGINE]}, "engines: vllm.service is named twice"),
    "a step that is not there": (
        {"recovery": {"rescann": True}},
        (
            "recovery.rescann: unknown key (known here: allow_reboot, gpu_reset, module_reload, reboot_after, reboot_window, rescan, "
            "slot_power, wait)"
        ),
    ),
    "half a yes": ({"recovery": {"allow_reboot": "yes"}}, 'recovery.allow_reboot: expected true or false, not "yes"'),
    "no table of steps": ({"recovery": True}, "recovery: expected a table, [recovery], not true"),
    "no time to come back": ({"recovery": {"wait": "0s"}}, 'recovery.wait: must be at least "1s", not "0s"'),
    "a reboot every minute": ({"recovery": {"reboot_window": "1m"}}, 'recovery.reboot_window: must be at least "3600s", not "1m"'),
    "relative directory": ({"evidence_dirs": ["/a", "b"]}, 'evidence_dirs[1]: must be a full path, beginning with "/", not "b"'),
}


@pytest.mark.parametrize(("table", "said"), MISTAKES.values(), ids=MISTAKES)
def test_a_mistake_is_named_with_its_place_and_the_cure(table: dict[str, Any], said: str) -> None:
    """In the words of the file, not of the programming language."""
    assert problems(table) == [f"c.toml: {said}"]


@pytest.mark.parametrize("text", ["localhost:20079", "127.0.0.1", ":20079", "127.0.0.1:http", "127.0.0.1:65536", "1.2.3:80", "20079"])
def test_an_address_is_an_ip_and_a_port(text: str) -> None:
    """A name would have to be looked up, and the loop does not wait for a name service."""
    (said,) = problems({"metrics": text})
    assert said.startswith(f'c.toml: metrics: "{text}" is not an address to listen on')
    assert '"127.0.0.1:20079"' in said


def test_every_mistake_is_said_at_once() -> None:
    """A wrong type in one place hides no wrong value in another, and is not said twice."""
    table = {"interval": 30, "metrics": "here", "x": 1, "probes": {"pci": 4, "host": {"deadline": "5"}, "nvml": {"enabled": 1}}}
    places = [said.split(": ")[1] for said in problems(table)]
    assert sorted(places) == ["interval", "metrics", "probes.host.deadline", "probes.nvml.enabled", "probes.pci", "x"]
    table = {"rails": [{"name": "A", "volts": 1}, {**RAIL, "factor": 0, "tolerance": "x"}, {**RAIL, "input": 3}], "interval": "5"}
    places = [said.split(": ")[1] for said in problems(table)]
    assert sorted(places) == [
        "interval", "rails[0].chip", "rails[0].input", "rails[0].name", "rails[0].nominal_volts", "rails[0].volts",
        "rails[1].factor", "rails[1].tolerance", "rails[2].input",
    ]  # fmt: skip


JSONISH: st.SearchStrategy[Any] = st.recursive(
    st.one_of(st.booleans(), st.integers(), st.floats(), st.text(max_size=8)),
    lambda inner: st.one_of(st.lists(inner, max_size=2), st.dictionaries(st.text(max_size=8), inner, max_size=2)),
    max_leaves=6,
)
KEYS = st.sampled_from(["interval", "metrics", "kernel_log", "evidence_dirs", "rails", "engines", "probes"])


@given(st.dictionaries(KEYS, JSONISH, max_size=4))
def test_whatever_is_written_is_taken_or_refused_in_words(table: dict[str, Any]) -> None:
    """Never a traceback, and never the jargon of a validator."""
    for said in problems(table):
        assert said.startswith("c.toml: ")
        for jargon in "$`":
            assert jargon not in said or jargon in str(table)


def test_a_file_that_cannot_be_read_is_refused(tmp_path: Path) -> None:
    """One that was named has to be there, and has to be TOML."""
    with pytest.raises(ConfigError, match=r"nowhere\.toml: No such file"):
        load_config(tmp_path / "nowhere.toml")
    with pytest.raises(ConfigError, match="Is a directory"):
        load_config(tmp_path)
    broken = tmp_path / "broken.toml"
    for content in (b"interval = \n", b'interval = "30s\n', b"\xff\xfe", b"x = " + b"[" * 5000):
        broken.write_bytes(content)
        with pytest.raises(ConfigError, match=r"broken\.toml: not TOML: .+"):
            load_config(broken)


def test_an_interval_has_to_fit_twice_into_the_watchdog() -> None:
    """Without a watchdog any interval will do."""
    config = parse_config({"interval": "60s"})
    check_watchdog(config, 0)
    check_watchdog(config, 120)
    with pytest.raises(ConfigError, match=r'interval: "60s" is longer than half of the unit\'s WatchdogSec \(90 s\)'):
        check_watchdog(config, 90)


@pytest.mark.parametrize("probe", settings.PROBES)
def test_a_table_that_says_one_thing_changes_nothing_else(probe: str) -> None:
    """The deadline of a probe that is merely named is that of its default, not that of another kind of probe."""
    assert parse_config({"probes": {probe: {"enabled": True}}}) == Config()


def test_every_step_of_recovery_is_off_and_switched_on_alone() -> None:
    """Nothing is done by itself unless somebody has said so, and in no other order than the ladder's."""
    assert Config().recovery.enabled == ()
    for key, step in zip(("rescan", "slot_power", "gpu_reset", "module_reload", "allow_reboot"), RecoveryStep, strict=True):
        assert parse_config({"recovery": {key: True}}).recovery.enabled == (step,)
    assert parse_config({"recovery": {"allow_reboot": True, "rescan": True}}).recovery.enabled == (RecoveryStep.RESCAN, RecoveryStep.REBOOT)
