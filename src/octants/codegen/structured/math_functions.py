"""Write the mathematical functions as functions of the target, from their code in `mathlib`."""

from __future__ import annotations

import functools

from octants.codegen.arithmetic import LibraryCall
from octants.codegen.instruction_writer import Operand, ThreadCode
from octants.codegen.structured.function_emitter import (
    StructuredFunction,
    register,
)
from octants.ir import ops
from octants.ir.core import Block, Operation
from octants.lowering.math_function_bodies import lower_function
from octants.mathlib.argument_reduction import USUAL
from octants.mathlib.function_registry import ALL, MathFunction, function
from octants.types.scalars import DType, f32, f64, u1

_SHORT = 2
"""The operations of functions that are written where they are called: an estimate, and its end."""


def call(body: StructuredFunction, op: LibraryCall) -> Operand:
    """Call a function, and return its value."""
    is_fast = body.kernel.fast_math
    wanted = lower_function(body.code.legal, _function(op.fn, op.dtype, is_fast, _machine(body)))
    block = wanted.block

    def make(code: ThreadCode, given: list[Operand]) -> Operand:
        return _value(StructuredFunction(body.kernel, code, body.table), block, given)

    if body.speculation is not None and has_slow_path(op.fn, op.dtype, is_fast):
        return _fast(body, block, op.operands)
    if len(block.ops) <= _SHORT:
        return _value(body, block, op.operands)
    name = f"math.{'fast.' * wanted.is_fast}{op.fn}.{op.dtype}"
    types = [arg.type for arg in block.args]
    return body.code.call(name, types, block.yielded[0].type, make, op.operands)


def _function(fn: str, kind: DType, is_fast: bool, machine: str = "plain") -> MathFunction:
    return function(fn, kind, is_fast, machine)


def _machine(body: StructuredFunction) -> str:
    """Return which functions of `mathlib` a target has; loops that speculate take plain ones."""
    estimates = ("sin_estimate", f32) in body.code.legal.functions
    return "estimating" if estimates and body.speculation is None else "plain"


def _value(body: StructuredFunction, block: Block, operands: list[Operand]) -> Operand:
    return body.inlined(block, operands)[0]


# -- slow paths ---------------------------------------------------------------------------------


@functools.cache
def has_slow_path(fn: str, dtype: DType, is_fast: bool) -> bool:
    """Return whether a function has an if whose first branch is a slow path."""
    if not dtype.is_float or fn not in ALL:
        return False
    block = _function(fn, register(dtype), is_fast).block
    return any(isinstance(op, ops.If) for op in block.ops)


def may_take_slow_path(body: StructuredFunction, op: Operation) -> bool:
    """Return whether an operation is a function with a slow path that some operands need."""
    if not isinstance(op, ops.Unary):
        return False
    return has_slow_path(op.fn, op.x.type, body.kernel.fast_math)


def limit(dtype: DType) -> float:
    """Return the largest operand for which all functions take the fast path."""
    return USUAL[53 if dtype is f64 else 24]


def _fast(body: StructuredFunction, block: Block, operands: list[Operand]) -> Operand:
    """Compute the value by the fast path; clear the guard if that is wrong."""
    inner = StructuredFunction(body.kernel, body.code, body.table | {ops.If: _without_slow_path})
    inner.speculation = body.speculation
    return _value(inner, block, operands)


def _without_slow_path(body: StructuredFunction, op: ops.If) -> None:
    code = body.code
    if body.speculation is not None and body.speculation.guard is not None:
        is_usual = code.apply("not", u1, body.use(op.condition))
        guard = body.speculation.guard
        code.write(guard, code.apply("and", u1, code.read(guard), is_usual))
    for result, operand in zip(op.results, body.block(op.orelse), strict=True):
        body.bind(result, operand)
