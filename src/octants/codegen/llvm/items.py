"""The loop over the work items of a parallel task."""

from __future__ import annotations

from octants.codegen.llvm import atomics
from octants.codegen.llvm.function import FunctionText
from octants.codegen.llvm.reductions import find_reductions
from octants.ir import ops
from octants.ir.core import Task


def write_items(f: FunctionText, task: Task) -> None:
    """A loop over the items of [begin, end), at least one, in the type of the index."""
    reductions = find_reductions(task, f.kernel.module.apart)
    for reduction in reductions:
        atomics.collect(f, reduction)
    (index,) = task.body.args
    register = f.item_type = f.type(index.type)
    begin, end = (narrow(f, bound, register) for bound in ("%begin", "%end"))
    natural = is_natural(task)
    if natural:
        assume_natural(f, register, begin)
    f.branch("item")
    f.start("item")
    item = f.open_phi(register)
    item.incoming.append((begin, "start"))
    f.item, f.exit = item.name, "done"
    f.bind(index, item.name)
    f.block(task.body)
    if f.kernel.costs.grain(task.body) == 1:
        f.exit = "return"
        f.machine.poll(f)
    f.branch("done")
    f.start("done")
    following = f.assign(f"add {'nuw ' if natural else ''}nsw {register} {item.name}, 1")
    item.incoming.append((following, "done"))
    f.close_phi(item)
    f.branch_if(f.assign(f"icmp slt {register} {following}, {end}"), "item", "return")
    f.start("return")
    for reduction in reductions:
        atomics.deliver(f, reduction)


def assume_natural(f: FunctionText, register: str, number: str) -> None:
    """Tell LLVM that a number is not negative."""
    assume = f.text.declare("@llvm.assume", "void", "i1")
    f.emit(f"call void {assume}(i1 {f.assign(f'icmp sge {register} {number}, 0')})")


def narrow(f: FunctionText, bound: str, register: str) -> str:
    """An i64 in the type of the index."""
    return bound if register == "i64" else f.assign(f"trunc i64 {bound} to {register}")


def is_natural(task: Task) -> bool:
    """Whether no index of a parallel task is negative, as far as its domain tells."""
    assert task.domain is not None
    lower = task.domain.yielded[0]
    return any(
        isinstance(op, ops.Constant) and op.result is lower and op.value >= 0
        for op in task.domain.ops
    )
