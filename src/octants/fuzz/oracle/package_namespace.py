"""The oracle's implementation of the package, which a program imports as ``qd``."""

from __future__ import annotations

import dataclasses
import functools
import inspect
from collections.abc import Callable
from typing import Any

from octants.fuzz.oracle import (
    blocks,
    functions,
    linear_algebra,
    rewritten_code_support,
    sparse_fields,
)
from octants.fuzz.oracle.arrays import Array, View
from octants.fuzz.oracle.matrices import Matrix, broadcast, fold, inexact, matrix, vector
from octants.fuzz.oracle.numbers import TYPES, Defaults, Num, Type, lift
from octants.fuzz.oracle.operators import binary
from octants.fuzz.oracle.quantised_fields import (
    BitpackedFields,
    Quantised,
    QuantisedArray,
    QuantTypes,
)
from octants.fuzz.oracle.sparse_fields import SparseArray
from octants.fuzz.oracle.structs import MatrixType, StructType, from_class, settled


class Template:
    """The annotation ``template()``: the argument is a compile-time value."""

    is_template = True


class NdarrayType:
    """``types.ndarray(...)``: an array comes as it is, or with clamped indices."""

    def __init__(self, *_: Any, boundary: str = "", **__: Any) -> None:
        self.clamps = boundary == "clamp"


class Kernel:
    """A kernel of the program: converts its arguments and runs under CPython."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self.function = function
        parameters = inspect.signature(function).parameters.values()
        self.annotations = [parameter.annotation for parameter in parameters]

    def __get__(self, instance: Any, _: Any = None) -> Any:
        return self if instance is None else functools.partial(self, instance)

    def __call__(self, *arguments: Any) -> Any:
        pairs = zip(arguments, self.annotations, strict=True)
        return self.function(*(_argument(value, annotation) for value, annotation in pairs))


def _argument(value: Any, annotation: Any) -> Any:
    if isinstance(annotation, Type | MatrixType | StructType):
        return settled(annotation, value)
    if dataclasses.is_dataclass(annotation) and isinstance(annotation, type):
        members = dataclasses.fields(annotation)
        return annotation(*(_argument(getattr(value, m.name), m.type) for m in members))
    return value


def _shape(shape: Any) -> tuple[int, ...]:
    return (shape,) if isinstance(shape, int) else tuple(shape)


def field(dtype: Any, shape: Any = (), needs_grad: bool = False, **_: Any) -> Array:
    return _array(dtype, _shape(shape), (), needs_grad)


def vector_field(n: int, dtype: Any, shape: Any = (), needs_grad: bool = False, **_: Any) -> Array:
    return _array(dtype, _shape(shape), (n,), needs_grad)


def _array(dtype: Any, shape: tuple[int, ...], element: tuple[int, ...], needs_grad: bool) -> Array:
    if isinstance(dtype, Quantised):
        return QuantisedArray(dtype, shape, element)
    return SparseArray(dtype, shape, element, needs_grad)


def matrix_field(
    n: int, m: int, dtype: Type, shape: Any = (), needs_grad: bool = False, **_: Any
) -> Array:
    return Array(dtype, _shape(shape), (n, m), needs_grad)


class Vector:
    """``Vector([...])`` and its makers."""

    field = staticmethod(vector_field)
    ndarray = staticmethod(vector_field)

    def __new__(cls, items: Any, dtype: Any = None) -> Any:
        value = vector(items)
        return value.cast(dtype) if dtype is not None else value

    @staticmethod
    def zero(dtype: Type, n: int) -> Matrix:
        return Matrix([dtype(0)] * int(lift(n).__index__()), (int(lift(n).__index__()),))


class MatrixMaker:
    """``Matrix([[...], ...])`` and its makers."""

    field = staticmethod(matrix_field)
    ndarray = staticmethod(matrix_field)

    def __new__(cls, rows: Any, dtype: Any = None) -> Any:
        value = matrix(rows)
        return value.cast(dtype) if dtype is not None else value

    @staticmethod
    def zero(dtype: Type, n: int, m: int) -> Matrix:
        rows, columns = int(lift(n).__index__()), int(lift(m).__index__())
        return Matrix([dtype(0)] * (rows * columns), (rows, columns))

    @staticmethod
    def identity(dtype: Type, n: int) -> Matrix:
        size = int(lift(n).__index__())
        items = [dtype(1 if i == j else 0) for i in range(size) for j in range(size)]
        return Matrix(items, (size, size))


class Types:
    """``qd.types``."""

    @staticmethod
    def ndarray(*given: Any, **named: Any) -> NdarrayType:
        return NdarrayType(*given, **named)

    @staticmethod
    def struct(**members: Any) -> StructType:
        return StructType(members, {})

    @staticmethod
    def vector(n: int, dtype: Type) -> MatrixType:
        return MatrixType((n,), dtype)

    @staticmethod
    def matrix(n: int, m: int, dtype: Type) -> MatrixType:
        return MatrixType((n, m), dtype)

    quant = QuantTypes


def _elementwise(fn: Callable[[Any], Num]) -> Callable[[Any], Any]:
    return lambda x: x.map(fn) if isinstance(x, Matrix) else fn(x)


def _smooth(name: str) -> Callable[[Any], Any]:
    return _elementwise(lambda x: functions.smooth(name, x))


def _rounding(name: str) -> Callable[..., Any]:
    by_element = _elementwise(lambda x: functions.rounding(name, x))
    return lambda x, dtype=None: by_element(x) if dtype is None else cast(by_element(x), dtype)


def cast(value: Any, dtype: Any) -> Any:
    wanted = {float: Defaults.floating, int: Defaults.integer}
    return wanted.get(dtype, dtype)(value) if dtype in (int, float) else dtype(value)


def _power(x: Any, y: Any) -> Any:
    return broadcast(lambda a, b: binary("**", a, b), x, y)


def _builtin_round(x: Any) -> Any:
    """Python's ``round``, which gives an integer."""
    return cast(functions.rounding("round_even", x), int)


class Math:
    """``qd.math``."""

    @staticmethod
    def clamp(x: Any, low: Any, high: Any) -> Any:
        return fold("min", [fold("max", [x, low]), high])

    @staticmethod
    def mix(x: Any, y: Any, a: Any) -> Any:
        with inexact():
            return x * (1.0 - a) + y * a

    @staticmethod
    def fract(x: Any) -> Any:
        return x - _rounding("floor")(x)


class Layouts:
    """``qd.Layout``."""

    AOS, SOA = 1, 2


class Namespace:
    """``qd`` as a program sees it, with the types of the run's literals."""

    def __init__(self) -> None:
        for name, dtype in TYPES.items():
            setattr(self, name, dtype)
        for name in functions.SMOOTH:
            setattr(self, name, _smooth(name))
        for name in functions.ROUNDINGS:
            setattr(self, name, _rounding(name))
        for axis, letter in enumerate("ijkl"):
            setattr(self, letter, axis)
        self.ij, self.ji, self.ijk = (0, 1), (1, 0), (0, 1, 2)
        self.types = Types
        self.root = sparse_fields.Node()

    field = staticmethod(field)
    ndarray = staticmethod(field)
    BufferView = View

    @staticmethod
    def from_dlpack(array: Array) -> Array:
        """The same memory: the array itself, since neither name has a gradient."""
        return array

    BitpackedFields = BitpackedFields
    activate = staticmethod(sparse_fields.activate)
    deactivate = staticmethod(sparse_fields.deactivate)
    is_active = staticmethod(sparse_fields.is_active)
    Vector = Vector
    Matrix = MatrixMaker
    template = Template
    kernel = Kernel
    static = staticmethod(rewritten_code_support.static)
    math = Math
    Layout = Layouts
    stop_grad = staticmethod(_elementwise(functions.stop_grad))
    ndrange = rewritten_code_support.NdRange
    grouped = staticmethod(rewritten_code_support.grouped)
    cast = staticmethod(cast)
    random = staticmethod(functions.random)
    pow = staticmethod(_power)
    bit_cast = staticmethod(functions.bit_cast)
    popcnt = staticmethod(functions.popcount)
    clz = staticmethod(functions.clz)

    solve = staticmethod(linear_algebra.solve)
    polar_decompose = staticmethod(linear_algebra.polar_decompose)
    svd = staticmethod(linear_algebra.svd)
    sym_eig = staticmethod(linear_algebra.sym_eig)
    make_spd = staticmethod(linear_algebra.make_spd)

    simt = blocks.Simt
    dataclass = staticmethod(from_class)

    @staticmethod
    def func(function: Any) -> Any:
        """Let a function have an adjoint, which must be the derivative that is found here."""
        function.adjoint = lambda adjoint: adjoint
        return function

    real_func = pyfunc = func

    @staticmethod
    def data_oriented(one: type) -> type:
        return one

    @staticmethod
    def loop_config(**_: Any) -> None:
        """Steers other implementations."""

    @staticmethod
    def min(*values: Any) -> Any:
        return fold("min", values)

    @staticmethod
    def max(*values: Any) -> Any:
        return fold("max", values)

    @staticmethod
    def abs(x: Any) -> Any:
        return _elementwise(functions.absolute)(x)

    @staticmethod
    def sign(x: Any) -> Any:
        return _elementwise(functions.sign)(x)

    @staticmethod
    def atan2(y: Any, x: Any) -> Any:
        return broadcast(functions.atan2, y, x)


BUILTINS: dict[str, Any] = {
    "range": rewritten_code_support.Range,
    "min": Namespace.min,
    "max": Namespace.max,
    "abs": Namespace.abs,
    "round": _builtin_round,
    "pow": _power,
    "int": lambda x: cast(x, int),
    "float": lambda x: cast(x, float),
    "_o": rewritten_code_support,
    "_blocks": blocks,
}
