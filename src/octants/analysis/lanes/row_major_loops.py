"""Finds loops over the elements of a matrix, whose work items are numbered row by row.

    %j: i32 = binary<mod>(%item, %n)            the column
    %i: i32 = binary<floordiv>(%item, %n)       the row

Tiles end where a row ends. So all lanes of a tile are neighbours in one row, whose number is
uniform.
"""

from __future__ import annotations

from octants.ir import ops
from octants.ir.core import Operation, Task, Value
from octants.lazy_dataclass import dataclass


@dataclass(frozen=True, slots=True)
class ContiguousRows:
    """The rows of a task: the values in its body that are row `numbers` and `columns`.

    `length` is the length of a row, if it is known. `rematerialised` are the operations that
    compute it outside of the body; its value is the result of the last one.
    """

    length: int | None
    rematerialised: tuple[Operation, ...]
    numbers: frozenset[Value]
    columns: frozenset[Value]


def find_rows(task: Task) -> ContiguousRows | None:
    """The rows of a parallel task, if it has some and no work item has a negative number."""
    if not _is_natural(task):
        return None
    definitions = {op.result: op for op in task.body.ops if len(op.results) == 1}
    parts: dict[Value, dict[str, set[Value]]] = {}
    for op in task.body.ops:
        if isinstance(op, ops.Binary) and op.lhs is task.body.args[0]:
            parts.setdefault(op.rhs, {}).setdefault(op.fn, set()).add(op.result)
    for length, found in parts.items():
        rematerialised = _slice(definitions, length)
        if rematerialised and "mod" in found:
            numbers, columns = frozenset(found.get("floordiv", ())), frozenset(found["mod"])
            first = rematerialised[0]
            known = first.value if isinstance(first, ops.Constant) else None
            return ContiguousRows(known, rematerialised, numbers, columns)
    return None


def _is_natural(task: Task) -> bool:
    """Whether the number of the first work item is known and not negative."""
    assert task.domain is not None
    constants = ops.constants_in(task.domain)
    return bool(constants.get(task.domain.yielded[0], -1) >= 0)


def _slice(definitions: dict[Value, Operation], length: Value) -> tuple[Operation, ...]:
    """The operations that compute a positive length; empty for other values.

    Divided by zero or a negative number, quotients and remainders are not rows and columns.
    """
    op = definitions.get(length)
    if isinstance(op, ops.Shape) or (isinstance(op, ops.Constant) and op.value > 0):
        return (op,)
    if isinstance(op, ops.Cast) and op.x.type.is_integer and op.result.type.bits >= op.x.type.bits:
        inner = _slice(definitions, op.x)
        return (*inner, op) if inner else ()
    return ()
