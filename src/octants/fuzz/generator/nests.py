"""Nests of three to five loops that update matrices and vectors in place, such as factorisations.

The matrices are local, or rows of arrays that a work item owns. All elements stay within `_BOUND`.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from octants.fuzz.generator import vectors
from octants.fuzz.generator.bounded_expressions import fitting, within
from octants.fuzz.generator.context import ArrayInfo, Context, Productions, Role, Shared, Variable
from octants.fuzz.generator.racy_loops import Scalar

_BOUND = 2.0
_MOST = 4  # the largest integer that is passed
_SIZES = 3, 4, 4, 4, 17, 20
"""The extents of rows: compilers unroll loops over short ones."""
_MOST_COST = 2500.0  # of a kernel


def declare(shared: Shared) -> list[str]:
    """Make the arrays of the program: constants, matrices and vectors of work items, and sums."""
    return _declare(shared, shared.rng.randint(3, 4))


def declare_rows(shared: Shared) -> list[str]:
    """Make the same arrays, with rows that may be too long to be unrolled."""
    size = shared.rng.choice(_SIZES)
    if size > _MOST:
        shared.extents = (shared.rng.randint(2, 4), shared.extents[1])
    return _declare(shared, size)


def _declare(shared: Shared, size: int) -> list[str]:
    rng, n = shared.rng, shared.extents[0]
    fields = rng.choice([True, False])

    def make(prefix: str, shape: tuple[int, ...], *, constant: bool = False) -> ArrayInfo:
        array = ArrayInfo(shared.fresh(prefix), "f", shape, (), fields, constant=constant)
        shared.arrays.append(array)
        return array

    shared.arrays, shared.deep = [], (size, size, n)
    shared.overwrites = True
    make("x", (n, size), constant=True)
    make("w", (size, size), constant=True)
    lengths = make("t", (n,), constant=True)
    lengths.sort, lengths.dtype, lengths.has_grad, lengths.low, lengths.high = (
        "i",
        "qd.i32",
        False,
        0,
        4,
    )
    make("m", (size, size, n) if rng.random() < 0.5 else (n, size, size))
    make("y", (size, n) if rng.random() < 0.5 else (n, size))
    make("z", (3,))
    return []


def body(c: Context) -> list[Scalar]:
    """Write the loops of a kernel; gives the numbers that it is passed."""
    return _body(c, _NESTS)


def rows_body(c: Context) -> list[Scalar]:
    """Write loops of a kernel that read and update rows."""
    return _body(c, [_Loop._rows])


def _body(c: Context, nests: list[_Nest]) -> list[Scalar]:
    count = Variable(c.shared.fresh("m"), "i", 0, _MOST, frozen=True)
    c.scopes[0].append(count)
    for _ in range(c.pick([1, 1, 1, 2])):
        _Loop(c, count.name, nests).write()
    return [(count, "qd.i32", c.integer(1, _MOST))]


@dataclass(frozen=True)
class _Elements:
    """A matrix or a vector that nests update: the text of an element, with indices in braces."""

    template: str

    def at(self, *indices: str) -> str:
        return self.template.format(*indices)


class _Loop:
    """A parallel loop that is being written, with nests in it."""

    def __init__(self, c: Context, count: str, nests: list[_Nest]) -> None:
        self.c, self.count, self._nests = c, count, nests
        self.size, self.item = c.shared.deep[0], c.shared.fresh("i")
        self.vector = self.carried = ""

    def write(self) -> None:
        c, n = self.c, self.c.shared.extents[0]
        item = self.item
        x, w, lengths, m, y, z = c.shared.arrays
        c.roles = {array.name: Role("read") for array in (x, w, lengths)}
        c.roles[z.name] = Role("accumulate")
        with c.block(f"for {item} in range({n}):", trips=float(n)):
            c.scopes[-1].append(Variable(item, "i", 0, n - 1, frozen=True))
            matrix = self._elements(m, item) if c.chance(0.6) else self._local((self.size,) * 2)
            vector = self._elements(y, item) if c.chance(0.6) else self._local((self.size,))
            self.carried = self._declare("s", fitting(c, 1.0, 1).text)
            self.vector = self._declare("v", vectors.literal(c, (3,), 1), (3,)) * c.chance(0.5)
            self.length = self._length()
            for _ in range(c.pick([1, 1, 2])):
                if c.cost < _MOST_COST / 2:
                    self._nest(matrix, vector)
            self._finish(self._elements(m, item), matrix, self._elements(y, item), vector, z)
        c.roles = {}

    # -- what is updated ---------------------------------------------------------------------------

    def _elements(self, array: ArrayInfo, item: str) -> _Elements:
        """The elements of an array that belong to a work item."""
        rank = len(array.shape)
        inner = [f"{{{number}}}" for number in range(rank - 1)]
        is_first = array.shape[-1] == self.size and array.shape[0] == self.c.shared.extents[0]
        indices = [item, *inner] if is_first else [*inner, item]
        return _Elements(array.at(", ".join(indices)))

    def _local(self, shape: tuple[int, ...]) -> _Elements:
        """A local matrix or vector."""
        c = self.c
        c.note("nest: a local matrix" if len(shape) == 2 else "nest: a local vector")
        rows = [f"{fitting(c, 1.0, 1).text} + {0.1 * k:.1f}" for k in range(shape[0])]
        if len(shape) == 2:
            rows = [
                f"[{', '.join(f'{0.3 * (k == j):.1f} + 0.5 * ({row})' for j in range(shape[1]))}]"
                for k, row in enumerate(rows)
            ]
        kind = "Matrix" if len(shape) == 2 else "Vector"
        name = self._declare("v", f"qd.{kind}([{', '.join(rows)}])", shape)
        return _Elements(f"{name}[{', '.join(['{0}', '{1}'][: len(shape)])}]")

    def _declare(self, prefix: str, value: str, shape: tuple[int, ...] = ()) -> str:
        """A local, which other statements read only."""
        name = self.c.shared.fresh(prefix)
        self.c.emit(f"{name} = {value}")
        self.c.scopes[-1].append(Variable(name, "f", -_BOUND, _BOUND, shape, frozen=True))
        return name

    def _length(self) -> str:
        """A trip count up to the size, which may differ from work item to work item."""
        size, item, lengths = self.size, self.item, self.c.shared.arrays[2]
        texts = [str(size), str(size), f"qd.min({self.count}, {size})"]
        texts.append(f"qd.min({lengths.at(item)}, {size})")
        return self.c.pick(texts)

    # -- loops -------------------------------------------------------------------------------------

    @contextlib.contextmanager
    def _loop(self, lower: str, upper: str, *, may_be_while: bool = True) -> Iterator[str]:
        """A loop from a bound to another one; gives the text of its counter."""
        c, name = self.c, self.c.shared.fresh("k")
        trips = self.size * 0.6
        form = c.rng.choices(["for", "down", "while"], [8, 1, 1.5 if may_be_while else 0])[0]
        if form == "while":
            c.note("nest: while")
            c.emit(f"{name} = {lower}")
            with c.block(f"while {name} < {upper}:", trips=trips):
                yield name
                c.emit(f"{name} += 1")
            return
        header = f"range({lower}, {upper})" if lower != "0" else f"range({upper})"
        if form == "down":
            header = f"range(({upper}) - 1, ({lower}) - 1, -1)"
        with c.block(f"for {name} in {header}:", trips=trips):
            yield name

    def _nest(self, matrix: _Elements, vector: _Elements) -> None:
        """A nest, perhaps in a loop that repeats it, and under a condition."""
        c = self.c
        write = c.pick(self._nests)
        with contextlib.ExitStack() as blocks:
            if c.chance(0.35):
                c.note("nest: repeated")
                sweep = c.shared.fresh("k")
                blocks.enter_context(
                    c.block(f"for {sweep} in range({c.integer(1, 2)}):", trips=2.0)
                )
            if c.chance(0.2):
                blocks.enter_context(c.block(f"if {c.truth(1)}:", trips=0.7))
            c.note(f"nest: {write.__name__[1:].replace('_', ' ')}")
            write(self, matrix, vector)

    def _carry(self, value: str) -> None:
        """Update what the loops carry, perhaps."""
        c = self.c
        if c.chance(0.3):
            c.emit(f"{self.carried} = 0.7 * {self.carried} + 0.3 * qd.sin({value})")
        if self.vector and c.chance(0.3):
            terms = f"qd.sin({value}), {self.carried}, 0.5 * {self.vector}[0]"
            c.emit(f"{self.vector} = 0.6 * {self.vector} + 0.3 * qd.Vector([{terms}])")

    def _function_of(self, total: str, bound: float) -> str:
        """A function of a sum that is as small as an element, perhaps with what loops carry."""
        c = self.c
        scale = f"{int(100 * 1.4 / bound) / 100} * {total}"
        functions = [scale, scale, scale, f"qd.tanh({total})", f"1.4 * qd.sin({total} + 0.3)"]
        functions.append(f"0.4 * qd.sqrt(0.2 + {total} * {total})" if bound < 4.5 else scale)
        extra = [f" + 0.2 * {self.carried}"]
        if self.vector:
            extra.append(f" + 0.2 * {self.vector}[{c.integer(0, 2)}]")
        return c.pick(functions) + (c.pick(extra) if c.chance(0.3) else "")

    def _leave(self, total: str) -> None:
        """Perhaps an early end of an iteration or of the loop."""
        c = self.c
        if c.chance(0.12):
            with c.block(f"if {total} > {round(c.rng.uniform(0.3, 1.5), 2)}:"):
                c.emit("break")

    # -- nests -------------------------------------------------------------------------------------

    def _factor(self, a: _Elements, _: _Elements) -> None:
        """As Cholesky's: each element minus products of elements before it."""
        c, total = self.c, self.c.shared.fresh("s")
        with self._loop("0", self.length) as i:
            bound = c.pick([f"{i} + 1", f"{i} + 1", str(self.size), i])
            with self._loop("0", bound) as j:
                c.emit(f"{total} = {a.at(i, j)}")
                with self._loop("0", c.pick([j, j, i, str(self.size)])) as k:
                    second = c.pick([a.at(j, k), a.at(j, k), a.at(k, j), a.at(i, k)])
                    c.emit(f"{total} -= 0.1 * {a.at(i, k)} * {second}")
                    self._carry(a.at(i, k))
                    self._leave(total)
                if c.chance(0.3):
                    with c.block(f"if {i} == {j}:"):
                        c.emit(f"{total} = qd.sqrt(0.3 + {total} * {total})")
                c.emit(f"{a.at(i, j)} = {self._function_of(total, 4.0)}")
                self._carry(a.at(i, j))

    def _eliminate(self, a: _Elements, _: _Elements) -> None:
        """As Gauss's: rows minus multiples of the row of a pivot."""
        c, factor = self.c, self.c.shared.fresh("s")
        with self._loop("0", self.length) as k, self._loop(f"{k} + 1", str(self.size)) as i:
            c.emit(f"{factor} = {a.at(i, k)} / (1.0 + {a.at(k, k)} * {a.at(k, k)})")
            with self._loop(c.pick([k, f"{k} + 1", "0"]), str(self.size)) as j:
                c.emit(f"{a.at(i, j)} = 0.5 * ({a.at(i, j)} - 0.4 * {factor} * {a.at(k, j)})")
                self._carry(a.at(i, j))
            if c.chance(0.5):
                c.emit(f"{a.at(i, k)} = {self._function_of(factor, 2.0)}")

    def _substitute(self, a: _Elements, v: _Elements) -> None:
        """Unknowns one after the other, from those before."""
        c, total = self.c, self.c.shared.fresh("s")
        with contextlib.ExitStack() as blocks:
            if c.chance(0.6):  # for several right-hand sides
                blocks.enter_context(self._loop("0", c.pick(["2", self.length])))
            with self._loop("0", self.length) as i:
                c.emit(f"{total} = {v.at(i)}")
                with self._loop("0", i) as j:
                    c.emit(f"{total} -= 0.2 * {a.at(i, j)} * {v.at(j)}")
                    self._carry(v.at(j))
                    self._leave(total)
                c.emit(f"{v.at(i)} = {self._function_of(total, 5.2)}")

    def _wavefront(self, a: _Elements, v: _Elements) -> None:
        """Each element from its neighbours on two sides, some of which are new."""
        c = self.c
        with (
            self._loop("0", "2", may_be_while=False),
            self._loop("1", self.length) as i,
            self._loop("1", str(self.size)) as j,
        ):
            above, left = a.at(f"{i} - 1", j), a.at(i, f"{j} - 1")
            corner = c.pick([a.at(f"{i} - 1", f"{j} - 1"), v.at(j), a.at(i, j)])
            c.emit(f"{a.at(i, j)} = 0.4 * {above} + 0.3 * {left} + 0.5 * qd.sin({corner})")
            self._carry(corner)
            if c.chance(0.4):
                with self._loop("0", j) as k:
                    c.emit(f"{v.at(k)} = 0.6 * {v.at(k)} + 0.3 * {a.at(i, k)}")

    def _sort(self, a: _Elements, v: _Elements) -> None:
        """Exchanges of neighbours in the wrong order."""
        c, kept = self.c, self.c.shared.fresh("s")
        with self._loop("0", self.length, may_be_while=False) as row:
            with (
                self._loop("0", str(self.size)) as i,
                self._loop("0", f"{self.size} - 1 - {i}") as j,
            ):
                one, other = (a.at(row, j), a.at(row, f"{j} + 1"))
                with c.block(f"if {one} > {other}:", trips=0.5):
                    c.emit(f"{kept} = {one}")
                    c.emit(f"{one} = {other}")
                    c.emit(f"{other} = {kept}")
                    self._carry(kept)
            c.emit(f"{v.at(row)} = 0.5 * {v.at(row)} + 0.4 * {a.at(row, '0')}")

    def _multiply(self, a: _Elements, v: _Elements) -> None:
        """Powers of a matrix times a vector, row by row in place."""
        c, total = self.c, self.c.shared.fresh("s")
        with self._loop("0", "2", may_be_while=False), self._loop("0", self.length) as i:
            c.emit(f"{total} = 0.1")
            with self._loop("0", str(self.size)) as j:
                c.emit(f"{total} = 0.0")
                with self._loop("0", str(self.size)) as k:
                    c.emit(f"{total} += 0.15 * {a.at(i, k)} * {c.pick([a.at(k, j), v.at(k)])}")
                    self._carry(a.at(i, k))
                c.emit(f"{a.at(i, j)} = {self._function_of(f'({total} + {a.at(i, j)})', 4.4)}")
            c.emit(f"{v.at(i)} = {self._function_of(total, 2.4)}")

    def _rows(self, _: _Elements, v: _Elements) -> None:
        """Loops that read a row again; loops between them, which may be empty, add to it."""
        c, size = self.c, self.size
        x, w, y = (c.shared.arrays[number] for number in (0, 1, 4))
        is_linear = c.chance(0.5)  # then a gradient needs no element that was overwritten
        row, forms = v, ["product", "sum"] if is_linear else ["product", "product", "sum", "store"]
        if c.chance(0.15):
            row, forms = self._elements(x, self.item), ["product"]
        elif c.chance(0.8):
            row = self._elements(y, self.item)
        first, last = c.pick([(0, size), (0, size), (1, size), (0, size - 1)])
        for number in range(c.integer(2, 5)):
            form = forms[number % 2] if is_linear and len(forms) > 1 else c.pick(forms)
            c.note(f"nest: rows: {form}")
            if form == "store":
                self._store(row)
                continue
            with contextlib.ExitStack() as blocks:
                if is_linear:
                    names = c.shared.fresh("k"), c.shared.fresh("k")
                    bounds = self._length(), f"{first}, {last}"
                    for name, bound in zip(names, bounds, strict=True):
                        header = f"for {name} in range({bound}):"
                        blocks.enter_context(c.block(header, trips=self.size * 0.6))
                    i, j = names
                else:
                    i = blocks.enter_context(self._loop("0", self._length()))
                    j = blocks.enter_context(self._loop(str(first), str(last)))
                element = row.at(c.pick([j] * 12 + [f"{first + last - 1} - {j}"]))
                share = round(0.32 / size**2, 5)
                factor = f"{share} * " + w.at(f"{i}, {j}")
                if is_linear:
                    factor = f"{round(4 * share / size, 6)} * ({i} - {j} + 0.5)"
                if form == "product":
                    c.emit(f"{self.carried} += {factor} * {element}")
                else:
                    c.emit(f"{element} += {factor} * {self.carried}")

    def _store(self, row: _Elements) -> None:
        """Change an element of a row, perhaps under a condition."""
        c = self.c
        with contextlib.ExitStack() as blocks:
            if c.chance(0.3):
                blocks.enter_context(c.block(f"if {c.truth(1)}:", trips=0.7))
            element = row.at(str(c.integer(0, self.size - 1)))
            c.emit(f"{element} = 0.5 * {element} + 0.4 * qd.sin({self.carried})")

    # -- results -----------------------------------------------------------------------------------

    def _finish(
        self, m: _Elements, matrix: _Elements, y: _Elements, vector: _Elements, z: ArrayInfo
    ) -> None:
        """Store what is local, or some of it, and add up what the loops carry."""
        c = self.c
        for target, source, rank in ((m, matrix, 2), (y, vector, 1)):
            if target != source:
                with contextlib.ExitStack() as blocks:
                    counters = [
                        blocks.enter_context(self._loop("0", str(self.size), may_be_while=False))
                        for _ in range(rank)
                    ]
                    c.emit(f"{target.at(*counters)} = {source.at(*counters)}")
        index = within(c, c.whole(0), 3).text
        rest = f" + {self.vector}.sum()" if self.vector else ""
        c.emit(f"{z.at(index)} += 0.3 * {self.carried}{rest}")


_Nest = Callable[[_Loop, _Elements, _Elements], None]
_NESTS: list[_Nest] = [
    _Loop._factor,
    _Loop._factor,
    _Loop._eliminate,
    _Loop._substitute,
    _Loop._wavefront,
    _Loop._sort,
    _Loop._multiply,
    *[_Loop._rows] * 4,
]

PRODUCTIONS = Productions(declare=declare)
ROWS = Productions(declare=declare_rows)
