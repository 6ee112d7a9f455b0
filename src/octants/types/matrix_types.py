"""The types of vectors and matrices: ``types.vector(3, f32)``, ``types.matrix(2, 2, f32)``."""

from __future__ import annotations

from typing import Any

import numpy as np

from octants.diagnostics.library_errors import MissingElementType, WrongHostValue
from octants.internal_members import internal
from octants.types import array_factory_hooks
from octants.types.default_types import resolve, uint
from octants.types.matrix_to_numpy import require_fit
from octants.types.matrix_values import Matrix, Vector
from octants.types.scalars import DType


class MatrixType:
    """The type of n by m matrices; called, it makes one, on the host and in kernels.

    It takes n * m numbers row by row, rows, one matrix, or one number for all elements; vectors
    and numbers may be mixed: ``vec4(v.xyz, 1.0)``. As an annotation it is the type of an argument
    or a return value, as a dtype that of the elements of a field or an array.

    Args:
        n: the number of rows.
        m: the number of columns.
        dtype: the scalar type of an element. Without it the type is a shape only: an annotation
            with it keeps the element type of what it is given.
    """

    ndim = 2

    def __init__(self, n: int, m: int, dtype: Any = None) -> None:
        self.n = _extent(n)
        self.m = _extent(m)
        self._dtype = dtype if dtype in (int, float, uint, None) else resolve(dtype)

    @property
    @internal
    def has_dtype(self) -> bool:
        """Whether the type of an element is stated."""
        return self._dtype is not None

    @property
    def dtype(self) -> DType:
        """The type of an element; of ``float`` and ``int`` the default of the current `init`.

        Raises:
            OctantsTypeError: the type was made without one.
        """
        if self._dtype is None:
            raise self.missing_element_type().at()
        return resolve(self._dtype)

    @internal
    def missing_element_type(self) -> MissingElementType:
        """The error where the type of an element is needed and not stated."""
        return MissingElementType(str(self), f"{str(self)[:-1]}, qd.f32)")

    @property
    def element_shape(self) -> tuple[int, ...]:
        """(n, m); (n,) for vectors."""
        return (self.n, self.m)

    @property
    @internal
    def declared_dtype(self) -> DType | None:
        """The scalar type of an element where it is one; None for others."""
        return self._dtype if isinstance(self._dtype, DType) else None

    @property
    @internal
    def python_dtype(self) -> Any:
        """The type of an element as it was given: ``int`` and ``float`` stay what they are."""
        return self._dtype

    def get_shape(self) -> tuple[int, ...]:
        """(n, m); (n,) for vectors."""
        return self.element_shape

    def __call__(self, *elements: Any) -> Matrix:
        """A value on the host."""
        numbers = flatten(elements)
        count = self.n * self.m
        if len(numbers) == 1 and np.ndim(elements[0]) == 0:
            numbers = numbers * count
        if len(numbers) != count:
            raise WrongHostValue(str(self), f"needs {count} numbers, not {len(numbers)}").at()
        cls = Vector if self.ndim == 1 else Matrix
        if self.has_dtype and self.dtype.is_integer:
            require_fit(self, numbers, self.dtype)
            if any(isinstance(x, float) for x in numbers):
                numbers = [self.dtype(x) for x in numbers]  # not by way of f64
        array = np.array(numbers).reshape(self.element_shape)
        return cls(array, self._dtype)

    def field(self, shape: Any = None, **options: Any) -> Any:
        """A field of such elements; see `octants.field` for the options."""
        shape_of_element = self.element_shape
        return array_factory_hooks.make(
            "field", self.dtype, shape, element_shape=shape_of_element, **options
        )

    def ndarray(self, shape: Any, **options: Any) -> Any:
        """An array of such elements; see `octants.ndarray` for the options."""
        shape_of_element = self.element_shape
        return array_factory_hooks.make(
            "ndarray", self.dtype, shape, element_shape=shape_of_element, **options
        )

    def __eq__(self, other: object) -> bool:
        return isinstance(other, MatrixType) and (self.element_shape, self._dtype) == (
            other.element_shape,
            other._dtype,
        )

    def __hash__(self) -> int:
        return hash((self.element_shape, self._dtype))

    def to_string(self) -> str:
        """The type as text: ``"matrix(2, 3, f32)"``."""
        return repr(self)

    def __repr__(self) -> str:
        return f"matrix({self.n}, {self.m}{_ending(self._dtype)})"


class VectorType(MatrixType):
    """The type of vectors of `n` elements; called, it makes one, on the host and in kernels.

    See `MatrixType` for `dtype`, and for what a call takes.
    """

    ndim = 1

    def __init__(self, n: int, dtype: Any = None) -> None:
        super().__init__(n, 1, dtype)

    @property
    def element_shape(self) -> tuple[int, ...]:
        """(n,)."""
        return (self.n,)

    def __repr__(self) -> str:
        return f"vector({self.n}{_ending(self._dtype)})"


def vector(n: int, dtype: Any = None, *, unpacked: bool = False) -> VectorType:  # noqa: ARG001
    """The type of vectors of `n` elements of the scalar type `dtype`.

    Without `dtype`, as the annotation of a function's parameter or of an array's elements, it
    checks the shape and keeps the element type. `unpacked` is accepted and ignored: vectors are
    split into scalars anyway. Example::

        vec3 = qd.types.vector(3, qd.f32)
        position = qd.field(vec3, shape=100)
        origin = vec3(0.0, 0.0, 1.0)
    """
    return VectorType(n, dtype)


def matrix(n: int, m: int, dtype: Any = None) -> MatrixType:
    """The type of matrices of `n` rows and `m` columns; see `vector` for `dtype`."""
    return MatrixType(n, m, dtype)


def flatten(elements: Any) -> list[Any]:
    """All numbers in nested sequences and matrices, in order."""
    numbers: list[Any] = []
    for element in elements:
        if isinstance(element, (list, tuple)):
            numbers.extend(flatten(element))
        elif isinstance(element, (Matrix, np.ndarray)):
            numbers.extend(np.asarray(element).ravel().tolist())
        else:
            numbers.append(element)
    return numbers


def _extent(extent: Any) -> int:
    if not hasattr(extent, "__index__") or isinstance(extent, bool) or extent < 1:
        raise WrongHostValue("vector or matrix type", f"an extent cannot be {extent!r}").at()
    return int(extent)


def _ending(dtype: Any) -> str:
    """The type of an element as the last argument of a call; "" where it is not stated."""
    if dtype is None:
        return ""
    return f", {dtype.name if isinstance(dtype, DType) else dtype.__name__}"
