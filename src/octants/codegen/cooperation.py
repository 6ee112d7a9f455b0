"""Write barriers and subgroup operations of cooperative tasks.

The first `Lanes.count` lanes of a subgroup have work items. The others must not take part: on some
GPUs they have ended.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from octants.analysis.indices.affine_arithmetic import wrapped
from octants.analysis.sums.reductions import Reduction
from octants.analysis.sums.sum_groups import SumGroup
from octants.analysis.sums.sum_groups import find_groups as find_sum_groups
from octants.analysis.sums.sums_of_products import MIXED, ProductFinder, SumsOfProducts
from octants.codegen import arithmetic, atomics, per_thread_reductions, sums_of_products
from octants.codegen.function_emitter import Lanes, ThreadFunction
from octants.codegen.instruction_writer import MutableSlot, Operand, Pointer, ThreadCode, register
from octants.codegen.memory import address_of
from octants.codegen.numbers_as_bits import from_word, to_word, word_of
from octants.codegen.sums_of_products import number_at
from octants.ir import ops
from octants.ir.cooperative_tasks import sizes
from octants.ir.core import Operation, Space, Task, Value
from octants.ir.ops.cooperation import SCANS
from octants.types.scalars import DType, f32, i32, i64, u1, u32, u64


def find_lanes(code: ThreadCode, task: Task, item: Operand, upper: Operand) -> Lanes:
    """Compute the lane of the thread with this work item, and how many lanes have work items."""
    block_dim, size = sizes(task)
    thread = code.thread_in_block()
    own = code.lane() if size > 1 else code.constant(0, u32)
    first = code.apply("sub", i64, item, code.convert(own, u32, i64))
    count = _least(code, code.apply("sub", i64, upper, first), code.constant(size, i64))
    if block_dim % size:
        start = code.convert(code.apply("sub", u32, thread, own), u32, i64)
        rest = code.apply("sub", i64, code.constant(block_dim, i64), start)
        count = _least(code, count, rest)
    return Lanes(own, code.convert(count, i64, u32))


def _least(code: ThreadCode, a: Operand, b: Operand) -> Operand:
    return code.choose(code.compare("lt", i64, a, b), i64, a, b)


# -- operations ---------------------------------------------------------------------------------


def barrier(f: ThreadFunction, op: ops.Barrier) -> None:
    """Wait at a barrier."""
    f.code.barrier(op.scope)


def fence(f: ThreadFunction, op: ops.Fence) -> None:
    """Write a memory fence."""
    f.code.fence(op.scope)


def subgroup(f: ThreadFunction, op: ops.Subgroup) -> None:
    """Exchange values between lanes, in the order of the interpreter, so that bits are the same."""
    assert f.lanes is not None
    if op.lanes == 1:  # a group of one lane
        found = f.use(op.value)
        found = f.code.convert(found, u1, u64) if op.fn == "ballot" else found
    elif op.lane:
        found = _shuffle(f, f.lanes, op)
    elif op.fn == "ballot":
        found = f.code.ballot(f.use(op.value))
    elif op.fn in SCANS:
        found = _scan(f, f.lanes, op, op.fn.removeprefix("inclusive_"))
    elif op.value.type.is_bool:
        found = _vote(f.code, f.lanes, op, f.use(op.value))
    else:
        found = _reduce(f, f.lanes, op)
    f.bind(op.result, found)


TABLE: dict[type[Operation], Callable[[Any, Any], Any]] = {
    ops.Barrier: barrier,
    ops.Fence: fence,
    ops.Subgroup: subgroup,
}


_SOURCES = {"shuffle_up": "sub", "shuffle_down": "add", "shuffle_xor": "xor"}


def _shuffle(f: ThreadFunction, lanes: Lanes, op: ops.Subgroup) -> Operand:
    """Read another lane's value, or the lane's own where that lane has no work item."""
    code, source = f.code, f.code.convert(f.use(op.lane[0]), i32, u32)
    if op.fn in _SOURCES:
        source = code.apply(_SOURCES[op.fn], u32, lanes.index, source)
    is_there = code.compare("lt", u32, source, lanes.count)
    source = code.choose(is_there, u32, source, lanes.index)
    return read(code, op.value.type, f.use(op.value), source)


def _reduce(f: ThreadFunction, lanes: Lanes, op: ops.Subgroup) -> Operand:
    """Reduce a group: neighbours first, then neighbouring pairs; its first lane has the result."""
    code, dtype, value, distance = f.code, op.value.type, f.use(op.value), 1
    while distance < op.lanes:
        source = code.apply("add", u32, lanes.index, code.constant(distance, u32))
        is_there = code.compare("lt", u32, source, lanes.count)
        other = read(code, dtype, value, code.choose(is_there, u32, source, lanes.index))
        both = arithmetic.combine(f, op.fn, dtype, value, other)
        value = code.choose(is_there, register(dtype), both, value)
        distance *= 2
    return read(code, dtype, value, _first(code, lanes, op.lanes))


def _first(code: ThreadCode, lanes: Lanes, count: int) -> Operand:
    """Return the first lane of this lane's group of ``count`` lanes."""
    return code.apply("and", u32, lanes.index, code.constant((1 << 32) - count, u32))


def _scan(f: ThreadFunction, lanes: Lanes, op: ops.Subgroup, fn: str) -> Operand:
    """Scan: each lane combines its value with the one 1, 2, 4, ... lanes before it."""
    code, dtype, value, distance = f.code, op.value.type, f.use(op.value), 1
    inside = code.apply("and", u32, lanes.index, code.constant(op.lanes - 1, u32))
    while distance < op.lanes:
        step = code.constant(distance, u32)
        is_there = code.compare("ge", u32, inside, step)
        before = code.apply("sub", u32, lanes.index, step)
        other = read(code, dtype, value, code.choose(is_there, u32, before, lanes.index))
        both = arithmetic.combine(f, fn, dtype, other, value)
        value = code.choose(is_there, register(dtype), both, value)
        distance *= 2
    return value


def _vote(code: ThreadCode, lanes: Lanes, op: ops.Subgroup, value: Operand) -> Operand:
    """Vote: any, all, or an odd number of the group's lanes."""
    word = u32 if code.subgroup <= 32 else u64
    if op.fn == "and":  # whether no lane's value is false
        value = code.apply("not", u1, value)
    bits = code.convert(code.ballot(value), u64, word)
    if op.lanes < code.subgroup:
        first = code.convert(_first(code, lanes, op.lanes), u32, word)
        ones = code.constant((1 << op.lanes) - 1, word)
        bits = code.apply("and", word, bits, code.apply("shl", word, ones, first))
    if op.fn in ("and", "or"):
        return code.compare("eq" if op.fn == "and" else "ne", word, bits, code.constant(0, word))
    low = code.convert(bits, word, u32)
    if word is u64:
        high = code.convert(code.apply("ushr", u64, bits, code.constant(32, u64)), u64, u32)
        low = code.apply("xor", u32, high, low)
    odd = code.apply("and", u32, code.apply("popcount", u32, low), code.constant(1, u32))
    return code.compare("ne", u32, odd, code.constant(0, u32))


def read(code: ThreadCode, dtype: DType, value: Operand, lane: Operand) -> Operand:
    """Read a value of a lane (u32) that arrives here, too."""
    return exchanged(code, dtype, value, lambda x, kind: code.read_lane(x, kind, lane))


def exchanged(
    code: ThreadCode, dtype: DType, value: Operand, take: Callable[[Operand, DType], Operand]
) -> Operand:
    """Read a value of another lane, of any type; ``take`` reads a u32 or f32."""
    if register(dtype) is f32:
        return take(value, f32)
    word = to_word(code, dtype, value)
    if word_of(dtype) is u32:
        return from_word(code, dtype, take(word, u32))
    parts = (word, code.apply("ushr", u64, word, code.constant(32, u64)))
    halves = (take(code.convert(part, u64, u32), u32) for part in parts)
    low, high = (code.convert(half, u32, u64) for half in halves)
    both = code.apply("or", u64, low, code.apply("shl", u64, high, code.constant(32, u64)))
    return from_word(code, dtype, both)


# -- sums of a subgroup -------------------------------------------------------------------------


def summed(f: ThreadFunction, fn: str, dtype: DType, value: Operand, least: int = 1) -> Operand:
    """Combine the values of a subgroup whose threads are all here.

    Lanes whose numbers are equal modulo ``least``, a power of two, combine theirs.
    """
    code, distance = f.code, f.code.subgroup // 2
    while distance >= least:
        take = partial(code.read_across, distance=distance)
        value = arithmetic.combine(f, fn, dtype, value, exchanged(code, dtype, value, take))
        distance //= 2
    return value


def update_together(
    f: ThreadFunction, op: ops.Atomic, update: Callable[[Operand], object] | None = None
) -> None:
    """Combine the updates of a subgroup to one address, if all its threads are here.

    ``update`` writes the update by a value, if it is not at the address of the element.
    """
    code, fn, dtype = f.code, op.fn, op.array.dtype
    address, value = address_of(f, op.array, op.companion, op.indices), f.use(op.value)
    write = update or (lambda x: atomics.update(f, fn, dtype, address, x))

    def together() -> None:
        total = summed(f, fn, dtype, value)
        code.branch(code.is_first_lane(), lambda: write(total))

    code.branch(code.all_at(address), together, lambda: write(value))


def find_groups(f: ThreadFunction, task: Task, updates: set[Operation]) -> None:
    """Find the updates that subgroups make together; `update_group` writes them."""
    updates = {op for op in updates - f.collected.keys() if _is_grouped(op)}
    noalias, lanes = f.kernel.module.noalias, f.code.subgroup
    if f.code.exchange_subgroups:
        finder = ProductFinder(task)
        for count in (4 * lanes, 2 * lanes, lanes):
            for group in find_sum_groups(task, updates, noalias, count):
                products = finder.find(group)
                if len(group.updates) == count and products and products.fits(lanes):
                    _set_group(f, group)
                    f.products[group.updates[-1]] = products
            updates = updates - f.update_groups.keys()
    for group in find_sum_groups(task, updates, noalias, lanes):
        _set_group(f, group)


def _set_group(f: ThreadFunction, group: SumGroup) -> None:
    f.update_groups.update(dict.fromkeys(group.updates))
    f.update_groups[group.updates[-1]] = group


def _is_grouped(op: Operation) -> bool:
    return isinstance(op, ops.Atomic) and op.array.space is not Space.SHARED


Update = Callable[[list[Value], Operand], object]
"""Writes the update of an element, by its indices, by a value."""


def update_group(
    f: ThreadFunction, group: SumGroup, update: Update, update_in_step: Update | None = None
) -> None:
    """Combine the updates of a group if all threads of the subgroup are here, at one element.

    ``update_in_step`` writes updates of elements, a different one in each lane, by all lanes.
    """
    _GroupUpdate(f, group, update, update_in_step).write()


_Total = tuple[Operand, list[int]]
"""A sum over the lanes, one in each lane, and the numbers of the updates that it is of, by lane."""


class _GroupUpdate:
    """Writes the updates of a group: by exchanges where all lanes are at one element, or alone."""

    def __init__(
        self, f: ThreadFunction, group: SumGroup, update: Update, update_in_step: Update | None
    ) -> None:
        self._f, self._group, self._first = f, group, group.updates[0]
        self._update, self._update_in_step = update, update_in_step
        self._products: SumsOfProducts | None = f.products.get(group.updates[-1])

    def write(self) -> None:
        """Write all of it."""
        f, code, first = self._f, self._f.code, self._first
        address = address_of(f, first.array, first.companion, first.indices)
        alone = partial(self._write_alone, address)
        if self._products is None:
            code.branch(code.all_at(address), self._write_together, alone)
            return
        is_done, is_here = code.variable(u1), code.all_at(address)
        code.write(is_done, is_here)
        code.branch(is_here, partial(self._exchange_factors, self._products, is_done))
        code.branch(code.read(is_done), lambda: None, alone)

    def _write_together(self) -> None:
        """Update each element by the sum over the lanes."""
        values = [self._f.use(op.value) for op in self._group.updates]
        total = _summed_by_lane(self._f, self._first.fn, self._first.array.dtype, values)
        self._update_totals([(total, list(range(len(values))))])

    def _exchange_factors(self, products: SumsOfProducts, is_done: MutableSlot) -> None:
        """Do so for products, whose factors are exchanged; not if a sum is not a number."""
        code = self._f.code
        totals = sums_of_products.summed(self._f, products)
        if not products.guard:
            self._update_totals(totals)
            return
        good = code.constant(True, u1)
        for total, _ in totals:
            good = code.apply("and", u1, good, code.compare("eq", f32, total, total))
        some = code.any_lane(code.apply("xor", u1, good, code.constant(True, u1)))
        code.write(is_done, code.apply("xor", u1, some, code.constant(True, u1)))
        code.branch(code.read(is_done), partial(self._update_totals, totals))

    def _write_alone(self, address: Pointer) -> None:
        """Let each thread update by its own values."""
        f, group, products = self._f, self._group, self._products
        if products is None or not _is_grid(group.distances, products):
            for op in group.updates:
                self._update(op.indices, f.use(op.value))
            return
        one = partial(_update_product, f, group, len(products.columns), self._update)
        if f.code.adds_by_address:
            sums_of_products.by_address(f, products, address, one)
        else:
            sums_of_products.one_by_one(f, products, one)

    def _update_totals(self, totals: list[_Total]) -> None:
        """Let each lane update the element of its own total."""
        code, count = self._f.code, len(totals[0][1])
        mask = code.constant((1 << (count - 1).bit_length()) - 1, u32)
        member = code.apply("and", u32, code.lane(), mask)
        has_total = code.compare("lt", u32, code.lane(), code.constant(count, u32))
        code.branch(has_total, partial(self._update_own, totals, member))
        if self._update_in_step is not None:
            code.barrier("subgroup")  # before other lanes update the elements

    def _update_own(self, totals: list[_Total], member: Operand) -> None:
        for total, own in totals:
            indices = [
                _index_of_lane(
                    self._f, index, [self._group.distances[k][axis] for k in own], member
                )
                for axis, index in enumerate(self._first.indices)
            ]
            (self._update_in_step or self._update)(indices, total)


def _is_grid(distances: Sequence[tuple[int, ...]], products: SumsOfProducts) -> bool:
    """Whether a loop over the rows and columns of products reaches all elements alike."""
    width = len(products.columns)
    return products.guard != MIXED and all(
        each == tuple(map(operator.add, distances[k - k % width], distances[k % width]))
        for k, each in enumerate(distances)
    )


def _update_product(
    f: ThreadFunction,
    group: SumGroup,
    width: int,
    update: Update,
    row: Operand,
    column: Operand,
    value: Operand,
) -> None:
    """Update the element of a product, given its row and its column (u32)."""
    indices = list[Value]()
    for axis, index in enumerate(group.updates[0].indices):
        distances = [each[axis] for each in group.distances]
        start = _index_of_lane(f, index, distances[::width], row)
        indices.append(_index_of_lane(f, start, distances[:width], column))
    update(indices, value)


def _index_of_lane(f: ThreadFunction, index: Value, distances: list[int], member: Operand) -> Value:
    """Return an index of the element that a lane updates, by the number of the lane's update."""
    code, dtype = f.code, index.type
    if not any(distances):
        return index
    first = distances[0]
    step = distances[1] - first
    if distances == [wrapped(first + k * step, dtype.bits) for k in range(len(distances))]:
        number = code.convert(member, u32, dtype)
        distance = code.apply("mul", dtype, number, code.constant(step, dtype))
        distance = code.apply("add", dtype, distance, code.constant(first, dtype))
    else:
        distance = number_at(code, dtype, distances, member)
    result = Value(dtype)
    f.bind(result, code.apply("add", dtype, f.use(index), distance))
    return result


def _summed_by_lane(f: ThreadFunction, fn: str, dtype: DType, values: list[Operand]) -> Operand:
    """Combine several values of a subgroup whose threads are all here.

    A lane gets the total of the value whose number is that of the lane, modulo the next power of
    two of how many values there are. Lanes form pairs: each keeps one of two values, and sends the
    other one. A value that is left over is combined by both.
    """
    code, lane, distance = f.code, f.code.lane(), 1
    while len(values) > 1:
        bit = code.apply("and", u32, lane, code.constant(distance, u32))
        is_upper = code.compare("ne", u32, bit, code.constant(0, u32))
        pairs = [values[number : number + 2] for number in range(0, len(values), 2)]
        values = [_of_pair(f, fn, dtype, pair, is_upper, distance) for pair in pairs]
        distance *= 2
    return summed(f, fn, dtype, values[0], distance)


def _of_pair(
    f: ThreadFunction,
    fn: str,
    dtype: DType,
    pair: list[Operand],
    is_upper: Operand,
    distance: int,
) -> Operand:
    """Combine the first values of two lanes in the lower one, and the second ones in the upper."""
    code, kept, sent = f.code, pair[0], pair[-1]
    if len(pair) > 1:
        first, second = pair
        kept = code.choose(is_upper, register(dtype), second, first)
        sent = code.choose(is_upper, register(dtype), first, second)
    take = partial(code.read_across, distance=distance)
    return arithmetic.combine(f, fn, dtype, kept, exchanged(code, dtype, sent, take))


def deliver(f: ThreadFunction, reduction: Reduction) -> None:
    """Combine what a subgroup's threads have collected, and update the target once.

    All threads arrive here. A thread without updates contributes the identity.
    """
    code, (total, some) = f.code, per_thread_reductions.collected(f, reduction)
    if code.subgroup > 1:
        total = summed(f, reduction.fn, reduction.dtype, total)
        some = code.apply("and", u1, code.any_lane(some), code.is_first_lane())
    per_thread_reductions.update(f, reduction, lambda: total, some)
