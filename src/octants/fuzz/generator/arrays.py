"""Generates the arrays of a program: their declarations, and their annotations as arguments."""

from __future__ import annotations

import random

from octants.fuzz.generator.context import ArrayInfo, Shared, View


def make(shared: Shared, extents: tuple[int, int]) -> list[ArrayInfo]:
    """Random arrays; the first one may be written, the second one never is."""
    rng, (first, second) = shared.rng, extents
    arrays = []
    count = rng.randint(3, 5)
    for number in range(count):
        shape = rng.choice([(first,), (first,), (first, second), (second,), ()])
        element = rng.choice([(), (), (), (), (), (3,), (3,), (2,), (2, 2), (3, 3)])
        if number < 2:
            shape = (first,) if number == 0 or rng.random() < 0.6 else (first, second)
        is_field = shape == () or rng.random() < 0.5
        name = shared.fresh("f" if is_field else "x")
        arrays.append(ArrayInfo(name, "f", shape, element, is_field))
    arrays[1].constant = True
    for array in arrays[2:]:
        array.constant = rng.random() < 0.2
    if all(array.constant for array in arrays[1:]):
        arrays[-1].constant = False
    for constant in (True, False)[: rng.randint(1, 2)]:
        shape = rng.choice([(first,), (second,), (first, second)])
        is_field = rng.random() < 0.5
        name = shared.fresh("t" if is_field else "y")
        counts = not constant and rng.random() < 0.5  # accumulated to: larger values
        dtype = rng.choice(["qd.i32"] * 6 + ["qd.i64", "qd.u8", "qd.i16", "qd.u32"])
        high = (90 if first < 20 else 6000) if counts else 4
        arrays.append(ArrayInfo(name, "i", shape, (), is_field, 0, high, constant, dtype))
    if rng.random() < 0.25:
        name = shared.fresh("e")
        arrays.append(
            ArrayInfo(name, "d", (first,), (), True, dtype=rng.choice(["qd.f64", "qd.f32"]))
        )
    for array in arrays:
        array.has_grad = array.is_float
        if (
            array.is_float
            and array not in arrays[:2]
            and rng.random() < (0.3 if array.constant else 0.08)
        ):
            array.has_grad = False
            written = "" if array.constant else "written "
            shared.features[f"{written}float array without a gradient"] += 1
    return arrays


def declarations(shared: Shared) -> list[str]:
    """Every array; some fields are placed by hand."""
    rng, lines = shared.rng, []
    waiting: list[ArrayInfo] = []  # to be placed together
    for array in shared.arrays:
        if array.owner or array.is_made:
            continue
        if array.view:
            lines += _view(array, array.view, rng)
            continue
        is_placed = array.is_field and array.shape and not array.imported
        by_hand = is_placed and not shared.has_random and rng.random() < 0.25
        lines.append(_declaration(array, rng, has_shape=not by_hand))
        if array.imported:
            lines.append(f"{array.imported} = qd.from_dlpack({array.name})")
        if by_hand:
            shared.features["field placed by hand"] += 1
            waiting.append(array)
    while waiting:
        first = waiting.pop(0)
        same = [a for a in waiting if a.shape == first.shape]
        waiting = [a for a in waiting if a.shape != first.shape]
        names = ", ".join(a.name for a in (first, *same))
        lines.append(f"{_tree(first.shape, rng)}.place({names})")
    return lines


def _tree(shape: tuple[int, ...], rng: random.Random) -> str:
    """A field tree whose leaves have the shape, its axes in either order, perhaps split."""
    if len(shape) == 1:
        halves = shape[0] % 2 == 0 and rng.random() < 0.5
        return (
            f"qd.root.dense(qd.i, {shape[0] // 2}).dense(qd.i, 2)"
            if halves
            else (f"qd.root.dense(qd.i, {shape[0]})")
        )
    if len(shape) == 3:
        return f"qd.root.dense(qd.ijk, {shape!r})"
    forms = [
        f"qd.root.dense(qd.ij, {shape!r})",
        f"qd.root.dense(qd.i, {shape[0]}).dense(qd.j, {shape[1]})",
        f"qd.root.dense(qd.j, {shape[1]}).dense(qd.i, {shape[0]})",
    ]
    return rng.choice(forms)


def _declaration(array: ArrayInfo, rng: random.Random, has_shape: bool) -> str:
    maker = "field" if array.is_field else "ndarray"
    prefix = {0: "qd.", 1: "qd.Vector.", 2: "qd.Matrix."}[len(array.element_shape)]
    arguments = [*map(str, array.element_shape), array.dtype]
    if has_shape:
        arguments.append(f"shape={array.memory_shape!r}")
    if has_shape and array.element_shape and array.is_field and rng.random() < 0.15:
        arguments.append("layout=qd.Layout.SOA")
    if array.has_grad:
        arguments += ["needs_grad=True", "needs_dual=True"]
    return f"{array.memory} = {prefix}{maker}({', '.join(arguments)})"


def _view(array: ArrayInfo, view: View, rng: random.Random) -> list[str]:
    """A view, and its ndarray if it is the first one of it."""
    (size,) = array.shape
    ways = [f"{array.memory}[{view.first}:{view.first + size}]"]
    ways.append(f"qd.BufferView({array.memory}, {view.first}, {size})")
    lines = [f"{array.name} = {rng.choice(ways)}"]
    return lines if view.is_later else [_declaration(array, rng, has_shape=True), *lines]


def annotation(array: ArrayInfo) -> str:
    """The parameter of a kernel that takes an ndarray, or a view of one."""
    dtype = array.dtype
    if array.view:
        return f"{array.name}: qd.BufferView{'' if array.element_shape else f'[{dtype}]'}"
    if len(array.element_shape) == 1:
        dtype = f"qd.types.vector({array.element_shape[0]}, {dtype})"
    elif array.element_shape:
        rows, columns = array.element_shape
        dtype = f"qd.types.matrix({rows}, {columns}, {dtype})"
    boundary = ', boundary="clamp"' if array.clamps else ""
    return f"{array.name}: qd.types.ndarray({dtype}, {len(array.shape)}{boundary})"
