"""The one list of names: each once, each with its unit or meaning and its source."""

from __future__ import annotations

import re

import pytest

from xidwatch.core import quantities
from xidwatch.core.model import Missing, Value


def test_every_name_stands_for_one_thing() -> None:
    """No quantity is listed twice."""
    names = [quantity.name for quantity in quantities.TABLE]
    assert len(names) == len(set(names)) == len(quantities.BY_NAME)


@pytest.mark.parametrize("quantity", quantities.TABLE, ids=lambda quantity: quantity.name)
def test_every_quantity_says_what_it_is_and_where_it_comes_from(quantity: quantities.Quantity) -> None:
    """A name that fits a column header, a metric and the rules' language."""
    assert re.fullmatch(r"[a-z][a-z0-9_]*", quantity.name)
    assert len(quantity.meaning) > 3
    assert quantity.source


@pytest.mark.parametrize(
    ("name", "value", "text"),
    [
        ("config_dword0", 0x1000C010, "1000c010"),
        ("command", 0x547, "0547"),
        ("secondary_bus", 0, "00"),
        ("power_mean_watts", 231.4, "231.4"),
        ("power_mean_watts", 231.456789, "231.457"),
        ("utilisation_ratio", 0.0, "0"),
        ("memory_used_bytes", 85_899_345_920, "85899345920"),
        ("memory_available_bytes", 85_899_345_920.0, "85899345920"),
        ("driver", "nvidia", "nvidia"),
        ("driver", "", ""),
        ("power_mean_watts", Missing.TIMED_OUT, ""),
        ("config_dword0", Missing.ASLEEP, ""),
        ("not_in_the_list", 5, "5"),
    ],
)
def test_a_value_is_printed_as_people_write_it(name: str, value: Value, text: str) -> None:
    """Registers in hexadecimal, numbers without noise, nothing where there is nothing."""
    assert quantities.text(name, value) == text
