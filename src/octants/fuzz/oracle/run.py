"""Runs a program on the oracle: its results, gradients and tangents, each with an error bound."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np

from octants.fuzz.oracle.arrays import Array
from octants.fuzz.oracle.matrices import Matrix
from octants.fuzz.oracle.numbers import F32, F64, Defaults, Num, lift
from octants.fuzz.oracle.package_namespace import BUILTINS, Namespace
from octants.fuzz.oracle.rewrite import rewrite
from octants.fuzz.oracle.state import STATE, reverse
from octants.fuzz.oracle.structs import Struct
from octants.fuzz.program import (
    HOST_WRITES,
    Estimate,
    FloatArray,
    Outcome,
    Program,
    argument,
    resolve,
)

FUEL = 250_000


def run(
    program: Program,
    rounding: bool = True,
    fuel: int = FUEL,
    order: str = "",
    sine_errors: float = 0.0,
) -> Outcome:
    """Run a program. Raises what CPython raises, or `IllDefined`, where it has no meaning.

    Without ``rounding`` f32 is computed in double precision: for differences. With an ``order`` of
    work items, one of `state.ORDERS`, a program that races has the meaning that it gives.
    Bounds include ``sine_errors`` times the errors of a machine's estimates of sines.
    """
    Defaults.floating = F32 if program.precision == "f32" else F64
    STATE.reset(fuel, program.random_seed, 0, rounding)
    STATE.order, STATE.sine_errors = order, sine_errors
    module: dict[str, Any] = {"qd": Namespace(), "FP": Defaults.floating, **BUILTINS}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", SyntaxWarning)  # shrinking tries nonsense
        tree = rewrite(program.source)
        code = compile(tree, f"<oracle {program.seed}>", "exec", dont_inherit=True)
    exec(code, module)
    arrays = {name: resolve(module, name) for name in program.inputs}
    for name, array in arrays.items():
        _fill(array, program.inputs[name], program.direction.get(name))
    returned, passed = [], []
    for name, arguments in program.launches:
        values = [argument(module, given) for given in arguments]
        if name in HOST_WRITES:
            if (
                name != "__setattr__" and not values[0].is_accessed
            ):  # its gradient may be that of the new contents
                STATE.note_near("host write before any access")
            getattr(values[0], name)(*values[1:])
            continue
        STATE.launch += 1
        values = list(map(_as_input, values))
        passed.append([_nodes(value) for value in values if isinstance(value, Num | Matrix)])
        returned.append(_numbers(resolve(module, name)(*values)))
    return _outcome(program, arrays, returned, passed)


def _as_input(value: Any) -> Any:
    """An argument; a float, or a list of them, is an input of the tape."""
    if isinstance(value, list) and all(type(item) is float for item in value):
        return Matrix(list(map(_as_input, value)), (len(value),))
    if type(value) is not float:
        return value
    number = Num(Defaults.floating, lift(value).value)
    number.node = STATE.node((), Defaults.floating.roundoff)
    return number


def _nodes(value: Num | Matrix) -> list[int]:
    """The numbers on the tape of an argument."""
    return [item.node for item in (value.items if isinstance(value, Matrix) else [value])]


def _fill(array: Array, content: FloatArray, direction: FloatArray | None) -> None:
    tangents = None if direction is None else [float(t) for t in direction.ravel()]
    array.load_initial([value.item() for value in content.ravel()], tangents)


def _outcome(
    program: Program,
    arrays: dict[str, Array],
    returned: list[list[Num]],
    passed: list[list[list[int]]],
) -> Outcome:
    seeds = [
        (cell.node, float(weights.ravel()[offset]))
        for name, weights in program.weights.items()
        for offset, cell in enumerate(arrays[name].cells)
        if cell.node >= 0 and arrays[name].takes_seed(offset)
    ]
    more = [(number.node, 1.0) for numbers in returned for number in numbers if number.node >= 0]
    gradient = _gradient(program, arrays, seeds)
    with_returned = _gradient(program, arrays, [*seeds, *more]) if more else gradient
    primal, tangent = {}, {}
    for name, array in arrays.items():
        shape = program.inputs[name].shape
        primal[name] = _reshaped(_estimate(array.cells), shape)
        if array.needs_grad:
            tangents = np.array([cell.tangent for cell in array.cells])
            errors = np.array([cell.tangent_error for cell in array.cells])
            tangent[name] = _reshaped(Estimate(tangents, errors), shape)
    values = [_estimate(numbers) for numbers in returned]
    of_run = STATE.near, STATE.path, len(STATE.nodes), STATE.has_sums
    of_arguments = _of_arguments(seeds, passed)
    return Outcome(primal, values, gradient, with_returned, tangent, *of_run, of_arguments)


def _of_arguments(
    seeds: Sequence[tuple[int, float]], passed: list[list[list[int]]]
) -> list[list[Estimate]]:
    """The adjoints of the floats that launches pass by value."""
    found = np.array(reverse(seeds))
    return [[Estimate(*found[:, nodes]) for nodes in launch] for launch in passed]


def _gradient(
    program: Program, arrays: dict[str, Array], seeds: Sequence[tuple[int, float]]
) -> dict[str, Estimate]:
    """The adjoints of the initial contents of the arrays."""
    adjoints, errors = reverse(seeds)
    found = {}
    for name, array in arrays.items():
        if array.needs_grad:
            values = np.array([adjoints[k] for k in array.leaves])
            bounds = np.array([errors[k] for k in array.leaves])
            found[name] = _reshaped(Estimate(values, bounds), program.inputs[name].shape)
    return found


def _numbers(value: Any) -> list[Num]:
    if value is None:
        return []
    if isinstance(value, Struct):
        value = tuple(value.values.values())
    if isinstance(value, tuple):
        return [number for item in value for number in _numbers(item)]
    return list(value.items) if isinstance(value, Matrix) else [lift(value)]


def _estimate(numbers: Sequence[Num]) -> Estimate:
    values = np.array([number.value for number in numbers])
    return Estimate(values, np.array([number.error for number in numbers]))


def _reshaped(estimate: Estimate, shape: tuple[int, ...]) -> Estimate:
    return Estimate(estimate.value.reshape(shape), estimate.error.reshape(shape))
