"""The configuration as a file for people: complete, explained, and read back as what it was made from."""

from __future__ import annotations

import re
import tomllib

import msgspec
import pytest

from xidwatch.config import Config, EngineConfig, RailConfig, as_mapping, parse_config, template
from xidwatch.config.tables import HwmonProbeConfig, ProbeConfig, ProbesConfig, TreeProbeConfig
from xidwatch.core.suspects import EngineSuspect, Suspect

RAIL = RailConfig(name="psu1_12v", chip="nct6798@platform/nct6775.656", input="in1", nominal_volts=12.0, factor=11.9, tolerance="3%")
ENGINE = EngineConfig("vllm@a.service", ("0000:11:00.0", "0000:12:00.0"), "http://127.0.0.1:8000/metrics")
EVERYTHING = Config(
    interval="10s",
    metrics="",
    kernel_log='/run/"odd"\\log',
    evidence_dirs=("/mnt/usb/xidwatch", "/mnt/second one"),
    rails=(RAIL, msgspec.structs.replace(RAIL, name="psu2_12v", input="in2")),
    engines=(ENGINE, EngineConfig("sglang.service", "all")),
    probes=ProbesConfig(
        nvml=ProbeConfig(enabled=False, deadline="7s"),
        pci=TreeProbeConfig(root="/copy/sys"),
        hwmon=HwmonProbeConfig(poll=("corsair-psu",)),
        engine=ProbeConfig(deadline="3s"),
    ),
)
SUSPECT = Suspect("nct6798_in6_12v", "nct6798@platform/nct6775.656", "in6", 12.2, 12.0, "reads 0.983 V at the pin")
SERVICE = EngineSuspect("vllm.service", "vllm", 8000, ("0000:11:00.0",), "it looks like vllm")


def read(text: str) -> Config:
    return parse_config(tomllib.loads(text))


def uncommented(text: str) -> str:
    """Every setting and every proposal switched on."""
    lines = (line.removeprefix("# ") for line in text.splitlines())
    return "\n".join(line for line in lines if re.match(r"\[|[a-z_]+ = ", line))


@pytest.mark.parametrize("config", [Config(), EVERYTHING], ids=["defaults", "everything"])
def test_it_is_read_back_as_what_it_was_made_from(config: Config) -> None:
    """Proposals among it change nothing."""
    assert read(template.text(config)) == config
    assert read(template.text(config, [SUSPECT], [SERVICE])) == config


def test_the_defaults_are_all_there_and_switched_off() -> None:
    """Taking away every "#" gives the same configuration, with the examples."""
    text = template.text(Config())
    assert tomllib.loads(text) == {"probes": {key: {} for key in ("nvml", "pci", "hwmon", "host", "engine")}, "recovery": {}}
    everything = as_mapping(read(uncommented(text)))
    defaults = as_mapping(Config())
    assert {key: value for key, value in everything.items() if key not in ("rails", "engines")} == {
        key: value for key, value in defaults.items() if key not in ("rails", "engines")
    }
    assert [rail["name"] for rail in everything["rails"]] == ["psu1_12v"]
    assert [engine["unit"] for engine in everything["engines"]] == ["vllm.service"]


def test_what_is_proposed_can_be_taken_as_it_is() -> None:
    """With the reason beside it; what is configured already is not proposed again."""
    text = template.text(Config(), [SUSPECT], [SERVICE])
    taken = read(uncommented(text))
    assert [(rail.name, rail.factor) for rail in taken.rails] == [("nct6798_in6_12v", 12.2)]
    assert [(engine.unit, engine.metrics) for engine in taken.engines] == [("vllm.service", "http://127.0.0.1:8000/metrics")]
    assert "# A guess: reads 0.983 V at the pin." in text
    assert "# Found: it looks like vllm." in text
    again = template.text(taken, [SUSPECT], [SERVICE])
    assert "A guess" not in again
    assert "Found" not in again


def test_a_label_cannot_break_out_of_its_comment() -> None:
    """What a driver calls an input, or a process itself, is no configuration."""
    words = Suspect(SUSPECT.name, SUSPECT.chip, SUSPECT.input, 1.0, 12.0, 'called "x"\ninterval = "1s"\r\x1b[2J')
    assert read(template.text(Config(), [words])) == Config()


def _keys(struct: type[msgspec.Struct], path: str = "") -> list[str]:
    found = []
    for field in msgspec.structs.fields(struct):
        found.append(f"{path}{field.encode_name}")
        if isinstance(field.type, type) and issubclass(field.type, msgspec.Struct) and not path:
            found += _keys(field.type, f"{path}{field.encode_name}.")
    return found


@pytest.mark.parametrize("key", _keys(Config))
def test_every_key_is_explained(key: str) -> None:
    """A key without a word here is not finished."""
    assert template.MEANING.get(key)
    assert f"# {template.MEANING[key].split()[0]}" in template.text(Config())
