"""The mathematical functions as functions of the target, from their code in `mathlib`."""

from __future__ import annotations

from octants.codegen.structured import halves
from octants.codegen.structured.body import Body, register
from octants.codegen.structured.code import Code, Operand
from octants.mathlib.table import function
from octants.types.scalars import DType, f16


def call(body: Body, fn: str, dtype: DType, operands: list[Operand]) -> Operand:
    """The value of a function; f16 is in registers of f32."""
    kind = register(dtype)
    block = function(fn, kind).block

    def make(code: Code, given: list[Operand]) -> Operand:
        inner = Body(body.kernel, code, body.table)
        for value, operand in zip(block.args, given, strict=True):
            inner.bind(value, operand)
        return inner.block(block)[0]

    result = body.code.call(f"math.{fn}.{kind}", [kind] * len(operands), kind, make, operands)
    return halves.round_float(body.code, result) if dtype is f16 else result
