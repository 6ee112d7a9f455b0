"""The mathematical functions for all lanes at once, from the same code as those of one number."""

from __future__ import annotations

from octants.analysis.uniformity import Uniformity
from octants.codegen.llvm import library
from octants.codegen.llvm.lanes import control
from octants.codegen.llvm.lanes.text import LaneText
from octants.codegen.llvm.library import ATTRIBUTES, LONG, Call, captured, finished
from octants.ir import ops
from octants.ir.core import Block, Value


def call(f: LaneText, op: Call) -> str:
    """A function of vectors; of what all lanes share it is computed once."""
    if not f.is_vector(*op.operands):
        return library.call_scalar(f, op)
    name = f.text.helper(f"{op.name}.x{f.lanes}", lambda _, name: _text(f, op, name))
    register = f.type(op.function.dtype)
    return f.call_vector(name, register, [(register, x) for x in op.operands], op.attribute)


def _text(caller: LaneText, op: Call, name: str) -> str:
    """The definition of a function of vectors."""
    block = op.function.block
    f = _inner(caller, Uniformity(block))
    parameters = _bind_parameters(f, block.args)
    f.start("start")
    (result,) = f.block(block)
    vector = f.vector(f.type(op.function.dtype))
    result = f.fit(block.yielded[0], result)
    head = f"define internal {vector} {name}({parameters}) {ATTRIBUTES}"
    return finished(f, head, f"ret {vector} {result}")


def _inner(caller: LaneText, uniformity: Uniformity) -> LaneText:
    """The text of a function that is called where any lanes are active."""
    table = {**caller.table, ops.If: if_}
    scalar = caller.scalar_table
    return LaneText(caller.kernel, caller.machine, table, 0, caller.lanes, uniformity, scalar)


def _bind_parameters(f: LaneText, values: list[Value]) -> str:
    for number, value in enumerate(values):
        if f.varies(value):
            f.vectors.add(f"%x{number}")
        f.bind(value, f"%x{number}")
    return ", ".join(f"{f.shape(value)} {f.use(value)}" for value in values)


def if_(f: LaneText, op: ops.If) -> None:
    """The usual way for all lanes, and a rare one if any lane takes it."""
    condition = f.use(op.condition)
    if not f.is_vector(condition):
        control.if_(f, op)
        return
    usual = [f.fit(r, v) for r, v in zip(op.results, f.block(op.orelse), strict=True)]
    rare, merge = f.fresh_label("rare"), f.fresh_label("merge")
    before = f.label
    none = f.assign(f"icmp eq i{f.lanes} {f.bits(condition)}, 0")
    f.branch_if(none, merge, rare, likely=True)
    f.start(rare)
    is_long = sum(1 for _ in op.then.walk()) > LONG
    found = _call_rare(f, op.then) if is_long else f.block(op.then)
    merged = [
        f.choose(condition, f.type(result.type), value, other)
        for result, value, other in zip(op.results, found, usual, strict=True)
    ]
    end = f.label
    f.branch(merge)
    f.start(merge)
    for result, value, other in zip(op.results, merged, usual, strict=True):
        f.bind(result, control.phi(f, f.shape(result), [(value, end), (other, before)]))


def _call_rare(f: LaneText, block: Block) -> list[str]:
    """The values that a block yields, from a function of its own."""
    needed = captured(block)
    inner = _inner(f, f.uniformity)
    parameters = _bind_parameters(inner, needed)
    inner.start("start")
    given = inner.block(block)
    values = [inner.fit(value, x) for value, x in zip(block.yielded, given, strict=True)]
    types = [f.shape(value) for value in block.yielded]
    struct, results = f"{{ {', '.join(types)} }}", "poison"
    for position, (shape, given_value) in enumerate(zip(types, values, strict=True)):
        results = inner.assign(f"insertvalue {struct} {results}, {shape} {given_value}, {position}")
    name = library.rare_name(parameters, inner)
    head = f"define internal {struct} {name}({parameters})"
    text = finished(inner, f"{head} cold noinline {ATTRIBUTES}", f"ret {struct} {results}")
    f.text.helper(name, lambda *_: text)
    arguments = ", ".join(f"{f.shape(value)} {f.use(value)}" for value in needed)
    result = f.assign(f"call {struct} {name}({arguments})")
    found = []
    for position, value in enumerate(block.yielded):
        take = f"extractvalue {struct} {result}, {position}"
        found.append(f.assign_vector(take) if f.varies(value) else f.assign(take))
    return found
