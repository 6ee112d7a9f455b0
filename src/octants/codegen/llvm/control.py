"""Structured control flow as blocks and phis. Loops are rotated: the test stands at the end."""

from __future__ import annotations

from octants.codegen.llvm import records
from octants.codegen.llvm.function import FunctionText, Phi
from octants.ir import ops
from octants.ir.core import Value
from octants.types.scalars import DType


def for_(f: FunctionText, op: ops.For) -> None:
    """A test before the first turn, one after each."""
    counter_type = op.lower.type
    lower, upper = f.use(op.lower), f.use(op.upper)
    register = f.type(counter_type)
    enter, body, leave = (f.fresh_label(hint) for hint in ("enter", "body", "leave"))
    before = f.label
    f.branch_if(_less(f, counter_type, lower, upper), enter, leave)
    f.start(enter)
    records.reserve(f, op)
    preheader = f.label
    f.branch(body)
    f.start(body)
    counter = _open(f, op.body.args[:1], [lower], preheader)[0]
    carried = _open(f, op.body.args[1:], [f.use(value) for value in op.inits], preheader)
    values = f.block(op.body)
    if f.kernel.costs.is_long_turn(op.body):
        f.machine.poll(f)
    step = "nsw" if counter_type.is_signed else "nuw"
    following = f.assign(f"add {step} {register} {counter.name}, 1")
    latch = f.label
    f.branch_if(_less(f, counter_type, following, upper), body, leave, hint=_hint(f, op))
    _close(f, [counter, *carried], [following, *values], latch)
    f.start(leave)
    for result, init, value in zip(op.results, op.inits, values, strict=True):
        _merge(f, result, [(f.use(init), before), (value, latch)])


def _hint(f: FunctionText, op: ops.For) -> str:
    """Metadata of a loop whose turns are written out; one that updates memory is code enough."""
    records = (ops.RecordPush, ops.RecordPop)
    if not any(isinstance(each, records) and each.record.unrolled for each in op.body.ops):
        return ""
    if any(isinstance(each, (ops.Atomic, ops.CompareExchange)) for each in op.body.walk()):
        return ""
    how = f.text.metadata('!{!"llvm.loop.unroll.full"}')
    return ", !llvm.loop " + f.text.metadata(f"distinct !{{{{}}, {how}}}")


def while_(f: FunctionText, op: ops.While) -> None:
    """The condition's block, then the body's, and back; Ctrl-C is looked for in each turn."""
    test, body, leave = (f.fresh_label(hint) for hint in ("test", "body", "leave"))
    before = f.label
    f.branch(test)
    f.start(test)
    carried = _open(f, op.condition.args, [f.use(value) for value in op.inits], before)
    (condition,) = f.block(op.condition)
    f.branch_if(condition, body, leave)
    f.start(body)
    for arg, phi in zip(op.body.args, carried, strict=True):
        f.bind(arg, phi.name)
    values = f.block(op.body)
    f.machine.poll(f)
    _close(f, carried, values, f.label)
    f.branch(test)
    f.start(leave)
    for result, phi in zip(op.results, carried, strict=True):
        f.bind(result, phi.name)


def if_(f: FunctionText, op: ops.If) -> None:
    """Two blocks that meet again."""
    then, orelse, merge = (f.fresh_label(hint) for hint in ("then", "else", "merge"))
    f.branch_if(f.use(op.condition), then, orelse)
    incoming: list[tuple[list[str], str]] = []
    for label, block in ((then, op.then), (orelse, op.orelse)):
        f.start(label)
        values = f.block(block)
        incoming.append((values, f.label))
        f.branch(merge)
    f.start(merge)
    for position, result in enumerate(op.results):
        _merge(f, result, [(values[position], label) for values, label in incoming])


def yield_(_: FunctionText, __: ops.Yield) -> None:
    """Its operands are read by the operation that holds the block."""


def _less(f: FunctionText, dtype: DType, a: str, b: str) -> str:
    return f.apply(f"icmp {'slt' if dtype.is_signed else 'ult'}", f.type(dtype), a, b)


def _open(f: FunctionText, args: list[Value], inits: list[str], before: str) -> list[Phi]:
    """Phis for the arguments of a loop's block, with their values at the first entry."""
    phis = []
    for arg, init in zip(args, inits, strict=True):
        phi = f.open_phi(f.type(arg.type))
        phi.incoming.append((init, before))
        f.bind(arg, phi.name)
        phis.append(phi)
    return phis


def _close(f: FunctionText, phis: list[Phi], values: list[str], latch: str) -> None:
    for phi, value in zip(phis, values, strict=True):
        phi.incoming.append((value, latch))
        f.close_phi(phi)


def _merge(f: FunctionText, result: Value, incoming: list[tuple[str, str]]) -> None:
    phi = f.open_phi(f.type(result.type))
    phi.incoming.extend(incoming)
    f.close_phi(phi)
    f.bind(result, phi.name)
