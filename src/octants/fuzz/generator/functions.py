"""Generates the funcs of a program, and calls of them."""

from __future__ import annotations

from octants.fuzz.generator import structs, vectors
from octants.fuzz.generator.bounded_expressions import fitting
from octants.fuzz.generator.context import (
    ArrayInfo,
    Context,
    Function,
    Productions,
    Role,
    Shared,
    Variable,
    number,
)

RECURSION = Productions(has_recursion=True)
PREFIXES = {"f": "a", "i": "c"}


def function(shared: Shared) -> list[str]:
    """The lines of a new func, which those after it may call."""
    c = Context(shared)
    c.in_function = True
    c.random_allowed = shared.has_random and c.chance(0.3)
    c.cost = c.max_cost * 0.85
    for array in shared.arrays:
        if array.constant and array.is_field:
            c.roles[array.name] = Role("read")
    if any(one.has_recursion for one in shared.productions) and c.chance(0.8):
        return _recursive(c)
    shape = c.pick([(), (), (), (3,), (2,), (2, 2)])
    parameters = [c.pick(_PARAMETERS) for _ in range(c.integer(1, 3))]
    shapes = [
        a.shape for a in shared.arrays if a.constant and a.sort == "f" and not a.element_shape
    ]
    if shapes and c.chance(0.3):
        parameters.append(("array", c.pick(shapes)))
    sort = "pair" if not shape and c.chance(0.2) else "f"
    if shared.kinds and c.chance(0.6):
        parameters.append((c.pick(shared.kinds).sort, ()))
    if shared.kinds and c.chance(0.35):
        sort, shape = c.pick(shared.kinds).sort, ()
    made = Function(shared.fresh("g"), parameters, sort, shape, 0.0)
    names = [_parameter(c, sort, extent) for sort, extent in parameters]
    start = c.cost
    if c.chance(0.4):
        c.returns = lambda at: _result(at, made)
    c.statements(c.integer(1, 3))
    _finish(c, made)
    made.cost = c.cost - start
    shared.functions.append(made)
    annotated = not shape and sort == "f" and c.chance(0.3)
    head = f"def {made.name}({', '.join(names)}){' -> FP' if annotated else ''}:"
    mark = "qd.func"
    if shared.productions and c.chance(0.15):
        mark = "qd.real_func"
        c.note("real_func")
    return [f"@{mark}", head, *c.lines, ""]


def _recursive(c: Context) -> list[str]:
    """The lines of a func that calls itself as often as its first parameter says."""
    shared = c.shared
    parameters: list[tuple[str, tuple[int, ...]]] = [
        ("i", ()),
        *c.pick([[], [("f", ())], [("f", ()), ("i", ())]]),
    ]
    made = Function(shared.fresh("g"), parameters, "f", (), 0.0)
    names = [_parameter(c, sort, ()).partition(":")[0] for sort, _ in parameters]
    types = {"f": "FP", "i": "qd.i32"}
    typed = [f"{name}: {types[sort]}" for name, (sort, _) in zip(names, parameters, strict=True)]
    start, found = c.cost, c.declare("v", "f", made.low, made.high)
    c.emit(f"{found.name} = {number(c.rng.uniform(-2, 2))}")
    c.statements(c.integer(0, 2))
    is_loop = c.chance(0.3)
    c.note("recursion in a loop" if is_loop else "recursion")
    index = shared.fresh("k")
    head = f"for {index} in range(qd.min({names[0]}, 2)):" if is_loop else f"if {names[0]} > 0:"
    with c.block(head, trips=2 if is_loop else 1):
        c.statements(c.integer(0, 1))
        others = [vectors.argument(c, *each) for each in parameters[1:]]
        call = f"{made.name}({', '.join([f'{names[0]} - 1', *others])})"
        c.emit(f"{found.name} = 0.5 * {found.name} + 0.5 * {call}")
    _finish(c, made)
    made.cost = (c.cost - start) * (63 if is_loop else 6)
    shared.functions.append(made)
    return ["@qd.real_func", f"def {made.name}({', '.join(typed)}) -> FP:", *c.lines, ""]


_PARAMETERS: list[tuple[str, tuple[int, ...]]] = [
    ("f", ()),
    ("f", ()),
    ("f", ()),
    ("i", ()),
    ("f", (3,)),
    ("f", (2,)),
]


def _parameter(c: Context, sort: str, shape: tuple[int, ...]) -> str:
    if sort == "array":
        array = ArrayInfo(c.shared.fresh("p"), "f", shape, (), True, constant=True)
        c.parameters.append(array)
        c.roles[array.name] = Role("read")
        return f"{array.name}: qd.template()"
    if sort.startswith("struct:"):
        return structs.parameter(c, sort, annotated=c.chance(0.5))
    name = c.shared.fresh(PREFIXES[sort])
    low, high = (0.0, 4.0) if sort == "i" else (-4.0, 4.0)
    frozen = bool(shape) and c.chance(0.3)
    c.scopes[0].append(Variable(name, sort, low, high, shape, frozen or sort == "i"))
    if shape and not frozen:
        c.note("func changes a vector argument")
    annotation = {"f": ": FP", "i": ": qd.i32"}[sort] if not shape and c.chance(0.4) else ""
    return name + annotation


def _finish(c: Context, made: Function) -> None:
    """The returns: one at the end, and early ones before it."""
    if c.chance(0.5):
        c.returns = lambda at: _result(at, made)
        c.note("early return from a func")
        if c.chance(0.5) and c.affordable(3):
            _return_in_loop(c)
        else:
            with c.block(f"if {c.truth()}:"):
                c.emit(_result(c, made))
        c.statements(c.integer(0, 2))
    c.emit(_result(c, made))


def _result(c: Context, made: Function) -> str:
    """A return statement."""
    if made.sort == "pair":
        c.note("func returns a tuple")
        first, second = (fitting(c, made.high, 1).text for _ in range(2))
        return f"return {first}, {second}"
    if made.sort.startswith("struct:"):
        return f"return {c.struct(made.sort)}"
    if made.shape:
        return f"return {vectors.expression(c, made.shape, 1)}"
    return f"return {fitting(c, made.high, 1).text}"


def _return_in_loop(c: Context) -> None:
    assert c.returns is not None
    name = c.shared.fresh("k")
    c.note("return in a loop")
    with c.block(f"for {name} in range({c.integer(2, 3)}):", trips=3):
        c.scopes[-1].append(Variable(name, "i", 0, 2, frozen=True))
        c.loops.append(True)
        c.statements(1)
        with c.block(f"if {c.truth()}:"):
            c.emit(c.returns(c))
        c.loops.pop()
