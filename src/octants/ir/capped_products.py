"""Products of extents that do not wrap: 2^62 stands for larger ones, which no loop reaches.

```
%4: i64 = constant<2147483648>()
%5: i64 = constant<4611686018427387904>()
%6: i64 = binary<floordiv>(%2, %4)
%7: i64 = binary<mul>(%6, %3)
%8: u1 = compare<ge>(%7, %4)
%9: i64 = binary<mul>(%2, %3)
%10: i64 = select(%8, %5, %9)
```
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeGuard

from octants.ir import ops
from octants.ir.builder import Builder
from octants.ir.core import Operation, Value
from octants.types.scalars import i64

FAR = 1 << 62
"""A number of iterations that no loop reaches."""
_UNIT = 1 << 31


def build_capped_product(builder: Builder, total: Value, extent: Value, largest: int) -> Value:
    """The product of two i64 that are not negative, or `FAR` if it is as large.

    Args:
        builder: The builder.
        total: A number.
        extent: Another number.
        largest: A number that the extent does not exceed.
    """
    unit, far = builder.constant(_UNIT, i64), builder.constant(FAR, i64)
    high, low = total, extent
    if largest > _UNIT:  # then the product of the units may wrap, too
        high = builder.binary("min", builder.binary("max", total, extent), far)
        low = builder.binary("min", builder.binary("min", total, extent), unit)
    units = builder.binary("mul", builder.binary("floordiv", high, unit), low)
    is_far = builder.compare("ge", units, unit)
    return builder.select(is_far, far, builder.binary("mul", total, extent))


def uncapped_product(op: Operation | None, definitions: Mapping[Value, Operation]) -> Value | None:
    """The product of a capped product with an extent of 32 bits; None for another operation."""
    if not isinstance(op, ops.Select) or not _is_constant(definitions.get(op.on_true), FAR):
        return None
    product, compared = definitions.get(op.on_false), definitions.get(op.condition)
    if not _is(product, "mul") or not isinstance(compared, ops.Compare) or compared.fn != "ge":
        return None
    units, unit = definitions.get(compared.lhs), definitions.get(compared.rhs)
    if not _is(units, "mul") or not _is_constant(unit, _UNIT):
        return None
    high = definitions.get(units.lhs)
    if not _is(high, "floordiv") or not _is_constant(definitions.get(high.rhs), _UNIT):
        return None
    is_same = (high.lhs, units.rhs) == (product.lhs, product.rhs)
    return op.on_false if is_same else None


def _is(op: Operation | None, fn: str) -> TypeGuard[ops.Binary]:
    return isinstance(op, ops.Binary) and op.fn == fn


def _is_constant(op: Operation | None, number: int) -> bool:
    return isinstance(op, ops.Constant) and op.value == number
