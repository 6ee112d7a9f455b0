"""Makes a product and a sum one operation that rounds once: contraction, which `fast_math` allows.

Before::

    kernel @k
    array @x: f32, 0, field, () [primal]
    serial @k_0 {
      %0: f32 = load<@x, primal>()
      %1: f32 = binary<mul>(%0, %0)
      %2: f32 = binary<sub>(%1, %0)
      store<@x, primal>(%2)
      yield()
    }

After::

    kernel @k
    array @x: f32, 0, field, () [primal]
    serial @k_0 {
      %0: f32 = load<@x, primal>()
      %1: f32 = unary<neg>(%0)
      %2: f32 = fma(%0, %0, %1)
      store<@x, primal>(%2)
      yield()
    }

A product is taken into a sum of its own block if nothing else needs it. That is decided here,
before derivatives are taken, and not left to code generation: so a replay has the operations of
what it replays, and lanes have those of a single work item.
"""

from __future__ import annotations

from collections import Counter

from octants.compile_profile import staged
from octants.ir import ops
from octants.ir.builder import Builder
from octants.ir.core import Block, Module, Operation, Value


@staged("contract")
def contract(module: Module) -> None:
    """Contract f32 and f64 in every task, in place."""
    for task in module.tasks:
        uses = Counter(value for op in task.body.walk() for value in op.operands)
        _contract_block(task.body, uses)


def _contract_block(block: Block, uses: Counter[Value]) -> None:
    products: dict[Value, ops.Binary] = {}
    kept: dict[Operation, None] = {}
    for op in block.ops:
        for region in op.regions:
            _contract_block(region, uses)
        if isinstance(op, ops.Binary) and op.lhs.type.is_float and op.lhs.type.bits >= 32:
            if op.fn == "mul" and uses[op.result] == 1:
                products[op.result] = op
            elif op.fn in ("add", "sub"):
                product = products.pop(op.lhs, None) or products.pop(op.rhs, None)
                if product is not None:
                    del kept[product]
                    kept.update(dict.fromkeys(_contracted(op, product)))
                    continue
        kept[op] = None
    block.ops[:] = kept


def _contracted(op: ops.Binary, product: ops.Binary) -> list[Operation]:
    """A sum or a difference, one side of which is a product."""
    x, y = product.lhs, product.rhs
    is_first = op.lhs is product.result
    z = op.rhs if is_first else op.lhs
    build = Builder(Block())
    build.location = op.location
    if op.fn == "sub" and is_first:
        z = build.unary("neg", z)
    elif op.fn == "sub":
        x = build.unary("neg", x)
    build.append(ops.Fma(x, y, z, results=op.results))
    return build.block.ops
