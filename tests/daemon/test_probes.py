"""The probes as the daemon knows them: by string, with what the configuration says."""

from __future__ import annotations

import importlib
import json
from dataclasses import replace

from xidwatch.config import PROBES, parse_config
from xidwatch.daemon import probes
from xidwatch.daemon.probes import FIRST_NVML_SECONDS, deadlines, preload, specs, sysfs_root
from xidwatch.probes.hwmon import create

ENGINES = {"engines": [{"unit": "vllm.service", "metrics": "http://127.0.0.1:8000/metrics"}, {"unit": "b.service"}]}


def test_every_probe_is_there_and_can_be_made() -> None:
    """Its module offers `create`, and takes the options it is given."""
    chosen = specs(parse_config({**ENGINES, "probes": {"pci": {"root": "/host/sys"}, "host": {"root": "/host/proc"}}}))
    assert tuple(spec.name for spec in chosen) == PROBES
    assert {spec.name: dict(spec.options) for spec in chosen} == {
        "nvml": {},
        "pci": {"root": "/host/sys"},
        "hwmon": {"rails": [], "poll": []},
        "host": {"proc_root": "/host/proc"},
        "engine": {"engines": [{"unit": "vllm.service", "metrics": "http://127.0.0.1:8000/metrics"}, {"unit": "b.service", "metrics": ""}]},
    }
    for spec in chosen:
        module, _, create = spec.target.partition(":")
        made = getattr(importlib.import_module(module), create)(spec.options)
        made.close()


def test_the_sensors_are_told_of_the_rails_and_of_what_may_be_polled() -> None:
    """As plain values that survive the way into another process, and that the probe takes without a word."""
    rail = {"name": "psu1_12v", "chip": "corsairpsu@usb1/1-5", "input": "in1", "nominal_volts": 12.0}
    config = parse_config({"rails": [rail], "probes": {"hwmon": {"poll": ["corsair-psu"]}}})
    (options,) = (spec.options for spec in specs(config) if spec.name == "hwmon")
    assert json.loads(json.dumps(options)) == {"rails": [{**rail, "factor": 1.0, "tolerance_ratio": 0.05}], "poll": ["corsair-psu"]}
    create(options)


def test_only_nvml_holds_the_driver_and_may_take_long_at_first() -> None:
    """The one that is never killed; and only the one that touches no driver looks at an edge."""
    by_name = {spec.name: spec for spec in specs(parse_config({}))}
    assert [name for name, spec in by_name.items() if spec.holds_driver] == ["nvml"]
    assert [name for name, spec in by_name.items() if spec.looks] == ["pci"]
    assert by_name["nvml"].first_deadline_seconds == FIRST_NVML_SECONDS
    assert by_name["pci"].first_deadline_seconds == by_name["pci"].deadline_seconds == 4


def test_a_probe_that_is_switched_off_is_not_there() -> None:
    """Nor loaded in advance."""
    chosen = specs(parse_config({"probes": {"nvml": {"enabled": False}}}))
    assert [spec.name for spec in chosen] == ["pci", "hwmon", "host"]
    assert "xidwatch.probes.nvml" not in preload(chosen)
    assert "xidwatch.probes.pci" in preload(chosen)


def test_without_an_engine_nobody_looks_for_one() -> None:
    """Not a process more than is needed."""
    assert "engine" not in [spec.name for spec in specs(parse_config({}))]
    assert "engine" in [spec.name for spec in specs(parse_config(ENGINES))]
    assert "engine" not in [spec.name for spec in specs(parse_config({**ENGINES, "probes": {"engine": {"enabled": False}}}))]


def test_what_is_loaded_in_advance_exists() -> None:
    """A module that is not there would be looked for on the disk in the night."""
    for module in preload(specs(parse_config({}))):
        importlib.import_module(module)


def test_a_new_configuration_changes_the_deadlines_of_running_probes() -> None:
    """Both ways: a longer interval gives back what a short one had cut."""
    chosen = specs(parse_config({"interval": "1s"}))
    assert deadlines(chosen, parse_config({"interval": "1s"})) == {"nvml": 0.8, "pci": 0.8, "hwmon": 0.8, "host": 0.8}
    assert deadlines(chosen, parse_config({"probes": {"pci": {"deadline": "9s"}}})) == {"nvml": 5, "pci": 9, "hwmon": 4, "host": 2}


def test_a_foreign_probe_keeps_its_own_deadline() -> None:
    """Tests and benchmarks bring theirs, under any name; the interval bounds it all the same."""
    (pci,) = (spec for spec in specs(parse_config({})) if spec.name == "pci")
    fake = replace(pci, target="tests.fakes.probes:answers", deadline_seconds=0.5)
    other = replace(fake, name="other", deadline_seconds=60)
    assert deadlines((fake, other), parse_config({"interval": "10s"})) == {"pci": 0.5, "other": 8}


def test_a_dump_reads_the_tree_that_the_probe_reads() -> None:
    """The real one where nothing is said."""
    assert sysfs_root(parse_config({})) == "/sys"
    assert sysfs_root(parse_config({"probes": {"pci": {"root": "/host/sys"}}})) == "/host/sys"
    assert set(probes.ROOT_OPTION) == {"pci", "hwmon", "host"}
