"""Fields of three axes in any order of memory, loops over them, and ndranges of three."""

from __future__ import annotations

from octants.fuzz.generator.context import (
    ArrayInfo,
    Context,
    Domain,
    Productions,
    Shared,
    Variable,
)

ORDERS = {2: ("ij", "ji"), 3: ("ijk", "ikj", "jik", "jki", "kij", "kji")}


def declare(shared: Shared) -> list[str]:
    """Some arrays of three axes; fields are placed together, or in an order of their own."""
    rng = shared.rng
    first, second = shared.extents
    shapes = [(first, second, rng.randint(1, 3)), (rng.randint(1, 3), second, first)]
    lines: list[str] = []
    shape = rng.choice(shapes)
    shared.deep = shape
    for number in range(rng.randint(2, 3)):
        if number == 2:
            shape = rng.choice(shapes)
        element = rng.choice([(), (), (2,), (3,), (2, 2)])
        is_field = rng.random() < 0.7
        name = shared.fresh("f" if is_field else "x")
        array = ArrayInfo(name, "f", shape, element, is_field, constant=rng.random() < 0.3)
        array.is_made = is_field
        shared.arrays.append(array)
        if is_field:
            lines += _made(shared, array)
    return lines


def _made(shared: Shared, array: ArrayInfo) -> list[str]:
    """The statement that makes a field."""
    rng, rank = shared.rng, len(array.shape)
    prefix = {0: "", 1: "Vector.", 2: "Matrix."}[len(array.element_shape)]
    options = [*map(str, array.element_shape), "FP"]
    gradients = ["needs_grad=True", "needs_dual=True"]
    ways = ["order", "tree"] if not shared.has_random else ["plain"]
    way = rng.choice([*ways, "layout"] if array.element_shape and ways[0] == "order" else ways)
    shared.features[f"field of three axes: {way}"] += 1
    if way == "tree":
        text = ", ".join([*options, *gradients])
        return [f"{array.name} = qd.{prefix}field({text})", _tree(shared, array)]
    options.append(f"shape={array.shape!r}")
    if way == "order":
        options.append(f"order={rng.choice(ORDERS[rank])!r}")
    elif way == "layout":
        options.append(f"layout=qd.Layout.{rng.choice(['AOS', 'SOA'])}")
    return [f"{array.name} = qd.{prefix}field({', '.join([*options, *gradients])})"]


def _tree(shared: Shared, array: ArrayInfo) -> str:
    """A path in a tree, axis by axis in any order, some of them in two steps."""
    rng = shared.rng
    node = "qd.root"
    for axis in rng.choice(ORDERS[len(array.shape)]):
        extent = array.shape["ijk".index(axis)]
        if extent % 2 == 0 and rng.random() < 0.3:
            node += f".dense(qd.{axis}, 2)"
            extent //= 2
        node += f".dense(qd.{axis}, {extent})"
    return f"{node}.place({array.name})"


# -- domains ---------------------------------------------------------------------------------------


def _three_axes(c: Context) -> Domain:
    """A loop over three indices, or over one vector of them."""
    shape = c.shared.deep
    arrays = [a for a in c.shared.arrays if a.shape == shape and (a.is_field or c.chance(0.5))]
    over = c.pick(arrays).name if arrays and c.chance(0.5) else None
    c.note("domain: struct3" if over else "domain: ndrange3")
    over = over or f"qd.ndrange({', '.join(map(str, shape))})"
    if c.chance(0.3):
        c.note("domain: grouped3")
        name = c.shared.fresh("I")
        return Domain(f"for {name} in qd.grouped({over}):", _counters(name, shape), (name,), shape)
    names = tuple(c.shared.fresh(letter) for letter in "ijl")
    counters = [
        Variable(name, "i", 0, extent - 1, frozen=True)
        for name, extent in zip(names, shape, strict=True)
    ]
    return Domain(f"for {', '.join(names)} in {over}:", counters, names, shape)


def _counters(name: str, shape: tuple[int, ...]) -> list[Variable]:
    return [
        Variable(f"{name}[{axis}]", "i", 0, extent - 1, frozen=True)
        for axis, extent in enumerate(shape)
    ]


PRODUCTIONS = Productions(declare=declare, domains=((1.0, _three_axes),))
