"""The replacement of an operation, as a block: its arguments are the operands.

Code generation emits the block in place of the operation. So whatever looks
at a module before - which loops run in lanes, what is summed up, where rows end - sees operations
as they are, and each kind of them is lowered once in a process. Callers must not change a block.
"""

from __future__ import annotations

import functools
from collections.abc import Callable

from octants.ir.core import Block, Value
from octants.ir.ops.arithmetic import COMPARE
from octants.lowering.legal_operations import Legal
from octants.lowering.legaliser import Legaliser
from octants.types.scalars import DType, i32, u64

BY_CONSTANT = frozenset(("floordiv", "mod", "truncdiv", "truncmod", "pow", "shl", "shr", "ushr"))
"""Functions of integers that are lowered otherwise where the second operand is known."""


def _block(
    legal: Legal, types: list[DType], make: Callable[[Legaliser, list[Value]], Value]
) -> Block:
    block = Block([Value(dtype) for dtype in types])
    build = Legaliser(legal, block)
    build.yield_([make(build, block.args)])
    return block


@functools.cache
def function(legal: Legal, fn: str, dtype: DType, operands: int, known: int | None = None) -> Block:
    """For a unary or binary function or a comparison; ``known`` is the second operand."""

    def make(build: Legaliser, args: list[Value]) -> Value:
        if operands == 1:
            return build.unary(fn, *args)
        lhs, rhs = args
        if known is not None:
            rhs = build.constant(known, dtype)
        return build.compare(fn, lhs, rhs) if fn in COMPARE else build.binary(fn, lhs, rhs)

    return _block(legal, [dtype] * operands, make)


@functools.cache
def fma(legal: Legal, dtype: DType) -> Block:
    """For a product and a sum that are rounded once."""
    return _block(legal, [dtype] * 3, lambda build, args: build.fma(*args))


@functools.cache
def cast(legal: Legal, source: DType, target: DType) -> Block:
    """For a conversion."""
    return _block(legal, [source], lambda build, args: build.cast(args[0], target))


@functools.cache
def random_stream(legal: Legal, task: int, item: DType) -> Block:
    """For the random stream of a work item."""
    return _block(legal, [item], lambda build, args: build.random_stream(task, *args))


@functools.cache
def random(legal: Legal, dtype: DType) -> Block:
    """For a draw of a type: of the stream, and of its number among the draws."""
    return _block(legal, [u64, i32], lambda build, args: build.random(dtype, *args))
