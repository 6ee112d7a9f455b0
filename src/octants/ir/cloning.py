"""Copies of blocks, tasks and modules."""

from __future__ import annotations

from collections.abc import Container, Mapping

from octants.diagnostics.cooperation_errors import NoOrder
from octants.ir import ops
from octants.ir.builder import Builder
from octants.ir.cooperative_tasks import first_cooperative
from octants.ir.core import (
    Array,
    Block,
    Module,
    Operation,
    Record,
    Space,
    Task,
    Value,
    rebuild,
)


def copy_block(block: Block, values: dict[Value, Value]) -> Block:
    """A copy of a block; ``values`` maps what it uses from outside and gains what it defines."""
    args = [Value(arg.type, arg.name) for arg in block.args]
    values.update(zip(block.args, args, strict=True))
    return Block(args, [copy_operation(op, values) for op in block.ops])


def copy_operation(op: Operation, values: dict[Value, Value]) -> Operation:
    """A copy of an operation with its regions."""
    operands = [values.get(value, value) for value in op.operands]
    regions = [copy_block(region, values) for region in op.regions]
    new = rebuild(op, operands, regions)
    values.update(zip(op.results, new.results, strict=True))
    return new


def emit(builder: Builder, op: Operation, values: dict[Value, Value]) -> None:
    """Append a copy of an operation, whose constants are known to the builder."""
    new = copy_operation(op, values)
    builder.append(new)
    if isinstance(new, ops.Constant):
        builder.note_constant(new)


def without_effects(op: Operation, kept: Container[Space] = ()) -> Operation | None:
    """An operation that only reads, with its results; None where nothing is left of it.

    Writes to arrays in ``kept`` spaces stay as they are.
    """
    if op.reports:
        return None
    if not isinstance(op, ops.Write) or op.array.space in kept:
        return op
    return ops.Load(*op.ref, op.indices, results=op.results) if op.results else None


def copy_domain(task: Task, arrays: Mapping[Array, Array] | None = None) -> Block | None:
    """A copy of the domain of a task; ``arrays`` take the places of others."""
    if task.domain is None:
        return None
    domain = copy_block(task.domain, {})
    for op in domain.walk():
        if arrays is not None and isinstance(op, (ops.Access, ops.Shape)):
            op.array = arrays[op.array]
    return domain


def copy_task(task: Task) -> Task:
    """A copy of a task over the same arrays, with records of its own, whose slots may go."""
    body = copy_block(task.body, {})
    records: dict[Record, Record] = {}
    for op in body.walk():
        record = getattr(op, "record", None)
        if record is not None:
            if record not in records:
                records[record] = record.copy()
            op.record = records[record]  # type: ignore[attr-defined]
    return Task(task.name, body, copy_domain(task), task.location, task.options)


def serialise(task: Task) -> Task:
    """A copy of a task whose work items run one after the other, in order.

    Raises:
        OctantsRuntimeError: they work together.
    """
    refuse_cooperation(task)
    copy = copy_task(task)
    if copy.domain is None:
        return copy
    lower, upper = copy.domain.yielded
    loop = ops.For(lower, upper, [], copy.body, location=task.location)
    body = Block([], [*copy.domain.ops[:-1], loop, ops.Yield([])])
    return Task(task.name, body, None, task.location, task.options)


def refuse_cooperation(task: Task) -> None:
    """Raise a `NoOrder` if the work items of a task work together."""
    first = first_cooperative(task.body)
    if first is not None:
        span = first.location or task.location
        raise NoOrder(span.function if span is not None else task.name).at(span)


def copy_arrays(module: Module) -> dict[Array, Array]:
    """Fresh arrays like those of a module, in the same order, whose companions may be changed."""
    copies: dict[Array, Array] = {}
    for array in module.arrays:
        like = None if array.like is None else (copies[array.like[0]], array.like[1])
        copies[array] = Array(
            array.name,
            array.dtype,
            array.rank,
            array.space,
            array.element_shape,
            dict(array.layouts),
            like,
            array.exported,
        )
    return copies


def copy_module(module: Module) -> Module:
    """A copy of a module over the same arrays."""
    body = None if module.body is None else copy_block(module.body, {})
    tasks = [copy_task(task) for task in module.tasks]
    return Module(module.name, list(module.arrays), body, tasks, module.location)


def split_tasks(module: Module) -> list[Module]:
    """One module per task, each over all the arrays, to be launched one after the other."""
    return [
        Module(
            f"{module.name}_part{k}", list(module.arrays), None, [copy_task(task)], task.location
        )
        for k, task in enumerate(module.tasks)
    ]
