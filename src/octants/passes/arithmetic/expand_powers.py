"""Writes powers to halves as products, and roots: what `fast_math` allows.

Before::

    array @x: f32, 0, field, () [primal]
    array @y: f32, 0, field, () [primal]
    serial {
      %0: f32 = load<@x, primal>()
      %1: f32 = constant<-1.5>()
      %2: f32 = binary<pow>(%0, %1)
      store<@y, primal>(%2)
      %3: f32 = constant<-2.5>()
      %4: f32 = binary<pow>(%0, %3)
      store<@x, primal>(%4)
    }

After::

    serial {
      %0: f32 = load<@x, primal>()
      %1: f32 = constant<-1.5>()
      %2: f32 = unary<rsqrt>(%0)
      %3: f32 = binary<mul>(%2, %2)
      %4: f32 = binary<mul>(%2, %3)
      store<@y, primal>(%4)
      %5: f32 = constant<-2.5>()
      %6: f32 = binary<mul>(%4, %3)
      store<@x, primal>(%6)
    }

That is one `rsqrt` for all negative powers of a number in a block, and much less than `pow`. It is
done late, since a power has a simpler derivative than what is made of it here, and always in the
same way, so that a replay has the bits of what it replays.

No program of examples/ has such a power. The pass stays since forces of masses and charges are
written so: a sum of `d * (d * d + e) ** -1.5` takes a seventh of the time.
"""

from __future__ import annotations

from octants.ir import ops
from octants.ir.builder import Builder
from octants.ir.core import Block, Module, Operation, Value
from octants.ir.rewriting import rewrite
from octants.types.scalars import f32

_MOST = 9
"""Roots in a product: each adds its error."""


def expand_powers(module: Module) -> None:
    """Expand those of f32 in every task, in place."""
    for task in module.tasks:
        halves = {
            op.result: int(2 * op.value)
            for op in task.body.walk()
            if isinstance(op, ops.Constant) and _is_half(op)
        }
        if halves:
            _expand_all(task.body, halves)


def _is_half(op: ops.Constant) -> bool:
    if op.result.type is not f32 or not abs(op.value) <= _MOST / 2:
        return False
    return bool(2 * op.value % 2 == 1)


def _expand_all(body: Block, halves: dict[Value, int]) -> None:
    """Expand the powers in a body; ``halves`` are twice the constant exponents, by value."""
    known: dict[tuple[Block, Value], dict[int, Value]] = {}

    def expand(builder: Builder, op: Operation) -> bool:
        if not (isinstance(op, ops.Binary) and op.fn == "pow" and op.rhs in halves):
            return False
        _expand(builder, op, halves[op.rhs], known.setdefault((builder.block, op.lhs), {}))
        return True

    rewrite(body, expand)


def _expand(builder: Builder, op: ops.Binary, halves: int, powers: dict[int, Value]) -> None:
    """Append a power; ``powers`` are those of the base that are there, by their halves."""
    sign = 1 if halves > 0 else -1
    if halves == sign:
        powers[halves] = op.result
        builder.append(ops.Unary(_ROOT[sign], op.lhs, results=op.results))
        return
    if sign not in powers:
        powers[sign] = builder.unary(_ROOT[sign], op.lhs)
    if 2 * sign not in powers:
        root = powers[sign]
        powers[2 * sign] = op.lhs if sign > 0 else builder.binary("mul", root, root)
    square = powers[2 * sign]
    for exponent in range(3 * sign, halves, 2 * sign):
        if exponent not in powers:
            powers[exponent] = builder.binary("mul", powers[exponent - 2 * sign], square)
    powers[halves] = op.result
    builder.append(ops.Binary("mul", powers[halves - 2 * sign], square, results=op.results))


_ROOT = {1: "sqrt", -1: "rsqrt"}
