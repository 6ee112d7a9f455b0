"""Activity analysis: which values are on a path from an input to an output, and need a derivative.

Values are nodes; an edge leads from an operand to a result whose derivative by it is not zero.
*Varied* values are reachable from the inputs, the outputs are reachable from *useful* values, and
*active* values are both.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from octants.analysis.reachability import reachable
from octants.autodiff.derivative_rules import rules_of
from octants.ir import ops
from octants.ir.core import Array, Block, Operation, Value

Edges = dict[Value, list[Value]]


class ActivityFlow:
    """The edges of a block, in both directions."""

    def __init__(self, block: Block) -> None:
        self.forward: Edges = {}
        self.backward: Edges = {}
        self._block = block
        self.operations = list(block.walk())
        for op in self.operations:
            for source, target in _edges(op):
                if source.type.is_float:
                    self.forward.setdefault(source, []).append(target)
                    self.backward.setdefault(target, []).append(source)

    def varied(self, is_active: Callable[[Array], bool]) -> set[Value]:
        """The values that depend on the contents of the arrays that ``is_active`` accepts."""
        sources = [
            op.results[0]
            for op in self.operations
            if isinstance(op, (ops.Load, ops.Atomic))
            and is_active(op.array)
            and op.results[0].type.is_float
        ]
        return reachable(sources, self.forward)

    def useful(self, is_active: Callable[[Array], bool]) -> set[Value]:
        """The values on which the final contents of the arrays that ``is_active`` accepts rely."""
        sinks = [
            op.value
            for op in self.operations
            if isinstance(op, (ops.Store, ops.Atomic)) and is_active(op.array)
        ]
        return reachable(sinks, self.backward)

    def guarded(self) -> set[Value]:
        """The values that reach an operand that may get a zero adjoint, as those of a select do.

        What only loops use that do not run, or branches in them that are not taken, gets one, too.
        """
        chosen = [
            value
            for op in self.operations
            if isinstance(op, (ops.Select, ops.Extract, ops.Insert))
            or (isinstance(op, ops.Binary) and op.fn in ("min", "max"))
            for value in op.operands
            if value.type.is_float
        ]
        return reachable([*chosen, *_conditional_captures(self._block)], self.backward)


def _conditional_captures(block: Block) -> set[Value]:
    """The floats from outside of loops that some iterations may not use, or no iteration."""
    constants = ops.constants_in(block)
    defined: dict[Value, tuple[int, int]] = {}  # the loops, and the conditions, around a value
    found: set[Value] = set()

    def visit(block: Block, loops: int, conditions: int) -> None:
        defined.update((arg, (loops, conditions)) for arg in block.args)
        for op in block.ops:
            for value in op.operands:
                around = defined.get(value)
                if around and loops > around[0] and conditions > around[1] and value.type.is_float:
                    found.add(value)
            defined.update((value, (loops, conditions)) for value in op.results)
            is_loop = isinstance(op, ops.Loop)
            runs = isinstance(op, ops.For) and (op.trips(constants) or 0) > 0
            for region in op.regions:
                visit(region, loops + is_loop, conditions + (not runs))

    visit(block, 0, 0)
    return found


def propagate_activity(
    flows: Iterable[ActivityFlow],
    is_active: Callable[[Array], bool],
    passes_on: Callable[[Array], bool],
    *,
    backward: bool,
) -> tuple[set[Value], set[Array]]:
    """Follow activity over several blocks, through arrays between them.

    Args:
        flows: the edges of the blocks.
        is_active: whether an array is an input, or with ``backward`` an output.
        passes_on: whether activity may pass through an array.
        backward: follow the edges backward.

    Returns:
        The values that are reached, and the arrays through which activity passes.
    """
    through: set[Array] = set()
    kinds = ops.Load if backward else (ops.Store, ops.Atomic)

    def is_known(array: Array) -> bool:
        return array in through or is_active(array)

    while True:
        reached = [flow.useful(is_known) if backward else flow.varied(is_known) for flow in flows]
        found = set().union(*reached)
        more = {
            op.array
            for flow in flows
            for op in flow.operations
            if isinstance(op, kinds) and passes_on(op.array)
            if (op.result if isinstance(op, ops.Load) else op.value) in found
        }
        if more <= through:
            return found, through
        through |= more


def _edges(op: Operation) -> Iterable[tuple[Value, Value]]:
    """The pairs (operand, result) along which a derivative may flow through an operation."""
    if isinstance(op, ops.Loop):
        for init, arg, yielded, result in zip(
            op.inits, op.carried, op.body.yielded, op.results, strict=True
        ):
            yield from ((init, arg), (yielded, arg), (init, result), (yielded, result))
    elif isinstance(op, ops.If):
        for block in (op.then, op.orelse):
            yield from zip(block.yielded, op.results, strict=True)
    elif isinstance(op, ops.Subgroup):
        yield op.value, op.result
    elif isinstance(op, ops.Extract):
        yield from ((value, op.result) for value in op.components)
    elif isinstance(op, ops.Insert):
        for result, component in zip(op.results, op.components, strict=True):
            yield from ((component, result), (op.value, result))
    elif isinstance(op, ops.CustomDerivative):
        for result in op.results:
            yield from ((value, result) for value in op.active_inputs)
    else:
        for operand, rule in zip(op.operands, rules_of(op), strict=True):
            if rule is not None:
                yield operand, op.results[0]
