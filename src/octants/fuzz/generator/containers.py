"""Dicts, lists and comprehensions of values that are known at run time."""

from __future__ import annotations

from octants.fuzz.generator.bounded_expressions import fitting, index
from octants.fuzz.generator.context import Context, Expr, Productions, Variable

LIMIT = 4.0  # the bound of a value
TABLE = 3  # elements of the tuple that indices of unrolled loops index
KEYS = (("a", "b", "c", "d"), (0, 1, 2, 3), ((0, 1), (1, 0), (1, 1), (2, 0)))
"""A dict has the first keys of a row, which its `Variable` has for a shape, after the row."""


def _value(c: Context) -> str:
    """A float that is not known when the kernel is compiled, as far as its type goes."""
    return f"FP({fitting(c, LIMIT, 1).text})"


def _of_index(c: Context, name: str, count: int) -> str:
    """A value that may depend on the index of a comprehension."""
    with c.scope():
        c.scopes[-1].append(Variable(name, "i", 0, count - 1, frozen=True))
        return _value(c)


def _display(c: Context, row: int, count: int) -> str:
    """The text of a dict."""
    items = [f"{key!r}: {_value(c)}" for key in KEYS[row][:count]]
    if count > 1 and c.chance(0.2):
        c.note("dict in a dict display")
        first = items.pop(0)
        items.insert(0, f"**{{{first}}}")
    return f"{{{', '.join(items)}}}"


def _declare_dict(c: Context) -> bool:
    row, count = c.integer(0, len(KEYS) - 1), c.integer(1, 4)
    if row == 1 and count <= TABLE and c.chance(0.6):
        c.note("comprehension of a dict")
        name = c.shared.fresh("q")
        text = f"{{{name}: {_of_index(c, name, count)} for {name} in range({count})}}"
    else:
        text = _display(c, row, count)
    variable = c.declare("k", "dict", -LIMIT, LIMIT, (row, count))
    c.note("dict")
    c.emit(f"{variable.name} = {text}")
    return True


def _assign_dict(c: Context) -> bool | None:
    variable = c.recent(c.variables("dict", None, assignable=True))
    if variable is None or c.loops:
        return None
    c.note("assignment of a dict")
    c.emit(f"{variable.name} = {_display(c, *variable.shape)}")
    return True


def _entry(c: Context, _: int = 0) -> Expr | None:
    variable = c.recent(c.variables("dict", None))
    if variable is None:
        return None
    row, count = variable.shape
    key = c.pick(KEYS[row][:count])
    if c.chance(0.2):
        c.note("get of a dict")
        key = c.pick(KEYS[row])
        return Expr(f"{variable.name}.get({key!r}, {_value(c)})", -LIMIT, LIMIT)
    c.note("value of a dict")
    return Expr(f"{variable.name}[{key!r}]", -LIMIT, LIMIT)


def _assign_item(c: Context) -> bool | None:
    """Assign or update a value of a dict, also in branches and loops that run in order."""
    variable = c.recent(c.variables("dict", None, assignable=True))
    if variable is None:
        return None
    row, count = variable.shape
    place = f"{variable.name}[{c.pick(KEYS[row][:count])!r}]"
    if c.chance(0.5):
        c.note("assignment of an item of a dict")
        c.emit(f"{place} = {fitting(c, LIMIT).text}")
    elif c.chance(0.5):
        c.note("update of an item of a dict")
        c.emit(f"{place} *= {fitting(c, 1.0).text}")
    else:
        c.note("update of an item of a dict")
        c.emit(f"{place} {c.pick(['+=', '-='])} {fitting(c, 1.0).text}")
        c.emit(f"{place} *= 0.7")
    return True


def _loop_over_dict(c: Context) -> bool | None:
    """A loop over the items of a dict, or its values, which is unrolled."""
    variable = c.recent(c.variables("dict", None))
    if variable is None or not c.affordable(4):
        return None
    _, count = variable.shape
    key, value = c.shared.fresh("k"), c.shared.fresh("u")
    first = fitting(c, 1.0, 1).text
    total = c.declare("s", "f", -LIMIT, LIMIT)
    c.emit(f"{total.name} = {first}")
    c.note("loop over a dict")
    over = c.pick(["items", "values", "keys"])
    target = {"items": f"{key}, {value}", "values": value, "keys": key}[over]
    header = f"for {target} in qd.static({variable.name}.{over}()):"
    with c.block(header, trips=float(count)):
        read = f"{variable.name}[{key}]" if over == "keys" else value
        c.scopes[-1].append(Variable(read, "f", -LIMIT, LIMIT, frozen=True))
        c.emit(f"{total.name} = 0.5 * {total.name} + 0.4 * {read} * {fitting(c, 1.0, 1).text}")
    return True


def _declare_list(c: Context) -> bool:
    """A list of floats whose elements may be assigned, and read at any index."""
    count = c.integer(2, 4)
    if count <= TABLE and c.chance(0.5):
        c.note("comprehension of a list")
        name = c.shared.fresh("q")
        text = f"{_of_index(c, name, count)} for {name} in range({count})"
    else:
        text = ", ".join(_value(c) for _ in range(count))
    variable = c.declare("v", "list", -LIMIT, LIMIT, (count,))
    c.note("list whose elements change")
    c.emit(f"{variable.name} = [{text}]")
    c.emit(f"{variable.name}[{c.integer(0, count - 1)}] = {_value(c)}")
    return True


def _assign_element(c: Context) -> bool | None:
    variable = c.recent(c.variables("list", None, assignable=True))
    if variable is None:
        return None
    c.note("assignment of an element of a list")
    c.emit(f"{variable.name}[{index(c, variable.shape[0])}] = {fitting(c, LIMIT).text}")
    return True


def _element(c: Context, _: int = 0) -> Expr | None:
    variable = c.recent(c.variables("list", None))
    if variable is None:
        return None
    (count,) = variable.shape
    if c.chance(0.35):
        c.note("slice of a list")
        first = c.integer(0, count - 1)
        last = c.integer(first + 1, count)
        part = f"{variable.name}[{first or ''}:{'' if last == count else last}]"
        return Expr(f"{part}[{index(c, last - first)}]", -LIMIT, LIMIT)
    return Expr(f"{variable.name}[{index(c, count)}]", -LIMIT, LIMIT)


def _compared(c: Context) -> bool | None:
    """A branch on a comparison of tuples or lists, item by item."""
    variables = c.variables("f", (), assignable=True)
    if not variables or c.depth > 4:
        return None
    count = c.integer(1, 3)
    pair = [[c.whole(1).text for _ in range(count + (k and c.chance(0.1)))] for k in range(2)]
    pair[1] = [one if c.chance(0.5) else other for one, other in zip(*pair, strict=False)]
    if c.chance(0.2):
        pair[1].append(str(c.integer(0, 2)))
    one, other = (f"({', '.join(items)},)" for items in pair)
    fn = c.pick(["<", "<=", ">", ">=", "==", "==", "!=", "in"])
    c.note("tuple in tuples" if fn == "in" else "compared tuples")
    if fn == "in":
        other = f"[{other}, ({', '.join(c.rng.sample(['0', '1', '2', '3'], count))},)]"
    elif c.chance(0.2):
        one, other = (f"[{text[1:-2]}]" for text in (one, other))
    target = c.pick(variables).name
    with c.block(f"if {one} {fn} {other}:"):
        c.emit(f"{target} = 0.5 * {target} + {fitting(c, 1.0, 1).text}")
    return True


PRODUCTIONS = Productions(
    floats=((1.5, _entry), (1.0, _element)),
    statements=(
        (2.0, _declare_dict),
        (0.7, _assign_dict),
        (1.2, _assign_item),
        (1.0, _loop_over_dict),
        (1.0, _declare_list),
        (0.7, _assign_element),
        (1.0, _compared),
    ),
)
