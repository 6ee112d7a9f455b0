"""Which loops code generation writes out, turn by turn, so that registers hold what they record.

Where threads of a GPU hold many registers few of them are at work at once, and what is written out
has to be compiled: that bounds the turns, and the code of all of them.
"""

from __future__ import annotations

from octants.ir import ops
from octants.ir.core import Block, Companion, Operation

WORD = 4  # bytes of a register
REGISTERS = 32
MOST_TURNS = 32
MOST_WORK = 512
"""What records take at most; the turns of a block, and the operations of all of them."""

MOST_IN_TASK = 4 * MOST_WORK
"""Operations of the blocks of all loops of a task."""

ENOUGH_WORK = 160
"""Operations of a block beside which its checkpoint costs little: longer ones hold registers."""

USUAL_TURNS, LEAST_TURNS = 16, 4
"""The turns of a block that is enough work; all have a multiple of the least number."""

LEAST_REGISTERS = 48
"""What the records of a block of the least number of turns may take."""

MOST_TWICE = 1024
"""Operations of an iteration that is there twice: in blocks, and for what is in none."""

_SIMPLE = frozenset(("add", "sub", "mul", "min", "max", "and", "or", "xor", "neg", "abs", "not"))
_FUNCTION, _UPDATE, _STREAM, _DRAW = 8, 24, 64, 16


def unrolled_turns(op: Operation, stride: int, most: int) -> int:
    """How many iterations of a loop are written out at a time; 0 if it is not worth it.

    The record of an iteration takes so many bytes, and all of them may be so many operations.
    """
    assert isinstance(op, ops.Loop)
    if any(isinstance(each, ops.Loop) for each in op.body.walk()):
        return 0
    work = max(1, work_of(op.body))
    turns = min(MOST_TURNS, REGISTERS * WORD // stride, max(USUAL_TURNS, ENOUGH_WORK // work))
    turns -= turns % LEAST_TURNS
    if LEAST_TURNS * stride <= LEAST_REGISTERS * WORD:
        turns = max(turns, LEAST_TURNS)
    return turns if turns * work <= min(most, MOST_WORK) else 0


def is_worth_twice(op: Operation) -> bool:
    """Whether all blocks of a loop that is not written out should have one length.

    Then the first sweep leaves nothing of them but checkpoints, and the iterations that are left
    have code of their own.
    """
    if not isinstance(op, ops.For) or any(isinstance(each, ops.Loop) for each in op.body.walk()):
        return False
    return work_of(op.body) <= MOST_TWICE


def work_of(block: Block) -> int:
    """Roughly the operations of an iteration, and of its reverse where that is an atomic update."""
    return sum(map(_work, block.walk()))


def _work(op: Operation) -> int:
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
