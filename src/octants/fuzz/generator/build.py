"""Generates a whole program: arrays, funcs, kernels, launches, and array contents."""

from __future__ import annotations

import random
import re
from typing import Any

import numpy as np

from octants.fuzz.generator import (
    arrays,
    floats,
    functions,
    integers,
    statements,
    structs,
    tasks,
    vectors,
)
from octants.fuzz.generator.bounded_expressions import fitting
from octants.fuzz.generator.context import ArrayInfo, Context, Grammar, Shared, Variable
from octants.fuzz.generator.profiles import PROFILES, Profile
from octants.fuzz.program import FloatArray, Program

Step = tuple[str, tuple[Any, ...]]

GRAMMAR = Grammar(
    floats.expression,
    integers.integer,
    integers.truth,
    vectors.expression,
    statements.statements,
    structs.expression,
)


def generate(seed: int, precision: str, profile: str = "core") -> Program:
    """The program of a seed; the two precisions of a seed share their source and their inputs."""
    shared = Shared(random.Random(seed), GRAMMAR, PROFILES[profile].productions)
    rng = shared.rng
    shared.has_random = rng.random() < 0.2
    shared.size = rng.choice(PROFILES[profile].sizes)
    shared.overwrites = rng.random() < 0.65
    items = PROFILES[profile].items
    extents = (rng.choice(items) if items else rng.randint(3, 5), rng.randint(2, 3))
    if rng.random() < 0.03:
        shared.features["many work items"] += 1
        extents, shared.size, shared.max_cost = (rng.choice([70, 130, 600]), 2), 0.3, 5000.0
    shared.extents = extents
    shared.arrays = arrays.make(shared, extents)
    shared.constants = [("WEIGHT", round(rng.uniform(-1.5, 1.5), 2)), ("COUNT", rng.randint(1, 4))]
    lines = [f"{name} = {value!r}" for name, value in shared.constants]
    lines.append("TABLE = (0.3, -0.8, 0.55)")
    for one in shared.productions:
        lines += one.declare(shared) if one.declare else []
    lines += arrays.declarations(shared) + [""]
    text, launches = _functions(shared, extents, PROFILES[profile])
    lines = [*shared.imports, *lines, *text]
    made = _program(seed, precision, "\n".join(lines), shared, launches)
    made.profile = profile
    return made


def _functions(
    shared: Shared, extents: tuple[int, int], profile: Profile
) -> tuple[list[str], list[Step]]:
    """The lines of all functions, and the launches."""
    rng = shared.rng
    lines: list[str] = []
    launches: list[Step] = []
    for _ in range(rng.choice(profile.funcs)):
        lines += functions.function(shared)
    for _ in range(rng.choice(profile.kernels)):
        text, launch = _kernel(shared, extents, profile)
        lines += shared.preamble + text
        shared.preamble = []
        launches.append(launch)
    if rng.random() < 0.1:
        shared.features["kernel launched twice"] += 1
        launches.append(launches[0])
    if rng.random() < profile.sequences:
        launches = _sequence(shared, launches, "\n".join(lines), profile)
    for one in shared.productions:
        if one.finish:
            lines, launches = one.finish(shared, lines, launches)
    return lines, launches


def _sequence(shared: Shared, launches: list[Step], source: str, profile: Profile) -> list[Step]:
    """Some of the launches again, with writes by the host between them.

    What no launch has touched yet is not written: its gradient would be that of the new contents.
    """
    rng = shared.rng
    shared.features["launches in a sequence"] += 1
    steps: list[Step] = []
    touched: set[str] = set()
    for launch in [*launches, *(rng.choice(launches) for _ in range(rng.randint(0, 3)))]:
        steps.append(launch)
        touched |= _touched(shared, launch, source)
        arrays_here = [a for a in shared.arrays if a.is_float and a.name in touched]
        if arrays_here and rng.random() < 0.6:
            steps += _host_write(shared, rng.choice(arrays_here), profile)
    return steps


def _touched(shared: Shared, launch: Step, source: str) -> set[str]:
    """The arrays that a kernel is launched with."""
    text = source.split(f"def {launch[0]}(")[1].split("\n@qd", maxsplit=1)[0]
    given = " ".join(str(argument) for argument in launch[1])
    return {a.name for a in shared.arrays if a.is_in(text) or a.is_in(given)}


def _host_write(shared: Shared, array: ArrayInfo, profile: Profile) -> list[Step]:
    rng = shared.rng
    value: Any = round(rng.uniform(-1.4, 1.4), 2)
    kind = rng.choice([*profile.writes])
    if kind == "from_numpy":
        shared.features["host: from_numpy"] += 1
        return [(kind, (array.memory, _content(rng, (*array.memory_shape, *array.element_shape))))]
    if kind == "__setitem__":
        if array.element_shape:
            if "from_numpy" not in profile.writes:
                return []
            shared.features["host: element of vectors"] += 1
            value = _content(rng, array.element_shape)
        index = tuple(rng.randrange(extent) for extent in array.memory_shape)
        arguments: tuple[Any, ...] = (array.memory, index or None, value)
    elif kind == "fill":
        arguments = (array.memory, value)
    else:
        same = [a for a in shared.arrays if _is_alike(a, array)]
        if not same:
            return []
        arguments = (array.memory, rng.choice(same).memory)
    shared.features[f"host: {kind}"] += 1
    return [(kind, arguments)]


def _content(rng: random.Random, shape: tuple[int, ...]) -> Any:
    """Numbers in lists of lists."""
    if not shape:
        return round(rng.uniform(-1.4, 1.4), 2)
    return [_content(rng, shape[1:]) for _ in range(shape[0])]


def _is_alike(one: ArrayInfo, other: ArrayInfo) -> bool:
    """Whether one array can be copied from another."""
    kinds = [(a.memory_shape, a.element_shape, a.dtype, a.is_field) for a in (one, other)]
    return one.memory != other.memory and kinds[0] == kinds[1]


# -- kernels ---------------------------------------------------------------------------------------


def _kernel(shared: Shared, extents: tuple[int, int], profile: Profile) -> tuple[list[str], Step]:
    c = Context(shared)
    name = shared.fresh("kernel")
    if profile.body is not None:
        return _assemble(name, c, profile.body(c), None)
    scalars = _scalars(c)
    c.scopes[0].extend(variable for variable, _, _ in scalars)
    returns = c.pick([*[None] * 13, *["FP"] * 6, "qd.types.vector(2, FP)"])
    others = dict(pair for one in shared.productions for pair in one.returns)
    if others and c.chance(0.4):
        returns = c.pick(list(others))
    c.returns = None if c.chance(0.6) else _returner(returns, others)
    if c.chance(0.5):
        tasks.serial(c, c.integer(1, 2))
    for number in range(c.rng.choice([1, 1, 1, 2, 2, 3])):
        if number and c.chance(0.4):
            tasks.serial(c, c.integer(1, 2))
        c.returns = None if c.chance(0.7) else _returner(returns, others)
        if number == 0 or c.affordable():
            tasks.parallel(c, extents)
    if c.chance(0.3):
        tasks.serial(c, c.integer(1, 2))
    if returns:
        c.note({"FP": "returned value"}.get(returns, f"returned {returns.split('(')[0][3:]}"))
        c.roles = {}
        c.emit(_returner(returns, others)(c))
    return _assemble(name, c, scalars, returns)


def _returner(returns: str | None, others: dict[str, Any]) -> Any:
    if returns in others:
        return others[returns]
    if returns is None:
        return lambda c: "return"
    if returns != "FP":
        return lambda c: f"return {vectors.expression(c, (2,), 1)}"
    return lambda c: f"return {fitting(c, 4.0, 1).text}"


def _scalars(c: Context) -> list[tuple[Variable, str, Any]]:
    """Scalar arguments: the variable, its annotation, its value."""
    made: list[tuple[Variable, str, Any]] = []
    if c.chance(0.7):
        count = c.integer(0, 4)
        prefix, annotation = ("z", "qd.template()") if c.chance(0.2) else ("m", "qd.i32")
        variable = Variable(c.shared.fresh(prefix), "i", count, count, frozen=True)
        made.append((variable, annotation, count))
    if c.chance(0.6):
        value = round(c.rng.uniform(-1.5, 1.5), 3)
        variable = Variable(c.shared.fresh("r"), "f", -1.5, 1.5, frozen=True)
        made.append((variable, "FP", value))
    if c.chance(0.15):
        size = c.integer(2, 3)
        values = [round(c.rng.uniform(-1.5, 1.5), 2) for _ in range(size)]
        vector = Variable(c.shared.fresh("r"), "f", -1.5, 1.5, (size,), frozen=True)
        made.append((vector, f"qd.types.vector({size}, FP)", values))
    return made


def _assemble(
    name: str, c: Context, scalars: list[tuple[Variable, str, Any]], returns: str | None
) -> tuple[list[str], Step]:
    body = "\n".join(c.lines)
    parameters: list[str] = []
    values: list[Any] = []
    for array in c.shared.arrays:
        if re.search(rf"\b{re.escape(array.name)}\[", body) and c.chance(0.08):
            body = _alias(c, array, body, parameters, values)
        if not array.is_field and re.search(rf"\b{array.name}\b", body):
            parameters.append(arrays.annotation(array))
            values.append(array.name)
    for variable, annotation, value in scalars:
        c.note(f"argument: {'a vector' if variable.shape else annotation}")
        parameters.append(f"{variable.name}: {annotation}")
        values.append(value)
    if re.search(r"\bsize\b", body):
        parameters.append("size: qd.i32")
        values.append(c.shared.arrays[0].shape[0])
    for one in c.shared.productions:
        if one.kernel:
            body = one.kernel(c, body, parameters, values)
    head = f"def {name}({', '.join(parameters)}){f' -> {returns}' if returns else ''}:"
    return ["@qd.kernel", head, *body.split("\n"), ""], (name, tuple(values))


def _alias(
    c: Context, array: ArrayInfo, body: str, parameters: list[str], values: list[Any]
) -> str:
    """Let some accesses to an array go through another name: a template, or a second argument."""
    other = f"{array.name.replace('.', '_')}_{'template' if array.is_field else 'again'}"
    c.note("template argument: a field" if array.is_field else "two arguments are one array")
    annotation = (
        arrays.annotation(array).split(": ", 1)[1] if not array.is_field else "qd.template()"
    )
    parameters.append(f"{other}: {annotation}")
    values.append(array.name)
    pieces = re.split(rf"\b{re.escape(array.name)}\[", body)
    text = pieces[0]
    for piece in pieces[1:]:
        text += f"{c.pick([array.name, other])}[{piece}"
    return text


# -- contents --------------------------------------------------------------------------------------


def _program(
    seed: int, precision: str, source: str, shared: Shared, launches: list[Step]
) -> Program:
    rng = np.random.default_rng(seed)
    inputs: dict[str, FloatArray] = {}
    weights: dict[str, FloatArray] = {}
    direction: dict[str, FloatArray] = {}
    for array in shared.arrays:
        name, shape = array.memory, (*array.memory_shape, *array.element_shape)
        if name in inputs:  # there are several views of it
            continue
        if not array.is_float:
            inputs[name] = rng.integers(0, 5, shape).astype(np.int32)
            if array.content is not None:
                inputs[name] = np.array(array.content, np.int32)
            if array.limits is not None:
                inputs[name] = rng.integers(*array.limits, shape, np.int32, endpoint=True)
            elif array.sort == "w":
                inputs[name] = _bits(rng, shape, array.dtype[3:])
            continue
        dtype = np.dtype(np.float16 if array.dtype == "qd.f16" else np.float32)
        inputs[name] = _floats(rng, shape, dtype)
        if array.cells:
            inputs[name] *= rng.random(shape) < 0.5
        if not array.has_grad:
            continue
        silent = array.constant and rng.random() < 0.8
        weights[name] = np.zeros(shape) if silent else _floats(rng, shape, dtype)
        direction[name] = _floats(rng, shape, dtype)
        if array.cells:
            direction[name] *= inputs[name] != 0
    made = Program(seed, source, precision, inputs, weights, direction, launches, shared.features)
    made.sparse = tuple(array.name for array in shared.arrays if array.cells)
    return made


def _bits(rng: np.random.Generator, shape: tuple[int, ...], name: str) -> FloatArray:
    """Integers of a type, some of them small, some at the ends of its range."""
    dtype = np.dtype({"i": "int", "u": "uint"}[name[0]] + name[1:])
    limits = np.iinfo(dtype)
    values = rng.integers(limits.min, limits.max, shape, dtype=dtype, endpoint=True)
    small = rng.integers(0, 9, shape).astype(dtype)
    values = np.where(rng.random(shape) < 0.4, small, values)
    return np.where(rng.random(shape) < 0.1, limits.max, values).astype(dtype)


def _floats(rng: np.random.Generator, shape: tuple[int, ...], dtype: np.dtype[Any]) -> FloatArray:
    values = rng.uniform(-1.5, 1.5, shape)
    values = np.where(rng.random(shape) < 0.03, 0.0, values)
    return values.astype(dtype).astype(np.float64)
