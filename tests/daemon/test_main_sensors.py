"""Sensors in the real daemon: a chip that never answers costs its own readings only, and a rail is watched like anything else."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.daemon.harness import Rig, Running, missing_reasons, open_gate
from tests.fakes.hwmon import HwmonTree

INTERVAL_SECONDS = 0.5
BOARD = "chip:nct6798@platform/nct6775.656"
CPU = "chip:k10temp@pci0000:00/0000:00:18.3/temp1:celsius"
VOLTS = "rail:psu1_12v:volts"
RAIL = {
    "name": "psu1_12v",
    "chip": "nct6798@platform/nct6775.656",
    "input": "in1",
    "factor": 12.0,
    "nominal_volts": 12.0,
    "tolerance_ratio": 0.05,
}

pytestmark = pytest.mark.slow


@pytest.fixture
def rig(tmp_path: Path) -> Iterator[Rig]:
    with Rig(tmp_path) as rig:
        yield rig


@pytest.fixture
def tree(rig: Rig) -> HwmonTree:
    tree = HwmonTree(rig.folder / "sensors")
    tree.board()
    tree.chip("k10temp", "pci0000:00/0000:00:18.3", {"temp1_input": 51000})
    return tree


def start(rig: Rig, tree: HwmonTree) -> Running:
    probe = rig.probe("hwmon", "xidwatch.probes.hwmon:create", options={"root": str(tree.root), "rails": [RAIL]})
    quick = rig.rules(RailOutOfRange={"hold": "400ms", "clear": "900ms"}, RailGone={"hold": "400ms"})
    running = rig.start(rig.host(), probe, rules_dir=quick)
    running.settle()
    return running


def test_a_chip_that_never_answers_is_left_out_by_the_next_worker(rig: Rig, tree: HwmonTree) -> None:
    """While its reader is stuck the others are read, ticks keep their time, and what is missing has its reason; then all is as before."""
    running = start(rig, tree)
    gate = tree.blocks(tree.chips[0], "in5_input")
    running.until("a replacement serves", lambda: len(rig.processes("hwmon")) == 2)
    running.line("hwmon: leaves out chip:")
    running.ticks_more(2)
    gate.rename(gate.with_name("gate"))
    tree.write(tree.chips[0], {"in5_input": 2040})
    open_gate(gate.with_name("gate"))
    running.until("nobody is stuck", lambda: running.metrics()['xidwatch_probe_stuck_seconds{probe="hwmon"}'] == 0)
    running.ticks_more(3)
    assert running.terminate()[0] == 0

    rows = rig.rows()
    assert rig.most_late(rows, INTERVAL_SECONDS) < 0.5
    skipping = [row for row in rows if row.cells["probe:hwmon:stuck_seconds"] != "0" and not row.cells[VOLTS]]
    assert skipping
    for row in skipping:
        assert (row.cells[CPU], row.cells[f"{BOARD}/in5:pin_volts"]) == ("51", "")
    assert (rows[-1].cells[VOLTS], rows[-1].cells[f"{BOARD}/in5:pin_volts"]) == ("12.096", "2.04")
    # in1 comes before the input that blocks: its reading had left the process.
    assert missing_reasons(rig.journal(), VOLTS) == ["NOT_ASKED", None]
    assert missing_reasons(rig.journal(), f"{BOARD}/in5:pin_volts") == ["TIMED_OUT", "NOT_ASKED", None]


def test_a_sag_is_on_record_with_its_interval_and_a_rail_that_goes_is_missed(rig: Rig, tree: HwmonTree) -> None:
    """Eight per cent, then good, then away and back under another number; no incident of any of it, and the pin beside it is nobody's."""
    running = start(rig, tree)
    tree.write(tree.chips[0], {"in1_input": 920, "in5_input": 0})
    running.until_condition("RailOutOfRange", "rail:psu1_12v", "TRUE")
    tree.write(tree.chips[0], {"in1_input": 1008})
    running.until_condition("RailOutOfRange", "rail:psu1_12v", "FALSE")
    tree.renumber()
    running.ticks_more(2)
    assert running.metrics()['xidwatch_rail_volts{rail="psu1_12v"}'] == pytest.approx(12.096)
    board = tree.chips[0]
    tree.remove(board)
    running.until_condition("RailGone", "rail:psu1_12v", "TRUE")
    tree.board()
    running.until_condition("RailGone", "rail:psu1_12v", "FALSE")
    assert running.terminate()[0] == 0

    edges = [
        (entry.body["type"], entry.body["after"]) for entry in rig.journal() if entry.kind == "transition" and entry.body["after"] == "TRUE"
    ]
    assert edges == [("RailOutOfRange", "TRUE"), ("RailGone", "TRUE")]
    assert not (rig.state_dir / "incidents").exists() or not list((rig.state_dir / "incidents").iterdir())
    assert "11.04" in {row.cells[VOLTS] for row in rig.rows()}


def test_a_rail_taken_out_of_the_configuration_is_forgotten(rig: Rig, tree: HwmonTree) -> None:
    """Nobody reads it any more: what the run before held of it would be unknown for ever."""
    running = start(rig, tree)
    tree.write(tree.chips[0], {"in1_input": 920})
    running.until_condition("RailOutOfRange", "rail:psu1_12v", "TRUE")
    running.ticks_more(1)
    running.kill()
    after = rig.start(rig.host())
    after.ticks_more(2)
    assert after.condition("ProbeStuck", "probe:host") == "FALSE"
    assert after.condition("RailOutOfRange", "rail:psu1_12v") == ""
    assert after.terminate()[0] == 0


def test_what_the_sensors_do_not_tell_is_said_once(rig: Rig, tree: HwmonTree) -> None:
    """Pins nobody has named, with an input of this host to begin with; a supply that is left alone, and why."""
    tree.supply()
    running = rig.start(rig.host(), rig.probe("hwmon", "xidwatch.probes.hwmon:create", options={"root": str(tree.root)}))
    said = running.line('hwmon: 2 voltage inputs .* chip = "nct6798@platform/nct6775.656", input = "in1", factor = 11.9')
    running.line("hwmon: 1 chip of corsair-psu left alone: each reading is a request")
    running.ticks_more(2)
    assert [line.text for line in running.lines].count(said.text) == 1
    assert running.terminate()[0] == 0
