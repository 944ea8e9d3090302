"""The little language of `when` in the rules: comparisons over readings, with a third truth value.

Law: pure evaluation of one expression over one subject. Knows nothing of rules, time or conditions.

    config_dword0 == 0xffffffff
    (command & 0x6) == 0 and (expected.command & 0x6) != 0
    bus_lost_lines > 0 or nvml_status in (15, 16)

Names are quantities of the subject; `expected.NAME` is the same quantity as learnt while healthy. A reading that is
not there makes the part that needs it unknown, and the whole unless the rest decides: `or` is true with one true
part, `and` false with one false part. What the hardware cannot report (UNSUPPORTED) drops out of an `or`. A text where
a number should be, or the other way round, is MALFORMED and never merely unequal: unequal would pass for healthy.
"""

from __future__ import annotations

import ast
import math
import operator
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from xidwatch.core.model import Missing, Value

_COMPARE: dict[type[ast.cmpop], Callable[[Any, Any], bool]] = {
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
}
_AMONG: dict[type[ast.cmpop], Callable[[Any, Any], bool]] = {
    ast.In: lambda value, listed: value in listed,
    ast.NotIn: lambda value, listed: value not in listed,
}
_CALCULATE: dict[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.BitAnd: operator.and_,
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
}


class ExpressionError(ValueError):
    """The text is no expression of the language."""


@dataclass(frozen=True, slots=True)
class Facts:
    """What an expression may look at: the subject's readings now, and as they should be."""

    now: Mapping[str, Value]
    expected: Mapping[str, Value]


@dataclass(frozen=True, slots=True)
class Expression:
    """A checked expression. `names` are the quantities it looks at now, `expected` those as learnt, in order of appearance."""

    text: str
    names: tuple[str, ...]
    expected: tuple[str, ...]
    _tree: ast.expr

    def evaluate(self, facts: Facts) -> bool | Missing:
        """True, False, or what is missing to know."""
        result = _evaluate(self._tree, facts)
        return result if isinstance(result, Missing) else bool(result)


def parse(text: str) -> Expression:
    """Check `text` once, at start. Raises ExpressionError naming the part that is not understood."""
    try:
        tree = ast.parse(text.strip(), mode="eval").body
        names: list[str] = []
        expected: list[str] = []
        _check(tree, text, names, expected)
    except SyntaxError as error:
        raise ExpressionError(f"{text!r}: {error.msg}") from error
    except (RecursionError, MemoryError) as error:
        raise ExpressionError(f"{text[:80]!r}...: nested too deeply") from error
    return Expression(text, tuple(dict.fromkeys(names)), tuple(dict.fromkeys(expected)), tree)


# ------------------------------------------------------------------------------------------- what belongs to the language


def _check(node: ast.expr, text: str, names: list[str], expected: list[str]) -> None:
    match node:
        case ast.Name(id=name):
            names.append(name)
        case ast.Attribute(value=ast.Name(id="expected"), attr=name):
            expected.append(name)
        case _:
            for part in _parts(node, text):
                _check(part, text, names, expected)


def _parts(node: ast.expr, text: str) -> list[ast.expr]:
    """What a node is put together from. Raises ExpressionError for anything that is not in this list."""
    match node:
        case ast.BoolOp(values=values):
            return values
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            return [operand]
        case ast.Compare(left=left, ops=[op], comparators=[ast.Tuple(elts=listed)]) if type(op) in _AMONG and all(
            map(_is_constant, listed)
        ):
            return [left]
        case ast.Compare(left=left, ops=ops, comparators=comparators) if all(type(op) in _COMPARE for op in ops):
            return [left, *comparators]
        case ast.BinOp(left=left, op=op, right=right) if type(op) in _CALCULATE:
            return [left, right]
        case _ if _is_constant(node):
            return []
    raise ExpressionError(f"{text!r}: {ast.unparse(node)!r} is not part of the language")


def _is_constant(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and type(node.value) in (int, float, str)


# ----------------------------------------------------------------------------------------------------------- evaluation


def _evaluate(node: ast.expr, facts: Facts) -> object:
    match node:
        case ast.Constant(value=value):
            return value
        case ast.Name(id=name):
            return _understood(facts.now.get(name, Missing.NOT_ASKED))
        case ast.Attribute(attr=name):
            return _understood(facts.expected.get(name, Missing.NOT_ASKED))
        case ast.Tuple(elts=elements):
            return tuple(_evaluate(element, facts) for element in elements)
        case ast.BoolOp(op=op, values=values):
            parts = [_evaluate(value, facts) for value in values]
            return _all(parts) if isinstance(op, ast.And) else _any(parts)
        case ast.UnaryOp(operand=operand):
            truth = _evaluate(operand, facts)
            return truth if isinstance(truth, Missing) else not truth
        case ast.BinOp(left=left, op=op, right=right):
            return _calculate(_CALCULATE[type(op)], _evaluate(left, facts), _evaluate(right, facts))
        case ast.Compare(left=left, ops=ops, comparators=comparators):
            sides = [_evaluate(side, facts) for side in (left, *comparators)]
            return _all([_compare(op, a, b) for op, a, b in zip(ops, sides, sides[1:], strict=False)])
    raise ExpressionError(ast.unparse(node))  # _check lets nothing else through


def _understood(value: object) -> object:
    return Missing.MALFORMED if isinstance(value, float) and math.isnan(value) else value


def _compare(op: ast.cmpop, left: object, right: object) -> object:
    lack = _unanswerable(left, right)
    if lack is not None:
        return lack
    if not any(_alike(left, candidate) for candidate in (right if isinstance(right, tuple) else (right,))):
        return Missing.MALFORMED
    return (_AMONG.get(type(op)) or _COMPARE[type(op)])(left, right)


def _alike(left: object, right: object) -> bool:
    return isinstance(left, str) == isinstance(right, str)


def _calculate(function: Callable[[Any, Any], Any], left: object, right: object) -> object:
    lack = _unanswerable(left, right)
    if lack is not None:
        return lack
    if isinstance(left, str) or isinstance(right, str):
        return Missing.MALFORMED
    try:
        return _understood(function(left, right))
    except (TypeError, ArithmeticError):
        return Missing.MALFORMED


def _unanswerable(left: object, right: object) -> Missing | None:
    """Why two values cannot be brought together. What one side can never say outranks what the other has not said yet."""
    lacks = [side for side in (left, right) if isinstance(side, Missing)]
    return Missing.UNSUPPORTED if Missing.UNSUPPORTED in lacks else next(iter(lacks), None)


def _all(parts: list[object]) -> object:
    if not all(parts):  # a Missing is no empty text
        return False
    lacks = [part for part in parts if isinstance(part, Missing)]
    return next((lack for lack in lacks if lack is not Missing.UNSUPPORTED), lacks[0] if lacks else True)


def _any(parts: list[object]) -> object:
    known = [part for part in parts if not isinstance(part, Missing)]
    if any(known):
        return True
    unknown = (part for part in parts if isinstance(part, Missing) and part is not Missing.UNSUPPORTED)
    return next(unknown, False if known else Missing.UNSUPPORTED)
