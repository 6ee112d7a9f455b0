"""Runs kernels by the frontend and the interpreter alone: no machine code, no launch."""

from __future__ import annotations

from typing import Any

import numpy as np

from octants import interpreter
from octants.autodiff.forward import forward
from octants.frontend.build import build
from octants.ir.core import Companion
from octants.ir.verifier import verify
from octants.pipeline import Stage, lower
from octants.types.scalars import DType, f64, from_numpy, i32
from octants.types.specialisation_signature import NdarrayType, ScalarType, TemplateValue
from tests.autodiff.reversing import differentiate


def run(function: Any, *arguments: Any, default_float: DType = f64) -> Any:
    """Run a kernel, a plain function with annotations; gives what it returns, if anything.

    A numpy array is an array argument and changed in place, a number a scalar argument of the
    default type; anything else is a template.
    """
    types = [_argument_type(x, default_float) for x in arguments]
    built = build(function, types, default_int=i32, default_float=default_float)
    verify(built.module)
    names = list(function.__annotations__)
    data = {
        name: x if isinstance(x, np.ndarray) else np.array(x)
        for name, x, kind in zip(names, arguments, types, strict=False)
        if not isinstance(kind, TemplateValue)
    }
    known = {array.name for array in built.module.arrays}
    result = interpreter.run(built.module, {k: v for k, v in data.items() if k in known})
    returned = [data for (array, _), data in result.storage.items() if "return" in array.name]
    return returned[0] if len(returned) == 1 else tuple(returned) or None


def _argument_type(x: Any, default_float: DType) -> Any:
    if isinstance(x, np.ndarray):
        return NdarrayType(from_numpy(x.dtype), x.ndim)
    if isinstance(x, (int, float)):
        return ScalarType(default_float if isinstance(x, float) else i32)
    return TemplateValue(x)


def derivatives(function: Any, x: Any, weights: Any) -> tuple[Any, Any, Any]:
    """Derivatives of a kernel ``function(x, y)`` at ``x``, all in f64.

    Gives ``weights @ J`` by reverse mode, and the Jacobian J by forward mode and by central
    differences; `weights` has a column for each element of y.
    """
    companions = (Companion.PRIMAL, Companion.ADJOINT, Companion.TANGENT)
    kind = NdarrayType(f64, 1, (), companions)
    module = build(function, [kind, kind], default_float=f64).module
    lower(module, Stage(verifies=True))
    x, weights = np.array(x, float), np.array(weights, float)
    reverse, tangent, count = differentiate(module), forward(module), weights.shape[1]
    rows = [_adjoint(module, reverse, x, row) for row in weights]
    columns, differences = [], []
    for unit in np.eye(len(x)):
        data, seed = _memory(x, count), _memory(unit, count)
        tangents = {(name, Companion.TANGENT): value for name, value in seed.items()}
        interpreter.run(tangent, {**data, **tangents})
        columns.append(seed["y"])
        ends = [_value(module, x + step * unit, count) for step in (STEP, -STEP)]
        differences.append((ends[0] - ends[1]) / (2 * STEP))
    return np.array(rows), np.array(columns).T, np.array(differences).T


def _adjoint(module: Any, reverse: Any, x: Any, weights: Any) -> Any:
    data, seed = _memory(x, len(weights)), _memory(np.zeros_like(x), len(weights))
    if reverse.state == "after":
        interpreter.run(module, data)
    seed["y"][:] = weights
    adjoints = {(name, Companion.ADJOINT): value for name, value in seed.items()}
    interpreter.run(reverse.module, {**data, **adjoints})
    return seed["x"]


def _value(module: Any, x: Any, count: int) -> Any:
    data = _memory(x, count)
    interpreter.run(module, data)
    return data["y"]


STEP = 1e-5


def _memory(x: Any, outputs: int) -> dict[str, Any]:
    return {"x": x.copy(), "y": np.zeros(outputs)}
