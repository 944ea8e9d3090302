"""The rule files: as shipped, and what a site has changed in them. Strict, every mistake at once with its file and key.

    rules/conditions.toml  rules/xid.toml  rules/explain.toml        as shipped (or --rules-dir)
    /etc/xidwatch/rules.d/*.toml                                     a site's own, in the order of their names (or below --rules-dir)

A file in rules.d holds rows under [xid], [conditions] and [explain], by their ids, with only the keys that are to be different; a row
that is not shipped needs all that it must have.
"""

from __future__ import annotations

import tomllib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from xidwatch.core.explanations import Explanations, explanations
from xidwatch.core.overrides import DEPTH, merged, misplaced
from xidwatch.core.rules import Rule, RulesError, load
from xidwatch.core.xids import XidRule, xid_rules

OVERRIDES = Path("/etc/xidwatch/rules.d")

T = TypeVar("T")
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
    """One of the tables that rules are written in. `path` stands before the keys in what its reader complains of."""

    name: str
    file: str
    read: Callable[[Table], object]
    path: str = ""


_XID = _Kind("xid", "xid.toml", xid_rules)
_CONDITIONS = _Kind("conditions", "conditions.toml", load, "conditions.")
_EXPLAIN = _Kind("explain", "explain.toml", explanations, "explain.")


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
    return OVERRIDES if given is None else given / "rules.d"


def load_rules(directory: Path, overrides: Path | None = None) -> Rules:
    """Read and check the rules, and what a site has changed. Raises ConfigError with every problem."""
    return parse_rules(rule_tables(directory, overrides))


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
    return explanations(tables["explain"])


def _shipped(directory: Path, kinds: Iterable[_Kind], problems: list[str]) -> dict[str, Table]:
    tables: dict[str, Table] = {}
    for kind in kinds:
        path = directory / kind.file
        try:
            tables[kind.name] = read_toml(path)
            kind.read(tables[kind.name])
        except RulesError as error:
            problems += [f"{path}: {problem}" for problem in error.problems]
        except ConfigError as error:
            problems += error.problems
    return tables


def _changed(tables: dict[str, Table], overrides: Path | None, problems: list[str]) -> dict[str, Table]:
    """The tables with every file of a site merged in; each file is checked on top of those before it, so that it answers for itself."""
    if problems or overrides is None:
        return tables
    for path in _files(overrides, problems):
        try:
            change = read_toml(path)
        except ConfigError as error:
            problems += error.problems
            continue
        wrong = misplaced(change)
        problems += [f"{path}: {problem}" for problem in wrong]
        for kind in (_XID, _CONDITIONS, _EXPLAIN) if not wrong else ():
            if kind.name in change and (kind.name in tables or kind is _EXPLAIN):  # a row of texts is whole by itself
                tables[kind.name] = _one_changed(kind, tables.get(kind.name, {}), change, path, problems)
    return tables


def _one_changed(kind: _Kind, before: Table, change: Table, path: Path, problems: list[str]) -> Table:
    after = merged(before, {"xid": change["xid"]} if kind is _XID else change[kind.name], DEPTH[kind.name])
    try:
        kind.read(after)
    except RulesError as error:
        problems += [f"{path}: {kind.path}{problem}" for problem in error.problems]
        return before
    return after


def _files(overrides: Path, problems: list[str]) -> list[Path]:
    try:
        return sorted(path for path in overrides.iterdir() if path.suffix == ".toml" and not path.name.startswith("."))
    except FileNotFoundError:
        return []
    except OSError as error:
        problems.append(f"{overrides}: {error.strerror}")
        return []
