"""Annotations of the parameters of kernels, besides scalar, vector and struct types."""

from __future__ import annotations

import typing
from collections.abc import Mapping
from types import FunctionType
from typing import TYPE_CHECKING, Any, Literal

from octants.diagnostics.launch_errors import WrongAnnotationOption
from octants.diagnostics.user_frames import user_span
from octants.internal_members import internal
from octants.types.default_types import resolve
from octants.types.scalars import DType, i32


class Template:
    """The annotation of an argument that is known at compile time: ``x: qd.template()``.

    The kernel is compiled for each value: a field, a function, a number or any other Python object.
    The class itself serves as the annotation, too.

    Example::

        @qd.kernel
        def copy(a: qd.template(), b: qd.template()):
            for i in a:
                b[i] = a[i]

        copy(qd.field(qd.f32, 10), qd.field(qd.f32, 10))

    Args:
        element_type: the dtype that a field or an ndarray must have; another one is an error.
        ndim: the number of axes that it must have.
    """

    def __init__(self, element_type: Any = None, ndim: int | None = None) -> None:
        self.element_type = element_type
        self.ndim = ndim

    def __class_getitem__(cls, item: Any) -> Template:
        return cls(item)

    def __repr__(self) -> str:
        return "template()"


template = Template


class Reference(Template):
    """The result of `ref`; `dtype` is the type of the variable, as it was given."""

    def __init__(self, dtype: Any) -> None:
        super().__init__()
        self.dtype = dtype

    def __repr__(self) -> str:
        return f"ref({self.dtype})"


def ref(tp: Any) -> Template:
    """The annotation of a func's parameter that stands for a variable or element of the caller.

    ``def add(total: qd.ref(qd.f32), x: qd.f32)`` may assign `total`; what is assigned is converted
    to the type that the caller's variable has.

    Args:
        tp: the scalar type of the variable, for the reader.

    Raises:
        TypeError: `tp` is no scalar type.
    """
    resolve(tp)
    return Reference(tp)


if TYPE_CHECKING:
    CompileTime = Any
else:
    CompileTime = Template
"""`Template` in the library's own functions, whose parameters have types of all sorts."""


BOUNDARIES = ("unsafe", "clamp")


class NdarrayAnnotation:
    """The annotation of an array argument: ``x: qd.types.ndarray(dtype=qd.f32, ndim=1)``.

    What is left out is taken from the argument, and the kernel compiled for it. The class itself
    serves as an annotation that leaves out everything, and ``ndarray[qd.f32, 1]`` is short for
    ``ndarray(qd.f32, 1)``; type checkers understand ``NDArray[qd.f32, Literal[1]]``, which is the
    same.

    Example::

        @qd.kernel
        def add(a: qd.types.ndarray(qd.f32, 1), b: qd.types.ndarray(ndim=1)):
            for i in a:
                a[i] += b[i]

    Args:
        dtype: a scalar type, or a vector or matrix type for arrays of those.
        ndim: the number of axes, without those of the element.
        element_dim: the number of axes of an element: 0, 1 or 2.
        element_shape: the shape of an element, such as (3,) or (2, 2).
        field_dim: an older name of `ndim`.
        needs_grad: True: the argument must have a gradient; False: its gradient is not used.
        boundary: "clamp" clamps each index to the extents, so that reads and writes beyond an end
            are of the first or last element; with "unsafe" an index must be within them.

    Raises:
        OctantsSyntaxError: `boundary` is neither, or `ndim` no number of axes.
    """

    def __init__(
        self,
        dtype: Any = None,
        ndim: int | None = None,
        element_dim: int | None = None,
        element_shape: tuple[int, ...] | None = None,
        field_dim: int | None = None,
        needs_grad: bool | None = None,
        boundary: str = "unsafe",
    ) -> None:
        if boundary not in BOUNDARIES:
            choices = ", ".join(f'"{each}"' for each in BOUNDARIES)
            raise WrongAnnotationOption("boundary", repr(boundary), choices).at(user_span())
        self._dtype = dtype
        self.element_shape = _element_shape(dtype, element_shape)
        self.ndim = _rank(ndim if ndim is not None else field_dim)
        self.element_dim = element_dim
        if self.element_shape is not None:
            self.element_dim = len(self.element_shape)
        self.needs_grad = needs_grad
        self.boundary = boundary

    @property
    def dtype(self) -> DType | None:
        """The scalar type of the elements, if it is stated."""
        if self._dtype is None or not getattr(self._dtype, "has_dtype", True):
            return None
        is_type = isinstance(self._dtype, type)  # as those of numpy, whose `dtype` is no type
        return resolve(self._dtype if is_type else getattr(self._dtype, "dtype", self._dtype))

    def __class_getitem__(cls, item: Any) -> NdarrayAnnotation:
        items = item if isinstance(item, tuple) else (item,)
        return cls(*map(_plain, items))

    def __or__(self, other: Any) -> OptionalTensor:
        """The annotation of an argument that may be None."""
        return NotImplemented if other is not None else OptionalTensor(self)

    __ror__ = __or__

    def __repr__(self) -> str:
        parts = [] if self.dtype is None else [f"dtype={self.dtype}"]
        if self.element_shape:
            parts.append(f"element_shape={self.element_shape}")
        if self.ndim is not None:
            parts.append(f"ndim={self.ndim}")
        if self.needs_grad is not None:
            parts.append(f"needs_grad={self.needs_grad}")
        if self.boundary != BOUNDARIES[0]:
            parts.append(f'boundary="{self.boundary}"')
        return f"ndarray({', '.join(parts)})"


def _plain(item: Any) -> Any:
    """The value of ``Literal[2]``, which type checkers need for a number; None for ``Any``."""
    if item is Any:
        return None
    return typing.get_args(item)[0] if typing.get_origin(item) is Literal else item


class SparseMatrixBuilderAnnotation:
    """The annotation of a builder of sparse matrices: ``A: qd.types.sparse_matrix_builder()``.

    The kernel adds entries to it by ``A[i, j] += value``; see `linalg.SparseMatrixBuilder`.
    """

    @property
    @internal
    def members(self) -> Mapping[str, NdarrayAnnotation]:
        """The arrays of a builder: where its entries are, and how many there are."""
        number, one = NdarrayAnnotation(ndim=1), NdarrayAnnotation(i32, 1)
        return {"rows": one, "columns": one, "values": number, "count": one}


class AnyBufferView:
    """The annotation ``qd.BufferView``: a part of an ndarray, with elements of any type."""


class BufferViewAnnotation:
    """The annotation ``qd.BufferView[qd.f32]``: a part of an ndarray with one axis.

    `dtype` is the type of the elements; without it, views of all arrays fit.
    """

    def __init__(self, dtype: Any = None) -> None:
        self.array = NdarrayAnnotation(dtype, ndim=1)

    @property
    def members(self) -> Mapping[str, Any]:
        """The array, where the view begins in it, and how many elements it has."""
        return {"array": self.array, "offset": i32, "size": i32}

    def __repr__(self) -> str:
        return f"BufferView[{self.array.dtype}]"


class AnyTensor:
    """The annotation ``qd.Tensor``: an ndarray or a field, whichever is given."""


class OptionalTensor(AnyTensor):
    """The annotation ``qd.Tensor | None`` or ``qd.types.ndarray() | None``.

    None is known at compile time: ``if qd.static(x is not None)``.

    Args:
        given: the annotation of an argument that is not None.
    """

    def __init__(self, given: NdarrayAnnotation | AnyTensor) -> None:
        self.given = given

    def __repr__(self) -> str:
        return f"{self.given} | None"


def _element_shape(dtype: Any, given: tuple[int, ...] | None) -> tuple[int, ...] | None:
    """The shape of an element of what `NdarrayAnnotation` was given; None where it is open."""
    if given is not None or dtype is None:
        return None if given is None else tuple(given)
    shape = getattr(dtype, "element_shape", None)
    if shape is None:
        resolve(dtype)
    return tuple(shape or ())


def _rank(ndim: Any) -> int | None:
    """The number of axes that an annotation states."""
    if ndim is None:
        return None
    if not hasattr(ndim, "__index__") or ndim.__index__() < 0:
        raise WrongAnnotationOption("ndim", repr(ndim), "0, 1, 2, ...").at(user_span())
    return int(ndim.__index__())


def resolve_annotation(function: FunctionType, annotation: Any) -> Any:
    """An annotation as an object; a string that means nothing stays one."""
    names = function.__code__.co_freevars
    cells = dict(zip(names, function.__closure__ or (), strict=True))
    while isinstance(annotation, str):
        try:
            enclosing = {name: cell.cell_contents for name, cell in cells.items()}
            annotation = eval(annotation, function.__globals__, enclosing)
        except Exception:
            break
    return annotation
