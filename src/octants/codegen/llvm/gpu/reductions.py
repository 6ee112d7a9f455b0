"""Reduce updates of one address by GPU threads: in a subgroup or a block, then one atomic."""

from __future__ import annotations

from functools import partial

from octants.analysis.sums.reductions import Reduction, neutral
from octants.codegen import arithmetic, atomics, cooperation, memory, per_thread_reductions
from octants.codegen.block_shared_copies import with_or_without
from octants.codegen.cooperation import summed, update_group, update_together
from octants.codegen.llvm.gpu.function_text import ThreadText
from octants.codegen.llvm.worker_atomics import atomic as update_alone
from octants.codegen.memory import address_of
from octants.ir import ops
from octants.ir.core import Space, Value
from octants.types.scalars import u32


def atomic(f: ThreadText, op: ops.Atomic) -> None:
    """Write an update; a subgroup combines updates of one address.

    It also does so before it updates the block's copy of an array, as of weights that all threads
    reach in step: threads that add floats to one element in shared memory wait for each other.
    """

    def update() -> None:
        if op in f.shared_updates:
            update_together(f, op)
        elif op in f.scattered_updates and op.ref not in f.shared_arrays:
            _update_by_address(f, op)
        else:
            update_alone(f, op)

    if op in f.update_groups:
        if group := f.update_groups[op]:
            in_step = partial(_update_in_step, f, op) if op.ref in f.subgroup_copies else None
            update_group(f, group, partial(_update_element, f, op), in_step)
    elif op in f.collected or not f.gpu.has_blocks or op.array.space is Space.SHARED:
        update_alone(f, op)
    else:
        with_or_without(f, op.ref, update)


def _update_element(f: ThreadText, op: ops.Atomic, indices: list[Value], value: str) -> None:
    """Update an element of the block's copy of an array, or of the array."""

    def update() -> None:
        address = address_of(f, op.array, op.companion, indices)
        atomics.update(f, op.fn, op.array.dtype, address, value)

    with_or_without(f, op.ref, update)


def _update_in_step(f: ThreadText, op: ops.Atomic, indices: list[Value], value: str) -> None:
    """Update an element of the subgroup's copy of an array, which no other lane updates now."""

    def update() -> None:
        address, dtype = address_of(f, op.array, op.companion, indices), op.array.dtype
        if op.ref not in f.shared_arrays:
            atomics.update(f, op.fn, dtype, address, value)
            return
        before = memory.read(f.code, address, dtype)
        memory.write(f.code, address, dtype, arithmetic.combine(f, op.fn, dtype, before, value))

    with_or_without(f, op.ref, update)


_UNCHECKED = 15
"""The updates without a check behind one that found no lanes with one address."""


def _update_by_address(f: ThreadText, op: ops.Atomic) -> None:
    """Combine updates of lanes that share an address, unless a thread's last ones shared none.

    To look for equal addresses takes as long as an update. With random indices into a large array
    lanes hardly ever share one; with skewed indices they nearly always do.
    """
    code = f.code
    unchecked = code.variable(u32)
    f.entry.append(f"  store i32 0, ptr {unchecked.address}, align 4")
    left = code.read(unchecked)

    def alone() -> None:
        code.write(unchecked, code.apply("sub", u32, left, code.constant(1, u32)))
        update_alone(f, op)

    def together() -> None:
        some = _update_together_by_address(f, op)
        most, none = code.constant(_UNCHECKED, u32), code.constant(0, u32)
        code.write(unchecked, code.choose(some, u32, none, most))

    code.branch(code.compare("gt", u32, left, code.constant(0, u32)), alone, together)


def _update_together_by_address(f: ThreadText, op: ops.Atomic) -> str:
    """Combine updates of lanes that share an address; return whether there are any.

    The lanes with one address form a tree: in each iteration every second one that is left combines
    its value with that of the next. The first of them updates.
    """
    dtype, fn, value = op.array.dtype, op.fn, f.use(op.value)
    address = address_of(f, op.array, op.companion, op.indices)
    mask, same = f.code.lanes_by_address(address)
    own, register = f.code.lane(), f.type(dtype)
    before = f.apply("sub", "i32", f.apply("shl", "i32", 1, own), 1)
    rank = f.intrinsic("ctpop", "i32", [("i32", f.apply("and", "i32", same, before))])
    behind = f.apply("and", "i32", same, f.apply("shl", "i32", -2, own))
    shares = f.apply("icmp ne", "i32", behind, 0)
    some = f.apply("icmp ne", "i32", f.code.votes(shares, mask), 0)
    test, body, done, further = (f.fresh_label(h) for h in ("test", "body", "done", "further"))
    start = f.label
    f.enter(test)
    total, left, number = f.open_phi(register), f.open_phi("i32"), f.open_phi("i32")
    has_next = f.apply("icmp ne", "i32", left.name, 0)
    f.branch_if(f.apply("icmp ne", "i32", f.code.votes(has_next, mask), 0), body, done)
    f.start(body)
    following = f.intrinsic("cttz", "i32", [("i32", left.name)], flag=True)
    everybody, f.lane_mask = f.lane_mask, mask
    source = f.choose(has_next, "i32", following, own)
    other = cooperation.read(f.code, dtype, total.name, source)
    f.lane_mask = everybody
    both = arithmetic.combine(f, fn, dtype, total.name, other)
    taken = f.choose(has_next, register, both, total.name)
    is_last = f.apply("icmp ne", "i32", f.apply("and", "i32", number.name, 1), 0)
    stays = f.code.votes(f.apply("xor", "i1", is_last, "true"), mask)
    for phi, first, later in (
        (total, value, taken),
        (left, behind, f.apply("and", "i32", left.name, stays)),
        (number, rank, f.apply("lshr", "i32", number.name, 1)),
    ):
        f.close_phi(phi, (first, start), (later, f.label))
    f.branch(test)
    f.start(done)
    is_first = f.apply("icmp eq", "i32", rank, 0)
    update = f.fresh_label("update")
    f.branch_if(is_first, update, further)
    f.start(update)
    atomics.update(f, fn, dtype, address, total.name)
    f.enter(further)
    return some


def deliver(f: ThreadText, found: list[Reduction]) -> None:
    """Update targets by the threads' totals. All threads arrive; some contribute the identity."""
    if f.gpu.has_blocks and found:
        _deliver_in_blocks(f, found)
        return
    for reduction in found:
        cooperation.deliver(f, reduction)


def _deliver_in_blocks(f: ThreadText, found: list[Reduction]) -> None:
    """Reduce over a block: subgroups store totals, and one per reduction adds them."""
    sums = [_leave(f, number, reduction) for number, reduction in enumerate(found)]
    any_ = [f.code.any_in_block(_any(f, reduction)) for reduction in found]  # these are barriers
    own, count = f.code.subgroup_in_block(), f.code.subgroups_in_block()
    for number, reduction in enumerate(found):
        phase = f.apply("urem", "i32", number, count) if number else "0"
        mine, further = f.fresh_label("mine"), f.fresh_label("further")
        is_mine = f.apply("icmp eq", "i32", own, phase)
        f.branch_if(f.apply("and", "i1", is_mine, any_[number]), mine, further)
        f.start(mine)
        value = _of_block(f, reduction, sums[number], count)
        per_thread_reductions.update(f, reduction, lambda: value, f.code.is_first_lane())
        f.enter(further)


def _leave(f: ThreadText, number: int, reduction: Reduction) -> str:
    """Store each subgroup's total in memory of the block, and return its address."""
    register = f.type(reduction.dtype)
    nbytes = reduction.dtype.size * f.gpu.most_subgroups
    sums = f.code.shared_memory(f"octants_sums_{f.task}_{number}", nbytes)
    value = _of_subgroup(f, reduction)
    first, further = f.fresh_label("first"), f.fresh_label("further")
    f.branch_if(f.code.is_first_lane(), first, further)
    f.start(first)
    address = f.assign(f"getelementptr {register}, ptr {sums}, i32 {f.code.subgroup_in_block()}")
    f.emit(f"store {register} {value}, ptr {address}, align {reduction.dtype.size}")
    f.enter(further)
    return sums


def _of_block(f: ThreadText, reduction: Reduction, sums: str, count: str) -> str:
    """Reduce the stored totals of the subgroups, by the threads of one."""
    dtype, lane = reduction.dtype, f.code.lane()
    register = f.type(dtype)
    address = f.assign(f"getelementptr {register}, ptr {sums}, i32 {lane}")
    value = f.assign(f"load {register}, ptr {address}, align {dtype.size}")
    nothing = f.literal(neutral(reduction.fn, dtype), dtype)
    is_there = f.apply("icmp ult", "i32", lane, count)
    return str(summed(f, reduction.fn, dtype, f.choose(is_there, register, value, nothing)))


def _of_subgroup(f: ThreadText, reduction: Reduction) -> str:
    total, _ = per_thread_reductions.collected(f, reduction)
    return str(summed(f, reduction.fn, reduction.dtype, total))


def _any(f: ThreadText, reduction: Reduction) -> str:
    """Return whether the thread has collected any update."""
    return str(per_thread_reductions.collected(f, reduction)[1])
