"""Write the loop over a task's work items: one in each iteration, or a tile of them."""

from __future__ import annotations

from collections.abc import Callable

from octants.analysis.cost_model import Costs
from octants.analysis.sums.reductions import Collect, Deliver, find_reductions
from octants.codegen.llvm.function_text import FunctionText
from octants.ir import ops
from octants.ir.core import Block, Operation, Task


def write_items(
    f: FunctionText, task: Task, write: Callable[[FunctionText, Task], None] | None = None
) -> None:
    """Write all items of [begin, end), at least one; ``write`` writes the loop, up to "return"."""
    reductions = find_reductions(task, f.kernel.module.noalias)
    for reduction in reductions:
        f.table[Collect](f, Collect(reduction))
    if write is None:
        write_loop(f, task, "%end", "return")
    else:
        write(f, task)
    f.start("return")
    f.end_items()
    for reduction in reductions:
        f.table[Deliver](f, Deliver(reduction))


def write_loop(f: FunctionText, task: Task, end: str, after: str) -> None:
    """Write the body for begin, and in steps up to ``end`` (i64), in the type of the index."""
    (index,) = task.body.args
    register = f.item_type = f.type(index.type)
    begin, end = (narrow(f, bound, register) for bound in ("%begin", end))
    natural = is_natural(task)
    if natural:
        assume_natural(f, register, begin)
    before = f.label
    f.enter("item")
    item = f.open_phi(register, (begin, before))
    f.item, f.exit = item.name, "done"
    f.begin_item(index, end)
    f.outside_loops = outside_loops(task.body)
    f.item_body(task.body)
    if f.kernel.costs.grain(task.body) == 1:
        f.exit = after
        f.machine.poll(f)
    f.enter("done")
    following, goes_on = f.next_item(end, "nuw nsw" if natural else "nsw")
    f.close_phi(item, (following, f.label))
    f.branch_if(goes_on, "item", after)


def may_vectorise(task: Task, costs: Costs, noalias: bool) -> bool:
    """Whether LLVM may vectorise a loop.

    It turns branches into masks where a body is short, and unrolls short loops inside. Updates that
    are collected are no atomic ones.
    """
    bodies = [task.body] if task.is_parallel else []
    bodies += (op.body for op in task.body.walk() if isinstance(op, ops.Loop))
    if any(not any(op.REGIONS for op in body.ops) for body in bodies):
        return True
    short = [body for body in bodies if not costs.polls_each_iteration(body)]
    reductions = find_reductions(task, noalias) if short and task.is_parallel else []
    collected = {op for reduction in reductions for op in reduction.atomics}
    return any(not any(map(_is_atomic, set(body.walk()) - collected)) for body in short)


def _is_atomic(op: Operation) -> bool:
    return isinstance(op, (ops.Atomic, ops.CompareExchange))


def outside_loops(body: Block) -> set[Block]:
    """Return the blocks outside of all loops, in a body that has loops."""
    found, pending, has_loops = set(), [body], False
    while pending:
        block = pending.pop()
        found.add(block)
        for op in block.ops:
            if isinstance(op, ops.Loop):
                has_loops = True
            else:
                pending.extend(op.regions)
    return found if has_loops else set()


def assume_natural(f: FunctionText, register: str, number: str) -> None:
    """Tell LLVM that a number is not negative."""
    assume = f.text.declare("@llvm.assume", "void", "i1")
    f.emit(f"call void {assume}(i1 {f.assign(f'icmp sge {register} {number}, 0')})")


def narrow(f: FunctionText, bound: str, register: str) -> str:
    """Convert an i64 to the type of the index."""
    return bound if register == "i64" else f.assign(f"trunc i64 {bound} to {register}")


def is_natural(task: Task) -> bool:
    """Return whether the domain proves that no index of a parallel task is negative."""
    assert task.domain is not None
    lower = task.domain.yielded[0]
    return any(
        isinstance(op, ops.Constant) and op.result is lower and op.value >= 0
        for op in task.domain.ops
    )
