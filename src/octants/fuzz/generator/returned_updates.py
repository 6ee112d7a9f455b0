"""Loops of one work item that go on with what updates of arrays return, and read the arrays again.

What an update returns is a number with a derivative, or makes an index or a decision without one.
The arrays are small, so that most elements are accessed several times.
"""

from __future__ import annotations

from octants.fuzz.generator.context import ArrayInfo, Context, Productions, Role, Shared, Variable
from octants.fuzz.generator.racy_loops import Scalar


def declare(shared: Shared) -> list[str]:
    """Make the arrays of the program: two that are updated, inputs, and counters."""
    fields = shared.rng.choice([True, False])
    shared.arrays = []
    for prefix, size, constant in (("x", 5, True), ("y", 4, False), ("z", 3, False)):
        name = shared.fresh(prefix)
        shared.arrays.append(ArrayInfo(name, "f", (size,), (), fields, constant=constant))
    name = shared.fresh("t")
    counts = ArrayInfo(name, "i", (4,), (), fields, 0, 4, dtype="qd.i32")
    counts.has_grad = False
    shared.arrays.append(counts)
    return []


def body(c: Context) -> list[Scalar]:
    """Write a loop of a kernel; gives the numbers that it is passed."""
    count = Variable(c.shared.fresh("m"), "i", 0, 4, frozen=True)
    c.scopes[0].append(count)
    x, y, z, counts = (array.name for array in c.shared.arrays)
    c.roles = {x: Role("read"), y: Role("free"), z: Role("free"), counts: Role("free")}
    once, item = c.shared.fresh("u"), c.shared.fresh("i")
    header = c.pick(
        [f"for {once} in range(1):", f"for {once} in range({count.name}, {count.name} + 1):"]
    )
    trips = c.pick(["3", "4", count.name])
    with c.block(header), c.block(f"for {item} in range({trips}):", trips=3.0):
        c.scopes[-1].append(Variable(item, "i", 0, 3, frozen=True))
        written = _Body(c, item)
        for _ in range(c.integer(3, 6)):
            written.statement()
        written.finish()
    c.roles = {}
    return [(count, "qd.i32", c.integer(0, 4))]


class _Body:
    """The body of a loop that is being written, with the numbers and integers it has so far."""

    def __init__(self, c: Context, item: str) -> None:
        self.c = c
        self.x, self.y, self.z, self.counts = (array.name for array in c.shared.arrays)
        self.indices = [item]
        self.numbers = [f"{self.x}[{item}]"]

    def statement(self) -> None:
        """Write a statement."""
        self.c.pick([self._update, self._update, self._decide, self._read, self._store])()

    def finish(self) -> None:
        """Let an element that an index chooses depend on the numbers."""
        self.c.emit(f"{self._element(self.z)} += 0.2 * qd.cos({self._value()})")

    def _element(self, array: str) -> str:
        size = {self.x: 5, self.y: 4, self.z: 3, self.counts: 4}[array]
        return f"{array}[({self.c.pick(self.indices)} + {self.c.integer(0, 2)}) % {size}]"

    def _value(self) -> str:
        numbers = [*self.numbers[-2:], self._element(self.y), self._element(self.z)]
        one, other = self.c.rng.sample(numbers, 2)
        form = self.c.pick(
            ["qd.sin({0} + {1})", "0.5 * {0} * qd.cos({1})", "qd.sin({0}) + 0.1 * {1}"]
        )
        return form.format(one, other)

    def _update(self) -> None:
        """Update an element, and keep what it held before as a number, or as an index."""
        c = self.c
        if c.chance(0.2):
            c.note("returned: a count")
            self._name_index(
                f"qd.atomic_{c.pick(['add', 'max'])}({self._element(self.counts)}, 1) % 4"
            )
            return
        fn = c.rng.choices(["add", "sub", "min", "max", "exchange"], [4, 1, 2, 2, 1])[0]
        update = f"qd.atomic_{fn}({self._element(c.pick([self.y, self.z]))}, {self._value()})"
        if c.chance(0.6):
            c.note("returned: an index")
            self._name_index(f"(qd.cast({update} * 3.0, qd.i32) % 4 + 4) % 4")
        else:
            c.note("returned: a number")
            self._name_number(update)

    def _decide(self) -> None:
        """Read or write under a condition that a number decides."""
        self.c.note("returned: a decision")
        with self.c.block(f"if {self.numbers[-1]} > {round(self.c.rng.uniform(-0.5, 0.5), 2)}:"):
            self.c.emit(f"{self._element(self.y)} += 0.3 * qd.sin({self._value()})")

    def _read(self) -> None:
        """Add up elements that were updated before."""
        c, counter = self.c, self.c.shared.fresh("k")
        c.note("returned: read again")
        self._name_number(self._value())
        with c.block(f"for {counter} in range({c.pick(self.indices)}):", trips=2.0):
            element = f"{self.y}[({counter} + {c.pick(self.indices)}) % 4]"
            c.emit(f"{self.numbers[-1]} += 0.3 * qd.sin({element} * {element})")

    def _store(self) -> None:
        self.c.note("returned: overwritten")
        self.c.emit(f"{self._element(self.c.pick([self.y, self.z]))} = {self._value()}")

    def _name_number(self, text: str) -> None:
        self.numbers.append(self.c.shared.fresh("s"))
        self.c.emit(f"{self.numbers[-1]} = {text}")

    def _name_index(self, text: str) -> None:
        self.indices.append(self.c.shared.fresh("n"))
        self.c.emit(f"{self.indices[-1]} = {text}")


PRODUCTIONS = Productions(declare=declare)
