"""Write structured control flow as basic blocks and phis. Loops are rotated."""

from __future__ import annotations

from octants.analysis.cost_model import UNINTERRUPTED
from octants.codegen import record_buffer_access
from octants.codegen.llvm.function_text import FunctionText, Phi
from octants.ir import ops
from octants.ir.core import Value
from octants.types.scalars import DType

_FEW = 16  # work items


def for_(f: FunctionText, op: ops.For) -> None:
    """Write a loop over all its iterations."""
    inits = [f.use(value) for value in op.inits]
    write = _in_strips if _needs_strips(f, op) else iterate
    results = write(f, op, f.use(op.lower), f.use(op.upper), inits, hint=hint(f, op))
    for result, operand in zip(op.results, results, strict=True):
        f.bind(result, operand)


def _needs_strips(f: FunctionText, op: ops.For) -> bool:
    """Return whether a loop may run too long without a poll for Ctrl-C, and is in no other loop.

    Tasks of many work items poll between them. Loops of records have no strips, each of which would
    reserve the space for them again.
    """
    costs, task = f.kernel.costs, f.kernel.module.tasks[f.task]
    return (
        f.is_outside_loops
        and (ops.known_work_items(task) or _FEW) < _FEW
        and op.lower.type.bits >= 32
        and costs.of_operation(op) > UNINTERRUPTED
        and not costs.polls_each_iteration(op.body)
        and not any(isinstance(each, (ops.RecordPush, ops.RecordPop)) for each in op.body.walk())
    )


def _in_strips(
    f: FunctionText, op: ops.For, lower: str, upper: str, inits: list[str], *, hint: str = ""
) -> list[str]:
    """Write a loop over strips of iterations, with a poll for Ctrl-C after each.

    LLVM vectorises and unrolls the loop over the iterations of a strip, which has no poll.
    """
    register, dtype = f.type(op.lower.type), op.lower.type
    strip, leave = f.fresh_label("strip"), f.fresh_label("leave")
    before = f.label
    f.branch_if(_less(f, dtype, lower, upper), strip, leave)
    f.start(strip)
    begin, *carried = open_phis(f, op.body.args, [lower, *inits], before)
    left = f.apply("sub", register, upper, begin.name)
    length = UNINTERRUPTED // (1 + f.kernel.costs.of(op.body))
    is_last = f.apply("icmp ule", register, left, length)
    end = f.choose(is_last, register, upper, f.apply("add", register, begin.name, length))
    values = iterate(f, op, begin.name, end, [phi.name for phi in carried], hint=hint)
    f.machine.poll(f)
    latch = f.label
    f.branch_if(_less(f, dtype, end, upper), strip, leave)
    close_phis(f, [begin, *carried], [end, *values], latch)
    f.start(leave)
    return f.join(op.results, (inits, before), (values, latch))


def iterate(
    f: FunctionText,
    op: ops.For,
    lower: str,
    upper: str,
    inits: list[str],
    *,
    hint: str = "",
    downwards: bool = False,
) -> list[str]:
    """Write some iterations of a loop, from the values carried into them.

    There is a test before the first iteration, and one after each.

    Args:
        f: The function.
        op: The loop.
        lower: The counter to start with.
        upper: The counter to stop before.
        inits: The operands carried in.
        hint: Metadata of the branch back.
        downwards: Count the iterations that are left, of a loop from 0: addresses that depend on
            them step by a constant. LLVM does not see that of ``upper - counter`` where it unrolls.

    Returns:
        The operands carried out.
    """
    counter_type = op.lower.type
    register = f.type(counter_type)
    enter, body, leave = (f.fresh_label(hint) for hint in ("enter", "body", "leave"))
    before = f.label
    f.branch_if(_less(f, counter_type, lower, upper), enter, leave)
    f.start(enter)
    record_buffer_access.reserve(f, op, runs=True)
    preheader = f.label
    f.enter(body)
    phis = open_phis(f, op.body.args, [upper if downwards else lower, *inits], preheader)
    if downwards:
        f.bind(op.body.args[0], f.apply("sub nsw", register, upper, phis[0].name))
    values = write_iteration(f, op)
    if f.kernel.costs.polls_each_iteration(op.body):
        f.machine.poll(f)
    step = "nsw" if counter_type.is_signed else "nuw"
    fn, last = ("sub", lower) if downwards else ("add", upper)
    following = f.assign(f"{fn} {step} {register} {phis[0].name}, 1")
    latch = f.label
    ends = (last, following) if downwards else (following, last)
    f.branch_if(_less(f, counter_type, *ends), body, leave, hint=hint)
    close_phis(f, phis, [following, *values], latch)
    f.start(leave)
    return f.join(op.results, (inits, before), (values, latch))


def counts_what_is_left(op: ops.For, lower: str) -> bool:
    """Return whether a loop from 0 uses its counter only to compute how many iterations follow."""
    if lower != "0" or not op.lower.type.is_signed:
        return False
    counter = op.body.args[0]
    users = [each for each in op.body.walk() if counter in each.operands]
    return bool(users) and all(
        isinstance(each, ops.Binary) and each.fn == "sub" and each.lhs is op.upper for each in users
    )


def write_iteration(f: FunctionText, op: ops.For) -> list[str]:
    """Write the operations of an iteration, and return the operands that it yields."""
    outer, f.in_unrolled_loop = f.in_unrolled_loop, f.in_unrolled_loop or is_unrolled(op)
    values = f.block(op.body)
    f.in_unrolled_loop = outer
    return values


def is_unrolled(op: ops.For) -> bool:
    """Return whether the loop is unrolled fully, which loops that update memory are not.

    A loop around one that a pass has unrolled has constant indices of its records.
    """
    inside = [each for each in op.body.ops if not isinstance(each, ops.Constant)]
    numbers = {op.body.args[0], *(value for each in inside for value in each.results)}
    accesses = [each for each in inside if isinstance(each, (ops.RecordPush, ops.RecordPop))]
    if not any(each.record.unrolled and each.index in numbers for each in accesses):
        return False
    return not any(isinstance(each, ops.Write) and each.reads for each in op.body.walk())


def hint(f: FunctionText, op: ops.For) -> str:
    """Return the metadata of a loop's branch back, if it is to be unrolled fully or in part."""
    if op in f.interleaved_loops:
        return interleaving(f)
    return _metadata(f, "llvm.loop.unroll.full") if is_unrolled(op) else ""


def no_unrolling(f: FunctionText) -> str:
    """Return the metadata of a loop that must not be unrolled."""
    return _metadata(f, "llvm.loop.unroll.disable")


def interleaving(f: FunctionText, count: int = 4) -> str:
    """Return the metadata of a loop of which so many iterations run at a time."""
    return _metadata(f, "llvm.loop.unroll.count", f", i32 {count}")


def _metadata(f: FunctionText, name: str, operand: str = "") -> str:
    how = f.text.metadata(f'!{{!"{name}"{operand}}}')
    return ", !llvm.loop " + f.text.metadata(f"distinct !{{{{}}, {how}}}")


def while_(f: FunctionText, op: ops.While) -> None:
    """Write the condition's block, the body's, and the branch back, and poll for Ctrl-C."""
    test, body, leave = (f.fresh_label(hint) for hint in ("test", "body", "leave"))
    before = f.label
    f.enter(test)
    carried = open_phis(f, op.condition.args, [f.use(value) for value in op.inits], before)
    (condition,) = f.block(op.condition)
    f.branch_if(condition, body, leave)
    f.start(body)
    for arg, phi in zip(op.body.args, carried, strict=True):
        f.bind(arg, phi.name)
    values = f.block(op.body)
    f.machine.poll(f)
    close_phis(f, carried, values, f.label)
    f.branch(test)
    f.start(leave)
    for result, phi in zip(op.results, carried, strict=True):
        f.bind(result, phi.name)


def if_(f: FunctionText, op: ops.If, *, likely: bool = False) -> None:
    """Write two branches that join; with ``likely`` the first one is nearly always taken."""
    then, orelse, merge = (f.fresh_label(hint) for hint in ("then", "else", "merge"))
    f.branch_if(f.use(op.condition), then, orelse, likely=likely)
    incoming: list[tuple[list[str], str]] = []
    for label, block in ((then, op.then), (orelse, op.orelse)):
        f.start(label)
        values = f.block(block)
        incoming.append((values, f.label))
        f.branch(merge)
    f.start(merge)
    f.bind_joined(op.results, *incoming)


def yield_(_: FunctionText, __: ops.Yield) -> None:
    """Write nothing: the operation that holds the block reads the operands."""


def _less(f: FunctionText, dtype: DType, a: str, b: str) -> str:
    return f.apply(f"icmp {less(dtype)}", f.type(dtype), a, b)


def less(dtype: DType) -> str:
    """Return LLVM's comparison predicate for integers of a type."""
    return "slt" if dtype.is_signed else "ult"


def open_phis(f: FunctionText, args: list[Value], inits: list[str], before: str) -> list[Phi]:
    """Open phis for the arguments of a loop's block, with their values at the first entry."""
    phis = []
    for arg, init in zip(args, inits, strict=True):
        phi = f.open_phi(f.type(arg.type), (init, before))
        f.bind(arg, phi.name)
        phis.append(phi)
    return phis


def close_phis(f: FunctionText, phis: list[Phi], values: list[str], latch: str) -> None:
    """Complete such phis with their values after an iteration."""
    for phi, value in zip(phis, values, strict=True):
        f.close_phi(phi, (value, latch))
