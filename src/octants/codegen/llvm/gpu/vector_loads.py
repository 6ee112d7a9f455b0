"""Load the operands of four iterations by one instruction, where they are adjacent in memory.

A serial loop that reads `x[j]`, or `w[i, j]` for one i, for successive j, of four-byte numbers or
vectors of them, loads a few bytes each time. Four iterations, from a multiple of four on, need a
multiple of 16 bytes, which one instruction loads if the address is a multiple of 16. The loop tests
the arrays' alignment before it begins; if they are not aligned it runs unchanged::

    chunk:  the loads of four iterations, 16 bytes each
            four iterations
            while there are four more: chunk
    tail:   the remaining iterations, or all

Loops that work items share (`SHARED_LOOPS`) may begin anywhere. Others must begin at 0, and be too
long for LLVM to write all iterations: it keeps components of local vectors in registers then.
"""

from __future__ import annotations

from collections.abc import Sequence

from octants.codegen.llvm import control_flow, memory_formats
from octants.codegen.llvm.function_text import FunctionText
from octants.codegen.llvm.gpu import slow_path_speculation
from octants.codegen.llvm.gpu.function_text import ThreadText
from octants.codegen.llvm.types_and_literals import known
from octants.codegen.memory import load as load_one
from octants.ir import ops
from octants.ir.cooperative_tasks import SHARED_LOOPS
from octants.ir.core import Array, ArrayRef, Block, Companion, Operation, Space, Task, Value
from octants.lazy_dataclass import dataclass
from octants.types.layouts import Layout
from octants.types.scalars import i32, i64

ITERATIONS = 4
_PIECE, _WORD = 16, 4  # bytes
_LONGEST = 64
"""The most bytes from an element to the next."""
_SHORT = 128
"""The most operations of an iteration."""
_UNROLLED = 16
"""The trip count up to which LLVM writes all iterations of a loop."""


@dataclass(frozen=True, slots=True)
class _Row:
    """A sequence of array elements, one for each iteration, at equal distances.

    The element of iteration j is `start` + j `stride` bytes from the beginning of the array, and
    for each of the `fixed` indices so many times its stride further.
    """

    array: Array
    companion: Companion
    start: int
    stride: int
    fixed: tuple[tuple[Value, int], ...] = ()


Rows = dict[_Row, dict[Operation, int]]
"""The loads of each row, with their offsets in an element."""


def for_(f: ThreadText, op: ops.For) -> None:
    """Write a loop with vector loads if it qualifies, or as elsewhere."""
    if slow_path_speculation.is_worth_it(f, op):
        f.interleaved_loops.discard(op)
    rows = find_rows(f, op) if op in f.interleaved_loops or _is_long(f, op) else {}
    if not rows:
        slow_path_speculation.for_(f, op)
        return
    for result, found in zip(op.results, _in_fours(f, op, rows), strict=True):
        f.bind(result, found)


def load(f: FunctionText, op: ops.Load) -> None:
    """Take the element from the chunk's vector load, or load it."""
    found = f.loaded.get(op) if isinstance(f, ThreadText) else None
    if found is None:
        load_one(f, op)
    else:
        f.bind(op.result, found)


def interleaved_loops(task: Task) -> set[Operation]:
    """Return the loops of which four iterations run at a time: short ones without inner loops.

    LLVM interleaves them where vector loads do not apply: it warns if it cannot.
    """
    if not task.options.get(SHARED_LOOPS):
        return set()
    loops = (op for op in task.body.walk() if isinstance(op, ops.For))
    return {loop for loop in loops if _is_quick(loop.body)}


def _is_quick(body: Block) -> bool:
    return len(body.ops) <= _SHORT and all(op.is_speculatable and not op.REGIONS for op in body.ops)


def _is_long(f: ThreadText, op: ops.For) -> bool:
    """Return whether a loop that work items do not share qualifies, but for its loads."""
    lower, upper = (known(f.use(value)) for value in (op.lower, op.upper))
    if lower != 0 or (upper is not None and upper <= _UNROLLED) or not _is_quick(op.body):
        return False
    return not slow_path_speculation.is_worth_it(f, op)


# -- which loads -----------------------------------------------------------------------------------


def find_rows(f: ThreadText, loop: ops.For) -> Rows:
    """Return the loads of a loop that can be combined for four iterations."""
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


def _counters(loop: ops.For) -> set[Value]:
    """Return the loop's counter and its extensions; a truncation might wrap."""
    found = {loop.body.args[0]}
    for op in loop.body.ops:
        if isinstance(op, ops.Cast) and op.x in found and (op.x.type, op.result.type) == (i32, i64):
            found.add(op.result)
    return found


def _is_plain(array: Array) -> bool:
    spaces = (Space.FIELD, Space.NDARRAY, Space.TEMPORARY)
    return array.space in spaces and array.dtype.size == _WORD


def _known(
    f: ThreadText, index: Value, inside: dict[Value, Operation], loop: ops.For
) -> int | None:
    """Return the constant that an index is, or None."""
    op = inside.get(index)
    if isinstance(op, ops.Constant):
        return int(op.value)
    if op is not None or index in loop.body.args:
        return None
    return known(f.use(index))


def _row_of(
    op: ops.Load, known: Sequence[int | None], counts: Sequence[bool], fixed: Sequence[bool]
) -> tuple[_Row, int] | None:
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
        strides = [array.dtype.size]
        for extent in reversed(array.element_shape):
            strides.insert(0, strides[0] * extent)
        strides = strides[-len(numbers) :]
        stride = strides[axis]
        position = sum(n * each for n, each in zip(numbers, strides, strict=True))
    elif isinstance(layout, Layout):
        terms = [term for term in layout.terms if term.axis == axis]
        if len(terms) != 1 or terms[0].divisor != 1 or terms[0].modulus:
            return None
        stride, position = terms[0].stride, _constant_part(layout, numbers, axis)
    else:
        return None
    start = position // stride * stride if stride else 1
    if not 0 < stride <= _LONGEST or stride % _WORD or position % _WORD or start % _PIECE:
        return None
    return _Row(array, op.companion, start, stride, further), position - start


def _fixed_part(
    layout: object, indices: Sequence[Value], axes: Sequence[int]
) -> tuple[tuple[Value, int], ...] | None:
    """Return indices with their strides in bytes; None if a stride may not be a multiple of 16."""
    if not isinstance(layout, Layout):
        return None
    terms = [term for term in layout.terms if term.axis in axes]
    is_simple = all(
        term.divisor == 1 and not term.modulus and term.stride % _PIECE == 0 for term in terms
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


# -- the loop --------------------------------------------------------------------------------------


def _in_fours(f: ThreadText, op: ops.For, rows: Rows) -> list[str]:
    """Write the loop, and return the operands of its results."""
    lower, upper, inits = f.use(op.lower), f.use(op.upper), [f.use(value) for value in op.inits]
    register, less = f.type(op.lower.type), f"icmp {control_flow.less(op.lower.type)}"
    chunk, tail = f.fresh_label("chunk"), f.fresh_label("tail")
    aligned = _is_aligned(f, register, lower, rows)
    whole = f.apply("and", register, upper, -ITERATIONS)
    end = f.choose(aligned, register, whole, lower)
    before = f.label
    f.branch_if(f.apply(less, register, lower, end), chunk, tail)
    f.start(chunk)
    counter, *carried = phis = control_flow.open_phis(f, op.body.args, [lower, *inits], before)
    values = _four_iterations(f, op, counter.name, [phi.name for phi in carried], rows)
    following = f.apply("add nsw", register, counter.name, ITERATIONS)
    again = f.label
    more = f.apply(less, register, following, end)
    f.branch_if(more, chunk, tail, hint=control_flow.no_unrolling(f))
    control_flow.close_phis(f, phis, [following, *values], again)
    f.start(tail)
    rest = control_flow.joined(f, op.lower.type, [(lower, before), (following, again)])
    left = [
        control_flow.joined(f, result.type, [(init, before), (value, again)])
        for result, init, value in zip(op.results, inits, values, strict=True)
    ]
    return control_flow.iterate(f, op, rest, upper, left, hint=control_flow.no_unrolling(f))


def _is_aligned(f: ThreadText, register: str, lower: str, rows: Rows) -> str:
    """Return whether the first iteration and all arrays are aligned."""
    low = f.apply("and", register, lower, ITERATIONS - 1)
    aligned = f.apply("icmp eq", register, low, 0)
    for array, companion in dict.fromkeys((row.array, row.companion) for row in rows):
        bits = f.convert("ptrtoint", "ptr", f.pointer(array, companion), "i64")
        low = f.apply("and", "i64", bits, _PIECE - 1)
        aligned = f.apply("and", "i1", aligned, f.apply("icmp eq", "i64", low, 0))
    return aligned


def _four_iterations(
    f: ThreadText, op: ops.For, counter: str, values: list[str], rows: Rows
) -> list[str]:
    """Write four iterations from a counter on, and return the carried operands."""
    register = f.type(op.lower.type)
    pieces = {row: _pieces(f, row, loads, counter, register) for row, loads in rows.items()}
    for iteration in range(ITERATIONS):
        number = f.apply("add nsw", register, counter, iteration) if iteration else counter
        for arg, operand in zip(op.body.args, [number, *values], strict=True):
            f.bind(arg, operand)
        for row, loads in rows.items():
            for each, position in loads.items():
                word = iteration * row.stride + position
                f.loaded[each] = _word(f, each, pieces[row][word // _PIECE], word % _PIECE)
        values = control_flow.write_iteration(f, op)
    f.loaded.clear()
    return values


def _pieces(
    f: ThreadText, row: _Row, loads: dict[Operation, int], counter: str, register: str
) -> dict[int, str]:
    """Load the 16-byte vectors of a row that four iterations need."""
    offset = f.apply("mul nsw", "i64", _extended(f, counter, register), row.stride)
    base = f.pointer(row.array, row.companion)
    for value, step in row.fixed:
        index, kind = f.use(value), f.type(value.type)
        further = f.apply("mul nsw", "i64", _extended(f, index, kind), step)
        base = f.assign(f"getelementptr inbounds i8, ptr {base}, i64 {further}")
    start = f.assign(f"getelementptr inbounds i8, ptr {base}, i64 {offset}")
    words = {
        iteration * row.stride + position
        for iteration in range(ITERATIONS)
        for position in loads.values()
    }
    suffix = f.kernel.scopes.suffix(ArrayRef(row.array, row.companion))
    kind = f"<4 x {memory_formats.memory_type(f, row.array.dtype)}>"
    found: dict[int, str] = {}
    for number in sorted({word // _PIECE for word in words}):
        start_of_piece = f.assign(
            f"getelementptr inbounds i8, ptr {start}, i64 {row.start + _PIECE * number}"
        )
        found[number] = f.assign(f"load {kind}, ptr {start_of_piece}, align {_PIECE}{suffix}")
    return found


def _extended(f: ThreadText, index: str, register: str) -> str:
    """Return an index as an i64."""
    return index if register == "i64" else f.convert("sext", register, index, "i64")


def _word(f: ThreadText, op: Operation, piece: str, position: int) -> str:
    """Extract a number from a vector."""
    assert isinstance(op, ops.Load)
    dtype = op.array.dtype
    kind = memory_formats.memory_type(f, dtype)
    word = f.assign(f"extractelement <4 x {kind}> {piece}, i32 {position // _WORD}")
    return memory_formats.from_memory(f, dtype, word)
