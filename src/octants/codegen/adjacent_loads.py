"""Find the loads of a loop that four iterations can share, for vector loads.

A serial loop that reads `x[j]`, or `w[i, j]` for one i, for successive j, of four-byte numbers or
vectors of them, loads a few bytes each time. Four iterations, from a multiple of four on, need a
multiple of 16 bytes, which one instruction loads if the address is a multiple of 16.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Mapping, Sequence

from octants.analysis.indices.affine_analysis import AffineExpressions
from octants.analysis.indices.array_strides import strides
from octants.codegen.function_emitter import FunctionEmitter
from octants.ir import ops
from octants.ir.array_aliasing import may_alias
from octants.ir.cooperative_tasks import SHARED_LOOPS
from octants.ir.core import Array, ArrayRef, Block, Companion, Operation, Space, Task, Value
from octants.lazy_dataclass import dataclass
from octants.types.layouts import Layout
from octants.types.scalars import i32, i64

ITERATIONS = 4
PIECE, WORD = 16, 4  # bytes
_SPACES = (Space.FIELD, Space.NDARRAY, Space.TEMPORARY)
_LONGEST = 64
"""The most bytes from an element to the next."""
_SHORT = 128
"""The most operations of an iteration."""
_UNROLLED = 16
"""The trip count up to which compilers write all iterations of a loop, as is better: components of
local vectors are in registers then."""


@dataclass(frozen=True, slots=True)
class Row:
    """A sequence of array elements, one for each iteration, at equal distances.

    The element of iteration j is `start` + j `stride` bytes from the beginning of the array, and
    for each of the `fixed` indices so many times its stride further.
    """

    array: Array
    companion: Companion
    start: int
    stride: int
    fixed: tuple[tuple[Value, int], ...] = ()


Rows = dict[Row, dict[Operation, int]]
"""The loads of each row, with their offsets in an element."""

Pieces = dict[Operation, tuple[Operation, int, int]]
"""Each load with the first one of its piece, and the offsets of both in that piece."""


def is_quick(body: Block) -> bool:
    """Return whether an iteration is short, and can be written four times."""
    return len(body.ops) <= _SHORT and all(op.is_speculatable and not op.REGIONS for op in body.ops)


def is_long_and_quick(f: FunctionEmitter, loop: ops.For) -> bool:
    """Return whether a loop has many short iterations, and no compiler would unroll it fully."""
    return is_quick(loop.body) and _is_long(f, loop)


def loaded_bytes(op: Operation) -> int:
    """Return how many bytes an operation loads from memory that work items share."""
    if isinstance(op, ops.Load) and op.array.space in _SPACES:
        return op.array.dtype.size
    return 0


def _is_long(f: FunctionEmitter, loop: ops.For) -> bool:
    """Return whether a loop begins at zero, and is too long for a compiler to unroll it."""
    lower, upper = (f.code.known(f.use(bound)) for bound in (loop.lower, loop.upper))
    return lower == 0 and (upper is None or upper > _UNROLLED)


def find_rows(f: FunctionEmitter, loop: ops.For) -> Rows:
    """Return the loads of a loop that can be combined for four iterations.

    Loops that work items share (`SHARED_LOOPS`) may begin anywhere.
    """
    is_shared = f.kernel.module.tasks[f.task].options.get(SHARED_LOOPS)
    if not is_quick(loop.body) or not (is_shared or _is_long(f, loop)):
        return {}
    counters = _counters(loop)
    inside = {value: op for op in loop.body.ops for value in op.results}
    rows: Rows = {}
    for op in loop.body.ops:
        if isinstance(op, ops.Load) and _is_plain(op.array):
            known = [_known(f, index, inside, loop) for index in op.indices]
            fixed = [index not in inside and index not in loop.body.args for index in op.indices]
            found = _row_of(op, known, [index in counters for index in op.indices], fixed)
            if found is not None:
                rows.setdefault(found[0], {})[op] = found[1]
    return rows


def local_rows(loop: ops.For) -> list[ops.Load]:
    """Return the loads of a loop of the element of a local vector that has the counter's number."""
    return [
        op
        for op in loop.body.ops
        if isinstance(op, ops.Load)
        and op.array.space is Space.LOCAL
        and op.array.dtype.size == WORD
        and list(op.indices) == [loop.body.args[0]]
    ]


def find_local_rows(task: Task, constants: Mapping[Value, int | float]) -> set[ArrayRef]:
    """Return the local vectors that long and quick loops of a task read besides other arrays."""
    return {
        load.ref
        for op in task.body.walk()
        if isinstance(op, ops.For) and is_quick(op.body) and any(map(loaded_bytes, op.body.ops))
        if constants.get(op.lower) == 0 and constants.get(op.upper, _UNROLLED + 1) > _UNROLLED
        for load in local_rows(op)
    }


def find_pieces(f: FunctionEmitter, loop: ops.For) -> Pieces:
    """Return the loads of an iteration of an unrolled loop that can be combined, four each time.

    None of their addresses depends on more than multiples of a piece, and constants.
    """
    kinds = Counter(map(type, loop.body.ops))
    if not kinds[ops.Atomic] or kinds[ops.Load] < PIECE // WORD:
        return {}
    module = f.kernel.module
    affine, noalias = AffineExpressions(module.tasks[f.task]), module.noalias
    written = [op.ref for op in loop.body.walk() if isinstance(op, ops.Write)]
    if any(op.orders_memory for op in loop.body.walk()):
        return {}
    found: dict[object, dict[int, list[ops.Load]]] = {}
    for op in loop.body.ops:
        if isinstance(op, ops.Load) and _is_plain(op.array):
            layout = op.array.layouts[op.companion]
            offset = _offset(affine, layout, op) if isinstance(layout, Layout) else None
            if offset is not None and not any(may_alias(op.ref, ref, noalias) for ref in written):
                number, position = divmod(offset[1], PIECE)
                words = found.setdefault((op.ref, offset[0], number), {})
                words.setdefault(position, []).append(op)
    pieces: Pieces = {}
    for words in found.values():
        if len(words) == PIECE // WORD:
            loads = [(op, position) for position, each in words.items() for op in each]
            first = min(loads, key=lambda pair: affine.order[pair[0]])
            pieces.update((op, (*first, position)) for op, position in loads)
    return pieces


def _offset(affine: AffineExpressions, layout: Layout, op: ops.Load) -> tuple[Hashable, int] | None:
    """Return the varying part of an element's byte offset, and its constant; None if unknown."""
    terms, constant = list[object](), 0
    axes = len(layout.shape)
    steps = [(term.axis, term.stride) for term in layout.terms]
    steps += [(axes + k, stride) for k, stride in enumerate(layout.element_strides)]
    if any(term.divisor != 1 or term.modulus for term in layout.terms):
        return None
    for axis, stride in steps:
        found = affine.expression(op.indices[axis])
        if any(factor * stride % PIECE for factor in found.terms.values()):
            return None
        constant += found.constant * stride
        terms.append((axis, frozenset(found.terms.items())))
    return tuple(terms), constant


def _counters(loop: ops.For) -> set[Value]:
    """Return the loop's counter and its extensions; a truncation might wrap."""
    found = {loop.body.args[0]}
    for op in loop.body.ops:
        if isinstance(op, ops.Cast) and op.x in found and (op.x.type, op.result.type) == (i32, i64):
            found.add(op.result)
    return found


def _is_plain(array: Array) -> bool:
    return array.space in _SPACES and array.dtype.size == WORD


def _known(
    f: FunctionEmitter, index: Value, inside: dict[Value, Operation], loop: ops.For
) -> int | None:
    """Return the constant that an index is, or None."""
    op = inside.get(index)
    if isinstance(op, ops.Constant):
        return int(op.value)
    if op is not None or index in loop.body.args:
        return None
    number = f.code.known(f.use(index))
    return None if number is None else int(number)


def _row_of(
    op: ops.Load, known: Sequence[int | None], counts: Sequence[bool], fixed: Sequence[bool]
) -> tuple[Row, int] | None:
    """Return the row of a load and its offset in an element; None if it has none.

    Args:
        op: The load.
        known: The constants that its indices are, or None.
        counts: Whether they are the counter.
        fixed: Whether they are the same in all iterations.
    """
    layout, array = op.array.layouts[op.companion], op.array
    unknown = [k for k, (n, c) in enumerate(zip(known, counts, strict=True)) if n is None and not c]
    further = _fixed_part(layout, op.indices, unknown) if unknown else ()
    if sum(counts) != 1 or further is None or not all(fixed[k] for k in unknown):
        return None
    numbers = [number or 0 for number in known]
    axis = list(counts).index(True)
    if layout is None and array.rank <= 1:
        known_strides = [each or 0 for each in strides(array, op.companion, len(numbers))]
        stride = known_strides[axis]
        position = sum(n * each for n, each in zip(numbers, known_strides, strict=True))
    elif isinstance(layout, Layout):
        terms = [term for term in layout.terms if term.axis == axis]
        if len(terms) != 1 or terms[0].divisor != 1 or terms[0].modulus:
            return None
        stride, position = terms[0].stride, _constant_part(layout, numbers, axis)
    else:
        return None
    start = position // stride * stride if stride else 1
    if not 0 < stride <= _LONGEST or stride % WORD or position % WORD or start % PIECE:
        return None
    return Row(array, op.companion, start, stride, further), position - start


def _fixed_part(
    layout: object, indices: Sequence[Value], axes: Sequence[int]
) -> tuple[tuple[Value, int], ...] | None:
    """Return indices with their strides in bytes; None if a stride may not be a multiple of 16."""
    if not isinstance(layout, Layout):
        return None
    terms = [term for term in layout.terms if term.axis in axes]
    is_simple = all(
        term.divisor == 1 and not term.modulus and term.stride % PIECE == 0 for term in terms
    )
    if not is_simple or any(axis >= len(layout.shape) for axis in axes):
        return None
    return tuple((indices[term.axis], term.stride) for term in terms)


def _constant_part(layout: Layout, numbers: list[int], axis: int) -> int:
    """Return the byte offset of all indices but one."""
    position = 0
    for term in layout.terms:
        if term.axis != axis:
            part = numbers[term.axis] // term.divisor
            position += (part % term.modulus if term.modulus else part) * term.stride
    inner = numbers[len(numbers) - len(layout.element_strides) :]
    return position + sum(
        n * stride for n, stride in zip(inner, layout.element_strides, strict=True)
    )
