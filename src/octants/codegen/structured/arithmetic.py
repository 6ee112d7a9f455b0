"""Scalar operations: by the tables of the family of their types."""

from __future__ import annotations

from octants.codegen.code import Operand
from octants.codegen.function import Combine
from octants.codegen.structured import floats, integers, library
from octants.codegen.structured.body import Body, register
from octants.codegen.structured.conversions import bitcast as bits_as
from octants.codegen.structured.conversions import convert
from octants.ir import ops
from octants.mathlib.table import ALL
from octants.types.scalars import DType, f16, u1


def constant(body: Body, op: ops.Constant) -> None:
    """A constant stands wherever it is used."""
    body.bind(op.result, body.code.constant(op.value, register(op.result.type)))


def unary(body: Body, op: ops.Unary) -> None:
    """By the table of the operand's family."""
    dtype, x = op.x.type, body.use(op.x)
    if dtype.is_float and op.fn in ALL:
        body.bind(op.result, library.call(body, op.fn, dtype, [x]))
        return
    table = floats.UNARY if dtype.is_float else integers.UNARY
    if dtype is u1:
        table = integers.BOOL_UNARY
    body.bind(op.result, table[op.fn](body.code, dtype, x))


def binary(body: Body, op: ops.Binary) -> None:
    """See `combine`."""
    body.bind(op.result, combine(body, op.fn, op.lhs.type, body.use(op.lhs), body.use(op.rhs)))


def combine(body: Body, fn: str, dtype: DType, lhs: Operand, rhs: Operand) -> Operand:
    """The value of a binary function."""
    if dtype.is_float and fn in ALL:
        return library.call(body, fn, dtype, [lhs, rhs])
    table = floats.BINARY if dtype.is_float else integers.BINARY
    if dtype is u1:
        table = integers.BOOL_BINARY
    return table[fn](body.code, dtype, lhs, rhs)


def combined(body: Body, op: Combine) -> Operand:
    """See `combine`."""
    return combine(body, op.fn, op.dtype, op.lhs, op.rhs)


def fma(body: Body, op: ops.Fma) -> None:
    """As the machine does it, where `fast_math` has made it; else by several operations."""
    operands, dtype = [body.use(value) for value in op.operands], op.result.type
    if body.kernel.fast_math and dtype is not f16:
        body.bind(op.result, body.code.apply("fma", dtype, *operands))
    else:
        body.bind(op.result, floats.fused(body.code, dtype, *operands))


def compare(body: Body, op: ops.Compare) -> None:
    """Ordered for floats, except that a NaN is unequal to all."""
    dtype, a, b = op.lhs.type, body.use(op.lhs), body.use(op.rhs)
    if dtype is u1:
        body.bind(op.result, _compare_truths(body, op.fn, a, b))
        return
    body.bind(op.result, body.code.compare(op.fn, register(dtype), a, b))


def _compare_truths(body: Body, fn: str, a: Operand, b: Operand) -> Operand:
    """False is less than true."""
    code = body.code
    if fn in ("eq", "ne"):
        return code.compare(fn, u1, a, b)
    if fn in ("gt", "ge"):
        fn, a, b = {"gt": "lt", "ge": "le"}[fn], b, a
    return code.apply("and" if fn == "lt" else "or", u1, code.apply("not", u1, a), b)


def select(body: Body, op: ops.Select) -> None:
    """Without a branch."""
    sides = body.use(op.on_true), body.use(op.on_false)
    kind = register(op.result.type)
    body.bind(op.result, body.code.choose(body.use(op.condition), kind, *sides))


def cast(body: Body, op: ops.Cast) -> None:
    """See `conversions.convert`."""
    body.bind(op.result, convert(body.code, body.use(op.x), op.x.type, op.result.type))


def bitcast(body: Body, op: ops.Bitcast) -> None:
    """See `conversions.bitcast`."""
    body.bind(op.result, bits_as(body.code, body.use(op.x), op.x.type, op.result.type))
