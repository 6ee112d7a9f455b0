"""Rewrites ``match`` on values as ``if`` and ``elif``, so that nothing behind it knows ``match``.

    match n:                        if n == 1 or n == 2:
        case 1 | 2: a()                 a()
        case -1 if m > 0: b()       elif n == -1 and m > 0:
        case _: c()                     b()
                                    else:
                                        c()

Patterns that bind names, or take sequences and objects apart, stay as they are: an error.
"""

from __future__ import annotations

import ast
import copy
from typing import TypeVar

_Node = TypeVar("_Node", bound=ast.AST)


def rewrite(tree: ast.FunctionDef) -> None:
    """Rewrite the ``match`` statements of a function in place."""
    if any(isinstance(node, ast.Match) for node in ast.walk(tree)):
        _Rewriter().visit(tree)


class _Rewriter(ast.NodeTransformer):
    def visit_Match(self, node: ast.Match) -> ast.AST | list[ast.AST]:
        """Return the statements that replace one ``match``."""
        self.generic_visit(node)
        subject, before = _evaluated_once(node.subject, _changes_names(node.cases))
        rest: list[ast.stmt] = []
        for case in reversed(node.cases):
            test = _test(subject, case.pattern)
            if test is None:
                return node
            parts = [part for part in (test, case.guard) if part not in (None, _ALWAYS)]
            if not parts:
                rest = case.body
                continue
            both = parts[0] if len(parts) == 1 else ast.BoolOp(ast.And(), parts)
            rest = [_placed(ast.If(_placed(both, case.pattern), case.body, rest), case.pattern)]
        return [*before, *(rest or [_placed(ast.Pass(), node)])]


_ALWAYS = ast.Constant(True)
"""The test of ``_``."""


def _changes_names(cases: list[ast.match_case]) -> bool:
    """Whether a guard may assign variables: by `:=`, or in a function that it calls."""
    guards = [case.guard for case in cases if case.guard is not None]
    nodes = (node for guard in guards for node in ast.walk(guard))
    return any(isinstance(node, (ast.Call, ast.NamedExpr)) for node in nodes)


def _evaluated_once(subject: ast.expr, changes: bool) -> tuple[ast.expr, list[ast.stmt]]:
    """An expression that may be repeated, and what is to be executed before it.

    A call of `static` is repeated: a variable would hold its value as one of run time. So are names
    and attributes of names, which may be strings, unless a guard may change variables.
    """
    is_static = isinstance(subject, ast.Call) and ast.unparse(subject.func).endswith("static")
    base = subject
    while isinstance(base, ast.Attribute):
        base = base.value
    if is_static or isinstance(subject, ast.Constant):
        return subject, []
    if isinstance(base, ast.Name) and not changes:
        return subject, []
    name = f"the subject of `match` in line {subject.lineno}, column {subject.col_offset}"
    assignment = ast.Assign([_placed(ast.Name(name, ast.Store()), subject)], subject)
    return _placed(ast.Name(name, ast.Load()), subject), [_placed(assignment, subject)]


def _test(subject: ast.expr, pattern: ast.pattern) -> ast.expr | None:
    """Whether a pattern matches; None for a pattern that is not one of values."""
    if isinstance(pattern, ast.MatchAs) and pattern.pattern is None and pattern.name is None:
        return _ALWAYS
    if isinstance(pattern, ast.MatchOr):
        tests = [_test(subject, each) for each in pattern.patterns]
        known = [test for test in tests if test is not None]
        if _ALWAYS in known:
            return _ALWAYS
        return _placed(ast.BoolOp(ast.Or(), known), pattern) if len(known) == len(tests) else None
    if isinstance(pattern, ast.MatchValue):
        value: ast.expr = pattern.value
    elif isinstance(pattern, ast.MatchSingleton):
        value = _placed(ast.Constant(pattern.value), pattern)
    else:
        return None
    operator = ast.Is() if isinstance(pattern, ast.MatchSingleton) else ast.Eq()
    return _placed(ast.Compare(copy.deepcopy(subject), [operator], [value]), pattern)


def _placed(node: _Node, where: ast.AST) -> _Node:
    return ast.copy_location(node, where)
