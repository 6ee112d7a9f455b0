"""Load the operands of four iterations by one instruction: see `codegen.adjacent_loads`.

The loop tests the arrays' alignment before it begins; if they are not aligned, the second loop runs
all iterations::

    for each four iterations, if arrays are aligned: loads of 16 bytes each, and the iterations
    for the remaining iterations, or all: the iteration

Loads of an unrolled loop that adds to shared elements are combined within an iteration where
subgroups exchange factors, and the loop is written twice: with vector loads, for arrays that are
aligned, and without. Where they exchange products, a thread has no registers left for that.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable

from octants.codegen.adjacent_loads import (
    ITERATIONS,
    PIECE,
    WORD,
    Pieces,
    Row,
    Rows,
    find_pieces,
    find_rows,
)
from octants.codegen.instruction_writer import Operand
from octants.codegen.memory import address_of
from octants.codegen.memory import load as load_one
from octants.codegen.numbers_as_bits import from_word
from octants.codegen.structured import slow_path_speculation
from octants.codegen.structured.control_flow import bind_all, write_all
from octants.codegen.structured.function_emitter import StructuredFunction
from octants.ir import ops
from octants.ir.core import ArrayRef, Operation
from octants.types.scalars import i64, u1, u32, u64


def for_(body: StructuredFunction, op: ops.For) -> None:
    """Write a loop with vector loads if it qualifies, or as elsewhere."""
    has_vectors = body.code.loads_four_words
    rows = find_rows(body, op) if has_vectors else {}
    pieces = find_pieces(body, op) if has_vectors and body.products and not rows else {}
    if rows:
        _in_fours(body, op, rows)
    elif pieces:
        _in_pieces(body, op, pieces)
    else:
        slow_path_speculation.for_(body, op)


def load(body: StructuredFunction, op: ops.Load) -> None:
    """Take the element from a vector load, or load it."""
    if op in body.loaded:
        body.bind(op.result, body.loaded[op])
    elif op in body.pieces:
        _load_from_piece(body, op)
    else:
        load_one(body, op)


# -- loads of one iteration ------------------------------------------------------------------------


def _in_pieces(body: StructuredFunction, op: ops.For, pieces: Pieces) -> None:
    """Write the loop twice: for arrays that are aligned, and for others."""
    results = [body.variable(result) for result in op.results]
    loads = (load for load in pieces if isinstance(load, ops.Load))

    def write(own: Pieces) -> None:
        body.pieces = own
        slow_path_speculation.for_(body, op)
        body.pieces = {}
        body.loaded.clear()
        write_all(body, results, [body.use(result) for result in op.results])

    aligned = _are_aligned(body, dict.fromkeys(load.ref for load in loads))
    body.code.branch(aligned, lambda: write(pieces), lambda: write({}))
    bind_all(body, op.results, results)


def _load_from_piece(body: StructuredFunction, op: ops.Load) -> None:
    """Load the piece if this is the first load in it, and take the element."""
    code, dtype = body.code, op.array.dtype
    first, start, _ = body.pieces[op]
    if op is first:
        address = address_of(body, op.array, op.companion, op.indices)
        words = code.load_four_words(code.at(address, -start))
        for each, (other, _, position) in body.pieces.items():
            if other is first:
                body.loaded[each] = from_word(code, dtype, words[position // WORD])
    body.bind(op.result, body.loaded[op])


# -- loads of four iterations ----------------------------------------------------------------------


def _in_fours(body: StructuredFunction, op: ops.For, rows: Rows) -> None:
    code, dtype = body.code, op.lower.type
    counter, *carried = variables = [body.variable(arg) for arg in op.body.args]
    lower, upper = body.use(op.lower), body.use(op.upper)
    write_all(body, variables, [lower, *(body.use(init) for init in op.inits)])
    whole = code.apply("and", dtype, upper, code.constant(-ITERATIONS, dtype))
    end = code.choose(_is_aligned(body, op, rows), dtype, whole, lower)

    def iterate(number: Operand) -> None:
        body.bind(op.body.args[0], number)
        bind_all(body, op.body.args[1:], carried)
        write_all(body, carried, body.block(op.body))

    def four() -> None:
        number = code.read(counter)
        pieces = {row: _pieces(body, op, row, loads, number) for row, loads in rows.items()}
        for iteration in range(ITERATIONS):
            for row, loads in rows.items():
                for each, position in loads.items():
                    word = iteration * row.stride + position
                    body.loaded[each] = pieces[row][word]
            iterate(body.add(number, body.number(iteration, dtype), dtype))
        body.loaded.clear()
        code.write(counter, code.apply("add", dtype, number, body.number(ITERATIONS, dtype)))

    def one() -> None:
        number = code.read(counter)
        iterate(number)
        code.write(counter, code.apply("add", dtype, number, body.number(1, dtype)))

    code.loop(lambda: code.compare("lt", dtype, code.read(counter), end), four)
    code.loop(lambda: code.compare("lt", dtype, code.read(counter), upper), one)
    bind_all(body, op.results, carried)


def _is_aligned(body: StructuredFunction, op: ops.For, rows: Rows) -> Operand:
    """Return whether the first iteration and all arrays are aligned."""
    code, dtype = body.code, op.lower.type
    low = code.apply("and", dtype, body.use(op.lower), code.constant(ITERATIONS - 1, dtype))
    first = code.compare("eq", dtype, low, code.constant(0, dtype))
    arrays = dict.fromkeys(ArrayRef(row.array, row.companion) for row in rows)
    return code.apply("and", u1, first, _are_aligned(body, arrays))


def _are_aligned(body: StructuredFunction, arrays: Iterable[ArrayRef]) -> Operand:
    """Return whether arrays are aligned."""
    code, found = body.code, list[Operand]()
    for array, companion in arrays:
        low = code.convert(body.pointer(array, companion), u64, u32)
        low = code.apply("and", u32, low, code.constant(PIECE - 1, u32))
        found.append(code.compare("eq", u32, low, code.constant(0, u32)))
    return functools.reduce(lambda a, b: code.apply("and", u1, a, b), found)


def _pieces(
    body: StructuredFunction, op: ops.For, row: Row, loads: dict[Operation, int], number: Operand
) -> dict[int, Operand]:
    """Load the words of a row that four iterations need, by their offsets."""
    code, dtype = body.code, row.array.dtype
    address = body.pointer(row.array, row.companion)
    for value, step in row.fixed:
        address = code.moved(address, body.times(body.wide(value), step))
    wide = code.convert(number, op.lower.type, i64)
    address = code.moved(address, body.times(wide, row.stride))
    words = [i * row.stride + position for i in range(ITERATIONS) for position in loads.values()]
    found: dict[int, Operand] = {}
    for start in sorted({word // PIECE * PIECE for word in words}):
        loaded = code.load_four_words(code.at(address, row.start + start))
        for k, word in enumerate(loaded):
            found[start + k * WORD] = from_word(code, dtype, word)
    return found
