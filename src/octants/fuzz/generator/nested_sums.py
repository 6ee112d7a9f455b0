"""Loops in one another that add up, or carry on, functions of what loops in them add up.

The reverse of a loop needs the sums of loops in it, but often nothing that these carry.
"""

from __future__ import annotations

from octants.fuzz.generator.bounded_expressions import fitting, within
from octants.fuzz.generator.context import ArrayInfo, Context, Productions, Role, Shared, Variable
from octants.fuzz.generator.racy_loops import Scalar

_LONGEST = {2: 7, 3: 5, 4: 4, 5: 3}
"""The longest loops of a nest of some depth."""
_FUNCTIONS = [
    *["qd.sin({0})", "0.3 * qd.sin({0}) * {0}", "qd.tanh({0})", "0.7 * {0}", "{0}"],
    *["qd.exp(-{0} * {0})", "qd.sqrt(0.2 + {0} * {0})", "(0.2 * {0}) ** 2"],
    *["qd.max({0}, 0.1)", "({0} if {0} > 0.2 else 0.5 * {0})"],
]
_TERMS = [
    *["qd.sin({0} + {1})", "{1} * qd.cos({0})", "qd.sin({1} * {0}) * qd.cos({0} + {2})"],
    *["{1} * {2}", "qd.tanh({0} * {1}) * {2}", "qd.sin({0}) * qd.sin({2})"],
]


def declare(shared: Shared) -> list[str]:
    """Make the arrays of the program: rows of work items, a matrix, lengths, and results."""
    rng, n = shared.rng, shared.extents[0]
    depth = rng.choice([2, 3, 3, 4, 5])
    size = _LONGEST[depth]
    fields = rng.choice([True, False])
    shared.arrays, shared.deep = [], (depth, size, n)

    def make(prefix: str, shape: tuple[int, ...], *, constant: bool = True) -> ArrayInfo:
        array = ArrayInfo(shared.fresh(prefix), "f", shape, (), fields, constant=constant)
        shared.arrays.append(array)
        return array

    make("x", (n, size))
    make("w", (size, size))
    make("y", (n,), constant=False)
    make("z", (3,), constant=False)
    lengths = make("t", (n,))
    lengths.sort, lengths.dtype, lengths.has_grad = "i", "qd.i32", False
    lengths.low, lengths.high = 0, size
    return []


def body(c: Context) -> list[Scalar]:
    """Write a loop of a kernel; gives the numbers that it is passed."""
    depth, size, n = c.shared.deep
    count = Variable(c.shared.fresh("m"), "i", 0, size, frozen=True)
    c.scopes[0].append(count)
    item, carried = c.shared.fresh("i"), c.shared.fresh("s")
    x, _, y, z, lengths = (array.name for array in c.shared.arrays)
    c.roles = {x: Role("read"), z: Role("accumulate")}
    with c.block(f"for {item} in range({n}):", trips=float(n)):
        c.scopes[-1].append(Variable(item, "i", 0, n - 1, frozen=True))
        c.emit(f"{carried} = {fitting(c, 1.0, 1).text}")
        if c.chance(0.2):
            depth -= 1
        c.note(f"sums nested {depth} deep")
        nest = _Nest(c, item, carried, [count.name, f"{lengths}[{item}]"])
        for _ in range(c.pick([1, 1, 1, 2])):
            nest.write(depth, [], "")
        c.emit(f"{y}[{item}] = {carried}")
        c.emit(f"{z}[{within(c, c.whole(0), 3).text}] += 0.1 * {carried}")
    c.roles = {}
    return [(count, "qd.i32", c.integer(0, size))]


class _Nest:
    """A nest of a work item that is being written: what it carries, and trip counts for its loops.

    All counters are less than the extents of rows.
    """

    def __init__(self, c: Context, item: str, carried: str, lengths: list[str]) -> None:
        self.c, self.item, self.carried, self._lengths = c, item, carried, lengths
        self.size = c.shared.deep[1]
        self.values = [carried]

    def write(self, levels: int, counters: list[str], total: str) -> None:
        """Write a loop, with loops in it, which updates a total, or else what the nest carries."""
        c, counter = self.c, self.c.shared.fresh("k")
        form = c.rng.choices(["for", "down", "while"], [8, 1, 1])[0]
        bound = self._bound(counters)
        header = f"for {counter} in range({bound}):"
        if form == "down":
            header = f"for {counter} in range({bound} - 1, -1, -1):"
        elif form == "while":
            c.note("sums: while")
            c.emit(f"{counter} = 0")
            header = f"while {counter} < {bound}:"
        with c.block(header, trips=0.7 * self.size):
            if levels == 1:
                self._leaf([*counters, counter], total or self.carried)
            else:
                self._around(levels, [*counters, counter], total)
            if form == "while":
                c.emit(f"{counter} += 1")

    def _bound(self, counters: list[str]) -> str:
        c = self.c
        kind = c.rng.choices(["constant", "outer", "data"], [5, 2 * bool(counters), 1.5])[0]
        c.note(f"sums: bound: {kind}")
        if kind == "constant":
            return str(c.pick([self.size, self.size, c.integer(1, self.size)]))
        if kind == "data":
            return c.pick(self._lengths)
        outer = c.pick(counters)
        return c.pick([outer, f"{outer} + 1", f"{outer} + 1", f"{self.size} - {outer}"])

    def _leaf(self, counters: list[str], total: str) -> None:
        """Add a term to a total, or carry it on."""
        c = self.c
        x, w, *_ = (array.name for array in c.shared.arrays)
        elements = [f"{x}[{self.item}, {counters[-1]}]", f"{w}[{counters[0]}, {counters[-1]}]"]
        elements += [f"{x}[{self.item}, {counters[0]}]", f"0.1 * {counters[-1]}"]
        chosen = c.rng.sample(elements, 2)
        term = c.pick(_TERMS).format(c.pick([*self.values, *elements]), *chosen)
        if c.chance(0.2):
            c.note("sums: recurrence")
            c.emit(f"{total} = 0.6 * {total} + 0.4 * qd.sin({total} + {term})")
        elif c.chance(0.15):
            with c.block(f"if {c.pick(elements)} > {round(c.rng.uniform(-0.4, 0.4), 2)}:"):
                c.emit(f"{total} += {term}")
        else:
            c.emit(f"{total} {c.pick(['+', '+', '-'])}= {term}")

    def _around(self, levels: int, counters: list[str], total: str) -> None:
        """Update a total by functions of what one or two loops add up."""
        c = self.c
        terms, known = [], len(self.values)
        for _ in range(1 + c.chance(0.5 / levels)):
            part = c.shared.fresh("s")
            c.emit(f"{part} = {c.pick(['0.0', '0.0', '0.3', *self.values])}")
            if c.chance(0.1):
                c.note("sums: a loop under a condition")
                with c.block(f"if {self.values[-1]} < 0.3:", trips=0.7):
                    self.write(levels - 1, counters, part)
            else:
                self.write(levels - 1, counters, part)
            terms.append(f"{round(1 / self.size, 2)} * {c.pick(_FUNCTIONS)}".format(part))
            if c.chance(0.4):
                self.values.append(part)  # for the loops behind
        del self.values[known:]
        value = " + ".join(terms)
        if not total or c.chance(0.2):
            total = total or self.carried
            c.note("sums: carried on")
            c.emit(f"{total} = 0.5 * {total} + 0.4 * qd.sin({value})")
        elif c.chance(0.1):
            c.emit(f"{total} *= 1.0 + 0.2 * qd.sin({value})")
        else:
            c.emit(f"{total} += {value}")


PRODUCTIONS = Productions(declare=declare)
