"""Computes `y - x` as the negative of `x - y`, where that has been computed.

Before::

    array @x: f32, 1, ndarray, () [primal]
    array @y: f32, 1, ndarray, () [primal]
    array @z: f32, 1, ndarray, () [primal]
    parallel (%2: i32 < shape<@x, 0>()) {
      %3: f32 = load<@x, primal>(%2)
      %4: f32 = load<@y, primal>(%2)
      %5: f32 = binary<sub>(%3, %4)
      %6: f32 = binary<sub>(%4, %3)
      %7: f32 = fma(%5, %5, %6)
      store<@z, primal>(%7, %2)
    }

After::

    parallel (%2: i32 < shape<@x, 0>()) {
      %3: f32 = load<@x, primal>(%2)
      %4: f32 = load<@y, primal>(%2)
      %5: f32 = binary<sub>(%3, %4)
      %6: f32 = unary<neg>(%5)
      %7: f32 = fma(%5, %5, %6)
      store<@z, primal>(%7, %2)
    }

A sign is part of the operation that uses it, so this costs nothing. The gradient of a sum over
pairs has both differences if its sums are gathered (`gather_sums`): each body is the first one of a
pair, and the second one of another.

The difference of equal numbers is 0 then, or -0. So this is for numbers that become parts of sums,
where that makes no difference: in `1.0 / (y - x)` and `atan2(y - x, z)` it does. No branch, trip
count or index, which a replay must reproduce, may depend on them.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping

from octants.analysis.floats.replay_strictness import may_round_differently
from octants.compile_profile import staged
from octants.ir import ops
from octants.ir.core import Block, Module, Task, Value

Known = Mapping[tuple[Value, Value], Value]
"""The differences so far, by what is subtracted from what."""


@staged("share_differences")
def share_differences(module: Module) -> None:
    """Share differences in every task, in place."""
    for task in module.tasks:
        _share(task)


def _share(task: Task) -> None:
    found = list(_find(task.body, {}))
    numbers = [block.ops[k].results[0] for block, k, _ in found]
    if not found or not may_round_differently(task, "", numbers):
        return
    if not _shows_sign_of_zero(task, numbers):
        for block, k, opposite in found:
            op = block.ops[k]
            negative = ops.Unary("neg", opposite, results=op.results)
            negative.location = op.location
            block.ops[k] = negative


def _find(block: Block, outer: Known) -> Iterator[tuple[Block, int, Value]]:
    """Find differences of which the opposite is known: block, position, opposite.

    Args:
        block: where they are.
        outer: the differences that are known before the block.
    """
    known = dict(outer)
    for position, op in enumerate(block.ops):
        if isinstance(op, ops.Binary) and op.fn == "sub" and op.lhs.type.is_float:
            opposite = known.get((op.rhs, op.lhs))
            if opposite is None:
                known[op.lhs, op.rhs] = op.result
            else:
                yield block, position, opposite
        for region in op.regions:
            yield from _find(region, known)


def _shows_sign_of_zero(task: Task, numbers: Collection[Value]) -> bool:
    """Whether some floats, or products with them, have another use than sums and squares."""
    signed = set(numbers)
    for op in task.body.walk():
        if signed.isdisjoint(op.operands) or isinstance(op, ops.Fma):
            continue
        fn = op.fn if isinstance(op, (ops.Unary, ops.Binary)) else ""
        is_square = fn == "mul" and op.operands[0] is op.operands[1]
        if fn in ("mul", "neg") and not is_square:
            signed.update(op.results)
        elif not is_square and fn not in ("add", "sub", "abs"):
            return True
    return False
