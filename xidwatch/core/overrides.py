"""A site's own words over the shipped rules: tables of rows, changed key by key.

    [xid]
    92 = { severity = "error" }                  # the other keys of the row stay as shipped
    [conditions.RailOutOfRange]
    hold = "5m"
    [explain.xid.79]
    check = ["the blue cable: it was the blue cable the last three times"]

Law: merging of tables, pure; what a row means is checked by its own reader (`xids`, `rules`, `explanations`), after each file, so that
a mistake is laid at the door of the file that made it.
"""

from __future__ import annotations

from collections.abc import Mapping

DEPTH = {"xid": 1, "conditions": 0, "explain": 1}  # by kind: how many tables stand between the file and its rows

Table = Mapping[str, object]


def merged(base: Table, change: Table, depth: int) -> dict[str, object]:
    """The table with its rows, `depth` tables below, changed or added; a row's keys are taken one by one, each as a whole."""
    result = dict(base)
    for name, value in change.items():
        before = result.get(name)
        if isinstance(before, Mapping) and isinstance(value, Mapping):
            result[name] = merged(before, value, depth - 1) if depth else {**before, **value}
        else:
            result[name] = value
    return result


def misplaced(table: Table) -> list[str]:
    """What an override holds beside tables of rows."""
    return [f"{key}: unknown key (known here: {', '.join(DEPTH)})" for key in table if key not in DEPTH] + [
        f"{key}: expected a table of rows" for key in DEPTH if not isinstance(table.get(key, {}), Mapping)
    ]
