"""Tensors: fields or ndarrays, chosen by ``backend``."""

from __future__ import annotations

import enum
from abc import ABCMeta
from typing import Any, ClassVar

from octants.data.array_base import Tensor, require_kind
from octants.data.axes import LETTERS, check_shape, is_integer
from octants.data.errors import WrongArrayOption, describe
from octants.data.field_factories import make_field
from octants.data.ndarray import make_ndarray


class Backend(enum.IntEnum):
    """The kinds of arrays that `tensor` makes."""

    FIELD = 0
    NDARRAY = 1


class _ByElementRank(ABCMeta):
    """Lets `isinstance` tell tensors by the number of axes of their elements."""

    def __call__(cls, impl: Any) -> Any:
        """The field or ndarray itself; an error if its elements are others."""
        rank: int = getattr(cls, "_element_rank", 0)
        needed = f"a field or an ndarray of {('numbers', 'vectors', 'matrices')[rank]}"
        require_kind(cls.__name__, impl, cls, needed)
        return impl

    def __instancecheck__(cls, instance: Any) -> bool:
        rank = getattr(cls, "_element_rank", None)
        return isinstance(instance, Tensor) and len(instance.element_shape) == rank


class VectorTensor(metaclass=_ByElementRank):
    """The type of all fields and ndarrays of vectors, for `isinstance`."""

    _element_rank: ClassVar[int] = 1


class MatrixTensor(metaclass=_ByElementRank):
    """The type of all fields and ndarrays of matrices, for `isinstance`."""

    _element_rank: ClassVar[int] = 2


def tensor(
    dtype: Any,
    shape: Any,
    *,
    backend: Backend = Backend.NDARRAY,
    layout: tuple[int, ...] | None = None,
    needs_grad: bool = False,
    needs_dual: bool = False,
    device: int | None = None,
) -> Any:
    """A field or an ndarray, by `backend`; parameters ``x: qd.Tensor`` take both.

    Args:
        dtype: a scalar, vector or matrix type.
        shape: an integer or a tuple of integers.
        backend: ``Backend.NDARRAY`` or ``Backend.FIELD``.
        layout: the axes from the outermost in memory to the innermost: (1, 0) is column-major. An
            array in another order than row-major is a field whatever the backend.
        needs_grad: allocate `x.grad`, of the same shape; needs a floating-point type.
        needs_dual: allocate `x.dual`, likewise.
        device: the number of the GPU, where there are several; by default that of `init`.

    Raises:
        OctantsRuntimeTypeError: for a wrong dtype.
        OctantsValueError: for a wrong shape, backend, layout or device.
    """
    options: dict[str, Any] = {"device": device}
    options |= {"needs_grad": needs_grad, "needs_dual": needs_dual}
    return make_tensor(dtype, shape, backend=backend, layout=layout, **options)


def make_tensor(
    dtype: Any,
    shape: Any,
    *,
    element_shape: tuple[int, ...] | None = None,
    backend: Any = Backend.NDARRAY,
    layout: Any = None,
    **options: Any,
) -> Any:
    """A tensor of scalars, vectors or matrices; see `tensor`."""
    _check_options(options)
    if not isinstance(backend, Backend):
        advice = "it is `qd.Backend.FIELD` or `qd.Backend.NDARRAY`"
        raise WrongArrayOption("tensor", "backend", f"cannot be {describe(backend)}", advice).at()
    extents = check_shape("tensor", shape, least=1 if backend is Backend.FIELD else 0)
    order = _check_permutation(layout, len(extents))
    if backend is Backend.NDARRAY and order == tuple(range(len(extents))):
        made: Tensor = make_ndarray(dtype, extents, element_shape=element_shape, **options)
    else:
        letters = "".join(LETTERS[axis] for axis in order)
        made = make_field(dtype, extents, element_shape=element_shape, order=letters, **options)
    made.layout = None if layout is None else order
    return made


def _check_options(options: dict[str, Any]) -> None:
    for name in options:
        if name not in ("needs_grad", "needs_dual", "device"):
            advice = "use `layout=(1, 0)`" if name == "order" else ""
            raise WrongArrayOption("tensor", name, "is not an option of it", advice).at()


def _check_permutation(layout: Any, rank: int) -> tuple[int, ...]:
    if layout is None:
        return tuple(range(rank))
    fits = isinstance(layout, (tuple, list)) and all(map(is_integer, layout))
    if not fits or sorted(layout) != list(range(rank)):
        problem = f"cannot be {describe(layout)} for {rank} axes"
        advice = f"give each of the numbers 0 to {rank - 1} once"
        raise WrongArrayOption("tensor", "layout", problem, advice).at()
    return tuple(int(axis) for axis in layout)
