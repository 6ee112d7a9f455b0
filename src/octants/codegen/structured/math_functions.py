"""Write the mathematical functions as functions of the target, from their code in `mathlib`."""

from __future__ import annotations

from octants.codegen.arithmetic import LibraryCall
from octants.codegen.instruction_writer import Operand, ThreadCode
from octants.codegen.structured.function_emitter import StructuredFunction
from octants.lowering.math_function_bodies import lower_function
from octants.mathlib.function_registry import function
from octants.types.scalars import f32

_SHORT = 2
"""The operations of functions that are written where they are called: an estimate, and its end."""


def call(body: StructuredFunction, op: LibraryCall) -> Operand:
    """Call a function, and return its value."""
    legal = body.code.legal
    machine = "estimating" if ("sin_estimate", f32) in legal.functions else "plain"
    wanted = lower_function(legal, function(op.fn, op.dtype, body.kernel.fast_math, machine))
    block = wanted.block

    def make(code: ThreadCode, given: list[Operand]) -> Operand:
        return StructuredFunction(body.kernel, code, body.table).inlined(block, given)[0]

    if len(block.ops) <= _SHORT:
        return body.inlined(block, op.operands)[0]
    name = f"math.{'fast.' * wanted.is_fast}{op.fn}.{op.dtype}"
    types = [arg.type for arg in block.args]
    return body.code.call(name, types, block.yielded[0].type, make, op.operands)
