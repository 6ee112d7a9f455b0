"""``qd.math``: constants, vector types, and the functions of shading languages.

Functions here are written in the language itself; kernels inline them, and on the host they work
on numbers and on `Vector` and `Matrix` values. A complex number is a vector of 2.
"""

from __future__ import annotations

from math import e as e
from math import inf as inf
from math import nan as nan
from math import pi as pi
from typing import Any

from octants.lang import scalar_functions
from octants.lang.library_function_marks import library_function
from octants.lang.scalar_functions import acos as acos
from octants.lang.scalar_functions import asin as asin
from octants.lang.scalar_functions import atan2 as atan2
from octants.lang.scalar_functions import ceil as ceil
from octants.lang.scalar_functions import clz as clz
from octants.lang.scalar_functions import cos as cos
from octants.lang.scalar_functions import exp as exp
from octants.lang.scalar_functions import ffs as ffs
from octants.lang.scalar_functions import floor as floor
from octants.lang.scalar_functions import isinf as isinf
from octants.lang.scalar_functions import isnan as isnan
from octants.lang.scalar_functions import log as log
from octants.lang.scalar_functions import log2 as log2
from octants.lang.scalar_functions import max as max  # noqa: A004
from octants.lang.scalar_functions import min as min  # noqa: A004
from octants.lang.scalar_functions import popcnt as popcnt
from octants.lang.scalar_functions import pow as pow  # noqa: A004
from octants.lang.scalar_functions import round as round  # noqa: A004
from octants.lang.scalar_functions import select as select
from octants.lang.scalar_functions import sign as sign
from octants.lang.scalar_functions import sin as sin
from octants.lang.scalar_functions import sqrt as sqrt
from octants.lang.scalar_functions import tan as tan
from octants.lang.scalar_functions import tanh as tanh
from octants.types.default_types import uint
from octants.types.matrix_types import matrix, vector
from octants.types.matrix_values import Matrix, Vector
from octants.types.scalars import i32, u32

__all__ = [
    "acos",
    "asin",
    "atan2",
    "cconj",
    "cdiv",
    "ceil",
    "cexp",
    "cinv",
    "clamp",
    "clog",
    "clz",
    "cmul",
    "cos",
    "cpow",
    "cross",
    "csqrt",
    "degrees",
    "determinant",
    "distance",
    "dot",
    "e",
    "exp",
    "eye",
    "ffs",
    "floor",
    "fns",
    "fract",
    "inf",
    "inverse",
    "isinf",
    "isnan",
    "ivec2",
    "ivec3",
    "ivec4",
    "length",
    "log",
    "log2",
    "mat2",
    "mat3",
    "mat4",
    "max",
    "min",
    "mix",
    "mod",
    "nan",
    "normalize",
    "pi",
    "popcnt",
    "pow",
    "radians",
    "reflect",
    "refract",
    "rot_by_axis",
    "rot_yaw_pitch_roll",
    "rotation2d",
    "rotation3d",
    "round",
    "scale",
    "sign",
    "sin",
    "smoothstep",
    "sqrt",
    "step",
    "tan",
    "tanh",
    "translate",
    "uvec2",
    "uvec3",
    "uvec4",
    "vdir",
    "vec2",
    "vec3",
    "vec4",
]

vec2, vec3, vec4 = (vector(n, float) for n in (2, 3, 4))
ivec2, ivec3, ivec4 = (vector(n, int) for n in (2, 3, 4))
uvec2, uvec3, uvec4 = (vector(n, uint) for n in (2, 3, 4))
mat2, mat3, mat4 = (matrix(n, n, float) for n in (2, 3, 4))

# -- interpolation and rounding --------------------------------------------------------------------


@library_function
def clamp(x: Any, xmin: Any, xmax: Any) -> Any:
    """``min(max(x, xmin), xmax)``: at the ends the derivative is that of ``x``."""
    return min(max(x, xmin), xmax)


@library_function
def mix(x: Any, y: Any, a: Any) -> Any:
    """``x * (1 - a) + y * a``"""
    return x * (1 - a) + y * a


@library_function
def step(edge: Any, x: Any) -> Any:
    """0.0 where ``x < edge``, else 1.0; without a derivative."""
    return select(x < edge, 0.0, 1.0)


@library_function
def smoothstep(edge0: Any, edge1: Any, x: Any) -> Any:
    """``t * t * (3 - 2 * t)``, where t goes from 0 at ``x = edge0`` to 1 at ``x = edge1``."""
    t = clamp((x - edge0) / (edge1 - edge0), 0, 1)
    return t * t * (3 - 2 * t)


@library_function
def fract(x: Any) -> Any:
    """``x - floor(x)``"""
    return x - floor(x)


@library_function
def mod(x: Any, y: Any) -> Any:
    """``x - y * floor(x / y)``, Python's ``%``."""
    return x % y


@library_function
def radians(x: Any) -> Any:
    """Degrees in radians."""
    return x * (pi / 180)


@library_function
def degrees(x: Any) -> Any:
    """Radians in degrees."""
    return x * (180 / pi)


# -- geometry --------------------------------------------------------------------------------------


@library_function
def dot(x: Any, y: Any) -> Any:
    """The inner product of two vectors `x` and `y`."""
    return x.dot(y)


@library_function
def cross(x: Any, y: Any) -> Any:
    """The cross product of two vectors `x` and `y` of 3 elements.

    Of two vectors of 2 it is the third component.
    """
    return x.cross(y)


@library_function
def length(x: Any) -> Any:
    """The Euclidean norm of a vector."""
    return x.norm()


@library_function
def distance(x: Any, y: Any) -> Any:
    """The Euclidean distance of two points `x` and `y`."""
    return (x - y).norm()


@library_function
def normalize(v: Any) -> Any:
    """The vector over its norm; zeros stay zeros."""
    return v.normalized()


@library_function
def reflect(x: Any, n: Any) -> Any:
    """The direction of ``x`` mirrored at a surface with the unit normal ``n``."""
    return x - 2 * x.dot(n) * n


@library_function
def refract(x: Any, n: Any, eta: Any) -> Any:
    """The direction of ``x`` behind a surface with the unit normal ``n``, by Snell's law.

    ``eta`` is the ratio of the refraction indices; zeros where all is reflected.
    """
    cosine = x.dot(n)
    squared = 1 - eta * eta * (1 - cosine * cosine)
    inside = eta * x - (eta * cosine + sqrt(max(squared, 0))) * n
    return select(squared < 0, 0 * inside, inside)


@library_function
def determinant(m: Any) -> Any:
    """The determinant of a matrix of up to 4 rows."""
    return m.determinant()


@library_function
def inverse(mat: Any) -> Any:
    """The inverse of a matrix of up to 4 rows."""
    return mat.inverse()


# -- transformations -------------------------------------------------------------------------------


@library_function
def eye(n: int) -> Any:
    """The n by n identity matrix of floats."""
    return Matrix.identity(float, n)


@library_function
def vdir(ang: Any) -> Any:
    """The unit vector at an angle from the first axis."""
    return Vector([cos(ang), sin(ang)])


@library_function
def rotation2d(ang: Any) -> Any:
    """The matrix that turns vectors of 2 by an angle."""
    return Matrix([[cos(ang), -sin(ang)], [sin(ang), cos(ang)]])


@library_function
def translate(dx: Any, dy: Any, dz: Any) -> Any:
    """The 4x4 matrix of a translation by `dx`, `dy` and `dz`."""
    return Matrix(
        [[1.0, 0.0, 0.0, dx], [0.0, 1.0, 0.0, dy], [0.0, 0.0, 1.0, dz], [0.0, 0.0, 0.0, 1.0]]
    )


@library_function
def scale(sx: Any, sy: Any, sz: Any) -> Any:
    """The 4x4 matrix that scales along the axes by `sx`, `sy` and `sz`."""
    return Matrix(
        [[sx, 0.0, 0.0, 0.0], [0.0, sy, 0.0, 0.0], [0.0, 0.0, sz, 0.0], [0.0, 0.0, 0.0, 1.0]]
    )


@library_function
def rot_by_axis(axis: Any, ang: Any) -> Any:
    """The 4x4 matrix that turns row vectors by `ang` about `axis`; columns by ``-ang``."""
    c, s = cos(ang), sin(ang)
    n = axis.normalized()
    t = (1 - c) * n
    return Matrix(
        [
            [c + t.x * n.x, t.x * n.y + s * n.z, t.x * n.z - s * n.y, 0.0],
            [t.y * n.x - s * n.z, c + t.y * n.y, t.y * n.z + s * n.x, 0.0],
            [t.z * n.x + s * n.y, t.z * n.y - s * n.x, c + t.z * n.z, 0.0],
            [0.0, 0.0, 0.0, 1.0],
        ]
    )


@library_function
def rot_yaw_pitch_roll(yaw: Any, pitch: Any, roll: Any) -> Any:
    """The 4x4 matrix ``R_z(-roll) @ R_x(-pitch) @ R_y(-yaw)``."""
    cy, sy = cos(yaw), sin(yaw)
    cp, sp = cos(pitch), sin(pitch)
    cr, sr = cos(roll), sin(roll)
    return Matrix(
        [
            [cr * cy + sr * sp * sy, sr * cp, sr * sp * cy - cr * sy, 0.0],
            [cr * sp * sy - sr * cy, cr * cp, sr * sy + cr * sp * cy, 0.0],
            [cp * sy, -sp, cp * cy, 0.0],
            [0.0, 0.0, 0.0, 1.0],
        ]
    )


@library_function
def rotation3d(ang_x: Any, ang_y: Any, ang_z: Any) -> Any:
    """``rot_yaw_pitch_roll(ang_z, ang_x, ang_y)``"""
    return rot_yaw_pitch_roll(ang_z, ang_x, ang_y)


# -- complex numbers -------------------------------------------------------------------------------


@library_function
def cconj(z: Any) -> Any:
    """The complex conjugate."""
    return Vector([z[0], -z[1]])


@library_function
def cmul(z1: Any, z2: Any) -> Any:
    """The product of two complex numbers `z1` and `z2`."""
    return Vector([z1[0] * z2[0] - z1[1] * z2[1], z1[0] * z2[1] + z1[1] * z2[0]])


@library_function
def cinv(z: Any) -> Any:
    """One over a complex number; of zero, zero."""
    square = z.norm_sqr()
    return cconj(z) * select(square == 0, 0.0, 1 / select(square == 0, 1, square))


@library_function
def cdiv(z1: Any, z2: Any) -> Any:
    """The quotient `z1` / `z2` of two complex numbers; by zero, zero."""
    return cmul(z1, cinv(z2))


@library_function
def csqrt(z: Any) -> Any:
    """The complex square root with a real part that is not negative."""
    return sqrt(z.norm()) * vdir(0.5 * atan2(z[1], z[0]))


@library_function
def cpow(z: Any, n: Any) -> Any:
    """A complex number `z` to the real power `n`, from its argument in [-pi, pi]."""
    return z.norm() ** n * vdir(n * atan2(z[1], z[0]))


@library_function
def cexp(z: Any) -> Any:
    """The complex exponential function."""
    return exp(z[0]) * vdir(z[1])


@library_function
def clog(z: Any) -> Any:
    """The complex logarithm with an imaginary part in [-pi, pi]."""
    return Vector([log(z.norm()), atan2(z[1], z[0])])


# -- bits ------------------------------------------------------------------------------------------


@library_function
def fns(mask: Any, base: Any, offset: Any) -> Any:
    """The position of the n-th bit of a 32-bit `mask` that is 1; 0xFFFFFFFF if there is none.

    The search starts at bit ``base``, itself included, and goes up for the first, second, ... bit
    where ``offset`` is 1, 2, ..., and down where it is -1, -2, ...; 0 asks for bit ``base`` alone.
    """
    bits = scalar_functions.cast(mask, u32)
    position = scalar_functions.cast(base, i32)
    wanted = max(scalar_functions.abs(scalar_functions.cast(offset, i32)), 1)
    direction = select(offset < 0, -1, 1)
    found = scalar_functions.cast(0xFFFFFFFF, u32)
    for k in range(32):
        searched = position + direction * k
        is_inside = (searched >= 0) & (searched < 32) & ((offset != 0) | (k == 0))
        is_set = is_inside & (((bits >> max(min(searched, 31), 0)) & 1) == 1)
        wanted -= select(is_set, 1, 0)
        if is_set & (wanted == 0):
            found = scalar_functions.cast(searched, u32)
    return found
