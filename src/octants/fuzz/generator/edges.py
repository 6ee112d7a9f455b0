"""Ndarrays whose indices are clamped, loops in an order of axes, and swizzles that are assigned."""

from __future__ import annotations

from octants.fuzz.generator import integers, loops
from octants.fuzz.generator.bounded_expressions import fitting
from octants.fuzz.generator.context import Context, Domain, Productions, Shared, Variable


def declare(shared: Shared) -> list[str]:
    """Let most ndarrays have clamped indices."""
    for array in shared.arrays:
        if not array.is_field and not array.view and shared.rng.random() < 0.7:
            shared.features["ndarray with clamped indices"] += 1
            array.clamps = True
    return []


def in_order(c: Context) -> bool | None:
    """A serial loop over two indices, of which the first one runs fastest."""
    variables = c.variables("f", (), assignable=True)
    if not variables or len(c.loops) > 1 or not c.affordable(6.0) or c.depth > 4:
        return None
    if c.serial and not c.run_time_loops:
        return None
    c.note("loop in an order of axes")
    first, second = (c.shared.fresh("k") for _ in range(2))
    low, target = c.integer(-1, 1), c.pick(variables).name
    bounds = f"{integers.trip_bound(c, 3).text}, ({low}, {low} + {integers.trip_bound(c, 3).text})"
    axes = c.pick(["(1, 0)", "(1, 0)", "(0, 1)"])
    header = f"for {first}, {second} in qd.ndrange({bounds}, axes={axes}):"
    with c.block(header, trips=5.0), loops.inside(c, True):
        c.scopes[-1] += [
            Variable(first, "i", 0, 2, frozen=True),
            Variable(second, "i", low, low + 2, frozen=True),
        ]
        c.emit(f"{target} = 0.6 * {target} + 0.3 * qd.sin({first} - 2.0 * {second} + {target})")
        if c.chance(0.6):
            c.statements(1)
    return True


def swizzle(c: Context) -> bool | None:
    """An assignment to some components of a vector."""
    vectors = [v for v in c.variables("f", None, assignable=True) if len(v.shape) == 1]
    vectors = [v for v in vectors if v.shape[0] <= 4]
    if not vectors:
        return None
    vector = c.pick(vectors)
    count = c.integer(2, vector.shape[0])
    letters = c.rng.sample("xyzw"[: vector.shape[0]], count)
    others = c.rng.choices("xyzw"[: vector.shape[0]], k=count)
    c.note("assignment of a swizzle")
    value = f"0.5 * {vector.name}.{''.join(others)} + {fitting(c, 1.0, 1).text}"
    c.emit(f"{vector.name}.{''.join(letters)} = {value}")
    return True


def domain(c: Context) -> Domain:
    """Work items in an order of axes; what they draw depends on their order."""
    i, j = c.shared.fresh("i"), c.shared.fresh("j")
    extents = c.shared.extents
    axes = "" if c.shared.has_random else ", axes=(1, 0)"
    c.note("domain: axes")
    counters = [
        Variable(name, "i", 0, extent - 1, frozen=True)
        for name, extent in zip((i, j), extents, strict=True)
    ]
    header = f"for {i}, {j} in qd.ndrange({extents[0]}, {extents[1]}{axes}):"
    return Domain(header, counters, (i, j), extents)


PRODUCTIONS = Productions(
    statements=((2.0, in_order), (2.0, swizzle)),
    domains=((1.0, domain),),
    declare=declare,
)
