"""The rule files: as shipped, and what a site has changed in them. Strict, every mistake at once with its file and key.

    rules/conditions.toml  rules/xid.toml  rules/explain.toml        as shipped (or --rules-dir)
    /etc/xidwatch/rules.d/*.toml                                     a site's own, in the order of their names (or below --rules-dir)

Of a folder that is given, what it does not hold is as shipped; one that holds nothing of all this is the wrong one. A file in rules.d
holds rows under [xid], [conditions] and [explain], by their ids, with only the keys that are to be different; a row that is not shipped
needs all that it must have.
"""

from __future__ import annotations

import tomllib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from xidwatch.core.overrides import DEPTH, merged, misplaced
from xidwatch.core.rules import Rule, RulesError, load
from xidwatch.core.xids import XidRule, xid_rules

if TYPE_CHECKING:
    from xidwatch.core.explanations import Explanations

OVERRIDES = Path("/etc/xidwatch/rules.d")

T = TypeVar("T")
S = TypeVar("S")
Table = Mapping[str, Any]


class ConfigError(Exception):
    """Everything that is wrong, one line each: where, what, and what to do."""

    def __init__(self, problems: list[str]) -> None:
        super().__init__("\n".join(problems))
        self.problems = problems


@dataclass(frozen=True, slots=True)
class Rules:
    """All that decides, checked."""

    conditions: tuple[Rule, ...]
    xids: Mapping[int, XidRule]


@dataclass(frozen=True, slots=True)
class _Kind:
    """One of the tables that rules are written in. `path` stands before the keys in what its reader complains of.

    `rows`: where in the table its rows are. `needs`: what a row must have; `what` one is.
    """

    name: str
    file: str
    read: Callable[[Table], object]
    path: str = ""
    rows: Callable[[Table], object] = dict
    needs: tuple[str, ...] = ()
    what: str = ""


def _read_explanations(table: Table) -> Explanations:
    from xidwatch.core.explanations import explanations  # noqa: PLC0415  it knows what conditions do, and loads all that decides

    return explanations(table)


_XID = _Kind("xid", "xid.toml", xid_rules, rows=lambda table: table.get("xid"), needs=("mnemonic", "class", "severity"), what="Xid")
_CONDITIONS = _Kind("conditions", "conditions.toml", load, "conditions.", needs=("about", "when", "severity", "source"), what="condition")
_EXPLAIN = _Kind("explain", "explain.toml", _read_explanations, "explain.")
_RULES_D = "rules.d"
_LIKE_ENOUGH = 0.7  # for a name that was meant


def read_toml(path: Path) -> dict[str, Any]:
    """A parsed file. Raises ConfigError."""
    try:
        with path.open("rb") as file:
            return tomllib.load(file)
    except OSError as error:
        raise ConfigError([f"{path}: {error.strerror}"]) from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, RecursionError) as error:
        raise ConfigError([f"{path}: not TOML: {error}"]) from error


def rules_dir(given: Path | None) -> Path:
    """Where the rules are: as given, inside the installed package, or in the checkout beside it."""
    if given is not None:
        return given
    inside = Path(__file__).parent / "_rules"
    return inside if inside.is_dir() else Path(__file__).parent.parent / "rules"


def overrides_dir(given: Path | None) -> Path:
    """Where a site's own rules are: beside the configuration, or below the folder that replaces all rules."""
    return OVERRIDES if given is None else given / _RULES_D


def both(first: Callable[[], T], second: Callable[[], S]) -> tuple[T, S]:
    """Two readings. Raises ConfigError with every problem of either, each once."""
    problems: list[str] = []
    found: list[Any] = []
    for reading in (first, second):
        try:
            found.append(reading())
        except ConfigError as error:
            problems += error.problems
    if problems:
        raise ConfigError(list(dict.fromkeys(problems)))
    return found[0], found[1]


def load_rules(directory: Path, overrides: Path | None = None) -> Rules:
    """Read and check the rules, and what a site has changed. Raises ConfigError with every problem."""
    return parse_rules(rule_tables(directory, overrides))


def load_xids(directory: Path, overrides: Path | None = None) -> Mapping[int, XidRule]:
    """Only what Xids mean, for who reads logs: quick, and not kept from it by a mistake in a condition. Raises ConfigError."""
    problems: list[str] = []
    tables = _changed(_shipped(directory, (_XID,), problems), overrides, problems)
    if problems:
        raise ConfigError(problems)
    return xid_rules(tables["xid"])


def rule_tables(directory: Path, overrides: Path | None = None) -> Mapping[str, Table]:
    """The same as plain tables, checked, for passing between processes."""
    problems: list[str] = []
    tables = _changed(_shipped(directory, (_CONDITIONS, _XID), problems), overrides, problems)
    if problems:
        raise ConfigError(problems)
    return {kind.name: tables[kind.name] for kind in (_CONDITIONS, _XID)}


def parse_rules(tables: Mapping[str, Table]) -> Rules:
    """Of tables that have been checked."""
    return Rules(load(tables["conditions"]), xid_rules(tables["xid"]))


def load_explanations(directory: Path, overrides: Path | None = None) -> Explanations:
    """The same for the texts, which only people need. Raises ConfigError."""
    problems: list[str] = []
    tables = _changed(_shipped(directory, (_EXPLAIN,), problems), overrides, problems)
    if problems:
        raise ConfigError(problems)
    return _read_explanations(tables["explain"])


def _shipped(directory: Path, kinds: Iterable[_Kind], problems: list[str]) -> dict[str, Table]:
    """The tables that are sound."""
    tables: dict[str, Table] = {}
    if trouble := _wrong_folder(directory):
        problems.append(f"{directory}: {trouble}")
        directory = rules_dir(None)
    for kind in kinds:
        path = directory / kind.file
        path = path if path.exists() else rules_dir(None) / kind.file
        try:
            table = read_toml(path)
            kind.read(table)
            tables[kind.name] = table
        except RulesError as error:
            problems += [f"{path}: {problem}" for problem in error.problems]
        except ConfigError as error:
            problems += error.problems
    return tables


def _wrong_folder(directory: Path) -> str:
    """What is wrong with a folder for rules as a whole."""
    parts = (*(kind.file for kind in (_CONDITIONS, _XID, _EXPLAIN)), _RULES_D)
    try:
        there = {path.name for path in directory.iterdir()}
    except OSError as error:
        return error.strerror or str(error)
    return "" if there.intersection(parts) else f"no folder of rules: it holds none of {', '.join(parts)}"


def _changed(tables: dict[str, Table], overrides: Path | None, problems: list[str]) -> dict[str, Table]:
    """The tables with every file of a site merged in; each file is checked on top of those before it, so that it answers for itself."""
    if overrides is None:
        return tables
    for path in _files(overrides, problems):
        try:
            change = read_toml(path)
        except ConfigError as error:
            problems += error.problems
            continue
        problems += [f"{path}: {problem}" for problem in misplaced(change)]
        for kind in (_XID, _CONDITIONS, _EXPLAIN):
            is_read = kind.name in tables or kind is _EXPLAIN  # a row of texts is whole by itself
            if is_read and isinstance(change.get(kind.name), Mapping):
                tables[kind.name] = _one_changed(kind, tables.get(kind.name, {}), change, path, problems)
    return tables


def _one_changed(kind: _Kind, before: Table, change: Table, path: Path, problems: list[str]) -> Table:
    after = merged(before, {"xid": change["xid"]} if kind is _XID else change[kind.name], DEPTH[kind.name])
    try:
        kind.read(after)
    except RulesError as error:
        problems += [f"{path}: {kind.path}{problem}" for problem in _meant(kind, before, change, error.problems)]
        return before
    return after


def _meant(kind: _Kind, before: Table, change: Table, problems: list[str]) -> list[str]:
    """The same problems, but of a row that is not shipped and lacks what it needs one: most likely another name was meant."""
    known, rows = kind.rows(before), kind.rows(change if kind is _XID else change[kind.name])
    if not isinstance(known, Mapping) or not isinstance(rows, Mapping):
        return problems
    for name, row in rows.items():
        lacks = [key for key in kind.needs if isinstance(row, Mapping) and key not in row]
        if name in known or not lacks:
            continue
        where = f"{kind.name}.{name}" if kind is _XID else name
        problems = [problem for problem in problems if problem.partition(": ")[0] not in {f"{where}.{key}" for key in lacks}]
        like = get_close_matches(name, known, 1, _LIKE_ENOUGH) if kind is _CONDITIONS else []
        guess = f"; did you mean {like[0]}?" if like else "."
        problems.append(f"{where}: no {kind.what} of this name is shipped{guess} A new one needs {', '.join(lacks)} as well")
    return problems


def _files(overrides: Path, problems: list[str]) -> list[Path]:
    try:
        return sorted(path for path in overrides.iterdir() if path.suffix == ".toml" and not path.name.startswith("."))
    except FileNotFoundError:
        return []
    except OSError as error:
        problems.append(f"{overrides}: {error.strerror}")
        return []
