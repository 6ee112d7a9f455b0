"""Write control flow of lanes: where they diverge, both branches run under masks.

A loop runs while any lane needs another iteration; lanes that have left keep their values. If a
carried value is uniform over the active lanes it is one number, and a vector beside it keeps the
number with which each lane left.
"""

from __future__ import annotations

from collections.abc import Sequence

from octants.codegen import arithmetic
from octants.codegen.llvm.function_text import Phi
from octants.codegen.llvm.lanes import record_buffer_access
from octants.codegen.llvm.lanes.function_text import LaneText
from octants.ir import ops
from octants.ir.core import Block, Value
from octants.lazy_dataclass import dataclass
from octants.types.scalars import i32, i64

# -- branches -----------------------------------------------------------------------------------


def if_(f: LaneText, op: ops.If) -> None:
    """Branch where the lanes agree, else run both branches under masks."""
    if f.is_vector(f.use(op.condition)):
        _write_varying_if(f, op)
    else:
        _write_uniform_if(f, op)


def _write_uniform_if(f: LaneText, op: ops.If) -> None:
    """Write a branch on a condition that is the same in all lanes: as a jump."""
    then, orelse, merge = (f.fresh_label(hint) for hint in ("then", "else", "merge"))
    f.branch_if(f.use(op.condition), then, orelse)
    ways = []
    for label, block in ((then, op.then), (orelse, op.orelse)):
        f.start(label)
        values = f.block(block)
        ways.append(([f.fit(r, v) for r, v in zip(op.results, values, strict=True)], f.label))
        f.branch(merge)
    f.start(merge)
    f.bind_joined(op.results, *ways)


def _write_varying_if(f: LaneText, op: ops.If) -> None:
    """Write a branch on a varying condition: both branches, each under the mask of its lanes."""
    condition, outer = f.use(op.condition), f.mask
    opposite = f.apply("xor", "i1", condition, "true")
    branches = []
    for block, chosen in ((op.then, condition), (op.orelse, opposite)):
        f.mask = f.both(outer, chosen)
        branches.append(_write_branch(f, op.results, block))
        f.mask = outer
    for result, then, orelse in zip(op.results, *branches, strict=True):
        register = f.type(result.type)
        if f.varies(result):
            f.bind(result, f.choose(condition, register, then, orelse))
        elif result in f.uniformity.bases:
            f.bind(result, f.intrinsic("smax", register, [(register, then), (register, orelse)]))
        else:
            f.bind(result, then)  # both branches give the same


def _write_branch(f: LaneText, results: list[Value], block: Block) -> list[str]:
    """Write one branch and return its results; skip it if no lane takes it, where that pays."""
    if _is_trivial(block):
        return f.block(block)
    assert f.mask is not None
    enter, leave = f.fresh_label("branch"), f.fresh_label("after")
    before = f.label
    f.branch_if(f.any(f.mask), enter, leave)
    f.start(enter)
    given = f.block(block)
    end = f.label
    f.enter(leave)
    return [_or_zero(f, r, v, end, before) for r, v in zip(results, given, strict=True)]


def _or_zero(f: LaneText, result: Value, value: str, end: str, before: str) -> str:
    """Return a branch's result, and zero where it was skipped."""
    if not f.varies(result) and result not in f.uniformity.bases:
        return value  # defined outside of the branch
    register = f.type(result.type)
    is_vector = f.is_vector(value)
    zero = "zeroinitializer" if is_vector else f.literal(type_zero(result), result.type)
    return f.phi(f.vector(register) if is_vector else register, (value, end), (zero, before))


def type_zero(value: Value) -> float | int | bool:
    """Return zero in the type of a value."""
    dtype = value.type
    return False if dtype.is_bool else 0.0 if dtype.is_float else 0


_CHEAP = (ops.Constant, ops.Binary, ops.Fma, ops.Compare, ops.Select, ops.Cast, ops.Yield)
_LONG = 8
_SLOW = ("pow", "atan2", "floordiv", "mod", "truncdiv", "truncmod", "div")


def _is_trivial(block: Block) -> bool:
    """Return whether a pure branch is cheaper than the test whether any lane takes it."""
    return len(block.ops) <= _LONG and all(
        isinstance(op, _CHEAP) and not (isinstance(op, ops.Binary) and op.fn in _SLOW)
        for op in block.ops
    )


# -- loops --------------------------------------------------------------------------------------


@dataclass(slots=True)
class Carried:
    """A value that a loop carries, as a phi.

    If the lanes share it while they run, but may leave in different iterations, `left` has the
    number with which each left.
    """

    value: Value
    phi: Phi
    left: Phi | None = None


def binary(f: LaneText, op: ops.Binary) -> None:
    """Write a binary function, unless it is the iteration number or a position in a row."""
    known = f.iterations.get(op.result) or f.in_row(op.result)
    if known is None:
        arithmetic.binary(f, op)
    else:
        f.bind(op.result, known)


def cast(f: LaneText, op: ops.Cast) -> None:
    """Write a conversion. A linear vector stays linear if nothing wraps."""
    if op.x.type is i32 and op.result.type is i64:
        f.note_exact(op.x)
    arithmetic.cast(f, op)


def for_(f: LaneText, op: ops.For) -> None:
    """Write a loop whose lanes start together, or one whose lanes end together."""
    if f.uniformity.joins(op):
        _join(f, op)
    else:
        _leave(f, op)


def _join(f: LaneText, op: ops.For) -> None:
    """Count down from the longest lane's last iteration; each lane joins at its first."""
    upper, outer = f.held("i64", f.use(op.upper)), f.mask
    enter, body, leave = (f.fresh_label(hint) for hint in ("enter", "body", "leave"))
    inits = _fitted(f, op.carried, op.inits)
    longest = f.largest(upper)
    before = f.label
    f.branch_if(f.apply("icmp sgt", "i64", longest, 0), enter, leave)
    f.start(enter)
    record_buffer_access.reserve(f, op)
    start = f.apply("sub", "i64", longest, 1)
    preheader = f.label
    f.enter(body)
    iteration = f.open_phi("i64", (start, preheader))
    carried = _open_all(f, op.carried, op.results, inits, inits, preheader)
    f.mask = f.both(outer, f.apply("icmp slt", "i64", iteration.name, upper))
    last = f.apply("sub", "i64", upper, 1)
    f.bind(op.body.args[0], f.apply("sub", "i64", last, iteration.name))
    for number, more in f.uniformity.iteration_numbers[op]:
        f.iterations[number] = f.apply("add", "i64", iteration.name, more)
    values = f.block(op.body)
    if f.kernel.costs.polls_each_iteration(op.body):
        f.machine.poll(f)
    nexts = _nexts(f, carried, values, parts=True)
    following = f.apply("sub", "i64", iteration.name, 1)
    latch = f.label
    f.branch_if(f.apply("icmp sge", "i64", following, 0), body, leave)
    f.close_phi(iteration, (following, latch))
    final = _close_all(f, carried, nexts, latch)
    f.start(leave)
    f.mask = outer
    f.bind_joined(op.results, (inits, before), (final, latch))


def _leave(f: LaneText, op: ops.For) -> None:
    """Write a test before the first iteration, and one after each."""
    lower, upper = f.use(op.lower), f.use(op.upper)
    counter_type, outer = op.lower.type, f.mask
    register = f.type(counter_type)
    less = f"icmp {'slt' if counter_type.is_signed else 'ult'}"
    enter, body, leave = (f.fresh_label(hint) for hint in ("enter", "body", "leave"))
    has_iteration = f.apply(less, register, lower, upper)
    parts = f.uniformity.diverges(op)
    if parts:
        has_iteration = f.held("i1", has_iteration)
    inits, ends = _fitted(f, op.carried, op.inits), _fitted(f, op.results, op.inits)
    lower = f.fit(op.body.args[0], lower)
    f.mask = f.both(outer, has_iteration) if parts else outer
    entering = f.any(f.mask) if parts and f.mask is not None else has_iteration
    before = f.label
    f.branch_if(entering, enter, leave)
    f.start(enter)
    record_buffer_access.reserve(f, op)
    preheader = f.label
    f.enter(body)
    counter = _open(f, op.body.args[0], lower, preheader)
    carried = _open_all(f, op.carried, op.results, inits, ends, preheader)
    active = _open_mask(f, f.mask, preheader) if parts else None
    iteration = _open_iteration(f, op, preheader)
    values = f.block(op.body)
    if f.kernel.costs.polls_each_iteration(op.body):
        f.machine.poll(f)
    following = f.apply("add", register, counter.name, 1)
    next_iteration = f.apply("add", "i64", iteration.name, 1) if iteration is not None else ""
    nexts = _nexts(f, carried, values, parts)
    goes_on = f.apply(less, register, following, upper)
    if active is not None:
        stays = f.both(f.mask, goes_on)
        assert stays is not None
        goes_on = f.any(stays)
        f.close_phi(active, (stays, f.label))
    latch = f.label
    f.branch_if(goes_on, body, leave)
    f.close_phi(counter, (following, latch))
    if iteration is not None:
        f.close_phi(iteration, (next_iteration, latch))
    final = _close_all(f, carried, nexts, latch)
    f.start(leave)
    f.mask = outer
    f.bind_joined(op.results, (ends, before), (final, latch))


def while_(f: LaneText, op: ops.While) -> None:
    """Write the condition's block, the body's, and the branch back, and poll for Ctrl-C."""
    outer, parts = f.mask, f.uniformity.diverges(op)
    test, body, leave = (f.fresh_label(hint) for hint in ("test", "body", "leave"))
    args = op.condition.args
    inits, ends = _fitted(f, args, op.inits), _fitted(f, op.results, op.inits)
    first = f.lanes_of(f.mask) if parts else ""
    before = f.label
    f.enter(test)
    carried = _open_all(f, args, op.results, inits, ends, before)
    active = _open_mask(f, first, before) if parts else None
    (condition,) = f.block(op.condition)
    final = [_at_test(f, each) for each in carried]
    if parts:
        f.mask = f.both(f.mask, condition)
        assert f.mask is not None
        condition = f.any(f.mask)
    stays = f.mask
    f.branch_if(condition, body, leave)
    f.start(body)
    for arg, each in zip(op.body.args, carried, strict=True):
        f.bind(arg, each.phi.name)
    values = f.block(op.body)
    f.machine.poll(f)
    nexts = [
        f.active(f.type(each.value.type), value, each.phi.name)
        if parts and f.is_vector(each.phi.name)
        else f.fit(each.value, value)
        for each, value in zip(carried, values, strict=True)
    ]
    _close_all(f, carried, list(zip(nexts, final, strict=True)), f.label)
    if active is not None:
        assert stays is not None
        f.close_phi(active, (stays, f.label))
    f.branch(test)
    f.start(leave)
    f.mask = outer
    for result, end in zip(op.results, final, strict=True):
        f.bind(result, end)


def _at_test(f: LaneText, each: Carried) -> str:
    """Return the value for lanes that leave here, or have left before."""
    if each.left is None:
        return each.phi.name
    return f.active(f.type(each.value.type), each.phi.name, each.left.name)


def _open(f: LaneText, value: Value, init: str, before: str) -> Phi:
    """Open a phi for a value."""
    opened = f.open_phi(f.shape(value), (init, before))
    f.bind(value, opened.name)
    return opened


def _open_all(
    f: LaneText,
    args: Sequence[Value],
    results: Sequence[Value],
    inits: Sequence[str],
    ends: Sequence[str],
    before: str,
) -> list[Carried]:
    """Open the phis of a loop, and of the values with which lanes left it.

    Args:
        f: The function.
        args: The arguments of the body that are carried.
        results: The results of the loop.
        inits: The initial operands.
        ends: The operands that lanes which never enter leave with.
        before: The label of the block before the loop.
    """
    carried = []
    for arg, result, init, end in zip(args, results, inits, ends, strict=True):
        each = Carried(arg, _open(f, arg, init, before))
        if f.varies(result) and not f.varies(arg):
            each.left = f.open_phi(f.shape(result), (end, before))
        carried.append(each)
    return carried


def _open_mask(f: LaneText, first: str | None, before: str) -> Phi:
    """Open a phi for the mask of an iteration, and make it the current mask."""
    assert first is not None
    active = f.open_phi(f.vector("i1"), (first, before))
    f.mask = active.name
    return active


def _open_iteration(f: LaneText, op: ops.For, before: str) -> Phi | None:
    """Open a phi for the iteration number, where it is used and is not the counter."""
    if op not in f.uniformity.iteration_numbers or not f.varies(op.body.args[0]):
        return None
    iteration = f.open_phi("i64", ("0", before))
    for value, _ in f.uniformity.iteration_numbers[op]:
        narrow = value.type.bits < 64
        f.iterations[value] = (
            f.convert("trunc", "i64", iteration.name, f.type(value.type))
            if narrow
            else iteration.name
        )
    return iteration


def _nexts(
    f: LaneText, carried: list[Carried], values: list[str], parts: bool
) -> list[tuple[str, str]]:
    """Return the values for the next iteration, and for the lanes that leave or have left."""
    nexts = []
    for each, value in zip(carried, values, strict=True):
        register = f.type(each.value.type)
        if each.left is not None:
            nexts.append((value, f.active(register, value, each.left.name)))
        elif f.varies(each.value):
            following = (
                f.active(register, value, each.phi.name) if parts else f.spread(register, value)
            )
            nexts.append((following, following))
        else:
            nexts.append((value, value))
    return nexts


def _close_all(
    f: LaneText, carried: list[Carried], nexts: list[tuple[str, str]], latch: str
) -> list[str]:
    """Complete the phis, and return the results of the loop if it ends here."""
    for each, (following, end) in zip(carried, nexts, strict=True):
        f.close_phi(each.phi, (following, latch))
        if each.left is not None:
            f.close_phi(each.left, (end, latch))
    return [end for _, end in nexts]


def _fitted(f: LaneText, targets: Sequence[Value], values: Sequence[Value]) -> list[str]:
    """Return the operands of values as what other values are: numbers or vectors."""
    return [f.fit(target, f.use(v)) for target, v in zip(targets, values, strict=True)]
