"""Assignments that hide an array by a variable that nothing reads, as where its index is missing.

``loss = 0.0`` makes a local variable, as in Python, and leaves a field `loss` as it is. If the
function reads the variable, it may mean that; if not, the assignment has no effect.
"""

from __future__ import annotations

import ast
from typing import Any

from octants.diagnostics.errors import HiddenArray
from octants.frontend.context import Context
from octants.frontend.syntax.source import read_names
from octants.frontend.values.expression_values import (
    ArrayReference,
    MatrixValue,
    StructValue,
    is_number,
)
from octants.ir.core import Value
from octants.types.matrix_values import Matrix
from octants.types.specialisation_signature import (
    FieldHandle,
    NdarrayHandle,
    QuantHandle,
    StructHandle,
)


def check(context: Context, target: ast.expr, value: Any) -> None:
    """Note an assignment of a number, a vector or a matrix that hides an array without a use."""
    if not isinstance(target, ast.Name):
        return
    frame = context.scopes.frame
    variable = frame.variables.get(target.id)
    found = frame.python_name(target.id) if variable is None else variable.value
    in_memory = variable is not None and variable.in_memory  # a number, which no array is
    rank = None if in_memory else _rank(found)
    if rank is None or target.id in read_names(frame.source.tree.body):
        return
    value = context.load(value)
    if isinstance(value, (Value, MatrixValue, Matrix)) or is_number(value):
        context.warn(HiddenArray(target.id, way_out(target.id, rank)), target)


def way_out(name: str, rank: int) -> str:
    """How to write to an array of a rank."""
    if not rank:
        return f"write to its element: `{name}[None] = ...`"
    indices = ", ".join("ijkl"[k % 4] for k in range(rank))
    return f"write to an element, `{name}[{indices}] = ...`, or to all: `{name}.fill(...)`"


def _rank(found: Any) -> int | None:
    """The rank of an array; None for other objects."""
    if isinstance(found, ArrayReference):
        return found.array.rank
    if isinstance(found, StructValue):
        ranks = (_rank(member) for member in found.members.values())
        return next((rank for rank in ranks if rank is not None), None)
    is_array = isinstance(found, (FieldHandle, NdarrayHandle, QuantHandle, StructHandle))
    return len(found.shape) if is_array else None
