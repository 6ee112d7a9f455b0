"""Makes a product and a sum one operation that rounds once: contraction, which `fast_math` allows.

Before::

    array @x: f32, 0, field, () [primal]
    serial {
      %0: f32 = load<@x, primal>()
      %1: f32 = binary<mul>(%0, %0)
      %2: f32 = binary<sub>(%1, %0)
      store<@x, primal>(%2)
    }

After::

    serial {
      %0: f32 = load<@x, primal>()
      %1: f32 = unary<neg>(%0)
      %2: f32 = fma(%0, %0, %1)
      store<@x, primal>(%2)
    }

A product is taken into a sum of its own block if nothing else needs it. A constant that is added to
a sum of products afterwards is what that begins with: all of `x * x + y * y + 0.01` is fused, and
`x * y - z + 2.0` is a product and a sum with `2.0 - z`. That is decided here, before derivatives
are taken, and not left to code generation: so a replay has the operations of what it replays, and
lanes have those of a single work item.
"""

from __future__ import annotations

from collections import Counter

from octants.compile_profile import staged
from octants.ir import ops
from octants.ir.builder import Builder
from octants.ir.core import Block, Module, Operation, Task, Value


@staged("contract_to_fma")
def contract_to_fma(module: Module) -> None:
    """Contract f32 and f64 in every task, in place."""
    for task in module.tasks:
        uses = Counter(value for op in task.body.walk() for value in op.operands)
        _contract_block(task.body, uses)
        _begin_with_constants(task, uses)


def _contract_block(block: Block, uses: Counter[Value]) -> None:
    """Fuse each sum with a product of its block; products that become part of one are dropped.

    Args:
        block: The block, rewritten in place.
        uses: How often each value of the task is used: a product must have one use.
    """
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
                    fused = _contracted(op, product)
                    uses.update(each.result for each in fused if isinstance(each, ops.Unary))
                    kept.update(dict.fromkeys(fused))
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


# -- constants -------------------------------------------------------------------------------------


def _begin_with_constants(task: Task, uses: Counter[Value]) -> None:
    """Have sums of products begin with what is added to them in the end."""
    made = (op for op in task.body.walk() if isinstance(op, ops.Constant))
    constants = {op.result: op for op in made if op.result.type.is_float}
    blocks = [task.body]
    for block in blocks:
        blocks += [region for op in block.ops for region in op.regions]
        if any(not constants.keys().isdisjoint(op.operands) for op in block.ops):
            _begin_block(block, uses, constants)


def _begin_block(block: Block, uses: Counter[Value], constants: dict[Value, ops.Constant]) -> None:
    """Let sums of products begin with the constant that is added to them, so that all is fused.

    Args:
        block: The block, rewritten in place.
        uses: How often each value of the task is used.
        constants: The definitions of the values that are constants.
    """
    makers: dict[Value, Operation] = {}
    instead: dict[Operation, list[Operation]] = {}
    for op in block.ops:
        added = _constant_added(op, constants)
        chain = [] if added is None else _chain(added[0], makers, uses)
        if added is not None and chain:
            sum_, first = chain[0], chain[-1]
            start = ops.Constant(added[1], results=[Value(op.results[0].type)])
            begun = _begun(first, start.result)
            for each in (start, begun):
                each.location = first.location
            instead |= {first: [start, begun], op: []}
            sum_.results[:] = op.results
            makers[begun.results[0]] = begun
            makers[op.results[0]] = sum_
        else:
            makers.update((value, op) for value in op.results)
    if instead:
        block.ops[:] = [each for op in block.ops for each in instead.get(op, [op])]


def _begun(first: Operation, start: Value) -> Operation:
    """The first term of a sum, a product or a negated number, with a constant added to it."""
    if isinstance(first, ops.Unary):
        return ops.Binary("sub", start, first.x, results=first.results)
    assert isinstance(first, ops.Binary)
    return ops.Fma(first.lhs, first.rhs, start, results=first.results)


def _constant_added(
    op: Operation, constants: dict[Value, ops.Constant]
) -> tuple[Value, float] | None:
    """The value that a constant is added to, and that constant."""
    if not isinstance(op, ops.Binary) or op.fn not in ("add", "sub") or op.lhs.type.bits < 32:
        return None
    if op.rhs in constants:
        number = float(constants[op.rhs].value)
        return op.lhs, -number if op.fn == "sub" else number
    if op.lhs in constants and op.fn == "add":
        return op.rhs, float(constants[op.lhs].value)
    return None


def _chain(value: Value, makers: dict[Value, Operation], uses: Counter[Value]) -> list[Operation]:
    """The fused sums that lead to a value, last to first, and the term that they begin with.

    It is a product or a negated number.

    Empty if there are none, or others need what is in between.
    """
    found: list[Operation] = []
    while uses[value] == 1:
        op = makers.get(value)
        if isinstance(op, ops.Fma):
            found.append(op)
            value = op.z
        elif found and isinstance(op, (ops.Binary, ops.Unary)) and op.fn in ("mul", "neg"):
            return [*found, op]
        else:
            break
    return []
