"""Loops over the elements of a matrix, whose work items are numbered row by row.

    %j: i32 = binary<mod>(%item, %n)            where in the row
    %i: i32 = binary<floordiv>(%item, %n)       which row

A tile ends where a row does. So all lanes are in one row, which is a number that they share, and
are neighbours in it.
"""

from __future__ import annotations

from octants.ir import ops
from octants.ir.core import Operation, Task, Value
from octants.lazy_dataclass import dataclass


@dataclass(frozen=True, slots=True)
class ContiguousRows:
    """What the body of a task computes of rows: their `numbers`, and `places` in them.

    Their length is a number, or an extent of an array: `recipe` are the operations that give it,
    the last one by its result.
    """

    length: int | None
    recipe: tuple[Operation, ...]
    numbers: frozenset[Value]
    places: frozenset[Value]


def find_rows(task: Task) -> ContiguousRows | None:
    """The rows of a parallel task, if it has some, and no work item has a negative number."""
    if not _is_natural(task):
        return None
    definitions = {op.result: op for op in task.body.ops if len(op.results) == 1}
    parts: dict[Value, dict[str, set[Value]]] = {}
    for op in task.body.ops:
        if isinstance(op, ops.Binary) and op.lhs is task.body.args[0]:
            parts.setdefault(op.rhs, {}).setdefault(op.fn, set()).add(op.result)
    for length, found in parts.items():
        recipe = _recipe(definitions, length)
        if recipe and "mod" in found:
            numbers, places = frozenset(found.get("floordiv", ())), frozenset(found["mod"])
            first = recipe[0]
            known = first.value if isinstance(first, ops.Constant) else None
            return ContiguousRows(known, recipe, numbers, places)
    return None


def _is_natural(task: Task) -> bool:
    """Whether the first work item has a number that is known, and not negative."""
    assert task.domain is not None
    constants = {op.result: op.value for op in task.domain.ops if isinstance(op, ops.Constant)}
    return bool(constants.get(task.domain.yielded[0], -1) >= 0)


def _recipe(definitions: dict[Value, Operation], length: Value) -> tuple[Operation, ...]:
    """The operations that give a length, which is not negative; none if it is another value.

    By zero or a negative number, quotients and remainders are no rows and places.
    """
    op = definitions.get(length)
    if isinstance(op, ops.Shape) or (isinstance(op, ops.Constant) and op.value > 0):
        return (op,)
    if isinstance(op, ops.Cast) and op.x.type.is_integer and op.result.type.bits >= op.x.type.bits:
        inner = _recipe(definitions, op.x)
        return (*inner, op) if inner else ()
    return ()
