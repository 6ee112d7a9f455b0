"""What the builder leaves out: an operand stands for the result only if it is, to the bit."""

from __future__ import annotations

import math
from typing import Any

import pytest

from octants.ir import ops, scalar_semantics
from octants.ir.builder import Builder
from octants.ir.core import Value
from octants.ir.ops.arithmetic import BINARY
from octants.types.scalars import DType, convert, f32, f64, i8, i32, u1, u64

FLOATS = (0.0, -0.0, 1.0, -1.0, 2.5, 1e-40, math.inf, -math.inf)
INTEGERS = (0, 1, 2, 7, 127)
NUMBERS: dict[DType, tuple[Any, ...]] = {
    f32: FLOATS,
    f64: FLOATS,
    i8: (*INTEGERS, -1, -128),
    i32: (*INTEGERS, -1, -(2**31)),
    u64: INTEGERS,
    u1: (False, True),
}


def is_defined(fn: str, dtype: DType) -> bool:
    try:
        ops.Binary(fn, Value(dtype), Value(dtype), results=[Value(dtype)]).verify()
    except Exception:
        return False
    return fn in (scalar_semantics.FLOAT if dtype.is_float else scalar_semantics.INTEGER)


@pytest.mark.parametrize("dtype", NUMBERS, ids=str)
def test_identities(dtype: DType) -> None:
    found = 0
    for fn in sorted(BINARY):
        if not is_defined(fn, dtype):
            continue
        for constant in NUMBERS[dtype]:
            for is_left in (False, True):
                builder, x = Builder(), Value(dtype)
                c = builder.constant(constant, dtype)
                result = builder.binary(fn, *((c, x) if is_left else (x, c)))
                if result is not x and result is not c:
                    continue
                found += 1
                for number in (convert(each, dtype) for each in NUMBERS[dtype]):
                    pair = (constant, number) if is_left else (number, constant)
                    wanted = scalar_semantics.evaluate(fn, dtype, *pair)
                    given = number if result is x else constant
                    assert repr(given) == repr(wanted), (fn, pair)
    assert found >= 4
