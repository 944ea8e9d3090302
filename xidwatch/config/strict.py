"""Which keys there are and of what type: a parsed file against the tables, every mistake with its path."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import partial
from typing import Any

import msgspec

from xidwatch.config.checks import TABLES_OF, Checks, failed


def fields(struct: type[msgspec.Struct], table: Mapping[str, Any], path: str, problems: list[str]) -> dict[str, Any]:
    """The keys that are known and of the right type; the others are problems."""
    known = {field.encode_name: field.type for field in msgspec.structs.fields(struct)}
    defaults = {field.encode_name: field.default for field in msgspec.structs.fields(struct)}
    cleaned: dict[str, Any] = {}
    for key, value in table.items():
        where = f"{path}{key}"
        wanted = known.get(key)
        if wanted is None:
            problems.append(f"{where}: unknown key (known here: {', '.join(sorted(known))})")
        elif wanted in TABLES_OF:
            cleaned[key] = list(_tables(*TABLES_OF[wanted], value, where, problems))
        elif wanted not in _EXPECTED and isinstance(value, Mapping):
            # Over the default of this very table: its keys may differ from those of a table of its kind (nvml waits longer than pci).
            cleaned[key] = {**_as_table(defaults[key]), **fields(wanted, value, f"{where}.", problems)}
        else:
            try:
                cleaned[key] = msgspec.convert(value, wanted)
            except msgspec.ValidationError:  # whose words are for programmers
                problems.append(f"{where}: expected {_EXPECTED.get(wanted, f'a table, [{where}]')}, not {_as_toml(value)}")
    return cleaned


def _as_table(default: object) -> dict[str, Any]:
    built = msgspec.to_builtins(default) if isinstance(default, msgspec.Struct) else {}
    return dict(built)


def _tables(struct: type[msgspec.Struct], checks: Checks, value: object, where: str, problems: list[str]) -> Iterable[dict[str, Any]]:
    """The tables of a `[[list]]` that have all they need; what they hold is checked here, where their place is still known."""
    if not isinstance(value, list | tuple) or not all(isinstance(each, Mapping) for each in value):
        problems.append(f"{where}: expected tables, each begun with [[{where}]], not {_as_toml(value)}")
        return
    needed = [field.encode_name for field in msgspec.structs.fields(struct) if field.required]
    for at, table in enumerate(value):
        cleaned = fields(struct, table, f"{where}[{at}].", problems)
        problems += [f"{where}[{at}].{key}: missing" for key in needed if key not in table]
        problems += failed({f"{where}[{at}].{key}": partial(checks[key], given) for key, given in cleaned.items()})
        if all(key in cleaned for key in needed):
            yield cleaned


_EXPECTED = {
    bool: "true or false",
    float: "a number, as in 12.0",
    str: 'a text in quotes, as in "30s"',
    str | tuple[str, ...]: '"found", "all" or a list of PCI addresses, as in ["0000:11:00.0"]',
    tuple[str, ...]: 'a list of texts in quotes, as in ["/mnt/usb/xidwatch"]',
}


def _as_toml(value: object) -> str:
    """What the operator has written, or near enough to find it."""
    match value:
        case bool():
            return str(value).lower()
        case str():
            return f'"{value}"'
        case Mapping():
            return "a table"
        case list():
            return f"[{', '.join(map(_as_toml, value))}]"
        case _:
            return str(value)
