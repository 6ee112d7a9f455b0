"""Statements: declarations, assignments, branches."""

from __future__ import annotations

from collections.abc import Callable

from octants.fuzz.generator import array_elements, array_writes, loops, vectors
from octants.fuzz.generator.bounded_expressions import fitting, within
from octants.fuzz.generator.context import Context, Variable

LOCAL = 4.0  # the bound of a float local
Maker = Callable[[Context], "bool | None"]


def statements(c: Context, count: int) -> None:
    """Some statements."""
    for _ in range(count):
        c.try_table([*STATEMENTS, *c.shared.rows("statements")])


def block(c: Context) -> None:
    """The statements of a nested block."""
    statements(c, c.integer(1, 2))


# -- declarations ----------------------------------------------------------------------------------


def _declare_float(c: Context) -> bool:
    value = fitting(c, LOCAL).text
    variable = c.declare("s", "f", -LOCAL, LOCAL)
    if c.chance(0.15):
        c.note("annotated local")
        c.emit(f"{variable.name}: FP = {value}")
    else:
        c.emit(f"{variable.name} = {value}")
    return True


def _declare_vector(c: Context) -> bool:
    shape = vectors.random_shape(c)
    value = vectors.expression(c, shape)
    variable = c.declare("v", "f", -vectors.LIMIT, vectors.LIMIT, shape)
    c.note("vector local" if len(shape) == 1 else "matrix local")
    c.emit(f"{variable.name} = {value}")
    return True


def _declare_integer(c: Context) -> bool:
    value = within(c, c.whole(2), 7)
    variable = c.declare("n", "i", 0, 6)
    c.emit(f"{variable.name} = {value.text}")
    return True


def _declare_truth(c: Context) -> bool:
    condition = c.truth()
    variable = c.declare("b", "b", 0, 1)
    c.emit(f"{variable.name} = {condition}")
    return True


def _declare_other_float(c: Context) -> bool:
    """A local of a stated float type, of whatever type the run has."""
    dtype = c.pick(["qd.f64", "qd.f32"])
    value = fitting(c, LOCAL).text
    variable = c.declare("d", "d", -LOCAL, LOCAL)
    c.note("local of another float type")
    c.emit(f"{variable.name} = qd.cast({value}, {dtype})")
    return True


def _first_type_counts(c: Context) -> bool:
    """An int local that is assigned floats: it keeps its type."""
    variable = c.declare("n", "i", -8, 8)
    c.note("a local keeps its first type")
    c.emit(f"{variable.name} = {c.integer(0, 2)}")
    c.emit(f"{variable.name} {c.pick(['=', '+='])} {fitting(c, LOCAL, 1).text}")
    return True


def _first_in_branches(c: Context) -> bool:
    """A local that is first assigned in both branches of an if, and used after it.

    Of one type: which one it would be of two, the oracle cannot tell from the branch it runs.
    """
    name = c.shared.fresh("s")
    c.note("local first assigned in branches")
    with c.block(f"if {c.truth()}:"):
        _some(c)
        c.emit(f"{name} = FP({fitting(c, LOCAL, 1).text})")
    if c.chance(0.3):
        with c.block(f"elif {c.truth()}:"):
            c.emit(f"{name} = FP({fitting(c, LOCAL, 1).text})")
    with c.block("else:"):
        _some(c)
        c.emit(f"{name} = FP({fitting(c, LOCAL, 1).text})")
    c.scopes[-1].append(Variable(name, "f", -LOCAL, LOCAL))
    return True


def _some(c: Context) -> None:
    if c.chance(0.3) and c.affordable():
        statements(c, 1)


# -- assignments -----------------------------------------------------------------------------------


def _assign_float(c: Context) -> bool | None:
    variable = c.recent(c.variables("f", (), assignable=True))
    if variable is None:
        return None
    kind = c.pick(["=", "=", "mix", "mix", "+=", "-=", "*=", "/="])
    name = variable.name
    if kind == "=":
        c.emit(f"{name} = {fitting(c, LOCAL).text}")
    elif kind == "mix":
        kept = round(c.rng.uniform(0.3, 0.8), 2)
        c.emit(f"{name} = {kept} * {name} + {fitting(c, LOCAL * (1 - kept)).text}")
    elif kind == "*=":
        c.emit(f"{name} *= {fitting(c, 1.0).text}")
    elif kind == "/=":
        c.emit(f"{name} /= 1.1 + qd.abs({c.floating(1).text})")
    else:
        c.emit(f"{name} {kind} {fitting(c, 1.0).text}")
        _settle(c, variable)
    return True


def _settle(c: Context, variable: Variable) -> None:
    """Keep a sum that grows in a loop within the bound of locals."""
    name = variable.name
    if c.loops and c.chance(0.6):
        form = c.pick(["{0} = 3.0 * qd.tanh(0.3 * {0})", "{0} = {0} / (1.0 + 0.1 * qd.abs({0}))"])
        c.emit(form.format(name))


def _assign_vector(c: Context) -> bool | None:
    variable = c.recent(c.variables("f", None, assignable=True))
    if variable is None:
        return None
    kind = c.pick(["whole", "whole", "update", "component", "component", "component update"])
    if kind == "whole":
        c.emit(f"{variable.name} = {vectors.expression(c, variable.shape)}")
    elif kind == "update":
        c.emit(f"{variable.name} *= {fitting(c, 1.0).text}")
    else:
        target = variable.name + array_elements.component(c, variable.shape)
        c.note("component assignment")
        if kind == "component":
            c.emit(f"{target} = {fitting(c, vectors.LIMIT).text}")
        else:
            c.emit(f"{target} {c.pick(['+=', '*=', '-='])} {fitting(c, 0.7).text}")
    if c.loops:
        c.note("carried vector")
    return True


def _rotate_matrix(c: Context) -> bool | None:
    """A carried matrix multiplied by a near-identity: the shape of rotation integrators."""
    square = [v for v in c.variables("f", None, assignable=True) if v.shape in ((2, 2), (3, 3))]
    variable = c.recent(square)
    if variable is None:
        return None
    n = variable.shape[0]
    c.note("matmul")
    entries = [
        [
            f"1.0 - 0.1 * {fitting(c, 1.0, 0).text}"
            if i == j
            else f"0.2 * {fitting(c, 1.0, 0).text}"
            for j in range(n)
        ]
        for i in range(n)
    ]
    rows = ", ".join("[" + ", ".join(row) + "]" for row in entries)
    c.emit(f"{variable.name} = 0.7 * ({variable.name} @ qd.Matrix([{rows}]))")
    return True


def _assign_integer(c: Context) -> bool | None:
    variable = c.recent(c.variables("i", (), assignable=True))
    if variable is None or variable.low < 0:
        return None
    value = within(c, c.whole(2), int(variable.high) + 1)
    c.emit(f"{variable.name} = {value.text}")
    return True


def _assign_truth(c: Context) -> bool | None:
    variable = c.recent(c.variables("b", (), assignable=True))
    if variable is None:
        return None
    c.emit(f"{variable.name} = {c.truth()}")
    return True


def _assign_other_float(c: Context) -> bool | None:
    variable = c.recent(c.variables("d", (), assignable=True))
    if variable is None:
        return None
    c.emit(f"{variable.name} = 0.5 * {variable.name} + {fitting(c, 2.0).text}")
    return True


def _assign_call(c: Context) -> bool | None:
    """Two locals from a func that returns a tuple."""
    made = vectors.call(c, "pair", ())
    if made is None:
        return None
    first = c.declare("s", "f", made.low, made.high)
    second = c.declare("s", "f", made.low, made.high)
    c.emit(f"{first.name}, {second.name} = {made.text}")
    return True


def _chain(c: Context) -> bool:
    value = fitting(c, LOCAL).text
    first, second = (c.declare("s", "f", -LOCAL, LOCAL) for _ in range(2))
    c.note("chained assignment")
    c.emit(f"{first.name} = {second.name} = {value}")
    return True


def _declare_long(c: Context) -> bool:
    value = within(c, c.whole(1), 6)
    variable = c.declare("l", "l", 0, 5)
    c.note("i64 local")
    c.emit(f"{variable.name} = qd.cast({value.text}, qd.i64)")
    return True


def _update_integer(c: Context) -> bool | None:
    """An augmented assignment with an operator that only integers have."""
    variable = c.recent(c.variables("i", (), assignable=True))
    if variable is None or variable.low < 0:
        return None
    c.note("augmented assignment of an i32")
    text = c.pick(["//= {}", "%= {}", "|= 1", ">>= 1", "&= {}", "^= 1"]).format(c.integer(2, 4))
    c.emit(f"{variable.name} {text}")
    return True


def _assert(c: Context) -> bool:
    c.note("assert")
    c.emit(f"assert {within(c, c.whole(1), 9).text} >= 0")
    return True


def _swap(c: Context) -> bool | None:
    options = c.variables("f", (), assignable=True)
    if len(options) < 2:
        return None
    a, b = c.rng.sample(options, 2)
    c.note("tuple assignment")
    c.emit(f"{a.name}, {b.name} = {b.name}, {fitting(c, LOCAL, 1).text}")
    return True


# -- branches --------------------------------------------------------------------------------------


def _branch(c: Context) -> bool | None:
    if c.depth > 4 or not c.affordable():
        return None
    with c.block(f"if {c.truth()}:"):
        block(c)
    while c.chance(0.2):
        c.note("elif")
        with c.block(f"elif {c.truth()}:"):
            block(c)
    if c.chance(0.5):
        c.note("else")
        with c.block("else:"):
            block(c)
    return True


def _static_branch(c: Context) -> bool | None:
    known = [name for name, value in c.shared.constants if isinstance(value, int)]
    if not known or c.depth > 4:
        return None
    c.note("static if")
    with c.block(f"if qd.static({c.pick(known)} > {c.integer(0, 4)}):"):
        block(c)
    with c.block("else:"):
        block(c)
    return True


def _leave_loop(c: Context) -> bool | None:
    if not c.loops:
        return None
    kind = "continue" if c.loops[-1] and c.chance(0.4) else "break"
    c.note(kind)
    with c.block(f"if {c.truth()}:"):
        _some(c)
        c.emit(kind)
    return True


def _return_early(c: Context) -> bool | None:
    if c.returns is None or not (c.in_function or c.serial) or c.depth > 3:
        return None
    c.note("early return from a func" if c.in_function else "early return from a kernel")
    with c.block(f"if {c.truth()}:"):
        _some(c)
        c.emit(c.returns(c))
    return True


STATEMENTS: list[tuple[float, Maker]] = [
    (3.0, _declare_float),
    (1.5, _declare_vector),
    (1.0, _declare_integer),
    (0.4, _declare_truth),
    (0.4, _declare_other_float),
    (0.2, _first_type_counts),
    (0.5, _first_in_branches),
    (5.0, _assign_float),
    (2.5, _assign_vector),
    (0.5, _rotate_matrix),
    (0.8, _assign_integer),
    (0.3, _assign_truth),
    (0.4, _assign_other_float),
    (0.3, _swap),
    (0.1, _assert),
    (0.5, _assign_call),
    (0.2, _chain),
    (0.3, _declare_long),
    (0.3, _update_integer),
    (2.0, _branch),
    (0.2, _static_branch),
    (3.5, loops.counted),
    (1.5, loops.conditional),
    (0.4, loops.unrolled),
    (1.0, loops.long),
    (0.8, loops.pairs),
    (1.0, _leave_loop),
    (0.6, _return_early),
    *array_writes.STATEMENTS,
]
