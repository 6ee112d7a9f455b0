"""Write the sums of products that a subgroup adds up by exchanging their factors.

Each thread stores its factors in shared memory, one row of it for each factor. Then each lane reads
the two rows of one product, and adds up what their elements give: 32 products for 32 sums, where
exchanging the products themselves takes 32 products, 31 exchanges and 62 selections.
"""

from __future__ import annotations

from collections.abc import Sequence

from octants.analysis.sums_of_products import MOST_FACTORS, SumsOfProducts
from octants.codegen import arithmetic
from octants.codegen.function_emitter import ThreadFunction
from octants.codegen.instruction_writer import Operand, ThreadCode, UnaddressedElement
from octants.codegen.numbers_as_bits import from_word, to_word
from octants.types.scalars import DType, f32, u32

_PIECE = 4
"""The elements that one load reads; so many partial sums do not wait for each other."""


def shared_bytes(code: ThreadCode) -> int:
    """Return the shared memory of a block that `summed` uses."""
    return code.exchange_subgroups * MOST_FACTORS * _stride(code) * u32.size


def _stride(code: ThreadCode) -> int:
    """Return the words of a factor's row, such that lanes read rows from different banks."""
    return code.subgroup + _PIECE


def summed(f: ThreadFunction, products: SumsOfProducts) -> list[Operand]:
    """Return the sums, over the threads of a subgroup, of the product with the lane's number.

    All threads are here. If there are twice as many products as threads, the second sum is that of
    the product with the number of the lane and as many as there are lanes.
    """
    code, lanes, stride = f.code, f.code.subgroup, _stride(f.code)
    memory = code.shared_array("factors", u32, shared_bytes(code) // u32.size)
    lane = code.lane()
    shift = code.constant(lanes.bit_length() - 1, u32)
    number = code.apply("ushr", u32, code.thread_in_block(), shift)
    start = code.apply("mul", u32, number, code.constant(MOST_FACTORS * stride, u32))

    def element(row: Operand, position: int) -> UnaddressedElement:
        return UnaddressedElement(memory, code.apply("add", u32, row, code.constant(position, u32)))

    code.barrier("subgroup")
    own = code.apply("add", u32, start, lane)
    for position, factor in enumerate(products.factors):
        code.store(element(own, position * stride), u32, to_word(code, f32, f.use(factor)))
    code.barrier("subgroup")

    def total(pairs: Sequence[tuple[int, int]]) -> Operand:
        sides = [[stride * pair[side] for pair in pairs] for side in range(2)]
        rows = [code.apply("add", u32, start, number_at(code, u32, side, lane)) for side in sides]
        totals: list[Operand] = []
        for position in range(lanes):
            a, b = (from_word(code, f32, code.load(element(row, position), u32)) for row in rows)
            if position < _PIECE:
                totals.append(code.apply("mul", f32, a, b))
            else:
                part = position % _PIECE
                totals[part] = code.apply("fma", f32, a, b, totals[part])
        while len(totals) > 1:
            both = zip(totals[::2], totals[1::2], strict=True)
            totals = [code.apply("add", f32, a, b) for a, b in both]
        return totals[0]

    pairs = products.pairs
    return [total(pairs[first : first + lanes]) for first in range(0, len(pairs), lanes)]


def number_at(code: ThreadCode, dtype: DType, numbers: list[int], which: Operand) -> Operand:
    """Return the one of some constants that is at a position (u32)."""
    constants = [code.constant(number, dtype) for number in numbers]
    return arithmetic.chosen(code, dtype, constants, which, u32)
