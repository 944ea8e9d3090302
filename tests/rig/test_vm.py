"""What of the rig can be tested without a virtual machine: the form of its scenarios, and its own arithmetic."""

from __future__ import annotations

import inspect
import re
import tomllib

import pytest

from tests.rig.vm import explain
from tests.rig.vm.__main__ import by_length, load, names
from tests.rig.vm.build import ROOT
from tests.rig.vm.hardware import aer_injection
from tests.rig.vm.machine import GPUS, topology
from tests.rig.vm.stage import hastened
from xidwatch.core.rules import load as load_rules
from xidwatch.core.rules import seconds


@pytest.mark.parametrize("name", names())
def test_a_scenario_is_a_sentence_and_a_function(name: str) -> None:
    """A dropped file is a scenario when it says what it shows and takes a guest, and the round if it has rounds."""
    module = load(name)
    assert re.fullmatch(r"[A-Z].*[.!?]", module.__doc__ or "")
    arguments = list(inspect.signature(module.scenario).parameters)
    assert arguments == (["guest", "number"] if hasattr(module, "ROUNDS") else ["guest"])
    assert isinstance(getattr(module, "OWES", ""), str)
    assert isinstance(getattr(module, "COLD", False), bool)
    assert isinstance(getattr(module, "ENGINE", False), bool)
    assert not (getattr(module, "COLD", False) and getattr(module, "ENGINE", False)), "an engine's guest is carried on, not booted"


def test_no_long_scenario_is_left_for_the_end() -> None:
    """Boots first, then engines, and the rounds behind everything else; nobody is forgotten."""
    order = by_length(names())
    assert sorted(order) == names()
    assert order.index("panic") < order.index("night_and_morning") < order.index("night") < order.index("killed_at_write")
    assert order[-1] == "killed_at_write"


def test_the_rules_are_hastened_and_stay_rules() -> None:
    """Every hold and clear is shorter by the same factor, but those of the watcher itself, and a hold of nothing stays one."""
    text = (ROOT / "rules/conditions.toml").read_text()
    before, after = tomllib.loads(text), tomllib.loads(hastened(text))
    load_rules(after)
    factors = {
        (name.startswith("Probe"), seconds(rule[key]) / seconds(after[name][key]))
        for name, rule in before.items()
        for key in ("hold", "clear")
        if key in rule and seconds(rule[key])
    }
    assert {(about_probe, round(factor)) for about_probe, factor in factors} == {(True, 3), (False, 15)}
    assert after["ConfigSpaceAllOnes"]["hold"] == "0s"


def test_an_injected_error_is_laid_out_as_the_kernel_reads_it() -> None:
    """struct aer_error_inj of drivers/pci/pcie/aer_inject.c: bus, dev, fn, then the two status words."""
    data = aer_injection("02:03.1", correctable=0x1, uncorrectable=0x4000)
    assert len(data) == 32
    assert data[:3] == bytes([2, 3, 1])
    assert int.from_bytes(data[4:8], "little") == 0x4000
    assert int.from_bytes(data[8:12], "little") == 0x1


def test_a_machine_may_be_built_with_fewer_cards() -> None:
    """The slots stay, so that every address stays what it was."""
    assert sum("virtio-rng-pci" in word for word in topology()) == len(GPUS)
    fewer = topology(without=("gpu3",))
    assert not any("id=gpu3" in word for word in fewer)
    assert any("id=ds03" in word for word in fewer)


def test_a_failed_assertion_shows_what_it_compared() -> None:
    """The line, and the value of each side that is no constant."""
    found = {"a": 1}
    with pytest.raises(AssertionError) as caught:
        exec(compile("assert found['a'] == 2", "<scenario>", "exec"), {"found": found})
    assert explain.failure(caught.value).startswith("<scenario>:1:")


def test_the_words_of_an_assertion_come_first() -> None:
    """Who says why is quoted."""
    assert explain.failure(AssertionError("no condition GpuMissing")) == "no condition GpuMissing"
