"""Derivatives of reads and writes of a local vector by a run-time index.

The adjoints of the components are a vector, too. A read adds to one of them; a write takes one of
them, and leaves a zero::

    %r = extract(%i, %x, %y, ...)                g'.. = insert(j, extract(j, g..) + r', g..)
    %x1, %y1, ... = insert(%i, %v, %x, ...)      v'   = extract(i, x1', y1', ...)
                                                 g..  = insert(i, 0, x1', y1', ...)

So each takes one or two operations, however long the vector is. An index out of range reads the
first component, and writes nothing: ``j`` is ``i`` in range, and 0 out of range.
"""

from __future__ import annotations

from collections.abc import Sequence

from octants.autodiff.derivative_rules import adjoint_type
from octants.autodiff.emit.reverser import Reverser
from octants.ir import ops
from octants.ir.builder import Builder
from octants.ir.component_access import extract, insert, is_inside, or_first
from octants.ir.core import Operation, Value

_RECENT = 8
"""The operations before a read among which the product is that its adjoint is."""


def reverse_extract(reverser: Reverser, op: ops.Extract) -> None:
    """Add the adjoint of a component to that of the vector at the same index."""
    adjoint = reverser.adjoints.get(op.result)
    if adjoint is None:
        return
    builder, active = reverser.builder, reverser.facts.active
    recent = builder.block.ops[-_RECENT:]
    index = or_first(builder, reverser.values[op.index], len(op.components))
    before, is_first = _adjoints_of(reverser, op.components)
    total = _total(builder, extract(builder, index, before), adjoint, recent)
    after = insert(builder, index, total, before)
    firsts = [
        (value, contribution)
        for value, contribution, first in zip(op.components, after, is_first, strict=True)
        if first and value in active
    ]
    reverser.adjoints.put(firsts)
    for value, contribution, first in zip(op.components, after, is_first, strict=True):
        if not first:
            reverser.adjoints.add(value, contribution)


def _total(
    builder: Builder, component: Value, adjoint: Value, recent: Sequence[Operation]
) -> Value:
    """Add an adjoint to a component; rounded once if it is a product, perhaps a guarded one."""
    made = {op.results[0]: op for op in recent if op.is_scalar}
    guard, product = None, made.get(adjoint)
    if isinstance(product, ops.Select) and builder.constants.get(product.on_false) == 0:
        guard, product = product.condition, made.get(product.on_true)
    if not (builder.contracts and isinstance(product, ops.Binary) and product.fn == "mul"):
        return builder.add(component, adjoint)
    total = builder.fma(product.lhs, product.rhs, component)
    return total if guard is None else builder.select(guard, total, component)


def _adjoints_of(reverser: Reverser, components: Sequence[Value]) -> tuple[list[Value], list[bool]]:
    """The adjoint of each component, and whether it is the first one with that value.

    The adjoint of a value that several components have is with the first one; others start at zero.
    """
    seen: set[Value] = set()
    found, is_first = [], []
    for value in components:
        is_first.append(value not in seen)
        seen.add(value)
        zero = reverser.builder.constant(0.0, adjoint_type(value.type))
        found.append(reverser.adjoints.of(value) if is_first[-1] else zero)
    return found, is_first


def reverse_insert(reverser: Reverser, op: ops.Insert) -> None:
    """Move the adjoint of the component that was replaced to the value that replaced it."""
    adjoints, builder = reverser.adjoints, reverser.builder
    if all(adjoints.get(result) is None for result in op.results):
        return
    index, after = reverser.values[op.index], [adjoints.of(result) for result in op.results]
    zero = builder.constant(0.0, after[0].type)
    if op.value in reverser.facts.active:
        contribution = extract(builder, index, after)
        inside = is_inside(builder, index, len(after))
        adjoints.add(op.value, builder.select(inside, contribution, zero))
    if not reverser.facts.active.isdisjoint(op.components):
        before = insert(builder, index, zero, after)
        for value, contribution in zip(op.components, before, strict=True):
            adjoints.add(value, contribution)
