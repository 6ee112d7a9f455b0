"""Statements that write arrays: stores, updates, atomics."""

from __future__ import annotations

from collections.abc import Callable

from octants.fuzz.generator import array_elements, vectors
from octants.fuzz.generator.bounded_expressions import fitting, within
from octants.fuzz.generator.context import ArrayInfo, Context, Role

LOCAL = 4.0  # the bound of a float local
Maker = Callable[[Context], "bool | None"]


def store(c: Context, array: ArrayInfo, role: Role) -> None:
    """A store into, or an update of, an element that the work item owns."""
    element = array.at(array_elements.position(c, array, role))
    updates = c.chance(0.35)
    symbol = c.pick(["+=", "-="]) if updates else "="
    if array.element_shape and c.chance(0.5):
        value = vectors.expression(c, array.element_shape)
        value = f"0.3 * ({value})" if updates else value
    else:
        if array.element_shape:
            element += array_elements.component(c, array.element_shape)
        value = fitting(c, 1.0 if updates else min(array.high, LOCAL)).text
    if not updates and array.sort == "f" and c.chance(0.15):
        symbol, value = "*=", value if array.element_shape else fitting(c, 1.0).text
        if array.element_shape and "[" not in element.split("]", 1)[1]:
            value = f"0.4 * ({value})"
    c.note({"=": "store", "*=": "*= on an array"}.get(symbol, "+= on an array"))
    c.emit(f"{element} {symbol} {value}")


def _store(c: Context) -> bool | None:
    options = array_elements.writable(c, "f", ("own", "free")) + array_elements.writable(
        c, "d", ("own", "free")
    )
    if not options:
        return None
    store(c, *c.pick(options))
    return True


def accumulate(c: Context, array: ArrayInfo, role: Role) -> None:
    """An atomic of the kind that the task does on this array."""
    element = array.at(array_elements.position(c, array, role))
    if array.element_shape:
        whole = role.fn == "add" and c.chance(0.4)
        if whole:
            c.note("atomic on a vector")
            c.emit(f"{element} += 0.5 * ({vectors.expression(c, array.element_shape)})")
            return
        element += array_elements.component(c, array.element_shape)
    value = fitting(c, 2.0).text
    c.note(f"atomic_{role.fn}")
    if role.fn == "mul":
        value = f"0.7 + 0.2 * ({value})"
    elif role.fn in ("min", "max"):
        value = f"{value}{tie_breaker(c)}"
    elif role.fn == "add" and c.chance(0.5):
        c.emit(f"{element} {c.pick(['+=', '+=', '-='])} {value}")
        return
    name = c.pick(["add", "sub"]) if role.fn == "add" else role.fn
    c.emit(f"qd.atomic_{name}({element}, {value})")


def tie_breaker(c: Context) -> str:
    """A term that differs between work items: equal values have no winner."""
    counters = [v for v in c.variables("i") if v.name[0] in "iIj"]
    return "".join(f" + {0.013 * (k + 1):.3f} * {v.name}" for k, v in enumerate(counters))


def _accumulate(c: Context) -> bool | None:
    options = array_elements.writable(c, "f", ("accumulate",))
    if not options:
        return None
    accumulate(c, *c.pick(options))
    return True


def _store_integer(c: Context) -> bool | None:
    options = array_elements.writable(c, "i", ("own", "free"))
    if not options:
        return None
    array, role = c.pick(options)
    element = array.at(array_elements.position(c, array, role))
    value = within(c, c.whole(2), int(array.high) + 1).text
    c.note("store of an integer")
    c.emit(f"{element} = {value}")
    return True


def _count(c: Context) -> bool | None:
    """An integer atomic."""
    options = array_elements.writable(c, "i", ("accumulate",))
    if not options:
        return None
    array, role = c.pick(options)
    element = array.at(array_elements.position(c, array, role))
    value = within(c, c.whole(1), 3).text
    c.note(f"integer atomic_{role.fn}")
    c.emit(
        f"{element} += {value}" if role.fn == "add" else f"qd.atomic_{role.fn}({element}, {value})"
    )
    return True


def _take(c: Context) -> bool | None:
    """The value that an atomic on an owned element returns."""
    options = [
        (a, r) for a, r in array_elements.writable(c, "f", ("own", "free")) if not a.element_shape
    ]
    if not options or c.chance(0.5):
        return None
    array, role = c.pick(options)
    element = array.at(array_elements.position(c, array, role))
    value = fitting(c, 1.0).text
    variable = c.declare("s", "f", -10.0, 10.0)
    variable.frozen = True
    c.note("result of an atomic")
    c.emit(
        f"{variable.name} = qd.atomic_{c.pick(['add', 'sub', 'max', 'min'])}({element}, {value})"
    )
    return True


STATEMENTS: list[tuple[float, Maker]] = [
    (1.5, _store),
    (1.0, _accumulate),
    (0.4, _store_integer),
    (0.4, _count),
    (0.15, _take),
]
