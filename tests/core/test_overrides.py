"""Tables of rows, changed key by key."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from xidwatch.core.overrides import merged, misplaced

ROWS = st.dictionaries(st.sampled_from("abc"), st.dictionaries(st.sampled_from("xyz"), st.integers(), max_size=3), max_size=3)


def test_a_key_is_taken_as_a_whole() -> None:
    """A list or a table inside a row replaces the one that was there; it is not mixed with it."""
    base = {"GpuLost": {"when": {"gpu": "a", "port": "b"}, "hold": "1s"}}
    change = {"GpuLost": {"when": {"gpu": "c"}}}
    assert merged(base, change, 0) == {"GpuLost": {"when": {"gpu": "c"}, "hold": "1s"}}


def test_what_is_no_row_stands_as_it_was_written() -> None:
    """The reader of the table says what is wrong with it."""
    assert merged({"a": {"x": 1}}, {"a": 7, "b": {"y": 2}}, 0) == {"a": 7, "b": {"y": 2}}
    assert merged({"xid": {"7": {"x": 1}}}, {"xid": {"7": {"y": 2}}, "kind": {}}, 1) == {"xid": {"7": {"x": 1, "y": 2}}, "kind": {}}


@given(ROWS, ROWS)
def test_every_key_comes_from_the_change_or_else_from_the_base(base: dict[str, dict[str, int]], change: dict[str, dict[str, int]]) -> None:
    """Nothing is lost, and nothing is changed in what was given."""
    before = {name: dict(row) for name, row in base.items()}
    after = merged(base, change, 0)
    assert base == before
    assert after == {name: {**base.get(name, {}), **change.get(name, {})} for name in {**base, **change}}


def test_tables_of_other_names_are_misplaced() -> None:
    """With what is known here."""
    assert misplaced({"xid": {}, "conditions": {}, "explain": {}}) == []
    assert misplaced({"xids": {}, "xid": 7}) == [
        "xids: unknown key (known here: xid, conditions, explain)",
        "xid: expected a table of rows",
    ]
