"""Write iterations of loops for passes that unroll loops."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from octants.ir import ops
from octants.ir.builder import Builder
from octants.ir.cloning import emit
from octants.ir.core import Block, Operation, Value, replace_operands
from octants.ir.rewriting import rewrite

Copy = Callable[[Operation, dict[Value, Value], int], None]
"""Writes a copy of an operation for the iteration of a number.

The dictionary maps its operands, and gains its results.
"""


class ReplacedLoops:
    """The replacements of the results of the loops of a body that a pass unrolls."""

    def __init__(self) -> None:
        self._values: dict[Value, Value] = {}

    def replace(self, loop: ops.For, results: Iterable[Value]) -> None:
        """Let other values stand for the results of a loop."""
        self._values.update(zip(loop.results, results, strict=True))

    def apply(self, body: Block) -> None:
        """Replace the operands of a body."""
        for op in body.walk() if self._values else ():
            replace_operands(op, self._find)

    def _find(self, value: Value) -> Value:
        while value in self._values:
            value = self._values[value]
        return value


class LoopRewriter:
    """Rewrites the loops of a body, in place, inner ones first; `replaced` are those that go."""

    def __init__(self, body: Block) -> None:
        self.body, self.builder, self.replaced = body, Builder(), ReplacedLoops()
        self.builder.constants.update(ops.constants_in(body))

    def trips(self, loop: ops.For) -> int | None:
        """The trip count of a loop, if it is a constant."""
        return loop.trips(self.builder.constants)

    def rewrite(self, write: Callable[[ops.For], None]) -> None:
        """Rewrite the body; ``write`` writes what becomes of a loop."""

        def rewrite_loop(_: Builder, op: Operation) -> bool:
            if isinstance(op, ops.For):
                write(op)
            return isinstance(op, ops.For)

        rewrite(self.body, rewrite_loop, self.builder)
        self.replaced.apply(self.body)


def copy_folded(builder: Builder, op: Operation, values: dict[Value, Value]) -> None:
    """Write a copy of an operation; what follows from constants, such as an index, is folded."""
    operands = [values.get(value, value) for value in op.operands]
    builder.location = op.location
    if isinstance(op, ops.Binary) and not op.result.type.is_float:
        values[op.result] = builder.binary(op.fn, *operands)
    elif isinstance(op, ops.Compare) and not op.lhs.type.is_float:
        values[op.result] = builder.compare(op.fn, *operands)
    elif isinstance(op, ops.Select):
        values[op.result] = builder.select(*operands)
    elif isinstance(op, ops.Cast):
        values[op.result] = builder.cast(operands[0], op.result.type)
    else:
        emit(builder, op, values)


def write_iterations(
    builder: Builder, op: ops.For, first: Value, inits: Sequence[Value], trips: int, copy: Copy
) -> list[Value]:
    """Write so many iterations of a loop, from a counter on; return what it carries then."""
    carried = list(inits)
    for number in range(trips):
        counter = builder.binary("add", first, builder.constant(number, first.type))
        values = dict(zip(op.body.args, [counter, *carried], strict=True))
        for each in op.body.ops[:-1]:
            copy(each, values, number)
        carried = [values.get(value, value) for value in op.body.yielded]
    return carried


def write_side_by_side(builder: Builder, op: ops.For, first: Value, trips: int, copy: Copy) -> None:
    """Write so many iterations of a loop that carries nothing: each operation for all of them."""
    numbers = [builder.constant(number, first.type) for number in range(trips)]
    copies = [{op.body.args[0]: builder.binary("add", first, number)} for number in numbers]
    for each in op.body.ops[:-1]:
        for number, values in enumerate(copies):
            copy(each, values, number)


def write_chunks(
    builder: Builder,
    op: ops.For,
    length: int,
    write: Callable[[Value, list[Value]], list[Value]],
) -> tuple[Value, list[Value]]:
    """Write a loop over the whole chunks of a loop's iterations.

    Args:
        builder: Where it is written.
        op: The loop.
        length: The iterations of a chunk, a power of two.
        write: Writes those of a chunk, from the first counter and the carried values on; returns
            what is carried then.

    Returns:
        The counter of the first iteration that is left, and what the loop carries.
    """
    dtype = op.lower.type
    shift, factor = length.bit_length() - 1, builder.constant(length, dtype)
    trips = builder.binary("sub", builder.binary("max", op.lower, op.upper), op.lower)
    chunks = builder.binary("ushr", trips, builder.constant(shift, dtype))  # as if unsigned

    def first(chunk: Value) -> Value:
        return builder.binary("add", op.lower, builder.binary("mul", chunk, factor))

    body = Block([Value(dtype), *(Value(value.type) for value in op.inits)])
    with builder.into(body):
        number, *carried = body.args
        builder.yield_(write(first(number), carried))
    carried = builder.for_(builder.constant(0, dtype), chunks, op.inits, body).results
    return first(chunks), carried
