"""The tasks of a kernel: parallel loops over domains of all kinds, and serial stretches."""

from __future__ import annotations

import math
from dataclasses import replace

from octants.fuzz.generator import (
    array_elements,
    array_writes,
    bounded_expressions,
    integer_widths,
    structs,
    vectors,
)
from octants.fuzz.generator.bounded_expressions import fitting, within
from octants.fuzz.generator.context import ArrayInfo, Context, Domain, Role, Variable


def parallel(c: Context, extents: tuple[int, int]) -> None:
    """A parallel loop."""
    domain = _domain(c, extents)
    private = _private_variables(c)
    outer, accumulators = _kernel_locals(c, private)
    saved_scopes, saved_serial = c.scopes, c.serial
    saved_random, c.random_allowed = c.random_allowed, c.random_allowed and not private
    c.scopes, c.serial = [outer], False
    c.roles = _roles(c, domain)
    c.note("parallel loop")
    with c.block(domain.header, trips=float(math.prod(domain.extents))):
        c.scopes[-1].extend(domain.counters)
        start = c.cost
        for variable in private:
            _assign_private(c, variable)
        c.statements(c.integer(2, 4))
        while c.cost - start < c.trips * 8 * c.shared.size and c.affordable():
            c.statements(1)
        for variable in accumulators:
            _accumulate_local(c, variable)
        _finish(c)
    c.scopes, c.serial = saved_scopes, saved_serial
    _read_private(c, private)
    c.random_allowed = saved_random
    _widen(c)


def serial(c: Context, count: int) -> None:
    """A serial stretch."""
    c.serial = True
    c.roles = {array.name: Role("read" if array.constant else "free") for array in c.shared.arrays}
    c.note("serial stretch")
    c.statements(count)
    if not c.variables("f", ()):
        value = fitting(c, 4.0, 1).text
        c.emit(f"{c.declare('s', 'f', -4.0, 4.0).name} = {value}")
    _widen(c)


# -- domains ---------------------------------------------------------------------------------------


def _domain(c: Context, extents: tuple[int, int]) -> Domain:
    first, second = extents
    more = c.shared.rows("domains")
    if more and c.chance(0.4):
        made: Domain = c.try_table(more)
        return made
    kind = c.rng.choices(
        [*_ONE_AXIS, *_TWO_AXES],
        [3, 1.5, 1, 1, 1.5, 0.7, 0.7, 0.7, 2, 1, 1, 0.7],
    )[0]
    c.note(f"domain: {kind}")
    one = [array for array in c.shared.arrays if array.shape == (first,)]
    two = [array for array in c.shared.arrays if array.shape == (first, second)]
    i, j = c.shared.fresh("i"), c.shared.fresh("j")
    if kind in _TWO_AXES:
        if kind in ("ndrange", "ndspan") or not two:
            low = "(1, {})" if kind == "ndspan" else "{}"
            over = f"qd.ndrange({low.format(first)}, {second})"
        else:
            over = c.pick(two).name
        if kind == "grouped":
            return _grouped(c, over, extents)
        counters = [_counter(i, first), _counter(j, second)]
        return Domain(f"for {i}, {j} in {over}:", counters, (i, j), extents)
    texts = {
        "range": f"range({first})",
        "argument": "range(size)",
        "span": f"range(1, {first})",
        "struct": c.pick(one).name if one else f"range({first})",
        "shape": f"range({c.pick(one).name}.shape[0])" if one else f"range({first})",
        "down": _downwards(c, first) if kind == "down" else "",
        "step": f"range(0, {first}, 2)",
        "data": f"range({_bound(c, first)})",
    }
    return Domain(f"for {i} in {texts[kind]}:", [_counter(i, first)], (i,), (first,))


_ONE_AXIS = ("range", "argument", "shape", "span", "struct", "down", "step", "data")
_TWO_AXES = ("ndrange", "struct2", "grouped", "ndspan")


def _downwards(c: Context, extent: int) -> str:
    return c.pick(
        [f"range({extent - 1}, -1, -1)", f"reversed(range({extent}))", "reversed(range(size))"]
    )


def _bound(c: Context, extent: int) -> str:
    """A number of work items that depends on data."""
    c.roles = {array.name: Role("read") for array in c.shared.arrays}
    if c.chance(0.3):
        bound = within(c, c.whole(1), extent + 1).text  # perhaps none
    else:
        bound = f"1 + ({within(c, c.whole(1), extent).text})"
    c.roles = {}
    return bound


def _grouped(c: Context, over: str, extents: tuple[int, int]) -> Domain:
    name = c.shared.fresh("I")
    counters = [_counter(f"{name}[{axis}]", extent) for axis, extent in enumerate(extents)]
    return Domain(f"for {name} in qd.grouped({over}):", counters, (name,), extents)


def _counter(name: str, extent: int) -> Variable:
    return Variable(name, "i", 0, extent - 1, frozen=True)


# -- roles -----------------------------------------------------------------------------------------


def _roles(c: Context, domain: Domain) -> dict[str, Role]:
    """The role of each array in this task."""
    roles = {array.name: _role(c, array, domain) for array in c.shared.arrays}
    written = [a for a in c.shared.arrays if roles[a.name].kind in ("own", "accumulate")]
    if not any(array.sort == "f" for array in written):
        options = [a for a in c.shared.arrays if a.sort == "f" and not a.constant]
        chosen = c.pick(options)
        roles[chosen.name] = Role("accumulate")
    structs.share_roles(c, roles)
    return roles


def _role(c: Context, array: ArrayInfo, domain: Domain) -> Role:
    if array.constant:
        return Role("read")
    rank = len(domain.extents)
    may_own = array.shape[:rank] == domain.extents
    if len(domain.rows) < rank:  # one vector of indices
        may_own = array.shape == domain.extents
    kinds = ["own", "read", "accumulate", "none"]
    shared = 0.0 if array.sort == "i" and array.high < 50 else 1.5 if array.shape else 4.0
    shared = shared if array.updates is None or array.updates else 0.0
    kind = c.rng.choices(kinds, [4 if may_own else 0, 1.5, shared, 0.5])[0]
    if kind == "accumulate":
        if array.updates:
            return Role(kind, fn=c.pick(array.updates))
        if array.sort == "w":
            return Role(kind, fn=c.pick(integer_widths.FNS))
        fns = ["add", "min", "max", "mul"] if array.is_float else ["add", "max", "or"]
        return Role(
            kind, fn=c.rng.choices(fns, [12, 1, 1, 0.2] if array.is_float else [4, 1, 1])[0]
        )
    if kind == "own":
        return Role(kind, _rows(c, domain), rank)
    return Role(kind)


def _rows(c: Context, domain: Domain) -> tuple[str, ...]:
    if len(domain.rows) == 1 == len(domain.extents) and c.chance(0.15):
        c.note("reversed rows")
        return (f"{domain.extents[0] - 1} - {domain.rows[0]}",)
    return domain.rows


def _widen(c: Context) -> None:
    """Note that a written array may hold larger values from now on."""
    for array in c.shared.arrays:
        role = c.roles.get(array.name)
        if array.constant or role is None or not array.is_float or array.updates is not None:
            continue
        if role.kind == "accumulate":
            array.low, array.high = -40.0, 40.0
        elif role.kind in ("own", "free"):
            array.low, array.high = min(array.low, -10.0), max(array.high, 10.0)
    c.roles = {}


# -- locals of the kernel --------------------------------------------------------------------------


def _kernel_locals(c: Context, private: list[Variable]) -> tuple[list[Variable], list[Variable]]:
    """The kernel's locals that a loop sees, and those that it accumulates to instead."""
    everything = [variable for scope in c.scopes for variable in scope]
    others = [variable for variable in everything if variable not in private]
    accumulators = [v for v in others if _adds_up(v) and c.chance(0.25)]
    names = {variable.name for variable in [*private, *accumulators]}
    seen = [replace(v, frozen=True) for v in everything if v.name not in names]
    if seen:
        c.note("kernel local seen in a parallel loop")
    return seen, accumulators


def _private_variables(c: Context) -> list[Variable]:
    """The kernel's locals that each iteration assigns before it reads them.

    A program that draws numbers has none: a loop of which something reads one later is serial, and
    the numbers that it draws are others then.
    """
    if c.shared.has_random or not any(one.has_private_variables for one in c.shared.productions):
        return []
    while sum(map(_adds_up, c.variables("f"))) < 2:
        value = round(c.rng.uniform(-1.5, 1.5), 2)
        c.emit(f"{c.declare('s', 'f', -4.0, 4.0).name} = {value}")
    everything = [variable for scope in c.scopes for variable in scope]
    return [v for v in everything if v.sort in "fi" and _adds_up(v) and c.chance(0.4)]


def _assign_private(c: Context, variable: Variable) -> None:
    """Assign a private variable in an iteration, perhaps in a loop of its own."""
    c.note("private variable")
    if variable.shape:
        value = vectors.expression(c, variable.shape)
    elif variable.sort == "i":
        value = within(c, c.whole(1), 6).text
    else:
        value = fitting(c, 4.0).text
    c.emit(f"{variable.name} = {value}")
    bound = 40.0 if variable.sort == "f" else 6
    c.scopes[-1].append(replace(variable, low=-bound, high=bound))


def _read_private(c: Context, private: list[Variable]) -> None:
    """Read private variables in the `else` of their loop, or let later statements read some."""
    targets = [v for v in c.variables("f", ()) if _adds_up(v) and v not in private]
    for variable in private:
        variable.low, variable.high = -100.0, 100.0
        scope = next(scope for scope in c.scopes if variable in scope)
        is_read = c.chance(0.4)
        if is_read:
            c.note("private variable read after its loop")
        else:
            scope.remove(variable)
    numbers = [v for v in private if not v.shape]
    if numbers and targets and c.chance(0.4):
        c.note("private variable read in the else of its loop")
        target, number = c.pick(targets), c.pick(numbers)
        with c.block("else:"):
            c.emit(f"{target.name} = 0.5 * {target.name} + 0.1 * {number.name}")
        target.low, target.high = target.low - 10.0, target.high + 10.0


def _adds_up(variable: Variable) -> bool:
    """Whether work items may accumulate to a local of the kernel."""
    return variable.sort in "fi" and not variable.frozen and "." not in variable.name


def _accumulate_local(c: Context, variable: Variable) -> None:
    c.note("kernel local accumulated in a parallel loop")
    if variable.shape:
        c.note("kernel vector accumulated in a parallel loop")
        if c.chance(0.5):
            c.emit(f"{variable.name} += 0.3 * ({vectors.expression(c, variable.shape)})")
        else:
            index = ", ".join(str(c.integer(0, extent - 1)) for extent in variable.shape)
            c.emit(f"{variable.name}[{index}] += {fitting(c, 1.0).text}")
        variable.low, variable.high = -20.0, 20.0
    elif variable.sort == "i":
        c.emit(f"{variable.name} += {within(c, c.whole(1), 3).text}")
        variable.low, variable.high = 0, int(6 + 3 * c.trips)
    elif c.chance(0.2) and c.trips > 1 and not c.loops:
        _assign_by_one(c, variable)
    else:
        c.emit(f"{variable.name} += {fitting(c, 1.0).text}")
        variable.low, variable.high = -40.0, 40.0


def _assign_by_one(c: Context, variable: Variable) -> None:
    """An assignment that only one work item makes, unless the program draws numbers.

    Where something reads the variable later, the loop is serial, and draws others.
    """
    counter = c.scopes[1][0].name if len(c.scopes) > 1 else None
    if (
        c.shared.has_random
        or counter is None
        or any(v.name.startswith("j") for v in c.scopes[1])
        or "[" in counter
    ):
        c.emit(f"{variable.name} += {fitting(c, 1.0).text}")
        return
    c.note("kernel local assigned by one work item")
    with c.block(f"if {counter} == {c.integer(1, 2)}:"):
        c.emit(f"{variable.name} = {fitting(c, 4.0).text}")


# -- results ---------------------------------------------------------------------------------------


def _finish(c: Context) -> None:
    """Store something that depends on the locals, so that gradients flow."""
    own = array_elements.writable(c, "f", ("own",))
    shared = array_elements.writable(c, "f", ("accumulate",))
    made = False
    for array, role in own:
        if c.chance(0.5) or (not made and not shared):
            _store_locals(c, array, role)
            made = True
    for array, role in shared:
        if c.chance(0.4) or not made:
            _accumulate_locals(c, array, role)
            made = True


def _mixture(c: Context) -> str:
    """A combination of the last locals."""
    variables = c.variables("f", ())[-3:]
    terms = [
        f"{round(c.rng.uniform(0.2, 0.6), 2)} * {v.name}" for v in variables if v.expr.bound <= 12
    ]
    for variable in c.variables("f", None)[-1:]:
        terms.append(f"0.3 * {variable.name}.sum()")
    terms.append(fitting(c, 1.0, 1).text)
    loaded = array_elements.load(c, "f")
    if loaded is not None and c.chance(0.7):
        terms.append(f"0.4 * {bounded_expressions.tame(c, loaded, 2.0).text}")
    return " + ".join(terms)


def _store_locals(c: Context, array: ArrayInfo, role: Role) -> None:
    element = array.at(array_elements.position(c, array, role))
    c.note("store")
    if array.element_shape and c.chance(0.5):
        vector = vectors.expression(c, array.element_shape)
        c.emit(f"{element} = 0.6 * ({vector}) + 0.3 * qd.sin({_mixture(c)})")
        return
    if array.element_shape:
        element += array_elements.component(c, array.element_shape)
    c.emit(f"{element} = {_mixture(c)}")


def _accumulate_locals(c: Context, array: ArrayInfo, role: Role) -> None:
    element = array.at(array_elements.position(c, array, role))
    if array.element_shape:
        element += array_elements.component(c, array.element_shape)
    c.note(f"atomic_{role.fn}")
    if role.fn == "add":
        c.emit(f"{element} += {_mixture(c)}")
    elif role.fn == "mul":
        c.emit(f"qd.atomic_mul({element}, 0.8 + 0.2 * qd.sin({_mixture(c)}))")
    else:
        c.emit(f"qd.atomic_{role.fn}({element}, {_mixture(c)}{array_writes.tie_breaker(c)})")
