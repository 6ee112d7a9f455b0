"""Lowers the blocks of functions of `mathlib`."""

from __future__ import annotations

import functools

from octants.ir.core import Block, Operation, Value, rebuild
from octants.ir.ops import Constant
from octants.lowering.legal_operations import Legal
from octants.lowering.legaliser import Legaliser
from octants.mathlib.function_registry import MathFunction


@functools.cache
def lower_function(legal: Legal, function: MathFunction) -> MathFunction:
    """A function of `mathlib` that has legal operations only; callers must not change it."""
    block = _lowered(Legaliser(legal), function.block, {})
    return MathFunction(function.name, function.dtype, block, function.is_fast)


def _lowered(build: Legaliser, block: Block, values: dict[Value, Value]) -> Block:
    """A block; ``values`` maps what it uses from outside and gains what it defines."""
    result = Block([Value(arg.type, arg.name) for arg in block.args])
    values.update(zip(block.args, result.args, strict=True))
    with build.into(result):
        for op in block.ops:
            _write(build, op, values)
    return result


def _write(build: Legaliser, op: Operation, values: dict[Value, Value]) -> None:
    """Append an operation, lowered.

    Args:
        build: The builder of legal operations.
        op: The operation of the original block.
        values: The lowered value for each original value so far; gains the results.
    """
    build.location = op.location
    operands = [values[value] for value in op.operands]
    found = build.operation(op, operands)
    if found is not None:
        values[op.result] = found
        return
    new = rebuild(op, operands, [_lowered(build, region, values) for region in op.regions])
    build.append(new)
    if isinstance(new, Constant):
        build.note_constant(new)
    values.update(zip(op.results, new.results, strict=True))
