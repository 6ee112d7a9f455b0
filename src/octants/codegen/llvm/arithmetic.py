"""Scalar operations: tables by family of types, and conversions between them."""

from __future__ import annotations

from octants.codegen.function import Combine
from octants.codegen.llvm import floats, halves, integers, tables
from octants.codegen.llvm.floats import ZERO
from octants.codegen.llvm.function import FunctionText
from octants.ir import ops
from octants.types.scalars import DType, f16, u1


def constant(f: FunctionText, op: ops.Constant) -> None:
    """A literal stands for it wherever it is used."""
    f.bind(op.result, f.literal(op.value, op.result.type))


def unary(f: FunctionText, op: ops.Unary) -> None:
    """By the table of the operand's family."""
    dtype = op.x.type
    table = floats.UNARY if dtype.is_float else integers.UNARY
    if dtype is u1:
        table = integers.BOOL_UNARY
    f.bind(op.result, table[op.fn](f, dtype, f.use(op.x)))


def binary(f: FunctionText, op: ops.Binary) -> None:
    """See `combine`."""
    f.bind(op.result, combine(f, op.fn, op.lhs.type, f.use(op.lhs), f.use(op.rhs)))


def combine(f: FunctionText, fn: str, dtype: DType, lhs: str, rhs: str) -> str:
    """The value of a binary function."""
    table = floats.BINARY if dtype.is_float else integers.BINARY
    if dtype is u1:
        table = integers.BOOL_BINARY
    return table[fn](f, dtype, lhs, rhs)


def combined(f: FunctionText, op: Combine) -> str:
    """See `combine`."""
    return combine(f, op.fn, op.dtype, op.lhs, op.rhs)


def fma(f: FunctionText, op: ops.Fma) -> None:
    """One instruction where the machine has it."""
    operands = [f.use(value) for value in op.operands]
    f.bind(op.result, floats.intrinsic(f, "fma", f.type(op.result.type), *operands))


def compare(f: FunctionText, op: ops.Compare) -> None:
    """Ordered for floats, except that a NaN is unequal to all."""
    dtype = op.lhs.type
    if dtype.is_float:
        instruction = f"fcmp {floats.COMPARE[op.fn]}"
    else:
        instruction = f"icmp {integers.predicate(op.fn, dtype)}"
    f.bind(
        op.result,
        f.apply(instruction, f.type(dtype), f.use(op.lhs), f.use(op.rhs)),
    )


def select(f: FunctionText, op: ops.Select) -> None:
    """Without a branch, but for long chains of them."""
    if op in f.chains.reads:
        read = f.chains.reads[op]
        if read is not None:
            f.bind(op.result, tables.read(f, read))
        return
    register = f.type(op.result.type)
    on_true, on_false = f.use(op.on_true), f.use(op.on_false)
    condition = f.use(op.condition)
    f.bind(op.result, f.choose(condition, register, on_true, on_false))


def cast(f: FunctionText, op: ops.Cast) -> None:
    """See `convert`."""
    f.bind(op.result, convert(f, f.use(op.x), op.x.type, op.result.type))


def convert(f: FunctionText, x: str, source: DType, target: DType) -> str:
    """A value as another register, as `types.scalars.convert` defines it."""
    if source is target:
        return x
    register = f.type(source)
    if target is u1:
        if source.is_float:
            return f.apply("fcmp une", register, x, ZERO)
        return f.apply("icmp ne", register, x, 0)
    if source.is_float:
        if target.is_float:
            return floats.convert(f, x, source, target)
        return _saturate(f, x, source, target)
    if target.is_float:
        instruction = "sitofp" if source.is_signed else "uitofp"
        return floats.rounded(f, target, f.convert(instruction, register, x, f.type(target)))
    return resize(f, x, source, target)


def resize(f: FunctionText, x: str, source: DType, target: DType) -> str:
    """An integer or u1 as an integer: cut off, or extended by its own sign."""
    if source.bits == target.bits:
        return x
    if source.bits > target.bits:
        return f.convert("trunc", f.type(source), x, f.type(target))
    instruction = "sext" if source.is_signed else "zext"
    return f.convert(instruction, f.type(source), x, f.type(target))


def _saturate(f: FunctionText, x: str, source: DType, target: DType) -> str:
    name = f"fpto{'s' if target.is_signed else 'u'}i.sat"
    register, result = f.type(source), f.type(target)
    return f.intrinsic(name, result, [(register, x)], overloads=(result, register))


def bitcast(f: FunctionText, op: ops.Bitcast) -> None:
    """An f16 goes through its 16 bits, because its register has 32."""
    x, source, target = f.use(op.x), op.x.type, op.result.type
    if source is f16 and target is not f16:
        x = halves.to_integer(f, x)
    elif target is f16 and source is not f16:
        x = halves.from_integer(f, x)
    elif f.type(source) != f.type(target):
        x = f.convert("bitcast", f.type(source), x, f.type(target))
    f.bind(op.result, x)
