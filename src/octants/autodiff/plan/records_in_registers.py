"""Decides which loops code generation unrolls, so that their records stay in registers.

On a GPU, more registers per thread mean fewer threads at work, and unrolled code has to be
compiled: these bound the iterations of an unrolled block, and the code of all blocks of a task.
"""

from __future__ import annotations

from octants.ir import ops
from octants.ir.core import Block, Companion, Operation

WORD = 4  # bytes of a register
REGISTERS = 32
MAX_ITERATIONS = 32
MAX_WORK = 512
"""Bounds on an unrolled block: registers for its records, iterations, operations of all of them."""

MAX_WORK_IN_TASK = 4 * MAX_WORK
"""Operations of the unrolled blocks of a task."""

ENOUGH_WORK = 160
"""Operations of a block that outweigh its checkpoint: a longer block only takes registers."""

PREFERRED_ITERATIONS, ITERATION_MULTIPLE = 16, 4
"""Iterations of a block with enough work; the divisor of the iterations of any block."""

MAX_REGISTERS_OF_MULTIPLE = 48
"""Registers that the records of a block of `ITERATION_MULTIPLE` iterations may take."""

MAX_DUPLICATED_WORK = 1024
"""Operations of an iteration that may be emitted twice: in blocks, and behind the last one."""

_SIMPLE = frozenset(("add", "sub", "mul", "min", "max", "and", "or", "xor", "neg", "abs", "not"))
_FUNCTION, _UPDATE, _STREAM, _DRAW = 8, 24, 64, 16


def unrolled_iterations(op: Operation, stride: int, most: int) -> int:
    """How many iterations of a loop are unrolled at a time.

    Args:
        op: the loop.
        stride: the bytes of its record for one iteration.
        most: the most operations of a block.

    Returns:
        A multiple of `ITERATION_MULTIPLE`, or 0 if unrolling does not pay.
    """
    assert isinstance(op, ops.Loop)
    if any(isinstance(each, ops.Loop) for each in op.body.walk()):
        return 0
    work = max(1, work_of(op.body))
    iterations = min(
        MAX_ITERATIONS, REGISTERS * WORD // stride, max(PREFERRED_ITERATIONS, ENOUGH_WORK // work)
    )
    iterations -= iterations % ITERATION_MULTIPLE
    if ITERATION_MULTIPLE * stride <= MAX_REGISTERS_OF_MULTIPLE * WORD:
        iterations = max(iterations, ITERATION_MULTIPLE)
    return iterations if iterations * work <= min(most, MAX_WORK) else 0


def is_worth_duplicating(op: Operation) -> bool:
    """Whether all blocks of a loop that is not unrolled should have one length.

    Then the first sweep leaves only their checkpoints, and the iterations behind the last block
    have code of their own.
    """
    if not isinstance(op, ops.For) or any(isinstance(each, ops.Loop) for each in op.body.walk()):
        return False
    return work_of(op.body) <= MAX_DUPLICATED_WORK


def work_of(block: Block) -> int:
    """An estimate of the operations of an iteration and of its reverse, with its atomic updates."""
    return sum(map(_work, block.walk()))


def _work(op: Operation) -> int:
    """The cost of an operation in simple operations, for deciding whether unrolling pays."""
    if isinstance(op, (ops.Constant, ops.Cast)):
        return 0
    if isinstance(op, (ops.Unary, ops.Binary)):
        return 1 if op.fn in _SIMPLE else _FUNCTION
    if isinstance(op, ops.RandomStream):
        return _STREAM
    if isinstance(op, ops.Random):
        return _DRAW
    is_update = isinstance(op, ops.Load) and op.array.has(Companion.ADJOINT)
    return _UPDATE if is_update else 1
