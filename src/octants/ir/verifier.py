"""Checks that a module is well formed: types, dominance, terminators, declared arrays."""

from __future__ import annotations

from octants.ir.cooperative_tasks import verify_task
from octants.ir.core import Array, Block, InvalidIR, Module, Operation, Value
from octants.ir.ops import RecordPop, RecordPush, Yield
from octants.ir.printer import Printer


def verify(module: Module) -> None:
    """Raise `InvalidIR` with the offending operation's text if the module is not well formed."""
    arrays: set[Array] = set()
    for array in module.arrays:
        if array.like is not None and array.like[0] not in arrays:
            raise InvalidIR(f"array {array.name} is as long as one that is not declared before it")
        arrays.add(array)
    for block in module.blocks():
        _verify_block(block, set(), arrays)
    for task in module.tasks:
        _verify_task_arguments(task.domain, task.body)
        _verify_records(task.body)
        verify_task(task)


def _verify_task_arguments(domain: Block | None, body: Block) -> None:
    bounds = [] if domain is None else [value.type for value in domain.yielded]
    arguments = [arg.type for arg in body.args]
    if len(bounds) not in (0, 2) or bounds[:1] != arguments or len(set(bounds)) > 1:
        raise InvalidIR(f"task: the domain yields {bounds}, the body takes {arguments}")


def _verify_records(body: Block) -> None:
    """Check that a task has written what it reads back: no other task does."""
    accesses = list(body.walk())
    pushed = {op.record for op in accesses if isinstance(op, RecordPush)}
    for op in accesses:
        if isinstance(op, RecordPop) and op.record not in pushed:
            raise InvalidIR(f"nothing is pushed to the record\nin: {Printer().operation(op)}")


def _verify_block(block: Block, visible: set[Value], arrays: set[Array]) -> None:
    """Check a block; ``visible`` is restored on return."""
    _verify_terminator(block)
    defined: list[Value] = []
    _define(block.args, visible, defined)
    for count, op in enumerate(block.ops, 1):
        try:
            if isinstance(op, Yield) and count < len(block.ops):
                raise InvalidIR("a yield in the middle of a block")
            _verify_operation(op, visible, arrays)
        except InvalidIR as error:
            raise InvalidIR(f"{error}\nin: {Printer().operation(op)}") from None
        if op.REGIONS:
            for region in op.regions:
                _verify_block(region, visible, arrays)
        if op.results:
            _define(op.results, visible, defined)
    visible.difference_update(defined)


def _verify_terminator(block: Block) -> None:
    if not block.ops or not isinstance(block.ops[-1], Yield):
        raise InvalidIR("a block does not end in a yield")


def _define(values: list[Value], visible: set[Value], defined: list[Value]) -> None:
    for value in values:
        if value in visible:
            raise InvalidIR(f"{value} is defined twice")
        visible.add(value)
    defined += values


def _verify_operation(op: Operation, visible: set[Value], arrays: set[Array]) -> None:
    operands = op.operands
    if operands and not visible.issuperset(operands):
        unknown = next(value for value in operands if value not in visible)
        raise InvalidIR(f"{unknown} is used before it is defined")
    array = getattr(op, "array", None)
    if array is not None and array.whole not in arrays:
        raise InvalidIR(f"array {array.name} is not declared")
    for region in op.regions if op.REGIONS else ():
        _verify_terminator(region)  # `op.verify` looks at what it yields
    op.verify()
