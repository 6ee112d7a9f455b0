"""Expressions of vectors and matrices, calls of funcs, and reductions to scalars."""

from __future__ import annotations

import math
from collections.abc import Callable

from octants.fuzz.generator import array_elements
from octants.fuzz.generator.bounded_expressions import fitting, within
from octants.fuzz.generator.context import Context, Expr, Function

Shape = tuple[int, ...]
LIMIT = 3.0  # of a component of a local
MOST_ROWS = 4  # of a matrix with an inverse
Maker = Callable[..., "str | None"]


def random_shape(c: Context) -> Shape:
    """The shape of a new local."""
    return c.pick([(2,), (2,), (3,), (3,), (3,), (4,), (2, 2), (2, 2), (3, 3), (2, 3)])


def expression(c: Context, shape: Shape, depth: int = 2) -> str:
    """A vector or matrix with components that fit a local."""
    made: str = c.choose(depth, SIMPLE, LEAVES, OPERATIONS, shape)
    return made


# -- leaves ----------------------------------------------------------------------------------------


def _variable(c: Context, shape: Shape, _: int) -> str | None:
    variable = c.recent(c.variables("f", shape))
    return variable.name if variable else None


def _part(c: Context, shape: Shape, _: int) -> str | None:
    """Some components of a longer vector, or a row or column of a matrix."""
    if len(shape) != 1 or shape[0] > 4:
        return None
    longer = [v for v in c.variables("f", None) if len(v.shape) == 1 and v.shape[0] > 1]
    matrices = [v for v in c.variables("f", None) if len(v.shape) == 2 and shape[0] in v.shape]
    variable = c.recent([*longer, *matrices])
    if variable is None:
        return None
    if len(variable.shape) == 1:
        c.note("swizzle")
        letters = "xyzw"[: variable.shape[0]]
        return f"{variable.name}." + "".join(c.pick(letters) for _ in range(shape[0]))
    c.note("row or column")
    if variable.shape[1] == shape[0]:
        return f"{variable.name}[{c.integer(0, variable.shape[0] - 1)}, :]"
    return f"{variable.name}[:, {c.integer(0, variable.shape[1] - 1)}]"


def _load(c: Context, shape: Shape, _: int) -> str | None:
    options = [(a, r) for a, r in array_elements.readable(c, "f") if a.element_shape == shape]
    if not options:
        return None
    array, role = c.pick(options)
    c.note("load of a vector or matrix")
    text = array.at(array_elements.position(c, array, role))
    return text if array.high <= LIMIT else f"{LIMIT / array.high:.3f} * {text}"


def literal(c: Context, shape: Shape, depth: int) -> str:
    """A vector or matrix from its components."""
    entries = [fitting(c, LIMIT, min(depth, 1)).text for _ in range(size(shape))]
    if len(shape) == 1:
        return f"qd.Vector([{', '.join(entries)}])"
    rows = [entries[k : k + shape[1]] for k in range(0, len(entries), shape[1])]
    return f"qd.Matrix([{', '.join('[' + ', '.join(row) + ']' for row in rows)}])"


SIMPLE: list[tuple[float, Maker]] = [(5.0, _variable), (1.0, literal)]
LEAVES: list[tuple[float, Maker]] = [*SIMPLE, (3.0, _load), (1.0, _part)]


# -- operations ------------------------------------------------------------------------------------


def _sum(c: Context, shape: Shape, depth: int) -> str | None:
    a, b = expression(c, shape, depth), expression(c, shape, depth)
    return f"0.5 * ({a} {c.pick(['+', '-'])} ({b}))"


def _product(c: Context, shape: Shape, depth: int) -> str | None:
    a, b = expression(c, shape, depth), expression(c, shape, depth)
    c.note("elementwise product")
    return f"0.3 * (({a}) * ({b}))"


def _scaled(c: Context, shape: Shape, depth: int) -> str | None:
    factor = fitting(c, 1.0, depth).text
    return f"({factor}) * ({expression(c, shape, depth)})"


def _divided(c: Context, shape: Shape, depth: int) -> str | None:
    return f"({expression(c, shape, depth)}) / (1.0 + qd.abs({c.floating(depth).text}))"


def _function(c: Context, shape: Shape, depth: int) -> str | None:
    c.note("function of a vector")
    return f"qd.{c.pick(['sin', 'cos', 'tanh'])}({expression(c, shape, depth)})"


def _with_number(c: Context, shape: Shape, depth: int) -> str | None:
    """A vector and a number, or one operand."""
    a = expression(c, shape, depth)
    number = f"{c.rng.uniform(0.3, 1.4):.2f}"
    c.note("vector and number")
    forms = [
        "0.5 * ({1} - ({0}))",
        "qd.max({0}, {1})",
        "0.3 * ({0}) ** 2",
        "(-({0}))",
        "qd.abs({0})",
        "({0}) % {1}",
        "{1} / (1.3 + ({0}) * ({0}))",
        "0.5 * qd.floor({0})",
    ]
    return c.pick(forms).format(a, number)


def _elementwise_select(c: Context, shape: Shape, depth: int) -> str | None:
    a, b = expression(c, shape, depth), expression(c, shape, 0)
    c.note("select by element")
    return f"qd.select(({a}) {c.pick(['<', '>='])} ({b}), {a}, {b})"


def _constructed(c: Context, shape: Shape, depth: int) -> str | None:
    """From a constant matrix or vector."""
    c.note("identity or zero")
    scale = fitting(c, 1.0, depth).text
    if len(shape) == 1:
        return f"(qd.Vector.zero(FP, {shape[0]}) + ({scale}))"
    if shape[0] != shape[1]:
        return None
    return f"({scale}) * qd.Matrix.identity(FP, {shape[0]})"


def _extremum(c: Context, shape: Shape, depth: int) -> str | None:
    a, b = expression(c, shape, depth), expression(c, shape, depth)
    c.note("min or max of vectors")
    return f"qd.{c.pick(['min', 'max'])}({a}, {b})"


def _normalized(c: Context, shape: Shape, depth: int) -> str | None:
    if len(shape) != 1:
        return None
    c.note("normalized")
    offset = ", ".join(f"{c.rng.uniform(0.5, 1.5):.2f}" for _ in range(shape[0]))
    return f"(qd.Vector([{offset}]) + 0.4 * qd.sin({expression(c, shape, depth)})).normalized()"


def _cross(c: Context, shape: Shape, depth: int) -> str | None:
    if shape != (3,):
        return None
    c.note("cross")
    return f"0.15 * ({expression(c, shape, depth)}).cross({expression(c, shape, depth)})"


def _matmul(c: Context, shape: Shape, depth: int) -> str | None:
    inner = c.pick([2, 3]) if shape[0] == 2 else 3
    if shape[0] == 4:
        return None
    left = expression(c, (shape[0], inner), depth)
    c.note("matmul")
    if len(shape) == 1:
        return f"0.12 * (({left}) @ ({expression(c, (inner,), depth)}))"
    if (inner, shape[1]) == (3, 2):
        return None
    return f"0.12 * (({left}) @ ({expression(c, (inner, shape[1]), depth)}))"


def _transpose(c: Context, shape: Shape, depth: int) -> str | None:
    if len(shape) != 2 or shape[0] != shape[1]:
        return None
    c.note("transpose")
    return f"({expression(c, shape, depth)}).transpose()"


def _inverse(c: Context, shape: Shape, depth: int) -> str | None:
    if len(shape) != 2 or shape[0] != shape[1] or shape[0] > MOST_ROWS:
        return None
    c.note("inverse")
    n = shape[0]
    rows = ", ".join(
        "[" + ", ".join("1.5" if i == j else "0.1" for j in range(n)) + "]" for i in range(n)
    )
    return f"(qd.Matrix([{rows}]) + 0.1 * ({expression(c, shape, depth)})).inverse()"


def _outer_product(c: Context, shape: Shape, depth: int) -> str | None:
    if len(shape) != 2:
        return None
    c.note("outer_product")
    a, b = expression(c, (shape[0],), depth), expression(c, (shape[1],), depth)
    return f"0.3 * ({a}).outer_product({b})"


def _conditional(c: Context, shape: Shape, depth: int) -> str | None:
    a, b = expression(c, shape, depth), expression(c, shape, depth)
    c.note("select of vectors")
    return f"qd.select({c.truth(0)}, {a}, {b})"


def _call(c: Context, shape: Shape, _: int) -> str | None:
    made = call(c, "f", shape)
    return made.text if made else None


OPERATIONS: list[tuple[float, Maker]] = [
    (3.0, _sum),
    (1.5, _product),
    (3.0, _scaled),
    (0.7, _divided),
    (1.5, _function),
    (0.5, _extremum),
    (1.0, _with_number),
    (0.3, _elementwise_select),
    (0.3, _constructed),
    (1.0, _normalized),
    (1.0, _cross),
    (2.0, _matmul),
    (0.7, _transpose),
    (0.4, _inverse),
    (0.6, _outer_product),
    (0.6, _conditional),
    (1.0, _call),
    (1.0, literal),
]


# -- scalars from vectors --------------------------------------------------------------------------


def reduction(c: Context, depth: int) -> Expr | None:
    """A scalar made of a vector or matrix."""
    variable = c.recent(c.variables("f", None))
    shape = variable.shape if variable and c.chance(0.8) else random_shape(c)
    count, square = size(shape), len(shape) == 2 and shape[0] == shape[1]
    forms = ["sum", "max", "min"]
    if len(shape) == 1:
        forms += ["dot", "norm", "norm_sqr", "dot", "norm"]
    elif square:
        forms += ["trace", "determinant"] if shape[0] <= MOST_ROWS else ["trace"]
    form = c.pick(forms)
    operand = expression(c, shape, min(depth, 1))
    c.note(form)
    bound = LIMIT * count
    if form == "dot":
        text = f"({operand}).dot({expression(c, shape, min(depth, 1))})"
        return Expr(text, -LIMIT * bound, LIMIT * bound)
    if form == "norm":
        return Expr(f"(0.3 + ({operand}) * ({operand})).norm()", 0.0, LIMIT * bound)
    if form in ("norm_sqr", "determinant"):
        bound *= LIMIT * (LIMIT if count == 9 else 1.0)
    if form == "norm_sqr":
        return Expr(f"({operand}).norm_sqr()", 0.0, bound)
    return Expr(f"({operand}).{form}()", -bound, bound)


def call(c: Context, sort: str, shape: Shape) -> Expr | None:
    """A call of a func with such a result; sort "pair" is a tuple of two floats."""
    if c.serial and c.random_allowed:
        return None  # loops of a func called there are parallel, and number the draws
    options = [
        f
        for f in c.shared.functions
        if f.sort == sort
        and f.shape == shape
        and _can_pass(c, f)
        and c.cost + c.trips * f.cost < c.max_cost
    ]
    if not options:
        return None
    function = c.pick(options)
    c.note("func")
    c.cost += c.trips * function.cost
    text = f"{function.name}({', '.join(argument(c, *p) for p in function.parameters)})"
    return Expr(text, function.low, function.high)


def passable(c: Context, shape: Shape) -> list[str]:
    """The arrays of numbers, never written, that an array parameter of such a shape takes here."""
    own = [a.name for a in c.parameters if a.shape == shape]
    return own + [
        a.name
        for a in c.shared.arrays
        if a.constant
        and a.sort == "f"
        and a.shape == shape
        and not a.element_shape
        and a.name in c.roles
        and (a.is_field or not c.in_function)
    ]


def _can_pass(c: Context, function: Function) -> bool:
    return all(passable(c, shape) for sort, shape in function.parameters if sort == "array")


def argument(c: Context, sort: str, shape: Shape) -> str:
    """An argument of a func for a parameter of a sort and a shape."""
    if sort == "array":
        c.note("array passed to a func")
        return c.pick(passable(c, shape))
    if sort.startswith("struct:"):
        return c.struct(sort)
    if shape:
        return expression(c, shape, 1)
    if sort == "i":
        return within(c, c.whole(1), 5).text
    return fitting(c, 4.0, 1).text


def size(shape: Shape) -> int:
    """The number of components."""
    return math.prod(shape)
