"""Load the operands of four iterations by one instruction: see `codegen.adjacent_loads`.

The loop tests the arrays' alignment before it begins; if they are not aligned it runs unchanged::

    chunk:  the loads of four iterations, 16 bytes each
            four iterations
            while there are four more: chunk
    tail:   the remaining iterations, or all

Loads of an unrolled loop that adds to shared elements (`passes.unroll_shared_sums`) are combined
within an iteration. Such a loop is written twice: with vector loads, for arrays that are aligned,
and without.

Loops that work items do not share must be too long for LLVM to write all iterations: it keeps
components of local vectors in registers then.
"""

from __future__ import annotations

from collections.abc import Iterable

from octants.analysis import slow_paths, speculated_iterations
from octants.codegen.adjacent_loads import (
    ITERATIONS,
    PIECE,
    WORD,
    Pieces,
    Row,
    Rows,
    find_pieces,
    find_rows,
    is_quick,
)
from octants.codegen.llvm import control_flow, memory_formats
from octants.codegen.llvm.function_text import FunctionText
from octants.codegen.llvm.gpu.function_text import ThreadText
from octants.codegen.memory import address_of
from octants.codegen.memory import load as load_one
from octants.ir import ops
from octants.ir.cooperative_tasks import SHARED_LOOPS
from octants.ir.core import ArrayRef, Operation, Task
from octants.ir.ops.arithmetic import ESTIMATES


def for_(f: ThreadText, op: ops.For) -> None:
    """Write a loop with vector loads if it qualifies, or as elsewhere."""
    if hint := _hint_of_sines(f, op):
        f.interleaved_loops.discard(op)
        found = _one_by_one(f, op, hint)
    elif rows := find_rows(f, op):
        found = _in_fours(f, op, rows)
    elif pieces := find_pieces(f, op):
        found = _in_pieces(f, op, pieces)
    else:
        found = _one_by_one(f, op)
    for result, operand in zip(op.results, found, strict=True):
        f.bind(result, operand)


def load(f: FunctionText, op: ops.Load) -> None:
    """Take the element from the chunk's vector load, or load it."""
    found = f.loaded.get(op) if isinstance(f, ThreadText) else None
    if found is not None:
        f.bind(op.result, found)
    elif isinstance(f, ThreadText) and op in f.pieces:
        _load_from_piece(f, op)
    else:
        load_one(f, op)


def interleaved_loops(task: Task) -> set[Operation]:
    """Return the loops of which four iterations run at a time: short ones without inner loops.

    LLVM interleaves them where vector loads do not apply: it warns if it cannot.
    """
    if not task.options.get(SHARED_LOOPS):
        return set()
    loops = (op for op in task.body.walk() if isinstance(op, ops.For))
    return {loop for loop in loops if is_quick(loop.body)}


def _hint_of_sines(f: ThreadText, op: ops.For) -> str:
    """Return the metadata of a loop that `passes.unroll_loops` has written; empty for others.

    Chunks and slow paths are not unrolled; of the iterations behind chunks, four run at a time.
    """
    if f.machine.estimates and f.text.fast_math:
        estimates = sum(isinstance(o, ops.Unary) and o.fn in ESTIMATES for o in op.body.ops)
        is_chunk = estimates >= speculated_iterations.ITERATIONS // 2  # others are polynomials
        if is_chunk or slow_paths.can_speculate(
            op, slow_paths.is_sine, speculated_iterations.MOST_WORK
        ):
            return control_flow.no_unrolling(f)
        if estimates:
            return control_flow.interleaving(f)
    return ""


# -- loads of one iteration ------------------------------------------------------------------------


def _in_pieces(f: ThreadText, op: ops.For, pieces: Pieces) -> list[str]:
    """Write the loop twice, for arrays that are aligned, and for others; return its results."""
    wide, narrow, leave = (f.fresh_label(hint) for hint in ("wide", "narrow", "leave"))
    loads = (load for load in pieces if isinstance(load, ops.Load))
    f.branch_if(_are_aligned(f, dict.fromkeys(load.ref for load in loads)), wide, narrow)
    found: list[tuple[list[str], str]] = []
    for label, own in ((wide, pieces), (narrow, {})):
        f.start(label)
        f.pieces = own
        values = _one_by_one(f, op)
        f.loaded.clear()
        found.append((values, f.label))
        f.branch(leave)
    f.start(leave)
    return [
        control_flow.joined(f, result.type, [(values[number], label) for values, label in found])
        for number, result in enumerate(op.results)
    ]


def _load_from_piece(f: ThreadText, op: ops.Load) -> None:
    """Load the piece if this is the first load in it, and take the element."""
    first, start, _ = f.pieces[op]
    if op is first:
        address = address_of(f, op.array, op.companion, op.indices)
        suffix = f.kernel.scopes.suffix(op.ref)
        kind = f"<4 x {memory_formats.memory_type(f, op.array.dtype)}>"
        begin = f.assign(f"getelementptr inbounds i8, ptr {address}, i64 {-start}")
        piece = f.assign(f"load {kind}, ptr {begin}, align {PIECE}{suffix}")
        for each, (other, _, word) in f.pieces.items():
            if other is first:
                f.loaded[each] = _word(f, each, piece, word)
    f.bind(op.result, f.loaded[op])


# -- the loop --------------------------------------------------------------------------------------


def _one_by_one(f: ThreadText, op: ops.For, hint: str = "") -> list[str]:
    """Write the loop without vector loads, and return the operands of its results."""
    lower, upper, inits = _bounds(f, op)
    hint, downwards = control_flow.hint(f, op) or hint, control_flow.counts_what_is_left(op, lower)
    return control_flow.iterate(f, op, lower, upper, inits, hint=hint, downwards=downwards)


def _bounds(f: ThreadText, op: ops.For) -> tuple[str, str, list[str]]:
    return f.use(op.lower), f.use(op.upper), [f.use(value) for value in op.inits]


def _in_fours(f: ThreadText, op: ops.For, rows: Rows) -> list[str]:
    """Write the loop, and return the operands of its results."""
    lower, upper, inits = _bounds(f, op)
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
    arrays = dict.fromkeys(ArrayRef(row.array, row.companion) for row in rows)
    return f.apply("and", "i1", f.apply("icmp eq", register, low, 0), _are_aligned(f, arrays))


def _are_aligned(f: ThreadText, arrays: Iterable[ArrayRef]) -> str:
    """Return whether arrays are aligned."""
    aligned = "true"
    for array, companion in arrays:
        bits = f.convert("ptrtoint", "ptr", f.pointer(array, companion), "i64")
        low = f.apply("and", "i64", bits, PIECE - 1)
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
                f.loaded[each] = _word(f, each, pieces[row][word // PIECE], word % PIECE)
        values = control_flow.write_iteration(f, op)
    f.loaded.clear()
    return values


def _pieces(
    f: ThreadText, row: Row, loads: dict[Operation, int], counter: str, register: str
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
    for number in sorted({word // PIECE for word in words}):
        start_of_piece = f.assign(
            f"getelementptr inbounds i8, ptr {start}, i64 {row.start + PIECE * number}"
        )
        found[number] = f.assign(f"load {kind}, ptr {start_of_piece}, align {PIECE}{suffix}")
    return found


def _extended(f: ThreadText, index: str, register: str) -> str:
    """Return an index as an i64."""
    return index if register == "i64" else f.convert("sext", register, index, "i64")


def _word(f: ThreadText, op: Operation, piece: str, position: int) -> str:
    """Extract a number from a vector."""
    assert isinstance(op, ops.Load)
    dtype = op.array.dtype
    kind = memory_formats.memory_type(f, dtype)
    word = f.assign(f"extractelement <4 x {kind}> {piece}, i32 {position // WORD}")
    return memory_formats.from_memory(f, dtype, word)
