"""Plan the iterations of a loop that speculates that no sine or cosine needs its slow path.

`analysis.floats.slow_paths` chooses the loops, which run in chunks of iterations with one guard.
This module chooses the length of a chunk, the iterations whose operands the guard must test, and
those that compute the function by a polynomial instead of an instruction.
"""

from __future__ import annotations

from octants.analysis.floats.float_magnitudes import Magnitudes
from octants.analysis.floats.slow_paths import is_sine
from octants.ir import ops
from octants.ir.core import Operation, Value
from octants.mathlib.sine_series import Series, series

ITERATIONS = 8
"""The iterations of a chunk; twice as many in short loops."""

MOST_WORK = 32
"""The most operations of an iteration, which is written several times."""

_LITTLE = 6
"""The operations of a short iteration."""

_BETWEEN, _BESIDE = 8, 8
"""The operations between iterations; the fraction of one unit's work that does not overlap."""


def work(loop: ops.For) -> list[Operation]:
    """Return the operations of an iteration that take time."""
    return [each for each in loop.body.walk() if not isinstance(each, (ops.Constant, ops.Yield))]


def chunk_length(loop: ops.For) -> int:
    """Return the iterations of a chunk."""
    return ITERATIONS if len(work(loop)) > _LITTLE else 2 * ITERATIONS


def surely_small(magnitudes: Magnitudes, operand: Value, limit: float, iterations: int) -> range:
    """Return the iterations of a chunk in which an operand is small if it is so in the others."""
    if magnitudes.later(operand) < limit:
        return range(1, iterations)
    return range(1, iterations - 1) if magnitudes.is_steady(operand) else range(0)


def polynomial_iterations(
    loop: ops.For,
    magnitudes: Magnitudes,
    iterations: int,
    function_sums: int,
) -> dict[int, Series]:
    """Return the iterations of a chunk in which polynomials pay.

    Args:
        loop: the loop.
        magnitudes: those of the loop.
        iterations: the length of the chunk.
        function_sums: how many additions take as long as the instruction for a function.
    """
    inside = work(loop)
    functions = [each for each in inside if is_sine(each)]
    chosen = series(max(magnitudes.later(each.operands[0]) for each in functions))
    instructions = iterations * (len(inside) + len(functions)) + _BETWEEN
    costs = []
    for count in range(iterations // 2 + 1):
        one = function_sums * len(functions) * (iterations - count)
        other = instructions + chosen.more * len(functions) * count
        costs.append((max(one, other) + min(one, other) // _BESIDE, count))
    _, count = min(costs)
    return {(2 * k + 1) * iterations // (2 * count): chosen for k in range(count)}
