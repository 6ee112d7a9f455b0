"""Write the sums of products that a subgroup adds up by exchanging their factors.

Each thread stores its factors in shared memory, one row of it for each factor. The lanes form
groups, each of which adds up the products of as many threads. A lane of a group has a tile of the
outer product: it reads the factors of the tile's rows and columns, and multiplies each with each.
At the end the groups exchange columns of their tiles. 64 sums of products of 8 by 8 factors take 16
stores, 12 loads of 16 bytes, and 6 exchanges of a thread, where exchanging the products themselves
takes 62 exchanges and 124 selections.
"""

from __future__ import annotations

from collections.abc import Callable

from octants.analysis.sums.sums_of_products import MOST_FACTORS, PIECE, ROWS, SumsOfProducts
from octants.codegen import arithmetic
from octants.codegen.function_emitter import ThreadFunction
from octants.codegen.instruction_writer import Operand, Pointer, ThreadCode, UnaddressedElement
from octants.codegen.numbers_as_bits import from_word, to_word
from octants.types.scalars import DType, f32, u1, u32


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


class _Factors:
    """The factors of the threads of a block in shared memory.

    The rows of a subgroup begin at `start`, and the factors of a thread are at `own` in each row.
    """

    def __init__(self, f: ThreadFunction, products: SumsOfProducts) -> None:
        self._f, self._code = f, f.code
        self._factors = (*products.rows, *products.columns)
        nbytes = shared_bytes(f.code.exchange_subgroups, f.code.subgroup)
        self._memory = f.code.shared_array("factors", u32, nbytes // u32.size)
        self.stride = _stride(f.code.subgroup)
        subgroup = f.code.subgroup_in_block()
        self.start = self.moved(self.constant(0), subgroup, MOST_FACTORS * self.stride)
        self.own = f.code.apply("add", u32, self.start, f.code.lane())

    def constant(self, number: int) -> Operand:
        return self._code.constant(number, u32)

    def shifted(self, x: Operand, count: int) -> Operand:
        """Divide by a power of two."""
        return self._code.apply("ushr", u32, x, self.constant(count.bit_length() - 1))

    def masked(self, x: Operand, count: int) -> Operand:
        """Return the remainder of the division by a power of two."""
        return self._code.apply("and", u32, x, self.constant(count - 1))

    def moved(self, base: Operand, x: Operand, step: int) -> Operand:
        further = self._code.apply("mul", u32, x, self.constant(step))
        return self._code.apply("add", u32, base, further)

    def _element(self, base: Operand, position: int) -> UnaddressedElement:
        index = self._code.apply("add", u32, base, self.constant(position))
        return UnaddressedElement(self._memory, index)

    def store(self) -> None:
        """Store those of the thread."""
        for row, factor in enumerate(self._factors):
            word = to_word(self._code, f32, self._f.use(factor))
            self._code.store(self._element(self.own, row * self.stride), u32, word)

    def read(self, base: Operand, position: int = 0) -> Operand:
        """Read one."""
        return from_word(self._code, f32, self._code.load(self._element(base, position), u32))


def summed(f: ThreadFunction, products: SumsOfProducts) -> list[tuple[Operand, list[int]]]:
    """Return sums of products over the threads of a subgroup, which are all here.

    Each comes with the numbers of the products of which the lanes have the sums.
    """
    code, lane = f.code, f.code.lane()
    tiles, factors = _Tiles(code, products), _Factors(f, products)
    stride = factors.stride
    factors.store()
    code.barrier("subgroup")
    first = factors.moved(factors.start, factors.shifted(lane, tiles.group), tiles.group)
    row = factors.masked(factors.shifted(lane, tiles.columns), tiles.rows)
    left = factors.moved(first, row, stride)
    above = factors.moved(first, factors.masked(lane, tiles.columns), stride)
    above = factors.moved(above, factors.constant(len(products.rows)), stride)

    def read(base: Operand, step: int, count: int, item: int) -> list[Operand]:
        return [factors.read(base, k * step * stride + item) for k in range(count)]

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
    code.barrier("subgroup")  # before threads store other factors
    return [
        (_exchanged(code, line, tiles.group), tiles.numbers(row)) for row, line in enumerate(totals)
    ]


def one_by_one(
    f: ThreadFunction,
    products: SumsOfProducts,
    update: Callable[[Operand, Operand, Operand], object],
) -> None:
    """Write a loop over the products of a thread that does not exchange factors.

    ``update`` writes what is done with each, from its row, its column (u32) and its value. It is a
    loop since this code hardly ever runs, but takes time to compile.
    """
    code, factors = f.code, _Factors(f, products)
    factors.store()
    number, width = code.variable(u32), len(products.columns)
    code.write(number, factors.constant(0))
    columns = factors.moved(factors.own, factors.constant(len(products.rows)), factors.stride)

    def iterate() -> None:
        row = factors.shifted(code.read(number), width)
        column = factors.masked(code.read(number), width)
        a = factors.read(factors.moved(factors.own, row, factors.stride))
        b = factors.read(factors.moved(columns, column, factors.stride))
        product = code.apply("mul", f32, a, b)
        if products.guard:
            zero, guard = code.constant(0.0, f32), a if products.guard == ROWS else b
            product = code.choose(code.compare("ne", f32, guard, zero), f32, product, zero)
        update(row, column, product)
        code.write(number, code.apply("add", u32, code.read(number), factors.constant(1)))

    end = factors.constant(width * len(products.rows))
    code.loop(lambda: code.compare("lt", u32, code.read(number), end), iterate)


def by_address(
    f: ThreadFunction,
    products: SumsOfProducts,
    address: Pointer,
    update: Callable[[Operand, Operand, Operand], object],
) -> None:
    """Write loops that add up the products of those arriving threads that have one address.

    ``update`` writes what is done with each total, as in `one_by_one`. Each of the threads adds up
    every so many pieces of a row; a thread that has the address for itself, its own products. These
    are loops since the code runs in branches, and in subgroups with threads that have no work item,
    but takes time to compile.
    """
    code, factors, width = f.code, _Factors(f, products), len(products.columns) // PIECE
    here, own = code.lanes_by_address(address)
    factors.store()
    code.barrier_among(here)
    one = factors.constant(1)
    lower = code.apply("sub", u32, code.apply("shl", u32, one, code.lane()), one)
    rank = code.apply("popcount", u32, code.apply("and", u32, own, lower))
    count, number = code.apply("popcount", u32, own), code.variable(u32)
    columns = factors.constant(len(products.rows) * factors.stride)
    columns = code.apply("add", u32, factors.start, columns)

    def iterate() -> None:
        row = factors.shifted(code.read(number), width)
        column = factors.masked(code.read(number), width)
        column = code.apply("mul", u32, column, factors.constant(PIECE))
        left = factors.moved(factors.start, row, factors.stride)
        above = factors.moved(columns, column, factors.stride)
        for k, total in enumerate(_piece(code, factors, products.guard, own, left, above)):
            update(row, code.apply("add", u32, column, factors.constant(k)), total)
        code.write(number, code.apply("add", u32, code.read(number), count))

    code.write(number, rank)
    end = factors.constant(width * len(products.rows))
    code.loop(lambda: code.compare("lt", u32, code.read(number), end), iterate)
    code.barrier_among(here)  # before threads store other factors


_AT_ONCE = 4
"""The lanes whose products an iteration adds, so that it does not wait for each of them."""


def _piece(
    code: ThreadCode,
    factors: _Factors,
    guard: str,
    lanes: Operand,
    left: Operand,
    above: Operand,
) -> list[Operand]:
    """Write a loop that adds up products of lanes (bits, u32), of a row and a piece's columns."""
    bits, totals = code.variable(u32), [code.variable(f32) for _ in range(PIECE)]
    zero, one, none = code.constant(0.0, f32), factors.constant(1), factors.constant(0)

    def add() -> None:
        before = code.read(bits)
        rest = code.apply("and", u32, before, code.apply("sub", u32, before, one))
        lowest = code.apply("xor", u32, before, rest)
        lane = code.apply("popcount", u32, code.apply("sub", u32, lowest, one))
        is_one = code.compare("ne", u32, before, none)
        code.write(bits, rest)
        a, first = (
            factors.read(code.apply("add", u32, left, lane)),
            code.apply("add", u32, above, lane),
        )
        for k, total in enumerate(totals):
            b, adds = factors.read(first, k * factors.stride), is_one
            if guard:
                other = code.compare("ne", f32, a if guard == ROWS else b, zero)
                adds = code.apply("and", u1, is_one, other)
            both = code.apply("fma", f32, a, b, code.read(total))
            code.write(total, code.choose(adds, f32, both, code.read(total)))

    def add_several() -> None:
        for _ in range(_AT_ONCE):
            add()

    code.write(bits, lanes)
    for total in totals:
        code.write(total, zero)
    code.loop(lambda: code.compare("ne", u32, code.read(bits), none), add_several)
    return [code.read(total) for total in totals]


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
