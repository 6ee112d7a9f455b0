"""Parallel loops: what their iterations share, and the loop itself."""

from __future__ import annotations

import ast
import math
from collections.abc import Callable
from typing import Any

from octants.frontend.context import Context
from octants.frontend.control_flow import cooperation, early_exits, loop_domains
from octants.frontend.control_flow.loop_domains import Domain
from octants.frontend.memory import references
from octants.frontend.scope import Plan, VariableRegion
from octants.frontend.syntax import names_in_source, source
from octants.frontend.values import flattening
from octants.frontend.values.expression_values import (
    ArrayReference,
    MatrixValue,
    StructValue,
    Variable,
    VariableReference,
    is_number,
)
from octants.ir import ops
from octants.ir.core import Array, Block, Space, Value
from octants.lazy_dataclass import dataclass

BindTargets = Callable[[list[Value]], None]


@dataclass(frozen=True)
class AssignedVariables:
    """The variables that the body of a loop assigns, in whole or in part, by the function's names.

    Those that the function got by reference are variables of its callers. Each iteration has a copy
    of the `private` ones; something may read those of the names `read_after` after the loop.
    """

    every: dict[str, Variable]
    private: set[Variable]
    read_after: set[str]


def assigned_variables(
    context: Context, node: ast.For, options: dict[str, Any], plan: Plan
) -> AssignedVariables | None:
    """The variables that a top-level loop assigns; None if it must be serial.

    It must be if an iteration reads a variable of the function that another one assigns, or if the
    loop of a function called by the kernel can be left: what Python means by that is that they run
    in order. An iteration that reads a variable of which it has a copy has assigned it before, and
    nothing reads it after the loop.
    """
    if plan.is_serial or options.get("serialize") or options.get("parallelize") == 1:
        return None
    frame, reads = context.scopes.frame, source.read_names(node.body)
    if not frame.is_kernel and source.can_be_left(node):
        return None
    targets = source.target_names(node)
    changed = context.scopes.changed_by(node.body)
    every = {name: _owner(variable) for name, variable in changed.items() if name not in targets}
    read_after = {
        name
        for name, variable in every.items()
        if variable is not frame.variables[name]
        or names_in_source.is_read_after(name, node, frame.source.tree.body)
    }
    private = {
        variable
        for name, variable in every.items()
        if name in reads
        and name not in read_after
        and not variable.in_memory
        and not _is_memory(variable.value)
        and not names_in_source.is_read_first(name, node.body)
    }
    is_independent = all(
        (name not in reads or variable in private) and _can_be_shared(variable)
        for name, variable in every.items()
    )
    return AssignedVariables(every, private, read_after) if is_independent else None


def _owner(variable: Variable) -> Variable:
    held = variable.value
    return held.variable if isinstance(held, VariableReference) else variable


def _can_be_shared(variable: Variable) -> bool:
    if variable.in_memory or _is_memory(variable.value):
        return True
    return not flattening.has_object(variable.value) and not isinstance(
        variable.value, (tuple, list, dict)
    )


def _is_memory(value: Any) -> bool:
    return references.is_reference(value) and not isinstance(value, VariableReference)


def build(
    context: Context,
    node: ast.For,
    nest: Domain,
    options: dict[str, Any],
    guard: Value | None,
    assigned: AssignedVariables,
    bind: BindTargets,
) -> bool:
    """Build a parallel loop; gives False, and undoes it, if it turns out that it must be serial."""
    for variable in assigned.every.values():
        is_private = variable in assigned.private
        if not (is_private or variable.in_memory or _is_memory(variable.value)):
            move_to_memory(context, variable)
    mark, deactivations = len(context.builder.block.ops), context.active.deactivations
    whole = loop_domains.from_zero(context, nest)
    lower, upper = whole.levels[0]
    if guard is not None:
        upper = context.builder.select(guard, lower, upper)
    counter = Value(lower.type)
    region = VariableRegion(Block([counter]))
    loop = cooperation.begin(context, counter, (lower, upper), options)
    with context.work_item(counter, loop), context.region(region):
        context.scopes.assign(context.draw, 0)
        flags = early_exits.loop_exits(context, node.body)
        flags.is_parallel = True
        with early_exits.body(context, flags):
            bind(whole.indices([counter]))
            context.build(node.body)
        context.builder.yield_()
    if (
        not assigned.private.issuperset(v for v in region.changed if v is not context.draw)
        or _is_dependent(region.block)
        or _leaves_any(region.block, _read_after(assigned))
    ):
        del context.builder.block.ops[mark:]
        context.scopes.plan(node).is_serial = True
        return False
    if context.active.trusts_loops and context.active.deactivations != deactivations:
        del context.builder.block.ops[mark:]
        with context.active.distrusting_loops():
            return build(context, node, nest, options, guard, assigned, bind)
    given = {name: value for name, value in options.items() if _says_something(name, value)}
    if loop is not None and loop.cooperates:
        given |= cooperation.finish(context, node, loop, region.block)
    context.builder.parallel_for(lower, upper, region.block, given)
    context.end_parallel()
    early_exits.lose_names(context, node, region)
    return True


def _says_something(name: str, value: Any) -> bool:
    """Whether an option of a loop is given: False is a word only where there is a default."""
    return value is not None and (value is not False or name == "simd")


def _is_dependent(body: Block) -> bool:
    """Whether an iteration reads a variable in memory that another one writes."""
    read: set[Array] = set()
    written: set[Array] = set()
    for op in body.walk():
        if isinstance(op, ops.Load) and op.array.space is Space.TEMPORARY:
            read.add(op.array)
        elif isinstance(op, ops.Write) and op.array.space is Space.TEMPORARY:
            written.add(op.array)
    return not read.isdisjoint(written)


def _read_after(assigned: AssignedVariables) -> set[Array]:
    """The memory of the variables that a loop assigns, and something may read after it."""
    return {
        array for name in assigned.read_after for array in _arrays_of(assigned.every[name].value)
    }


def _arrays_of(value: Any) -> list[Array]:
    """The arrays of a variable in memory."""
    if isinstance(value, StructValue):
        return [array for member in value.members.values() for array in _arrays_of(member)]
    return [value.array] if isinstance(value, ArrayReference) else []


def _leaves_any(body: Block, variables: set[Array]) -> bool:
    """Whether iterations store different numbers in a variable, of which Python leaves the last.

    They do, too, where they add to what they have stored.
    """
    numbers, stored = ops.constants_in(body), dict[Array, Any]()
    inside = body.defined() - numbers.keys()
    updated = {op.array for op in body.walk() if isinstance(op, ops.Atomic)}
    return any(
        op.value in inside or op.array in updated or stored.setdefault(op.array, number) != number
        for op in body.walk()
        if isinstance(op, ops.Store) and op.array in variables
        for number in [repr(numbers[op.value]) if op.value in numbers else op.value]
    )


# -- variables in memory ---------------------------------------------------------------------------


def move_to_memory(context: Context, variable: Variable) -> None:
    """Let a variable live in launch-temporary memory from here on."""
    before = variable.value
    variable.value = _memory_for(context, variable.name, before)
    variable.in_memory = True
    if not all(_is_zero(context.known(leaf)) for leaf in flattening.leaves(before)):
        context.store(VariableReference(variable), before)


def _memory_for(context: Context, name: str, value: Any) -> ArrayReference | StructValue:
    if isinstance(value, StructValue):
        members = {
            member: _memory_for(context, f"{name}_{member}", inner)
            for member, inner in value.members.items()
        }
        return StructValue(members, value.python_type)
    if isinstance(value, MatrixValue):
        return context.arrays.temporary(name, value.dtype, value.shape)
    return context.arrays.temporary(name, value.type, ())


def _is_zero(known: Any) -> bool:
    """Whether launch-temporary memory holds this number at the start: a zero without a sign."""
    return is_number(known) and known == 0 and math.copysign(1, known) > 0
