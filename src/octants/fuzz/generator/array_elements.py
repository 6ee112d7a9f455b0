"""Array elements that the current task may read, write or accumulate to."""

from __future__ import annotations

from octants.fuzz.generator.bounded_expressions import index
from octants.fuzz.generator.context import ArrayInfo, Context, Expr, Role


def position(c: Context, array: ArrayInfo, role: Role) -> str:
    """The text of an index list that the role allows."""
    rows = list(role.rows) if role.kind == "own" else []
    rest = [_index(c, array, extent) for extent in array.shape[role.axes :]]
    if rest and role.kind == "read":
        c.note("data-dependent index")
    return ", ".join([*rows, *rest]) or "None"


def _index(c: Context, array: ArrayInfo, extent: int) -> str:
    """An index of an array, perhaps beyond an end if that is clamped."""
    if not array.clamps or c.in_function or c.chance(0.3):
        return index(c, extent)
    c.note("index that may be beyond an end")
    return f"{c.whole(c.pick([0, 0, 1])).text} {c.pick(['+', '-'])} {c.integer(0, 4)}"


def readable(
    c: Context, sort: str, element_rank: int | None = None
) -> list[tuple[ArrayInfo, Role]]:
    """The arrays that may be read here."""
    return [
        (array, role)
        for array, role in _roles(c)
        if array.sort == sort
        and role.kind in ("own", "read", "free")
        and (element_rank is None or len(array.element_shape) == element_rank)
        and (array.constant or c.shared.overwrites)
    ]


def writable(c: Context, sort: str, kinds: tuple[str, ...]) -> list[tuple[ArrayInfo, Role]]:
    """The arrays that may be written here, in the given ways."""
    return [
        (array, role)
        for array, role in _roles(c)
        if array.sort == sort and role.kind in kinds and not array.constant
    ]


def _roles(c: Context) -> list[tuple[ArrayInfo, Role]]:
    arrays = [*c.shared.arrays, *c.parameters]
    pairs = [(array, c.roles.get(array.name)) for array in arrays]
    return [(array, role) for array, role in pairs if role is not None]


def load(c: Context, sort: str) -> Expr | None:
    """A scalar read from an array of scalars, or a component of one of vectors."""
    options = readable(c, sort)
    if not options:
        return None
    array, role = c.pick(options)
    c.note(f"load of a {'field' if array.is_field else 'ndarray'}")
    text = array.at(position(c, array, role))
    if array.element_shape:
        text += component(c, array.element_shape)
    if sort == "i" and array.dtype != "qd.i32":
        c.note(f"load of {array.dtype[3:]}")
        if array.dtype != "qd.i64" or c.chance(0.6):
            text = f"qd.cast({text}, qd.i32)"
    return Expr(text, array.low, array.high)


def component(c: Context, shape: tuple[int, ...]) -> str:
    """The subscript of a component, with constants or with run-time indices."""
    if c.chance(0.35):
        c.note("run-time component index")
        return "[" + ", ".join(index(c, extent) for extent in shape) + "]"
    if len(shape) == 1 and c.chance(0.2):
        return "." + "xyzw"[c.integer(0, min(shape[0], 4) - 1)]
    return "[" + ", ".join(str(c.integer(0, extent - 1)) for extent in shape) + "]"
