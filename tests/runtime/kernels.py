"""Small kernels for the tests of the runtime."""

from __future__ import annotations

from typing import Any

from octants.ir.core import Module
from octants.types.scalars import f64, i32, i64, u64
from tests.codegen.compiled import argument, for_, if_, ndarray, parallel, serial, while_


def increment() -> Module:
    """``x[i] += i + 1`` for all i."""
    x = ndarray("x", i32)

    def body(build: Any, i: Any) -> None:
        more = build.binary("add", i, build.index(1))
        build.store(x, [i], build.binary("add", build.load(x, [i]), more))

    task = parallel("t", lambda build: (build.index(0), build.shape(x, 0)), body)
    return Module("increment", [x], tasks=[task])


def rounded_down() -> Module:
    """``x[i] = floor(x[i])`` for all i."""
    x = ndarray("x", f64)

    def body(build: Any, i: Any) -> None:
        build.store(x, [i], build.unary("floor", build.load(x, [i])))

    task = parallel("t", lambda build: (build.index(0), build.shape(x, 0)), body)
    return Module("rounded_down", [x], tasks=[task])


def endless(kind: str) -> Module:
    """Runs for hours, in a loop of that kind: serial, light, in a branch, over items, in one item.

    Or of integers that are divided, which code generation makes a function of.
    """
    x = ndarray("x", f64)

    def turn(build: Any, carried: Any) -> Any:
        return [build.binary("add", carried[0], build.constant(1e-9, f64))]

    def work(build: Any) -> None:
        one = build.constant(1.0, f64)
        if kind == "light":
            bound = build.cast(build.shape(x, 0), i64)
            many = build.binary("mul", bound, build.constant(2**40, i64))
            zero = build.constant(0, i64)
            (total,) = for_(build, zero, many, [one], lambda b, _, c: turn(b, c))
        elif kind != "for":
            (total,) = while_(
                build, [one], lambda b, c: b.compare("gt", c[0], b.constant(0.0, f64)), turn
            )
        else:
            bound = build.constant(2**40, i64)
            (total,) = for_(
                build,
                build.constant(0, i64),
                bound,
                [one],
                lambda b, _, c: for_(b, b.index(0), b.shape(x, 0), c, lambda b, _, c: turn(b, c)),
            )
        build.store(x, [build.index(0)], total)

    def divide(build: Any) -> None:
        start = build.cast(build.shape(x, 0), u64)
        three, seven, nine = (build.constant(k, u64) for k in (3, 7, 9))

        def again(build: Any, carried: Any) -> Any:
            rest = build.binary("mod", carried[0], seven)
            return build.compare("ne", rest, nine)

        def turn_over(build: Any, carried: Any) -> Any:
            more = build.binary("mul", carried[0], three)
            half = build.binary("floordiv", build.binary("add", more, seven), nine)
            return [build.binary("add", half, seven), build.binary("xor", carried[1], half)]

        found = while_(build, [start, start], again, turn_over)
        build.store(x, [build.index(0)], build.cast(found[1], f64))

    def branch(build: Any) -> None:
        is_one = build.compare("eq", build.shape(x, 0), build.index(5))
        if_(build, is_one, lambda b: work(b) or [], lambda b: [])

    def item(build: Any, i: Any) -> None:
        (total,) = for_(
            build,
            build.index(0),
            build.index(1000),
            [build.constant(1.0, f64)],
            lambda b, _, c: turn(b, c),
        )
        place = build.binary("mod", build.cast(i, i32), build.shape(x, 0))
        build.store(x, [place], total)

    if kind == "item":
        task = parallel("t", lambda build: (build.index(0), build.index(1)), lambda b, _: work(b))
    elif kind == "parallel":
        task = parallel("t", lambda build: (build.offset(0), build.offset(2**40)), item, i64)
    else:
        task = serial("t", {"branch": branch, "division": divide}.get(kind, work))
    return Module(f"endless_{kind}", [x], tasks=[task])


def spin() -> Module:
    """``x[i]`` iterations of a loop for each i, whose sum goes to ``y[i]``: items of any length."""
    turns, out = argument("turns", i64), ndarray("out", f64)

    def body(build: Any, i: Any) -> None:
        start = build.cast(i, f64)
        (total,) = for_(
            build,
            build.offset(0),
            build.load(turns, []),
            [start],
            lambda b, _, c: [b.binary("add", c[0], b.constant(0.5, f64))],
        )
        build.store(out, [i], total)

    task = parallel("t", lambda build: (build.index(0), build.shape(out, 0)), body)
    return Module("spin", [turns, out], tasks=[task])
