"""The language of `when`: three-valued, closed, and never surprised."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from xidwatch.core.expression import ExpressionError, Facts, parse
from xidwatch.core.model import Missing, Value

UNKNOWN, UNSUPPORTED, MALFORMED = Missing.TIMED_OUT, Missing.UNSUPPORTED, Missing.MALFORMED


def evaluate(text: str, now: Mapping[str, Value], expected: Mapping[str, Value] | None = None) -> bool | Missing:
    return parse(text).evaluate(Facts(now, expected or {}))


# ---------------------------------------------------------------------------------------------------- what it may say


@pytest.mark.parametrize(
    ("text", "now", "result"),
    [
        ("config_dword0 == 0xffffffff", {"config_dword0": 0xFFFFFFFF}, True),
        ("config_dword0 == 0xffffffff", {"config_dword0": 0x220410DE}, False),
        ("(command & 0x6) == 0", {"command": 0x0001}, True),
        ("(command & 0x6) == 0", {"command": 0x0507}, False),
        ("nvml_status in (15, 16)", {"nvml_status": 15}, True),
        ("nvml_status in (15, 16)", {"nvml_status": 0}, False),
        ("nvml_status not in (15, 16)", {"nvml_status": 0}, True),
        ('driver == "nvidia"', {"driver": "nvidia"}, True),
        ('driver in ("nvidia", "vfio-pci")', {"driver": ""}, False),
        ("10 < temperature_celsius <= 90", {"temperature_celsius": 90}, True),
        ("10 < temperature_celsius <= 90", {"temperature_celsius": 90.5}, False),
        ("not load_1m > 2 * 4 - 1", {"load_1m": 7.0}, True),
        ("load_1m / 4 + 1 > 3", {"load_1m": 12}, True),
        ("  load_1m > 1\n", {"load_1m": 2}, True),
    ],
)
def test_a_known_reading_gives_a_plain_answer(text: str, now: dict[str, Value], result: bool) -> None:
    """With every reading there, an expression means what it says."""
    assert evaluate(text, now) is result


def test_expected_is_what_was_learnt_and_not_what_is_read() -> None:
    """`expected.NAME` looks at the other set of readings, and its lack is a lack."""
    text = "command != expected.command"
    assert evaluate(text, {"command": 0}, {"command": 0x507}) is True
    assert evaluate(text, {"command": 0x507}, {"command": 0x507}) is False
    assert evaluate(text, {"command": 0}) is Missing.NOT_ASKED


def test_it_names_what_it_looks_at_once_and_in_order() -> None:
    """Who judges a rule must know which readings bear on it, now and as learnt."""
    expression = parse("b > 0 and (a == 1 or b < 5) and expected.c != expected.d")
    assert (expression.names, expression.expected) == (("b", "a"), ("c", "d"))


# ------------------------------------------------------------------------------------------------ what is not known


@pytest.mark.parametrize(
    ("a", "b", "both", "either"),
    [
        (True, True, True, True),
        (True, False, False, True),
        (False, False, False, False),
        (True, UNKNOWN, UNKNOWN, True),
        (False, UNKNOWN, False, UNKNOWN),
        (UNKNOWN, UNKNOWN, UNKNOWN, UNKNOWN),
        (True, UNSUPPORTED, UNSUPPORTED, True),
        (False, UNSUPPORTED, False, False),
        (UNSUPPORTED, UNSUPPORTED, UNSUPPORTED, UNSUPPORTED),
        (UNKNOWN, UNSUPPORTED, UNKNOWN, UNKNOWN),
    ],
)
def test_the_truth_table(a: bool | Missing, b: bool | Missing, both: bool | Missing, either: bool | Missing) -> None:
    """`and` and `or` decide as soon as the known parts decide, in any order; UNSUPPORTED drops out of an `or`."""
    x, y = (int(part) if isinstance(part, bool) else part for part in (a, b))
    for left, right in ((x, y), (y, x)):
        assert evaluate("a > 0 and b > 0", {"a": left, "b": right}) is both
        assert evaluate("a > 0 or b > 0", {"a": left, "b": right}) is either


def test_not_of_an_unknown_is_unknown() -> None:
    """What was not seen is not seen to be otherwise."""
    assert evaluate("not a > 0", {"a": UNKNOWN}) is UNKNOWN
    assert evaluate("not (a > 0 or b > 0)", {"a": UNKNOWN, "b": 1}) is False


def test_a_bare_zero_decides_like_a_false() -> None:
    """A number stands for its truth wherever it stands alone, so 0 settles an `and` whose other part is missing."""
    assert evaluate("a & 0x6 and b > 0", {"a": 1, "b": UNKNOWN}) is False
    assert evaluate("a & 0x6 or b > 0", {"a": 2, "b": UNKNOWN}) is True


def test_what_can_never_be_said_outranks_what_was_not_said_yet() -> None:
    """A comparison with something the hardware cannot report will not be answered by waiting."""
    assert evaluate("a == expected.a", {"a": UNSUPPORTED}) is UNSUPPORTED
    assert evaluate("expected.a == a", {"a": UNSUPPORTED}) is UNSUPPORTED


_NAMES = ("a", "b", "c", "d")
_leaves = st.sampled_from([f"{name} > 0" for name in _NAMES] + [f"{name} == 0" for name in _NAMES] + ["a == b", "c in (1, 7)"])
_trees = st.recursive(
    _leaves,
    lambda inner: st.one_of(
        st.tuples(inner, inner).map(lambda pair: f"({pair[0]} and {pair[1]})"),
        st.tuples(inner, inner).map(lambda pair: f"({pair[0]} or {pair[1]})"),
        inner.map(lambda one: f"(not {one})"),
    ),
    max_leaves=10,
)
_values = st.fixed_dictionaries(dict.fromkeys(_NAMES, st.sampled_from([0, 1, UNKNOWN, Missing.ASLEEP, UNSUPPORTED])))


@given(_trees, _values)
def test_what_is_said_to_be_known_holds_however_the_gaps_are_filled(text: str, values: dict[str, Value]) -> None:
    """If the answer is known, no later reading could have made it another; so it is safe to act on."""
    said = evaluate(text, values)
    gaps = [name for name, value in values.items() if isinstance(value, Missing) and value is not UNSUPPORTED]
    if said in (True, False, UNSUPPORTED):
        for filling in product((0, 1), repeat=len(gaps)):
            assert evaluate(text, {**values, **dict(zip(gaps, filling, strict=True))}) is said
    else:
        assert said in [values[name] for name in gaps]


# ------------------------------------------------------------------------------------------------ what makes no sense


@pytest.mark.parametrize(
    ("text", "now"),
    [
        ("a == 0xffffffff", {"a": "ffffffff"}),
        ("a != 1", {"a": "1"}),
        ("a in (15, 16)", {"a": "15"}),
        ("a not in (15, 16)", {"a": "15"}),
        ("a > 1", {"a": "2"}),
        ('a == "nvidia"', {"a": 7}),
        ("a & 0x6", {"a": "507"}),
        ("a & 0x6", {"a": 1.5}),
        ("a * 3 > 1", {"a": "x"}),
        ("a + a == 'xx'", {"a": "x"}),
        ("a / b > 1", {"a": 1, "b": 0}),
        ("a < 5", {"a": float("nan")}),
        ("a - a < 5", {"a": float("inf")}),
        ("a + 0.5 > 1", {"a": 10**400}),
    ],
)
def test_values_that_do_not_fit_are_malformed_and_never_a_plain_no(text: str, now: dict[str, Value]) -> None:
    """A text where a number should be is neither an exception nor "unequal", which would pass for healthy."""
    assert evaluate(text, now) is MALFORMED


@pytest.mark.parametrize(
    "text",
    [
        "",
        "a ==",
        "a = 1",
        "a; b",
        "f(a)",
        "__import__('os').system('true')",
        "open('/etc/passwd')",
        "a.b",
        "a.__class__",
        "expected.a.b",
        "expected['a']",
        "a[0]",
        "lambda: 1",
        "[a for a in b]",
        "{a}",
        "a if b else c",
        "a is None",
        "a == None",
        "a == True",
        "a == b''",
        "f'{a}'",
        "a ** 9",
        "a << 9",
        "-a",
        "(a, b) == (1, 2)",
        "a in (b, 1)",
        "a in b",
        "1 < a in (2, 3)",
        "a in (1, 2) == b",
        "(a := 1)",
        "await a",
        "a\0b",
        "(" * 1000 + "a" + ")" * 1000,
        "not " * 5000 + "a",
    ],
)
def test_nothing_else_belongs_to_the_language(text: str) -> None:
    """No call, no attribute, no name but a quantity's: a rules file computes truths and nothing more."""
    with pytest.raises(ExpressionError):
        parse(text)


def test_a_builtin_is_a_quantity_nobody_has_read() -> None:
    """Names are looked up in the readings and nowhere else."""
    assert evaluate("print == 1", {}) is Missing.NOT_ASKED
    assert evaluate("__builtins__ == 1", {}) is Missing.NOT_ASKED


def test_the_refusal_names_the_part_that_is_not_understood() -> None:
    """Who wrote the rule finds the place."""
    with pytest.raises(ExpressionError, match=r"'len\(a\)' is not part of the language"):
        parse("a > 0 and len(a) > 1")
