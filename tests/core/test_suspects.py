"""Guesses for a configuration: which inputs could be rails, which services engines, and why."""

from __future__ import annotations

import pytest

from xidwatch.core import suspects
from xidwatch.core.model import Missing, Subject, Value

CHIP = "nct6798@platform/nct6775.656"


def rails(values: dict[str, Value], label: str = "", source: str = "in1") -> list[tuple[str, float, float]]:
    subject = Subject("chip", f"{CHIP}/{source}")
    facts: dict[str, Value] = {"label": label} if label else {}
    return [(each.name, each.factor, each.nominal_volts) for each in suspects.rails({subject: values}, {subject: facts})]


@pytest.mark.parametrize(
    ("values", "label", "expected"),
    [
        ({"pin_volts": 1.008}, "", [("nct6798_in1_12v", 11.9, 12.0)]),
        ({"pin_volts": 2.04}, "", []),  # a pin that could be anything
        ({"pin_volts": 3.36}, "+3.3V", [("nct6798_3_3v_3v3", 1.0, 3.3)]),
        ({"pin_volts": 1.664}, "+5V", [("nct6798_5v_5v", 3.005, 5.0)]),
        ({"pin_volts": 0.0}, "+12V", []),  # nothing is connected
        ({"pin_volts": Missing.DENIED}, "+12V", []),
        ({"volts": 12.06}, "v_out +12v", [("nct6798_v_out_12v_12v", 1.0, 12.0)]),
        ({"volts": 5.02}, "", [("nct6798_in1_5v", 1.0, 5.0)]),
        ({"volts": 230.4}, "v_in", []),
        ({"celsius": 12.0}, "", []),
    ],
)
def test_an_input_is_proposed_by_what_it_reads_and_what_it_is_called(
    values: dict[str, Value], label: str, expected: list[tuple[str, float, float]]
) -> None:
    """Real volts as they are, pins by their divider; what looks like nothing is left out."""
    assert rails(values, label) == expected


def test_what_is_no_voltage_input_is_no_rail() -> None:
    """A power sensor of 12 W, say, or the chip itself."""
    assert rails({"volts": 12.0}, source="power1") == []


def test_an_engine_is_what_it_runs_and_what_it_holds() -> None:
    """The driver names processes, the search names units; where nobody saw it serve there is no address to guess."""
    found: dict[Subject, dict[str, Value]] = {
        Subject("engine", "vllm.service"): {"pids": "4711 4712", "server": "vllm", "serving_port": 8000},
        Subject("engine", "train.service"): {"pids": "99", "server": Missing.UNSUPPORTED, "serving_port": Missing.ABSENT},
    }
    train, vllm = suspects.engines(found, {"0000:11:00.0": "4712", "0000:12:00.0": "4712 99", "0000:13:00.0": ""})
    assert (vllm.unit, vllm.server, vllm.port, vllm.gpus) == ("vllm.service", "vllm", 8000, ("0000:11:00.0", "0000:12:00.0"))
    assert (train.port, train.gpus) == (0, ("0000:12:00.0",))
    assert "of a kind that is not known here, it holds 1 GPU (0000:12:00.0)" in train.why
