"""Asserts that the floats that a kernel stores are finite: ``debug="nan"``.

Before::

    array @x: f32, 1, ndarray, () [primal]
    array @s: f32, 0, field, () [primal]
    serial {
      %0: i32 = constant<7>()
      %1: f32 = load<@x, primal>(%0)
      %2: f32 = unary<log>(%1)
      store<@x, primal>(%2, %0)
      %3: f32 = atomic<add, @s, primal>(%1)
    }

After::

    serial {
      %0: i32 = constant<7>()
      %1: f32 = load<@x, primal>(%0)
      %2: f32 = unary<log>(%1)
      %3: i32 = constant<2139095040>()
      %4: i32 = bitcast(%2)
      %5: i32 = binary<and>(%4, %3)
      %6: u1 = compare<ne>(%5, %3)
      assert<finite, '{} is stored in `x[{}]`'>(%6, %2, %0)
      store<@x, primal>(%2, %0)
      %7: i32 = constant<2139095040>()
      %8: i32 = bitcast(%1)
      %9: i32 = binary<and>(%8, %7)
      %10: u1 = compare<ne>(%9, %7)
      assert<finite, '{} is added to `s`'>(%10, %1)
      %11: f32 = atomic<add, @s, primal>(%1)
      %12: f32 = binary<add>(%11, %1)
      %13: i32 = constant<2139095040>()
      %14: i32 = bitcast(%12)
      %15: i32 = binary<and>(%14, %13)
      %16: u1 = compare<ne>(%15, %13)
      assert<finite, '{} is stored in `s`'>(%16, %12)
    }

The bits are tested, since drivers of GPUs may assume that no number is a NaN. Constants are not
checked: an infinity or a NaN that the program names is meant. Nor are numbers that only the kernel
sees, such as local vectors and records: where they matter, they reach an array.
"""

from __future__ import annotations

import functools

from octants.ir import ops
from octants.ir.builder import Builder
from octants.ir.core import Array, Companion, Module, Operation, Space, Value
from octants.ir.rewriting import rewrite
from octants.types.scalars import DType, f32, i32, i64

_CHECKED = (Space.FIELD, Space.NDARRAY, Space.SHARED, Space.RETURN)
_EXPONENTS: dict[int, tuple[DType, int]] = {32: (i32, 0xFF << 23), 64: (i64, 0x7FF << 52)}
_STORED = "stored in"
_VERBS = {"add": "added to", "sub": "subtracted from", "mul": "multiplied into"}
_OF = {
    Companion.PRIMAL: "",
    Companion.ADJOINT: "the gradient of ",
    Companion.TANGENT: "the tangent of ",
    Companion.ADJOINT_TANGENT: "the tangent of the gradient of ",
}


def check_finite(module: Module) -> None:
    """Insert the checks, in place."""
    for task in module.tasks:
        constants = {op.result for op in task.body.walk() if isinstance(op, ops.Constant)}
        rewrite(task.body, functools.partial(_check, constants))


def _check(constants: set[Value], builder: Builder, op: Operation) -> bool:
    if not isinstance(op, ops.Write) or not _is_checked(op, constants):
        return False
    fn = op.fn if isinstance(op, ops.Atomic) else ""
    _assert_finite(builder, op, op.value, _VERBS.get(fn, _STORED))
    builder.append(op)
    if fn in _VERBS:
        _assert_finite(builder, op, builder.binary(fn, op.result, op.value), _STORED)
    return True


def _is_checked(op: ops.Write, constants: set[Value]) -> bool:
    return op.array.space in _CHECKED and op.value.type.is_float and op.value not in constants


def _assert_finite(build: Builder, op: ops.Write, value: Value, verb: str) -> None:
    wide = build.cast(value, f32) if value.type.bits < 32 else value
    dtype, exponent = _EXPONENTS[wide.type.bits]
    mask = build.constant(exponent, dtype)
    bits = build.binary("and", build.bitcast(wide, dtype), mask)
    message = f"{{}} is {verb} {_OF[op.companion]}{_element(op.array)}"
    build.assert_("finite", message, build.compare("ne", bits, mask), [value, *op.indices])


def _element(array: Array) -> str:
    """How a message names an element, with a place for each index."""
    axes, components = (", ".join(["{}"] * n) for n in (array.rank, len(array.element_shape)))
    at = f"[{axes}]" * bool(axes) + f"[{components}]" * bool(components)
    return "what the kernel returns" if array.space is Space.RETURN else f"`{array.name}{at}`"
