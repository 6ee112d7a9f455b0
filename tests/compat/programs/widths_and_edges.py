"""Integers of all widths, conversions out of range, special floats, functions at their edges."""

import math

import numpy as np


def floor_division_of_narrow_integers(qd):
    x = qd.field(qd.i8, 4)

    @qd.kernel
    def f(a: qd.i8, b: qd.i8):
        x[0] = a // b
        x[1] = a % b
        x[2] = -a // b
        x[3] = -a % b

    f(-100, 7)
    return x.to_numpy()


def remainders_of_all_signs(qd):
    x = qd.field(qd.i32, 4)

    @qd.kernel
    def f(a: qd.i32, b: qd.i32):
        x[0], x[1], x[2], x[3] = a % b, -a % b, a % -b, -a % -b

    f(7, 3)
    return x.to_numpy()


def remainders_of_floats(qd):
    x = qd.field(qd.f32, 6)

    @qd.kernel
    def f(a: qd.f32, b: qd.f32):
        x[0], x[1], x[2], x[3] = a % b, -a % b, a % -b, -a % -b
        x[4], x[5] = a // b, -a // b

    f(5.5, 2.0)
    return x.to_numpy()


def unsigned_subtraction_wraps(qd):
    @qd.kernel
    def f(a: qd.u32, b: qd.u32) -> qd.u32:
        return a - b

    @qd.kernel
    def g(a: qd.u64, b: qd.u64) -> qd.u64:
        return a - b

    @qd.kernel
    def h(a: qd.u8, b: qd.u8) -> qd.u8:
        return a - b

    return [f(1, 2), g(1, 2), h(1, 2)]


def unsigned_division(qd):
    @qd.kernel
    def f(a: qd.u32, b: qd.u32) -> qd.u32:
        return a // b * 10 + a % b

    @qd.kernel
    def g(a: qd.u64) -> qd.u64:
        return a // qd.u64(10)

    return [f(4000000000, 1000000000), g(2**64 - 1)]


def signed_and_unsigned_together(qd):
    @qd.kernel
    def f(a: qd.i32, b: qd.u32) -> qd.i64:
        return qd.cast(a + b, qd.i64)

    @qd.kernel
    def g(a: qd.i32, b: qd.u32) -> qd.i32:
        return a < b

    return [f(-1, 0), g(-1, 1)]


def signed_and_unsigned_of_other_widths(qd):
    @qd.kernel
    def f(a: qd.i8, b: qd.u16) -> qd.i64:
        return qd.cast(a + b, qd.i64)

    @qd.kernel
    def g(a: qd.i64, b: qd.u32) -> qd.i64:
        return a - b

    @qd.kernel
    def h(a: qd.u8, b: qd.i16) -> qd.i64:
        return qd.cast(a - b, qd.i64)

    return [f(-1, 3), g(1, 5), h(200, 300)]


def widths_with_floats(qd):
    @qd.kernel
    def f(a: qd.i64, b: qd.f32) -> qd.f64:
        return a * b

    @qd.kernel
    def g(a: qd.f16, b: qd.i32) -> qd.f32:
        return a + b

    @qd.kernel
    def h(a: qd.u8, b: qd.f16) -> qd.f32:
        return a * b

    return [f(3, 0.5), g(0.5, 3), h(200, 0.5)]


def half_and_single_together(qd):
    @qd.kernel
    def f(a: qd.f16, b: qd.f32) -> qd.f32:
        return a * b

    return [f(0.1, 3.0), f(1.5, 1e5)]


def half_beyond_its_range(qd):
    x = qd.field(qd.f16, 3)

    @qd.kernel
    def f(a: qd.f32):
        x[0] = a
        x[1] = a * 2
        x[2] = -a * 2

    f(65504.0)
    return x.to_numpy()


def left_shifts_of_narrow_integers(qd):
    x = qd.field(qd.i32, 4)

    @qd.kernel
    def f(a: qd.u8, b: qd.i8):
        x[0] = a << 1
        x[1] = b << 1
        x[2] = a >> 1
        x[3] = b >> 1

    f(200, -100)
    return x.to_numpy()


def shifts_by_counts_of_other_types(qd):
    x = qd.field(qd.i64, 6)

    @qd.kernel
    def f(a: qd.i32, b: qd.u8, n: qd.u32, m: qd.i64):
        x[0] = qd.cast(a >> n, qd.i64)
        x[1] = qd.cast(a << m, qd.i64)
        x[2] = qd.cast(b << n, qd.i64)
        x[3] = qd.cast(b >> m, qd.i64)
        x[4] = qd.cast(1 << m, qd.i64)
        x[5] = qd.cast(qd.bit_shr(a, m), qd.i64)

    f(-100, 200, 3, 2)
    return x.to_numpy()


def shifts_of_negative_integers(qd):
    x = qd.field(qd.i32, 3)

    @qd.kernel
    def f(a: qd.i32):
        x[0] = a >> 3
        x[1] = a << 3
        x[2] = qd.bit_shr(a, 3)

    f(-77)
    return x.to_numpy()


def shifts_of_unsigned_integers(qd):
    @qd.kernel
    def f(a: qd.u32, n: qd.u32) -> qd.u32:
        return (a >> n) ^ (a << n)

    return [f(0xDEADBEEF, 7), f(0xFFFFFFFF, 31)]


def bits_of_negative_integers(qd):
    x = qd.field(qd.i32, 4)

    @qd.kernel
    def f(a: qd.i32, b: qd.i32):
        x[0], x[1], x[2], x[3] = a & b, a | b, a ^ b, ~a

    f(-6, 11)
    return x.to_numpy()


def bits_of_mixed_widths(qd):
    @qd.kernel
    def f(a: qd.i64, b: qd.i32) -> qd.i64:
        return a & b

    @qd.kernel
    def g(a: qd.u64, b: qd.u32) -> qd.u64:
        return a | b

    return [f(0x1FFFFFFFF, -1), g(1 << 40, 7)]


def leading_zeros_and_set_bits(qd):
    x = qd.field(qd.i32, 6)

    @qd.kernel
    def f(a: qd.i32, b: qd.u32):
        x[0] = qd.math.popcnt(a)
        x[1] = qd.math.clz(a)
        x[2] = qd.math.popcnt(b)
        x[3] = qd.math.clz(1)

    f(-1, 0xF0)
    return x.to_numpy()


def powers_with_integer_exponents(qd):
    @qd.kernel
    def f(a: qd.f32, n: qd.i32) -> qd.f32:
        return a**n

    return [f(2.0, 10), f(2.0, -2), f(0.0, 0), f(-2.0, 3)]


def powers_of_narrow_integers(qd):
    @qd.kernel
    def f(a: qd.i8, n: qd.i8) -> qd.i32:
        return a**n

    @qd.kernel
    def g(a: qd.i64, n: qd.i32) -> qd.i64:
        return a**n

    return [f(3, 3), g(3, 30)]


def powers_of_two_floats(qd):
    @qd.kernel
    def f(a: qd.f32, b: qd.f32) -> qd.f32:
        return qd.pow(a, b)

    return [f(2.0, 0.5), f(0.0, 2.0), f(9.0, -0.5)]


def floats_beyond_i8(qd):
    x = qd.field(qd.i8, 3)

    @qd.kernel
    def f(a: qd.f32):
        x[0] = qd.cast(a, qd.i32)
        x[1] = qd.cast(-a, qd.i32)
        x[2] = qd.cast(qd.cast(a, qd.i32), qd.i8)

    f(300.7)
    return x.to_numpy()


def wide_integers_to_narrow_ones(qd):
    x = qd.field(qd.i32, 6)

    @qd.kernel
    def f(a: qd.i64):
        x[0] = qd.cast(a, qd.i32)
        x[1] = qd.cast(a, qd.i16)
        x[2] = qd.cast(a, qd.u8)
        x[3] = qd.cast(a, qd.i8)
        x[4] = qd.i32(a >> 32)
        x[5] = qd.cast(a, qd.u16)

    f(0x123456789ABCDEF0)
    return x.to_numpy()


def integers_to_half(qd):
    @qd.kernel
    def f(a: qd.i32) -> qd.f32:
        return qd.cast(qd.cast(a, qd.f16), qd.f32)

    return [f(2049), f(2051), f(-7)]


def large_integers_to_floats(qd):
    @qd.kernel
    def f(a: qd.i32) -> qd.f32:
        return a

    @qd.kernel
    def g(a: qd.u64) -> qd.f64:
        return qd.cast(a, qd.f64)

    return [f(16777217), f(2147483647), g(2**63), g(2**64 - 1)]


def floats_are_truncated_to_integers(qd):
    x = qd.field(qd.i32, 6)

    @qd.kernel
    def f(a: qd.f32):
        x[0] = int(a)
        x[1] = int(-a)
        x[2] = qd.cast(a, qd.i32)
        x[3] = qd.floor(-a, qd.i32)
        x[4] = qd.ceil(-a, qd.i32)
        x[5] = qd.round(-a, qd.i32)

    f(2.5)
    return x.to_numpy()


def rounding_of_halves(qd):
    x = qd.field(qd.f32, 5)

    @qd.kernel
    def f(a: qd.f32):
        for k in qd.static(range(5)):
            x[k] = qd.round(a + k)

    f(-1.5)
    return x.to_numpy()


def booleans_of_numbers(qd):
    @qd.kernel
    def f(a: qd.f32, n: qd.i32) -> qd.i32:
        return bool(a) * 10 + bool(n)

    return [f(0.5, 3), f(0, 0)]


def numbers_as_conditions(qd):
    @qd.kernel
    def f(a: qd.i32, b: qd.f32) -> qd.i32:
        r = 0
        if a:
            r += 1
        if b:
            r += 10
        if not a:
            r += 100
        return r

    return [f(0, 0.0), f(2, 0.5), f(0, -1.0)]


def u1_fields(qd):
    x = qd.field(qd.u1, 4)

    @qd.kernel
    def f() -> qd.i32:
        for i in x:
            x[i] = i > 1
        n = 0
        for i in range(4):
            if x[i]:
                n += 1
        return n

    return [f(), x.to_numpy()]


def negative_zero(qd):
    x = qd.field(qd.f32, 4)

    @qd.kernel
    def f(a: qd.f32):
        x[0] = -a
        x[1] = a * -1.0
        x[2] = qd.abs(-a)
        x[3] = qd.sqrt(a)

    f(0.0)
    return [math.copysign(1, v) for v in x.to_numpy()]


def infinities_of_functions(qd):
    x = qd.field(qd.f32, 4)

    @qd.kernel
    def f(a: qd.f32):
        x[0] = qd.exp(a)
        x[1] = qd.exp(-a)
        x[2] = qd.tanh(a)
        x[3] = 1.0 / (a - a + 0.5)

    f(200.0)
    return x.to_numpy()


def nan_of_functions(qd):
    x = qd.field(qd.f32, 3)

    @qd.kernel
    def f(a: qd.f32):
        x[0] = qd.sqrt(a)
        x[1] = qd.log(a)
        x[2] = qd.acos(a - 1)

    f(-1.0)
    return [math.isnan(v) for v in x.to_numpy()]


nan_of_functions.options = {"fast_math": False}


def special_floats_without_fast_math(qd):
    @qd.kernel
    def f(a: qd.f32) -> qd.i32:
        return qd.math.isnan(a) * 1 + qd.math.isinf(a) * 10

    return [f(math.nan), f(math.inf), f(-math.inf), f(0)]


special_floats_without_fast_math.options = {"fast_math": False}


def comparisons_with_nan(qd):
    @qd.kernel
    def f(a: qd.f32, b: qd.f32) -> qd.i32:
        r = 0
        if a < b:
            r += 1
        if a >= b:
            r += 10
        if a == a:
            r += 100
        if a != a:
            r += 1000
        return r

    return [f(math.nan, 1), f(1, math.nan), f(1, 2)]


comparisons_with_nan.options = {"fast_math": False}


def minima_with_infinities(qd):
    @qd.kernel
    def f(a: qd.f32, b: qd.f32) -> qd.math.vec2:
        return qd.Vector([qd.min(a, b), qd.max(a, b)])

    return [f(math.inf, 1), f(-math.inf, 1)]


minima_with_infinities.options = {"fast_math": False}


def infinity_as_a_start(qd):
    x = qd.field(qd.f32, 4)
    x.from_numpy(np.array([3, 1, 2, 5], dtype=np.float32))

    @qd.kernel
    def f() -> qd.math.vec2:
        low, high = qd.math.inf, -qd.math.inf
        for _ in range(1):
            for i in range(4):
                low = min(low, x[i])
                high = max(high, x[i])
        return qd.Vector([low, high])

    return f()


infinity_as_a_start.options = {"fast_math": False}


def functions_of_f64(qd):
    x = qd.field(qd.f64, 8)

    @qd.kernel
    def f(a: qd.f64):
        x[0] = qd.sin(a)
        x[1] = qd.exp(a)
        x[2] = qd.log(a)
        x[3] = qd.sqrt(a)
        x[4] = qd.atan2(a, 2.0)
        x[5] = a**0.3
        x[6] = qd.tanh(a)
        x[7] = qd.rsqrt(a)

    f(0.7)
    return x.to_numpy()


def arctangents_of_quadrants(qd):
    @qd.kernel
    def f(y: qd.f32, x: qd.f32) -> qd.f32:
        return qd.atan2(y, x)

    return [f(1, 1), f(1, -1), f(-1, -1), f(-1, 1), f(0, -1), f(1, 0), f(0, 1)]


def functions_of_integers(qd):
    @qd.kernel
    def f(n: qd.i32) -> qd.f32:
        return qd.sqrt(n) + qd.sin(n) + qd.exp(n) + qd.floor(n)

    return f(2)


def absolute_values(qd):
    x = qd.field(qd.f32, 4)

    @qd.kernel
    def f(a: qd.f32, n: qd.i32):
        x[0] = abs(a)
        x[1] = abs(n)
        x[2] = qd.abs(-a)
        x[3] = qd.math.sign(a) if False else qd.math.sign(-2.0)

    f(-2.5, -3)
    return x.to_numpy()


def signs_of_vectors(qd):
    @qd.kernel
    def f() -> qd.math.vec3:
        return qd.math.sign(qd.Vector([-2.0, 0.0, 3.0]))

    return f()


def clamps_and_mixes(qd):
    @qd.kernel
    def f(x: qd.f32) -> qd.math.vec4:
        return qd.Vector(
            [
                qd.math.clamp(x, 0.0, 1.0),
                qd.math.mix(2.0, 4.0, x),
                qd.math.step(0.5, x),
                qd.math.smoothstep(0.0, 1.0, x),
            ]
        )

    return [f(0.25), f(-1), f(2)]


def fractions_and_remainders_of_vectors(qd):
    @qd.kernel
    def f() -> qd.math.vec3:
        v = qd.Vector([1.25, -1.25, 7.5])
        return qd.math.fract(v) + qd.math.mod(v, 2.0) * 10

    return f()


def functions_of_vectors(qd):
    @qd.kernel
    def f() -> qd.math.vec3:
        v = qd.Vector([0.25, 1.0, 2.25])
        return qd.sqrt(v) + qd.sin(v) * 10 + qd.max(v, 1.0) * 100 + qd.pow(v, 2)

    return f()


def selects_of_vectors(qd):
    @qd.kernel
    def f(k: qd.i32) -> qd.math.vec3:
        a, b = qd.Vector([1.0, 2.0, 3.0]), qd.Vector([9.0, 8.0, 7.0])
        return qd.select(k > 0, a, b) + qd.select(a > 1.5, a, 0.0) * 10

    return [f(1), f(0)]


def selects_of_mixed_types(qd):
    @qd.kernel
    def f(k: qd.i32) -> qd.f32:
        return qd.select(k, 1, 2.5)

    return [f(1), f(0)]


def selects_of_matrices(qd):
    @qd.kernel
    def f(k: qd.i32) -> qd.math.mat2:
        a, b = qd.Matrix([[1.0, 2.0], [3.0, 4.0]]), qd.Matrix([[0.0, 0.0], [0.0, 1.0]])
        return qd.select(k == 0, a, b)

    return [f(0), f(1)]


def atomics_return_old_values(qd):
    x, r = qd.field(qd.i32, 8), qd.field(qd.i32, 8)

    @qd.kernel
    def f():
        for _ in range(1):
            for k in range(8):
                x[k] = 12
            r[0] = qd.atomic_add(x[0], 5)
            r[1] = qd.atomic_sub(x[1], 5)
            r[2] = qd.atomic_min(x[2], 5)
            r[3] = qd.atomic_max(x[3], 50)
            r[4] = qd.atomic_and(x[4], 10)
            r[5] = qd.atomic_or(x[5], 3)
            r[6] = qd.atomic_xor(x[6], 6)
            r[7] = qd.atomic_mul(x[7], 3)

    f()
    return [x.to_numpy(), r.to_numpy()]


def atomics_of_floats(qd):
    x = qd.field(qd.f32, 4)

    @qd.kernel
    def f():
        for i in range(10):
            qd.atomic_add(x[0], 0.5)
            qd.atomic_min(x[1], -1.0 * i)
            qd.atomic_max(x[2], 1.5 * i)
            qd.atomic_sub(x[3], 0.25)

    f()
    return x.to_numpy()


def atomics_of_wide_integers(qd):
    x, y = qd.field(qd.i64, 2), qd.field(qd.u64, 2)

    @qd.kernel
    def f():
        for i in range(10):
            x[0] += qd.i64(1) << 33
            qd.atomic_min(x[1], -qd.cast(i, qd.i64))
            qd.atomic_max(y[0], qd.cast(i, qd.u64))
            qd.atomic_or(y[1], qd.u64(1) << qd.cast(i * 4, qd.u64))

    f()
    return [x.to_numpy(), y.to_numpy()]


def atomics_of_bits_of_floats(qd):
    x = qd.field(qd.f32, ())

    @qd.kernel
    def f():
        for i in range(4):
            qd.atomic_or(x[None], 1)

    f()


def atomics_of_locals(qd):
    @qd.kernel
    def f() -> qd.i32:
        s, m = 0, 100
        for i in range(10):
            qd.atomic_add(s, i)
            qd.atomic_min(m, 50 - i)
        return s * 100 + m

    return f()


def atomics_of_arguments(qd):
    @qd.kernel
    def f(x: qd.types.ndarray(dtype=qd.i32, ndim=1)):
        for i in range(100):
            x[i % 3] += 1
            qd.atomic_max(x[3], i)

    a = np.zeros(4, np.int32)
    f(a)
    return a


def subtractions_in_place(qd):
    x = qd.field(qd.i32, 2)

    @qd.kernel
    def f():
        for i in range(10):
            x[0] -= i
            x[1] -= -1

    f()
    return x.to_numpy()


def in_place_operators_of_locals(qd):
    @qd.kernel
    def f() -> qd.i32:
        a = 77
        a //= 2
        a %= 20
        a <<= 3
        a |= 1
        a ^= 5
        a >>= 1
        a &= 127
        a **= 2
        return a

    return f()


def in_place_division_of_integers(qd):
    @qd.kernel
    def f() -> qd.f32:
        a = 7
        a /= 2
        return a

    return f()


def literals_beyond_i32(qd):
    @qd.kernel
    def f() -> qd.i64:
        return 4294967296 + 1

    return f()


def products_beyond_i32(qd):
    @qd.kernel
    def f(a: qd.i32) -> qd.i64:
        return a * a

    @qd.kernel
    def g(a: qd.i32) -> qd.i64:
        return qd.i64(a) * a

    return [f(100000), g(100000)]


def default_integers_of_64_bits(qd):
    @qd.kernel
    def f(a: int) -> int:
        return a * 3000000000

    return f(3)


default_integers_of_64_bits.options = {"default_ip": "i64"}


def default_floats_of_64_bits(qd):
    @qd.kernel
    def f(a: float) -> float:
        return a / 3

    x = qd.field(float, ())
    return [f(1), x.dtype == qd.f64]


default_floats_of_64_bits.options = {"default_fp": "f64"}


def random_numbers_of_types(qd):
    x = qd.field(qd.f32, 1000)

    @qd.kernel
    def f():
        for i in x:
            x[i] = qd.random() * 0.5 + qd.random(qd.f64) * 0.5

    @qd.kernel
    def g() -> qd.i32:
        return qd.random(qd.i32) == qd.random(qd.i32)

    f()
    a = x.to_numpy()
    return [bool((a >= 0).all()), bool((a < 1).all()), bool(abs(a.mean() - 0.5) < 0.05), g()]


def normal_random_numbers(qd):
    x = qd.field(qd.f32, 4000)

    @qd.kernel
    def f():
        for i in x:
            x[i] = qd.randn()

    f()
    a = x.to_numpy()
    return [bool(abs(a.mean()) < 0.1), bool(abs(a.std() - 1) < 0.1)]


def chained_comparisons_of_floats(qd):
    @qd.kernel
    def f(a: qd.f32, b: qd.f32) -> qd.i32:
        r = 0
        if 0 <= a < b <= 1:
            r = 1
        elif a == b == 0.5 != 1:
            r = 2
        return r

    return [f(0.1, 0.2), f(0.5, 0.5), f(2, 3)]


def short_circuits_protect(qd):
    x = qd.field(qd.i32, 4)

    @qd.kernel
    def f(i: qd.i32) -> qd.i32:
        r = 0
        if i < 4 and x[i] == 0:
            r = 1
        if i >= 4 or x[i] > 0:
            r += 10
        return r

    return [f(1), f(5)]


short_circuits_protect.options = {"debug": True}


def values_of_and_and_or(qd):
    @qd.kernel
    def f(a: qd.i32, b: qd.i32) -> qd.i32:
        c = a and b
        d = a or b
        return bool(c) * 10 + bool(d)

    return [f(0, 3), f(2, 0), f(2, 3)]


def ternaries_that_are_nested(qd):
    @qd.kernel
    def f(a: qd.i32) -> qd.i32:
        return 1 if a < 0 else 2 if a == 0 else 3 if a < 10 else 4

    return [f(-1), f(0), f(5), f(50)]


def ternaries_of_vectors(qd):
    @qd.kernel
    def f(a: qd.i32) -> qd.math.vec2:
        v = qd.Vector([1.0, 2.0]) if a > 0 else qd.Vector([3.0, 4.0])
        return v

    return [f(1), f(0)]
