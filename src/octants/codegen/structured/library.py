"""The mathematical functions as functions of the target, from their code in `mathlib`."""

from __future__ import annotations

import functools

from octants.codegen.code import Operand, ThreadCode
from octants.codegen.structured import halves
from octants.codegen.structured.body import Body, register
from octants.ir import ops
from octants.ir.core import Block
from octants.mathlib.angles import USUAL
from octants.mathlib.table import ALL, Function, function
from octants.types.scalars import DType, f16, f64, u1


def call(body: Body, fn: str, dtype: DType, operands: list[Operand]) -> Operand:
    """The value of a function; f16 is in registers of f32."""
    kind, is_fast = register(dtype), body.kernel.fast_math
    wanted = _function(fn, kind, is_fast)
    block = wanted.block

    def make(code: ThreadCode, given: list[Operand]) -> Operand:
        return _value(Body(body.kernel, code, body.table), block, given)

    if body.guess is not None and has_rare_way(fn, dtype, is_fast):
        result = _usual(body, block, operands)
    else:
        name = f"math.{'fast.' * wanted.is_fast}{fn}.{kind}"
        result = body.code.call(name, [kind] * len(operands), kind, make, operands)
    return halves.round_float(body.code, result) if dtype is f16 else result


def _function(fn: str, kind: DType, is_fast: bool) -> Function:
    return function(fn, kind, is_fast, "plain")


def _value(body: Body, block: Block, operands: list[Operand]) -> Operand:
    for value, operand in zip(block.args, operands, strict=True):
        body.bind(value, operand)
    return body.block(block)[0]


# -- rare ways ----------------------------------------------------------------------------------


@functools.cache
def has_rare_way(fn: str, dtype: DType, is_fast: bool) -> bool:
    """Whether an operation is a function in which there is a branch, the first way of it rare."""
    if not dtype.is_float or fn not in ALL:
        return False
    block = _function(fn, register(dtype), is_fast).block
    return any(isinstance(op, ops.If) for op in block.ops)


def limit(dtype: DType) -> float:
    """How large an operand may be for the usual way of all functions."""
    return USUAL[53 if dtype is f64 else 24]


def _usual(body: Body, block: Block, operands: list[Operand]) -> Operand:
    """The value by the usual way; it is noted if that is wrong."""
    inner = Body(body.kernel, body.code, body.table | {ops.If: _without_rare_way})
    inner.guess = body.guess
    return _value(inner, block, operands)


def _without_rare_way(body: Body, op: ops.If) -> None:
    code = body.code
    if body.guess is not None and body.guess.noted is not None:
        is_usual = code.apply("not", u1, body.use(op.condition))
        noted = body.guess.noted
        code.write(noted, code.apply("and", u1, code.read(noted), is_usual))
    for result, operand in zip(op.results, body.block(op.orelse), strict=True):
        body.bind(result, operand)
