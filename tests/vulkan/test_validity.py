"""What is written is SPIR-V, for devices that can do much and for those that can do little.

No device is needed.
"""

from __future__ import annotations

from typing import Any

import pytest

from octants.codegen.spirv.compile import compile_module
from octants.codegen.structured.operations import TABLE
from octants.diagnostics.exceptions import OctantsRuntimeError
from octants.ir import ops
from octants.ir.core import Block, Module, Value
from octants.ir.ops.memory import ATOMIC
from octants.target import Target
from octants.types import scalars
from octants.types.scalars import DType, f16, f64, u1
from tests.codegen import test_records as records
from tests.codegen.compiled import ndarray, parallel, serial
from tests.codegen.test_scalar_operations import LIBRARY, functions
from tests.vulkan.validation import check, needs_validator

LITTLE = "int64,int8,storage8,addresses,timeline"
MUCH = (
    f"{LITTLE},int16,storage16,float64,atomic64,add32,add64,fences,"
    "nan32,nan64,rte32,rte64,denormals32,denormals64"
)
CUTS, SPLITS = f"{MUCH},cuts", f"{MUCH},splits"
NARROW = [dtype for dtype in scalars.ALL if dtype.bits in (1, 8, 32)]


def target(features: str) -> Target:
    return Target("vulkan", "spirv", "a device", features)


def every_function(dtype: DType) -> Module:
    """All functions of a type, and casts to and from the others that a device without much has."""
    unary, binary, compare = functions(dtype)
    if dtype.is_float:
        unary, binary = [*unary, *sorted(LIBRARY - {"pow", "atan2"})], [*binary, "pow", "atan2"]
    a, b, c = ndarray("a", dtype), ndarray("b", dtype), ndarray("c", u1)

    def body(build: Any, i: Any) -> None:
        x, y = build.load(a, [i]), build.load(b, [i])
        for fn in unary:
            build.store(b, [i], build.unary(fn, x))
        for fn in binary:
            build.store(b, [i], build.binary(fn, x, y))
        for fn in compare:
            build.store(c, [i], build.compare(fn, x, y))
        for other in NARROW:
            build.store(b, [i], build.cast(build.cast(x, other), dtype))
        build.store(b, [i], build.random(dtype, build.random_stream(1, i), i))
        build.print_((("",), "\n"), [x])
        build.assert_("assertion", "{}", build.load(c, [i]), [x])

    task = parallel("t", lambda build: (build.index(0), build.shape(a, 0)), body)
    return Module("functions", [a, b, c], tasks=[task])


def every_atomic(dtype: DType) -> Module:
    a = ndarray("a", dtype)

    def body(build: Any) -> None:
        zero = build.index(0)
        for fn in sorted(ATOMIC):
            if not (dtype.is_float and fn in ("and", "or", "xor")):
                build.atomic(fn, a, [zero], build.load(a, [zero]))
        build.compare_exchange(a, [zero], build.load(a, [zero]), build.load(a, [zero]))

    return Module("atomics", [a], tasks=[serial("t", body)])


@needs_validator
@pytest.mark.parametrize("features", [MUCH, CUTS, SPLITS], ids=["much", "cuts", "splits"])
@pytest.mark.parametrize("dtype", scalars.ALL, ids=str)
def test_everything_of_a_type(dtype: DType, features: str) -> None:
    check(compile_module(every_function(dtype), target(features)))
    check(compile_module(every_atomic(dtype), target(features)))


@needs_validator
@pytest.mark.parametrize("dtype", NARROW, ids=str)
def test_everything_of_a_type_on_a_device_that_can_do_little(dtype: DType) -> None:
    check(compile_module(every_function(dtype), target(LITTLE)))
    check(compile_module(every_atomic(dtype), target(LITTLE)))


@needs_validator
@pytest.mark.parametrize("by_while", [False, True])
def test_tapes(by_while: bool) -> None:
    check(compile_module(records.reversal(by_while), target(MUCH)))


@pytest.mark.parametrize(
    ("dtype", "feature"),
    [(f64, "f64 (shaderFloat64)"), (scalars.i16, "16-bit numbers"), (f16, "16-bit numbers")],
    ids=str,
)
def test_a_feature_that_is_missing_is_named(dtype: DType, feature: str) -> None:
    with pytest.raises(OctantsRuntimeError) as caught:
        compile_module(every_atomic(dtype), target(LITTLE))
    assert "OCT450" in str(caught.value)
    assert feature in str(caught.value)
    assert "`a device`" in str(caught.value)


def test_an_operation_without_code_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(TABLE, ops.ActAs)

    def body(build: Any) -> None:
        ends = build.index(0), build.index(1)
        build.parallel_for(*ends, Block([Value(scalars.i32)], [ops.Yield([])]), {})

    with pytest.raises(OctantsRuntimeError, match="OCT458: there is no code for `parallel_for`"):
        compile_module(Module("nest", [], tasks=[serial("t", body)]), target(MUCH))
