"""What an assertion that failed was looking at: its text, and the values of what it compares."""

from __future__ import annotations

import ast
import linecache
import traceback
from types import FrameType, TracebackType

WIDEST = 1000  # characters a value


def failure(error: AssertionError) -> str:
    """The failed line of the scenario, with its values where the line has a plain `assert`; else the error's own words."""
    if str(error):
        return str(error)
    last = error.__traceback__
    while last and last.tb_next:
        last = last.tb_next
    return _explained(last) if last else "an assertion"


def _explained(last: TracebackType) -> str:
    frame = last.tb_frame
    summary = traceback.extract_tb(last)[-1]
    name, begin, end = summary.filename, summary.lineno or 1, summary.end_lineno or summary.lineno or 1
    source = "".join(linecache.getline(name, number) for number in range(begin, end + 1)).strip()
    told = [f"{name}:{begin}: {source}"]
    for node in _compared(source):
        told.append(f"    {ast.unparse(node)} = {_value(node, frame)}")
    return "\n".join(told)


def _compared(source: str) -> list[ast.expr]:
    try:
        statement = ast.parse(source).body[0]
    except (SyntaxError, IndexError):
        return []
    if not isinstance(statement, ast.Assert):
        return []
    test = statement.test.operand if isinstance(statement.test, ast.UnaryOp) else statement.test
    sides = [test.left, *test.comparators] if isinstance(test, ast.Compare) else [test]
    return [side for side in sides if not isinstance(side, ast.Constant)]


def _value(node: ast.expr, frame: FrameType) -> str:
    """Asked again: a scenario's assertions look at records, which do not change."""
    try:
        found = repr(eval(compile(ast.Expression(node), "<assertion>", "eval"), frame.f_globals, frame.f_locals))
    except Exception as error:  # noqa: BLE001  whatever it is, the failure itself matters more
        return f"({error})"
    return found if len(found) <= WIDEST else f"{found[:WIDEST]}..."
