"""Write the sums of products that a subgroup adds up by exchanging their factors.

Each thread stores its factors in shared memory, one row of it for each factor. The lanes form
groups, each of which adds up the products of as many threads. A lane of a group has a tile of the
outer product: it reads the factors of the tile's rows and columns, and multiplies each with each.
At the end the groups exchange columns of their tiles. 64 sums of products of 8 by 8 factors take 16
stores, 12 loads of 16 bytes, and 6 exchanges of a thread, where exchanging the products themselves
takes 62 exchanges and 124 selections.
"""

from __future__ import annotations

from octants.analysis.sums_of_products import MOST_FACTORS, PIECE, SumsOfProducts
from octants.codegen import arithmetic
from octants.codegen.function_emitter import ThreadFunction
from octants.codegen.instruction_writer import Operand, ThreadCode, UnaddressedElement
from octants.codegen.numbers_as_bits import from_word, to_word
from octants.types.scalars import DType, f32, u32


def shared_bytes(subgroups: int, lanes: int) -> int:
    """Return the shared memory of a block that `summed` uses."""
    return subgroups * MOST_FACTORS * _stride(lanes) * u32.size


def _stride(lanes: int) -> int:
    """Return the words of a factor's row, such that lanes read rows from different banks."""
    return lanes + PIECE


class _Tiles:
    """The tiles of the lanes of a subgroup.

    A lane of row r and column c in its group has the rows r, r + `rows`, ... of the outer product,
    and the columns c, c + `columns`, ...
    """

    def __init__(self, code: ThreadCode, products: SumsOfProducts) -> None:
        self.group = code.subgroup // PIECE
        self.width = len(products.columns)
        self.columns = self.width // PIECE
        self.rows = self.group // self.columns
        self.height = len(products.rows) // self.rows

    def numbers(self, row: int) -> list[int]:
        """Return the product of a row of its tile of which each lane has the sum at the end."""
        lanes = range(self.group * PIECE)
        return [
            (row * self.rows + lane // self.columns % self.rows) * self.width
            + lane // self.group * self.columns
            + lane % self.columns
            for lane in lanes
        ]


def summed(f: ThreadFunction, products: SumsOfProducts) -> list[tuple[Operand, list[int]]]:
    """Return sums of products over the threads of a subgroup, which are all here.

    Each comes with the numbers of the products of which the lanes have the sums.
    """
    code, lane, stride = f.code, f.code.lane(), _stride(f.code.subgroup)
    nbytes = shared_bytes(code.exchange_subgroups, code.subgroup)
    memory = code.shared_array("factors", u32, nbytes // u32.size)
    tiles = _Tiles(code, products)

    def constant(number: int) -> Operand:
        return code.constant(number, u32)

    def shifted(x: Operand, count: int) -> Operand:
        return code.apply("ushr", u32, x, constant(count.bit_length() - 1))

    def moved(base: Operand, x: Operand, step: int) -> Operand:
        return code.apply("add", u32, base, code.apply("mul", u32, x, constant(step)))

    def element(row: Operand, position: int) -> UnaddressedElement:
        return UnaddressedElement(memory, code.apply("add", u32, row, constant(position)))

    start = moved(constant(0), code.subgroup_in_block(), MOST_FACTORS * stride)
    own = code.apply("add", u32, start, lane)
    code.barrier("subgroup")
    for position, factor in enumerate((*products.rows, *products.columns)):
        code.store(element(own, position * stride), u32, to_word(code, f32, f.use(factor)))
    code.barrier("subgroup")
    first = moved(start, shifted(lane, tiles.group), tiles.group)
    row = code.apply("and", u32, shifted(lane, tiles.columns), constant(tiles.rows - 1))
    column = code.apply("and", u32, lane, constant(tiles.columns - 1))
    left = moved(first, row, stride)
    above = moved(moved(first, column, stride), constant(len(products.rows)), stride)

    def read(base: Operand, step: int, count: int, item: int) -> list[Operand]:
        words = (element(base, k * step * stride + item) for k in range(count))
        return [from_word(code, f32, code.load(word, u32)) for word in words]

    totals: list[list[Operand]] = []
    for item in range(tiles.group):
        a = read(left, tiles.rows, tiles.height, item)
        b = read(above, tiles.columns, PIECE, item)
        if item == 0:
            totals = [[code.apply("mul", f32, x, y) for y in b] for x in a]
            continue
        for x, line in zip(a, totals, strict=True):
            line[:] = [
                code.apply("fma", f32, x, y, total) for y, total in zip(b, line, strict=True)
            ]
    return [
        (_exchanged(code, line, tiles.group), tiles.numbers(row)) for row, line in enumerate(totals)
    ]


def _exchanged(code: ThreadCode, line: list[Operand], distance: int) -> Operand:
    """Add up the columns of a tile's row over the groups; each group is left with one of them."""
    while len(line) > 1:
        bit = code.apply("and", u32, code.lane(), code.constant(distance, u32))
        is_upper = code.compare("ne", u32, bit, code.constant(0, u32))
        pairs = list(zip(line[::2], line[1::2], strict=True))
        kept = [code.choose(is_upper, f32, odd, even) for even, odd in pairs]
        sent = [code.choose(is_upper, f32, even, odd) for even, odd in pairs]
        line = [
            code.apply("add", f32, x, code.read_across(y, f32, distance=distance))
            for x, y in zip(kept, sent, strict=True)
        ]
        distance *= 2
    return line[0]


def number_at(code: ThreadCode, dtype: DType, numbers: list[int], which: Operand) -> Operand:
    """Return the one of some constants that is at a position (u32)."""
    constants = [code.constant(number, dtype) for number in numbers]
    return arithmetic.chosen(code, dtype, constants, which, u32)
