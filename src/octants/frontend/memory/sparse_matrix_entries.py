"""``A[i, j] += value`` of a builder of sparse matrices."""

from __future__ import annotations

import ast
from types import FunctionType
from typing import Any, cast

from octants.diagnostics.linalg_errors import BuilderAccess
from octants.frontend.calls import functions
from octants.frontend.context import Context
from octants.frontend.memory.indexing import evaluate_indices, is_builder
from octants.frontend.values import arithmetic
from octants.frontend.values.expression_values import StructValue, VariableReference
from octants.lang.atomics_and_random import _add_entry


def builder_of(context: Context, target: ast.expr) -> StructValue | None:
    """The builder in whose brackets the target of an assignment stands; None for other targets."""
    if not isinstance(target, ast.Subscript) or not isinstance(target.value, ast.Name):
        return None
    owner = context.evaluate_reference(target.value)
    held = owner.variable.value if isinstance(owner, VariableReference) else owner
    return held if is_builder(held) else None


def add(context: Context, node: ast.AugAssign, builder: StructValue) -> None:
    """Append an entry; entries of the same position are summed up when the matrix is built."""
    target = node.target
    assert isinstance(target, ast.Subscript)
    index = evaluate_indices(context, target.slice)
    if not isinstance(node.op, (ast.Add, ast.Sub)) or not _is_position(index):
        context.fail(BuilderAccess(), node)
    x = context.evaluate(node.value)
    if isinstance(node.op, ast.Sub):
        x = arithmetic.unary(context, "-", x)
    values = {**builder.members, "i": index[0], "j": index[1], "x": x}
    functions.inline(context, node, cast(FunctionType, _add_entry), values, frozenset(values))


def _is_position(index: Any) -> bool:
    return isinstance(index, tuple) and len(index) == 2 and slice not in map(type, index)
