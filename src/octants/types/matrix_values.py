"""Vectors and matrices on the host: ``qd.Vector([1, 2, 3])`` outside of kernels."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from octants.internal_members import internal
from octants.types import array_factory_hooks
from octants.types.default_types import resolve
from octants.types.enums import Layout
from octants.types.matrix_to_numpy import (
    Array,
    convert,
    declared_type,
    fail,
    require_fit,
    to_array,
)
from octants.types.scalars import DType
from octants.types.swizzles import positions

if TYPE_CHECKING:
    from typing_extensions import Self


class Matrix:
    """A small vector or matrix of numbers: a value in kernels, backed by numpy on the host.

    Operators and functions work by element, ``@`` is the product of linear algebra. Elements are
    read and written by ``m[i, j]``, ``v[i]``, slices, and ``v.x``, ``v.zyx``; a vector has up to
    four named components. Example::

        rotation = qd.Matrix([[0.0, -1.0], [1.0, 0.0]])
        v = rotation @ qd.Vector([2.0, 0.0])
        print(v.y, v.norm())

    Args:
        arr: nested lists or a numpy array: ``[[1, 2], [3, 4]]`` is a matrix, a list of numbers a
            vector, a list of vectors a matrix of these rows.
        dt: the type of the elements; without it they are Python numbers, which have the default
            types in a kernel.
    """

    __slots__ = ("_array", "_declared")
    __array_priority__ = 1000.0

    _array: Array
    _declared: DType | None

    def __init__(self, arr: Any, dt: Any = None) -> None:
        self._set(to_array(type(self).__name__, arr, dt), declared_type(arr, dt))

    @classmethod
    @internal
    def of(cls, array: Array, declared: DType) -> Any:
        """The value of an array of its shape and type, which it keeps."""
        made = cls.__new__(cls)
        made._set(array, declared)
        return made

    def _set(self, array: Array, declared: DType | None) -> None:
        object.__setattr__(self, "_array", array)
        object.__setattr__(self, "_declared", declared)

    # -- shape and type -------------------------------------------------------------------------

    @property
    def shape(self) -> tuple[int, ...]:
        """(n,) of a vector, (n, m) of a matrix."""
        return tuple(self._array.shape)

    @property
    def n(self) -> int:
        """The number of rows, or of a vector's elements."""
        return int(self._array.shape[0])

    @property
    def m(self) -> int:
        """The number of columns; 1 for a vector."""
        return int(self._array.shape[1]) if self._array.ndim == 2 else 1

    @property
    def ndim(self) -> int:
        """1 for a vector, 2 for a matrix."""
        return int(self._array.ndim)

    @property
    def entries(self) -> Array:
        """The elements as a numpy array, a copy."""
        return self.to_numpy()

    @property
    @internal
    def declared_dtype(self) -> DType | None:
        """The type of the elements where it was stated; None for Python numbers."""
        return self._declared

    def get_shape(self) -> tuple[int, ...]:
        """(n,) of a vector, (n, m) of a matrix."""
        return self.shape

    def __len__(self) -> int:
        return self.n

    # -- elements -------------------------------------------------------------------------------

    def __getitem__(self, index: Any) -> Any:
        array = self._array
        if type(index) is int and array.ndim == 1:
            return array.item(index)
        return _wrap(array[index], self._declared)

    def __setitem__(self, index: Any, value: Any) -> None:
        declared = self._declared
        if declared is not None and declared.is_integer:
            require_fit(type(self).__name__, (value,), declared)
        self._array[index] = _plain(value)

    def __getattr__(self, name: str) -> Any:
        chosen = self._components(name)
        return self[chosen[0]] if len(chosen) == 1 else self[list(chosen)]

    def __setattr__(self, name: str, value: Any) -> None:
        chosen = self._components(name)
        is_number = len(chosen) == 1 and isinstance(value, (int, float))
        self[chosen[0] if is_number else list(chosen)] = value

    def _components(self, name: str) -> tuple[int, ...]:
        chosen = positions(name)
        if chosen is None or self._array.ndim != 1 or max(chosen) >= self.n:
            kind = "vector" if self._array.ndim == 1 else "matrix"
            raise AttributeError(f"a {kind} of shape {self.shape} has no attribute `{name}`")
        return chosen

    def __iter__(self) -> Iterator[Any]:
        return (self[k] for k in range(self.n))

    def to_numpy(self) -> Array:
        """A copy as a numpy array of the same shape."""
        return np.array(self._array)

    def to_list(self) -> list[Any]:
        """Nested lists of Python numbers."""
        return list(self._array.tolist())

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Array:
        if dtype is None or self._array.dtype == dtype:
            return self._array.copy() if copy or copy is None else self._array
        converted: Array = self._array.astype(dtype)
        return converted

    def fill(self, val: Any) -> None:
        """Set all elements."""
        self._array[...] = val

    def cast(self, dtype: Any) -> Matrix:
        """The same elements, converted to another type."""
        target = resolve(dtype)
        converted: Matrix = _wrap(convert(self._array, target), target)
        return converted

    # -- reductions -----------------------------------------------------------------------------

    def sum(self) -> Any:
        """The sum of all elements."""
        return self._array.sum().item()

    def max(self) -> Any:
        """The greatest element."""
        return self._array.max().item()

    def min(self) -> Any:
        """The least element."""
        return self._array.min().item()

    def any(self) -> bool:
        """Whether some element is not 0."""
        return bool(self._array.any())

    def all(self) -> bool:
        """Whether no element is 0."""
        return bool(self._array.all())

    def trace(self) -> Any:
        """The sum of the diagonal of a square matrix."""
        self._require(self._is_square, "trace() is for square matrices")
        return self._array.trace().item()

    def norm_sqr(self) -> Any:
        """The sum of the squares of all elements."""
        return (self._array * self._array).sum().item()

    def norm(self, eps: float = 0) -> float:
        """The square root of ``norm_sqr() + eps``."""
        return float(np.sqrt(self.norm_sqr() + eps))

    def norm_inv(self, eps: float = 0) -> float:
        """One over ``norm(eps)``."""
        with np.errstate(divide="ignore"):
            return float(1.0 / np.float64(self.norm(eps)))

    def normalized(self, eps: float = 0) -> Matrix:
        """This divided by ``norm() + eps``; zeros stay zeros."""
        length = self.norm() + eps
        scale = 1.0 / length if length else 0.0
        return self._map(lambda elements: elements * scale)

    # -- linear algebra -------------------------------------------------------------------------

    @property
    def _is_square(self) -> bool:
        return self._array.ndim == 2 and self.n == self.m

    def _require(self, condition: bool, problem: str) -> None:
        if not condition:
            fail(f"a value of shape {self.shape}", problem)

    def dot(self, other: Any) -> Any:
        """The inner product of two vectors."""
        right = Matrix(other)
        self._require(self._array.ndim == 1, "dot() is for vectors; use `@` for matrices")
        self._require(right.shape == self.shape, f"dot() with shape {right.shape}")
        return self @ right

    def frobenius_inner(self, other: Any) -> Any:
        """The sum of the products of corresponding elements."""
        return (self * other).sum()

    def cross(self, other: Any) -> Any:
        """The cross product of two vectors of 3; of two vectors of 2, its third component."""
        a, b = self._array, _plain(other)
        known = self.shape in ((2,), (3,)) and b.shape == self.shape
        self._require(known, "cross() is for two vectors of 2 or of 3 elements")
        if self.n == 2:
            return (a[0] * b[1] - a[1] * b[0]).item()
        parts = [a[i] * b[j] - a[j] * b[i] for i, j in ((1, 2), (2, 0), (0, 1))]
        return _wrap(np.array(parts), self._declared)

    def outer_product(self, other: Any) -> Matrix:
        """The matrix of all products of an element of this vector and one of the other."""
        right = _plain(other)
        vectors = self._array.ndim == right.ndim == 1
        self._require(vectors, "outer_product() is for two vectors")
        product: Matrix = _wrap(np.outer(self._array, right), self._declared)
        return product

    def transpose(self) -> Matrix:
        """The matrix with rows and columns exchanged."""
        self._require(self._array.ndim == 2, "transpose() is for matrices; see outer_product()")
        flipped: Matrix = _wrap(self._array.T.copy(), self._declared)
        return flipped

    def determinant(self) -> float:
        """The determinant of a square matrix; in kernels, of up to 4 rows."""
        self._require(self._is_square, "determinant() is for square matrices")
        return _determinant(self._array.astype(np.float64))

    def inverse(self) -> Matrix:
        """The inverse of a square matrix; in kernels, of up to 4 rows."""
        self._require(self._is_square, "inverse() is for square matrices")
        inverse = _inverse(self._array.astype(np.float64))
        if self._array.dtype.kind == "f":
            inverse = inverse.astype(self._array.dtype)
        result: Matrix = _wrap(inverse, self._declared)
        return result

    # -- construction ---------------------------------------------------------------------------

    @staticmethod
    def zero(dt: Any, n: int, m: int | None = None) -> Matrix:
        """Zeros of type `dt`: a vector of `n` elements, or an `n` by `m` matrix."""
        return _filled(0, dt, n, m)

    @staticmethod
    def one(dt: Any, n: int, m: int | None = None) -> Matrix:
        """Ones of type `dt`: a vector of `n` elements, or an `n` by `m` matrix."""
        return _filled(1, dt, n, m)

    @staticmethod
    def unit(n: int, i: int, dt: Any = None) -> Matrix:
        """The vector of `n` elements of type `dt` that are 0, but for element `i`, which is 1."""
        return Vector([int(k == i) for k in range(n)], dt)

    @staticmethod
    def identity(dt: Any, n: int) -> Matrix:
        """The `n` by `n` identity matrix of type `dt`."""
        return Matrix(np.eye(n, dtype=np.int64), dt)

    @staticmethod
    def diag(dim: int, val: Any) -> Matrix:
        """The square matrix of `dim` rows with `val` on its diagonal and 0 elsewhere."""
        return Matrix([[val if i == j else 0 for j in range(dim)] for i in range(dim)])

    @staticmethod
    def rows(rows: Sequence[Any]) -> Matrix:
        """The matrix with these vectors or lists as rows."""
        return Matrix([list(row) for row in rows], _common_declared(rows))

    @staticmethod
    def cols(cols: Sequence[Any]) -> Matrix:
        """The matrix with these vectors or lists as columns."""
        return Matrix.rows(cols).transpose()

    # -- fields and arrays of matrices ----------------------------------------------------------

    @classmethod
    def field(
        cls,
        n: int,
        m: int,
        dtype: Any,
        shape: Any = None,
        order: str | None = None,
        name: str = "",
        offset: Any = None,
        needs_grad: bool = False,
        needs_dual: bool = False,
        layout: Layout = Layout.AOS,
        ndim: int | None = None,
        device: int | None = None,
    ) -> Any:
        """A field of `n` by `m` matrices; see `octants.field` for the other arguments.

        Args:
            n: the number of rows.
            m: the number of columns.
            layout: whether the components of an element stand together (``Layout.AOS``), or each in
                an array of its own (``Layout.SOA``).
            ndim: 1 makes a matrix of one column a vector.
        """
        return array_factory_hooks.make(
            "field",
            dtype,
            shape,
            element_shape=(n, m),
            order=order,
            name=name,
            offset=offset,
            needs_grad=needs_grad,
            needs_dual=needs_dual,
            layout=layout,
            ndim=ndim,
            device=device,
        )

    @classmethod
    def ndarray(
        cls, n: int, m: int, dtype: Any, shape: Any, needs_grad: bool = False, **options: Any
    ) -> Any:
        """An array of `n` by `m` matrices; see `octants.ndarray` for the other arguments.

        Args:
            n: the number of rows.
            m: the number of columns.
        """
        return array_factory_hooks.make(
            "ndarray", dtype, shape, element_shape=(n, m), needs_grad=needs_grad, **options
        )

    @classmethod
    def tensor(cls, n: int, m: int, dtype: Any, shape: Any, **options: Any) -> Any:
        """A field or an array of `n` by `m` matrices, by ``backend``; see `octants.tensor`.

        Args:
            n: the number of rows.
            m: the number of columns.
        """
        return array_factory_hooks.make("tensor", dtype, shape, element_shape=(n, m), **options)

    # -- Python's protocols ---------------------------------------------------------------------

    def __str__(self) -> str:
        return str(self._array)

    __repr__ = __str__
    __hash__ = object.__hash__

    def __reduce__(self) -> tuple[Any, ...]:
        return _rebuild, (type(self), self._array, self._declared)

    def __copy__(self) -> Matrix:
        return _rebuild(type(self), self._array.copy(), self._declared)

    def __deepcopy__(self, memo: object) -> Matrix:
        return self.__copy__()

    def __bool__(self) -> bool:
        self._require(self._array.size == 1, "it is neither true nor false; use .any() or .all()")
        return bool(self._array)

    if TYPE_CHECKING:  # `_install_operators` makes them

        def __add__(self, other: Any) -> Self: ...
        def __radd__(self, other: Any) -> Self: ...
        def __sub__(self, other: Any) -> Self: ...
        def __rsub__(self, other: Any) -> Self: ...
        def __mul__(self, other: Any) -> Self: ...
        def __rmul__(self, other: Any) -> Self: ...
        def __truediv__(self, other: Any) -> Self: ...
        def __rtruediv__(self, other: Any) -> Self: ...
        def __floordiv__(self, other: Any) -> Self: ...
        def __rfloordiv__(self, other: Any) -> Self: ...
        def __mod__(self, other: Any) -> Self: ...
        def __rmod__(self, other: Any) -> Self: ...
        def __pow__(self, other: Any) -> Self: ...
        def __rpow__(self, other: Any) -> Self: ...
        def __lt__(self, other: Any) -> Self: ...
        def __le__(self, other: Any) -> Self: ...
        def __gt__(self, other: Any) -> Self: ...
        def __ge__(self, other: Any) -> Self: ...

    def __matmul__(self, other: Any) -> Any:
        return _matmul(self, other)

    def __rmatmul__(self, other: Any) -> Any:
        return _matmul(other, self)

    def __neg__(self) -> Matrix:
        return self._map(operator.neg)

    def __pos__(self) -> Matrix:
        return self._map(operator.pos)

    def __abs__(self) -> Matrix:
        return self._map(operator.abs)

    def __invert__(self) -> Matrix:
        return self._map(operator.invert)

    def _map(self, function: Callable[[Any], Any]) -> Matrix:
        result: Matrix = _wrap(function(self._array), self._declared)
        return result


class Vector(Matrix):
    """A vector: ``Vector([1, 2, 3])``, with the methods of `Matrix`.

    In a kernel the elements may be run-time values; their common type is that of the vector.

    Args:
        arr: a list of numbers, or a numpy array of one axis.
        dt: the type of the elements, as for `Matrix`.

    Raises:
        OctantsRuntimeTypeError: the elements are not numbers along one axis.
    """

    __slots__ = ()

    def __init__(self, arr: Any, dt: Any = None) -> None:
        super().__init__(arr, dt)
        if self._array.ndim != 1:
            fail("Vector", f"the elements have shape {self.shape}; use Matrix, rows() or cols()")

    # A field of vectors has one extent where one of matrices has two.

    @classmethod
    def field(  # type: ignore[override]
        cls,
        n: int,
        dtype: Any,
        shape: Any = None,
        order: str | None = None,
        name: str = "",
        offset: Any = None,
        needs_grad: bool = False,
        needs_dual: bool = False,
        layout: Layout = Layout.AOS,
        device: int | None = None,
    ) -> Any:
        """A field of vectors of `n` elements; see `octants.field` for the other arguments.

        Example::

            velocity = qd.Vector.field(3, qd.f32, shape=100, needs_grad=True)
            velocity[0] = [1.0, 0.0, 0.0]

        Args:
            n: the number of elements of a vector.
            layout: as for `Matrix.field`.
        """
        return array_factory_hooks.make(
            "field",
            dtype,
            shape,
            element_shape=(n,),
            order=order,
            name=name,
            offset=offset,
            needs_grad=needs_grad,
            needs_dual=needs_dual,
            layout=layout,
            device=device,
        )

    @classmethod
    def ndarray(  # type: ignore[override]
        cls, n: int, dtype: Any, shape: Any, needs_grad: bool = False, **options: Any
    ) -> Any:
        """An array of vectors of `n` elements; see `octants.ndarray` for the other arguments.

        Args:
            n: the number of elements of a vector.
        """
        return array_factory_hooks.make(
            "ndarray", dtype, shape, element_shape=(n,), needs_grad=needs_grad, **options
        )

    @classmethod
    def tensor(cls, n: int, dtype: Any, shape: Any, **options: Any) -> Any:  # type: ignore[override]
        """A field or an array of vectors of `n` elements, by ``backend``; see `octants.tensor`."""
        return array_factory_hooks.make("tensor", dtype, shape, element_shape=(n,), **options)


def _common_declared(parts: Sequence[Any]) -> DType | None:
    declared = {getattr(part, "declared_dtype", None) for part in parts}
    return declared.pop() if len(declared) == 1 else None


def _filled(number: int, dt: Any, n: int, m: int | None) -> Matrix:
    shape = (n,) if m is None else (n, m)
    cls = Vector if m is None else Matrix
    return cls(np.full(shape, number), dt)


def _rebuild(cls: type[Matrix], array: Array, declared: DType | None) -> Matrix:
    value = cls.__new__(cls)
    value._set(array, declared)
    return value


def _plain(value: Any) -> Any:
    return value._array if isinstance(value, Matrix) else np.asarray(value)


def _wrap(result: Any, declared: DType | None = None) -> Any:
    """Numpy's result as ours: a Python number, a `Vector` or a `Matrix`."""
    if np.ndim(result) == 0:
        return result.item() if hasattr(result, "item") else result
    if declared is not None and result.dtype != declared.numpy:
        declared = None
    return _rebuild(Vector if result.ndim == 1 else Matrix, result, declared)


# -- operators -------------------------------------------------------------------------------------


def _matmul(lhs: Any, rhs: Any) -> Any:
    a, b = _plain(lhs), _plain(rhs)
    if a.ndim == 0 or b.ndim == 0 or a.shape[-1] != b.shape[0]:
        fail("`@`", f"the shapes {a.shape} and {b.shape} do not match")
    return _wrap(a @ b, getattr(lhs, "declared_dtype", None))


def map_elements(function: Callable[..., Any], *operands: Any) -> Any:
    """``function`` of numpy arrays, element by element, on numbers and matrices of one shape."""
    matrices = [operand for operand in operands if isinstance(operand, Matrix)]
    if not matrices:
        result = function(*operands)
        is_scalar = np.ndim(result) == 0 and hasattr(result, "item")
        return result.item() if is_scalar else result
    # A Python number does not widen a declared type; an array would.
    plain = [x if np.ndim(x) == 0 else _plain(x) for x in operands]
    shapes = sorted({np.shape(x) for x in plain if np.ndim(x)})
    if len(shapes) > 1:
        name = getattr(function, "__name__", "operator").lstrip("_")
        fail(f"`{name}`", f"the shapes {shapes[0]} and {shapes[1]} do not match")
    declared = next((m.declared_dtype for m in matrices if m.declared_dtype is not None), None)
    with np.errstate(all="ignore"):
        return _wrap(function(*plain), declared)


def _map_two(function: Callable[..., Any], a: Any, b: Any) -> Any:
    """`map_elements` of two operands, of which most are matrices of one shape."""
    if isinstance(a, Matrix) and isinstance(b, Matrix) and a._array.shape == b._array.shape:
        declared = b._declared if a._declared is None else a._declared
        with np.errstate(all="ignore"):
            return _wrap(function(a._array, b._array), declared)
    return map_elements(function, a, b)


def _install_operators() -> None:
    symbols = "add sub mul truediv floordiv mod pow and_ or_ xor lshift rshift".split()
    for name in [*symbols, "lt", "le", "gt", "ge", "eq", "ne"]:
        function, dunder = getattr(operator, name), name.rstrip("_")
        setattr(Matrix, f"__{dunder}__", lambda a, b, f=function: _map_two(f, a, b))
        if name in symbols:
            setattr(Matrix, f"__r{dunder}__", lambda a, b, f=function: _map_two(f, b, a))


_install_operators()


def _determinant(values: Array) -> float:
    """By minors, as in kernels, up to 4 rows: the determinant of small integers is exact."""
    if len(values) > 4:
        return float(np.linalg.det(values))
    return sum(float(values[0, k]) * _cofactor(values, 0, k) for k in range(len(values)))


def _cofactor(values: Array, row: int, column: int) -> float:
    minor = np.delete(np.delete(values, row, 0), column, 1)
    return (-1.0) ** (row + column) * (_determinant(minor) if minor.size else 1.0)


def _inverse(values: Array) -> Array:
    determinant, rows = _determinant(values), range(len(values))
    if len(values) > 4 or not determinant:
        inverse: Array = np.linalg.inv(values)
        return inverse
    return np.array([[_cofactor(values, i, k) / determinant for i in rows] for k in rows])
