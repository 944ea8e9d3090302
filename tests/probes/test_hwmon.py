"""The hwmon probe over a tree of sensor chips: what is a rail, what stays a pin, and what is left alone."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from tests.fakes.hwmon import HwmonTree
from xidwatch.core.model import HOST, Missing, Subject, Value
from xidwatch.core.quantities import BY_NAME
from xidwatch.probes.base import Ask, Probe, ProbeFailed
from xidwatch.probes.hwmon import HwmonProbe, Rail, create

BOARD = "nct6798@platform/nct6775.656"
SUPPLY = "corsairpsu@pci0000:00/0000:00:14.0/usb1/1-5/1-5:1.0/0003:1B1C:1C08"
RAIL = {"name": "psu1_12v", "chip": BOARD, "input": "in1", "factor": 12.0, "nominal_volts": 12.0, "tolerance_ratio": 0.05}
ON_SUPPLY = {**RAIL, "name": "psu2_12v", "chip": SUPPLY, "factor": 1.0}
ASK = Ask(deadline=float("inf"))


class Emitted:
    """What a probe said, in order."""

    def __init__(self) -> None:
        self.values: dict[str, Value] = {}
        self.story: list[str] = []

    def at(self, subject: Subject) -> None:
        self.story.append(f"at {subject}")

    def reading(self, subject: Subject, quantity: str, value: Value) -> None:
        assert quantity in BY_NAME
        self.values[f"{subject}:{quantity}"] = value
        self.story.append(f"{subject}:{quantity}")


@pytest.fixture
def tree(tmp_path: Path) -> HwmonTree:
    return HwmonTree(tmp_path / "sys")


def made(tree: HwmonTree, **options: Any) -> Probe:
    return create({"root": str(tree.root), **options})


def sampled(probe: Probe, ask: Ask = ASK) -> dict[str, Value]:
    emitted = Emitted()
    probe.sample(ask, emitted)
    return emitted.values


def inventory(probe: Probe) -> dict[str, Value]:
    emitted = Emitted()
    probe.inventory(ASK, emitted)
    return emitted.values


# --- values


def test_a_pin_without_a_name_is_a_pin(tree: HwmonTree) -> None:
    """In the units of the chip and under its name: nobody can take 1.008 V for a rail, or 2.04 V of an open pin for anything."""
    tree.board()
    assert sampled(made(tree)) == {
        f"chip:{BOARD}/in1:pin_volts": pytest.approx(1.008),
        f"chip:{BOARD}/in1:alarm": 0,
        f"chip:{BOARD}/in5:pin_volts": pytest.approx(2.04),
        f"chip:{BOARD}/in5:alarm": 1,
        f"chip:{BOARD}/temp1:celsius": 41.5,
        f"chip:{BOARD}/fan2:rpm": 1180.0,
    }


def test_a_named_input_is_a_rail(tree: HwmonTree) -> None:
    """Scaled, with what it should be, under the operator's name and no other."""
    tree.board()
    values = sampled(made(tree, rails=[RAIL]))
    assert values["rail:psu1_12v:volts"] == pytest.approx(12.096)
    assert (values["rail:psu1_12v:nominal_volts"], values["rail:psu1_12v:tolerance_ratio"]) == (12.0, 0.05)
    assert (values["rail:psu1_12v:present"], values["rail:psu1_12v:alarm"]) == (1, 0)
    assert not [column for column in values if "/in1:" in column]
    assert f"chip:{BOARD}/in5:pin_volts" in values


def test_a_supply_that_knows_its_rails_gives_real_volts(tree: HwmonTree) -> None:
    """Volts, watts and amperes as they are; still no rail before somebody says that it is one."""
    tree.supply()
    values = sampled(made(tree, poll=["corsair-psu"]))
    assert values == {
        f"chip:{SUPPLY}/in1:volts": pytest.approx(12.06),
        f"chip:{SUPPLY}/power1:watts": pytest.approx(214),
        f"chip:{SUPPLY}/curr2:amperes": pytest.approx(17.5),
        f"chip:{SUPPLY}/temp1:celsius": pytest.approx(39),
    }


def test_an_energy_counter_is_power_from_the_second_look_on(tree: HwmonTree) -> None:
    """Of a chip as of a processor; each look is one read."""
    chip = tree.chip("amd_energy", "platform/amd_energy.0", {"energy1_input": 1_000_000})
    zone = tree.zone("intel-rapl:0", "package-0", 0)
    now = iter(float(second) for second in range(0, 1000, 10))
    probe = HwmonProbe(str(tree.root), monotonic=lambda: next(now))
    assert set(sampled(probe).values()) == {Missing.NOT_ASKED}
    tree.write(chip, {"energy1_input": 3_001_000_000})
    (zone / "energy_uj").write_text("1500000000\n")
    assert sampled(probe) == {
        "chip:amd_energy@platform/amd_energy.0/energy1:power_mean_watts": pytest.approx(100),
        "chip:rapl@package-0/total:power_mean_watts": pytest.approx(50),
    }


def test_a_reading_that_fails_keeps_no_other_from_being_read(tree: HwmonTree) -> None:
    """Neither of its chip nor of another."""
    board = tree.board()
    tree.chip("k10temp", "pci0000:00/0000:00:18.3", {"temp1_input": 51000})
    tree.fails(board, "in1_input")
    values = sampled(made(tree, rails=[RAIL]))
    assert values["rail:psu1_12v:volts"] is Missing.MALFORMED
    assert values["rail:psu1_12v:present"] == 1
    assert values[f"chip:{BOARD}/in5:pin_volts"] == pytest.approx(2.04)
    assert values["chip:k10temp@pci0000:00/0000:00:18.3/temp1:celsius"] == 51


# --- which chip


def test_numbers_that_move_between_two_ticks_change_nothing(tree: HwmonTree) -> None:
    """Each rail stays with its chip."""
    tree.board()
    tree.supply()
    probe = made(tree, rails=[RAIL, ON_SUPPLY], poll=["corsair-psu"])
    before = sampled(probe)
    tree.renumber()
    assert sampled(probe) == before
    assert before["rail:psu2_12v:volts"] == pytest.approx(12.06)


def test_numbers_that_move_within_a_tick_change_nothing(tree: HwmonTree, monkeypatch: pytest.MonkeyPatch) -> None:
    """The folder found at its beginning is gone when its turn comes: it is looked for again."""
    tree.board()
    tree.supply()
    probe = HwmonProbe(str(tree.root), (Rail(**RAIL),), frozenset({"corsair-psu"}))  # type: ignore[arg-type]
    before = sampled(probe)
    report = probe._report_lost_rails

    def moved(emit: Emitted) -> None:
        report(emit)
        tree.renumber()

    monkeypatch.setattr(probe, "_report_lost_rails", moved)
    assert sampled(probe) == before


def test_a_supply_plugged_in_again_is_the_same_supply(tree: HwmonTree) -> None:
    """Its device has another count behind its name."""
    plugged = tree.supply(serial=4)
    probe = made(tree, rails=[ON_SUPPLY], poll=["corsair-psu"])
    before = sampled(probe)
    tree.remove(plugged)
    gone = sampled(probe)
    tree.supply(serial=9)
    assert sampled(probe) == before
    assert gone == {
        "rail:psu2_12v:present": 0,
        "rail:psu2_12v:volts": Missing.ABSENT,
        "rail:psu2_12v:nominal_volts": 12.0,
        "rail:psu2_12v:tolerance_ratio": 0.05,
    }


def test_a_chip_that_vanishes_within_a_tick_is_gone_in_that_tick(tree: HwmonTree, monkeypatch: pytest.MonkeyPatch) -> None:
    """And its rail with it."""
    board = tree.board()
    probe = HwmonProbe(str(tree.root), (Rail(**RAIL),))  # type: ignore[arg-type]
    in_order = probe._in_order

    def removed() -> list[str]:
        order = in_order()
        tree.remove(board)
        return order

    monkeypatch.setattr(probe, "_in_order", removed)
    values = sampled(probe)
    assert (values["rail:psu1_12v:present"], values["rail:psu1_12v:volts"]) == (0, Missing.ABSENT)


@pytest.mark.parametrize("lost", [".", "name", "in1_input"])
def test_a_chip_that_was_looked_for_while_it_came_is_found_in_the_next_tick(tree: HwmonTree, lost: str) -> None:
    """Its link was there, it was not, or not all of it: what was seen then is not believed for ever."""
    board = tree.board()
    hidden = (board.folder / lost, board.folder.parent / "hidden")
    hidden[0].rename(hidden[1])
    probe = made(tree, rails=[RAIL])
    assert sampled(probe)["rail:psu1_12v:present"] == 0
    hidden[1].rename(hidden[0])
    assert sampled(probe)["rail:psu1_12v:volts"] == 12.096


def test_an_input_that_vanishes_takes_its_rail_along(tree: HwmonTree) -> None:
    """The chip is still there; the next tick has looked again."""
    board = tree.board()
    probe = made(tree, rails=[RAIL])
    sampled(probe)
    (board.folder / "in1_input").unlink()
    assert sampled(probe)["rail:psu1_12v:volts"] is Missing.ABSENT
    assert sampled(probe)["rail:psu1_12v:present"] == 0


# --- what is left alone


def test_what_misbehaves_when_polled_is_not_touched_unasked(tree: HwmonTree) -> None:
    """No reading, no column, no announcement; a rail on it says that it was not asked."""
    tree.supply()
    tree.chip("nvme", "pci0000:00/0000:01:00.0/nvme/nvme0", {"temp1_input": 40000})
    tree.chip("drivetemp", "pci0000:00/ata1/host0/target0:0:0/0:0:0:0", {"temp1_input": 30000}, driver="sd")
    emitted = Emitted()
    made(tree, rails=[ON_SUPPLY]).sample(ASK, emitted)
    assert not [line for line in emitted.story if line.startswith(("at ", "chip:"))]
    assert (emitted.values["rail:psu2_12v:present"], emitted.values["rail:psu2_12v:volts"]) == (1, Missing.NOT_ASKED)


def test_a_chip_is_announced_before_it_is_asked_and_may_be_skipped(tree: HwmonTree) -> None:
    """The one that got stuck says NOT_ASKED; all others are read, those with a rail first."""
    tree.chip("k10temp", "pci0000:00/0000:00:18.3", {"temp1_input": 51000})
    tree.board()
    tree.supply()
    emitted = Emitted()
    probe = made(tree, rails=[RAIL], poll=["corsair-psu"])
    probe.sample(ASK, emitted)
    announced = [line.removeprefix("at chip:") for line in emitted.story if line.startswith("at ")]
    assert len(announced) == 9  # before each input, or what came before it would wait with it
    assert list(dict.fromkeys(announced)) == [BOARD, "k10temp@pci0000:00/0000:00:18.3", SUPPLY]
    assert emitted.story[0] == f"at chip:{BOARD}"

    skipped = Emitted()
    probe.sample(Ask(float("inf"), frozenset({f"chip:{BOARD}"})), skipped)
    assert f"at chip:{BOARD}" not in skipped.story
    assert skipped.values["rail:psu1_12v:volts"] is skipped.values[f"chip:{BOARD}/in5:alarm"] is Missing.NOT_ASKED
    assert skipped.values["chip:k10temp@pci0000:00/0000:00:18.3/temp1:celsius"] == 51
    assert skipped.values.keys() == emitted.values.keys()


def test_a_processor_that_does_not_answer_is_skipped_whole(tree: HwmonTree) -> None:
    """A package and what is within it are read on the same processor."""
    tree.zone("intel-rapl:0", "package-0", 0)
    tree.zone("intel-rapl:0:0", "dram", 0)
    emitted = Emitted()
    probe = made(tree)
    probe.sample(ASK, emitted)
    assert [line for line in emitted.story if line.startswith("at ")] == ["at chip:rapl@package-0"] * 2
    skipped = Emitted()
    probe.sample(Ask(float("inf"), frozenset({"chip:rapl@package-0"})), skipped)
    assert skipped.story == ["chip:rapl@package-0/total:power_mean_watts", "chip:rapl@package-0/dram:power_mean_watts"]


def test_a_device_that_sleeps_is_not_woken(tree: HwmonTree) -> None:
    """ASLEEP is a reason of its own."""
    chip = tree.chip("amdgpu", "pci0000:00/0000:03:00.0", {"temp1_input": 51000})
    (chip.device / "power").mkdir()
    (chip.device / "power/runtime_status").write_text("suspended\n")
    emitted = Emitted()
    made(tree).sample(ASK, emitted)
    assert emitted.story == ["chip:amdgpu@pci0000:00/0000:03:00.0/temp1:celsius"]
    assert set(emitted.values.values()) == {Missing.ASLEEP}


def test_no_chip_is_begun_after_the_deadline(tree: HwmonTree) -> None:
    """Whoever asked does not listen any more."""
    tree.board()
    assert sampled(made(tree), Ask(deadline=0.0)) == {}


# --- inventory


def test_inventory_says_what_there_is_and_measures_nothing(tree: HwmonTree) -> None:
    """An alarm that clears when it is read is read by nobody but a tick."""
    board = tree.board()
    tree.supply()
    for name in ("in1_input", "in1_alarm"):
        tree.blocks(board, name)
    assert inventory(made(tree, rails=[RAIL])) == {
        "host:hwmon_chips": 2,
        "host:rapl_zones": 0,
        "host:voltage_inputs": 2,
        "host:rail_proposal": "",
        "rail:psu1_12v:present": 1,
        "rail:psu1_12v:measured_by": f"{BOARD}/in1",
        "rail:psu1_12v:nominal_volts": 12.0,
        "rail:psu1_12v:tolerance_ratio": 0.05,
        f"chip:{BOARD}:driver": "nct6775",
        f"chip:{SUPPLY}:driver": "corsair-psu",
        f"chip:{SUPPLY}:left_out": "corsair-psu",
    }
    assert inventory(made(tree, poll=["corsair-psu"]))[f"chip:{SUPPLY}/in1:label"] == "v_out +12v"


def test_a_proposal_is_made_from_what_was_read(tree: HwmonTree) -> None:
    """A pin near 1 V could be +12 V behind a divider; a supply that knows its rails is believed before that."""
    tree.board(in1_input=1016)
    tree.supply()
    probe = made(tree)
    sampled(probe)
    assert inventory(probe)["host:rail_proposal"] == f'chip = "{BOARD}", input = "in1", factor = 11.8  # 12 V / 1.016 V as read now'
    probe = made(tree, poll=["corsair-psu"])
    sampled(probe)
    assert inventory(probe)["host:rail_proposal"] == f'chip = "{SUPPLY}", input = "in1", factor = 1.0'


def test_counters_that_only_root_may_read_are_denied(tree: HwmonTree, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not zero of them."""
    tree.zone("intel-rapl:0", "package-0", 0)
    assert inventory(made(tree))["host:rapl_zones"] == 1
    monkeypatch.setattr(os, "access", lambda _path, _mode: False)
    assert inventory(made(tree))["host:rapl_zones"] is Missing.DENIED


def test_a_host_without_sensors_answers(tmp_path: Path) -> None:
    """With nothing, which is not a failure; its rails are not there."""
    probe = create({"root": str(tmp_path), "rails": [RAIL]})
    assert sampled(probe)["rail:psu1_12v:present"] == 0
    assert inventory(probe)[f"{HOST}:hwmon_chips"] == 0


def test_a_folder_that_cannot_be_listed_is_a_failure(tmp_path: Path) -> None:
    """Nobody knows then what there is."""
    (tmp_path / "class").mkdir()
    (tmp_path / "class/hwmon").write_text("")
    with pytest.raises(ProbeFailed, match=r"NoSensors: .*Not a directory"):
        sampled(create({"root": str(tmp_path)}))


def test_this_very_host_can_be_asked() -> None:
    """Whatever it has."""
    probe = create({})
    assert all(not isinstance(value, str) or isinstance(value, Missing) for value in sampled(probe).values())
    assert isinstance(inventory(probe)["host:hwmon_chips"], int)
