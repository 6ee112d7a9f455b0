"""The functions of the library on run-time values, against numpy and against the host."""

from __future__ import annotations

import builtins as python
import math

import numpy as np
import pytest

from octants.diagnostics.exceptions import OctantsRuntimeError, OctantsTypeError
from octants.frontend.calls import builtins
from octants.lang import atomics_and_random, scalar_functions
from octants.types.scalars import f16, f32, f64, i8, i32, i64, u1, u8, u16, u32, u64
from tests.library.harness import Run, evaluate

NODE = None


def call(function, *args, **kwargs):
    handler = builtins.handler_of(function)
    return evaluate(lambda c, *a: handler(c, NODE, list(a), kwargs), *args)


SMOOTH = {
    "sqrt": np.sqrt, "rsqrt": lambda x: 1 / np.sqrt(x), "cbrt": np.cbrt, "exp": np.exp,
    "exp2": np.exp2, "expm1": np.expm1, "log": np.log, "log2": np.log2, "log10": np.log10,
    "log1p": np.log1p, "sin": np.sin, "cos": np.cos, "tan": np.tan, "asin": np.arcsin,
    "acos": np.arccos, "atan": np.arctan, "sinh": np.sinh, "cosh": np.cosh, "tanh": np.tanh,
    "asinh": np.arcsinh, "acosh": lambda x: np.arccosh(1 + x), "atanh": np.arctanh,
    "erf": np.vectorize(math.erf),
}  # fmt: skip


@pytest.mark.parametrize("name", SMOOTH)
def test_functions_of_floats(name):
    function = getattr(scalar_functions, name)
    shift = 1.0 if name == "acosh" else 0.0
    for x in (0.3, 0.75):
        result = call(function, Run(f64, x + shift))
        assert result.dtype is f64
        assert result.value == pytest.approx(SMOOTH[name](x), rel=1e-14)
        assert function(x + shift) == pytest.approx(SMOOTH[name](x), rel=1e-14)
    vector = call(function, Run(f32, np.array([0.3, 0.75]) + shift))
    assert vector.dtype is f32
    np.testing.assert_allclose(vector.value, SMOOTH[name](np.array([0.3, 0.75])), rtol=1e-6)
    assert call(function, Run(f16, 0.5 + shift)).dtype is f16


def test_integers_become_the_default_float():
    root = call(scalar_functions.sqrt, Run(i32, 16))
    assert (root.dtype, root.value) == (f32, 4.0)
    assert call(scalar_functions.atan2, Run(i32, 1), Run(i32, 1)).dtype is f32


def test_numbers_are_folded():
    for function, args, value in (
        (scalar_functions.sin, (0.5,), math.sin(0.5)),
        (scalar_functions.max, (1, 3, 2), 3),
        (scalar_functions.floor, (1.5,), 1.0),
        (python.round, (2.5,), 2),
        (python.int, (3.7,), 3),
        (python.divmod, (7, 2), (3, 1)),
    ):
        result = call(function, *args)
        values = tuple(r.value for r in result) if isinstance(result, tuple) else result.value
        assert values == value


def test_rounding():
    for name, expected in (("floor", -2), ("ceil", -1), ("round", -2), ("trunc", -1)):
        function = getattr(scalar_functions, name)
        plain = call(function, Run(f32, -1.5))
        assert (plain.dtype, plain.value) == (f32, expected)
        whole = call(function, Run(f32, -1.5), i32)
        assert (whole.dtype, whole.value) == (i32, expected)
        assert call(function, Run(i32, 5)).value == 5
    for x, expected in ((2.5, 3.0), (-0.5, -1.0), (0.49999999999999994, 0.0), (1e300, 1e300)):
        assert call(scalar_functions.round, Run(f64, x)).value == expected
        assert scalar_functions.round(x) == expected
    for x in (np.inf, -np.inf, np.nan):
        np.testing.assert_equal(call(scalar_functions.round, Run(f64, x)).value, x)
    built_in = call(python.round, Run(f64, 2.5))
    assert (built_in.dtype, built_in.value) == (i32, 2)
    with pytest.raises(OctantsTypeError, match="OCT220"):
        call(python.round, Run(f64, 2.5), 1)


def test_signs():
    assert call(scalar_functions.abs, Run(i32, -3)).value == 3
    assert call(python.abs, Run(f32, -1.5)).value == 1.5
    assert [call(scalar_functions.sign, Run(f32, x)).value for x in (-2.5, 0.0, 3.0)] == [-1, 0, 1]
    assert call(scalar_functions.abs, Run(u1, True)).dtype is i32
    nan, inf = Run(f32, np.nan), Run(f32, -np.inf)
    assert call(scalar_functions.isnan, nan).value
    assert not call(scalar_functions.isnan, inf).value
    assert call(scalar_functions.isinf, inf).value
    assert not call(scalar_functions.isinf, Run(i32, 3)).value


def test_extremes():
    greatest = call(scalar_functions.max, Run(i32, 2), 1.5, Run(f32, 0.5))
    assert (greatest.dtype, greatest.value) == (f32, 2.0)
    assert call(python.min, Run(i32, 2), Run(i32, -3)).value == -3
    assert call(python.max, Run(i32, [1, 5, 2])).value == 5
    np.testing.assert_array_equal(call(scalar_functions.max, Run(f32, [1, 2]), 1.5).value, [1.5, 2])
    with pytest.raises(OctantsTypeError, match="OCT153"):
        call(scalar_functions.max)


def test_python_reductions():
    assert call(python.sum, Run(f64, [1, 2, 3.5])).value == 6.5
    assert call(python.sum, [1, 2]).value == 3
    for each in (range(3, 5), {3, 4}, {4: 0, 3: 0}, {0: 3, 1: 4}.values(), map(abs, [3, -4])):
        assert call(python.sum, each).value == 7
    for each in (range(2, 6), frozenset((2, 5)), {5: 0, 2: 1}.keys(), iter((2, 5))):
        assert call(python.max, each).value == 5
    assert call(python.any, range(2)).value
    assert not call(python.all, (k for k in (1, 0))).value
    assert call(python.any, Run(i32, [0, 2])).value
    assert not call(python.all, Run(i32, [0, 2])).value
    assert call(python.len, Run(i32, [0, 2])).value == 2
    quotient, rest = call(python.divmod, Run(i32, -7), 2)
    assert (quotient.value, rest.value) == (-4, 1)


CASTS = [
    (f32, 2.7, i32, 2),
    (f32, -2.7, i32, -2),
    (f32, 1e10, i32, 2**31 - 1),
    (f32, -1.5, u32, 0),
    (f32, np.nan, i32, 0),
    (i32, 300, u8, 44),
    (i32, -1, u32, 2**32 - 1),
    (i32, 5, u1, True),
    (u1, True, f32, 1.0),
    (f64, 0.1, f32, np.float32(0.1)),
    (u64, 2**64 - 1, i64, -1),
]


@pytest.mark.parametrize(("source", "x", "target", "value"), CASTS)
def test_casts(source, x, target, value):
    for function, args in (
        (scalar_functions.cast, (Run(source, x), target)),
        (target, (Run(source, x),)),
    ):
        result = call(function, *args)
        assert result.dtype is target
        assert result.value == value


def test_python_types():
    assert call(python.int, Run(f64, 2.7)).dtype is i32
    assert call(python.float, Run(i32, 2)).dtype is f32
    truth = call(python.bool, Run(f32, 0.5))
    assert (truth.dtype, truth.value) == (u1, True)
    assert call(scalar_functions.cast, Run(f32, 2.7), int).dtype is i32


def test_literals_must_fit():
    assert call(u8, 255).value == 255
    assert call(f64, 0.1).value == 0.1
    assert call(scalar_functions.cast, 300, u8).value == 44
    for dtype, number in ((u8, 300), (u32, -1), (i8, 200)):
        with pytest.raises(OctantsTypeError, match="OCT205"):
            call(dtype, number)


def test_bits():
    bits = call(scalar_functions.bit_cast, Run(f32, 1.5), i32)
    assert (bits.dtype, bits.value) == (i32, 1069547520)
    assert call(scalar_functions.bit_cast, bits_of(1069547520), f32).value == 1.5
    with pytest.raises(OctantsTypeError, match="OCT207"):
        call(scalar_functions.bit_cast, Run(f32, 1.5), f64)
    assert call(scalar_functions.bit_shr, Run(i32, -2), 1).value == 2**31 - 1
    assert call(scalar_functions.popcnt, Run(i32, 7)).value == 3
    assert call(scalar_functions.popcnt, Run(i32, -1)).value == 32
    assert call(scalar_functions.clz, Run(i64, 1)).value == 63
    assert [call(scalar_functions.ffs, Run(i32, x)).value for x in (0, 1, 8, -4)] == [0, 1, 4, 3]
    with pytest.raises(OctantsTypeError, match="OCT202"):
        call(scalar_functions.popcnt, Run(f32, 1.0))


def bits_of(number):
    return Run(i32, number)


def test_division_as_in_c():
    assert call(scalar_functions.raw_div, Run(i32, -7), 2).value == -3
    assert call(scalar_functions.raw_mod, Run(i32, -7), 2).value == -1
    assert call(scalar_functions.raw_div, Run(f32, 7), Run(f32, 2)).value == 3.5
    assert call(scalar_functions.raw_mod, Run(f32, -7.5), 2).value == -1.5


def test_zero_and_one():
    zero = call(scalar_functions.zero, Run(f64, [1, 2]))
    assert zero.dtype is f64
    np.testing.assert_array_equal(zero.value, [0, 0])
    assert call(scalar_functions.one, Run(u16, 5)).dtype is u16


def test_random_types():
    for dtype, expected in ((None, f32), (f64, f64), (int, i32), (u32, u32)):
        args = [] if dtype is None else [dtype]
        assert evaluate_random(args).dtype is expected
    assert 0 <= evaluate_random([f64]).value < 1


def evaluate_random(args):
    handler = builtins.handler_of(atomics_and_random.random)
    return evaluate(lambda c: handler(c, NODE, args, {}))


def test_stop_grad_keeps_the_bits():
    for dtype in (f16, f32, f64):
        assert call(scalar_functions.stop_grad, Run(dtype, 0.1)).value == dtype.numpy.type(0.1)
    assert call(scalar_functions.stop_grad, Run(i32, 3)).value == 3


def test_wrong_calls():
    with pytest.raises(OctantsTypeError, match="OCT153"):
        call(scalar_functions.sin, Run(f32, 1), 2)
    with pytest.raises(OctantsTypeError, match="OCT206"):
        call(scalar_functions.cast, Run(f32, 1), "f32")
    with pytest.raises(OctantsTypeError, match="OCT132"):
        call(scalar_functions.sin, "text")
    with pytest.raises(OctantsTypeError, match="OCT221"):
        call(atomics_and_random.atomic_add, Run(f32, 1), 2)


def test_every_function_of_kernels_says_so_on_the_host():
    for name in ("atomic_add", "atomic_cas", "random", "rescale_index"):
        with pytest.raises(OctantsRuntimeError, match="OCT230"):
            getattr(atomics_and_random, name)()
    with pytest.raises(OctantsRuntimeError, match="OCT230"):
        scalar_functions.bit_cast(1, i32)


def test_all_stubs_have_a_meaning():
    for module in (scalar_functions, atomics_and_random):
        for name, function in vars(module).items():
            if callable(function) and function.__module__ == module.__name__ and name[0] != "_":
                assert builtins.handler_of(function) is not None, name


def test_choices_of_large_integers() -> None:
    """Numpy has no integer type for both operands; Python's integers have no ends."""
    most = 2**64 - 1
    assert (scalar_functions.max(1, most), scalar_functions.min(1, most)) == (most, 1)
    assert (scalar_functions.max(-1, most, 3), scalar_functions.min(-1, most, 3)) == (most, -1)
    assert (scalar_functions.select(True, -1, most), scalar_functions.select(False, -1, most)) == (
        -1,
        most,
    )
