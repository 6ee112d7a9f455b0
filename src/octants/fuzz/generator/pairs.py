"""Sums over all pairs (i, j) of rows: a parallel loop over i with a serial one over j, or several.

Compilers exchange the two loops, and add up the terms of both rows together.
"""

from __future__ import annotations

import contextlib

from octants.fuzz.generator.context import ArrayInfo, Context, Productions, Shared, Variable
from octants.fuzz.generator.racy_loops import Scalar

_MOST = 33  # rows
_ENDS = ["n", "shape", "m", "t[0]", "t[1]", "local", "max", "inner"]
"""The places of the number of rows; the last is loaded again by each work item."""
_DIFFERENCES = ["{b} - {a}"] * 8 + ["{a} - {b}", "{a} + {b}", "0.3 * {a} - {b}", "{a} * {b}"]
_SCALES = [
    *["{r} ** -1.5", "1.0 / ({r} * qd.sqrt({r}))", "qd.exp(-{r})", "qd.max(1.5 - {r}, 0.0) ** 2"],
    *["qd.sin({r})", "0.5", "{q} * {p}", "{q} / qd.sqrt({r})", "({q} - {p}) * {r}", "1.0 - {r}"],
    *["qd.exp(-{r}) / ({r} + {q} * {q})", "qd.tanh({r} * {q})", "{q}", "{p} / {r}"],
]


def declare(shared: Shared) -> list[str]:
    """Make the arrays of the program: rows, weights, numbers of rows, and four for results."""
    rng, n = shared.rng, min(shared.extents[0], _MOST)
    shared.arrays, shared.extents = [], (n, n)
    element = rng.choice([(), (2,), (2,), (3,), (3,), (2, 2)])
    fields = rng.choice([True, True, False])
    splits = len(element) == 1 and rng.random() < 0.3  # components are an axis of the array
    shape, components = ((n, *element), ()) if splits else ((n,), element)
    types = ["FP"] * 8 + ["qd.f64", "qd.f32"]
    for prefix, extents, kind in (
        *[("x", shape, components), ("w", (n,), ())],
        *[("v", (n,), element), ("u", (n,), element), ("y", (n,), ()), ("z", (3,), ())],
    ):
        array = ArrayInfo(shared.fresh(prefix), "f", extents, kind, fields)
        array.constant = prefix in "xw"
        if prefix in "vy":
            array.dtype = rng.choice(types)
            array.sort = "f" if array.dtype == "FP" else "d"
        shared.arrays.append(array)
    content = [rng.choice([n, n, n - 1, rng.randint(-1, n)])] * 2
    if rng.random() < 0.4:
        content[1] = rng.randint(-1, n)
    ends = ArrayInfo(shared.fresh("t"), "i", (2,), (), fields, -1, n, dtype="qd.i32")
    ends.has_grad, ends.content = False, content
    shared.arrays.append(ends)
    return []


def body(c: Context) -> list[Scalar]:
    """Write the loops of a kernel; gives the number that it is passed."""
    n = c.shared.extents[0]
    count = Variable(c.shared.fresh("m"), "i", -1, n, frozen=True)
    ends = c.shared.arrays[-1].name
    for _ in range(c.pick([1, 1, 1, 2])):
        local = c.shared.fresh("k")
        c.emit(f"{local} = {ends}[{c.integer(0, 1)}]")
        _Pairs(c, count.name, local).write()
        if c.chance(0.15):
            c.note("pairs: their number changes")
            c.emit(f"{ends}[{c.integer(0, 1)}] = {c.pick([str(n - 1), f'{ends}[0] - 1'])}")
    return [(count, "qd.i32", c.pick([n, n, n - 1, c.integer(-1, n)]))]


class _Pairs:
    """A parallel loop that is being written."""

    def __init__(self, c: Context, count: str, local: str) -> None:
        self.c, self.n = c, c.shared.extents[0]
        self.x, self.w, self.v, self.u, self.y, self.z, self.ends = c.shared.arrays
        self.count, self.local, self.item = count, local, c.shared.fresh("i")
        self.first, self.end = c.pick([0] * 8 + [1, -1]), c.pick(_ENDS)
        self.kept = c.shared.fresh("k")

    def write(self) -> None:
        c, end = self.c, self._end("t[0]" if self.end == "inner" else self.end)
        span = f"{self.first}, {end}" if self.first or c.chance(0.1) else end
        with c.block(f"for {self.item} in range({span}):", trips=self.n):
            c.emit(f"{self.kept} = {self.ends.name}[0]")
            if c.chance(0.08):
                self._update(self.y)
            for _ in range(c.pick([1, 1, 1, 1, 2])):
                self._inner()
            if c.chance(0.25):
                self._update(self.v if c.chance(0.3) else self.y)

    def _end(self, source: str) -> str:
        """The text of an end of a range."""
        n, ends = self.n, self.ends.name
        return {
            "n": str(n),
            "shape": f"{self.x.name}.shape[0]",
            "m": self.count,
            "t[0]": f"{ends}[0]",
            "t[1]": f"{ends}[1]",
            "local": self.local,
            "max": f"qd.max({self.count}, 0)",
            "inner": self.kept,
        }[source]

    def _at(self, array: ArrayInfo, index: str) -> str:
        """The text of a row."""
        index = f"qd.max({index}, 0)" if self.first < 0 else index
        if len(array.shape) == 1:
            return f"{array.name}[{index}]"
        parts = (f"{array.name}[{index}, {k}]" for k in range(array.shape[1]))
        return f"qd.Vector([{', '.join(parts)}])"

    def _update(self, array: ArrayInfo) -> None:
        """A loop that adds to an element of the work item, and may read it meanwhile."""
        c, counter, kept = self.c, self.c.shared.fresh("k"), self.c.shared.fresh("s")
        if self.first < 0 or array.element_shape:
            return
        c.note("pairs: a sum that is read")
        element = f"{array.name}[{self.item}]"
        weight = c.pick([f"(0.05 * {counter})"] * 3 + [f"{self.w.name}[{counter}]"])
        c.emit(f"{kept} = {element}")
        with c.block(f"for {counter} in range({self.n}):", trips=self.n):
            c.emit(f"{self.z.name}[{c.integer(0, 2)}] += {element} * {weight}")
            c.emit(f"{element} += {c.pick([kept, kept, '0.3'])} * {weight}")

    def _inner(self) -> None:
        """A loop over the other rows, and what becomes of its sums."""
        c, i, j = self.c, self.item, self.c.shared.fresh("j")
        d, r = self.c.shared.fresh("d"), self.c.shared.fresh("r")
        source = self.end if c.chance(0.85) else c.pick(_ENDS)
        first = self.first if c.chance(0.9) else c.pick([0, 1])
        span = f"{first}, {self._end(source)}" if first else self._end(source)
        if self.first >= 0 and c.chance(0.06):
            span = c.pick([i, f"{i}, {self._end(source)}", f"{i} + 1, {self.n}"])
        rank = len(self.u.element_shape)
        zero = "0.0"
        if rank:
            zero = f"qd.Vector({[0.0] * self.u.element_shape[0]})"
            if rank == 2:
                zero = "qd.Matrix([[0.0, 0.0], [0.0, 0.0]])"
        sums = [(c.shared.fresh("f"), rank) for _ in range(c.pick([1, 1, 1, 2]))]
        sums += [(c.shared.fresh("s"), 0) for _ in range(c.pick([0, 0, 0, 1, 2]))]
        for name, shape in sums:
            c.emit(f"{name} = {zero if shape else c.pick(['0.0', '0.0', '0.4'])}")
        with c.block(f"for {j} in range({span}):", trips=self.n), contextlib.ExitStack() as blocks:
            if c.chance(0.08):
                c.note("pairs: not of a row with itself")
                with c.block(f"if {i} == {j}:"):
                    c.emit(c.pick(["continue", "continue", "break"]))
            elif c.chance(0.08):
                c.note("pairs: under a condition")
                condition = c.pick([f"{i} != {j}", f"{i} < {j}", f"{self._at(self.w, j)} > 0.2"])
                blocks.enter_context(c.block(f"if {condition}:"))
            form = c.pick(_DIFFERENCES)
            c.emit(f"{d} = {form.format(a=self._at(self.x, i), b=self._at(self.x, j))}")
            c.emit(f"{r} = {'0.2 + ' + (f'{d}.norm_sqr()' if rank else f'{d} * {d}')}")
            terms = [(self._term(d, r, j, shape), shape) for _, shape in sums]
            for (name, _), (term, _) in zip(sums, terms, strict=True):
                c.emit(f"{name} {c.pick(['+', '+', '-'])}= {term}")
            if c.chance(0.35):
                c.note("pairs: both rows")
                self._scatter(terms, d, r, j)
        self._results([name for name, shape in sums if shape == rank], rank)
        self._results([name for name, shape in sums if shape != rank], 0)

    def _term(self, d: str, r: str, j: str, shape: int) -> str:
        c = self.c
        p, q = (self._at(self.w, row) for row in (self.item, j))
        scale = c.pick(_SCALES).format(r=r, p=p, q=q)
        if not shape:
            return f"{self._share()} * {scale}"
        forms = ["{s} * ({f}) * {d}"] * 5 + ["{s} * {d} / ({r} * qd.sqrt({r}))"]
        forms += ["{s} * (({f}) * {d} - {q} * {x})", "{s} * {q} * {x} * ({f})"]
        x = self._at(self.x, c.pick([self.item, j]))
        return c.pick(forms).format(s=self._share(), f=scale, d=d, r=r, q=q, x=x)

    def _scatter(self, terms: list[tuple[str, int]], d: str, r: str, j: str) -> None:
        """Add to the other row, or to both."""
        c, rank = self.c, len(self.u.element_shape)
        same = [term for term, shape in terms if shape == rank]
        value = c.pick(same) if c.chance(0.7) else self._term(d, r, j, rank)
        c.emit(f"{self._at(self.u, j)} {c.pick(['-', '-', '+'])}= {value}")
        if c.chance(0.3):
            c.emit(f"{self._at(self.u, self.item)} += {c.pick(same)}")

    def _results(self, sums: list[str], rank: int) -> None:
        """Store sums, or add them to what others have added to."""
        c, scalar = self.c, not len(self.u.element_shape)
        for name in sums:
            own = self.y if scalar or not rank else self.v
            kinds = ["twice", "shared"] if rank or scalar else ["own"]
            kind = c.pick([*kinds, "own", "own", "square"])
            symbol = "+=" if self.first < 0 or c.chance(0.5) else "="
            if kind in ("twice", "shared"):
                for _ in range(1 + (kind == "twice")):
                    c.emit(f"{self._at(self.u, self.item)} {c.pick(['+', '+', '-'])}= {name}")
            elif kind == "own":
                c.emit(f"{self._at(own, self.item)} {symbol} {c.pick(['', '0.5 * '])}{name}")
            else:
                c.emit(f"{self._at(own, self.item)} {symbol} {name} * {c.pick(sums)}")
        if sums and not rank and c.chance(0.3):
            c.emit(f"{self.z.name}[{c.integer(0, 2)}] += 0.1 * {c.pick(sums)}")

    def _share(self) -> float:
        return round(1.5 / self.n, 4)


PRODUCTIONS = Productions(declare=declare)
