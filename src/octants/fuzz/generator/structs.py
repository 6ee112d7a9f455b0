"""Structs: locals, members, methods, arguments, what funcs take and return, and fields of them.

The members of a local ``u5`` are variables of their own, ``u5.a`` and ``u5.s.q``, so that all
other productions read and write them; here are only those that handle a struct as a whole.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from octants.fuzz.generator import array_elements, vectors
from octants.fuzz.generator.bounded_expressions import fitting, within
from octants.fuzz.generator.context import (
    ArrayInfo,
    Context,
    Expr,
    Function,
    Productions,
    Role,
    Shared,
    Variable,
)

FLOAT, INTEGER = 4.0, 6  # bounds of members
Shape = tuple[int, ...]


@dataclass
class Kind:
    """A struct type: its members as (name, sort or type, shape of a vector or matrix)."""

    name: str
    members: list[tuple[str, str | Kind, Shape]]
    methods: list[Function] = field(default_factory=list)
    mutators: set[str] = field(default_factory=set)

    @property
    def sort(self) -> str:
        """The sort of variables that hold one."""
        return f"struct:{self.name}"

    def leaves(self) -> Iterator[tuple[str, str, Shape]]:
        """The dotted names, sorts and shapes of all numbers, vectors and matrices."""
        for name, sort, shape in self.members:
            if isinstance(sort, Kind):
                yield from ((f"{name}.{rest}", *more) for rest, *more in sort.leaves())  # type: ignore[misc]
            else:
                yield name, sort, shape


def by_sort(c: Context, sort: str) -> Kind:
    """The type that variables of a kind hold."""
    kind: Kind = next(kind for kind in c.shared.kinds if kind.sort == sort)
    return kind


# -- declarations ----------------------------------------------------------------------------------


def declare(shared: Shared) -> list[str]:
    """One or two types, the second with the first as a member, and fields of them."""
    lines: list[str] = []
    for _ in range(shared.rng.randint(1, 2)):
        lines += [*_type(shared), ""]
    for _ in range(shared.rng.choice([0, 1, 1, 2])):
        lines += _field(shared)
    return lines


def _type(shared: Shared) -> list[str]:
    rng = shared.rng
    members: list[tuple[str, str | Kind, Shape]] = [("a", "f", ())]
    options: list[tuple[str, Shape]] = [("f", ()), ("f", (3,)), ("f", (2,)), ("f", (2, 2))]
    for name in "bcd"[: rng.randint(1, 3)]:
        sort, shape = rng.choice([*options, ("i", ())])
        members.append((name, sort, shape))
    if shared.kinds:
        shared.features["struct in a struct"] += 1
        members.insert(rng.randint(0, len(members)), ("s", shared.kinds[0], ()))
    kind = Kind(shared.fresh("Struct"), members)
    shared.kinds.append(kind)
    annotations = [(name, _annotation(sort, shape)) for name, sort, shape in members]
    if rng.random() < 0.4:
        shared.features["types.struct"] += 1
        inside = ", ".join(f"{name}={text}" for name, text in annotations)
        return [f"{kind.name} = qd.types.struct({inside})"]
    shared.features["dataclass with methods"] += 1
    lines = [f"    {name}: {text}" for name, text in annotations]
    for _ in range(rng.randint(1, 2)):
        lines += ["", *(f"    {line}".rstrip() for line in _method(shared, kind))]
    return ["@qd.dataclass", f"class {kind.name}:", *lines]


def _annotation(sort: str | Kind, shape: Shape) -> str:
    if isinstance(sort, Kind):
        return sort.name
    dtype = {"f": "FP", "i": "qd.i32"}[sort]
    if not shape:
        return dtype
    maker = "vector" if len(shape) == 1 else "matrix"
    return f"qd.types.{maker}({', '.join(map(str, shape))}, {dtype})"


def _method(shared: Shared, kind: Kind) -> list[str]:
    """A method that gives a float; some change members."""
    c = Context(shared)
    c.in_function, c.random_allowed, c.cost = True, False, c.max_cost * 0.85
    changes = c.chance(0.5)
    name, parameter = shared.fresh("method"), shared.fresh("a")
    c.scopes[0].append(Variable(parameter, "f", -FLOAT, FLOAT))
    c.scopes[0].extend(_members(kind, "self", frozen=not changes))
    start = c.cost
    if c.chance(0.4):
        c.note("early return from a method")
        c.returns = lambda at: f"return {fitting(at, FLOAT, 1).text}"
    c.statements(c.integer(1, 2))
    c.emit(f"return {fitting(c, FLOAT, 1).text}")
    kind.methods.append(Function(name, [("f", ())], "f", (), c.cost - start))
    if changes:
        kind.mutators.add(name)
    return ["@qd.func", f"def {name}(self, {parameter}):", *c.lines]


def _members(kind: Kind, name: str, frozen: bool = False) -> list[Variable]:
    """The variable of a struct, and those of its members."""
    made = [Variable(name, kind.sort, 0, 0, frozen=frozen)]
    for member, sort, shape in kind.members:
        if isinstance(sort, Kind):
            made += _members(sort, f"{name}.{member}", frozen)
            continue
        bound = vectors.LIMIT if shape else FLOAT
        low, high = (-bound, bound) if sort == "f" else (0, INTEGER)
        made.append(Variable(f"{name}.{member}", sort, low, high, shape, frozen))
    return made


def _field(shared: Shared) -> list[str]:
    rng = shared.rng
    kind: Kind = rng.choice(shared.kinds)
    shape, name = shared.arrays[0].shape, shared.fresh("sf")
    if rng.random() < 0.3:
        shape = next((a.shape for a in shared.arrays if len(a.shape) == 2), shape)
    constant = rng.random() < 0.3
    for member, sort, element in kind.leaves():
        template = "{name}[{index}]" if rng.random() < 0.3 else f"{name}[{{index}}].{member}"
        info = ArrayInfo(f"{name}.{member}", sort, shape, element, True, constant=constant)
        info.template, info.owner, info.has_grad = template, name, sort == "f"
        if sort == "i":
            info.low, info.high, info.dtype = 0, INTEGER, "qd.i32"
        shared.arrays.append(info)
    shared.features["field of structs"] += 1
    options = "needs_grad=True, needs_dual=True"
    if rng.random() < 0.25 and not shared.has_random:
        axes = "ijkl"[: len(shape)]
        return [
            f"{name} = {kind.name}.field({options})",
            f"qd.root.dense(qd.{axes}, {shape!r}).place({name})",
        ]
    layout = ", layout=qd.Layout.SOA" if rng.random() < 0.3 else ""
    return [f"{name} = {kind.name}.field(shape={shape!r}, {options}{layout})"]


# -- values ----------------------------------------------------------------------------------------


def expression(c: Context, sort: str) -> str:
    """A value of a struct type."""
    made: str = c.try_table(VALUES, by_sort(c, sort))
    return made


def _variable(c: Context, kind: Kind) -> str | None:
    variable = c.recent(c.variables(kind.sort))
    if variable is None:
        return None
    c.note("copy of a struct")
    return variable.name


def _constructor(c: Context, kind: Kind) -> str:
    """All members, in order or by name."""
    c.note("struct from its members")
    values = []
    for _, sort, shape in kind.members:
        if isinstance(sort, Kind):
            values.append(expression(c, sort.sort))
        elif sort == "i":
            values.append(within(c, c.whole(1), INTEGER + 1).text)
        elif shape:
            values.append(vectors.expression(c, shape, 1))
        else:
            values.append(fitting(c, FLOAT, 1).text)
    if c.chance(0.4):
        names = [name for name, _, _ in kind.members]
        values = [f"{name}={value}" for name, value in zip(names, values, strict=True)]
        if c.chance(0.3):
            c.note("struct with members left out")
            values.pop()
    return f"{kind.name}({', '.join(values)})"


def _call(c: Context, kind: Kind) -> str | None:
    made = vectors.call(c, kind.sort, ())
    if made is None:
        return None
    c.note("func gives a struct")
    return made.text


def _load(c: Context, kind: Kind) -> str | None:
    options = _elements(c, kind, ("own", "read", "free"), FLOAT)
    if not options:
        return None
    c.note("load of a struct")
    return c.pick(options)


VALUES = [(4.0, _variable), (1.5, _constructor), (1.5, _call), (1.5, _load)]


def _elements(c: Context, kind: Kind, kinds: tuple[str, ...], most: float) -> list[str]:
    """Elements of fields of a type that may be used as a whole in one of some ways."""
    found = []
    owners = {array.owner: array for array in c.shared.arrays if array.owner}
    for owner, array in owners.items():
        leaves = [a for a in c.shared.arrays if a.owner == owner]
        role = c.roles.get(array.name)
        if [a.name.split(".", 1)[1] for a in leaves] != [name for name, _, _ in kind.leaves()]:
            continue
        if role is None or any(c.roles.get(a.name) != role for a in leaves):
            continue
        if role.kind not in kinds or max(a.high for a in leaves if a.sort == "f") > most:
            continue
        if array.constant or c.shared.overwrites:
            found.append(f"{owner}[{array_elements.position(c, array, role)}]")
    return found


# -- statements ------------------------------------------------------------------------------------


def _declare_local(c: Context) -> bool:
    kind: Kind = c.pick(c.shared.kinds)
    value = expression(c, kind.sort)
    name = c.shared.fresh("u")
    c.note("struct local")
    c.emit(f"{name} = {value}")
    c.scopes[-1].extend(_members(kind, name))
    return True


def _assign(c: Context) -> bool | None:
    kind: Kind = c.pick(c.shared.kinds)
    variable = c.recent(c.variables(kind.sort, (), assignable=True))
    if variable is None or variable.name == "self":
        return None
    c.note("assignment of a struct")
    c.emit(f"{variable.name} = {expression(c, kind.sort)}")
    return True


def _store(c: Context) -> bool | None:
    kind: Kind = c.pick(c.shared.kinds)
    constant = {a.owner for a in c.shared.arrays if a.constant}
    options = [
        text
        for text in _elements(c, kind, ("own", "free"), float("inf"))
        if text.split("[")[0] not in constant
    ]
    if not options:
        return None
    c.note("store of a struct")
    c.emit(f"{c.pick(options)} = {expression(c, kind.sort)}")
    return True


def _call_method(c: Context, _: int = 0) -> Expr | None:
    """A call of a method of a local."""
    if c.serial and c.random_allowed:
        return None  # as for funcs: loops of a method called there number the draws
    pairs = [
        (variable, method)
        for kind in c.shared.kinds
        for variable in c.variables(kind.sort)
        for method in kind.methods
        if not (variable.frozen and method.name in kind.mutators)
        and c.cost + c.trips * method.cost < c.max_cost
    ]
    if not pairs:
        return None
    variable, method = c.pick(pairs)
    c.note("call of a method")
    c.cost += c.trips * method.cost
    text = f"{variable.name}.{method.name}({fitting(c, FLOAT, 1).text})"
    return Expr(text, method.low, method.high)


def _statement_of_method(c: Context) -> bool | None:
    made = _call_method(c)
    if made is None:
        return None
    variable = c.declare("s", "f", made.low, made.high)
    c.emit(f"{variable.name} = {made.text}")
    return True


# -- parameters ------------------------------------------------------------------------------------


def parameter(c: Context, sort: str, annotated: bool) -> str:
    """A parameter of a func or a kernel; the func has a copy of its own."""
    kind = by_sort(c, sort)
    name = c.shared.fresh("u")
    c.note("struct passed to a func")
    c.scopes[0].extend(_members(kind, name))
    return f"{name}: {kind.name}" if annotated else name


def literal(c: Context, kind: Kind) -> str:
    """A value that the host makes."""
    values = []
    for name, sort, shape in kind.members:
        if isinstance(sort, Kind):
            values.append(f"{name}={literal(c, sort)}")
        elif sort == "i":
            values.append(f"{name}={c.integer(0, INTEGER)}")
        else:
            values.append(f"{name}={_numbers(c, shape)!r}")
    return f"{kind.name}({', '.join(values)})"


def _numbers(c: Context, shape: Shape) -> object:
    if not shape:
        return round(c.rng.uniform(-1.5, 1.5), 2)
    return [_numbers(c, shape[1:]) for _ in range(shape[0])]


def share_roles(c: Context, roles: dict[str, Role]) -> None:
    """Let a task do the same with all members of a field, unless it accumulates to some."""
    first: dict[str, Role] = {}
    for array in c.shared.arrays:
        if array.owner and roles[array.name].kind != "accumulate":
            roles[array.name] = first.setdefault(array.owner, roles[array.name])


PRODUCTIONS = Productions(
    floats=((1.5, _call_method),),
    statements=(
        (2.0, _declare_local),
        (1.0, _assign),
        (1.0, _store),
        (0.7, _statement_of_method),
    ),
    declare=declare,
)
