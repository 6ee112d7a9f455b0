"""Loops whose work items share a block: shared arrays, barriers, sums and scans, shuffles.

Between two barriers each shared array is either stored to, element by element by its own work
item, or read, or added to, so that programs do not race. Some elements are stored by all work items
of a block, which store one number.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from octants.fuzz.generator import array_elements, bounded_expressions
from octants.fuzz.generator.bounded_expressions import fitting, within
from octants.fuzz.generator.context import (
    ArrayInfo,
    Context,
    Expr,
    Productions,
    Role,
    Shared,
    Variable,
)
from octants.fuzz.generator.racy_loops import Scalar

_BLOCK = "qd.simt.block"
_SUBGROUP = "qd.simt.subgroup"
_SIZES = (1, 2, 4, 5, 8, 8, 16, 32)
_MOST = 3  # the largest integer that is passed
_SUMS = 4  # elements of the array that all work items add to
_LOCAL = 4.0  # the bound of locals


def declare(shared: Shared) -> list[str]:
    """Make the arrays of the program: constants, arrays of rows for each work item, and sums."""
    rng, n = shared.rng, shared.extents[0]
    shared.overwrites = rng.random() < 0.2
    fields = rng.choice([True, False])

    def make(prefix: str, sort: str, shape: tuple[int, ...], *, constant: bool) -> ArrayInfo:
        array = ArrayInfo(shared.fresh(prefix), sort, shape, (), fields, constant=constant)
        if sort == "i":
            array.dtype, array.has_grad, array.low, array.high = "qd.i32", False, 0, 4
        return array

    shared.arrays = [
        make("x", "f", (n,), constant=True),
        make("w", "f", (_SUMS,), constant=True),
        make("t", "i", (n,), constant=True),
        make("y", "f", (n,), constant=False),
        make("y", "f", (n, 2), constant=False),
        make("u", "i", (n,), constant=False),
        make("z", "f", (_SUMS,), constant=False),
        make("b", "f", (n,), constant=False),
    ]
    shared.arrays[0].element_shape = rng.choice([(), (), (), (2,)])
    return []


def body(c: Context) -> list[Scalar]:
    """Write the loops of a kernel; gives the numbers that it is passed."""
    variable = Variable(c.shared.fresh("m"), "i", 0, _MOST, frozen=True)
    c.scopes[0].append(variable)
    for _ in range(c.pick([1, 1, 1, 2])):
        _Loop(c, variable).write()
    return [(variable, "qd.i32", c.integer(0, _MOST))]


@dataclass
class _SharedArray:
    """A shared array: what an element holds, and what work items do since the last barrier."""

    name: str
    sort: str
    columns: int  # 0 for one axis
    bound: float
    mode: str = ""  # "store", "read" or "add"; empty at first
    is_given: bool = False  # whether all of it was stored to


class _Loop:
    """A parallel loop that is being written."""

    def __init__(self, c: Context, argument: Variable) -> None:
        self.c = c
        self.argument = argument.name
        self.n = c.shared.extents[0]
        self.size = c.pick(_SIZES)
        self.arrays: list[_SharedArray] = []
        self.is_rich = c.chance(0.3)  # in control flow between barriers
        self.thread = self.count = ""
        self.totals: list[str] = []  # locals that are the same in all of a block

    def write(self) -> None:
        c = self.c
        counter = c.shared.fresh("i")
        rows, others, sums = c.shared.arrays[3:5], c.shared.arrays[5], c.shared.arrays[6]
        c.roles = {array.name: Role("read") for array in c.shared.arrays if array.constant}
        c.roles |= {array.name: Role("own", (counter,), 1) for array in (*rows, others)}
        c.roles[sums.name] = Role("accumulate")
        if not c.chance(0.05):
            c.emit(f"qd.loop_config(block_dim={self.size})")
        else:
            self.size = 128
        header = c.pick([f"range({self.n})", c.shared.arrays[0].name])
        c.note(f"block of {self.size}")
        with c.block(f"for {counter} in {header}:", trips=float(self.n)):
            c.scopes[-1].append(Variable(counter, "i", 0, self.n - 1, frozen=True))
            self.thread = self._declare_integer("thread_idx", 0, self.size - 1)
            self.count = self._declare_integer("size", 1, self.size)
            if c.chance(0.2):
                self._declare_integer("global_thread_idx", 0, self.n - 1)
            for _ in range(c.integer(2, 5)):
                self._step()
            self._finish(rows, others, sums)
            if self.totals:
                c.note("one number from a block")
                total = f"{c.pick(self.totals)} * {c.shared.arrays[1].at('1')}"
                c.emit(f"{c.shared.arrays[7].at(f'{counter} // {self.size}')} = {total}")
        c.roles = {}

    def _declare_integer(self, word: str, low: int, high: int) -> str:
        variable = self.c.declare("n", "i", low, high, frozen=True)
        self.c.emit(f"{variable.name} = {_BLOCK}.{word}()")
        return variable.name

    def _step(self) -> None:
        table = [
            (4.0, _Loop._share),
            (3.0, _Loop._cooperate),
            (1.5, _Loop._iterate),
            (0.3, _Loop._branch),
            (0.4, _Loop._share_one),
            (1.0, _Loop._local),
        ]
        options = self.c.rng.choices([make for _, make in table], [weight for weight, _ in table])
        options[0](self)

    # -- shared arrays -----------------------------------------------------------------------------

    def _share(self) -> None:
        """Stores, a barrier, and reads or additions."""
        c = self.c
        array = c.pick(self.arrays) if self.arrays and c.chance(0.4) else self._declare()
        if array.mode not in ("", "store"):
            self._synchronise()
        self._store(array)
        if c.chance(0.3):
            self._store(array)
        self._synchronise()
        if c.chance(0.25):
            self._add(array)
            self._synchronise()
        for _ in range(c.integer(1, 2)):
            self._read(array)

    def _share_one(self) -> None:
        """One element, in which all work items store the same number."""
        c, weights = self.c, self.c.shared.arrays[1]
        c.note("shared number from a block")
        name, total = c.shared.fresh("p"), c.shared.fresh("s")
        shape = c.pick(["1", str(self.size)])
        c.emit(f"{name} = {_BLOCK}.SharedArray({shape}, FP)")
        value = c.pick(self.totals) if self.totals and c.chance(0.5) else weights.at("0")
        c.emit(f"{name}[0] = 0.5 * {value} * {weights.at(self.argument)}")
        self._synchronise()
        c.emit(f"{total} = qd.sin({name}[0]) * ({fitting(c, 1.0, 1).text})")
        c.scopes[-1].append(Variable(total, "f", -_LOCAL, _LOCAL))

    def _declare(self) -> _SharedArray:
        c = self.c
        sort, columns = c.pick(["f", "f", "f", "i"]), c.pick([0, 0, 0, 2])
        bound = _LOCAL if sort == "f" else 9
        array = _SharedArray(c.shared.fresh("p"), sort, columns, bound)
        shape = f"({self.size}, {columns})" if columns else str(self.size)
        c.note(f"shared array of {'floats' if sort == 'f' else 'integers'}")
        dtype = "FP" if sort == "f" else "qd.i32"
        c.emit(f"{array.name} = {_BLOCK}.SharedArray({shape}, {dtype})")
        self.arrays.append(array)
        return array

    def _synchronise(self) -> None:
        self.c.note("barrier")
        self.c.emit(f"{_BLOCK}.sync()")
        for array in self.arrays:
            array.mode = ""

    def _value(self, array: _SharedArray, bound: float) -> str:
        if array.sort == "f":
            return fitting(self.c, bound).text
        return within(self.c, self.c.whole(1), 9).text

    def _store(self, array: _SharedArray) -> None:
        """To elements of the work item's own; all of them at first."""
        c, array.mode = self.c, "store"
        elements = [self.thread]
        if array.columns:
            elements = [f"{self.thread}, {column}" for column in range(array.columns)]
        if array.is_given and c.chance(0.3):
            c.note("store under a condition")
            with c.block(f"if {c.truth()}:"):
                c.emit(f"{array.name}[{elements[0]}] = {self._value(array, array.bound)}")
            return
        if array.is_given and array.sort == "f" and c.chance(0.2):
            element = f"{array.name}[{elements[0]}]"
            c.emit(f"{element} = 0.5 * {element} + {self._value(array, 1.0)}")
            return
        if array.columns and c.chance(0.3):
            counter = c.shared.fresh("k")
            with c.block(f"for {counter} in range({array.columns}):"):
                value = self._value(array, array.bound)
                c.emit(f"{array.name}[{self.thread}, {counter}] = {value}")
        else:
            for element in elements:
                c.emit(f"{array.name}[{element}] = {self._value(array, array.bound)}")
        array.is_given = True

    def _add(self, array: _SharedArray) -> None:
        c, array.mode = self.c, "add"
        c.note("sum in a shared array")
        index = self._other_thread()
        if array.columns:
            index += f", {bounded_expressions.index(c, array.columns)}"
        value = self._value(array, 1.0)
        if c.chance(0.3):
            with c.block(f"if {c.truth()}:"):
                c.emit(f"{array.name}[{index}] += {value}")
        else:
            c.emit(f"{array.name}[{index}] += {value}")
        array.bound += self.size * (1.0 if array.sort == "f" else 9)

    def _other_thread(self) -> str:
        c = self.c
        t, n = self.thread, self.count
        offset = f"({t} + {c.integer(1, 3)}) % {n}"
        data = f"({bounded_expressions.index(c, 9)}) % {n}"
        return c.pick([t, f"{n} - 1 - {t}", offset, "0", f"({t} * 2) % {n}", data])

    def _element(self, array: _SharedArray, index: str) -> str:
        if array.columns:
            index += f", {bounded_expressions.index(self.c, array.columns)}"
        return f"{array.name}[{index}]"

    def _read(self, array: _SharedArray) -> None:
        c, array.mode = self.c, "read"
        if array.sort == "i":
            text = self._element(array, self._other_thread())
            c.emit(f"{c.declare('n', 'i', 0, int(array.bound)).name} = {text}")
            return
        kind = c.pick(["one", "one", "all", "under a condition"])
        c.note(f"read of a shared array: {kind}")
        if kind == "all":
            self._read_all(array)
            return
        text = self._element(array, self._other_thread())
        value = bounded_expressions.tame(c, Expr(text, -array.bound, array.bound), 2.0).text
        if kind == "one":
            value = f"{value} * ({fitting(c, 1.0, 1).text}) + {fitting(c, 2.0, 1).text}"
            c.emit(f"{c.declare('s', 'f', -_LOCAL, _LOCAL).name} = {value}")
            return
        name = c.shared.fresh("s")
        c.emit(f"{name} = {fitting(c, 2.0, 1).text}")
        with c.block(f"if {c.truth()}:"):
            c.emit(f"{name} {c.pick(['=', '+='])} {value}")
        c.scopes[-1].append(Variable(name, "f", -_LOCAL, _LOCAL))

    def _read_all(self, array: _SharedArray) -> None:
        c = self.c
        name, counter = c.shared.fresh("s"), c.shared.fresh("k")
        c.emit(f"{name} = {fitting(c, 1.0, 1).text}")
        header = f"for {counter} in range({self.count}):"
        share = round(2.0 / (self.size * array.bound), 5)
        with c.block(header, trips=float(self.size)):
            value = f"{share} * {self._element(array, counter)}"
            c.emit(f"{name} += {value} * ({fitting(c, 1.0, 1).text})")
        c.scopes[-1].append(Variable(name, "f", -_LOCAL, _LOCAL))

    # -- functions of blocks and subgroups ---------------------------------------------------------

    def _cooperate(self) -> None:
        c = self.c
        kind = c.pick(["sum", "sum", "scan", "integers", "count", "tiled", "shuffle"])
        c.note(f"block: {kind}")
        name = c.shared.fresh("n" if kind in ("integers", "count") else "s")
        value = fitting(c, 1.0).text
        low, high, size = -_LOCAL, _LOCAL, self.size
        if kind == "sum":
            word = c.pick(["reduce_add"] * 6 + ["reduce_min", "reduce_max"])
            text = f"{round(4.0 / size, 4)} * {_BLOCK}.{word}({value}, {size}, FP)"
            self.totals.append(name)
        elif kind == "scan":
            word = c.pick(["inclusive_add", "exclusive_add"] * 3 + ["inclusive_max"])
            text = f"{round(4.0 / size, 4)} * {_BLOCK}.{word}({value}, {size}, FP)"
        elif kind == "integers":
            word = c.pick(["reduce_add", "inclusive_add", "exclusive_add", "inclusive_min"])
            whole = within(c, c.whole(1), 9).text
            text, low, high = f"{_BLOCK}.{word}({whole}, {size}, qd.i32)", 0, 8 * size
        elif kind == "count":
            word = c.pick(["count", "any", "all"])
            text, low, high = f"{_BLOCK}.sync_{word}_nonzero({c.truth()})", 0, size
        elif kind == "tiled":
            word = c.pick(["reduce_add_tiled", "inclusive_add_tiled"])
            text = f"{_SUBGROUP}.{word}({value}, {c.integer(0, 2)})"
        else:
            text = f"{_SUBGROUP}.shuffle_xor({value}, {c.integer(1, 3)})"
        c.emit(f"{name} = {text}")
        c.scopes[-1].append(Variable(name, "i" if name[0] == "n" else "f", low, high))

    # -- control flow that a block shares ----------------------------------------------------------

    @contextmanager
    def _inside(self, header: str, trips: float) -> Iterator[None]:
        """A branch or a loop with barriers; arrays that are made in it are known in it."""
        known = list(self.arrays)
        self._synchronise()
        with self.c.block(header, trips=trips):
            yield
            self._synchronise()
        self.arrays = known

    def _iterate(self) -> None:
        """A serial loop with barriers, with an array of its own for the most part."""
        c = self.c
        if c.cost + 30 * self.n > 600:
            return
        c.note("loop with barriers")
        array = self._declare() if not self.arrays or c.chance(0.7) else c.pick(self.arrays)
        total, counter = c.shared.fresh("s"), c.shared.fresh("k")
        c.emit(f"{total} = {fitting(c, 1.0, 1).text}")
        bound = c.pick(["2", "3", self.argument, f"{self.argument} + 1", f"{self.count} % 3"])
        is_given, array.is_given = array.is_given, False
        with self._inside(f"for {counter} in range({bound}):", 2.0):
            c.scopes[-1].append(Variable(counter, "i", 0, 3, frozen=True))
            self._store(array)
            self._synchronise()
            if array.sort == "f":
                text = self._element(array, self._other_thread())
                tamed = bounded_expressions.tame(c, Expr(text, -array.bound, array.bound), 1.0)
                c.emit(f"{total} += {tamed.text} * ({fitting(c, 0.7, 1).text})")
            if self.is_rich or array.sort == "i":
                c.emit(f"{total} += {fitting(c, 0.7, 1).text}")
        array.is_given = is_given
        if array in self.arrays and c.chance(0.8):
            self.arrays.remove(array)
        c.scopes[-1].append(Variable(total, "f", -_LOCAL, _LOCAL))

    def _branch(self) -> None:
        c = self.c
        block = f"{_BLOCK}.global_thread_idx() // {self.size}"
        conditions = [f"{self.argument} > 1", f"{block} % 2 == 0", f"{self.count} > 2"]
        c.note("branch with barriers")
        total = c.shared.fresh("s")
        c.emit(f"{total} = {fitting(c, 1.0, 1).text}")
        with self._inside(f"if {c.pick(conditions)}:", 1.0):
            self._share()
            c.emit(f"{total} = {fitting(c, _LOCAL, 1).text}")
        c.scopes[-1].append(Variable(total, "f", -_LOCAL, _LOCAL))

    # -- each work item for itself -----------------------------------------------------------------

    def _local(self) -> None:
        if self.is_rich and self.c.affordable():
            self.c.statements(1)
        else:
            value = fitting(self.c, _LOCAL).text
            self.c.emit(f"{self.c.declare('s', 'f', -_LOCAL, _LOCAL).name} = {value}")

    def _finish(self, rows: list[ArrayInfo], others: ArrayInfo, sums: ArrayInfo) -> None:
        c = self.c
        names = [variable.name for variable in c.variables("f", ())]
        terms = [f"{round(c.rng.uniform(0.2, 0.6), 2)} * {name}" for name in names[-4:]]
        mixture = " + ".join([*terms, fitting(c, 1.0, 1).text])
        c.emit(
            f"{rows[0].at(array_elements.position(c, rows[0], c.roles[rows[0].name]))} = {mixture}"
        )
        if c.chance(0.4):
            row = array_elements.position(c, rows[1], c.roles[rows[1].name])
            c.emit(f"{rows[1].at(row)} = qd.sin({mixture})")
        if c.chance(0.4):
            index = bounded_expressions.index(c, _SUMS)
            c.emit(f"{sums.at(index)} += {fitting(c, _LOCAL, 1).text}")
        if c.chance(0.4):
            whole = within(c, c.whole(1), 5).text
            c.emit(
                f"{others.at(array_elements.position(c, others, c.roles[others.name]))} = {whole}"
            )


PRODUCTIONS = Productions(declare=declare)
