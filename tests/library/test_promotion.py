"""The types of results: what operators make of operands of all types, and of Python numbers."""

from __future__ import annotations

import operator

import numpy as np
import pytest

from octants.diagnostics.exceptions import OctantsTypeError
from octants.frontend.values import arithmetic
from octants.types.scalars import (
    ALL,
    f16,
    f32,
    f64,
    i8,
    i16,
    i32,
    i64,
    promote,
    u1,
    u8,
    u16,
    u32,
    u64,
)
from tests.library.harness import Run, evaluate


def binary(symbol, a, b, **defaults):
    return evaluate(lambda c, x, y: arithmetic.binary(c, symbol, x, y), a, b, **defaults)


def compare(symbol, a, b):
    return evaluate(lambda c, x, y: arithmetic.compare(c, symbol, x, y), a, b)


TABLE = [
    (i32, i32, i32),
    (i32, i64, i64),
    (i32, u32, u32),
    (u32, i64, i64),
    (i64, u32, i64),
    (i64, u64, u64),
    (i8, u8, u8),
    (i8, i16, i16),
    (u16, i32, i32),
    (f32, i64, f32),
    (f32, f64, f64),
    (f16, i32, f16),
    (f16, f32, f32),
    (f64, u64, f64),
    (u1, i32, i32),
    (u1, f32, f32),
]


@pytest.mark.parametrize(("a", "b", "result"), TABLE)
@pytest.mark.parametrize("symbol", ["+", "-", "*", "//", "%"])
def test_arithmetic_of_two_types(symbol, a, b, result):
    for left, right in ((a, b), (b, a)):
        assert binary(symbol, Run(left, 1), Run(right, 1)).dtype is result


@pytest.mark.parametrize("a", ALL)
@pytest.mark.parametrize("b", ALL)
def test_every_pair_of_types_adds_and_multiplies(a, b):
    expected = i32 if a is b is u1 else promote(a, b)
    total = binary("+", Run(a, 1), Run(b, 1))
    assert total.dtype is expected
    assert total.value == 2
    assert binary("*", Run(a, 1), Run(b, 1)).value == 1


@pytest.mark.parametrize("dtype", [i8, i16, i32, i64, u8, u16, u32, u64])
def test_true_division_of_integers_is_the_default_float(dtype):
    quotient = binary("/", Run(dtype, 7), Run(dtype, 2))
    assert quotient.dtype is f32
    assert quotient.value == 3.5
    assert binary("/", Run(dtype, 7), 2, default_float=f64).dtype is f64


def test_floor_division_and_remainder_are_pythons():
    for a in (-7, 7):
        for b in (-2, 2):
            assert binary("//", Run(i32, a), Run(i32, b)).value == a // b
            assert binary("%", Run(i32, a), Run(i32, b)).value == a % b
    assert binary("//", Run(f32, -1.5), 1).value == -2.0
    assert binary("%", Run(f32, -1.5), 1).value == 0.5


def test_division_by_zero_is_defined():
    assert binary("//", Run(i32, 7), Run(i32, 0)).value == 0
    assert binary("%", Run(i32, 7), Run(i32, 0)).value == 7
    lowest = -(2**31)
    assert binary("//", Run(i32, lowest), Run(i32, -1)).value == lowest


NUMBERS = [
    (f32, 2, f32),
    (f64, 2, f64),
    (f16, 2, f16),
    (f32, 0.5, f32),
    (f64, 0.5, f64),
    (f16, 0.5, f32),  # the number counts as the default float
    (i32, 0.5, f32),
    (i64, 0.5, f32),
    (i64, 2, i64),
    (u32, 2, u32),
    (i8, 2, i32),
    (u8, 2, i32),
    (u1, 2, i32),
    (u1, 0.5, f32),
    (i32, True, i32),
    (f32, True, f32),
    (i32, 3_000_000_000, i64),
    (u32, 3_000_000_000, u32),
    (f32, 3_000_000_000, f32),
]


@pytest.mark.parametrize(("dtype", "number", "result"), NUMBERS)
def test_python_numbers_adapt(dtype, number, result):
    for a, b in ((Run(dtype, 1), number), (number, Run(dtype, 1))):
        product = binary("*", a, b)
        assert product.dtype is result
        assert product.value == np.array(number, result.numpy)


def test_a_number_takes_the_type_of_the_result_exactly():
    assert binary("*", Run(f64, 1.0), 0.1).value == 0.1
    assert binary("+", Run(f64, 0.0), 0.1).value == 0.1
    assert binary("*", Run(f32, 1.0), 0.1).value == np.float32(0.1)


def test_default_types_decide_for_numbers():
    assert binary("*", Run(i32, 3), 0.5, default_float=f64).dtype is f64
    assert binary("*", Run(i32, 3), 2, default_int=i64).dtype is i64
    assert binary("+", Run(u1, True), Run(u1, True), default_int=i64).dtype is i64


def test_integers_wrap_in_their_type():
    assert binary("+", Run(u8, 200), Run(u8, 100)).value == 44
    assert binary("*", Run(i8, 100), Run(i8, 2)).value == -56
    assert binary("-", Run(u32, 0), 1).value == 2**32 - 1
    assert binary("+", Run(i32, 2**31 - 1), 1).value == -(2**31)


@pytest.mark.parametrize("symbol", ["&", "|", "^"])
def test_bitwise_operators(symbol):
    function = {"&": operator.and_, "|": operator.or_, "^": operator.xor}[symbol]
    assert binary(symbol, Run(i32, 12), Run(i32, 10)).value == function(12, 10)
    truth = binary(symbol, Run(u1, True), Run(u1, False))
    assert truth.dtype is u1
    assert truth.value == function(True, False)
    with pytest.raises(OctantsTypeError, match="OCT201"):
        binary(symbol, Run(f32, 1), Run(i32, 1))


def test_shifts():
    assert binary("<<", Run(i32, 7), 2).value == 28
    assert binary(">>", Run(i32, -7), 1).value == -4
    assert binary(">>", Run(u32, 2**32 - 1), 4).value == 2**28 - 1
    assert binary("<<", Run(i64, 1), Run(i32, 40)).value == 1 << 40
    with pytest.raises(OctantsTypeError, match="OCT201"):
        binary("<<", Run(f32, 1), 1)


@pytest.mark.parametrize("base", [0.7, 1.0, -1.3, 2.5])
@pytest.mark.parametrize("exponent", [0, 1, 2, 3, 7, 16, -1, -2, -5, 2.0])
def test_whole_powers_of_floats(base, exponent):
    result = binary("**", Run(f64, base), exponent)
    assert result.dtype is f64
    assert result.value == pytest.approx(base**exponent, rel=1e-14)


def test_powers():
    assert binary("**", Run(f64, 2.0), 0.5).value == pytest.approx(2**0.5)
    assert binary("**", Run(f64, 4.0), -0.5).value == 0.5
    assert binary("**", Run(f64, 1.7), 2.5).value == pytest.approx(1.7**2.5)
    assert binary("**", Run(f32, 1.5), Run(i32, 3)).value == pytest.approx(3.375)
    assert binary("**", 2.0, Run(f64, 1.5)).value == pytest.approx(2**1.5)
    cube = binary("**", Run(i32, -2), 3)
    assert (cube.dtype, cube.value) == (i32, -8)
    run_time = binary("**", 2, Run(i32, 7))
    assert (run_time.dtype, run_time.value) == (i32, 128)
    half = binary("**", Run(i32, 2), -1)
    assert (half.dtype, half.value) == (f32, 0.5)
    assert binary("**", Run(i32, 2), Run(i32, -1)).value == 0


COMPARE = {"<": operator.lt, "<=": operator.le, "==": operator.eq, "!=": operator.ne}
COMPARE.update({">": operator.gt, ">=": operator.ge})
EXTREMES = {
    i8: [-128, -1, 0, 127],
    u8: [0, 127, 128, 255],
    i32: [-(2**31), -1, 0, 1, 2**31 - 1],
    u32: [0, 1, 2**31, 2**32 - 1],
    i64: [-(2**63), -1, 0, 2**63 - 1],
    u64: [0, 1, 2**63, 2**64 - 1],
}


@pytest.mark.parametrize("symbol", COMPARE)
@pytest.mark.parametrize("a", EXTREMES)
def test_integers_compare_by_value(symbol, a):
    for b, numbers in EXTREMES.items():
        for x in EXTREMES[a]:
            for y in numbers:
                result = compare(symbol, Run(a, x), Run(b, y))
                assert result.dtype is u1
                assert result.value == COMPARE[symbol](x, y), (symbol, a, x, b, y)


def test_comparisons_with_numbers():
    assert compare(">", Run(u32, 5), -1).value
    assert not compare("<", Run(u64, 5), -1).value
    assert compare("<", -1, Run(u64, 5)).value
    assert not compare("==", Run(u8, 44), 300).value
    assert compare("<", Run(f32, 0.25), 0.5).value
    assert compare("==", Run(i32, 7), 7.0).value
    assert compare("==", Run(u1, True), 1).value
    assert not compare("==", Run(f32, np.nan), Run(f32, np.nan)).value


def test_unary_operators():
    def unary(symbol, x):
        return evaluate(lambda c, v: arithmetic.unary(c, symbol, v), x)

    assert unary("-", Run(f32, 1.5)).value == -1.5
    assert unary("-", Run(u32, 1)).value == 2**32 - 1
    minus_true = unary("-", Run(u1, True))
    assert (minus_true.dtype, minus_true.value) == (i32, -1)
    assert unary("~", Run(i32, 5)).value == -6
    assert not unary("~", Run(u1, True)).value
    assert not unary("not", Run(i32, 5)).value
    assert unary("not", Run(f32, 0.0)).value
    assert unary("+", Run(f32, 2.0)).value == 2.0
    with pytest.raises(OctantsTypeError, match="OCT202"):
        unary("~", Run(f32, 1.0))
    with pytest.raises(OctantsTypeError, match="OCT202"):
        unary("~", 1.5)


def test_select_has_the_common_type():
    def select(*inputs):
        return evaluate(arithmetic.select, *inputs)

    chosen = select(Run(i32, 1), Run(i32, 3), Run(f64, 2.5))
    assert (chosen.dtype, chosen.value) == (f64, 3.0)
    number = select(Run(u1, False), 1, 0.5)
    assert (number.dtype, number.value) == (f32, 0.5)
    vector = select(Run(i32, [1, 0]), Run(f32, [1, 2]), Run(f32, [3, 4]))
    np.testing.assert_array_equal(vector.value, [1, 4])


def test_numbers_alone_stay_numbers():
    assert binary("**", 2, 0.5).dtype is None
    assert binary("//", -7, 2).value == -4
    assert evaluate(arithmetic.select, True, 1, 2.5).value == 1


def test_vectors_combine_by_element():
    total = binary("+", Run(i32, [1, 2, 3]), Run(f32, [0.5, 0.5, 0.5]))
    assert total.dtype is f32
    np.testing.assert_array_equal(total.value, [1.5, 2.5, 3.5])
    np.testing.assert_array_equal(
        binary("*", 2, Run(i32, [[1, 2], [3, 4]])).value, [[2, 4], [6, 8]]
    )
    np.testing.assert_array_equal(binary("+", Run(i32, [1, 2]), [3, 4]).value, [4, 6])
    np.testing.assert_array_equal(binary("/", 1, Run(i32, [1, 2])).value, [1, 0.5])
    np.testing.assert_array_equal(compare(">", Run(i32, [1, 2]), 1).value, [False, True])
    with pytest.raises(OctantsTypeError, match="OCT203"):
        binary("+", Run(i32, [1, 2]), Run(i32, [1, 2, 3]))
    with pytest.raises(OctantsTypeError, match="OCT204"):
        evaluate(arithmetic.truth, Run(i32, [1, 2]))
