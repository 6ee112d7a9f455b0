"""Types, literals, operators and conversions of numbers."""

import math
import operator

import numpy as np


def divisions_of_negative_integers(qd):
    @qd.kernel
    def f(a: qd.i32, b: qd.i32, out: qd.types.ndarray()):
        out[0] = a // b
        out[1] = a % b
        out[2] = qd.raw_div(a, b)
        out[3] = qd.raw_mod(a, b)

    results = []
    for a, b in [(7, 2), (-7, 2), (7, -2), (-7, -2), (-6, 3), (0, -5)]:
        out = np.zeros(4, np.int32)
        f(a, b, out)
        results.append(out)
    return results


def divisions_of_floats(qd):
    @qd.kernel
    def f(a: qd.f32, b: qd.f32, out: qd.types.ndarray()):
        out[0] = a // b
        out[1] = a % b
        out[2] = a / b
        out[3] = qd.math.mod(a, b)

    results = []
    for a, b in [(7.5, 2.0), (-7.5, 2.0), (7.5, -2.0), (-7.5, -2.0)]:
        out = np.zeros(4, np.float32)
        f(a, b, out)
        results.append(out)
    return results


def true_division_of_integers(qd):
    @qd.kernel
    def f(a: qd.i32, b: qd.i64, c: qd.u8) -> qd.types.vector(3, qd.f64):
        return qd.Vector([a / 4, b / 4, c / 2], qd.f64)

    return f(7, -9, 3)


def shifts(qd):
    @qd.kernel
    def f(a: qd.i32, b: qd.u32, n: qd.i32, out: qd.types.ndarray()):
        out[0] = a << n
        out[1] = a >> n
        out[2] = b >> n
        out[3] = qd.bit_shr(a, n)
        out[4] = b << n

    out = np.zeros(5, np.int64)
    f(-13, 0xFFFFFFF0, 2, out)
    return out


def bit_operations(qd):
    @qd.kernel
    def f(a: qd.i32, b: qd.i32, out: qd.types.ndarray()):
        out[0] = a & b
        out[1] = a | b
        out[2] = a ^ b
        out[3] = ~a
        out[4] = not a
        out[5] = -a
        out[6] = +a

    out = np.zeros(7, np.int32)
    f(12, -10, out)
    return out


def powers_of_integers(qd):
    @qd.kernel
    def f(a: qd.i32, n: qd.i32, out: qd.types.ndarray()):
        out[0] = a**2
        out[1] = a**n
        out[2] = a**0
        out[3] = qd.pow(a, 3)
        out[4] = pow(a, 3)

    out = np.zeros(5, np.int32)
    f(-3, 5, out)
    return out


def powers_of_floats(qd):
    @qd.kernel
    def f(x: qd.f64, n: qd.i32, out: qd.types.ndarray()):
        out[0] = x**2
        out[1] = x**n
        out[2] = x**0.5
        out[3] = x**-1
        out[4] = 2**x
        out[5] = x**-n

    out = np.zeros(6)
    f(2.25, 3, out)
    return out


def floats_to_integers(qd):
    @qd.kernel
    def f(x: qd.f32, out: qd.types.ndarray()):
        out[0] = int(x)
        out[1] = qd.cast(x, qd.i32)
        out[2] = qd.i32(x)
        out[3] = qd.cast(x, qd.i64)
        out[4] = qd.round(x, qd.i32)
        out[5] = qd.floor(x, qd.i32)
        out[6] = qd.ceil(x, int)

    results = []
    for x in (2.7, -2.7, 2.5, 3.5, -0.5):
        out = np.zeros(7, np.int64)
        f(x, out)
        results.append(out)
    return results


def narrow_conversions(qd):
    @qd.kernel
    def f(x: qd.i32, out: qd.types.ndarray()):
        out[0] = qd.cast(x, qd.i8)
        out[1] = qd.cast(x, qd.u8)
        out[2] = qd.cast(x, qd.i16)
        out[3] = qd.cast(x, qd.u16)
        out[4] = qd.cast(x, qd.u32)
        out[5] = qd.cast(x, qd.u64)

    results = []
    for x in (300, -1, 70000, -129):
        out = np.zeros(6, np.int64)
        f(x, out)
        results.append(out)
    return results


def bit_casts(qd):
    @qd.kernel
    def f(x: qd.f32, y: qd.f64, out: qd.types.ndarray()):
        out[0] = qd.bit_cast(x, qd.i32)
        out[1] = qd.bit_cast(x, qd.u32)
        out[2] = qd.bit_cast(y, qd.i64)
        out[3] = qd.cast(qd.bit_cast(qd.bit_cast(x, qd.u32), qd.f32), qd.i32)

    out = np.zeros(4, np.int64)
    f(-2.0, 1.5, out)
    return out


def promotions(qd):
    @qd.kernel
    def f(a: qd.i8, b: qd.u8, c: qd.i64, d: qd.f32, e: qd.f16, out: qd.types.ndarray()):
        out[0] = a + b
        out[1] = a + c
        out[2] = a * d
        out[3] = c * d
        out[4] = e * a
        out[5] = e + d

    out = np.zeros(6)
    f(-100, 200, 1 << 33, 0.5, 1.5, out)
    return out


def wide_literals(qd):
    @qd.kernel
    def f(x: qd.i64, y: qd.u64, out: qd.types.ndarray()):
        out[0] = x + 3
        out[1] = x * 2
        out[2] = qd.i64(1) << 40
        out[3] = qd.cast(y >> 60, qd.i64)
        out[4] = x & 0xFFFF

    out = np.zeros(5, np.int64)
    f(1 << 40, (1 << 64) - 1, out)
    return out


def hexadecimal_and_binary_literals(qd):
    @qd.kernel
    def f() -> qd.i32:
        return 0xFF + 0b101 + 0o17 + 1_000

    return f()


def scientific_literals(qd):
    @qd.kernel
    def f() -> qd.f64:
        return 1e-3 + 2.5e2 + 0.5

    return f()


def default_types(qd):
    @qd.kernel
    def f() -> float:
        return 1 / 3

    @qd.kernel
    def g() -> int:
        return 1 << 20

    return [f(), g()]


def chained_comparisons(qd):
    @qd.kernel
    def f(a: qd.i32, b: qd.f32, c: qd.i32) -> qd.i32:
        result = 0
        if a < b <= c:
            result += 1
        if a < c > b:
            result += 2
        if a == a != c:
            result += 4
        return result

    return [f(1, 2.0, 3), f(3, 3.0, 3), f(0, 5.0, 3)]


def comparisons_of_64_bits(qd):
    @qd.kernel
    def f(a: qd.i64, b: qd.i64, c: qd.u64, d: qd.u64, out: qd.types.ndarray()):
        out[0] = a < b
        out[1] = c < d
        out[2] = a == b
        out[3] = c >= d
        out[4] = qd.max(a, b) == b
        out[5] = qd.min(c, d) == c

    out = np.zeros(6, np.int32)
    f(-(1 << 40), 1 << 40, (1 << 63) + 5, 3, out)
    return out


def results_of_comparisons(qd):
    @qd.kernel
    def f(a: qd.i32, b: qd.i32) -> qd.i32:
        c = a < b
        d = (a < b) + (a <= b) + (b > a)
        return d * 10 + c

    return [f(1, 2), f(2, 1), f(1, 1)]


def logic(qd):
    @qd.kernel
    def f(a: qd.i32, b: qd.i32, out: qd.types.ndarray()):
        out[0] = a and b
        out[1] = a or b
        out[2] = not (a > 0 and b > 0)
        out[3] = (a > 0) & (b > 0)
        out[4] = (a > 0) | (b > 0)
        out[5] = (a > 0) ^ (b > 0)

    results = []
    for a, b in [(1, 1), (1, 0), (0, 1), (0, 0)]:
        out = np.zeros(6, np.int32)
        f(a, b, out)
        results.append(out)
    return results


def booleans(qd):
    @qd.kernel
    def f(a: qd.u1, b: bool) -> qd.u1:
        c = a and not b
        d = True
        return c or (not d)

    return [f(True, False), f(True, True), f(False, True)]


def ternaries(qd):
    @qd.kernel
    def f(x: qd.i32) -> qd.f32:
        a = 1 if x > 0 else -1
        b = 0.5 if x > 2 else (0.25 if x > 1 else 0.0)
        return a + b

    return [f(-1), f(1), f(2), f(3)]


def ternaries_of_mixed_types(qd):
    @qd.kernel
    def f(x: qd.i32) -> qd.f32:
        a = 1 if x > 0 else 0.5
        return a / 2

    return [f(1), f(-1)]


def selects(qd):
    @qd.kernel
    def f(x: qd.i32) -> qd.types.vector(3, qd.f32):
        a = qd.select(x > 0, 1.5, 2)
        b = qd.select(qd.Vector([x > 0, x > 1, x > 2]), qd.Vector([1.0, 2.0, 3.0]), 0.0)
        return b + a

    return [f(0), f(1), f(2), f(3)]


def minima_and_maxima(qd):
    @qd.kernel
    def f(a: qd.i32, b: qd.f32, out: qd.types.ndarray()):
        out[0] = min(a, b)
        out[1] = max(a, b, 3)
        out[2] = qd.max(a, 2, 1.5, b)
        out[3] = qd.min(1, a)
        out[4] = abs(a)
        out[5] = abs(b)

    out = np.zeros(6)
    f(-4, -2.5, out)
    return out


def python_functions_of_numbers(qd):
    @qd.kernel
    def f(x: qd.f32, out: qd.types.ndarray()):
        out[0] = round(x)
        out[1] = abs(-x)
        out[2] = float(int(x))
        out[3] = max(x, 1)
        out[4] = pow(x, 2)
        out[5] = bool(x)

    out = np.zeros(6)
    f(2.6, out)
    return out


def functions_of_module_math(qd):
    @qd.kernel
    def f(x: qd.f64, out: qd.types.ndarray()):
        out[0] = qd.sin(math.pi / 4) * x
        out[1] = math.e
        out[2] = math.sqrt(2.0)

    out = np.zeros(3)
    f(2.0, out)
    return out


def numpy_constants(qd):
    a, b, c = np.float32(0.1), np.int64(7), np.array([1.0, 2.0])

    @qd.kernel
    def f() -> qd.f64:
        return a + b * c[1]

    return f()


def numpy_scalars_as_arguments(qd):
    @qd.kernel
    def f(a: qd.i32, b: qd.f32, c: qd.i64, d: qd.u8) -> qd.f64:
        return a + b + c + d

    return f(np.int32(-3), np.float64(0.5), np.int64(1 << 20), np.uint8(255))


def numpy_bool_as_argument(qd):
    @qd.kernel
    def f(a: qd.u1, b: qd.i32) -> qd.i32:
        return a + b

    return f(np.bool_(True), 3)


def bool_for_integer_parameter(qd):
    @qd.kernel
    def f(a: qd.i32, b: qd.f32) -> qd.f32:
        return a + b

    return f(True, False)


def float_for_integer_parameter(qd):
    @qd.kernel
    def f(a: qd.i32) -> qd.i32:
        return a

    return f(2.5)


def string_for_integer_parameter(qd):
    @qd.kernel
    def f(a: qd.i32) -> qd.i32:
        return a

    return f("3")


def integers_of_all_widths_wrap(qd):
    @qd.kernel
    def f(a: qd.i8, b: qd.u8, c: qd.i16, d: qd.u16, e: qd.i32, out: qd.types.ndarray()):
        out[0] = qd.cast(a + a, qd.i8)
        out[1] = qd.cast(b + b, qd.u8)
        out[2] = qd.cast(c * c, qd.i16)
        out[3] = qd.cast(d * d, qd.u16)
        out[4] = e * e

    out = np.zeros(5, np.int64)
    f(100, 200, 300, 60000, 70000, out)
    return out


def half_precision(qd):
    x = qd.field(qd.f16, 4)

    @qd.kernel
    def f(a: qd.f16) -> qd.f32:
        for i in x:
            x[i] = a * i + 0.1
        b = a + a
        return b * 3

    return [f(1.1), x.to_numpy()]


def special_floats(qd):
    @qd.kernel
    def f(x: qd.f32, out: qd.types.ndarray()):
        out[0] = qd.math.isnan(x / x)
        out[1] = qd.math.isinf(1.0 / x)
        out[2] = qd.math.inf > 1e30
        out[3] = qd.math.isnan(qd.math.nan)

    out = np.zeros(4, np.int32)
    f(0.0, out)
    return out


def elementary_functions(qd):
    @qd.kernel
    def f(x: qd.f64, out: qd.types.ndarray()):
        out[0] = qd.sin(x)
        out[1] = qd.cos(x)
        out[2] = qd.tan(x)
        out[3] = qd.asin(x)
        out[4] = qd.acos(x)
        out[5] = qd.atan2(x, 2.0)
        out[6] = qd.tanh(x)
        out[7] = qd.exp(x)
        out[8] = qd.log(x)
        out[9] = qd.sqrt(x)
        out[10] = qd.rsqrt(x)
        out[11] = qd.floor(x)
        out[12] = qd.ceil(x)
        out[13] = qd.round(x)

    out = np.zeros(14)
    f(0.6, out)
    return out


def elementary_functions_of_integers(qd):
    @qd.kernel
    def f(n: qd.i32, out: qd.types.ndarray()):
        out[0] = qd.sin(n)
        out[1] = qd.sqrt(n)
        out[2] = qd.exp(n)
        out[3] = qd.floor(n)
        out[4] = qd.atan2(n, 3)

    out = np.zeros(5, np.float32)
    f(2, out)
    return out


def functions_of_math(qd):
    tm = qd.math

    @qd.kernel
    def f(x: qd.f32, out: qd.types.ndarray()):
        out[0] = tm.clamp(x, 0.0, 1.0)
        out[1] = tm.mix(1.0, 3.0, x)
        out[2] = tm.fract(x)
        out[3] = tm.sign(-x)
        out[4] = tm.smoothstep(0.0, 3.0, x)
        out[5] = tm.step(1.0, x)
        out[6] = tm.degrees(x)
        out[7] = tm.radians(x)
        out[8] = tm.log2(x)
        out[9] = tm.popcnt(13)
        out[10] = tm.clz(13)

    out = np.zeros(11, np.float32)
    f(1.75, out)
    return out


def vectors_of_math(qd):
    tm = qd.math

    @qd.kernel
    def f() -> tm.vec3:
        a, b = tm.vec3(1, 2, 3), tm.vec3(0.5)
        c = tm.vec3(tm.vec2(1, 2), 3)
        d = tm.vec4(a, 1).xyz
        n = tm.normalize(a)
        return (
            tm.cross(a, tm.vec3(0, 1, 0))
            + tm.reflect(a, n)
            + b
            + c * d
            + tm.dot(a, b)
            + tm.length(a)
            + tm.distance(a, b)
        )

    return f()


def rotations_of_math(qd):
    tm = qd.math

    @qd.kernel
    def f(out: qd.types.ndarray()):
        m = tm.rotation3d(0.1, 0.2, 0.3)
        r = tm.rotation2d(0.5)
        t = tm.translate(1.0, 2.0, 3.0)
        s = tm.scale(1.0, 2.0, 3.0)
        v = m @ t @ s @ tm.vec4(1, 1, 1, 1)
        for i in qd.static(range(4)):
            out[i] = v[i]
        out[4] = r[0, 1]
        out[5] = tm.rot_by_axis(tm.vec3(0, 0, 1), 0.5)[0, 1]

    out = np.zeros(6, np.float32)
    f(out)
    return out


def complex_numbers_of_math(qd):
    tm = qd.math

    @qd.kernel
    def f() -> tm.vec2:
        z = tm.vec2(1, 2)
        w = tm.vec2(0.5, -1)
        return (
            tm.cmul(z, w)
            + tm.cdiv(z, w)
            + tm.cexp(w)
            + tm.clog(z)
            + tm.csqrt(z)
            + tm.cpow(z, 2)
            + tm.cinv(w)
            + tm.cconj(z)
        )

    return f()


def operators_as_functions(qd):
    @qd.kernel
    def f(op: qd.template(), a: qd.i32, b: qd.i32) -> qd.i32:
        return op(a, b)

    return [f(operator.add, 2, 3), f(max, 2, 3), f(qd.max, 4, 3)]


def augmented_assignments(qd):
    @qd.kernel
    def f(a: qd.i32, x: qd.f32, out: qd.types.ndarray()):
        i, y = a, x
        i += 3
        i -= 1
        i *= 2
        i //= 3
        i %= 7
        i <<= 3
        i >>= 1
        i &= 0xFF
        i |= 1
        i ^= 5
        i **= 2
        y += 1
        y /= 2
        y *= 3
        y -= 0.5
        y **= 2
        y //= 1
        y %= 5
        out[0] = i
        out[1] = y

    out = np.zeros(2)
    f(11, 2.5, out)
    return out


def variables_keep_their_type(qd):
    @qd.kernel
    def f() -> qd.f32:
        a = 1
        a = 2.7
        b = 1.0
        b = 3
        return a + b / 2

    return f()


def annotated_locals(qd):
    @qd.kernel
    def f() -> qd.f64:
        a: qd.f64 = 1
        b: qd.i8 = 300
        c: int = 5
        d: float = 2
        return a / 3 + b + c + d / 4

    return f()


def random_numbers(qd):
    @qd.kernel
    def f(n: qd.i32, out: qd.types.ndarray()):
        for i in range(n):
            out[i] = qd.random(qd.f32) + qd.random(float) + qd.randn()

    out = np.zeros(20000, np.float32)
    f(20000, out)
    return [bool(abs(out.mean() - 1) < 0.05), len(set(out.tolist())) > 15000]


def random_integers(qd):
    @qd.kernel
    def f(out: qd.types.ndarray()):
        for i in range(1000):
            out[i] = qd.random(int) % 10

    out = np.zeros(1000, np.int32)
    f(out)
    return [int(out.min()), int(out.max())]


def zeros_and_ones(qd):
    @qd.kernel
    def f(x: qd.f32, v: qd.math.vec2) -> qd.math.vec2:
        a = qd.zero(x) + qd.one(x)
        return qd.one(v) * a + qd.zero(v)

    return f(3.0, qd.math.vec2(1, 2))


def integer_beyond_its_parameter(qd):
    @qd.kernel
    def f(a: qd.i32) -> qd.i32:
        return a

    return f(1 << 40)


def return_of_wide_integers(qd):
    @qd.kernel
    def f(a: qd.i64) -> qd.i64:
        return a * 3

    @qd.kernel
    def g(a: qd.u64) -> qd.u64:
        return a

    return [f(1 << 40), g((1 << 64) - 1)]


def frexp_of_floats(qd):
    @qd.kernel
    def f(x: qd.f32) -> qd.f32:
        m, e = qd.frexp(x)
        return m * 100 + e

    return [f(12.5), f(0.3)]


def functions_on_the_host(qd):
    return [
        qd.sin(0.5),
        qd.max(1, 2.5),
        qd.floor(2.5),
        qd.sqrt(2),
        qd.abs(-3),
        qd.pow(2, 3),
        qd.atan2(1, 2),
    ]


def vectors_on_the_host(qd):
    v, w = qd.Vector([1.0, 2.0]), qd.Vector([3, 4])
    return [
        v + w,
        v * 2,
        v.dot(w),
        v.norm(),
        v.normalized(),
        2 - v,
        -v,
        v[0],
        v.x,
        v / w,
        v == v,
        v.to_numpy(),
        v.max(),
        v.sum(),
    ]


def types_as_functions_on_the_host(qd):
    return [qd.i32(2.7), qd.f32(3), qd.u8(300), qd.i64(-1)]
