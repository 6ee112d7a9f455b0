"""Runs the functions on numpy's numbers and arrays, by translating their code to Python once.

Each operation of numpy on f32 or f64 rounds as the intermediate representation says, and so the
bits are those of compiled code. In arrays both ways of a branch are computed.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np

from octants.ir import ops, scalar_semantics
from octants.ir.core import Block, Operation, Value
from octants.ir.scalar_semantics import product_error
from octants.mathlib.function_registry import ALL, function
from octants.types.scalars import DType, convert_values, register_type

_UNARY = {"neg": "-{}", "abs": "abs({})", "not": "~{}", "sqrt": "sqrt({})", "trunc": "trunc({})"}
_BINARY = {
    "add": "{} + {}",
    "sub": "{} - {}",
    "mul": "{} * {}",
    "div": "{} / {}",
    "and": "{} & {}",
    "or": "{} | {}",
    "xor": "{} ^ {}",
    "shl": "{} << {}",
    "shr": "{} >> {}",
    "ushr": "{} >> {}",  # of unsigned numbers
    "min": "minimum({}, {})",
    "max": "maximum({}, {})",
    "mul_error": "product_error({}, {})",
}
_COMPARE = {"eq": "==", "ne": "!=", "lt": "<", "le": "<=", "gt": ">", "ge": ">="}


def evaluate(fn: str, dtype: DType, *operands: Any) -> Any:
    """The value of any scalar function of Python numbers that ``dtype`` can hold.

    Those that are not of the library are those of `ir.scalar_semantics`.
    """
    if not dtype.is_float or fn not in ALL:
        return scalar_semantics.evaluate(fn, dtype, *operands)
    kind = register_type(dtype)
    with np.errstate(all="ignore"):
        result = _translated(fn, kind)(*(kind.numpy.type(x) for x in operands))
        return float(dtype.numpy.type(result))


@functools.cache
def _translated(fn: str, dtype: DType) -> Callable[..., Any]:
    return _Translator(arrays=False).function(function(fn, dtype, False, "plain").block)


def translate(block: Block) -> Callable[..., Any]:
    """A function of numpy arrays that computes what a block yields, one value, of its arguments."""
    function = _Translator(arrays=True).function(block)

    def run(*arrays: np.ndarray[Any, Any]) -> Any:
        with np.errstate(all="ignore"):
            return function(*arrays)

    return run


class _Translator:
    """Writes the lines of one Python function."""

    def __init__(self, arrays: bool) -> None:
        self._arrays = arrays
        self._lines: list[str] = []
        self._names: dict[Value, str] = {}
        self._globals: dict[str, Any] = {
            "sqrt": np.sqrt,
            "trunc": np.trunc,
            "where": np.where,
            "product_error": product_error,
            "minimum": np.minimum if arrays else min,
            "maximum": np.maximum if arrays else max,
            "convert_values": convert_values,
        }

    def function(self, block: Block) -> Callable[..., Any]:
        arguments = ", ".join(self._name(arg) for arg in block.args)
        (result,) = self._block(block, "    ")
        text = "\n".join([f"def run({arguments}):", *self._lines, f"    return {result}\n"])
        exec(compile(text, f"<{__name__}>", "exec"), self._globals)  # text of our own making
        run: Callable[..., Any] = self._globals["run"]
        return run

    def _name(self, value: Value) -> str:
        return self._names.setdefault(value, f"v{len(self._names)}")

    def _block(self, block: Block, indent: str) -> list[str]:
        for op in block.ops:
            if isinstance(op, ops.If):
                self._branch(op, indent)
            elif isinstance(op, ops.Constant):
                self._globals[self._name(op.result)] = op.result.type.numpy.type(op.value)
            elif not isinstance(op, ops.Yield):
                line = f"{self._name(op.result)} = {self._expression(op)}"
                self._lines.append(indent + line)
        return [self._names[value] for value in block.yielded]

    def _branch(self, op: ops.If, indent: str) -> None:
        condition = self._names[op.condition]
        if self._arrays:
            choices = [self._block(each, indent) for each in (op.then, op.orelse)]
            for result, a, b in zip(op.results, *choices, strict=True):
                self._lines.append(f"{indent}{self._name(result)} = where({condition}, {a}, {b})")
            return
        for head, side in ((f"if {condition}:", op.then), ("else:", op.orelse)):
            self._lines.append(indent + head)
            values = self._block(side, indent + "    ")
            for result, value in zip(op.results, values, strict=True):
                self._lines.append(f"{indent}    {self._name(result)} = {value}")

    def _expression(self, op: Operation) -> str:
        names = [self._names[value] for value in op.operands]
        if isinstance(op, ops.Unary):
            return _UNARY[op.fn].format(*names)
        if isinstance(op, ops.Binary):
            return _BINARY[op.fn].format(*names)
        if isinstance(op, ops.Compare):
            return f"{names[0]} {_COMPARE[op.fn]} {names[1]}"
        if isinstance(op, ops.Select):
            form = "where({}, {}, {})" if self._arrays else "{1} if {0} else {2}"
            return form.format(*names)
        if isinstance(op, ops.Cast):
            if self._arrays and op.x.type.is_float and op.result.type.is_integer:
                self._globals[f"dtype_{op.result.type}"] = op.result.type
                return f"convert_values({names[0]}, dtype_{op.result.type})"
            return f"{names[0]}.astype({self._type(op.result.type)})"
        if isinstance(op, ops.Bitcast):
            return f"{names[0]}.view({self._type(op.result.type)})"
        raise NotImplementedError(f"{op.NAME} in a mathematical function")

    def _type(self, dtype: DType) -> str:
        self._globals[dtype.name] = dtype.numpy.type
        return dtype.name
