"""Sparse fields: writes that activate, cells that are activated and deactivated, lists."""

from __future__ import annotations

from octants.fuzz.generator import array_elements
from octants.fuzz.generator.bounded_expressions import fitting
from octants.fuzz.generator.context import (
    ArrayInfo,
    Cells,
    Context,
    Domain,
    Expr,
    Productions,
    Role,
    Shared,
    Variable,
)


def declare(shared: Shared) -> list[str]:
    """Make one to three fields in trees of sparse blocks.

    Such programs draw no random numbers: these depend on how launches and work items are numbered.
    """
    shared.has_random = False
    lines: list[str] = []
    for _ in range(shared.rng.choice([1, 2, 2, 3])):
        lines += _tree(shared)
    return lines


def _tree(shared: Shared) -> list[str]:
    """A block, and one or two fields in it."""
    rng, (n, m) = shared.rng, shared.extents
    block = shared.fresh("B")
    two = {
        "pointer of rows": (f"qd.root.pointer(qd.i, {n})", f"{block}.dense(qd.j, {m})", 1),
        "pointer of elements": (f"qd.root.pointer(qd.ij, ({n}, {m}))", block, 2),
        "bitmasked in rows": (f"qd.root.dense(qd.i, {n}).bitmasked(qd.j, {m})", block, 2),
        "bitmasked in pointer": (f"qd.root.pointer(qd.i, {n}).bitmasked(qd.j, {m})", block, 2),
        "list in each row": (f"qd.root.dense(qd.i, {n}).dynamic(qd.j, {m})", block, 0),
        "list in pointer": (f"qd.root.pointer(qd.i, {n}).dynamic(qd.j, {m})", block, 0),
    }
    one = {"bitmasked": (f"qd.root.bitmasked(qd.i, {n})", block, 1)}
    if n % 2 == 0:
        one["pointer of halves"] = (
            f"qd.root.pointer(qd.i, {n // 2})",
            f"{block}.dense(qd.i, 2)",
            1,
        )
    name = rng.choice([*two, *one])
    tree, leaf, axes = {**two, **one}[name]
    shared.features[f"sparse: {name}"] += 1
    shape = (n, m) if name in two else (n,)
    cells = Cells(block, axes, 2 if name == "pointer of halves" else 1)
    lines = [f"{block} = {tree}"]
    for _ in range(1 if not axes else rng.randint(1, 2)):
        element = rng.choice([(), (), (2,)]) if axes else ()
        array = ArrayInfo(shared.fresh("s"), "f", shape, element, True, is_made=True, cells=cells)
        shared.arrays.append(array)
        maker = "qd.Vector.field(2, FP" if element else "qd.field(FP"
        lines.append(f"{array.name} = {maker}, needs_grad=True, needs_dual=True)")
        lines.append(f"{leaf}.place({array.name})")
    return lines


# -- cells -----------------------------------------------------------------------------------------


def _sparse(c: Context, kinds: tuple[str, ...]) -> list[tuple[ArrayInfo, Role, Cells]]:
    """The sparse fields whose cells a work item may use here."""
    found = array_elements.writable(c, "f", kinds)
    return [(a, r, a.cells) for a, r in found if a.cells and len(r.rows) == r.axes]


def _cell(c: Context, array: ArrayInfo, role: Role, cells: Cells) -> str:
    """The index of a cell of a block."""
    parts = _split(array_elements.position(c, array, role))[: cells.axes or 1]
    if cells.size > 1:
        parts = [f"({part}) // {cells.size}" for part in parts]
    return ", ".join(parts)


def _split(text: str) -> list[str]:
    """The indices in a text, which may have commas of their own."""
    parts, depth = [""], 0
    for letter in text:
        depth += (letter in "([") - (letter in ")]")
        if letter == "," and depth == 0:
            parts.append("")
        else:
            parts[-1] += letter
    return [part.strip() for part in parts]


def _is_own(role: Role, cells: Cells) -> bool:
    """Whether a work item has a cell for itself."""
    return role.kind == "free" or (cells.size == 1 and (cells.axes or 1) >= role.axes)


def _activate(c: Context) -> bool | None:
    options = [one for one in _sparse(c, ("own", "free", "accumulate")) if one[2].axes]
    if not options:
        return None
    array, role, cells = c.pick(options)
    c.note("activate")
    c.emit(f"qd.activate({cells.block}, [{_cell(c, array, role, cells)}])")
    return True


def _deactivate(c: Context) -> bool | None:
    options = [one for one in _sparse(c, ("own", "free")) if _is_own(one[1], one[2])]
    if not options or c.chance(0.25):
        return None
    array, role, cells = c.pick(options)
    cell = _cell(c, array, role, cells)
    c.note("deactivate" if cells.axes else "deactivate of a list")
    with c.block(f"if {c.truth()}:"):
        c.emit(
            f"qd.deactivate({cells.block}, [{cell}])"
            if cells.axes
            else f"{array.name}[{cell}].deactivate()"
        )
    return True


def _append(c: Context) -> bool | None:
    options = [one for one in _sparse(c, ("own", "free")) if not one[2].axes and _is_own(*one[1:])]
    if not options:
        return None
    array, role, cells = c.pick(options)
    row = _cell(c, array, role, cells)
    c.note("append")
    with c.block(f"if {array.name}[{row}].length() < {array.shape[1]}:"):
        c.emit(f"{array.name}[{row}].append({fitting(c, 2.0).text})")
    return True


def _state(c: Context, _: int = 0) -> Expr | None:
    """Whether a cell is active, or how long a list is."""
    options = [one for one in _sparse(c, ("own", "free")) if _is_own(one[1], one[2])]
    if not options:
        return None
    array, role, cells = c.pick(options)
    cell = _cell(c, array, role, cells)
    if cells.axes:
        c.note("is_active")
        return Expr(f"qd.is_active({cells.block}, [{cell}])", 0, 1)
    c.note("length of a list")
    return Expr(f"{array.name}[{cell}].length()", 0, array.shape[1])


def _active_elements(c: Context) -> Domain:
    """A loop over a sparse field, or over the cells of its block."""
    array = c.pick([array for array in c.shared.arrays if array.cells])
    assert array.cells is not None
    over, shape = array.name, array.shape
    if array.cells.axes == 1 and array.cells.size == 1 and c.chance(0.4):
        over, shape = array.cells.block, shape[:1]
    elif array.cells.axes == len(shape) and array.cells.size == 1 and c.chance(0.4):
        over = array.cells.block
    c.note("domain: sparse block" if over == array.cells.block else "domain: sparse field")
    names = tuple(c.shared.fresh(letter) for letter in "ij"[: len(shape)])
    counters = [
        Variable(name, "i", 0, extent - 1, frozen=True)
        for name, extent in zip(names, shape, strict=True)
    ]
    return Domain(f"for {', '.join(names)} in {over}:", counters, names, shape)


PRODUCTIONS = Productions(
    declare=declare,
    integers=((1.0, _state),),
    statements=((0.8, _activate), (0.8, _deactivate), (2.0, _append)),
    domains=((1.0, _active_elements),),
)
