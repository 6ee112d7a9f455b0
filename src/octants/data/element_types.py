"""Reads the type of the elements of an array in all its spellings."""

from __future__ import annotations

from typing import Any

from octants.data.axes import is_integer
from octants.data.errors import (
    NotDifferentiable,
    WrongArrayOption,
    WrongDtype,
    WrongElementShape,
    describe,
)
from octants.types.companions import Companion
from octants.types.default_types import resolve
from octants.types.scalars import DType

_COMPANION_WORDS = {Companion.ADJOINT: "gradient", Companion.TANGENT: "dual"}


def check_dtype(
    what: str, dtype: Any, element_shape: tuple[int, ...] | None
) -> tuple[DType, tuple[int, ...]]:
    """The scalar type and the shape of an element; a vector or matrix type gives both."""
    own_shape = getattr(dtype, "element_shape", None)
    if own_shape is not None and element_shape is None:
        return dtype.dtype, tuple(own_shape)
    single = _single(what, dtype)
    try:
        if single is None:  # which numpy takes for f64
            raise TypeError
        return resolve(single), element_shape or ()
    except TypeError:
        raise WrongDtype(what, f"{describe(dtype)} is not an element type").at() from None


def _single(what: str, dtype: Any) -> Any:
    """The type that the components of a vector share, where they are given one by one."""
    if not isinstance(dtype, (list, tuple)):
        return dtype
    kinds = {each for row in dtype for each in (row if isinstance(row, (list, tuple)) else [row])}
    if len(kinds) != 1:
        problem = f"the components of an element have one type, not {describe(dtype)}"
        raise WrongDtype(what, problem).at()
    return kinds.pop()


def check_element_shape(
    what: str, shape: tuple[int, ...], ndim: int | None = None
) -> tuple[int, ...]:
    """The shape of an element; ``ndim=1`` makes a vector of a single column."""
    if not all(is_integer(extent) and extent >= 1 for extent in shape):
        raise WrongElementShape(what, describe(shape)).at()
    if ndim is not None and ndim != len(shape):
        if ndim != 1 or len(shape) != 2 or shape[1] != 1:
            raise WrongArrayOption(what, "ndim", f"cannot be {ndim} for elements of {shape}").at()
        return (int(shape[0]),)
    return tuple(int(extent) for extent in shape)


def check_device(what: str, device: Any) -> None:
    """An error if this is not the number of a device; None stands for that of `init`."""
    if device is None or (is_integer(device) and device >= 0):
        return
    advice = "it is the number of a GPU, such as 0 or 1, as in `init(device=1)`"
    raise WrongArrayOption(what, "device", f"cannot be {describe(device)}", advice).at()


def require_differentiable(what: str, dtype: DType, needed: tuple[Companion, ...]) -> None:
    """An error if companions are asked for that the type cannot have."""
    if needed and not dtype.is_float:
        raise NotDifferentiable(what, dtype.name, _COMPANION_WORDS[needed[0]]).at()


def needed_companions(needs_grad: bool, needs_dual: bool) -> tuple[Companion, ...]:
    """The companions that `needs_grad` and `needs_dual` ask for."""
    return (Companion.ADJOINT,) * bool(needs_grad) + (Companion.TANGENT,) * bool(needs_dual)
