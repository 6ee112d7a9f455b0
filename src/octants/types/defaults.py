"""The types that Python's ``int`` and ``float`` stand for: `init` sets them."""

from __future__ import annotations

from typing import Any

from octants.types.scalars import ALL, DType, f32, from_numpy, i32, u1

_current: dict[type, DType] = {bool: u1, int: i32, float: f32}


def set_defaults(default_int: DType, default_float: DType) -> None:
    """Let ``int`` and ``float`` stand for these types from now on."""
    _current[int] = default_int
    _current[float] = default_float


def default_int() -> DType:
    """What ``int`` stands for now."""
    return _current[int]


def default_float() -> DType:
    """What ``float`` stands for now."""
    return _current[float]


def resolve(dtype: Any) -> DType:
    """The scalar type for a dtype of any notation: ours, Python's ``int``, or numpy's.

    ``TypeError`` if there is none.
    """
    if isinstance(dtype, DType):
        return dtype
    if isinstance(dtype, type) and dtype in _current:
        return _current[dtype]
    try:
        return from_numpy(dtype)
    except (KeyError, TypeError):
        names = ", ".join(known.name for known in ALL)
        raise TypeError(f"{dtype!r} is not a scalar type; these are: {names}") from None
