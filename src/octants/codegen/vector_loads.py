"""Load the operands of four iterations by one instruction: see `codegen.adjacent_loads`.

The loop tests the arrays' alignment before it begins; if they are not aligned, the second loop runs
all iterations::

    for each four iterations, if arrays are aligned: loads of 16 bytes each, and the iterations
    for the remaining iterations, or all: the iteration

Loops that work items share (`SHARED_LOOPS`) may begin anywhere. Others must begin at 0, and be too
long for a compiler to write all iterations.
"""

from __future__ import annotations

import functools
from collections.abc import Callable

from octants.codegen.adjacent_loads import (
    ITERATIONS,
    PIECE,
    WORD,
    Row,
    Rows,
    find_rows,
    is_long,
    is_quick,
)
from octants.codegen.function_emitter import ThreadFunction
from octants.codegen.instruction_writer import Operand, register
from octants.codegen.numbers_as_bits import from_word
from octants.ir import ops
from octants.ir.cooperative_tasks import SHARED_LOOPS
from octants.ir.core import ArrayRef, Operation
from octants.types.scalars import i64, u1, u32, u64


def rows_of(f: ThreadFunction, op: ops.For) -> Rows:
    """Return the loads of a loop that qualifies; there are none if it does not."""
    if not f.code.loads_four_words or not is_quick(op.body):
        return {}
    is_shared = f.kernel.module.tasks[f.task].options.get(SHARED_LOOPS)
    return find_rows(f, op) if is_shared or is_long(f, op) else {}


def in_fours(f: ThreadFunction, op: ops.For, rows: Rows) -> None:
    """Write a loop whose iterations load ``rows``."""
    code, dtype = f.code, op.lower.type
    counter, *carried = variables = [code.variable(register(arg.type)) for arg in op.body.args]
    lower, upper = f.use(op.lower), f.use(op.upper)
    for variable, value in zip(variables, [lower, *map(f.use, op.inits)], strict=True):
        code.write(variable, value)
    whole = code.apply("and", dtype, upper, code.constant(-ITERATIONS, dtype))
    end = code.choose(_are_aligned(f, op, rows), dtype, whole, lower)

    def iterate(number: Operand) -> None:
        results = f.inlined(op.body, [number, *map(code.read, carried)])
        for variable, result in zip(carried, results, strict=True):
            code.write(variable, result)

    def four() -> None:
        first = code.read(counter)
        pieces = {row: _pieces(f, op, row, loads, first) for row, loads in rows.items()}
        for iteration in range(ITERATIONS):
            for row, loads in rows.items():
                for each, position in loads.items():
                    f.loaded[each] = pieces[row][iteration * row.stride + position]
            iterate(code.later(first, dtype, iteration))
        f.loaded.clear()
        code.write(counter, code.later(first, dtype, ITERATIONS))

    def one() -> None:
        number = code.read(counter)
        iterate(number)
        code.write(counter, code.later(number, dtype, 1))

    def until(limit: Operand, run: Callable[[], None]) -> None:
        is_below = functools.partial(code.compare, "lt", dtype)
        code.loop(lambda: is_below(code.read(counter), limit), run, unrolls=False)

    until(end, four)
    until(upper, one)
    for result, variable in zip(op.results, carried, strict=True):
        f.bind(result, code.read(variable))


def _are_aligned(f: ThreadFunction, op: ops.For, rows: Rows) -> Operand:
    """Return whether the first iteration and all arrays are aligned."""
    code, dtype = f.code, op.lower.type
    low = code.apply("and", dtype, f.use(op.lower), code.constant(ITERATIONS - 1, dtype))
    found = [code.compare("eq", dtype, low, code.constant(0, dtype))]
    for array, companion in dict.fromkeys((row.array, row.companion) for row in rows):
        low = code.convert(code.address_number(f.pointer(array, companion)), u64, u32)
        low = code.apply("and", u32, low, code.constant(PIECE - 1, u32))
        found.append(code.compare("eq", u32, low, code.constant(0, u32)))
    return functools.reduce(functools.partial(code.apply, "and", u1), found)


def _pieces(
    f: ThreadFunction, op: ops.For, row: Row, loads: dict[Operation, int], number: Operand
) -> dict[int, Operand]:
    """Load the words of a row that four iterations need, by their offsets."""
    code, dtype = f.code, row.array.dtype
    address = f.pointer(row.array, row.companion)
    moves = [(f.wide(value), step) for value, step in row.fixed]
    for index, step in [*moves, (code.convert(number, op.lower.type, i64), row.stride)]:
        nbytes = code.index("mul", index, code.constant(step, i64), signed=True)
        address = code.moved(address, nbytes, inside=True)
    words = [i * row.stride + position for i in range(ITERATIONS) for position in loads.values()]
    found: dict[int, Operand] = {}
    for start in sorted({word // PIECE * PIECE for word in words}):
        at = code.at(address, row.start + start)
        loaded = code.load_four_words(at, ArrayRef(row.array, row.companion))
        for k, word in enumerate(loaded):
            found[start + k * WORD] = from_word(code, dtype, word)
    return found
