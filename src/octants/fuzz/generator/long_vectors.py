"""Local vectors of eight components and more, read, stored and summed by run-time indices."""

from __future__ import annotations

from octants.fuzz.generator import array_elements, vectors
from octants.fuzz.generator.bounded_expressions import fitting, index
from octants.fuzz.generator.context import Context, Productions, Variable

Shape = tuple[int, ...]
SHORTEST = 8
_SUMMED = 0.2  # of what is added in each iteration
_LARGEST = 2.0  # of the weights that are factors


def _shape(c: Context) -> Shape:
    return c.pick([(8,), (8,), (8,), (9,), (12,), (6, 6)])


def _long(c: Context, *, assignable: bool = False) -> list[Variable]:
    found = c.variables("f", None, assignable=assignable)
    return [v for v in found if vectors.size(v.shape) >= SHORTEST and v.shape != (3, 3)]


def _vector(c: Context, *, assignable: bool = False) -> Variable | None:
    """A long vector, not a matrix."""
    found = _long(c, assignable=assignable)
    return c.recent([v for v in found if len(v.shape) == 1])


# -- declarations ----------------------------------------------------------------------------------


def _declare(c: Context) -> bool | None:
    shape = _shape(c)
    kind = c.pick(["components", "one number", "zero", "filled", "filled"])
    if kind == "filled" and not (len(shape) == 1 and c.affordable(shape[0])):
        kind = "components"
    value = fitting(c, vectors.LIMIT, 1).text
    if kind == "components":
        value = vectors.literal(c, shape, 1)
    elif len(shape) == 2:
        value = f"qd.Matrix.zero(FP, {shape[0]}, {shape[1]}) + ({value})"
    elif kind == "one number":
        value = f"qd.Vector([{value}] * {shape[0]})"
    else:
        value = f"qd.Vector.zero(FP, {shape[0]})"
    variable = c.declare("v", "f", -vectors.LIMIT, vectors.LIMIT, shape)
    c.note(f"long vector: {kind}")
    c.emit(f"{variable.name} = {value}")
    if kind == "filled":
        _fill(c, variable)
    return True


def _fill(c: Context, variable: Variable) -> None:
    name = c.shared.fresh("k")
    with c.serial_loop(name, variable.shape[0]):
        c.emit(f"{variable.name}[{name}] = {fitting(c, 1.0, 1).text} + 0.1 * {name}")


def _declare_indices(c: Context) -> bool:
    """A vector of integers that are indices of another one."""
    count = c.integer(SHORTEST, 10)
    entries = [index(c, count) if c.chance(0.3) else str(c.integer(0, 7)) for _ in range(count)]
    variable = c.declare("p", "i", 0, 7, (count,))
    c.note("long vector of integers")
    c.emit(f"{variable.name} = qd.Vector([{', '.join(f'({e}) % 8' for e in entries)}])")
    return True


def _copy(c: Context) -> bool | None:
    variable = c.recent(_long(c))
    if variable is None:
        return None
    copy = c.declare("v", "f", variable.low, variable.high, variable.shape)
    c.note("copy of a long vector")
    c.emit(f"{copy.name} = {variable.name}")
    return True


# -- whole vectors ---------------------------------------------------------------------------------


def _pair(c: Context) -> tuple[Variable, Variable] | None:
    """Two vectors of one length, of which the first may be assigned."""
    first = c.recent(_long(c, assignable=True))
    if first is None:
        return None
    same = [v for v in _long(c) if v.shape == first.shape and v is not first]
    if same:
        return first, c.pick(same)
    other = c.declare("v", "f", -vectors.LIMIT, vectors.LIMIT, first.shape)
    c.emit(f"{other.name} = 0.9 * {first.name}")
    return first, other


def _exchange(c: Context) -> bool | None:
    pair = _pair(c)
    if pair is None:
        return None
    a, b = pair
    if b.frozen or c.chance(0.5):
        with c.block(f"if {c.truth(1)}:"):
            c.emit(f"{a.name} = {b.name}")
        c.note("long vector replaced under a condition")
    else:
        c.note("long vectors exchanged")
        c.emit(f"{a.name}, {b.name} = {b.name}, {a.name}")
    return True


def _rotate(c: Context) -> bool | None:
    variable = _vector(c, assignable=True)
    if variable is None:
        return None
    count, step = variable.shape[0], c.integer(1, 3)
    entries = [f"{variable.name}[{(k + step) % count}]" for k in range(count)]
    if c.chance(0.5):
        entries[c.integer(0, count - 1)] = fitting(c, vectors.LIMIT, 1).text
    c.note("long vector rotated")
    c.emit(f"{variable.name} = qd.Vector([{', '.join(entries)}])")
    return True


def _blend(c: Context) -> bool | None:
    pair = _pair(c)
    if pair is None:
        return None
    a, b = pair
    c.note("long vectors added")
    c.emit(f"{a.name} = 0.5 * ({a.name} + {b.name})")
    return True


# -- components ------------------------------------------------------------------------------------


def _subscript(c: Context, variable: Variable, counter: str = "") -> str:
    """The subscript of a component, of a counter in some way if there is one."""
    count = variable.shape[0]
    if len(variable.shape) == 2:
        return f"[{index(c, variable.shape[0])}, {index(c, variable.shape[1])}]"
    indices = [v for v in c.variables("i", None) if v.shape]
    if indices and c.chance(0.3):
        table = c.pick(indices)
        inner = counter and f"({counter}) % {table.shape[0]}"
        return f"[{table.name}[{inner or index(c, table.shape[0])}]]"
    if not counter or c.chance(0.2):
        return f"[{index(c, count)}]"
    forms = ["{0} % {1}", "({0} + {2}) % {1}", "({2} * {0}) % {1}", "({1} - 1 - {0}) % {1}"]
    return f"[{c.pick(forms).format(counter, count, c.integer(1, 3))}]"


def _store(c: Context) -> bool | None:
    variable = c.recent(_long(c, assignable=True))
    if variable is None:
        return None
    target = variable.name + _subscript(c, variable)
    c.note("store to a long vector")
    other = c.recent(_long(c))
    assert other is not None
    value = fitting(c, vectors.LIMIT).text
    if c.chance(0.4):
        reads = (each.name + _subscript(c, each) for each in (variable, other))
        value = " + ".join(f"0.45 * {read}" for read in reads)
    c.emit(f"{target} = {value}")
    return True


def _visit(c: Context) -> bool | None:
    """A loop that reads, stores, and sums up components."""
    variable = _vector(c, assignable=True)
    if variable is None or len(c.loops) > 1 or not c.affordable(2 * variable.shape[0]):
        return None
    name, total = c.shared.fresh("k"), c.shared.fresh("s")
    c.emit(f"{total} = {fitting(c, 1.0, 1).text}")
    trips = c.integer(2, variable.shape[0] + 2)
    c.note("loop over a long vector")
    with c.serial_loop(name, trips):
        c.scopes[-1].append(Variable(name, "i", 0, trips - 1, frozen=True))
        for _ in range(c.integer(1, 3)):
            c.pick([_step, _step, _sum, _conditional_step])(c, variable, name, total)
    c.scopes[-1].append(Variable(total, "f", -4.0, 4.0))
    return True


def _step(c: Context, variable: Variable, name: str, _: str) -> None:
    other = _vector(c) or variable
    target = variable.name + _subscript(c, variable, name)
    read = other.name + _subscript(c, other, name)
    forms = [
        "{0} = 0.5 * {0} + 0.4 * qd.sin({1})",
        "{0} = 0.7 * {1} + {2}",
        "{0} = qd.tanh({0} * {1} + {2})",
        "{0} += 0.1 * {1}",
        "{0} *= 0.9",
    ]
    c.emit(c.pick(forms).format(target, read, fitting(c, 0.5, 1).text))


def _sum(c: Context, variable: Variable, name: str, total: str) -> None:
    read = variable.name + _subscript(c, variable, name)
    factor = _weight(c, name, variable.shape[0] + 2) or fitting(c, 1.0, 1).text
    c.emit(f"{total} = 0.8 * {total} + {factor} * (0.5 * {_SUMMED} * {read})")


def _weight(c: Context, counter: str, trips: int, row: str = "0") -> str | None:
    """An element of an array that work items in step share: of a counter, for so many trips."""
    options = [
        array
        for array, role in array_elements.readable(c, "f", 0)
        if role.kind == "read" and array.shape
    ]
    if not options or c.chance(0.4):
        return None
    array = c.pick(options)
    c.note("weights that work items share")
    first, *others = array.shape
    places = [counter if first >= trips else f"({row} + {counter}) % {first}"]
    places += [f"{row} % {extent}" for extent in others]
    element = array.at(", ".join(places))
    if max(abs(array.low), abs(array.high)) <= _LARGEST and c.chance(0.6):
        c.note("weights that are factors")
        return element
    return f"qd.sin({element})"


def _conditional_step(c: Context, variable: Variable, name: str, total: str) -> None:
    with c.block(f"if {c.truth(1)}:"):
        _step(c, variable, name, total)
    if c.chance(0.3):
        with c.block("else:"):
            _sum(c, variable, name, total)


def _product(c: Context) -> bool | None:
    """A matrix, which is computed, times a long vector."""
    variable = _vector(c)
    if variable is None or c.run_time_loops or not c.affordable(0.5 * variable.shape[0] ** 2):
        return None
    count, row, column, total = variable.shape[0], *(c.shared.fresh(p) for p in "kks")
    result = c.declare("v", "f", -vectors.LIMIT, vectors.LIMIT, variable.shape)
    c.emit(f"{result.name} = qd.Vector.zero(FP, {count})")
    c.note("matrix times long vector")
    weight = fitting(c, 0.5, 1).text
    entry = _weight(c, column, count, row)
    with c.serial_loop(row, count):
        c.emit(f"{total} = 0.0")
        with c.serial_loop(column, count):
            entry = entry or f"qd.cos(0.3 * {row} + {column} + {weight})"
            c.emit(f"{total} += {entry} * (0.2 * {variable.name}[{column}])")
        c.emit(f"{result.name}[{row}] = qd.tanh({total})")
    return True


def _recurrence(c: Context) -> bool | None:
    """Steps that each multiply a long vector by a matrix, and apply a function to the sums."""
    variable, steps = _vector(c, assignable=True), c.integer(2, 3)
    if variable is None or c.run_time_loops:
        return None
    count = variable.shape[0]
    if not c.affordable(0.5 * steps * count**2):
        return None
    step, row, column, made = (c.shared.fresh(p) for p in "kkkv")
    sums = [c.shared.fresh("s") for _ in range(c.integer(1, 2))]
    in_place = c.chance(0.3)
    target = f"{variable.name if in_place else made}[{row}]"
    c.note("recurrence in place" if in_place else "recurrence")
    weight, shared = fitting(c, 0.5, 1).text, _weight(c, column, count, row)
    with c.serial_loop(step, steps):
        if not in_place:
            c.emit(f"{made} = {c.pick([variable.name, f'qd.Vector.zero(FP, {count})'])}")
        with c.serial_loop(row, count):
            for total in sums:
                c.emit(f"{total} = {c.pick(['0.0', '0.3'])}")
            with c.serial_loop(column, c.pick([count, count, 3])):
                for k, total in enumerate(sums):
                    entry = f"qd.cos({0.3 + 0.2 * k:.1f} * {row} + {column} + {step} + {weight})"
                    entry = shared if shared and not k else entry
                    c.emit(f"{total} += {entry} * (0.2 * {variable.name}[{column}])")
            _activation(c, target, f"{variable.name}[{row}]", sums)
        if not in_place:
            c.emit(f"{variable.name} = {made}")
    return True


def _activation(c: Context, target: str, old: str, sums: list[str]) -> None:
    """Store a function of sums and of the old component, perhaps under a condition."""
    first, last = sums[0], sums[-1]
    forms = [
        f"{target} = qd.tanh({first})",
        f"{target} = 0.4 * qd.sin({first}) + 0.3 * {old}",
        f"{target} = 0.5 * {target} + 0.4 * qd.tanh({last})",
        f"{target} = qd.tanh({last}) / (1.0 + qd.exp(-{first}))",
        f"{target} = {old} / (1.0 + qd.exp(-{first})) + 0.2 * qd.sin({last} * {first})",
    ]
    if c.chance(0.6):
        c.emit(c.pick(forms))
        return
    with c.block(f"if {c.pick([c.truth(1), f'{last} > 0.1'])}:"):
        c.emit(c.pick(forms))
    if c.chance(0.5):
        with c.block("else:"):
            c.emit(c.pick(forms))


PRODUCTIONS = Productions(
    statements=(
        (5.0, _declare),
        (1.0, _declare_indices),
        (3.0, _copy),
        (4.0, _exchange),
        (1.0, _rotate),
        (2.0, _blend),
        (4.0, _store),
        (6.0, _visit),
        (4.0, _product),
        (4.0, _recurrence),
    )
)
