"""Divides derivatives by one divisor once: by its reciprocal, which `fast_math` allows.

Before::

    array @x: f32, 1, ndarray, () [primal, adjoint]
    array @y: f32, 1, ndarray, () [primal, adjoint]
    parallel (%2: i32 < shape<@x, 0>()) {
      %3: f32 = load<@x, primal>(%2)
      %4: f32 = load<@y, adjoint>(%2)
      %5: f32 = binary<div>(%4, %3)
      %6: f32 = binary<mul>(%5, %5)
      %7: f32 = binary<div>(%6, %3)
      store<@x, adjoint>(%7, %2)
    }

After::

    parallel (%2: i32 < shape<@x, 0>()) {
      %3: f32 = load<@x, primal>(%2)
      %4: f32 = load<@y, adjoint>(%2)
      %5: f32 = constant<1.0>()
      %6: f32 = binary<div>(%5, %3)
      %7: f32 = binary<mul>(%4, %6)
      %8: f32 = binary<mul>(%7, %7)
      %9: f32 = binary<mul>(%8, %6)
      store<@x, adjoint>(%9, %2)
    }

Only what is computed from an adjoint or a tangent is divided so: it never decides on a branch, and
is never replayed, so it need not be bit-reproducible.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import TypeGuard

from octants.analysis.reachability import reachable
from octants.ir import ops
from octants.ir.core import Block, Companion, Module, Operation, Value
from octants.passes.arithmetic.relax_divisions import Power, blocks_in, multiply_by_reciprocals
from octants.types.scalars import f32, f64

_ARITHMETIC = (ops.Unary, ops.Binary, ops.Fma, ops.Select, ops.Cast)


def share_reciprocals(module: Module) -> None:
    """Share them in each block, in place."""
    for task in module.tasks:
        if any(map(_is_division, task.body.walk())):
            derivatives = _derivatives(task.body)
            if derivatives:
                _share(task.body, derivatives)


def _derivatives(body: Block) -> set[Value]:
    """The values that are computed from adjoints or tangents."""
    users: dict[Value, list[Value]] = {}
    waiting: list[Value] = []
    for op in body.walk():
        if isinstance(op, (ops.Load, ops.Atomic)) and op.companion is not Companion.PRIMAL:
            waiting += op.results
        for source, targets in _flow(op):
            users.setdefault(source, []).extend(targets)
    return reachable(waiting, users)


def _flow(op: Operation) -> Iterator[tuple[Value, list[Value]]]:
    """The operands of an operation, each with the results that are computed from it."""
    if isinstance(op, _ARITHMETIC):
        yield from ((value, op.results) for value in op.operands)
    elif isinstance(op, ops.If):
        for region in op.regions:
            pairs = zip(region.yielded, op.results, strict=True)
            yield from ((value, [result]) for value, result in pairs)
    elif isinstance(op, ops.Loop):
        carried = op.carried
        for k, (arg, result) in enumerate(zip(carried, op.results, strict=True)):
            yield op.inits[k], [arg, result]
            yield op.body.yielded[k], [arg, result]


def _share(body: Block, derivatives: set[Value]) -> None:
    """Multiply by one reciprocal where a block divides by the same value more than once.

    Args:
        body: the body of a task, rewritten in place.
        derivatives: the values that are computed from adjoints or tangents; only they may change.
    """
    found: dict[Operation, Power] = {}
    for block in blocks_in(body):
        divisions = [op for op in block.ops if _divides(op, derivatives)]
        counts = Counter(op.rhs for op in divisions)
        found |= {op: (op.rhs, 2) for op in divisions if counts[op.rhs] > 1}
    multiply_by_reciprocals(body, found)


def _divides(op: Operation, derivatives: set[Value]) -> TypeGuard[ops.Binary]:
    """Whether an operation divides a derivative by what is none."""
    return _is_division(op) and op.lhs in derivatives and op.rhs not in derivatives


def _is_division(op: Operation) -> TypeGuard[ops.Binary]:
    return isinstance(op, ops.Binary) and op.fn == "div" and op.rhs.type in (f32, f64)
