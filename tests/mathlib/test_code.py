"""What the functions are made of, and how they get into a module."""

from __future__ import annotations

import re
import runpy
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from octants.codegen.llvm import cpu
from octants.ir import ops
from octants.ir.core import Module
from octants.ir.ops import arithmetic as fns
from octants.ir.verifier import verify
from octants.mathlib import coefficients
from octants.mathlib.function_registry import BINARY, FAST, FUNCTIONS, UNARY, function
from octants.types.scalars import DType, f16, f32, f64
from tests.codegen.compiled import TARGET, ndarray, parallel

CORRECTLY_ROUNDED = {"add", "sub", "mul", "div", "sqrt", "neg", "abs", "trunc", "mul_error"}
INTEGER = {"add", "sub", "mul", "and", "or", "xor", "shl", "shr", "min", "not", "neg"}
FLOATS = pytest.mark.parametrize("dtype", [f32, f64], ids=str)


@FLOATS
@pytest.mark.parametrize("fn", FUNCTIONS)
def test_functions_are_made_of_operations_that_all_backends_round_alike(
    fn: str, dtype: DType
) -> None:
    for op in function(fn, dtype).block.walk():
        assert not isinstance(op, (ops.For, ops.While, ops.Load))
        if isinstance(op, (ops.Unary, ops.Binary)):
            allowed = CORRECTLY_ROUNDED if op.operands[0].type.is_float else INTEGER
            assert op.fn in allowed or op.operands[0].type.is_bool, op
        if isinstance(op, ops.Cast):
            assert not op.x.type.is_float
        types = {value.type for value in (*op.operands, *op.results)}
        assert dtype is f64 or f64 not in types


@FLOATS
@pytest.mark.parametrize("fn", FUNCTIONS)
def test_the_code_is_valid(fn: str, dtype: DType) -> None:
    block = function(fn, dtype).block
    arrays = [ndarray(f"x{k}", dtype) for k in range(len(block.args))]

    def body(build: Any, i: Any) -> None:
        values = [build.load(array, [i]) for array in arrays]
        code = dict(zip(block.args, values, strict=True))
        for op in block.ops[:-1]:
            for name in op.OPERANDS:
                setattr(op, name, code.get(getattr(op, name), getattr(op, name)))
            build.append(op)
        build.store(arrays[0], [i], block.yielded[0])

    function.cache_clear()  # the operations belong to the module now
    task = parallel("all", lambda build: (build.index(0), build.shape(arrays[0], 0)), body)
    verify(Module(fn, arrays, tasks=[task]))


def test_the_library_has_all_functions_that_need_it() -> None:
    assert set(UNARY) == fns.FLOAT_FUNCTIONS - {"sqrt", "rsqrt"}
    assert set(BINARY) == {"pow", "atan2"}


def calling(names: list[str], dtype: DType) -> Module:
    x = ndarray("x", dtype)

    def body(build: Any, i: Any) -> None:
        value = build.load(x, [i])
        for name in names:
            value = build.unary(name, value)
        build.store(x, [i], value)

    task = parallel("all", lambda build: (build.index(0), build.shape(x, 0)), body)
    return Module("calls", [x], tasks=[task])


def test_a_module_defines_a_function_once_and_calls_it() -> None:
    text = cpu.llvm_text(calling(["sin"] * 20 + ["cos"] * 3, f32), TARGET)
    assert text.count("define internal float @octants.math.sin.f32") == 1
    assert text.count("define internal float @octants.math.cos.f32") == 1
    assert len(re.findall(r"call float @octants.math.sin.f32", text)) == 20
    assert text.count("noinline") == 15  # all calls but eight


def test_f16_shares_the_functions_of_f32() -> None:
    text = cpu.llvm_text(calling(["exp"], f16), TARGET)
    assert "@octants.math.exp.f32" in text


def test_the_reduction_of_huge_angles_is_there_once() -> None:
    text = cpu.llvm_text(calling(["sin", "cos", "tan"], f64), TARGET)
    assert len(re.findall("define internal .*@octants.math.rare", text)) == 1
    assert len(re.findall("call .*@octants.math.rare", text)) == 3


@FLOATS
def test_no_function_comes_from_the_c_library(dtype: DType) -> None:
    text = cpu.llvm_text(calling(list(UNARY), dtype), TARGET)
    assert set(re.findall(r"declare \S+ @(\w+)", text)) == {"llvm"}


@FLOATS
def test_fast_math_changes_only_the_fast_functions(dtype: DType) -> None:
    others = [fn for fn in UNARY if (fn, dtype) not in FAST]
    changed = [fn for fn, kind in FAST if kind is dtype]
    for functions, same in ((others, True), (changed, not changed or not cpu.has_fused(TARGET))):
        module = calling(functions, dtype)
        fast, strict = (cpu.llvm_text(module, TARGET, fast_math=flag) for flag in (True, False))
        assert (fast == strict) is same


def test_fast_functions_are_those_of_half_precision_too() -> None:
    text = cpu.llvm_text(calling(["exp"], f16), TARGET, fast_math=True)
    assert ("@octants.math.fast.exp.f32" in text) is cpu.has_fused(TARGET)


def test_a_machine_without_a_fused_operation_has_no_fast_functions() -> None:
    plain = replace(TARGET, triple="x86_64-unknown-linux-gnu", cpu="x86-64", features="")
    assert "fast" not in cpu.llvm_text(calling(["exp", "sin"], f32), plain, fast_math=True)


@pytest.mark.parametrize("fn", sorted(UNARY))
def test_a_loop_over_an_array_is_vectorised(fn: str) -> None:
    if not {"+avx2", "+neon"} & set(TARGET.features.split(",")):
        pytest.skip("this CPU has no wide vectors")
    text = cpu.optimised_llvm_text(calling([fn], f32), TARGET)
    assert re.search(r"fmul <\d+ x float>", text)


@pytest.mark.slow
def test_the_constants_are_those_of_the_script(tmp_path: Path) -> None:
    pytest.importorskip("mpmath")
    script = Path(__file__).parents[2] / "scripts" / "mathlib_coefficients.py"
    if not script.exists():
        pytest.skip("the scripts are not here")
    names = runpy.run_path(str(script))
    target = tmp_path / "coefficients.py"
    names["main"].__globals__["TARGET"] = target
    names["main"]()
    assert target.read_text() == Path(coefficients.__file__).read_text()
