"""Write loads of 16 bytes, which `adjacent_loads` has found, for GPUs.

A target writes the loop around four iterations, and tests before it whether the arrays are
aligned::

    for each four iterations, if arrays are aligned: loads of 16 bytes each, and the iterations
    for the remaining iterations, or all: the iteration

Loads of an unrolled loop that adds to shared elements (`passes.loops.unroll_shared_sums`) are
combined within an iteration. Such a loop is written twice: with vector loads, for arrays that are
aligned, and without, unless all are known to be: fields without gaps between their elements, which
no other array shares memory with, begin at multiples of 64 bytes (`data.field_memory_layout`).
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Hashable, Iterable

from octants.analysis.indices.affine_analysis import AffineExpressions
from octants.analysis.indices.affine_arithmetic import wrapped
from octants.analysis.sums.privatisation import is_dense
from octants.codegen.adjacent_loads import ITERATIONS, PIECE, WORD, Pieces, Row, Rows
from octants.codegen.function_emitter import ThreadFunction
from octants.codegen.instruction_writer import Operand, Pointer, ThreadCode, register
from octants.codegen.memory import address_of
from octants.codegen.memory import load as load_one
from octants.ir import ops
from octants.ir.array_aliasing import has_memory_of_others
from octants.ir.core import ArrayRef, Operation, Space
from octants.types.scalars import DType, i64, u1


def load(f: ThreadFunction, op: ops.Load) -> None:
    """Take the element from a vector load, or load it."""
    if op in f.loaded:
        f.bind(op.result, f.loaded[op])
    elif op in f.pieces:
        _load_from_piece(f, op)
    else:
        load_one(f, op)


def is_aligned(
    f: ThreadFunction, op: ops.For, rows: Rows, count: int = ITERATIONS
) -> Operand | None:
    """Return whether the first iteration, for ``count`` at a time, and all arrays are aligned.

    It is None if they are known to be.
    """
    code, dtype = f.code, op.lower.type
    aligned = _are_aligned(f, map(_array, rows))
    if code.known(f.use(op.lower)) == 0:
        return aligned
    low = code.apply("and", dtype, f.use(op.lower), code.constant(count - 1, dtype))
    first = code.compare("eq", dtype, low, code.constant(0, dtype))
    return first if aligned is None else code.apply("and", u1, first, aligned)


def _are_aligned(f: ThreadFunction, arrays: Iterable[ArrayRef]) -> Operand | None:
    """Return whether arrays are aligned; None if they are known to be."""
    code = f.code
    unknown = (array for array in dict.fromkeys(arrays) if not _is_known_to_be_aligned(array))
    found = [code.is_aligned(f.pointer(*array), PIECE) for array in unknown]
    return functools.reduce(lambda a, b: code.apply("and", u1, a, b), found) if found else None


def _is_known_to_be_aligned(ref: ArrayRef) -> bool:
    is_field = ref.array.space is Space.FIELD
    return is_field and not has_memory_of_others(ref.array) and is_dense(ref)


def _array(row: Row) -> ArrayRef:
    return ArrayRef(row.array, row.companion)


# -- loads of one iteration ------------------------------------------------------------------------


def write_twice(f: ThreadFunction, op: ops.For, pieces: Pieces, write: Callable[[], None]) -> None:
    """Write a loop for arrays that are aligned, and for others; ``write`` binds its results."""
    code = f.code
    aligned = _are_aligned(f, (load.ref for load in pieces if isinstance(load, ops.Load)))
    results = [code.variable(register(result.type)) for result in op.results]

    def write_one(own: Pieces) -> None:
        f.pieces = own
        write()
        f.pieces = {}
        f.loaded.clear()
        for variable, result in zip(results, op.results, strict=True):
            code.write(variable, f.use(result))

    if aligned is None:
        write_one(pieces)
    else:
        code.branch(aligned, lambda: write_one(pieces), lambda: write_one({}))
    for variable, result in zip(results, op.results, strict=True):
        f.bind(result, code.read(variable))


def _load_from_piece(f: ThreadFunction, op: ops.Load) -> None:
    """Load the piece if this is the first load in it, and take the element."""
    first, start, _ = f.pieces[op]
    if op is first:
        address = _further(f.code, address_of(f, op.array, op.companion, op.indices), -start)
        words = f.code.load_four_words(address, op.array.dtype, op.ref)
        for each, (other, _, position) in f.pieces.items():
            if other is first:
                f.loaded[each] = words[position // WORD]
    f.bind(op.result, f.loaded[op])


def _further(code: ThreadCode, address: Pointer, nbytes: int) -> Pointer:
    """Return the address of another element of an array."""
    return code.moved(address, code.constant(nbytes, i64), inside=True) if nbytes else address


# -- loads of several iterations -------------------------------------------------------------------


def several_iterations(
    f: ThreadFunction,
    rows: Rows,
    number: Operand,
    dtype: DType,
    iterate: Callable[[int], None],
    count: int = ITERATIONS,
) -> None:
    """Write the loads of several iterations, and the iterations.

    Args:
        f: The function.
        rows: The loads.
        number: The counter of the first iteration.
        dtype: The type of the counter.
        iterate: Writes the iteration of a number from 0 on.
        count: How many there are: four times a power of two.
    """
    wide = f.code.convert(number, dtype, i64)
    starts = _starts(f, rows, wide)
    loaded = {row: _pieces(f, row, loads, starts[row], count) for row, loads in rows.items()}
    for iteration in range(count):
        for row, loads in rows.items():
            for each, position in loads.items():
                f.loaded[each] = loaded[row][iteration * row.stride + position]
        iterate(iteration)
    f.loaded.clear()


def _starts(f: ThreadFunction, rows: Rows, number: Operand) -> dict[Row, Pointer]:
    """Return the address of each row's element of an iteration (i64).

    Those of rows at constant distances are computed from one: a driver's compiler does not know
    that sums of indices do not wrap.
    """
    affine = AffineExpressions(f.kernel.module.tasks[f.task])
    found: dict[Row, Pointer] = {}
    firsts: dict[Hashable, Row] = {}
    for row in rows:
        indices = [affine.expression(value) for value, _ in row.fixed]
        steps = [step for _, step in row.fixed]
        varying = tuple(frozenset(index.terms.items()) for index in indices)
        first = firsts.setdefault((_array(row), row.stride, *steps, *varying), row)
        if first is row:
            found[row] = _start(f, row, number)
            continue
        distance = 0
        for (value, step), index, (other, _) in zip(row.fixed, indices, first.fixed, strict=True):
            before = affine.expression(other).constant
            distance += step * wrapped(index.constant - before, value.type.bits)
        found[row] = _further(f.code, found[first], distance)
    return found


def _start(f: ThreadFunction, row: Row, number: Operand) -> Pointer:
    code, address = f.code, f.pointer(*_array(row))
    indices = [(f.wide(value), step) for value, step in row.fixed]
    for index, step in (*indices, (number, row.stride)):
        offset = code.index("mul", index, code.constant(step, i64), signed=True)
        address = code.moved(address, offset, inside=True)
    return address


def _pieces(
    f: ThreadFunction, row: Row, loads: dict[Operation, int], address: Pointer, count: int
) -> dict[int, Operand]:
    """Load the numbers of a row that iterations from an address on need, by their offsets."""
    code = f.code
    words = [i * row.stride + position for i in range(count) for position in loads.values()]
    found: dict[int, Operand] = {}
    for start in sorted({word // PIECE * PIECE for word in words}):
        piece = _further(code, address, row.start + start)
        numbers = code.load_four_words(piece, row.array.dtype, _array(row))
        found.update((start + k * WORD, number) for k, number in enumerate(numbers))
    return found
