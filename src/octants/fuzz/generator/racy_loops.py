"""Parallel loops whose work items may race: one array, read and written through several indices.

About half of the programs are free of races; which ones, the oracle says.
"""

from __future__ import annotations

import contextlib
import itertools
import re
from types import SimpleNamespace
from typing import Any

from octants.fuzz.generator.context import ArrayInfo, Context, Productions, Shared, Variable

Scalar = tuple[Variable, str, Any]
_WORD = re.compile(r"\b[a-z]+\b")
STEPS = 4  # rows of the array that has an axis of time
MOST = 3  # the largest integer that is passed

_MAPS = [
    *["i"] * 8,
    *["i + n"] * 3,
    *["p[i]"] * 3,
    *["q[i]"] * 2,
    *["i + d"] * 2,
    *["i + 1", "i - 1", "i + 2", "n - 1 - i", "2 * i", "2 * i + 1", "i // 2", "i % 2"],
    *["i * 3", "i * d", "(i + d) % n", "p[i] + n", "p[p[i]]", "q[p[i]] + n", "i ^ 1", "0", "n"],
    *["qd.min(i + 1, n - 1)", "n + i // 2", "i * 2 + d % 2", "d", "i + n - d"],
]
_MAPS_OF_ROWS = ["t * n + i", "i * 2 + t", "i + t", "t"]
_ROWS = ["d", "d + 1", "e", "d % 2", "0", "1", "2"]
_CONDITIONS = ["i < 2", "i % 2 == 0", "i == 0", "i > d", "i != n - 1", "q[i] > 1", "p[i] < 2"]


def declare(shared: Shared) -> list[str]:
    """Make the arrays of the program: two lines, one with rows, constants, and two of indices."""
    rng, n = shared.rng, shared.extents[0]
    fields = rng.choice([True, False])
    lines = [(2 * n + 2,), (2 * n + 2,), (STEPS, n)]
    arrays = [ArrayInfo(shared.fresh("x"), "f", shape, (), fields) for shape in lines]
    arrays.append(ArrayInfo(shared.fresh("w"), "f", (n,), (), fields, constant=True))
    indices = rng.sample(range(n), n), [rng.randrange(n) for _ in range(n)]
    for prefix, content in zip("pq", indices, strict=True):
        array = ArrayInfo(shared.fresh(prefix), "i", (n,), (), fields, constant=True)
        array.dtype, array.has_grad, array.content = "qd.i32", False, content
        arrays.append(array)
    shared.arrays = arrays
    return []


def body(c: Context) -> list[Scalar]:
    """Write the loops of a kernel; gives the numbers that it is passed."""
    scalars: list[Scalar] = []
    for name in "de":
        variable = Variable(c.shared.fresh("m"), "i", 0, MOST, frozen=True)
        scalars.append((variable, "qd.i32", c.integer(0, MOST)))
        c.shared.features[f"offset {name}"] += 1
    for _ in range(c.pick([1, 1, 1, 2])):
        _Loop(c, [variable.name for variable, _, _ in scalars]).write()
    return scalars


class _Loop:
    """A parallel loop that is being written."""

    def __init__(self, c: Context, offsets: list[str]) -> None:
        self.c = c
        self.n = c.shared.extents[0]
        *self.floats, self.weights, p, q = c.shared.arrays
        self.names = {"p": p, "q": q}
        self.offsets = dict(zip("de", offsets, strict=True))
        self.has_rows = c.chance(0.2)
        self.has_common_numbers = not self.has_rows and c.chance(0.25)
        self.own: dict[str, str] = {}  # the index that accesses to an array have for the most part
        self.targets = c.rng.sample(self.floats, c.pick([1, 1, 2]))
        self.ways = {
            array.name: c.pick(["store", "store", "add", "both"]) for array in self.targets
        }

    def write(self) -> None:
        c = self.c
        if self.has_rows:
            c.note("work items of two axes")
            header = f"for t, i in qd.ndrange(2, {self.n}):"
        else:
            header = c.pick([f"for i in range({self.n}):", f"for i in {self.weights.name}:"])
        with c.block(header):
            for _ in range(c.integer(1, 3)):
                if self.has_common_numbers:
                    self._common_number()
                elif c.chance(0.25):
                    c.note("guard")
                    with c.block(f"if {self._text(c.pick(_CONDITIONS))}:"):
                        self._statement()
                elif c.chance(0.15):
                    self._several()
                elif c.chance(0.15):
                    self._guarded_sum()
                else:
                    self._statement()

    def _statement(self) -> None:
        target = self.c.pick(self.targets)
        self._change(target, self._element(target, 0.9))

    def _several(self) -> None:
        """Changes of neighbours, one after the other."""
        line = self.floats[0]
        self.targets.append(line)
        self.ways.setdefault(line.name, "store")
        stride = self.c.pick([2, 2, 1])
        self.c.note("several elements of a work item")
        with self.c.block("for k in range(2):"):
            self._change(line, line.at(f"{stride} * i + k"))

    def _guarded_sum(self) -> None:
        """A sum over what only those work items read that store it."""
        c, target = self.c, self.c.pick(self.targets)
        condition = self._text(c.pick(_CONDITIONS))
        total, k = (c.shared.fresh(prefix) for prefix in "sk")
        c.note("reads in a branch of a loop")
        c.emit(f"{total} = 0.1")
        with c.block(f"for {k} in range({c.integer(2, 3)}):"):
            c.emit(f"if {c.pick([f'{k} > 0 and ', ''])}{condition}:")
            c.emit(f"    {total} += {k} * {self._value()}")
        with c.block(f"if {condition}:"):
            c.emit(f"{self._element(target, 0.9)} = {total}")

    def _common_number(self) -> None:
        """A store whose number depends on the element alone, which several work items store to."""
        c, target = self.c, self.c.pick(self.targets)
        c.note("one number from several work items")
        constants = [a for a in (*self.floats, self.weights) if a not in self.targets]
        index = self._text(c.pick([*["0", "1", "d", "e", "p[0]"] * 2, "i % 2", "i // 2"]))
        elements = []
        for array in (target, c.pick(constants), c.pick(constants)):
            at = f"({index}) % {array.shape[-1]}"
            elements.append(array.at(at if len(array.shape) == 1 else f"{c.integer(0, 2)}, {at}"))
        value = f"{c.pick(['', 'qd.sin'])}({elements[1]}) * {elements[2]}"
        if c.chance(0.3):
            total, k = (c.shared.fresh(prefix) for prefix in "sk")
            c.emit(f"{total} = {value}")
            with c.block(f"for {k} in range({c.pick(['3', *self.offsets.values()])}):"):
                c.emit(f"{total} += {k} * qd.sin({total} + {self.weights.at(f'{k} % {self.n}')})")
            value = total
        condition = self._text(c.pick(["i < 2", "i > d", "d > 1", "i != n - 1"]))
        with c.block(f"if {condition}:") if c.chance(0.3) else contextlib.nullcontext():
            c.emit(f"{elements[0]} = {value}")

    def _change(self, target: ArrayInfo, element: str) -> None:
        c, way = self.c, self.ways[target.name]
        if way == "both":
            way = c.pick(["store", "add"])
        c.note("plain store" if way == "store" else "update")
        if way == "add":
            c.note("+= on an array")
            c.emit(f"{element} += {self._value()}")
        elif c.chance(0.1):
            c.note("store without a derivative")
            c.emit(f"{element} = {c.pick(['0.5', '0.25 * i'])}")
        elif c.chance(0.2):
            c.emit(f"{element} = 0.5 * {element} + {self._value()}")
        else:
            c.emit(f"{element} = {self._value()}")

    def _value(self) -> str:
        c = self.c
        others = [array for array in self.floats if array not in self.targets]
        read = c.pick(self.targets if c.chance(0.4) or not others else others)
        text = f"qd.sin({self._element(read, 0.75)})"
        if c.chance(0.4):
            text += f" * {self.weights.at('i')}"
        if c.chance(0.2):
            text += f" + 0.3 * {self._element(c.pick(self.floats), 0.75)}"
        return text

    # -- elements ------------------------------------------------------------------------------

    def _element(self, array: ArrayInfo, same: float) -> str:
        """An element of an array, with its own index for the most part."""
        c = self.c
        if array.name not in self.own or not c.chance(same):
            index = self._index(array)
            self.own.setdefault(array.name, index)
            return array.at(index)
        return array.at(self.own[array.name])

    def _index(self, array: ArrayInfo) -> str:
        c = self.c
        more = _MAPS_OF_ROWS * 3 if self.has_rows else []
        column = self._inside(c.pick([*_MAPS, *more]), array.shape[-1])
        if len(array.shape) == 1:
            return column
        rows = [*_ROWS, *(["t", "t", "t + 1"] if self.has_rows else [])]
        return f"{self._inside(c.pick(rows), STEPS)}, {column}"

    def _inside(self, index: str, extent: int) -> str:
        """The text of an index, which is in bounds."""
        self.c.note(f"index: {index}")
        values = [eval(index, {"qd": SimpleNamespace(min=min)}, names) for names in self._all()]
        text = self._text(index)
        return text if min(values) >= 0 and max(values) < extent else f"({text}) % {extent}"

    def _all(self) -> Any:
        """The values of all names, in all work items and for all arguments."""
        given = range(MOST + 1)
        contents = {name: array.content for name, array in self.names.items()}
        for i, t, d, e in itertools.product(range(self.n), range(2), given, given):
            yield {"i": i, "t": t, "d": d, "e": e, "n": self.n, **contents}

    def _text(self, text: str) -> str:
        """A condition or an index in the names of the program."""
        names = {"n": str(self.n), **self.offsets}
        names |= {name: array.name for name, array in self.names.items()}
        return _WORD.sub(lambda word: names.get(word[0], word[0]), text)


def _finish(shared: Shared, lines: list[str], launches: list[Any]) -> tuple[list[str], list[Any]]:
    """Launch kernels again with other integers."""
    more = []
    for name, arguments in launches:
        for _ in range(shared.rng.choice([0, 0, 1, 2])):
            changed = (
                shared.rng.randint(0, MOST) if type(given) is int else given for given in arguments
            )
            more.append((name, tuple(changed)))
            shared.features["launched with other integers"] += 1
    return lines, [*launches, *more]


PRODUCTIONS = Productions(declare=declare, finish=_finish)
