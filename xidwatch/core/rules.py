"""Conditions as data: what a row of rules/conditions.toml means.

Law: validation of rows and judgement of one subject by one row. No history: holding and clearing is `health`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from xidwatch.core import quantities
from xidwatch.core.expression import Expression, Facts, parse
from xidwatch.core.model import Missing, Severity, Status, Value

# No `chip`: an input nobody has named is a raw pin, and is never judged.
KINDS = ("gpu", "port", "nvme", "rail", "engine", "host", "kernel", "driver", "probe")
_DURATION = re.compile(r"([0-9]{1,9}(?:\.[0-9]{1,9})?)(ms|s|m|h|d)")
_SECONDS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
_TYPE = re.compile(r"[A-Z][A-Za-z0-9]*")
_LABEL = re.compile(r"[a-z0-9]+(?:-[a-z0-9]+)*")
_KEYS = (
    *("about", "when", "only_if", "stays", "hold", "clear", "severity", "opens_incident", "stops_engine"),
    *("label", "tells", "advice", "source", "fixture"),
)


@dataclass(frozen=True, slots=True)
class Rule:
    """One condition type. Times in seconds; `clear_seconds` None = two good ticks in a row."""

    type: str
    when: Mapping[str, Expression]  # by subject kind
    severity: Severity
    source: str
    hold_seconds: float = 0.0
    clear_seconds: float | None = None
    only_if: Expression | None = None
    stays: bool = False  # TRUE outlasts a time in which `only_if` is false: nobody looked then
    opens_incident: bool = False
    stops_engine: bool = False
    label: str = ""  # the <what> of an incident's name
    tells: tuple[str, ...] = ()  # readings that its reason names besides, where there are any
    advice: str = ""
    fixture: str = ""


@dataclass(frozen=True, slots=True)
class Judgement:
    """What one look at one subject says about one condition."""

    status: Status
    reason: str
    missing: Missing | None = None


@dataclass(slots=True)
class RulesError(ValueError):
    """Everything that is wrong with a table of rules, one line each."""

    problems: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        return "\n".join(self.problems)


def seconds(text: str) -> float:
    """A duration with its unit (`500ms 30s 5m 2h 400d`) in seconds. Raises ValueError."""
    match = _DURATION.fullmatch(text)
    if not match:
        raise ValueError(f'{text!r} is not a duration (a number and its unit: ms, s, m, h or d, as in "30s")')
    return float(match[1]) * _SECONDS[match[2]]


def load(table: Mapping[str, object]) -> tuple[Rule, ...]:
    """The rows of a parsed conditions.toml. Raises RulesError with every problem at once, each with its path."""
    rules: list[Rule] = []
    problems: list[str] = []
    for name, row in table.items():
        if isinstance(row, Mapping):
            rules += _Row(name, row, problems).rule()
        else:
            problems.append(f"{name}: expected a table")
    if problems:
        raise RulesError(problems)
    return tuple(rules)


@dataclass(slots=True)
class _Row:
    """A row under validation: each method notes what is wrong with its key and goes on."""

    name: str
    row: Mapping[str, object]
    problems: list[str]

    def rule(self) -> list[Rule]:
        """The rule, or none when anything was wrong."""
        before = len(self.problems)
        if not _TYPE.fullmatch(self.name):
            self.problems.append(f"{self.name}: a condition is named in words run together, as in GpuLost")
        self.problems += [f"{self.name}.{key}: unknown key (known here: {', '.join(_KEYS)})" for key in self.row if key not in _KEYS]
        kinds = self._kinds()
        when = self._when(kinds)
        severity = self._severity()
        found = {
            "only_if": self._expression("only_if", self.row["only_if"]) if "only_if" in self.row else None,
            "source": self._text("source", required=True),
            "hold_seconds": self._seconds("hold") or 0.0,
            "clear_seconds": self._seconds("clear"),
            "stays": self._flag("stays"),
            "opens_incident": self._flag("opens_incident"),
            "stops_engine": self._flag("stops_engine"),
            "label": self._label(),
            "tells": self._tells(),
            "advice": self._text("advice"),
            "fixture": self._text("fixture"),
        }
        return [Rule(self.name, when, severity, **found)] if len(self.problems) == before else []  # type: ignore[arg-type]

    def _wrong(self, key: str, text: str) -> None:
        self.problems.append(f"{self.name}.{key}: {text}")

    def _text(self, key: str, *, required: bool = False) -> str:
        value = self.row.get(key, "")
        if not isinstance(value, str):
            self._wrong(key, f"expected a text, not {value!r}")
        elif required and not value.strip():
            self._wrong(key, "missing")
        return str(value)

    def _flag(self, key: str) -> bool:
        value = self.row.get(key, False)
        if not isinstance(value, bool):
            self._wrong(key, f"expected true or false, not {value!r}")
        return value is True

    def _seconds(self, key: str) -> float | None:
        if key not in self.row:
            return None
        try:
            return seconds(str(self.row[key]))
        except ValueError as error:
            self._wrong(key, str(error))
            return None

    def _severity(self) -> Severity:
        value = self.row.get("severity")
        if value not in list(Severity):
            self._wrong("severity", f"expected one of {', '.join(Severity)}, not {value!r}" if value is not None else "missing")
            return Severity.CRITICAL
        return Severity(str(value))

    def _label(self) -> str:
        label = self._text("label") or re.sub(r"(?<!^)(?=[A-Z])", "-", self.name).lower()
        if "label" in self.row and not _LABEL.fullmatch(label):
            self._wrong("label", f"{label!r} becomes part of a folder's name: small letters, digits and dashes only")
        return label

    def _tells(self) -> tuple[str, ...]:
        names = self.row.get("tells", [])
        if not isinstance(names, list):
            self._wrong("tells", f"expected a list of quantities, not {names!r}")
            return ()
        for name in names:
            if not isinstance(name, str) or name not in quantities.BY_NAME:
                self._wrong("tells", f"no quantity is called {name!r}")
        return tuple(map(str, names))

    def _kinds(self) -> list[str]:
        about = self.row.get("about")
        kinds = [str(kind) for kind in about] if isinstance(about, list) else [str(about)]
        if not about:
            self._wrong("about", f"missing (one or more of {', '.join(KINDS)})")
            return []
        for kind in kinds:
            if kind not in KINDS:
                self._wrong("about", f"unknown kind {kind!r} (one of {', '.join(KINDS)})")
        return kinds

    def _when(self, kinds: list[str]) -> dict[str, Expression]:
        when = self.row.get("when")
        if when is None:
            self._wrong("when", "missing")
            return {}
        if isinstance(when, Mapping):
            if kinds and set(when) != set(kinds):
                self._wrong("when", f"needs one expression for each of {', '.join(kinds)}")
            found = {str(kind): self._expression(f"when.{kind}", text) for kind, text in when.items()}
        else:
            found = dict.fromkeys(kinds, self._expression("when", when))
        return {kind: expression for kind, expression in found.items() if expression is not None}

    def _expression(self, key: str, text: object) -> Expression | None:
        if not isinstance(text, str):
            self._wrong(key, f"expected an expression as a text, not {text!r}")
            return None
        try:
            expression = parse(text)
        except ValueError as error:  # ExpressionError, and what early 3.11 says about a NUL byte
            self._wrong(key, str(error))
            return None
        if not expression.names:
            self._wrong(key, f"{text!r} looks at no reading")
        for name in (*expression.names, *expression.expected):
            if name not in quantities.BY_NAME:
                self._wrong(key, f"{text!r}: no quantity is called {name!r}")
        return expression


def judge(rule: Rule, kind: str, facts: Facts) -> Judgement:
    """What the readings of one subject say, without memory of earlier ones.

    A precondition that cannot be told silences no alarm. But where an expectation was never learnt nothing has been compared, and
    what is not bad for that reason is not good either.
    """
    if rule.only_if is not None and rule.only_if.evaluate(facts) is False:
        return Judgement(Status.NOT_APPLICABLE, _seen(rule.only_if, facts))
    expression = rule.when[kind]
    result = expression.evaluate(facts)
    if result is Missing.UNSUPPORTED:
        return Judgement(Status.NOT_APPLICABLE, _seen(expression, facts), result)
    if isinstance(result, Missing):
        return Judgement(Status.UNKNOWN, _seen(expression, facts), result)
    lack = _never_learnt(rule, expression, facts)
    if lack is not None and not result:
        return Judgement(Status.NOT_APPLICABLE, _seen(expression, facts), lack)
    return Judgement(Status.TRUE if result else Status.FALSE, _seen(expression, facts) + _besides(rule.tells, facts))


def _never_learnt(rule: Rule, expression: Expression, facts: Facts) -> Missing | None:
    """Why one of the expectations it compares with is not there."""
    names = (*expression.expected, *(rule.only_if.expected if rule.only_if else ()))
    values = (facts.expected.get(name, Missing.NOT_ASKED) for name in names)
    return next((value for value in values if isinstance(value, Missing)), None)


def _besides(names: tuple[str, ...], facts: Facts) -> str:
    """`, at gpu:0000:11:00.0`: what is empty or missing is no news."""
    shown = ((name, quantities.text(name, facts.now.get(name, Missing.NOT_ASKED))) for name in names)
    return "".join(f", {name} {text}" for name, text in shown if text)


def _seen(expression: Expression, facts: Facts) -> str:
    """The readings behind a judgement, for people: `command 0000, expected command 0507`."""
    now = [_shown(name, name, facts.now) for name in expression.names]
    return ", ".join(now + [_shown(f"expected {name}", name, facts.expected) for name in expression.expected])


def _shown(title: str, name: str, values: Mapping[str, Value]) -> str:
    value = values.get(name, Missing.NOT_ASKED)
    return f"{title} missing ({value})" if isinstance(value, Missing) else f"{title} {quantities.text(name, value) or 'empty'}"
