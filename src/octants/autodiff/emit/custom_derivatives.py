"""Derivatives that the program gives itself: `ops.CustomDerivative` in reverse and forward mode.

Reverse mode inlines the adjoint function where the operation is reversed. Forward mode needs the
Jacobian: if the adjoint function is linear in the adjoints of the results, as a product with the
transposed Jacobian is, then inlined with a one for one result and zeros for the others, it gives
the row of that result.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from octants.autodiff.derivative_rules import adjoint_type
from octants.autodiff.emit.reverser import Reverser
from octants.diagnostics.custom_adjoint_errors import NonlinearAdjoint
from octants.ir import ops
from octants.ir.builder import Builder
from octants.ir.cloning import emit
from octants.ir.core import Block, Operation, Value
from octants.types.scalars import u1


def inline_adjoint(
    builder: Builder, op: ops.CustomDerivative, given: Sequence[Value]
) -> list[Value]:
    """Build the adjoint function for its arguments; gives the adjoints of the inputs."""
    values = dict(zip(op.adjoint.args, given, strict=True))
    location = builder.location
    for inner in op.adjoint.ops[:-1]:
        emit(builder, inner, values)
    builder.location = location
    return [values[value] for value in op.adjoint.yielded]


def reverse_custom(reverser: Reverser, op: ops.CustomDerivative) -> None:
    """Add to the adjoints of the inputs what the adjoint function gives."""
    known = [reverser.adjoints.get(result) for result in op.results]
    if not any(known):
        return
    builder = reverser.builder
    adjoints = [builder.cast(reverser.adjoints.of(result), result.type) for result in op.results]
    mark = len(builder.block.ops)
    contributions = inline_adjoint(builder, op, [*reverser.values.mapped(op.inputs), *adjoints])
    reverser.derivative_ops.update(Block([], builder.block.ops[mark:]).walk())
    if not reverser.facts.guarded.isdisjoint(op.results):
        contributions = _unless_all_zero(builder, adjoints, contributions)
    for value, contribution in zip(op.active_inputs, contributions, strict=True):
        reverser.adjoints.add(value, builder.cast(contribution, adjoint_type(value.type)))


def _unless_all_zero(
    builder: Builder, adjoints: Sequence[Value], contributions: Sequence[Value]
) -> list[Value]:
    """The contributions, or zeros where the results were not used: they may be infinite there."""
    is_used = builder.constant(False, u1)
    for adjoint in adjoints:
        differs = builder.compare("ne", adjoint, builder.constant(0.0, adjoint.type))
        is_used = builder.binary("or", is_used, differs)
    return [
        builder.select(is_used, contribution, builder.constant(0.0, contribution.type))
        for contribution in contributions
    ]


def tangents_of(
    builder: Builder,
    op: ops.CustomDerivative,
    inputs: Sequence[Value],
    tangents: Sequence[Value | None],
) -> list[Value | None]:
    """The tangents of the results.

    Args:
        builder: where to build them.
        op: the primal operation.
        inputs: what stands for its inputs.
        tangents: those of its active inputs, in derivative type; None for zeros.

    Returns:
        One for each result, in derivative type; None for zeros.

    Raises:
        OctantsCompilationError: the adjoint function is not linear.
    """
    if not any(tangents):
        return [None] * len(op.results)
    _check_linear(op)
    found: list[Value | None] = []
    for result in op.results:
        unit = [builder.constant(float(each is result), each.type) for each in op.results]
        row = inline_adjoint(builder, op, [*inputs, *unit])
        total: Value | None = None
        for slope, tangent in zip(row, tangents, strict=True):
            if tangent is not None:
                kind = adjoint_type(result.type)
                contribution = builder.binary(
                    "mul", builder.cast(slope, kind), builder.cast(tangent, kind)
                )
                total = contribution if total is None else builder.add_fresh(total, contribution)
        found.append(total)
    return found


def _check_linear(op: ops.CustomDerivative) -> None:
    flow = _Linearity()
    count = len(op.results)
    flow.linear.update(op.adjoint.args[len(op.adjoint.args) - count :])
    if not flow.block(op.adjoint) or not all(map(flow.is_linear, op.adjoint.yielded)):
        raise NonlinearAdjoint().at(op.location)


class _Linearity:
    """Which values are linear in some others; `linear` are those that depend on them."""

    def __init__(self) -> None:
        self.linear: set[Value] = set()
        self._zeros: set[Value] = set()

    def is_linear(self, value: Value) -> bool:
        """Whether a value is linear: zero is, too."""
        return value in self.linear or value in self._zeros

    def block(self, block: Block) -> bool:
        """Follow the operations of a block; whether those that depend on the others are linear."""
        return all(map(self._operation, block.ops))

    def _operation(self, op: Operation) -> bool:
        if isinstance(op, ops.Constant):
            if op.result.type.is_float and op.value == 0:
                self._zeros.add(op.result)
            return True
        if isinstance(op, ops.Yield):
            return True
        if isinstance(op, ops.If):
            return self._if(op)
        if isinstance(op, ops.Loop):
            return self._loop(op)
        if self.linear.isdisjoint(op.operands):
            return True
        self.linear.update(op.results)
        return self._is_linear_in_operands(op)

    def _is_linear_in_operands(self, op: Operation) -> bool:
        if isinstance(op, ops.Unary):
            return op.fn == "neg"
        if isinstance(op, ops.Cast):
            return op.result.type.is_float
        if isinstance(op, ops.Fma):
            return not (op.x in self.linear and op.y in self.linear) and (
                self.is_linear(op.z) and (op.x in self.linear or op.y in self.linear)
            )
        if isinstance(op, ops.Select):
            both = self.is_linear(op.on_true) and self.is_linear(op.on_false)
            return op.condition not in self.linear and both
        if isinstance(op, ops.CustomDerivative):
            return False
        if not isinstance(op, ops.Binary):
            return False
        if op.fn in ("add", "sub"):
            return self.is_linear(op.lhs) and self.is_linear(op.rhs)
        if op.fn == "mul":
            return (op.lhs in self.linear) != (op.rhs in self.linear)
        return op.fn in ("div", "approximate_div") and op.rhs not in self.linear

    def _if(self, op: ops.If) -> bool:
        if op.condition in self.linear or not (self.block(op.then) and self.block(op.orelse)):
            return False
        yielded = zip(op.results, op.then.yielded, op.orelse.yielded, strict=True)
        return self._join(yielded)

    def _loop(self, op: ops.Loop) -> bool:
        """Follow a loop until no more carried values turn out to be linear."""
        if isinstance(op, ops.For) and not self.linear.isdisjoint((op.lower, op.upper)):
            return False
        conditions = [op.condition] if isinstance(op, ops.While) else []
        arguments = [op.carried, *(block.args for block in conditions)]
        known = -1
        while known != len(self.linear):
            known = len(self.linear)
            for k, (init, yielded) in enumerate(zip(op.inits, op.body.yielded, strict=True)):
                if not self.linear.isdisjoint((init, yielded)):
                    self.linear.update(each[k] for each in arguments)
            blocks = [*conditions, op.body]
            if not all(map(self.block, blocks)):
                return False
        if any(not self.linear.isdisjoint(block.yielded) for block in conditions):
            return False
        ends = zip(op.results, op.inits, op.body.yielded, strict=True)
        return self._join(ends)

    def _join(self, joined: Iterable[tuple[Value, Value, Value]]) -> bool:
        """Follow results that are one of two values."""
        for result, one, other in joined:
            if not self.linear.isdisjoint((one, other)):
                self.linear.add(result)
                if not (self.is_linear(one) and self.is_linear(other)):
                    return False
            elif one in self._zeros and other in self._zeros:
                self._zeros.add(result)
        return True
