"""Write additions of lanes to several elements together, in half the instructions.

One by one, the lanes of each vector are added by halving it: for 16 lanes four times. Together,
vectors are transposed while they are added, as many as there are numbers in 128 bits::

    a0 a1 a2 a3 | a4 ...      a0+a2 b0+b2 a1+a3 b1+b3 | ...      a0+...+a3 b.. c.. d.. | a4+...
    b0 b1 b2 b3 | b4 ...  ->                                 ->                            -> halves
    c0 c1 c2 c3 | c4 ...      c0+c2 d0+d2 c1+c3 d1+d3 | ...
    d0 d1 d2 d3 | d4 ...

The last vector has the sums of all lanes. Where the elements are neighbours in memory, it is added
to them at once.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial

from octants.analysis.control_flow.uniformity import Uniformity
from octants.analysis.indices.array_strides import strides
from octants.analysis.sums.privatisation import PrivatisedSums
from octants.analysis.sums.reductions import find_reductions
from octants.analysis.sums.sum_groups import SumGroup, find_groups
from octants.codegen import arithmetic, atomics
from octants.codegen.llvm.lanes import memory
from octants.codegen.llvm.lanes.atomics import active_numbers, halves
from octants.codegen.llvm.lanes.function_text import LaneText
from octants.codegen.llvm.lanes.sum_functions import call_sum
from octants.codegen.llvm.worker_atomics import either
from octants.ir import ops
from octants.ir.core import Operation, Task
from octants.types.scalars import DType

_BITS = 128
"""The parts of vectors in which numbers are exchanged in one cycle."""
_MOST = 16
"""The additions that are made together: more vectors would not fit the registers."""


def find_grouped(
    task: Task, sums: PrivatisedSums, facts: Uniformity, lanes: int, noalias: bool
) -> dict[Operation, SumGroup | None]:
    """Find additions to private sums that are made together.

    Args:
        task: The task.
        sums: Its private sums.
        facts: Which values are uniform.
        lanes: How many work items run in step.
        noalias: No two arrays of its kernel share memory.

    Returns:
        The last addition of each group with the group, and None for the others.
    """
    found: dict[Operation, SumGroup | None] = {}
    if not sums or not _has_several(task):
        return found
    collected = {op for each in find_reductions(task, noalias) for op in each.atomics}
    updates = {
        op
        for op in task.body.walk()
        if isinstance(op, ops.Atomic) and op.fn == "add" and op.ref in sums and op not in collected
        if _width(op) <= lanes and not any(map(facts.varies, op.indices))
    }
    for group in find_groups(task, updates, noalias, _MOST):
        found.update(dict.fromkeys(group.updates))
        found[group.updates[-1]] = group
    return found


def _has_several(task: Task) -> bool:
    """Whether a block adds several times to an array."""
    blocks = [task.body, *(region for op in task.body.walk() for region in op.regions)]
    counts = (Counter(op.ref for op in b.ops if isinstance(op, ops.Atomic)) for b in blocks)
    return any(count > 1 for each in counts for count in each.values())


def _width(op: ops.Atomic) -> int:
    """Return how many vectors are added up together."""
    return _BITS // (8 * op.array.dtype.size)


def add_group(
    f: LaneText, group: SumGroup, add_one: Callable[[LaneText, ops.Atomic], None]
) -> None:
    """Write the additions of a group; ``add_one`` writes one that is left."""
    for updates, are_neighbours in _parts(group, _width(group.updates[0])):
        if len(updates) > 1:
            _add_together(f, updates, are_neighbours)
        else:
            add_one(f, updates[0])


def _parts(group: SumGroup, width: int) -> list[tuple[list[ops.Atomic], bool]]:
    """Divide a group into parts of up to ``width`` updates; of neighbours, if possible."""
    size = group.updates[0].array.dtype.size
    offsets = _byte_offsets(group)
    if offsets is None:
        return [(part, False) for part in _chunks(group.updates, width)]
    parts, others = [], []
    waiting = sorted(zip(offsets, range(len(offsets)), strict=True))
    while waiting:
        start, number = waiting[0]
        part = waiting[:width]
        if [offset for offset, _ in part] == [start + size * k for k in range(width)]:
            parts.append(([group.updates[k] for _, k in part], True))
            waiting = waiting[width:]
        else:
            others.append(group.updates[number])
            waiting = waiting[1:]
    return parts + [(part, False) for part in _chunks(others, width)]


def _chunks(updates: Sequence[ops.Atomic], width: int) -> list[list[ops.Atomic]]:
    return [list(updates[k : k + width]) for k in range(0, len(updates), width)]


def _byte_offsets(group: SumGroup) -> list[int] | None:
    """Return the distances in memory from the first element of a group, if they are known."""
    first = group.updates[0]
    known = [stride or 0 for stride in strides(first.array, first.companion, len(first.indices))]
    if any(d and not s for own in group.distances for d, s in zip(own, known, strict=True)):
        return None
    return [sum(d * s for d, s in zip(own, known, strict=True)) for own in group.distances]


# -- code ---------------------------------------------------------------------------------------


def _add_together(f: LaneText, updates: list[ops.Atomic], are_neighbours: bool) -> None:
    """Write additions of the active lanes to a few elements."""
    op = updates[0]
    values = [active_numbers(f, "add", op.array.dtype, f.use(each.value)) for each in updates]
    first = updates[:1] if are_neighbours else updates
    pointers = [memory.locate(f, x.array, x.companion, x.indices).start for x in first]
    kind = "row" if are_neighbours else "each"
    call_sum(f, op, f"totals.{kind}{len(values)}", pointers, values, partial(_add_sums, op))


def _add_sums(op: ops.Atomic, f: LaneText, pointers: list[str], values: list[str]) -> None:
    dtype, suffix = op.array.dtype, f.kernel.scopes.suffix(op.ref)
    register, size = f.type(dtype), dtype.size
    width = _width(op)
    total = _transposed_sum(f, dtype, values, width)
    vector = f"<{width} x {register}>"

    def one(k: int) -> str:
        return f.assign(f"extractelement {vector} {total}, i32 {k}")

    def element(k: int) -> str:
        if len(pointers) > 1:
            return pointers[k]
        return f.assign(f"getelementptr {register}, ptr {pointers[0]}, i64 {k}")

    def plainly() -> None:
        if len(pointers) == 1:
            old = f.assign_vector(f"load {vector}, ptr {pointers[0]}, align {size}{suffix}")
            with f.of_lanes(width):
                new = arithmetic.combine(f, op.fn, dtype, old, total)
            f.emit(f"store {vector} {new}, ptr {pointers[0]}, align {size}{suffix}")
            return
        for k, pointer in enumerate(pointers):
            old = f.assign(f"load {register}, ptr {pointer}, align {size}{suffix}")
            new = arithmetic.combine(f, op.fn, dtype, old, one(k))
            f.emit(f"store {register} {new}, ptr {pointer}, align {size}{suffix}")

    def shared() -> None:
        for k in range(len(values)):
            atomics.update(f, op.fn, dtype, element(k), one(k))

    either(f, plainly, shared)


def _transposed_sum(f: LaneText, dtype: DType, values: list[str], width: int) -> str:
    """Return the sums of the lanes of up to ``width`` vectors, as a vector of these."""
    f.vectors.update(values)
    register, lanes = f.type(dtype), f.lanes

    def halved(vector: str, lanes: int) -> str:
        both = halves(f, register, vector, lanes)
        with f.of_lanes(lanes // 2):
            return str(arithmetic.combine(f, "add", dtype, *both))

    while lanes > f.machine.vector_bits // (8 * dtype.size):
        values, lanes = [halved(value, lanes) for value in values], lanes // 2
    unit, vectors = 1, [*values, *["poison"] * (width - len(values))]
    while unit < width:
        pairs = zip(vectors[::2], vectors[1::2], strict=True)
        vectors = [_pair(f, dtype, pair, lanes, width, unit) for pair in pairs]
        unit *= 2
    (total,) = vectors
    while lanes > width:
        total, lanes = halved(total, lanes), lanes // 2
    return total


def _pair(
    f: LaneText, dtype: DType, pair: tuple[str, str], lanes: int, width: int, unit: int
) -> str:
    """Add the halves of each ``width`` numbers of two vectors, ``unit`` of each at a time."""
    if pair == ("poison", "poison"):
        return "poison"
    shape = f"<{lanes} x {f.type(dtype)}>"

    def picked(first: int) -> str:
        order = [
            which * lanes + start + first + number
            for start in range(0, lanes, width)
            for number_of_unit in range(0, width // 2, unit)
            for which in (0, 1)
            for number in range(number_of_unit, number_of_unit + unit)
        ]
        mask = ", ".join(f"i32 {number}" for number in order)
        return f.assign_vector(
            f"shufflevector {shape} {pair[0]}, {shape} {pair[1]}, <{lanes} x i32> <{mask}>"
        )

    with f.of_lanes(lanes):
        return str(arithmetic.combine(f, "add", dtype, picked(0), picked(width // 2)))
