"""Builds expressions of the language without a parser, and runs them with the interpreter."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from octants import interpreter
from octants.frontend.context import Context, Handlers
from octants.frontend.memory import references
from octants.frontend.values.expression_values import MatrixValue
from octants.ir.core import Array, Companion, Module, Space, Value
from octants.ir.verifier import verify
from octants.types.scalars import DType, f32, i32


class Run:
    """An input of a kernel: a number, vector or matrix of a type."""

    def __init__(self, dtype: DType, data: Any) -> None:
        self.dtype = dtype
        self.data = np.array(data, dtype.numpy)


class Typed:
    """What an expression gave: its value, as numpy's, and its type."""

    def __init__(self, value: Any, dtype: DType | None) -> None:
        self.value = value
        self.dtype = dtype


def evaluate(
    function: Callable[..., Any],
    *inputs: Any,
    default_int: DType = i32,
    default_float: DType = f32,
) -> Any:
    """``function(context, *inputs)`` at run time: a `Typed`, or a tuple of them.

    A `Run` becomes a run-time value; anything else is given as it is.
    """
    context = Context(default_int, default_float, Handlers(references))
    module = Module("test")
    arrays: dict[str, np.ndarray[Any, Any]] = {}
    operands = [_load(context, module, arrays, x) for x in inputs]
    result = function(context, *operands)
    shapes = _stored(context, module, result)
    context.builder.yield_()
    module.body = context.builder.block
    verify(module)
    outputs = interpreter.run(module, arrays).storage
    by_name = {array.name: data for (array, _), data in outputs.items()}
    return _collect(result, shapes, by_name)


def _load(context: Context, module: Module, arrays: dict[str, Any], x: Any) -> Any:
    if not isinstance(x, Run):
        return x
    shape = x.data.shape
    plain = {Companion.PRIMAL: None}
    array = Array(f"in{len(arrays)}", x.dtype, 0, Space.ARGUMENT, shape, plain)
    module.arrays.append(array)
    arrays[array.name] = x.data
    builder = context.builder
    loads = [
        builder.load(array, [builder.index(k) for k in position]) for position in np.ndindex(*shape)
    ]
    return MatrixValue(shape, loads) if shape else loads[0]


def _stored(context: Context, module: Module, result: Any) -> list[Any]:
    parts = result if isinstance(result, tuple) else (result,)
    names: list[Any] = []
    for number, part in enumerate(parts):
        if not isinstance(part, (Value, MatrixValue)):
            names.append(part)
            continue
        shape = part.shape if isinstance(part, MatrixValue) else ()
        elements = part.elements if isinstance(part, MatrixValue) else [part]
        plain = {Companion.PRIMAL: None}
        array = Array(f"out{number}", elements[0].type, 0, Space.RETURN, shape, plain)
        module.arrays.append(array)
        for position, element in zip(np.ndindex(*shape), elements, strict=True):
            indices = [context.builder.index(k) for k in position]
            context.builder.store(array, indices, element)
        names.append(array)
    return names


def _collect(result: Any, names: list[Any], outputs: dict[str, Any]) -> Any:
    collected = [
        Typed(outputs[x.name], x.dtype) if isinstance(x, Array) else Typed(x, None) for x in names
    ]
    return tuple(collected) if isinstance(result, tuple) else collected[0]
