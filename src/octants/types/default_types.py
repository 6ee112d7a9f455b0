"""The types that Python's ``int`` and ``float`` stand for: `init` sets them."""

from __future__ import annotations

from typing import Any

from octants.types.scalars import ALL, DType, by_name, f32, from_numpy, i32, u1, u32


class uint:  # noqa: N801 - it stands beside int and float
    """The unsigned integer type of the width of ``int``, in ``math.uvec2`` and its like."""


_current: dict[type, DType] = {bool: u1, int: i32, float: f32, uint: u32}


def set_defaults(default_int: DType, default_float: DType) -> None:
    """Let ``int`` and ``float`` stand for these types from now on."""
    _current.update({int: default_int, float: default_float, uint: unsigned(default_int)})


def unsigned(dtype: DType) -> DType:
    """The unsigned type of the width of an integer type."""
    return by_name(f"u{dtype.bits}")


def default_int() -> DType:
    """The scalar type that ``int`` stands for now."""
    return _current[int]


def default_float() -> DType:
    """The scalar type that ``float`` stands for now."""
    return _current[float]


def resolve(dtype: Any) -> DType:
    """The scalar type for a dtype of any notation: ours, Python's ``int``, or numpy's.

    Strings are none: numpy's ``"u8"`` has eight bytes, and its ``"float"`` is not ``float`` here.

    Raises:
        TypeError: there is none.
    """
    if isinstance(dtype, DType):
        return dtype
    if isinstance(dtype, type) and dtype in _current:
        return _current[dtype]
    try:
        if not isinstance(dtype, str):
            return from_numpy(dtype)
    except (KeyError, TypeError, ValueError):
        pass
    names = [known.name for known in ALL]
    name = getattr(dtype, "__name__", None)
    problem = f"{repr(dtype) if name is None else name} is not a scalar type"
    if str(name).lower() in ("vector", "matrix"):
        sizes = "3" if str(name).lower() == "vector" else "3, 3"
        problem += f", but `qd.types.{str(name).lower()}({sizes}, qd.f32)` is a type of elements"
    raise TypeError(f"{problem}; these are: {', '.join(names)}")
